import { createHash, randomBytes } from 'node:crypto';
import { readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { eventually, until, within } from '../../support/until.ts';
import { databaseOf, runJob, tokenOf } from '../../support/inside.ts';

const bytes = randomBytes(100_000);
const digest = digestOf(bytes);

const staged = (data: string) => readdir(join(data, 'staging'));
const rangeOf = (response: Response) => [response.status, response.headers.get('range')];

test('a blob in one POST', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const response = await repository.fetch(`blobs/uploads/?digest=${digest}`, { method: 'POST', body: bytes });
  t.is(response.status, 201);
  t.is(response.headers.get('docker-content-digest'), digest);
  const location = response.headers.get('location')!;
  t.is(location, `/v2/team/app/blobs/${digest}`, 'relative, so that it survives a proxy');
  t.deepEqual(Buffer.from(await (await repository.fetch(location)).arrayBuffer()), bytes);
  t.deepEqual(await staged(server.data), []);
});

test('chunks in order, with and without the unit, the last one in the PUT', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const started = await repository.fetch('blobs/uploads/', { method: 'POST' });
  t.deepEqual(rangeOf(started), [202, '0-0']);
  const location = started.headers.get('location')!;
  t.true(location.endsWith(started.headers.get('docker-upload-uuid')!));
  const chunk = (method: string, range: string | undefined, from: number, to: number, query = '') =>
    repository.fetch(location + query, {
      method,
      headers: range === undefined ? {} : { 'content-range': range },
      body: bytes.subarray(from, to),
    });
  t.deepEqual(rangeOf(await chunk('PATCH', '0-9999', 0, 10_000)), [202, '0-9999']);
  t.deepEqual(rangeOf(await chunk('PATCH', 'bytes 10000-19999/*', 10_000, 20_000)), [202, '0-19999']);
  t.deepEqual(rangeOf(await chunk('PATCH', undefined, 20_000, 30_000)), [202, '0-29999']);
  t.deepEqual(rangeOf(await chunk('PATCH', ' bytes=30000-39999/100000', 30_000, 40_000)), [202, '0-39999']);
  t.deepEqual(rangeOf(await chunk('PATCH', '40000-39999', 0, 0)), [202, '0-39999'], 'without bytes');
  const state = await repository.fetch(location);
  t.deepEqual(rangeOf(state), [204, '0-39999']);
  t.deepEqual([state.headers.get('content-length'), state.headers.get('location')], [null, location]);
  t.is(started.headers.get('content-length'), '0');
  const finished = await chunk('PUT', '40000-99999', 40_000, 100_000, `?digest=${digest}`);
  t.is(finished.status, 201);
  t.is(finished.headers.get('docker-content-digest'), digest);
  t.deepEqual(await errorOf(await repository.fetch(location)), [404, 'BLOB_UPLOAD_UNKNOWN'], 'the session is closed');
  t.deepEqual(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
});

test('a chunk out of order is 416 with the position to continue, also in the closing PUT', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const location = await repository.start();
  const send = (method: string, range: string, from: number, to: number, query = '') =>
    repository.fetch(location + query, { method, headers: { 'content-range': range }, body: bytes.subarray(from, to) });
  await send('PATCH', '0-9999', 0, 10_000);
  for (const [method, range, from, to, query] of [
    ['PATCH', '0-9999', 0, 10_000, ''],
    ['PATCH', '20000-29999', 20_000, 30_000, ''],
    ['PUT', '20000-99999', 20_000, 100_000, `?digest=${digest}`],
  ] as const) {
    const response = await send(method, range, from, to, query);
    t.deepEqual(rangeOf(response), [416, '0-9999']);
    t.is(response.headers.get('location'), location);
    t.deepEqual(await errorOf(response), [416, 'BLOB_UPLOAD_INVALID']);
  }
  t.deepEqual(rangeOf(await repository.fetch(location)), [204, '0-9999']);
  t.is((await send('PUT', '10000-99999', 10_000, 100_000, `?digest=${digest}`)).status, 201);
});

test('a wrong Content-Range is refused, and nothing of its body is kept', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  const patch = (range: string) =>
    repository.fetch(location, { method: 'PATCH', headers: { 'content-range': range }, body: bytes });
  t.deepEqual(await errorOf(await patch('0-9')), [400, 'SIZE_INVALID']);
  t.deepEqual(await errorOf(await patch('9-0')), [400, 'BLOB_UPLOAD_INVALID']);
  for (const range of [
    'all of it',
    '0-99999x',
    'x0-99999',
    '0-99999/',
    '0-99999/x',
    'bytes:0-99999',
    '0-1234567890123456',
  ])
    t.deepEqual(await errorOf(await patch(range)), [400, 'BLOB_UPLOAD_INVALID'], range);
  const chunked = openRequest(server, 'PATCH', location, { 'content-range': '0-9', 'transfer-encoding': 'chunked' });
  chunked.end(bytes);
  t.is((await answerOf(chunked)).status, 400, 'known only when the body has ended');
  t.deepEqual(rangeOf(await repository.fetch(location)), [204, '0-0']);
  t.is((await repository.fetch(`${location}?digest=${digest}`, { method: 'PUT', body: bytes })).status, 201);
});

test('an empty blob, and one under sha512, announced or not', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const empty = digestOf('');
  const location = await repository.start();
  t.is((await repository.fetch(`${location}?digest=${empty}`, { method: 'PUT' })).status, 201);
  const head = await repository.fetch(`blobs/${empty}`, { method: 'HEAD' });
  t.is(head.headers.get('content-length'), '0');
  for (const query of ['', '?digest-algorithm=sha512']) {
    const body = randomBytes(5000);
    const long = digestOf(body, 'sha512');
    const session = await repository.start(query);
    await repository.fetch(session, { method: 'PATCH', body });
    const response = await repository.fetch(`${session}?digest=${long}`, { method: 'PUT' });
    t.is(response.status, 201);
    t.is(response.headers.get('docker-content-digest'), long);
    t.deepEqual(Buffer.from(await (await repository.fetch(`blobs/${long}`)).arrayBuffer()), body);
    t.is((await repository.fetch(`blobs/${digestOf(body)}`)).status, 404, 'only under the digest it was pushed under');
  }
  t.deepEqual(await errorOf(await repository.fetch('blobs/uploads/?digest-algorithm=md5', { method: 'POST' })), [
    400,
    'DIGEST_INVALID',
  ]);
});

test('a wrong digest leaves nothing behind', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const other = digestOf('other');
  const post = await repository.fetch(`blobs/uploads/?digest=${other}`, { method: 'POST', body: bytes });
  t.deepEqual(await errorOf(post), [400, 'DIGEST_INVALID']);
  const location = await repository.start();
  await repository.fetch(location, { method: 'PATCH', body: bytes });
  for (const malformed of ['', '?digest=', '?digest=sha256:abc', '?digest=latest']) {
    const response = await repository.fetch(location + malformed, { method: 'PUT' });
    t.deepEqual(await errorOf(response), [400, 'DIGEST_INVALID']);
  }
  const status = await repository.fetch(location);
  t.deepEqual(rangeOf(status), [204, '0-99999'], 'a typing error costs nothing');
  t.is(status.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  const put = await repository.fetch(`${location}?digest=${other}`, { method: 'PUT' });
  t.deepEqual(await errorOf(put), [400, 'DIGEST_INVALID']);
  t.is((await repository.fetch(location)).status, 404);
  for (const each of [digest, other]) t.is((await repository.fetch(`blobs/${each}`, { method: 'HEAD' })).status, 404);
  t.deepEqual(await staged(server.data), []);
  t.deepEqual(await (await server.fetch('/v2/_catalog')).json(), { repositories: [] });
});

test('a body over the limit is 413, and the session is as it was before', async (t) => {
  const server = await startTestServer(t, { limits: { blob: 1000 } });
  const repository = new TestRepository(server, 'app');
  const post = await repository.fetch(`blobs/uploads/?digest=${digest}`, { method: 'POST', body: bytes });
  t.deepEqual(await errorOf(post), [413, 'SIZE_INVALID']);
  const location = await repository.start();
  const small = randomBytes(1000);
  await repository.fetch(location, { method: 'PATCH', body: small.subarray(0, 600) });
  t.is((await repository.fetch(location, { method: 'PATCH', body: bytes })).status, 413);
  t.deepEqual(rangeOf(await repository.fetch(location)), [204, '0-599']);
  const last = { method: 'PUT', body: small.subarray(600) };
  t.is((await repository.fetch(`${location}?digest=${digestOf(small)}`, last)).status, 201);
});

test('a session is cancelled once and is then unknown', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  await repository.fetch(location, { method: 'PATCH', body: bytes });
  t.is((await repository.fetch(location, { method: 'DELETE' })).status, 204);
  t.deepEqual(await staged(server.data), []);
  const never = '/v2/app/blobs/uploads/00000000-0000-4000-8000-000000000000';
  for (const path of [location, never, '/v2/app/blobs/uploads/..%2f..%2fentrepot.db', '/v2/app/blobs/uploads/x']) {
    for (const method of ['GET', 'PATCH', 'DELETE', 'PUT']) {
      const query = method === 'PUT' ? `?digest=${digest}` : '';
      const response = await repository.fetch(path + query, { method });
      t.is(response.status, 404, `${method} ${path}`);
    }
  }

  // A request that is writing it is cut, and does not wait until it has been silent for long.
  const other = await repository.start();
  const writing = openRequest(server, 'PATCH', other, { 'content-length': bytes.length });
  const closed = new Promise((resolve) => writing.once('close', resolve));
  writing.write(bytes.subarray(0, 5000));
  await eventually(
    () => repository.fetch(other),
    (answer) => rangeOf(answer)[1] === '0-4999',
  );
  t.is((await repository.fetch(other, { method: 'DELETE' })).status, 204);
  await within(closed, 30_000);
  t.deepEqual(await staged(server.data), []);
});

test('a session belongs to one repository of one account', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const value = await tokenOf(server, ['read', 'write', 'delete'], 'other');
  const location = await repository.start();
  t.is((await repository.fetch(location.replace('/app/', '/app2/'))).status, 404);
  const stranger = new TestRepository(server, 'app', value);
  for (const method of ['GET', 'PATCH', 'DELETE']) t.is((await stranger.fetch(location, { method })).status, 404);
  t.is((await repository.fetch(location)).status, 204);
});

for (const dialect of dialects) {
  test(`${dialect}: an upload continues after its connection was cut, and after a restart`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const one = await startTestServer(t, { database });
    const repository = new TestRepository(one, 'app');
    const location = await repository.start();
    const cut = openRequest(one, 'PATCH', location, { 'content-length': bytes.length });
    await new Promise((resolve) => cut.write(bytes.subarray(0, 30_000), resolve));
    // Not by further requests: one of them could hold the session before this one arrives.
    await until(
      async () => (await databaseOf(one).get('SELECT id FROM uploads WHERE writer IS NOT NULL')) !== undefined,
    );
    t.is((await repository.fetch(location, { method: 'PATCH' })).status, 409);
    cut.destroy();
    const [, range] = rangeOf(
      await eventually(
        () => repository.fetch(location),
        (answer) => rangeOf(answer)[1] !== '0-0',
      ),
    );
    t.is(range, '0-29999');
    const rest = { method: 'PATCH', headers: { 'content-range': '30000-59999' }, body: bytes.subarray(30_000, 60_000) };
    t.deepEqual(rangeOf(await repository.fetch(location, rest)), [202, '0-59999']);
    await one.close();

    const two = new TestRepository(await startTestServer(t, { data: one.data, database }), 'app');
    t.deepEqual(rangeOf(await two.fetch(location)), [204, '0-59999']);
    const last = { method: 'PUT', body: bytes.subarray(60_000) };
    t.is((await two.fetch(`${location}?digest=${digest}`, last)).status, 201);
    t.deepEqual(Buffer.from(await (await two.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
  });

  test(`${dialect}: two instances on one disk take turns in one session`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const one = await startTestServer(t, { database });
    const two = await startTestServer(t, { data: one.data, database });
    const repositories = [new TestRepository(one, 'app'), new TestRepository(two, 'app')];
    const location = await repositories[0]!.start();
    for (let start = 0; start < 50_000; start += 10_000) {
      const response = await repositories[(start / 10_000) % 2]!.fetch(location, {
        method: 'PATCH',
        headers: { 'content-range': `${start}-${start + 9999}` },
        body: bytes.subarray(start, start + 10_000),
      });
      t.is(response.status, 202);
    }
    await repositories[0]!.fetch(location, { method: 'PATCH', body: bytes.subarray(50_000) });
    t.is((await repositories[1]!.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);
    t.deepEqual(Buffer.from(await (await repositories[0]!.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
  });

  test(`${dialect}: of two writers of one session one is refused, and no bytes are mixed`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const one = await startTestServer(t, { database });
    const two = await startTestServer(t, { data: one.data, database });
    const location = await new TestRepository(one, 'app').start();
    const slow = openRequest(one, 'PATCH', location, { 'transfer-encoding': 'chunked' });
    slow.write(bytes.subarray(0, 10_000));
    const answered = answerOf(slow);
    let drops = 0;
    const drip = setInterval(() => {
      slow.write(bytes.subarray(0, 1));
      drops += 1;
    }, 100);
    t.teardown(() => clearInterval(drip));
    for (const server of [one, two]) {
      const response = await eventually(
        () => new TestRepository(server, 'app').fetch(location, { method: 'PATCH' }),
        ({ status }) => status === 409,
      );
      t.deepEqual(await errorOf(response), [409, 'BLOB_UPLOAD_INVALID']);
    }
    clearInterval(drip);
    slow.end();
    t.is((await answered).status, 202);
    const whole = Buffer.concat([bytes.subarray(0, 10_000), Buffer.alloc(drops, bytes[0])]);
    const response = await new TestRepository(two, 'app').fetch(`${location}?digest=${digestOf(whole)}`, {
      method: 'PUT',
    });
    t.is(response.status, 201);
  });

  test(`${dialect}: the status of an upload has what was sent so far at the instance that receives it, and what is recorded at others`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const one = await startTestServer(t, { database });
    const two = await startTestServer(t, { data: one.data, database });
    const repositories = [new TestRepository(one, 'app'), new TestRepository(two, 'app')];
    const location = await repositories[0]!.start();
    await repositories[0]!.fetch(location, { method: 'PATCH', body: bytes.subarray(0, 10_000) });
    const large = randomBytes(3 * 2 ** 20);
    const slow = openRequest(one, 'PATCH', location, { 'transfer-encoding': 'chunked' });
    const answered = answerOf(slow);
    slow.write(large);
    const last = 10_000 + large.length - 1;
    const statusOf = (repository: TestRepository) => async () => rangeOf(await repository.fetch(location));
    const [here, there] = repositories.map(statusOf);
    t.deepEqual(await eventually(here!, ([, range]) => range === `0-${last}`), [204, `0-${last}`]);
    // An instance that does not receive the bytes tells those that are recorded, which stay if the writer dies.
    t.deepEqual(await there!(), [204, '0-9999']);
    slow.end();
    t.is((await answered).status, 202);
    for (const read of [here!, there!]) t.deepEqual(await read(), [204, `0-${last}`]);
  });

  test(`${dialect}: a session whose writer’s process died continues when its lease has expired`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    const location = await repository.start();
    await repository.fetch(location, { method: 'PATCH', body: bytes.subarray(0, 40_000) });
    await databaseOf(server).transaction((tx) =>
      tx.run("UPDATE uploads SET writer = 'another', writer_until = ?", [Date.now() + 700]),
    );
    t.is((await repository.fetch(location, { method: 'PATCH', body: bytes.subarray(40_000) })).status, 202);
    t.is((await repository.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);
    t.deepEqual(Buffer.from(await (await repository.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
    t.deepEqual(await staged(server.data), []);
  });

  test(`${dialect}: a session without a request for a day is removed, one in use is not`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    const old = await repository.start();
    await repository.fetch(old, { method: 'PATCH', body: bytes });
    await writeFile(join(server.data, 'staging', 'orphan'), 'left by a crash');
    server.clock.now = Date.now() + 25 * 3_600_000;
    const young = await repository.start();
    server.clock.now += 23 * 3_600_000;
    const recent = join(server.data, 'staging', 'recent');
    await writeFile(recent, 'of a push that goes on');
    const hourAgo = new Date(server.clock.now - 3_600_000);
    await utimes(recent, hourAgo, hourAgo);
    t.deepEqual(await runJob(server, 'uploads'), {
      sessions: 1,
      files: 1,
      bytes: bytes.length + 'left by a crash'.length,
    });
    t.deepEqual(await runJob(server, 'uploads'), { sessions: 0, files: 0, bytes: 0 });
    t.is((await repository.fetch(old)).status, 404);
    t.is((await repository.fetch(young)).status, 204);
    t.deepEqual((await staged(server.data)).toSorted(), [young.split('/').at(-1)!, 'recent'].toSorted());
  });
}

test('a POST whose connection is cut leaves nothing, and the server keeps running', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const path = `/v2/app/blobs/uploads/?digest=${digest}`;
  const cut = openRequest(server, 'POST', path, { 'content-length': bytes.length });
  cut.write(bytes.subarray(0, 5000));
  await eventually(
    () => staged(server.data),
    (files) => files.length === 1,
  );
  cut.destroy();
  t.deepEqual(
    await eventually(
      () => staged(server.data),
      (files) => files.length === 0,
    ),
    [],
  );
  t.is((await repository.fetch(`blobs/${digest}`, { method: 'HEAD' })).status, 404);
  t.is((await repository.fetch(path, { method: 'POST', body: bytes })).status, 201);
});

test('a sender that stops sending is cut, and its bytes are kept', async (t) => {
  const server = await startTestServer(t, { limits: { uploadIdle: '1s' } });
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  const silent = openRequest(server, 'PATCH', location, { 'content-length': bytes.length });
  const closed = new Promise((resolve) => silent.once('close', resolve));
  silent.write(bytes.subarray(0, 5000));
  await closed;
  t.is(
    (
      await eventually(
        () => repository.fetch(location),
        (answer) => rangeOf(answer)[1] !== '0-0',
      )
    ).headers.get('range'),
    '0-4999',
  );
});

test('a blob larger than every buffer arrives whole, pushed as a stream without a length', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const piece = randomBytes(1 << 20);
  const hash = createHash('sha256');
  let left = 12;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (left-- === 0) return controller.close();
      hash.update(piece);
      controller.enqueue(piece);
    },
  });
  const location = await repository.start();
  const patched = await repository.fetch(location, { method: 'PATCH', body, duplex: 'half' });
  t.deepEqual(rangeOf(patched), [202, `0-${12 * (1 << 20) - 1}`]);
  const large = `sha256:${hash.digest('hex')}`;
  t.is((await repository.fetch(`${location}?digest=${large}`, { method: 'PUT' })).status, 201);
  const got = Buffer.from(await (await repository.fetch(`blobs/${large}`)).arrayBuffer());
  t.is(digestOf(got), large);
});
