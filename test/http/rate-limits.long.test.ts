import { randomBytes } from 'node:crypto';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { createToken, flushEvents, tokenOf } from '../support/inside.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { digestOf } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';
import { UpstreamFeed, startMirrorOf } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const scopes = ['read', 'write'];
const wrongToken = 'ent_not-a-token';

interface Answered {
  status: number;
  headers: Headers;
  body: any;
  statusText: string;
  milliseconds: number;
}

async function timed(asking: Promise<Response>): Promise<Answered> {
  const startedAt = performance.now();
  const { status, statusText, headers } = await asking;
  const milliseconds = performance.now() - startedAt;
  const text = await (await asking).text();
  return { status, statusText, headers, body: text.startsWith('{') ? JSON.parse(text) : text, milliseconds };
}

async function counted(server: TestServer, limit: string, outcome: string): Promise<number> {
  const text = await (await server.fetch('/metrics')).text();
  const line = new RegExp(`^entrepot_limited_requests_total\\{limit="${limit}",outcome="${outcome}"\\} (\\d+)$`, 'm');
  return Number(line.exec(text)?.[1] ?? 0);
}

const delay = 150;

test('each interface refuses in its own form, after a delay, with the fields for a retry', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Some.Package', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test'), feed.as('feed.test')],
    limits: {
      delay: `${delay}ms`,
      searchesPerMinute: 1,
      pushesPerMinute: 1,
      missesPerMinute: 1,
      requestsPerMinute: 10,
    },
  });
  server.clock.now = Date.UTC(2027, 0, 1);
  const blobs = [1, 2].map((each) => upstream.blob('app', `blob ${each}`).digest);
  const { token, value } = await createToken(server, scopes);
  const fetch = (path: string, init = {}) => timed(server.fetch(path, { token: value, ...init }));
  // Parallel requests of a client must not come back together.
  const refused = (answered: Answered, limit: string, quota: number, time = 1) => {
    const { status, headers, milliseconds, statusText } = answered;
    t.is(status, 429, limit);
    t.true(milliseconds >= delay - 2, `${limit} waits before: ${milliseconds} ms`);
    t.is(headers.get('ratelimit-policy'), `"${limit}";q=${quota};w=60`);
    t.is(headers.get('ratelimit'), `"${limit}";r=0;t=60`);
    t.is(headers.get('retry-after'), `${Math.ceil((60 * time) / quota)}`);
    t.regex(statusText, /limit of \d+ .* a minute.* Try again in \d+ seconds\.$/, 'clients show the reason phrase');
  };

  t.is((await fetch('/v3/search?q=a')).status, 200);
  const search = await fetch('/v3/autocomplete?q=a');
  refused(search, 'searches', 1);
  t.is(search.headers.get('content-type'), 'application/problem+json');
  t.like(search.body, { status: 429, code: 'TooManyRequests', limit: 'searches', retryAfter: 60 });

  // A search is no fetch of the client.
  t.is((await fetch(`/v2/up.test/app/blobs/${blobs[0]}`)).status, 200);
  const blob = await fetch(`/v2/up.test/app/blobs/${blobs[1]}`);
  refused(blob, 'misses', 1);
  t.is(blob.body.errors[0].code, 'TOOMANYREQUESTS');
  t.regex(blob.body.errors[0].message, /limit of 1 upstream fetches a minute .* Try again in 60 seconds\.$/);
  const index = await fetch('/v3/package/some.package/index.json');
  refused(index, 'misses', 1, 2);
  t.like(index.body, { code: 'TooManyRequests', limit: 'misses' }, 'it is not "not found"');

  t.is((await fetch('/v2/team/app/blobs/uploads/', { method: 'POST' })).status, 202);
  const upload = await fetch('/v2/team/app/blobs/uploads/', { method: 'POST' });
  refused(upload, 'pushes', 1);
  t.is(upload.body.errors[0].code, 'TOOMANYREQUESTS');
  const push = await timed(new TestFeed(server, value).push());
  refused(push, 'pushes', 1, 2);
  t.like(push.body, { code: 'TooManyRequests', limit: 'pushes' });

  for (let each = 0; each < 2; each += 1) t.is((await fetch('/v1/account')).status, 200);
  const account = await fetch('/v1/account');
  refused(account, 'requests', 10);
  t.is(account.headers.get('content-type'), 'application/problem+json');
  t.is((await server.fetch('/v1/account')).status, 200, 'another token');

  t.is(await counted(server, 'misses', 'refused'), 2);
  t.is(await counted(server, 'searches', 'delayed'), 1);
  await flushEvents(server, true);
  const events = await auditOf(server, 'type=limit.reached');
  t.deepEqual(events.map(({ details }) => `${String(details['limit'])} ${String(details['count'])}`).sort(), [
    'misses 2',
    'pushes 2',
    'requests 1',
    'searches 1',
  ]);
  t.like(events[0], {
    account: 'default',
    actor: { kind: 'token', id: token.id },
    subject: { kind: 'account', name: 'default', reference: 'searches' },
  });
});

test('a request a little above a limit is delayed and then answered', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '1s', searchesPerMinute: 120 } });
  server.clock.now = Date.UTC(2027, 0, 1);
  const search = () => timed(server.fetch('/v3/search?q=a'));
  for (let each = 0; each < 120; each += 1) t.is((await search()).headers.get('ratelimit'), null);
  const late = await search();
  t.is(late.status, 200);
  t.true(late.milliseconds >= 498, `${late.milliseconds} ms`);
  t.is(late.headers.get('ratelimit-policy'), '"searches";q=120;w=60');
  t.is(late.headers.get('ratelimit'), '"searches";r=0;t=61');
  const later = await search();
  t.is(later.status, 200, 'as long as the delay');
  t.true(later.milliseconds >= 998, `${later.milliseconds} ms`);
  t.is(await counted(server, 'searches', 'delayed'), 2);
  t.is(await counted(server, 'searches', 'refused'), 0);
  t.is((await search()).status, 429, 'longer than the delay');
  server.clock.now += 61_000;
  t.is((await search()).headers.get('ratelimit'), null, 'the quota comes back');
});

test('what is refused uses up nothing, and a request succeeds after the time of Retry-After and not before', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '0s', searchesPerMinute: 2 } });
  server.clock.now = Date.UTC(2027, 0, 1);
  const search = async (token: string) => {
    const { status, headers } = await server.fetch('/v3/search?q=a', { token });
    return status === 429 ? `429 ${headers.get('retry-after')}` : String(status);
  };
  const [one, ...others] = await Promise.all(Array.from({ length: 11 }, () => tokenOf(server, scopes)));
  t.deepEqual([await search(one!), await search(one!)], ['200', '200']);
  server.clock.now += 1;
  t.is(await search(one!), '429 30', 'of 29.999');
  for (let count = 0; count < 30; count += 1) t.regex(await search(one!), /^429 /);
  // The quota of their account is 20, of which 18 are left.
  for (const other of others.slice(0, 9)) t.deepEqual([await search(other), await search(other)], ['200', '200']);
  t.regex(await search(others[9]!), /^429 3$/, 'a unit of the account is free in 3 seconds');
  server.clock.now += 29_998;
  t.regex(await search(one!), /^429 /);
  server.clock.now += 1;
  t.is(await search(one!), '200');
  t.regex(await search(one!), /^429 /);

  server.clock.now -= 86_400_000;
  t.deepEqual([await search(one!), await search(one!)], ['200', '200'], 'after a clock was set back');
  t.is(await search(one!), '429 30', 'not the longest time');
});

test('tokens behind one address have limits of their own, and requests without one share that of their address', async (t) => {
  const server = await startTestServer(t, {
    server: { trustProxy: 'loopback' },
    anonymousRead: true,
    limits: { delay: '0s', searchesPerMinute: 2, anonymousRequestsPerMinute: 3, requestsPerMinute: 6 },
  });
  server.clock.now = Date.UTC(2027, 0, 1);
  const statuses = async (token: string | null, times: number, address = '192.0.2.1') => {
    const headers = { 'x-forwarded-for': address };
    const answers: number[] = [];
    for (let each = 0; each < times; each += 1)
      answers.push((await server.fetch('/v3/search', { token, headers })).status);
    return answers;
  };
  const [one, two] = [await tokenOf(server, scopes), await tokenOf(server, scopes)];
  t.deepEqual(await statuses(one, 3), [200, 200, 429]);
  t.deepEqual(await statuses(one, 1, '192.0.2.2'), [429], 'a token is the same at each address');
  t.deepEqual(await statuses(two, 3), [200, 200, 429]);
  t.deepEqual(await statuses(null, 3), [200, 200, 429]);
  t.deepEqual(await statuses(null, 3, '2001:db8:0:1::1'), [200, 200, 429]);
  t.deepEqual(await statuses(null, 1, '2001:db8:0:1:ffff::2'), [429], 'one client has a whole /64');
  t.deepEqual(await statuses(null, 1, '2001:db8:0:2::1'), [200]);
  const answers = [];
  for (let each = 0; each < 4; each += 1)
    answers.push(
      await timed(server.fetch('/v3/index.json', { token: null, headers: { 'x-forwarded-for': '192.0.2.9' } })),
    );
  t.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 200, 429],
  );
  t.is(answers[3]!.headers.get('ratelimit-policy'), '"anonymous-requests";q=3;w=60');
  // It has made four requests before.
  const further = [];
  for (let each = 0; each < 3; each += 1)
    further.push(await server.fetch('/v3/index.json', { token: one, headers: { 'x-forwarded-for': '192.0.2.9' } }));
  t.deepEqual(
    further.map(({ status }) => status),
    [200, 200, 429],
  );
  t.is(further[2]!.headers.get('ratelimit-policy'), '"requests";q=6;w=60');
});

test('failed sign-ins slow their address down, and a valid token from it is served at once', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '60s', failedSignInsPerMinute: 2 } });
  server.clock.now = Date.UTC(2027, 0, 1);
  const leave = new AbortController();
  const fail = () => server.fetch('/v2/', { token: wrongToken, signal: leave.signal });
  t.is((await fail()).status, 401);
  t.is((await server.fetch('/v3/index.json', { token: wrongToken })).status, 401);
  let answered = 0;
  const failing = Array.from({ length: 30 }, () =>
    fail()
      .then(() => (answered += 1))
      .catch(() => undefined),
  );
  await until(async () => (await counted(server, 'failed-sign-ins', 'delayed')) === 30);
  const fresh = await tokenOf(server, ['read']);
  for (const token of [server.token, fresh]) {
    const { status, milliseconds } = await within(timed(server.fetch('/v3/index.json', { token })), 20_000);
    t.is(status, 200);
    t.true(milliseconds < 10_000);
  }
  t.is((await new TestFeed(server).push()).status, 201);
  t.is(answered, 0, 'they are still waiting');
  leave.abort();
  await Promise.all(failing);
});

test('above the limit of failed sign-ins each interface answers 429, and without a credential still 401', async (t) => {
  const server = await startTestServer(t, { limits: { delay: `${delay}ms`, failedSignInsPerMinute: 1 } });
  server.clock.now = Date.UTC(2027, 0, 1);
  t.is((await server.fetch('/v1/account', { token: wrongToken })).status, 401);
  const paths = ['/v2/', '/v2/team/app/manifests/1', '/token', '/v3/index.json', '/v1/account', '/metrics'];
  const answers = await Promise.all(paths.map((path) => timed(server.fetch(path, { token: wrongToken }))));
  for (const [index, { status, headers, body, milliseconds }] of answers.entries()) {
    const path = paths[index]!;
    t.is(status, 429, path);
    t.true(milliseconds >= delay - 2, path);
    t.is(headers.get('ratelimit-policy'), '"failed-sign-ins";q=1;w=60', path);
    t.is(headers.get('ratelimit'), '"failed-sign-ins";r=0;t=60', path);
    const isRegistry = /^\/(?:v2|token)/.test(path);
    t.like(isRegistry ? body.errors[0] : body, { code: isRegistry ? 'TOOMANYREQUESTS' : 'TooManyRequests' }, path);
  }
  const retries = answers.map(({ headers }) => Number(headers.get('retry-after'))).sort((a, b) => a - b);
  t.deepEqual(retries, [60, 120, 180, 240, 300, 300], 'one after the other, up to 5 minutes');
  const key = await timed(
    server.fetch('/v3/push', { token: null, method: 'PUT', headers: { 'x-nuget-apikey': 'no' } }),
  );
  t.is(key.status, 429, 'also for an API key');
  t.is((await server.fetch('/v3/index.json', { token: null })).status, 401);
  const both = { 'x-nuget-apikey': 'no', authorization: `Bearer ${server.token}` };
  t.is((await server.fetch('/v3/index.json', { headers: both })).status, 200, 'one of its credentials is valid');
  server.clock.now += 61_000;
  t.is((await server.fetch('/v2/', { token: wrongToken })).status, 401);
});

test('two instances share limits through Redis, and each goes on by itself without', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const upstream = await startUpstreamRegistry(t);
  const settings = {
    data: await folderUntilEnd(t),
    database: { url: await temporaryDatabase(t, 'mysql') },
    redis: { url: redis.url },
    upstreams: [upstream.settings('up.test')],
    limits: { delay: '0s', searchesPerMinute: 4, failedSignInsPerMinute: 2, pushesPerMinute: 3, missesPerMinute: 3 },
  };
  // A busy machine must not make the instances count by themselves.
  const start = () => startTestServer(t, settings, { redisTimeout: 30_000 });
  const both = [await start(), await start()];
  for (const server of both) server.clock.now = Date.now();
  const inTurns = async (times: number, path: string, token?: string, method = 'GET') => {
    const found: number[] = [];
    for (let each = 0; each < times; each += 1) {
      const server = both[each % 2]!;
      const init = { method, ...(token !== undefined && { token }) };
      found.push((await server.fetch(path.replace('?', String(each)), init)).status);
    }
    return found;
  };
  t.deepEqual(await inTurns(6, '/v3/search'), [200, 200, 200, 200, 429, 429]);
  t.deepEqual(await inTurns(4, '/v2/', wrongToken), [401, 401, 429, 429]);
  t.deepEqual(await inTurns(5, '/v2/app/blobs/uploads/', undefined, 'POST'), [202, 202, 202, 429, 429]);
  t.deepEqual(await inTurns(5, '/v2/up.test/app/manifests/v?'), [404, 404, 404, 429, 429]);

  await redis.kill();
  t.deepEqual(await inTurns(10, '/v3/search'), [...Array<number>(8).fill(200), 429, 429], 'each counts for itself');
  t.deepEqual(await inTurns(6, '/v2/', wrongToken), [401, 401, 401, 401, 429, 429]);
  t.deepEqual(await inTurns(2, '/v3/index.json'), [200, 200]);

  await redis.start();
  await until(async () => {
    const found = await inTurns(2, `/v3/search`, await tokenOf(both[0]!, ['read']));
    return found.every((status) => status === 200);
  });
  const other = await tokenOf(both[0]!, ['read']);
  await until(async () => (await inTurns(6, '/v3/search', other)).includes(429));
});

test('with the default settings 500 parallel requests of one token for packages that are not here all succeed', async (t) => {
  const feed = await UpstreamFeed.start(t);
  const ids = Array.from({ length: 500 }, (_, index) => `Package.${index}`);
  await Promise.all(ids.map((id) => feed.offer({ id, versions: [{ version: '1.0.0' }] })));
  const server = await startMirrorOf(t, [feed.as('feed.test')]);
  const answers = await Promise.all(
    ids.map(async (id) => {
      const key = id.toLowerCase();
      const answer = await server.fetch(`/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`);
      return { status: answer.status, size: (await answer.arrayBuffer()).byteLength };
    }),
  );
  t.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  t.true(answers.every(({ size }) => size > 0));
  for (const limit of ['misses', 'connections', 'requests']) t.is(await counted(server, limit, 'delayed'), 0);
});

test('concurrent uploads of a token are limited: a further one waits, then it is refused; other tokens do not wait', async (t) => {
  const server = await startTestServer(t, { limits: { delay: `${delay}ms`, uploads: 2 } });
  const stops = [0, 1].map(() => {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const body = randomBytes(1000);
    const writer = writable.getWriter();
    void writer.write(body);
    const path = `/v2/team/app/blobs/uploads/?digest=${digestOf(body)}`;
    const answer = server.fetch(path, { method: 'POST', body: readable, duplex: 'half' });
    return { end: () => writer.close(), answer };
  });
  const push = (token: string) => {
    const body = randomBytes(100);
    return timed(server.fetch(`/v2/team/app/blobs/uploads/?digest=${digestOf(body)}`, { method: 'POST', body, token }));
  };
  await until(async () => (await push(server.token)).status === 429);
  const refused = await push(server.token);
  t.is(refused.status, 429);
  t.true(refused.milliseconds >= delay - 2);
  t.is(refused.body.errors[0].code, 'TOOMANYREQUESTS');
  t.is(refused.headers.get('ratelimit-policy'), '"uploads";q=2;qu="concurrent-requests"');
  t.is(refused.headers.get('retry-after'), '5');
  t.is((await push(await tokenOf(server, scopes))).status, 201, 'another token');
  t.is((await server.fetch('/v3/index.json')).status, 200, 'reads of the same token');
  t.is((await server.fetch('/v3/search')).status, 200, 'a search has a limit of its own');
  for (const each of stops) await each.end();
  for (const each of stops) t.is((await each.answer).status, 201);
  t.is((await push(server.token)).status, 201);
});
