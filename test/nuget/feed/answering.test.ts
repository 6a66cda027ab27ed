import test from 'ava';
import { Router } from 'express';
import { NameSet } from '../../../src/accounts/names.ts';
import { runInContext, type RequestContext } from '../../../src/http/request-context.ts';
import { answeringWith } from '../../../src/nuget/feed/answering.ts';
import type { Answering, FeedCall } from '../../../src/nuget/feed/call.ts';
import { createPastFeed } from '../../../src/nuget/feed/past-routes.ts';
import { createFeed } from '../../../src/nuget/feed/routes.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { answerRequests } from '../../support/answers.ts';

const everyone = {
  kind: 'token',
  accountId: 1,
  accountName: 'team',
  names: undefined,
  scopes: new Set(['read', 'write', 'delete']),
};

interface Given {
  principal?: object | undefined;
  /** Whether a takeover keeps an id to itself. */
  isClosed?: boolean;
  revision?: string;
  source?: object;
  isUpstreamOnly?: boolean;
  hasWrongKey?: boolean;
  now?: number;
}

/** A feed of the test; `asked` has what its parts were asked, `calls` the calls of its routes. */
async function feedOf(t: { teardown: (done: () => void) => void }, add: (parts: any) => Router, given: Given = {}) {
  const asked: unknown[][] = [];
  const logged: unknown[][] = [];
  const note =
    (name: string, answer: unknown) =>
    (...what: unknown[]) => {
      asked.push([name, ...what]);
      return answer;
    };
  const hostedOnly = { name: 'hosted only' };
  const source = {
    hostedOnly,
    revisionOf: note('revisionOf', Promise.resolve(given.revision)),
    isUpstreamOnly: note('isUpstreamOnly', Promise.resolve(given.isUpstreamOnly ?? true)),
    ...given.source,
  };
  const parts = {
    source,
    authenticator: {
      principalOf: (_request: unknown, { onInvalidKey, ...rules }: { onInvalidKey: () => void }) => {
        asked.push(['principalOf', rules]);
        if (given.hasWrongKey) onInvalidKey();
        return Promise.resolve('principal' in given ? given.principal : everyone);
      },
    },
    quota: { admit: (_principal: unknown, bytes: number) => Promise.resolve(void asked.push(['admit', bytes])) },
    log: Object.fromEntries(
      ['info', 'warn', 'error'].map((level) => [level, (...line: unknown[]) => logged.push([level, ...line])]),
    ),
    urls: { of: () => ({ feed: 'https://here.test' }) },
    takeover: {
      isClosed: note('isClosed', Promise.resolve(given.isClosed ?? false)),
      bring: note('bring', Promise.resolve(given.isClosed ?? false)),
    },
    feed: { now: () => given.now ?? 0 },
    views: { of: () => Promise.reject(new Error('no views')) },
    search: {},
    symbols: {},
  };
  const router = add(parts);
  let context: RequestContext | undefined;
  const port = await answerRequests(t, (request, response) => {
    context = response.context;
    runInContext(response, () => router(request as never, response as never, () => response.writeHead(598).end()));
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    asked,
    logged,
    hostedOnly,
    source,
    ask: async (path: string, init: RequestInit = {}) => {
      const response = await fetch(`${url}${path}`, init);
      const text = await response.text();
      return {
        status: response.status,
        statusText: response.statusText,
        headers: response.headers,
        body: text === '' ? undefined : JSON.parse(text),
        context: context!,
      };
    },
  };
}

/** A feed with one route for each shape of path; `calls` gets the calls. */
function plainFeed(calls: FeedCall[], isPast = false, needs: Partial<Record<string, unknown[]>> = {}) {
  return (parts: any) => {
    const answering = answeringWith(parts, () => ({ prefix: '/as-of/day', source: parts.source, isPast }));
    const router = Router();
    const route = (method: 'get' | 'put', path: string, action: string) => {
      const [run, ...more] = (needs[path] ?? []) as [((call: FeedCall) => unknown)?, ...never[]];
      const answer = async (call: FeedCall) => {
        calls.push(call);
        await run?.(call);
        call.response.writeHead(204).end();
      };
      router[method](path, answering(action as Parameters<Answering>[0], answer, ...more));
    };
    route('get', '/index', 'read');
    route('get', '/package/:id/index', 'read');
    route('get', '/package/:id/:version/:file', 'read');
    route('get', '/version/:id/:version', 'read');
    route('put', '/change/:id/:version', 'write');
    route('put', '/push', 'write');
    return router;
  };
}

test('a call has the addresses, the packages and the account of its request, which is noted', async (t) => {
  const calls: FeedCall[] = [];
  const { ask, asked, source } = await feedOf(t, plainFeed(calls, false, { '/index': [undefined, 'version-check'] }));
  const answer = await ask('/index');
  t.is(answer.status, 204);
  const [call] = calls as [FeedCall];
  t.deepEqual(
    [call.accountId, call.isPast, { ...call.path }, call.addresses.at('x')],
    [1, false, {}, 'https://here.test/as-of/day/v3/x'],
  );
  t.true(Object.is(call.source, source));
  t.true(Object.is(call.principal, everyone));
  const { kind, subject, act, asked: wanted, version } = answer.context;
  t.deepEqual([kind, subject, act, wanted, version], ['package', '', 'version-check', undefined, undefined]);
  t.deepEqual(asked, [['principalOf', { apiKey: true }]]);
});

test('an id is noted in lower case, and its package is brought here before it is read', async (t) => {
  const calls: FeedCall[] = [];
  const { ask, asked } = await feedOf(t, plainFeed(calls));
  const notes = async (path: string, init?: RequestInit) => {
    const { context } = await ask(path, init);
    return [context.subject, context.asked, asked.splice(0).slice(1)];
  };
  const about = { kind: 'package', accountId: 1, name: 'lib' };
  const name = 'lib';
  t.deepEqual(await notes('/package/LIB/index'), [
    'lib',
    { name, reference: '' },
    [['bring', { ...about, reference: undefined }]],
  ]);
  t.deepEqual(await notes('/package/Lib/1.0-RC/lib.1.0.nupkg'), [
    'lib',
    { name, reference: '1.0-RC' },
    [['bring', { ...about, reference: '1.0.0-rc' }]],
  ]);
  t.deepEqual(await notes('/package/Lib/1.0/icon'), ['lib', undefined, [['bring', { ...about, reference: '1.0.0' }]]]);
  t.deepEqual(await notes('/version/Lib/x'), ['lib', { name, reference: 'x' }, [['isClosed', about]]]);
  t.deepEqual(await notes('/package/a..b/index'), ['a..b', { name: 'a..b', reference: '' }, []]);
  t.deepEqual(await notes('/change/Lib/1.0', { method: 'PUT' }), ['lib', { name, reference: '1.0' }, []]);
  t.is(calls.length, 6);
});

test('the past brings nothing here', async (t) => {
  const { ask, asked } = await feedOf(t, plainFeed([], true));
  await ask('/package/Lib/1.0/lib.nupkg');
  t.deepEqual(asked.slice(1), [['isClosed', { kind: 'package', accountId: 1, name: 'lib' }]]);
});

test('an id that a takeover closes is not found, unless it is hosted already', async (t) => {
  const calls: FeedCall[] = [];
  const { ask } = await feedOf(t, plainFeed(calls), { isClosed: true });
  const answer = await ask('/package/Lib/index');
  t.is(answer.status, 404);
  t.is(answer.body.detail, 'The package lib does not exist in this feed.');
  t.deepEqual(calls, []);
  const hosted = await feedOf(t, plainFeed(calls), { isClosed: true, revision: '1/1' });
  t.is((await hosted.ask('/package/Lib/index')).status, 204);
  t.deepEqual(hosted.asked.at(-1), ['revisionOf', 1, 'lib']);
});

const names = (...patterns: string[]) => ({ ...everyone, names: { of: () => new NameSet(patterns) } });

test('names of a token limit what it reads, and it pushes if it has a name', async (t) => {
  const calls: FeedCall[] = [];
  const push: unknown[] = [undefined, 'upload'];
  const { ask } = await feedOf(t, plainFeed(calls, false, { '/push': push }), { principal: names('app') });
  const refused = await ask('/package/Lib/index');
  t.deepEqual([refused.status, refused.body.code], [403, 'NameDenied']);
  t.is((await ask('/change/LIB/1.0', { method: 'PUT' })).status, 403);
  t.is((await ask('/package/APP/index')).status, 204);
  const admitted = await feedOf(t, plainFeed(calls, false, { '/push': push }), { principal: names('app') });
  const pushed = await admitted.ask('/push', { method: 'PUT', body: '1234567' });
  t.deepEqual([pushed.status, pushed.context.act], [204, 'upload']);
  t.deepEqual(admitted.asked.slice(1), [['admit', 7]]);
  const none = await feedOf(t, plainFeed(calls, false, { '/push': push }), { principal: names() });
  t.is((await none.ask('/push', { method: 'PUT' })).status, 403);
  t.is((await none.ask('/index')).status, 204);
});

test('names that another account shares are read from its hosted packages', async (t) => {
  const calls: FeedCall[] = [];
  const shared = { ownerOf: () => Promise.resolve(2) };
  const { ask, asked, hostedOnly } = await feedOf(t, plainFeed(calls), { principal: { ...everyone, shared } });
  await ask('/package/Lib/index');
  t.is(calls[0]!.accountId, 2);
  t.true(Object.is(calls[0]!.source, hostedOnly));
  t.deepEqual(asked.at(-1), ['bring', { kind: 'package', accountId: 2, name: 'lib', reference: undefined }]);
  await ask('/change/Lib/1.0', { method: 'PUT' });
  t.is(calls[1]!.accountId, 1);
});

test('an anonymous reader of mirrored content reads as no account, and needs a token for other names', async (t) => {
  const principal = { ...everyone, kind: 'anonymous', reads: 'mirrored', scopes: new Set(['read']) };
  const calls: FeedCall[] = [];
  const mirrored = await feedOf(t, plainFeed(calls), { principal });
  t.is((await mirrored.ask('/package/Lib/index')).status, 204);
  t.is(calls[0]!.accountId, 0);
  t.deepEqual(mirrored.asked.slice(1), [['isUpstreamOnly', 1, 'lib']]);
  const other = await feedOf(t, plainFeed(calls), { principal, isUpstreamOnly: false });
  const refused = await other.ask('/package/Lib/index');
  t.deepEqual([refused.status, refused.headers.get('www-authenticate')], [401, 'Basic realm="Entrepot"']);
});

test('a wrong API key beside valid credentials is warned of', async (t) => {
  const { ask, logged } = await feedOf(t, plainFeed([]), { hasWrongKey: true });
  const answer = await ask('/index');
  t.is(answer.status, 204);
  t.is(
    answer.headers.get('x-nuget-warning'),
    'The API key is not valid; the credentials of the package source were used. Correct or remove the key.',
  );
  t.deepEqual(logged, [
    ['warn', { request: answer.context.id }, 'the API key of a request is not valid; its other credentials were used'],
  ]);
});

test('errors are answered with their status, and only a missing credential with a challenge', async (t) => {
  let error: Error | undefined;
  const fail = () => Promise.reject(error!);
  const { ask } = await feedOf(t, plainFeed([], false, { '/index': [fail] }));
  for (const [name, status] of [
    ['Unauthorized', 401],
    ['ScopeMissing', 403],
    ['NameDenied', 403],
    ['Denied', 403],
    ['NotFound', 404],
    ['Invalid', 400],
    ['PackageInvalid', 400],
    ['Aborted', 400],
    ['AlreadyExists', 409],
    ['Kept', 409],
    ['TooLarge', 413],
    ['QuotaExceeded', 413],
    ['StorageFull', 507],
    ['DatabaseUnavailable', 503],
    ['StorageUnavailable', 503],
    ['Unsupported', 415],
    ['RangeNotSatisfiable', 416],
    ['TooManyRequests', 429],
    ['ContentDamaged', 500],
    ['UpstreamUnavailable', 502],
    ['UpstreamTimeout', 504],
    ['TagFrozen', 500],
  ] as const) {
    error = new DomainError(name, 'a message', { detail: { more: 1 } });
    const answer = await ask('/index');
    t.is(answer.status, status, name);
    t.is(answer.headers.get('www-authenticate'), status === 401 ? 'Basic realm="Entrepot"' : null, name);
    if (name === 'TagFrozen') t.is(answer.body.code, 'Internal');
    else t.like(answer.body, { code: name, detail: 'a message', more: 1 });
  }
  for (const offline of [true, false]) {
    error = new UpstreamError('UpstreamUnavailable', 'a message', { offline });
    t.is((await ask('/index')).status, offline ? 504 : 502);
  }
});

const date = '2026-03-05';

/** The feed of the past; `since` is the day since when a package is known. */
function pastFeed(t: Parameters<typeof feedOf>[0], since: string | undefined, asked: unknown[], more: Given = {}) {
  const past = {
    at: (until: number) => {
      asked.push(['at', until]);
      const nothing = {
        revisionOf: () => Promise.resolve(undefined),
        versionKeys: () => undefined,
        openFile: () => undefined,
      };
      return { ...nothing, hostedOnly: nothing };
    },
    knownSince: (...given: unknown[]) => {
      asked.push(['knownSince', ...given]);
      return Promise.resolve(since);
    },
  };
  const add = (parts: any) => Router().use('/as-of/:date/v3', createPastFeed(parts, past as never));
  return feedOf(t, add, { now: Date.parse(`${date}T10:00:00Z`), ...more });
}

test('what is known since a later day says so, and other errors stay as they are', async (t) => {
  const reasons: [since: string | undefined, path: string, message: string][] = [
    [
      '2026-03-06',
      'package/Lib/index.json',
      `Lib is known from 2026-03-06, and this address shows the feed of ${date}.`,
    ],
    [
      '2026-03-06',
      'package/Lib/1.0/readme',
      `Lib 1.0 is known from 2026-03-06, and this address shows the feed of ${date}.`,
    ],
    [date, 'package/Lib/index.json', 'The package Lib does not exist in this feed.'],
    [undefined, 'package/Lib/index.json', 'The package Lib does not exist in this feed.'],
  ];
  for (const [since, path, message] of reasons) {
    const asked: unknown[] = [];
    const { ask } = await pastFeed(t, since, asked);
    const answer = await ask(`/as-of/${date}/v3/${path}`);
    t.deepEqual([answer.status, answer.body.detail], [404, message]);
    t.deepEqual(asked, [
      ['at', Date.parse(`${date}T23:59:59.999Z`)],
      ['knownSince', { accountId: 1, isShared: false }, 'Lib', path.includes('1.0') ? '1.0' : undefined],
    ]);
  }
  const asked: unknown[] = [];
  const { ask } = await pastFeed(t, '2026-03-06', asked);
  t.is((await ask('/as-of/2026-03-06/v3/package/Lib/index.json')).status, 400);
  const data = await ask(`/as-of/${date}/v3/vulnerabilities/index.json`);
  t.is(data.status, 500);
  t.false(asked.some((each) => (each as unknown[])[0] === 'knownSince'));
  const index = await ask(`/as-of/${date}/v3/index.json`);
  t.is(index.body.resources[0]['@id'], `https://here.test/as-of/${date}/v3/package`);
});

test('a shared package is known since it was published in the account that shares it', async (t) => {
  const asked: unknown[] = [];
  const shared = { ownerOf: () => 2 };
  const { ask } = await pastFeed(t, undefined, asked, {
    principal: { ...everyone, shared },
  });
  await ask(`/as-of/${date}/v3/package/Lib/index.json`);
  const known = asked.filter((each) => (each as unknown[])[0] === 'knownSince');
  t.deepEqual(known, [['knownSince', { accountId: 2, isShared: true }, 'Lib', undefined]]);
});

test('the past takes only reads, and has no search', async (t) => {
  const { ask } = await pastFeed(t, undefined, []);
  for (const method of ['PUT', 'POST', 'DELETE']) {
    const answer = await ask(`/as-of/${date}/v3/push`, { method });
    t.deepEqual([answer.status, answer.headers.get('allow')], [405, 'GET, HEAD']);
    t.deepEqual(
      [answer.body.code, answer.body.detail],
      ['MethodNotAllowed', 'The past cannot be changed: push to the feed without a date.'],
    );
  }
  const search = await ask(`/as-of/${date}/v3/search`);
  t.deepEqual(
    [search.status, search.body.code, search.body.detail],
    [404, 'NotFound', 'The feed as of a date has packages and their registrations, and no search. Check the address.'],
  );
  t.is((await ask(`/as-of/${date}/v3/search`, { method: 'HEAD' })).status, 404);
});

test('another address of the feed answers with the address of the package source', async (t) => {
  const { ask } = await feedOf(t, (parts) => createFeed(parts));
  const index = await ask('/index.json');
  t.is(index.body.resources[0]['@id'], 'https://here.test/v3/package');
  const answer = await ask('/Packages()');
  const message =
    'There is nothing at this address. The feed is NuGet V3, not V2: use https://here.test/v3/index.json as package source, also for pushes.';
  t.deepEqual(
    [answer.status, answer.statusText, answer.body.code, answer.body.detail],
    [404, message, 'NotFound', message],
  );
});
