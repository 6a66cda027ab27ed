import { randomBytes } from 'node:crypto';
import test from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { instancesOf, stagedAt } from '../support/instances.ts';
import { databaseOf, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../support/registry.ts';
import { until, within } from '../support/until.ts';

// Upload sessions whose requests arrive at different instances, which have no data folder in common.

const bytes = randomBytes(3_000_000);
const digest = digestOf(bytes);
const [third, twoThirds] = [1_000_000, 2_000_000];

test('an upload that begins at one instance continues and ends at others', async (t) => {
  const start = await instancesOf(t, 'mysql');
  const [a, b] = [await start(), await start()];
  const [atA, atB] = [new TestRepository(a, 'team/app'), new TestRepository(b, 'team/app')];
  const location = await atA.start();
  const first = await atB.fetch(location, { method: 'PATCH', body: bytes.subarray(0, third) });
  t.is(first.status, 202);
  t.is(first.headers.get('range'), `0-${third - 1}`);
  t.is(first.headers.get('location'), location);
  for (const at of [atA, atB]) t.is((await at.fetch(location)).headers.get('range'), `0-${third - 1}`);
  t.is((await stagedAt(a)).length, 1);
  t.deepEqual(await stagedAt(b), [], 'nothing is kept where it is relayed');

  const wrong = { 'content-range': '5-14' };
  const outOfOrder = await atB.fetch(location, { method: 'PATCH', headers: wrong, body: bytes.subarray(0, 10) });
  t.is(outOfOrder.headers.get('range'), `0-${third - 1}`);
  t.deepEqual(await errorOf(outOfOrder), [416, 'BLOB_UPLOAD_INVALID']);

  const second = { method: 'PATCH', body: bytes.subarray(third, twoThirds) };
  t.is((await atA.fetch(location, second)).status, 202);
  const range = { 'content-range': `${twoThirds}-${bytes.length - 1}` };
  const last = { method: 'PUT', headers: range, body: bytes.subarray(twoThirds) };
  const ended = await atB.fetch(`${location}?digest=${digest}`, last);
  t.is(ended.status, 201);
  t.is(ended.headers.get('docker-content-digest'), digest);
  for (const at of [atA, atB])
    t.is(
      digestOf(Buffer.from(await (await at.fetch(`blobs/${digest}`)).arrayBuffer())),
      digest,
      'with the next request',
    );
  // The answer was lost, and the client repeats its request.
  for (const at of [atA, atB]) t.is((await at.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);

  const other = await atA.start();
  t.is((await atB.fetch(other, { method: 'PATCH', body: bytes })).status, 202);
  const mismatch = await atB.fetch(`${other}?digest=${digestOf('x')}`, { method: 'PUT' });
  t.deepEqual(await errorOf(mismatch), [400, 'DIGEST_INVALID']);

  const cancelled = await atA.start();
  t.is((await atB.fetch(cancelled, { method: 'DELETE' })).status, 204);
  t.deepEqual(await errorOf(await atA.fetch(cancelled)), [404, 'BLOB_UPLOAD_UNKNOWN']);
  t.deepEqual(await stagedAt(a), []);

  // The instance that relays checks the client. What the other account knows does not help it.
  const mine = await atA.start();
  const foreign = new TestRepository(b, 'team/app', await tokenOf(b, ['read', 'write'], 'other'));
  t.deepEqual(await errorOf(await foreign.fetch(mine)), [404, 'BLOB_UPLOAD_UNKNOWN']);
  t.is((await new TestRepository(b, 'team/app', await tokenOf(b, ['read'])).fetch(mine)).status, 403);
  const theirs = await new TestRepository(a, 'team/app', foreign.token).start();
  t.is((await foreign.fetch(theirs, { method: 'PATCH', body: bytes })).headers.get('range'), `0-${bytes.length - 1}`);
  t.is((await foreign.fetch(`${theirs}?digest=${digest}`, { method: 'PUT' })).status, 201);
  t.deepEqual(await errorOf(await atB.fetch(mine.replace('team/app', 'other'))), [404, 'BLOB_UPLOAD_UNKNOWN']);
  const made = await a.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'short', scopes: ['read', 'write'] }),
  });
  const { id, token } = (await made.json()) as { id: string; token: string };
  const revoked = new TestRepository(b, 'team/app', token);
  t.is((await revoked.fetch(mine)).status, 204);
  t.is((await a.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 204);
  t.is((await revoked.fetch(mine, { method: 'PATCH', body: 'x' })).status, 401, 'with the very next request');
  t.is((await atB.fetch(mine)).headers.get('range'), '0-0');
});

test('a client that leaves or stops sending at another instance can continue', async (t) => {
  const start = await instancesOf(t);
  const limits = { uploadIdle: '3s', accountStorage: '2MiB' };
  const [a, b] = [await start({ limits }), await start({ limits })];
  const at = new TestRepository(b, 'team/app');
  const location = await new TestRepository(a, 'team/app').start();
  const received = async (count: number) => (await at.fetch(location)).headers.get('range') === `0-${count - 1}`;

  const left = openRequest(b, 'PATCH', location, { 'content-length': third });
  left.write(bytes.subarray(0, 1000));
  await until(() => received(1000));
  left.destroy();
  const silent = openRequest(b, 'PATCH', location);
  await until(() => received(1000));
  const closed = new Promise((resolve) => silent.once('close', resolve));
  silent.write(bytes.subarray(1000, 3000));
  await within(closed);
  t.true(await received(3000));

  // Without a length: what the holder reserves bounds it.
  const whole = openRequest(b, 'PATCH', location);
  const ended = answerOf(whole);
  whole.end(bytes.subarray(3000));
  t.is((await within(ended)).status, 403);
  t.true(await received(3000));
  const rest = { method: 'PUT', body: bytes.subarray(3000, third) };
  const part = digestOf(bytes.subarray(0, third));
  t.is((await at.fetch(`${location}?digest=${part}`, rest)).status, 201);
});

test('without server.internal, an upload ends at an instance that does not have its file', async (t) => {
  const start = await instancesOf(t);
  const a = await start({ server: {} });
  const b = await start();
  t.regex(b.lines.join(''), /2 data folders, and other instances cannot reach host\/1: .*server\.internal/);
  const found = (await examine(b.installation, Date.now)).filter(({ subject }) => subject === 'instances');
  t.regex(found.at(-1)!.text, /cannot reach host\/1: .*server\.internal/, 'the command doctor');
  const location = await new TestRepository(a, 'app').start();
  const at = new TestRepository(b, 'app');
  t.deepEqual(await errorOf(await at.fetch(location, { method: 'PATCH', body: bytes })), [404, 'BLOB_UPLOAD_UNKNOWN']);
  t.is((await rowsOf(a, 'SELECT id FROM uploads')).length, 1, 'it counts as long as its file is there');
  await runJob(a, 'uploads');
  t.deepEqual(await stagedAt(a), []);
  t.deepEqual(await rowsOf(a, 'SELECT id FROM uploads'), []);
  const other = await at.start();
  const direct = await new TestRepository(a, 'app').fetch(other, { method: 'PATCH', body: 'x' });
  t.deepEqual(await errorOf(direct), [404, 'BLOB_UPLOAD_UNKNOWN'], 'it cannot call, either');
  t.is((await at.blob(bytes)).digest, digest);
});

test('instances with one data folder continue sessions without a relay', async (t) => {
  const start = await instancesOf(t);
  const a = await start({ server: {} });
  const b = await start({ server: {}, data: a.data });
  t.notRegex(b.lines.join(''), /data folders/);
  const location = await new TestRepository(a, 'app').start();
  const at = new TestRepository(b, 'app');
  t.is((await at.fetch(location, { method: 'PATCH', body: bytes })).status, 202);
  t.is((await at.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);
});

test('workers of one machine share an internal port, and any of them continues an upload', async (t) => {
  const start = await instancesOf(t);
  const first = await start();
  const [{ address }] = (await rowsOf(first, 'SELECT address FROM instances')) as [{ address: string }];
  await first.close();
  const { internal } = first.installation.core.config.server;
  const settings = { data: first.data, server: { workers: 2, internal: { ...internal, port: address.split(':')[1] } } };
  const workers = [await start(settings), await start(settings)];
  const b = await start();
  t.is((await rowsOf(b, `SELECT id FROM instances WHERE address = '${address}'`)).length, 2);
  const at = new TestRepository(b, 'app');
  for (const worker of workers) {
    const location = await new TestRepository(worker, 'app').start();
    // Each call is a new connection, which the system gives to one of the workers.
    for (let chunk = 0; chunk < 3; chunk += 1)
      t.is((await at.fetch(location, { method: 'PATCH', body: 'x' })).status, 202);
    t.is((await at.fetch(`${location}?digest=${digestOf('xxx')}`, { method: 'PUT' })).status, 201);
  }
});

test('sessions whose data folder is gone for an hour do not count any more', async (t) => {
  const start = await instancesOf(t);
  const [a, b] = [await start(), await start()];
  await new TestRepository(a, 'app').start();
  const mine = await new TestRepository(b, 'app').start();
  const expireAt = (minutes: number) => {
    b.clock.now = Date.now() + minutes * 60_000;
    return runJob(b, 'uploads');
  };
  t.like(await expireAt(70), { sessions: 0 }, 'its instance is live');
  await a.close();
  t.like(await expireAt(50), { sessions: 0 });
  t.like(await expireAt(70), { sessions: 1 });
  t.is((await new TestRepository(b, 'app').fetch(mine)).status, 204);
  t.is((await rowsOf(b, 'SELECT id FROM uploads')).length, 1);
});

test('an instance that holds no file of a session of an older version uses its own folder', async (t) => {
  const start = await instancesOf(t);
  const a = await start();
  const at = new TestRepository(a, 'app');
  const location = await at.start();
  await databaseOf(a).transaction((tx) => tx.run('UPDATE uploads SET folder = NULL'));
  t.is((await at.fetch(location, { method: 'PATCH', body: bytes })).status, 202);
  t.is((await at.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);
});
