import test, { type ExecutionContext } from 'ava';
import { createConnection } from 'mysql2/promise';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until, within } from '../support/until.ts';

// MariaDB behind a proxy that stops or freezes, and tables that another connection locks. Times in milliseconds.

const limits = { read: 5000, transaction: 5000, connection: 5000, lock: 1000, background: 60_000 };
/** A write waits for a connection, then for its transaction, and ends with a rollback. */
const longest = 2 * (limits.connection + limits.transaction);
const healthTimes = { limit: 3000, writeEvery: 0, perSecond: Number.POSITIVE_INFINITY, remember: 30_000 };

interface Setup {
  server: TestServer;
  proxy: TcpProxy;
  /** The URL of the database without the proxy. */
  direct: string;
}

async function setUp(t: ExecutionContext, databaseLimits = limits): Promise<Setup> {
  const direct = await temporaryDatabase(t, 'mysql');
  const url = new URL(direct);
  const proxy = new TcpProxy({ host: url.hostname, port: Number(url.port) });
  // Registered first, because it must be closed also if the server does not start or does not close.
  t.teardown(() => proxy.close());
  url.port = String(await proxy.listen());
  const server = await startTestServer(t, { database: { url: url.href } }, { databaseLimits, healthTimes });
  t.teardown(() => proxy.resume());
  return { server, proxy, direct };
}

let pushed = 0;

async function timed<T>(work: () => Promise<T>): Promise<{ took: number; result: T }> {
  const start = performance.now();
  const result = await work();
  return { took: performance.now() - start, result };
}

/** Every interface answers 503, says that it is the database, and when to try again. */
async function assertUnavailable(t: ExecutionContext, server: TestServer) {
  for (const path of ['/v3/package/a/index.json', '/v1/packages', '/v2/app/manifests/v1', '/v2/app/tags/list']) {
    const { took, result } = await timed(() => server.fetch(path));
    const text = await result.text();
    t.is(result.status, 503, `${path}: ${text}`);
    t.true(Number(result.headers.get('retry-after')) > 0, path);
    t.regex(text, /database/i, path);
    t.notRegex(text, /ECONN|127\.0\.0\.1|SELECT/, path);
    const body = JSON.parse(text) as { code?: string; errors?: { code: string }[] };
    t.is(body.errors?.[0]?.code ?? body.code, path.startsWith('/v2') ? 'UNAVAILABLE' : 'DatabaseUnavailable');
    t.true(took < longest, `${path} took ${took} ms`);
  }
  const token = await server.fetch('/token');
  t.is(token.status, 503, await token.text());
  const pushes = [
    () => new TestFeed(server).push({ id: 'New' }),
    () => server.fetch('/v2/app/blobs/uploads/', { method: 'POST' }),
  ];
  for (const push of pushes) {
    const { took, result } = await timed(push);
    t.is(result.status, 503, await result.text());
    t.true(took < longest, `a push took ${took} ms`);
  }
}

async function assertNotReady(t: ExecutionContext, server: TestServer) {
  const { took, result } = await timed(() => server.fetch('/readyz', { token: null }));
  const body = (await result.json()) as { code: string; parts: string[]; detail: string };
  t.is(result.status, 503);
  t.is(body.code, 'NotReady');
  t.true(body.parts.includes('database'));
  t.regex(body.detail, /The database cannot be read\./);
  t.true(took < 3 * healthTimes.limit, `readiness took ${took} ms`);
  t.is((await server.fetch('/livez')).status, 200);
}

async function works(server: TestServer): Promise<boolean> {
  const response = await new TestFeed(server).push({ id: `After${(pushed += 1)}` });
  await response.text();
  return response.status === 201 && (await server.fetch('/v2/app/manifests/v1')).status === 200;
}

for (const fault of ['refuse', 'freeze'] as const) {
  const state = fault === 'refuse' ? 'stopped' : 'frozen';
  test(`while MariaDB is ${state}, requests are 503 in time, and work again afterwards`, async (t) => {
    const { server, proxy } = await setUp(t);
    await new TestFeed(server).publish({ id: 'A' });
    const { digest } = await new TestRepository(server, 'app').image('v1');
    t.is((await server.fetch('/readyz')).status, 200);
    await proxy[fault]();
    await assertUnavailable(t, server);
    await assertNotReady(t, server);
    await proxy.resume();
    await until(() => works(server));
    const manifest = await server.fetch('/v2/app/manifests/v1');
    t.is(manifest.headers.get('docker-content-digest'), digest);
    t.is((await server.fetch('/readyz')).status, 200);
    t.true(server.lines.some((line) => line.includes('the database is unavailable')));
    t.false(server.lines.some((line) => line.includes('"a request failed"')));
  });
}

test('pushes that wait for a locked table do not stop pulls', async (t) => {
  const { server, direct } = await setUp(t);
  await new TestRepository(server, 'app').image('v1');
  const locker = await createConnection(direct);
  t.teardown(() => locker.destroy());
  await locker.query('LOCK TABLES packages WRITE');
  const pushes = Array.from({ length: 25 }, (_, index) =>
    timed(() => new TestFeed(server).push({ id: `Stuck${index}` })),
  );
  const all = Promise.all(pushes);
  let pulls = 0;
  for (let ended = false; !ended; ended = (await Promise.race([all, Promise.resolve('not yet')])) !== 'not yet') {
    const { took, result } = await timed(() => server.fetch('/v2/app/manifests/v1'));
    t.is(result.status, 200, await result.text());
    t.true(took < longest, `a pull took ${took} ms`);
    pulls += 1;
  }
  t.true(pulls > 1, `${pulls} pulls`);
  for (const { took, result } of await all) {
    t.is(result.status, 503, await result.text());
    t.true(took < longest, `a push took ${took} ms`);
  }
  await locker.query('UNLOCK TABLES');
  t.is((await new TestFeed(server).push({ id: 'Free' })).status, 201);
});

test('while all pushes that the database takes wait for a table, pulls are answered', async (t) => {
  const patient = { read: 60_000, transaction: 60_000, connection: 60_000, lock: 60_000, background: 60_000 };
  const { server, direct } = await setUp(t, patient);
  await new TestRepository(server, 'app').image('v1');
  const locker = await createConnection(direct);
  t.teardown(() => locker.destroy());
  await locker.query('LOCK TABLES packages WRITE');
  const pushes = Array.from({ length: 25 }, (_, index) => new TestFeed(server).push({ id: `Waiting${index}` }));
  const observer = await createConnection(direct);
  t.teardown(() => observer.destroy());
  await until(async () => {
    const sql = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting%lock%'";
    return ((await observer.query(sql))[0] as unknown[]).length >= 10;
  });
  const { status } = await within(server.fetch('/v2/app/manifests/v1'));
  t.is(status, 200);
  await locker.query('UNLOCK TABLES');
  for (const each of await within(Promise.all(pushes), 30_000)) t.is(each.status, 201);
});

test('transactions that wait for a row lock end in time, and do not stop pulls', async (t) => {
  const { server, direct } = await setUp(t);
  await new TestRepository(server, 'app').image('v1');
  const locker = await createConnection(direct);
  t.teardown(() => locker.destroy());
  await locker.query('BEGIN');
  await locker.query('SELECT * FROM repositories FOR UPDATE');
  const tags = Array.from({ length: 25 }, (_, index) => new TestRepository(server, 'app').image(`t${index}`));
  const { took, result } = await timed(() => server.fetch('/v2/app/manifests/v1'));
  t.is(result.status, 200);
  t.true(took < longest);
  for (const { status, reason } of (await Promise.allSettled(tags)) as PromiseRejectedResult[]) {
    t.is(status, 'rejected');
    t.regex(String(reason), /503/);
  }
  await locker.query('ROLLBACK');
  await until(async () => (await new TestRepository(server, 'app').put('v3', '{}')).status !== 503);
});

test('late answers of a frozen database do not reach later requests', async (t) => {
  const { server, proxy } = await setUp(t);
  await new TestFeed(server).publish({ id: 'A' });
  proxy.freeze();
  const late = await Promise.all([1, 2, 3].map(() => server.fetch('/v1/packages')));
  for (const each of late) t.is(each.status, 503);
  // The late answers arrive now. A connection that was kept would give them to the next statements.
  await proxy.resume();
  await until(async () => (await server.fetch('/v1/packages')).status === 200);
  const page = (await (await server.fetch('/v1/packages')).json()) as { items?: unknown[] };
  t.regex(JSON.stringify(page), /"A"/);
});

test('connections that never answer again are replaced', async (t) => {
  const { server, proxy } = await setUp(t);
  await new TestRepository(server, 'app').image('v1');
  proxy.abandon();
  await until(() => works(server));
  const all = await Promise.all(Array.from({ length: 20 }, () => server.fetch('/v2/app/manifests/v1')));
  for (const each of all) t.is(each.status, 200, await each.text());
});

test('readiness of a database that can be read and not written is degraded', async (t) => {
  const { server, direct } = await setUp(t);
  const other = await createConnection(direct);
  t.teardown(() => other.destroy());
  t.deepEqual(await (await server.fetch('/readyz')).json(), { status: 'ready' });
  await other.query('LOCK TABLES probes READ');
  const response = await server.fetch('/readyz', { token: null });
  t.is(response.status, 200);
  t.deepEqual(await response.json(), {
    status: 'degraded',
    degraded: [{ part: 'database', detail: 'The database cannot be written.' }],
  });
  t.regex(await (await server.fetch('/metrics', { token: null })).text(), /^entrepot_degraded\{part="database"\} 1$/m);
  await other.query('UNLOCK TABLES');
  await until(async () => ((await (await server.fetch('/readyz')).json()) as { status: string }).status === 'ready');
  t.regex(await (await server.fetch('/metrics')).text(), /^entrepot_degraded\{part="database"\} 0$/m);
});
