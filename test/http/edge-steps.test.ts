import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import { pino } from 'pino';
import type { Principal, Scope } from '../../src/accounts/principal.ts';
import { createEdge, type WireOperation } from '../../src/http/edge.ts';
import { AppResponse } from '../../src/http/request-context.ts';
import { DomainError, type ErrorName } from '../../src/runtime/errors.ts';

// The steps of a request, with a protocol that only notes them.

const principalOf = (scopes: readonly Scope[], more: object = {}) =>
  ({
    kind: 'token',
    accountId: 1,
    accountName: 'team',
    tokenId: 't',
    scopes: new Set(scopes),
    ...more,
  }) as unknown as Principal;

interface Given {
  principal?: Principal;
  /** What `authenticate` throws. */
  refusal?: unknown;
  operation?: Partial<WireOperation<string>>;
  kind?: 'package' | 'other';
  url?: string;
  /** What `run` does. */
  run?: (response: AppResponse, call: string) => void;
  /** Whether there are limits, which are noted. */
  isLimited?: boolean;
  onUnauthorized?: () => void;
  onlyAccount?: string;
}

const statuses: Partial<Record<ErrorName, number>> = {
  Unauthorized: 401,
  ScopeMissing: 403,
  Denied: 403,
  NotFound: 404,
  RangeNotSatisfiable: 416,
  TooManyRequests: 429,
  DatabaseUnavailable: 503,
  StorageUnavailable: 503,
  StorageFull: 507,
  UpstreamUnavailable: 502,
};

/** The steps of one request, its answer and its record. */
async function stepsOf(given: Given) {
  const { principal = principalOf(['read', 'write']), refusal, url = '/v3/package/a/index.json' } = given;
  const steps: unknown[] = [];
  const lines: string[] = [];
  const request = new IncomingMessage(new Socket());
  Object.assign(request, { method: 'GET', url, headers: { 'content-length': '7' } });
  const response = new AppResponse(request);
  response.onlyAccount = given.onlyAccount;
  const taken = async (name: string) => {
    await setImmediate();
    steps.push(`limit of ${name}`);
  };
  if (given.isLimited)
    response.limits = {
      has: (limit: string) => limit === 'requests',
      take: taken,
      upload: () => taken('uploads').then(() => () => void steps.push('end of the upload')),
    } as never;
  const edge = createEdge<string, string>({
    kind: given.kind ?? 'package',
    log: pino({}, { write: (line: string) => void lines.push(line) }),
    quota: {
      admit: (owner: Principal, bytes: number) => Promise.resolve(void steps.push(['admit', owner.accountName, bytes])),
    } as never,
    authenticate: () => (refusal === undefined ? Promise.resolve(principal) : Promise.reject(refusal)),
    find: () => {
      steps.push('find');
      const run = (call: string) => {
        given.run?.(response, call);
        steps.push('run');
      };
      return { action: 'read', stores: false, run, ...given.operation };
    },
    open: ({ target }) => {
      steps.push('open');
      return Promise.resolve(`call of ${target}`);
    },
    statusOf: ({ name }) => statuses[name],
    challenge: ({ name }) => `Basic realm="${name}"`,
    ...(given.onUnauthorized && { onUnauthorized: given.onUnauthorized }),
    refuse: (_request, _response, status, error) => void steps.push([status, error?.name]),
  });
  await edge('a target', request, response);
  const { kind, failure, principal: known } = response.context;
  const header = (name: string) => response.getHeader(name);
  return { steps, lines, response, kind, failure, known, header, said: response.statusMessage as string | undefined };
}

/** The steps of a request that fails while it is answered. */
function throwing(error: Error) {
  return stepsOf({
    run: () => {
      throw error;
    },
  });
}

test('a request is authenticated, found, allowed and opened before it is answered, and one that stores counts for quotas', async (t) => {
  const read = await stepsOf({});
  t.deepEqual(read.steps, ['find', 'open', 'run']);
  t.is(read.kind, 'package');
  t.is(read.known?.accountName, 'team');
  t.is(read.failure, undefined);
  const stored = await stepsOf({ operation: { action: 'write', stores: true } });
  t.deepEqual(stored.steps, ['find', 'open', ['admit', 'team', 7], 'run']);
  const cost = await stepsOf({ operation: { cost: 'searches' } });
  t.deepEqual(cost.steps, ['find', 'open', 'run']);
  const denied = await stepsOf({ operation: { action: 'admin', stores: true } });
  t.deepEqual(denied.steps, ['find', [403, 'ScopeMissing']]);
  t.is(denied.header('www-authenticate'), 'Basic realm="ScopeMissing"');
  t.is(denied.said, 'This token lacks the scope "admin".');
});

test('a request counts for the limit of requests, for that of its cost, and an upload until the end of its answer', async (t) => {
  const calls: string[] = [];
  const run = (_response: AppResponse, call: string) => void calls.push(call);
  const read = await stepsOf({ isLimited: true, run });
  t.deepEqual(read.steps, ['limit of requests', 'find', 'open', 'run']);
  t.deepEqual(calls, ['call of a target']);
  const search = await stepsOf({ isLimited: true, operation: { cost: 'searches' } });
  t.deepEqual(search.steps, ['limit of requests', 'find', 'open', 'limit of searches', 'run']);
  const stored = await stepsOf({ isLimited: true, operation: { action: 'write', stores: true } });
  const steps = ['limit of requests', 'find', 'open', ['admit', 'team', 7], 'limit of uploads', 'run'];
  t.deepEqual(stored.steps, steps);
  stored.response.emit('close');
  t.deepEqual(stored.steps, [...steps, 'end of the upload']);
  const reader = await stepsOf({
    isLimited: true,
    principal: principalOf(['read'], { kind: 'anonymous', reads: 'all' }),
  });
  t.deepEqual(reader.steps, ['find', 'open', 'run'], 'anonymous requests have another limit');
});

test('no content is sent for the name of a check, which was never anywhere', async (t) => {
  const url = `/v3/package/entrepot-check.${'0'.repeat(32)}/index.json`;
  t.deepEqual((await stepsOf({ url })).steps, ['find', 'open', [404, 'NotFound']]);
  t.deepEqual((await stepsOf({ url, kind: 'other' })).steps, ['find', 'open', 'run']);
  t.deepEqual((await stepsOf({ url, operation: { action: 'any' } })).steps, ['find', 'open', 'run']);
});

test('at an alias of an account the credentials of another one are refused, and a reader without any is asked for some', async (t) => {
  t.deepEqual((await stepsOf({ onlyAccount: 'team' })).steps, ['find', 'open', 'run']);
  const other = await stepsOf({ onlyAccount: 'other' });
  t.deepEqual(other.steps, [[403, 'Denied']]);
  t.is(other.known, undefined);
  const principal = principalOf(['read'], { kind: 'anonymous', reads: 'all' });
  t.deepEqual((await stepsOf({ onlyAccount: 'other', principal })).steps, [[401, 'Unauthorized']]);
  t.deepEqual((await stepsOf({ onlyAccount: 'team', principal })).steps, ['find', 'open', 'run']);
});

test('a failed sign-in is counted, and may be refused for that instead', async (t) => {
  let counted = 0;
  const refusal = new DomainError('Unauthorized', 'Who is it?');
  const failed = await stepsOf({ refusal, onUnauthorized: () => void (counted += 1) });
  t.deepEqual([failed.steps, counted], [[[401, 'Unauthorized']], 1]);
  t.is(failed.header('www-authenticate'), 'Basic realm="Unauthorized"');
  t.deepEqual(failed.failure, { code: 'Unauthorized', reason: 'Who is it?', upstream: null });
  const limit = new DomainError('TooManyRequests', 'Later.', { retryAfter: 7 });
  const limited = await stepsOf({
    refusal,
    onUnauthorized: () => {
      throw limit;
    },
  });
  t.deepEqual(limited.steps, [[429, 'TooManyRequests']]);
  t.deepEqual([limited.header('retry-after'), limited.header('www-authenticate')], [7, undefined]);
  const broken = await stepsOf({
    refusal,
    onUnauthorized: () => {
      throw new Error('no database');
    },
  });
  t.deepEqual(broken.steps, [[401, 'Unauthorized']]);
  await stepsOf({ refusal: new DomainError('NotFound', 'No.'), onUnauthorized: () => void (counted += 1) });
  t.is(counted, 1, 'another refusal is no sign-in');
});

test('a refusal says what is wrong, and a defect says nothing but its request', async (t) => {
  const upstream = await throwing(new DomainError('UpstreamUnavailable', 'It\nfails.', { detail: { upstream: 'up' } }));
  t.deepEqual(upstream.steps.at(-1), [502, 'UpstreamUnavailable']);
  t.deepEqual(upstream.failure, { code: 'UpstreamUnavailable', reason: 'It\nfails.', upstream: 'up' });
  t.is(upstream.said, 'It fails.');
  t.is(upstream.header('www-authenticate'), undefined);
  t.deepEqual(upstream.lines, []);
  const range = await throwing(new DomainError('RangeNotSatisfiable', 'Outside.', { detail: { size: 10 } }));
  t.is(range.header('content-range'), 'bytes */10');
  t.is(
    (await throwing(new DomainError('NotFound', 'No.', { detail: { size: 10 } }))).header('content-range'),
    undefined,
  );
  for (const error of [new Error('a secret'), new DomainError('TagInvalid', 'a secret')]) {
    const defect = await throwing(error);
    t.deepEqual(defect.steps.at(-1), [500, undefined]);
    t.not(defect.said, 'a secret');
    t.deepEqual(
      defect.lines.filter((line) => line.includes('a request failed') && line.includes('a secret')).length,
      1,
    );
  }
  t.deepEqual((await throwing(new Error('a secret'))).failure, {
    code: 'Internal',
    reason: 'The server has a defect; its log has the details.',
    upstream: null,
  });
  const cause = new Error('ENOSPC');
  const full = await throwing(new DomainError('StorageFull', 'Full.', { cause }));
  t.deepEqual([full.steps.at(-1), full.lines.length], [[507, 'StorageFull'], 1]);
  t.regex(full.lines[0]!, /ENOSPC.*a write failed because the disk is full/);
  t.deepEqual((await throwing(new DomainError('StorageFull', 'Full.'))).lines, []);
});

test('a failure of a part of the server is logged with its reason, and noted if requests need the part', async (t) => {
  for (const [name, status, part, line] of [
    ['DatabaseUnavailable', 503, 'database', 'a request failed because the database is unavailable'],
    ['StorageUnavailable', 503, 'storage', 'a request failed because the storage is unavailable'],
    ['KeyUnavailable', 500, undefined, 'a request failed because the key of webhooks is unavailable'],
  ] as const) {
    const failed = await throwing(new DomainError(name, 'Not now.', { cause: new Error('the reason') }));
    t.is((failed.steps.at(-1) as [number])[0], status);
    t.is(failed.response.context.unavailable, part);
    const logged = failed.lines.filter((each) => each.includes(line));
    t.is(logged.length, 1, name);
    t.regex(logged[0]!, /the reason/);
    t.true(logged[0]!.includes(failed.response.context.id));
  }
});

test('an answer that has begun is interrupted, and only a defect is logged', async (t) => {
  for (const [error, lines] of [
    [new DomainError('NotFound', 'No.'), 0],
    [new Error('a secret'), 1],
  ] as const) {
    const begun = await stepsOf({
      run: (response) => {
        response.flushHeaders();
        throw error;
      },
    });
    t.deepEqual(begun.steps, ['find', 'open']);
    t.true(begun.response.destroyed);
    t.is(begun.lines.filter((line) => line.includes('an answer was interrupted')).length, lines);
  }
});
