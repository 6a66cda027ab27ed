import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import test from 'ava';
import type { Principal } from '../../src/accounts/principal.ts';
import { schema } from '../../src/config/schema.ts';
import {
  connectionLimits,
  limitAnonymous,
  limitAttempt,
  limitCost,
  limitFailedSignIn,
  limitIdentity,
  limitLookUp,
  limitMiss,
  limitRequest,
  setLimitFields,
} from '../../src/http/limit.ts';
import { AppResponse, runInContext } from '../../src/http/request-context.ts';
import { LimitExceeded, rateFields } from '../../src/limits/limit-exceeded.ts';
import type { LimitedClient, Limits } from '../../src/limits/limits.ts';
import { DomainError } from '../../src/runtime/errors.ts';

// Which limit counts what, and for whom.

type Call = [what: string, client: LimitedClient | string | undefined, answer?: unknown];

/** Limits that only note what they are asked. */
function notedLimits(has = true) {
  const calls: Call[] = [];
  const note = (...call: Call) => Promise.resolve(void calls.push(call));
  const limits = {
    has: () => has,
    take: (limit: string, client: LimitedClient, answer: unknown) => note(limit, client, answer),
    attempt: async (client: LimitedClient, answer: unknown, work: () => Promise<unknown>, succeeded?: unknown) => {
      await note(succeeded === undefined ? 'attempt' : 'attempt that decides', client, answer);
      return work();
    },
    lookUp: async (address: () => string | undefined, look: () => Promise<unknown>) => {
      await note('look-up', address());
      return look();
    },
    connectionRefused: (address: string, most: number) => void note(`connection above ${most}`, address),
  } as unknown as Limits;
  return { limits, calls };
}

function answerTo(principal?: object, limits?: Limits): AppResponse {
  const response = new AppResponse(new IncomingMessage(new Socket()));
  response.context.remote = '192.0.2.1';
  response.context.principal = principal as Principal | undefined;
  response.limits = limits;
  return response;
}

/** Calls `work` for the request that `answer` answers. */
function during<T>(answer: AppResponse, work: () => T): T {
  let result: T;
  runInContext(answer, () => (result = work()));
  return result!;
}

const account = { accountId: 7, accountName: 'team' };
const token = { kind: 'token', tokenId: 't', ...account };
const person = { kind: 'person', personId: 'p', ...account };
const anonymous = { kind: 'anonymous', ...account };
const ofAddress = { key: 'address 192.0.2.1', accountId: 0, accountName: null };

test('a fetch counts for the token or the person of the request, and for the address of who has neither', async (t) => {
  for (const [principal, client] of [
    [token, { key: 'token t', ...account }],
    [person, { key: 'person p', ...account }],
    [anonymous, ofAddress],
    [undefined, ofAddress],
  ] as const) {
    const { limits, calls } = notedLimits();
    const answer = answerTo(principal);
    await during(answer, () => limitMiss(limits));
    t.deepEqual(calls, [['misses', client, answer]]);
  }
});

test('sign-ins count for the address of the request, those with an identity for the identity', async (t) => {
  const { limits, calls } = notedLimits();
  const answer = answerTo(token);
  const found = await during(answer, async () => {
    await limitFailedSignIn(limits);
    return [
      await limitAttempt(limits, () => Promise.resolve(1)),
      await limitAttempt(
        limits,
        () => Promise.resolve(2),
        () => true,
      ),
      await limitIdentity(limits, 'me', () => Promise.resolve(3)),
      await limitLookUp(limits, () => Promise.resolve(4)),
    ];
  });
  t.deepEqual(found, [1, 2, 3, 4]);
  t.deepEqual(calls, [
    ['failed-sign-ins', ofAddress, answer],
    ['attempt', ofAddress, answer],
    ['attempt that decides', ofAddress, answer],
    ['attempt', { key: 'identity me', accountId: 0, accountName: null }, answer],
    ['look-up', '192.0.2.1'],
  ]);
});

test('work that no request waits for has no limit', async (t) => {
  const { limits, calls } = notedLimits();
  t.is(limitMiss(limits), undefined);
  t.is(limitFailedSignIn(limits), undefined);
  t.is(await limitAttempt(limits, () => Promise.resolve(1)), 1);
  t.is(await limitIdentity(limits, 'me', () => Promise.resolve(2)), 2);
  t.deepEqual(calls, []);
  t.is(await limitLookUp(limits, () => Promise.resolve(3)), 3);
  t.deepEqual(calls, [['look-up', undefined]]);
});

test('requests of readers without a token have a limit of their own, and a response of another server has none', async (t) => {
  const { limits, calls } = notedLimits();
  const answer = answerTo(token, limits);
  await limitRequest(answer, token as Principal);
  await limitRequest(answer, anonymous as Principal);
  await limitAnonymous(answerTo(undefined, limits));
  await limitCost(answer, 'searches', false);
  t.deepEqual(
    calls.map(([what]) => what),
    ['requests', 'anonymous-requests', 'anonymous-requests', 'searches'],
  );
  const none = notedLimits(false);
  t.is(limitAnonymous(answerTo(undefined, none.limits)), undefined);
  t.deepEqual(none.calls, []);
  t.is(limitAnonymous(answerTo()), undefined);
  const plain = new ServerResponse(new IncomingMessage(new Socket()));
  t.is(limitAnonymous(plain), undefined);
  await t.notThrowsAsync(limitCost(plain, 'searches', true));
  await t.notThrowsAsync(limitCost(answerTo(), 'searches', true));
});

test('the upload of a client that has left meanwhile ends at once', async (t) => {
  let ended = 0;
  const limits = { upload: () => Promise.resolve(() => void (ended += 1)) } as unknown as Limits;
  const answer = answerTo(token, limits);
  await limitCost(answer, undefined, true);
  t.is(ended, 0);
  answer.emit('close');
  t.is(ended, 1);
  const left = answerTo(token, limits);
  left.destroy();
  await limitCost(left, undefined, true);
  t.is(ended, 2);
});

test('only a refusal because of a limit has its header fields', (t) => {
  const answer = answerTo();
  setLimitFields(answer, new DomainError('TooManyRequests', 'Later.'));
  t.deepEqual(answer.getHeaderNames(), []);
  setLimitFields(answer, new LimitExceeded('Too many.', 'requests', 3, rateFields('requests', 10, 30_000)));
  t.deepEqual(
    { ...answer.getHeaders() },
    { 'ratelimit-policy': '"requests";q=10;w=60', ratelimit: '"requests";r=5;t=30' },
  );
});

test('connections have the limits of the settings, but for those of trusted proxies', (t) => {
  const settings = { server: { trustProxy: '10.0.0.0/8' }, limits: { headerTimeout: '7s', connectionsPerAddress: 3 } };
  const { limits, calls } = notedLimits();
  const found = connectionLimits(schema.parse(settings), limits);
  t.like(found, { headerTimeout: 7000, headerSize: schema.parse({}).limits.headerSize, perAddress: 3 });
  t.deepEqual(
    ['10.1.2.3', '192.0.2.1', undefined].map((address) => found.isProxy(address)),
    [true, false, false],
  );
  found.onRefused('192.0.2.1');
  t.deepEqual(calls, [['connection above 3', '192.0.2.1']]);
});
