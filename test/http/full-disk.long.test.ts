import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { createConnection } from 'mysql2/promise';
import { makeNupkg, makeSnupkg } from '../support/builders/nupkg.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { packageForm, TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, flushTokens, flushUsage, rowsOf, runJob } from '../support/inside.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { until } from '../support/until.ts';

// In a process of its own: it measures the process.

const MiB = 2 ** 20;
const reserve = 256 * MiB;

async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const disk = new TestDisk();
  const server = await startTestServer(t, settings, { disk });
  const feed = new TestFeed(server);
  const repository = new TestRepository(server, 'team/app');
  await feed.publish({ id: 'Hosted', version: '1.0.0' });
  const image = await repository.image('v1');
  return { disk, server, feed, repository, image };
}

const staged = (server: TestServer) => readdir(join(server.data, 'staging'));
const descriptors = async () => (await readdir('/proc/self/fd')).length;
const timers = () => process.getActiveResourcesInfo().filter((each) => each === 'Timeout').length;

function pushBody(server: TestServer, path: string, body: Buffer, type: string): Promise<Response> {
  return server.fetch(path, { method: 'PUT', headers: { 'content-type': type }, body: new Uint8Array(body) });
}

/** Each kind of push, with `bytes` of random content, and whether its answer is of the feed or of the registry. */
async function pushes(
  server: TestServer,
  repository: TestRepository,
): Promise<Record<string, ['feed' | 'registry', () => Promise<Response>]>> {
  const id = `New${randomBytes(4).toString('hex')}`;
  const nupkg = await makeNupkg({ id, version: '1.0.0', payloadBytes: 3 * MiB });
  const form = packageForm(await makeNupkg({ id, version: '2.0.0', payloadBytes: 3 * MiB }));
  const symbols = packageForm(await makeSnupkg({ id: 'Hosted', version: '1.0.0' }));
  const layer = randomBytes(3 * MiB);
  const digest = digestOf(layer);
  const session = await repository.start();
  const finished = await repository.start();
  const manifest = await repository.manifest({ annotations: { id } });
  const body = new Uint8Array(layer);
  return {
    'a package in a form': ['feed', () => pushBody(server, '/v3/push', form.body, form.type)],
    'a package as the body': ['feed', () => pushBody(server, '/v3/push', nupkg, 'application/octet-stream')],
    symbols: ['feed', () => pushBody(server, '/v3/symbols', symbols.body, symbols.type)],
    'a blob at once': ['registry', () => repository.fetch(`blobs/uploads/?digest=${digest}`, { method: 'POST', body })],
    'a chunk': ['registry', () => repository.fetch(session, { method: 'PATCH', body })],
    'a last chunk': ['registry', () => repository.fetch(`${finished}?digest=${digest}`, { method: 'PUT', body })],
    'a manifest': ['registry', () => repository.put('v2', manifest)],
  };
}

async function assertFull(t: ExecutionContext, kind: 'feed' | 'registry', response: Response, what: string) {
  t.is(response.status, 507, what);
  t.regex(response.statusText, /^The disk .*of this server .*\. Ask the operator to .*\.$/, what);
  if (kind === 'registry') {
    t.deepEqual(await errorOf(response), [507, 'UNAVAILABLE'], what);
  } else {
    const { code, detail } = (await response.json()) as { code: string; detail: string };
    t.is(code, 'StorageFull', what);
    t.is(detail, response.statusText, what);
  }
}

test.serial(
  'below the reserve pushes are 507; reads, deletions and jobs go on; pushes work when space is back',
  async (t) => {
    const { disk, server, feed, repository, image } = await setUp(t);
    const all = await pushes(server, repository);
    const other = new TestRepository(server, 'team/other');
    const mount = `blobs/uploads/?mount=${digestOf('{}')}&from=team/app`;
    disk.reported = reserve - 1;
    for (const [what, [kind, push]] of Object.entries(all)) await assertFull(t, kind, await push(), what);
    await assertFull(t, 'registry', await other.fetch('blobs/uploads/', { method: 'POST' }), 'a new session');
    await assertFull(t, 'registry', await other.fetch(mount, { method: 'POST' }), 'a mount');

    t.is((await repository.fetch('manifests/v1')).status, 200);
    t.is((await feed.fetch('/package/hosted/1.0.0/hosted.1.0.0.nupkg')).status, 200);
    t.is((await repository.fetch(`manifests/${image.digest}`, { method: 'DELETE' })).status, 202);
    t.is((await feed.fetch('/push/Hosted/1.0.0', { method: 'DELETE' })).status, 204);
    const { value } = await createToken(server, ['read']);
    t.is((await server.fetch('/v1/account', { token: value })).status, 200);
    await flushTokens(server);
    await flushUsage(server);
    t.truthy((await rowsOf<{ used: number | null }>(server, 'SELECT MAX(last_used_at) AS used FROM tokens'))[0]!.used);
    server.clock.now = Date.now() + 10 * 86_400_000;
    t.true((await runJob(server, 'gc'))['blobs']! > 0);
    const full = () => server.lines.filter((line) => line.includes('storage.reserve'));
    t.is(full().length, 1, 'one line, not one for each request');

    disk.reported = reserve + reserve / 8;
    const again = await pushes(server, repository);
    for (const [what, [, push]] of Object.entries(again)) t.true([201, 202].includes((await push()).status), what);
    t.is(full().length, 1);
    t.is(server.lines.filter((line) => line.includes('uploads are accepted')).length, 1);
  },
);

test.serial('an announced body that would use the reserve is refused before it arrives', async (t) => {
  const { disk, server, repository } = await setUp(t);
  disk.reported = reserve + 10 * MiB;
  const session = await repository.start();
  for (const [method, path, headers] of [
    ['PATCH', session, {}],
    ['PUT', '/v3/push', { 'content-type': 'application/octet-stream' }],
  ] as const) {
    const request = openRequest(server, method, path, { 'content-length': 11 * MiB, ...headers });
    request.flushHeaders();
    t.is((await answerOf(request)).status, 507, method);
    request.destroy();
  }
  const fits = await repository.fetch(session, { method: 'PATCH', body: new Uint8Array(randomBytes(9 * MiB)) });
  t.is(fits.status, 202);
});

test.serial('a body of unknown length stops at the reserve, and the session continues there', async (t) => {
  const { disk, server, repository } = await setUp(t);
  const layer = randomBytes(8 * MiB);
  const session = await repository.start();
  const request = openRequest(server, 'PATCH', session);
  request.write(layer.subarray(0, 3 * MiB));
  await until(async () => {
    const { headers } = await repository.fetch(session);
    return headers.get('range') === `0-${3 * MiB - 1}`;
  });
  disk.reported = reserve;
  request.end(layer.subarray(3 * MiB));
  t.is((await answerOf(request)).status, 507);
  disk.reported = 2 * reserve;
  await finishFrom(t, repository, session, layer);
});

/** Continues the session at the offset that the server reports, and checks what is stored then. */
async function finishFrom(t: ExecutionContext, repository: TestRepository, session: string, layer: Buffer) {
  const range = (await repository.fetch(session)).headers.get('range')!;
  const last = Number(range.split('-')[1]);
  const received = last === 0 ? 0 : last + 1;
  t.true(received > 0 && received < layer.length, range);
  const digest = digestOf(layer);
  const rest = layer.subarray(received);
  const response = await repository.fetch(`${session}?digest=${digest}`, {
    method: 'PUT',
    headers: { 'content-range': `${received}-${layer.length - 1}` },
    body: new Uint8Array(rest),
  });
  t.is(response.status, 201);
  const stored = await repository.fetch(`blobs/${digest}`);
  t.true(Buffer.from(await stored.arrayBuffer()).equals(layer));
}

for (const restart of [false, true]) {
  test.serial(`an upload continues after a full disk${restart ? ', also after a restart' : ''}`, async (t) => {
    const { disk, server, repository } = await setUp(t);
    const layer = randomBytes(9 * MiB + 7);
    const session = await repository.start();
    // Not at the end of a write: the disk takes a part of it.
    disk.left = 4 * MiB + 12_345;
    const patch = await repository.fetch(session, {
      method: 'PATCH',
      body: new Uint8Array(layer.subarray(0, 6 * MiB)),
    });
    t.is(patch.status, 507);
    const [row] = await rowsOf<{ received: number; writer: string | null }>(server, 'SELECT * FROM uploads');
    t.true(row!.received >= 2 * MiB && row!.received <= 4 * MiB, 'the complete writes');
    t.is(row!.writer, null);
    const still = await repository.fetch(session, {
      method: 'PATCH',
      body: new Uint8Array(layer.subarray(row!.received)),
    });
    t.is(still.status, 507, 'still full');
    t.is((await rowsOf<{ received: number }>(server, 'SELECT * FROM uploads'))[0]!.received, row!.received);
    disk.left = Number.POSITIVE_INFINITY;
    if (!restart) {
      await finishFrom(t, repository, session, layer);
      return;
    }
    await server.close();
    const next = await startTestServer(t, { data: server.data });
    await finishFrom(t, new TestRepository(next, 'team/app'), session, layer);
  });
}

test.serial('an upload that ends where the disk became full has none of the bytes of the failed write', async (t) => {
  const { disk, server, repository } = await setUp(t);
  const layer = randomBytes(6 * MiB);
  const session = await repository.start();
  disk.left = 4 * MiB + 12_345;
  t.is((await repository.fetch(session, { method: 'PATCH', body: new Uint8Array(layer) })).status, 507);
  disk.left = Number.POSITIVE_INFINITY;
  const [row] = await rowsOf<{ received: number }>(server, 'SELECT received FROM uploads');
  const received = layer.subarray(0, row!.received);
  t.true(received.length > 0 && received.length < 4 * MiB + 12_345);
  const digest = digestOf(received);
  t.is((await repository.fetch(`${session}?digest=${digest}`, { method: 'PUT' })).status, 201);
  const stored = await repository.fetch(`blobs/${digest}`);
  t.true(Buffer.from(await stored.arrayBuffer()).equals(received));
});

test.serial('ten pushes of each kind on a full disk leave no file, no descriptor and no timer', async (t) => {
  const { disk, server, repository } = await setUp(t);
  const all = await pushes(server, repository);
  // The first connection and the first lease stay open.
  for (const [, push] of Object.values(all)) await push().then((response) => response.arrayBuffer());
  const again = await pushes(server, repository);
  const sessions = (await staged(server)).length;
  await settled(t, async () => [await descriptors(), timers()]);
  for (const left of [0, 200]) {
    for (const [what, [kind, push]] of Object.entries(again)) {
      const before = { files: await descriptors(), timers: timers() };
      for (let turn = 0; turn < 10; turn += 1) {
        disk.left = left;
        await assertFull(t, kind, await push(), what);
      }
      // Sockets and the files of the two open sessions may come and go.
      await until(async () => (await descriptors()) <= before.files + 3);
      await until(() => timers() <= before.timers + 3);
      t.true((await staged(server)).length <= sessions, `${what}: ${String(await staged(server))}`);
    }
  }
});

async function settled(t: ExecutionContext, read: () => Promise<unknown[]>) {
  let last = '';
  await until(async () => {
    const now = JSON.stringify(await read());
    const isSame = now === last;
    last = now;
    return isSame;
  });
  t.pass();
}

test.serial('failed pushes of a form leave no timer when the client closes the connection', async (t) => {
  const { disk, server } = await setUp(t, { limits: { uploadIdle: '60s' } });
  const before = timers();
  for (let turn = 0; turn < 12; turn += 1) {
    // The first MiB is written, and this fails. Of some of these bodies, the rest has arrived then.
    const { body, type } = packageForm(randomBytes(MiB + (turn + 1) * 20_000));
    disk.left = 0;
    const headers = { connection: 'close', 'content-type': type, 'content-length': body.length };
    const request = openRequest(server, 'PUT', '/v3/push', headers);
    request.end(body);
    t.is((await answerOf(request)).status, 507);
  }
  await until(() => timers() <= before);
  t.pass();
});

for (const code of ['EDQUOT', 'EFBIG']) {
  test.serial(`${code} is a 507 that says which limit was reached`, async (t) => {
    const { disk, server, repository } = await setUp(t);
    Object.assign(disk, { code, left: 100 });
    const response = await repository.fetch(`blobs/uploads/?digest=${digestOf('x')}`, {
      method: 'POST',
      body: new Uint8Array(MiB),
    });
    t.is(response.status, 507);
    t.regex(response.statusText, code === 'EFBIG' ? /limit for the size of a file.*ulimit -f/ : /disk quota/);
    const line = server.lines.find((each) => each.includes('because the disk is full'));
    t.true(line?.includes(code), 'the log has the code');
  });
}

for (const errno of [1021, 1114]) {
  test.serial(`error ${errno} of a MySQL that is full is a 507, and the service stays ready`, async (t) => {
    const url = await temporaryDatabase(t, 'mysql');
    const { server, feed } = await setUp(t, { database: { url } });
    const direct = await createConnection(url);
    t.teardown(() => direct.destroy());
    const signal = `SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ${errno}, MESSAGE_TEXT = 'The table is full'`;
    await direct.query(`CREATE TRIGGER full_table BEFORE INSERT ON packages FOR EACH ROW ${signal}`);
    const response = await feed.push({ id: 'Other', version: '1.0.0' });
    t.is(response.status, 507);
    t.regex(((await response.json()) as { detail: string }).detail, /database is full/);
    t.deepEqual(await (await server.fetch('/readyz')).json(), { status: 'ready' });
    await direct.query('DROP TRIGGER full_table');
    t.is((await feed.push({ id: 'Other', version: '1.0.0' })).status, 201);
  });
}

test.serial('a database that is full is a 507 and not a defect', async (t) => {
  const { server, feed, repository } = await setUp(t);
  const real = new DatabaseSync(':memory:');
  real.exec('PRAGMA max_page_count = 2; CREATE TABLE one (text)');
  const parent = t.throws(() => real.prepare('INSERT INTO one VALUES (?)').run('x'.repeat(100_000)));
  const database = databaseOf(server);
  const transaction = database.transaction.bind(database);
  database.transaction = () => Promise.reject(Object.assign(new Error('wrapped'), { parent }));
  t.is((await feed.push({ id: 'Other', version: '1.0.0' })).status, 507);
  t.is((await repository.fetch('manifests/v1', { method: 'DELETE' })).status, 507);
  const api = await server.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'x', scopes: ['read'] }),
  });
  t.is(api.status, 507);
  t.regex(((await api.json()) as { detail: string }).detail, /database is full/);
  database.transaction = transaction;
  t.is((await feed.push({ id: 'Other', version: '1.0.0' })).status, 201);
  t.deepEqual(await staged(server), []);
});
