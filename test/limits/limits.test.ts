import test from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { schema } from '../../src/config/schema.ts';
import type { RepeatedEvents } from '../../src/events/repeated.ts';
import { rateFields } from '../../src/limits/limit-exceeded.ts';
import { addressClient, Limits, type Limited, type RateName } from '../../src/limits/limits.ts';
import { auditOf } from '../support/audit.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, flushEvents } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { within } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

/** The limits of these settings, with their clock and the events that they note. */
async function limitsOf(settings: Record<string, unknown>, evaluate?: Cache['evaluate']) {
  const clock = { now: 1_000_000 };
  const noted: unknown[] = [];
  const events = { note: (...event: unknown[]) => noted.push(...event) } as unknown as RepeatedEvents;
  const cache = evaluate ? ({ evaluate } as Cache) : await Cache.open(undefined, Date.now, () => undefined);
  const parsed = schema.parse({ limits: { delay: '0s', ...settings } }).limits;
  const limits = new Limits({ settings: parsed, cache, events, now: () => clock.now });
  const counts = () =>
    Object.fromEntries([...limits.counts].map(([labels, n]) => [Object.values(labels).join(' '), n]));
  return { limits, clock, noted, counts };
}

/** A request whose client stays. */
const asked = () => ({
  always: {} as Record<string, unknown>,
  gone: false,
  whenGone: (_then: () => void) => () => undefined,
});
const ofToken = (id: number) => ({ key: `token ${id}`, accountId: 7, accountName: 'team' });
const near = addressClient('192.0.2.1');
const rateNames = ['requests', 'anonymous-requests', 'misses', 'searches', 'pushes', 'failed-sign-ins'];

/** `retryAfter` of a refusal; 0 without one. */
async function waits(taking: Promise<unknown> | undefined): Promise<number> {
  return Promise.resolve(taking).then(
    () => 0,
    (error: { retryAfter: number }) => error.retryAfter,
  );
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** The status of an answer, and what it says about a limit. */
const told = async (asking: Promise<Response>) => {
  const { status, headers } = await asking;
  return [status, headers.get('ratelimit-policy'), headers.get('ratelimit'), headers.get('retry-after')];
};

const above = (limit: string, quota: number, retry: number) => [
  429,
  `"${limit}";q=${quota};w=60`,
  `"${limit}";r=0;t=60`,
  `${retry}`,
];
const below = (status: number) => [status, null, null, null];

test('each interface refuses each kind of request above its own limit, and counts and records that', async (t) => {
  const feed = await UpstreamFeed.start(t);
  const server = await startTestServer(t, {
    upstreams: [feed.as('feed.test')],
    anonymousRead: 'all',
    limits: {
      delay: '0s',
      searchesPerMinute: 1,
      pushesPerMinute: 2,
      missesPerMinute: 3,
      requestsPerMinute: 12,
      anonymousRequestsPerMinute: 4,
      failedSignInsPerMinute: 1,
    },
  });
  server.clock.now = Date.UTC(2027, 0, 1);
  const { token, value } = await createToken(server, ['read', 'write']);
  const ask = (path: string, init = {}) => told(server.fetch(path, { token: value, ...init }));
  t.deepEqual(await ask('/v3/search?q=a'), below(200));
  t.deepEqual(await ask('/v3/autocomplete?q=a'), above('searches', 1, 60));
  t.deepEqual(await ask('/v2/team/app/blobs/uploads/', { method: 'POST' }), below(202));
  t.deepEqual(await told(new TestFeed(server, value).push({ id: 'Ours' })), below(201));
  t.deepEqual(await ask('/v2/team/app/blobs/uploads/', { method: 'POST' }), above('pushes', 2, 30));
  t.deepEqual(await told(new TestFeed(server, value).push({ version: '2.0.0' })), above('pushes', 2, 60));
  const found: number[] = [];
  for (const id of ['a', 'b', 'c', 'd'])
    found.push((await server.fetch(`/v3/package/${id}/index.json`, { token: value })).status);
  t.is(found.at(-1), 429, 'more fetches than the limit');
  t.is(found[0], 404);
  const account: number[] = [];
  for (let each = 0; each < 3; each += 1) account.push((await server.fetch('/v1/account', { token: value })).status);
  t.deepEqual(account, [200, 200, 429]);
  t.is((await server.fetch('/v1/account')).status, 200, 'another token');
  t.deepEqual(await ask('/v1/account'), above('requests', 12, 10));
  const anonymous = [];
  for (let each = 0; each < 5; each += 1) anonymous.push(await told(server.fetch('/v3/index.json', { token: null })));
  t.deepEqual(anonymous, [...Array<unknown>(4).fill(below(200)), above('anonymous-requests', 4, 15)]);

  const failed: number[] = [];
  for (const path of ['/v2/', '/v2/team/app/manifests/1', '/token', '/v3/index.json', '/v1/account', '/metrics'])
    failed.push((await server.fetch(path, { token: 'ent_wrong' })).status);
  t.deepEqual(failed, [401, 429, 429, 429, 429, 429]);

  server.clock.now += 61_000;
  await flushEvents(server, true);
  const events = await auditOf(server, 'type=limit.reached');
  const ofThisToken = events.filter(({ actor }) => actor.id === token.id);
  t.deepEqual(
    ofThisToken.map(({ details }) => [details['limit'], details['allowed'], details['count']].join(' ')).sort(),
    ['misses 3 1', 'pushes 2 2', 'requests 12 2', 'searches 1 1'],
  );
  const metrics = await (await server.fetch('/metrics')).text();
  for (const [limit, count] of [
    ['misses', 1],
    ['pushes', 2],
    ['searches', 1],
    ['anonymous-requests', 1],
    ['uploads', 0],
  ] as const)
    t.true(metrics.includes(`entrepot_limited_requests_total{limit="${limit}",outcome="refused"} ${count}\n`), limit);
});

test('a unit of a token counts for its account, which has ten times the quota, and an address has none', async (t) => {
  for (const [limit, setting] of [
    ['requests', 'requestsPerMinute'],
    ['misses', 'missesPerMinute'],
    ['pushes', 'pushesPerMinute'],
  ] as const) {
    const { limits, clock, noted, counts } = await limitsOf({ [setting]: 2 });
    t.deepEqual(
      [limits.has(limit), limits.has('anonymous-requests'), limits.has('failed-sign-ins')],
      [true, true, true],
    );
    const take = (client = near) => waits(limits.take(limit, client, asked()));
    t.deepEqual([await take(), await take(), await take()], [0, 0, 30], 'an address');
    for (let host = 2; host < 14; host += 1) {
      const other = () => take(addressClient(`192.0.2.${host}`));
      t.deepEqual([await other(), await other()], [0, 0], 'addresses have nothing in common');
    }
    for (let id = 0; id < 10; id += 1) t.deepEqual([await take(ofToken(id)), await take(ofToken(id))], [0, 0], limit);
    t.is(await take(ofToken(10)), 3, 'a unit of the account is free in 3 seconds');
    t.is(await take({ ...ofToken(11), accountId: 8 }), 0, 'another account');
    t.is(counts()[`${limit} refused`], 2);
    t.like(noted[1], { accountId: 7, subject: { name: 'team', reference: limit }, details: { limit, allowed: 20 } });
    clock.now += 3000;
    t.is(await take(ofToken(12)), 0);
    const { limits: unlimited } = await limitsOf({ [setting]: 'off' });
    t.false(unlimited.has(limit));
    t.is(unlimited.take(limit, near, asked()), undefined);
  }
});

test('a refusal says which limit is reached, and for whom', async (t) => {
  for (const [limit, setting, reached] of [
    ['requests', 'requestsPerMinute', 'The limit of 1 requests a minute is reached for this token or its account.'],
    [
      'anonymous-requests',
      'anonymousRequestsPerMinute',
      'This address has reached the limit of 1 requests without a token a minute.',
    ],
    [
      'misses',
      'missesPerMinute',
      'The limit of 1 upstream fetches a minute is reached for this token, its account or address.',
    ],
    [
      'searches',
      'searchesPerMinute',
      'The limit of 1 searches a minute is reached for this token, its account or address.',
    ],
    ['pushes', 'pushesPerMinute', 'The limit of 1 pushes a minute is reached for this token or its account.'],
  ] as const) {
    const { limits, counts } = await limitsOf({ [setting]: 1 });
    const none = rateNames.concat('uploads', 'connections').flatMap((name) => [`${name} delayed`, `${name} refused`]);
    t.deepEqual(counts(), Object.fromEntries(none.map((each) => [each, 0])));
    t.is(limits.take(limit, near, asked()), undefined);
    const refused = await t.throwsAsync(Promise.resolve(limits.take(limit, near, asked())), {
      name: 'TooManyRequests',
      message: `${reached} Try again in 60 seconds.`,
    });
    t.like(refused, { retryAfter: 60, detail: { limit } });
  }
});

test('limits that instances share are asked of Redis, for the token and then for its account', async (t) => {
  const questions: [key: string, values: readonly string[]][] = [];
  let answers: unknown[] = [];
  const quotas = { missesPerMinute: 2, searchesPerMinute: 2, pushesPerMinute: 2, failedSignInsPerMinute: 2 };
  const settings = { ...quotas, requestsPerMinute: 2, anonymousRequestsPerMinute: 2, delay: '20ms' };
  const { limits, counts } = await limitsOf(settings, (_script, key, values) => {
    questions.push([key, values]);
    return Promise.resolve(answers.shift());
  });
  const free = ['0', '30000'];
  const take = async (limit: RateName, ...given: unknown[]) => {
    answers = given;
    questions.length = 0;
    const answer = asked();
    await limits.take(limit, ofToken(1), answer);
    return answer.always;
  };
  for (const limit of ['misses', 'searches', 'pushes', 'failed-sign-ins'] as const) {
    t.deepEqual(await take(limit, free, free), {});
    t.deepEqual(questions, [
      [`limit:${limit} token 1`, ['60000', '30000', '20']],
      [`limit:${limit} account 7`, ['60000', '3000', '20']],
    ]);
  }
  for (const limit of ['requests', 'anonymous-requests'] as const) {
    await take(limit);
    t.deepEqual(questions, [], 'each instance counts by itself');
  }
  const late = { 'RateLimit-Policy': '"searches";q=2;w=60', RateLimit: '"searches";r=0;t=60' };
  t.deepEqual(await take('searches', ['1', '60000'], free), late, 'it is answered late');
  t.deepEqual(await take('searches', ['30000', '60000'], ['0', '60000'], free), late, 'its unit became free meanwhile');
  t.deepEqual(questions[1], ['limit:searches token 1', ['60000', '30000', '0']]);
  const message = /^The limit of 20 searches .* Try again in 30 seconds\.$/;
  await t.throwsAsync(take('searches', free, ['30000', '60000'], ['30000', '60000']), { message });
  t.deepEqual([counts()['searches delayed'], counts()['searches refused']], [3, 1]);

  answers = [free, 1];
  questions.length = 0;
  t.is(await limits.attempt(near, asked(), () => Promise.resolve('signed in')), 'signed in');
  t.deepEqual(questions[1], ['limit:failed-sign-ins address 192.0.2.1', ['30000']], 'its unit is given back');
});

test('of one address two sign-ins are checked at the same time, and further ones wait until they leave', async (t) => {
  const { limits } = await limitsOf({ failedSignInsPerMinute: 'off' });
  const running: ((result: string) => void)[] = [];
  const begin = (answer: Limited, client = near) =>
    limits.attempt(client, answer, async () => {
      const { promise, resolve } = Promise.withResolvers<string>();
      running.push(resolve);
      return promise;
    });
  const leaving: (() => void)[] = [];
  const leaver = { ...asked(), whenGone: (then: () => void) => (leaving.push(then), () => undefined) };
  const first = [begin(asked()), begin(asked())];
  await settled();
  const [left, next] = [begin(leaver), begin(asked())];
  await settled();
  t.is(running.length, 2);
  const other = begin(asked(), addressClient('192.0.2.2'));
  await settled();
  t.is(running.length, 3, 'another address');
  leaving[0]!();
  await t.throwsAsync(within(left), { message: /closed the connection/ });
  running[0]!('one');
  t.is(await within(first[0]!), 'one');
  await settled();
  t.is(running.length, 4);
  for (const end of running) end('all');
  t.deepEqual(await within(Promise.all([first[1], next, other])), ['all', 'all', 'all']);
});

test('each refusal names a later time, up to five minutes, and a clock that was set back names none too late', async (t) => {
  const { limits, clock } = await limitsOf({ searchesPerMinute: 1 });
  const search = () => waits(limits.take('searches', near, asked()));
  const named: number[] = [];
  for (let each = 0; each < 8; each += 1) named.push(await search());
  t.deepEqual(named, [0, 60, 120, 180, 240, 300, 300, 300]);
  t.is(await waits(limits.take('searches', addressClient('192.0.2.2'), asked())), 0, 'another address');
  clock.now -= 86_400_000;
  t.deepEqual([await search(), await search()], [0, 60]);
});

test('a request that waits less than the delay is answered late, and its answer says so', async (t) => {
  const { limits, counts, noted } = await limitsOf({ searchesPerMinute: 3000, delay: '20ms' });
  const first = asked();
  for (let each = 0; each < 3000; each += 1) t.is(limits.take('searches', near, first), undefined);
  t.deepEqual(first.always, {});
  const stopped: string[] = [];
  const late = { ...asked(), whenGone: () => () => stopped.push('it listens no more') };
  await limits.take('searches', near, late);
  t.is(stopped.length, 1);
  t.deepEqual(late.always, { 'RateLimit-Policy': '"searches";q=3000;w=60', RateLimit: '"searches";r=0;t=61' });
  t.deepEqual([counts()['searches delayed'], counts()['searches refused'], noted.length], [1, 0, 0]);
  const { limits: others } = await limitsOf({ searchesPerMinute: 600, delay: '60s' });
  for (let each = 0; each < 6000; each += 1) t.is(others.take('searches', ofToken(each % 10), first), undefined);
  const ofBoth = asked();
  await others.take('searches', ofToken(1), ofBoth);
  t.is(ofBoth.always['RateLimit-Policy'], '"searches";q=6000;w=60', 'then it waits for its account');
  t.like(rateFields('searches', 4, 30_000), { RateLimit: '"searches";r=2;t=30' });
  t.like(rateFields('searches', 4, 15_001), { RateLimit: '"searches";r=2;t=16' });
});

test('a request that was held while its unit became free is answered, and its answer says so', async (t) => {
  const { limits, clock, counts, noted } = await limitsOf({ searchesPerMinute: 1, delay: '20ms' });
  const search = (answer = asked()) => limits.take('searches', near, answer);
  t.is(search(), undefined);
  const late = asked();
  const held = search(late)!;
  clock.now += 61_000;
  await held;
  t.deepEqual(late.always, { 'RateLimit-Policy': '"searches";q=1;w=60', RateLimit: '"searches";r=0;t=60' });
  t.deepEqual([counts()['searches delayed'], counts()['searches refused'], noted.length], [1, 0, 0]);
  t.is(await waits(search()), 60, 'it has used the unit up');
});

test('a sign-in counts as failed while it is checked, and no more after it has succeeded', async (t) => {
  const { limits } = await limitsOf({ failedSignInsPerMinute: 2 });
  const attempt = (work: () => Promise<boolean>, succeeded?: (result: boolean) => boolean) =>
    limits.attempt(near, asked(), work, succeeded);
  const checks = [Promise.withResolvers<boolean>(), Promise.withResolvers<boolean>()];
  const running = checks.map(({ promise }) => attempt(() => promise));
  await t.throwsAsync(within(attempt(() => Promise.resolve(true))), { message: /more than 2 sign-ins/ });
  for (const { resolve } of checks) resolve(true);
  t.deepEqual(await Promise.all(running), [true, true]);
  for (let each = 0; each < 5; each += 1) t.true(await attempt(() => Promise.resolve(true)));
  await t.throwsAsync(
    attempt(() => Promise.reject(new Error('wrong password'))),
    { message: 'wrong password' },
  );
  t.true(await attempt(() => Promise.resolve(true)));
  t.false(
    await attempt(
      () => Promise.resolve(false),
      (result) => result,
    ),
  );
  await t.throwsAsync(within(attempt(() => Promise.resolve(true))), { message: /more than 2 sign-ins/ });
  const other: RateName = 'failed-sign-ins';
  t.is(limits.take(other, addressClient('192.0.2.2'), asked()), undefined);
});

test('an upload above the limit waits for the end of another, and is refused after the delay', async (t) => {
  const { limits, counts, noted } = await limitsOf({ uploads: 2, delay: '20ms' });
  const begin = (id = 1) => limits.upload(ofToken(id), asked());
  const [end] = [await begin(), await begin()];
  await begin(2);
  const refused = await t.throwsAsync(within(begin()), { message: /limit of 2 uploads.* Try again in 5 seconds\.$/ });
  t.like(refused, {
    retryAfter: 5,
    fields: { 'RateLimit-Policy': '"uploads";q=2;qu="concurrent-requests"', RateLimit: '"uploads";r=0' },
  });
  t.like(noted[0], { accountId: 7, details: { limit: 'uploads', allowed: 2 } });
  t.deepEqual([counts()['uploads delayed'], counts()['uploads refused']], [1, 1]);
  end();
  const again = await begin();
  again();
  const { limits: patient } = await limitsOf({ uploads: 1, delay: '60s' });
  const first = await patient.upload(near, asked());
  const second = patient.upload(near, asked());
  first();
  (await within(second))();
  const leaving: (() => void)[] = [];
  const leaver = { ...asked(), whenGone: (then: () => void) => (leaving.push(then), () => undefined) };
  const held = await patient.upload(near, asked());
  const left = patient.upload(near, leaver);
  for (const leave of leaving) leave();
  await t.throwsAsync(within(left), { message: /closed the connection/ });
  held();
  const { limits: unlimited } = await limitsOf({ uploads: 'off' });
  for (let each = 0; each < 300; each += 1) await unlimited.upload(near, asked());
});

test('a connection that is refused is an event of no account, with its address', async (t) => {
  const { limits, noted, counts } = await limitsOf({});
  limits.connectionRefused('192.0.2.7', 3);
  t.is(counts()['connections refused'], 1);
  t.like(noted[0], { type: 'limit.reached', accountId: 0, details: { limit: 'connections', allowed: 3 } });
  const actor = { kind: 'anonymous', id: null, name: null };
  t.deepEqual(noted[1], { address: '192.0.2.7', actor, requestId: null });
  limits.connectionRefused(undefined, 3);
  t.deepEqual(noted[3], { address: null, actor, requestId: null });
});
