import test from 'ava';
import { claimOperations } from '../../src/api/content/claims.ts';
import { cursorOf } from '../../src/api/framework/paging.ts';
import { deletedOperations } from '../../src/api/permanence/deleted.ts';
import { auditOperations, audienceOf } from '../../src/api/server/audit.ts';
import { failedRequestOperations } from '../../src/api/server/failed-requests.ts';
import type { DeletedItem } from '../../src/permanence/deleted.ts';
import type { FailedRequest } from '../../src/usage/failed-requests.ts';
import { named, noted, runOf, scopes, sender } from '../support/operations.ts';

// Lists of names that an account sees within its limits: deleted ones, claims, failed requests and events.

const now = Date.UTC(2027, 0, 31);
const timeOf = (milliseconds: number) => new Date(milliseconds).toISOString();
const by = { kind: 'token', id: 'id', name: 'a writer' } as const;

const deletion: DeletedItem = {
  id: 5,
  accountId: 7,
  kind: 'package',
  type: 'version',
  name: 'A.One',
  reference: '1.0.0',
  digest: 'sha256:0',
  size: 30,
  rowId: 1,
  changedAt: 1,
  deletedBy: by,
  deletedAt: now,
  endsAt: now + 1,
};

test('deleted content is listed with its bytes, restored and purged within the limits of who asks', async (t) => {
  const asked: unknown[] = [];
  const list = [deletion, { ...deletion, id: 4, kind: 'container', type: 'tag' as const, name: 'App', size: 9 }];
  const left = Array.from({ length: 101 }, (_, index) => `v${index}`);
  const run = runOf(
    deletedOperations(
      {
        list: noted(asked, 'list', list),
        restore: noted(asked, 'restore', { left }),
        purge: noted(asked, 'purge'),
      } as never,
      90_000,
    ),
  );
  const version = {
    id: '5',
    kind: 'package',
    type: 'version',
    name: 'A.One',
    reference: '1.0.0',
    digest: 'sha256:0',
    size_bytes: 30,
    deleted_at: timeOf(now),
    deleted_by: null,
    restorable_until: timeOf(now + 1),
  };
  const tag = { ...version, id: '4', kind: 'image', type: 'tag', name: 'App', size_bytes: 9 };
  const read = (query: object, principal?: object) => run('listDeleted', { query }, principal);
  t.deepEqual(await read({}), { items: [version, tag], next_cursor: null, deleted_for_seconds: 90 });
  t.deepEqual(asked.pop(), ['list', 7, 51, { after: undefined, isOldest: false }]);
  t.is((await read({}, scopes('admin')))['items'][0].deleted_by, by);
  t.deepEqual((await read({ total: '1' }))['total'], { count: 2, size_bytes: 30 }, 'a tag has no bytes of its own');
  const first = await read({ limit: '1', sort: 'oldest' });
  t.is(first['next_cursor'], cursorOf('deleted, the oldest first', [5]));
  await read({ limit: '1', sort: 'oldest', cursor: first['next_cursor'] });
  t.deepEqual(asked.pop(), ['list', 7, 2, { after: 5, isOldest: true }]);
  t.deepEqual((await read({ q: 'ONE' }))['items'], [version]);
  t.deepEqual((await read({ q: 'app' }))['items'], [tag]);
  t.deepEqual((await read({}, named('a.one')))['items'], [version]);
  t.deepEqual((await read({ q: 'x' }, named('a.one')))['items'], []);

  asked.length = 0;
  t.deepEqual(await run('restoreDeleted'), { id: '5', left_tags: left.slice(0, 100) });
  const limits = named('a.one');
  await run('restoreDeleted', { params: { id: '123456789012345' } }, limits);
  await run('purgeDeleted', { query: { reason: ' why ' } }, limits);
  t.deepEqual(asked, [
    ['restore', 7, 5, undefined],
    ['restore', 7, 123_456_789_012_345, limits.names],
    ['purge', 7, 5, 'why', limits.names],
  ]);
  for (const id of ['0', '05', 'x5', '5x', '1234567890123456'])
    await t.throwsAsync(run('restoreDeleted', { params: { id } }), {
      name: 'NotFound',
      message: `This account has no deletion ${id} that can be undone.`,
    });
  await t.throwsAsync(run('purgeDeleted', { params: { id: 'x'.repeat(60) }, query: { reason: 'y' } }), {
    message: `This account has no deletion ${'x'.repeat(50)} that can be undone.`,
  });
});

const claimItem = (kind: string, name: string) => ({ kind, name, since: timeOf(now) });

test('claims of all kinds are one list, from one kind to the next', async (t) => {
  const asked: unknown[] = [];
  const claimsOf = (kind: string, names: string[]) => ({
    kind,
    claims: {
      contents: 'versions',
      list: (id: number, from: string, limit: number) => {
        asked.push([kind, id, from, limit]);
        return Promise.resolve(
          names
            .filter((each) => each > from)
            .slice(0, limit)
            .map((each) => ({ name: each.toUpperCase(), position: each, since: now })),
        );
      },
      release: (id: number, name: string) => {
        asked.push(['release', kind, id, name]);
        return Promise.resolve(undefined);
      },
    },
  });
  const operations = claimOperations([claimsOf('package', ['a', 'b']), claimsOf('container', ['a/x', 'c'])] as never);
  const run = runOf(operations);
  const all = [
    claimItem('package', 'A'),
    claimItem('package', 'B'),
    claimItem('container', 'A/X'),
    claimItem('container', 'C'),
  ];
  const list = (query: object, principal?: object) => run('listClaims', { query }, principal);
  t.deepEqual(await list({}), { items: all, next_cursor: null });
  t.deepEqual(asked.splice(0), [
    ['package', 7, '', 51],
    ['container', 7, '', 49],
  ]);
  const found: unknown[] = [];
  const cursors: unknown[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < 4; pages += 1) {
    const page = await list({ limit: '1', cursor });
    found.push(...page['items']);
    cursors.push((cursor = page['next_cursor'] ?? undefined));
  }
  t.deepEqual(found, all);
  t.deepEqual(cursors, [
    cursorOf('claims', [0, 'a']),
    cursorOf('claims', [0, 'b']),
    cursorOf('claims', [1, 'a/x']),
    undefined,
  ]);
  t.deepEqual(asked.splice(0), [
    ['package', 7, '', 2],
    ['package', 7, 'a', 2],
    ['container', 7, '', 1],
    ['package', 7, 'b', 2],
    ['container', 7, '', 2],
    ['container', 7, 'a/x', 2],
  ]);
  for (const key of [
    [-1, ''],
    [101, ''],
    [1.5, ''],
  ])
    await t.throwsAsync(list({ cursor: cursorOf('claims', key) }), { name: 'Invalid' });
  await list({ cursor: cursorOf('claims', [100, '']) });
  t.deepEqual(asked.splice(0), []);
  t.deepEqual((await list({ q: 'A' }))['items'], [all[0], all[2]]);
  t.deepEqual(asked[0], ['package', 7, '', 500], 'a filter reads more');
  t.deepEqual((await list({}, named('b')))['items'], [all[1]]);
  t.deepEqual((await list({ q: 'a' }, named('b')))['items'], []);
  t.deepEqual((await list({ total: '1' }))['total'], { count: 4 });

  t.deepEqual(
    operations
      .slice(1)
      .map(({ path, id, subject }) => [path, id, subject?.kind, subject?.param, subject?.keyOf?.('A')]),
    [
      ['/claims/package/:name', 'releasePackageClaim', 'package', 'name', 'a'],
      ['/claims/container/*name', 'releaseContainerClaim', 'container', 'name', 'a'],
    ],
  );
  await run('releaseContainerClaim', { params: { name: 'a/x' } });
  t.deepEqual(asked.at(-1), ['release', 'container', 7, 'a/x']);
});

const failure: FailedRequest = {
  id: 'f1',
  kind: 'package',
  name: 'a.one',
  reference: '',
  status: 404,
  code: 'NotFound',
  reason: 'none',
  upstream: null,
  accountId: 7,
  tokenId: 'mine',
  requestId: 'r1',
  count: 3,
  firstAt: now,
  lastAt: now + 1,
};

test('failed requests are those of the account, or with operate all, with the names of tokens and accounts', async (t) => {
  const asked: unknown[] = [];
  const other = { ...failure, id: 'f2', name: 'b', reference: '1.0', accountId: 8, tokenId: 'gone' };
  const all = [failure, other, { ...failure, id: 'f3', kind: 'container', tokenId: null }];
  const ranked = all.map((item, index) => ({ rank: [9 - index, item.id] as const, item }));
  const run = runOf(
    failedRequestOperations(
      { list: noted(asked, 'list', all), ranked: noted(asked, 'ranked', ranked) } as never,
      { get: (_id: number, id: string) => Promise.resolve(id === 'mine' ? { name: 'Build' } : undefined) } as never,
      (id) => Promise.resolve(id === 7 ? 'alpha' : undefined),
    ),
  );
  const list = (query: object, principal: object = scopes('admin')) => run('listFailedRequests', { query }, principal);
  const shown = {
    kind: 'package',
    name: 'a.one',
    reference: null,
    status: 404,
    code: 'NotFound',
    reason: 'none',
    upstream: null,
    account: 'alpha',
    token_id: 'mine',
    token_name: 'Build',
    request_id: 'r1',
    count: 3,
    first_at: timeOf(now),
    last_at: timeOf(now + 1),
  };
  t.deepEqual(await list({}), {
    items: [
      shown,
      { ...shown, name: 'b', reference: '1.0', account: null, token_id: 'gone', token_name: null },
      { ...shown, kind: 'container', token_id: null, token_name: null },
    ],
    next_cursor: null,
  });
  const none = {
    accountId: 7,
    kind: undefined,
    names: undefined,
    tokenId: undefined,
    upstream: undefined,
    code: undefined,
  };
  t.deepEqual(asked.pop(), ['list', none, 51, undefined]);
  const query = { kind: 'package', name: 'A.One', token_id: 't', upstream: 'u', code: 'c', limit: '1' };
  const filter = { accountId: undefined, kind: 'package', names: ['a.one'], tokenId: 't', upstream: 'u', code: 'c' };
  const first = await list(query, scopes('operate'));
  t.is(first['next_cursor'], cursorOf('failed-requests', [now + 1, 'f1']));
  await list({ ...query, cursor: first['next_cursor'] }, scopes('operate', 'admin'));
  t.deepEqual(asked.pop(), ['list', filter, 2, [now + 1, 'f1']]);
  const counted = await list({ sort: 'count', limit: '1' });
  t.is(counted['next_cursor'], cursorOf('failed-requests by count', [9, 'f1']));
  await list({ sort: 'count', limit: '1', cursor: counted['next_cursor'] });
  t.deepEqual(asked.pop(), ['ranked', none, 2, [9, 'f1']]);
  const limited = { ...shown, token_name: null };
  for (const sort of [{}, { sort: 'count' }])
    t.deepEqual((await list(sort, { ...scopes('admin'), ...named('a.one') }))['items'], [limited]);
  await t.throwsAsync(list({}, {}), { name: 'ScopeMissing' });
});

test('events are those of the account that is asked for and may be seen', async (t) => {
  const asked: unknown[] = [];
  const accounts = { named: (name: string) => Promise.resolve(name === 'beta' ? { id: 8 } : undefined) } as never;
  const of = async (principal: object, account?: string) => {
    const { accountId, names } = await audienceOf(accounts, { ...sender, ...principal } as never, account);
    return [accountId, names];
  };
  const limits = named('a');
  t.deepEqual(await of(scopes('admin')), [7, undefined]);
  t.deepEqual(await of(scopes('admin'), 'alpha'), [7, undefined]);
  t.deepEqual(await of({ ...scopes('admin'), ...limits }), [7, limits.names]);
  t.deepEqual(await of(scopes('operate')), [undefined, undefined]);
  t.deepEqual(await of(scopes('operate', 'admin')), [undefined, undefined]);
  t.deepEqual(await of(scopes('operate'), 'alpha'), [7, undefined]);
  t.deepEqual(await of(scopes('operate', 'admin'), 'alpha'), [7, undefined]);
  t.deepEqual(await of(scopes('operate'), 'beta'), [8, undefined]);
  await t.throwsAsync(of(scopes('admin'), 'beta'), { name: 'ScopeMissing' });
  await t.throwsAsync(of({}), { name: 'ScopeMissing' });
  t.like(await t.throwsAsync(of(scopes('operate'), 'none'), { name: 'Invalid' }), { detail: { parameter: 'account' } });
  const limited = audienceOf(accounts, { ...sender, ...scopes('admin'), ...limits } as never, undefined, 'all names');
  await t.throwsAsync(limited, { name: 'NameDenied', message: 'all names' });

  const event = {
    position: 12,
    time: now,
    type: 'package.published',
    account: 'alpha',
    actor: by,
    subject: { kind: 'package', name: 'A' },
    address: null,
    requestId: null,
    details: {},
  };
  const page = { events: [event], next: [now, 12] };
  const run = runOf(
    auditOperations({
      accounts,
      events: {
        dispatch: () => Promise.reject(new Error('the database cannot be written')),
        listBefore: noted(asked, 'before', page),
        listAfter: noted(asked, 'after', page),
      },
    } as never),
  );
  const list = (query: object) => run('listEvents', { query }, scopes('admin'));
  const before = await list({});
  t.is(before['items'][0].id, '12');
  t.is(before['next_cursor'], cursorOf('audit', [now, 12]));
  await list({ cursor: before['next_cursor'], limit: '3' });
  const after = await list({ after: '5' });
  t.is(after['next_cursor'], cursorOf('audit/after', [now, 12]));
  const query = { type: 'package.*', actor: 'a', subject: 's', since: timeOf(now), until: timeOf(now + 1) };
  await list({ ...query, after: '5', cursor: after['next_cursor'] });
  const filter = { accountId: 7, names: undefined, type: undefined, actor: undefined, subject: undefined };
  t.deepEqual(asked, [
    ['before', filter, 50, undefined],
    ['before', filter, 3, [now, 12]],
    ['after', filter, 50, 5],
    ['after', { ...filter, ...query, since: now, until: now + 1 }, 50, 12],
  ]);
  await t.throwsAsync(list({ cursor: after['next_cursor'] }), { name: 'Invalid' }, 'of the other direction');
});

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('an account reads two lists of events at a time, and others do not wait for it', async (t) => {
  const waiting: (() => void)[] = [];
  const begun: number[] = [];
  const run = runOf(
    auditOperations({
      accounts: {},
      events: {
        dispatch: () => Promise.resolve(),
        listBefore: async ({ accountId }: { accountId: number }) => {
          begun.push(accountId);
          await new Promise<void>((resolve) => waiting.push(resolve));
          return { events: [], next: undefined };
        },
      },
    } as never),
  );
  const list = (accountId: number) => run('listEvents', {}, { ...scopes('admin'), accountId });
  const all = [7, 7, 7, 8].map(list);
  await turn();
  t.deepEqual(begun, [7, 7, 8]);
  waiting.shift()!();
  t.deepEqual(await all[0], { items: [], next_cursor: null });
  await turn();
  t.deepEqual(begun, [7, 7, 8, 7]);
  for (const each of waiting) each();
  await Promise.all(all);
});
