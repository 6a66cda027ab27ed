import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import { encodeCall, type RelayCall } from '../../src/instances/call.ts';
import { RelayKey } from '../../src/instances/relay-key.ts';
import { databaseOf, rowsOf, runJob } from '../support/inside.ts';
import { instancesOf, internalOf, internalSecret, stagedAt } from '../support/instances.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

// The internal listener: what it refuses, and what an instance does when another one cannot be used.

const bytes = randomBytes(300_000);
const MiB = 2 ** 20;

interface Row {
  id: string;
  address: string;
  folder: string;
}

async function rowOf(server: TestServer): Promise<Row> {
  const rows = await rowsOf<Row>(server, 'SELECT id, address, folder FROM instances ORDER BY started_at DESC, id');
  return rows[0]!;
}

/** Sends a call to the internal port of an instance. */
async function call(address: string, headers: Record<string, string>, body = '', method = 'POST', path = '/relay') {
  const { hostname, port } = new URL(`http://${address}`);
  const request = httpRequest({ hostname, port, method, path, headers, agent: false });
  request.on('error', () => undefined).end(body);
  const [response] = (await within(once(request, 'response'))) as [IncomingMessage];
  return { status: response.statusCode, text: (await buffer(response)).toString(), headers: response.headers };
}

function signed(document: RelayCall, secret = internalSecret): Record<string, string> {
  const header = encodeCall(document);
  return { 'entrepot-call': header, authorization: `Entrepot ${new RelayKey(secret).ofCall(header)}` };
}

const actor = { kind: 'token', id: null, name: null } as const;

test('the internal port does only what is signed, recent, and for this data folder', async (t) => {
  const start = await instancesOf(t);
  const server = await start();
  const { address, folder } = await rowOf(server);
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  const id = location.split('/').at(-1)!;
  const [{ account_id: accountId }] = (await rowsOf(server, 'SELECT account_id FROM uploads')) as [
    { account_id: number },
  ];
  const work = { do: 'append', accountId, repository: 'app', id, size: 4 };
  const at = Date.now();
  const origin = { actor, address: null, requestId: null };
  const good: RelayCall = { to: folder, at, name: 'uploads', origin, work };
  const minutes = 60_000;
  const refused: [string, Record<string, string>][] = [
    ['no signature', { 'entrepot-call': encodeCall(good) }],
    ['no call', { authorization: signed(good)['authorization']! }],
    ['a token of a client', { 'entrepot-call': encodeCall(good), authorization: `Bearer ${server.token}` }],
    ['another secret', signed(good, `${internalSecret}.`)],
    ['another call', { ...signed(good), 'entrepot-call': encodeCall({ ...good, at: at + 1 }) }],
    ['a signature that is too long', { ...signed(good), authorization: `${signed(good)['authorization']}0` }],
    ['an old call', signed({ ...good, at: at - 6 * minutes })],
    ['a call from the future', signed({ ...good, at: at + 6 * minutes })],
    ['another data folder', signed({ ...good, to: `${folder}0` })],
    ['no JSON', { 'entrepot-call': 'x', authorization: `Entrepot ${new RelayKey(internalSecret).ofCall('x')}` }],
  ];
  for (const [what, headers] of refused) {
    const answer = await call(address, headers, 'evil');
    t.deepEqual([answer.status, answer.text], [401, ''], what);
  }
  for (const [method, path] of [
    ['GET', '/relay'],
    ['POST', '/'],
    ['POST', '/v1/account'],
    ['PATCH', location],
  ] as const)
    t.is((await call(address, signed(good), '', method, path)).status, 401, `${method} ${path}`);
  t.is((await call(address, { ...signed(good), padding: 'x'.repeat(20_000) })).status, 431);
  t.is((await repository.fetch(location)).headers.get('range'), '0-0', 'nothing was appended');
  t.true(server.lines.filter((line) => line.includes('internal port was refused')).length === 1, 'one line a minute');

  // Signed, but not what this version sends.
  for (const wrong of [
    { ...work, accountId: '1' },
    { ...work, accountId: 0 },
    { ...work, start: -1 },
    { ...work, length: -1 },
    { ...work, size: -1 },
    { ...work, size: undefined },
    { ...work, repository: 'App' },
    { ...work, do: 'finish' },
    { ...work, id: '../../secret-key' },
    { ...work, do: 'whole' },
    { ...work, more: 1 },
  ]) {
    const answer = await call(address, signed({ ...good, work: wrong }), 'evil');
    t.is(answer.status, 200);
    t.regex(answer.text, /"error"/);
  }
  t.regex((await call(address, signed({ ...good, name: 'other' }))).text, /"Unsupported"/);
  t.regex((await call(address, signed({ ...good, work: { ...work, accountId: 4711 } }))).text, /"UploadUnknown"/);
  const done = await call(address, signed(good), 'good');
  t.is(done.text, '{"result":4}');
  t.truthy(done.headers['entrepot-answer']);
  t.is((await repository.fetch(location)).headers.get('range'), '0-3');
});

test('headers of a client are not sent to the instance that has the upload', async (t) => {
  const start = await instancesOf(t);
  const [a, b] = [await start(), await start()];
  const location = await new TestRepository(a, 'app').start();
  const { folder } = await rowOf(a);
  const hostile = signed({
    to: folder,
    at: Date.now(),
    name: 'uploads',
    origin: { actor, address: null, requestId: null },
    work: {},
  });
  const at = new TestRepository(b, 'app');
  const headers = { 'entrepot-call': hostile['entrepot-call']!, 'x-forwarded-for': '1.2.3.4', connection: 'close' };
  t.is((await at.fetch(location, { method: 'PATCH', headers, body: 'abc' })).status, 202);
  const statusOf = async (method: string, path: string, more: Record<string, string>) => {
    const request = openRequest(b, method, path, more);
    const answer = answerOf(request);
    request.end('abc');
    return (await within(answer)).status;
  };
  t.is(await statusOf('PATCH', location, { 'content-range': '3-5, entrepot-call: x' }), 400);
  t.is(await statusOf('PATCH', location, { 'content-range': '3-99999999999999999999' }), 400);
  t.is(await statusOf('PATCH', `${location}%0d%0aentrepot-call:%20x`, {}), 404);
  t.is(await statusOf('PUT', `${location}?digest=sha256:${'a'.repeat(64)}%0d%0aentrepot-call:%20x`, {}), 400);
  t.is(await statusOf('PATCH', location, { authorization: hostile['authorization']! }), 401);
  t.is((await at.fetch(location)).headers.get('range'), '0-2');
  const ended = await at.fetch(`${location}?digest=${digestOf('abc')}`, { method: 'PUT' });
  t.is(ended.status, 201);
});

test('with another secret, no byte is sent, and the upload ends', async (t) => {
  const start = await instancesOf(t);
  const a = await start();
  const b = await start({ server: { internal: await internalOf(t, 'another secret, with enough characters') } });
  const location = await new TestRepository(a, 'app').start();
  const at = new TestRepository(b, 'app');
  const answer = await at.fetch(location, { method: 'PATCH', body: bytes });
  t.deepEqual(await errorOf(answer), [404, 'BLOB_UPLOAD_UNKNOWN']);
  t.regex(b.lines.join(''), /refused the call with 401; check ENTREPOT_INTERNAL_SECRET_FILE/);
  t.regex(a.lines.join(''), /not signed with the secret of this instance/);
  t.deepEqual(await rowsOf(a, 'SELECT id FROM uploads WHERE lost = 0'), []);
  t.is((await at.blob(bytes)).digest, digestOf(bytes), 'the client starts the blob anew');
});

/** A listener that others take for the holder of every session of `folder`. */
async function impostor(
  t: ExecutionContext,
  server: TestServer,
  folder: string,
  onData: (socket: Socket, first: Buffer) => void,
) {
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined).once('data', (first) => onData(socket, first));
  });
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  const address = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
  const sql = 'UPDATE instances SET address = ? WHERE folder = ?';
  await databaseOf(server).transaction((tx) => tx.run(sql, [address, folder]));
}

/** Later, another call may come when the server has ended. */
function markSilent(server: TestServer, folder: string): void {
  const sql = 'UPDATE instances SET seen_at = 0 WHERE folder = ?';
  databaseOf(server)
    .transaction((tx) => tx.run(sql, [folder]))
    .catch(() => undefined);
}

test('a holder that is silent, disappears or sends a wrong answer ends the upload in time', async (t) => {
  const start = await instancesOf(t);
  const a = await start({}, { instanceTimes: { beat: 3_600_000 } });
  const { folder } = await rowOf(a);
  const b = await start({}, { instanceTimes: { beat: 100, lease: 500, answer: 300 } });
  const at = new TestRepository(b, 'app');
  const patched = async () => {
    const location = await new TestRepository(a, 'app').start();
    const answer = await within(at.fetch(location, { method: 'PATCH', body: bytes }));
    return errorOf(answer);
  };
  const unknown: [number, string] = [404, 'BLOB_UPLOAD_UNKNOWN'];
  await impostor(t, b, folder, () => undefined);
  t.deepEqual(await patched(), unknown, 'it never accepts the call');
  await impostor(t, b, folder, (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
  t.deepEqual(await patched(), unknown, 'it answers before it accepts');
  const accepted = 'HTTP/1.1 100 Continue\r\n\r\n';
  const lie = `HTTP/1.1 200 OK\r\nEntrepot-Answer: ${'0'.repeat(64)}\r\nContent-Length: 14\r\n\r\n{"result":4}  `;
  await impostor(t, b, folder, (socket) => socket.end(accepted + lie));
  t.deepEqual(await patched(), unknown, 'its answer is not signed');
  await impostor(t, b, folder, (socket) => socket.end(`${accepted}HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(100_000)}`));
  t.deepEqual(await patched(), unknown, 'its answer is too large');
  await impostor(t, b, folder, (socket) => {
    socket.write(accepted);
    markSilent(b, folder);
  });
  t.deepEqual(await patched(), unknown, 'it was not seen lately');
  t.is((await rowsOf(b, 'SELECT id FROM uploads WHERE lost = 1')).length, 5);
  await runJob(b, 'uploads');
  t.deepEqual(await rowsOf(b, 'SELECT id FROM uploads'), [], 'they do not count when no instance has their folder');
  t.deepEqual(await stagedAt(b), []);
});

test('a signed answer counts only for the call that it answers', async (t) => {
  const start = await instancesOf(t);
  const a = await start({}, { instanceTimes: { beat: 3_600_000 } });
  const { address, folder } = await rowOf(a);
  const b = await start();
  const at = new TestRepository(b, 'app');
  const patched = async (body: Buffer) => {
    const location = await new TestRepository(a, 'app').start();
    return within(at.fetch(location, { method: 'PATCH', body }));
  };
  const recorded: Buffer[] = [];
  const { hostname, port } = new URL(`http://${address}`);
  await impostor(t, b, folder, (socket, first) => {
    const holder = connect(Number(port), hostname);
    holder.on('error', () => socket.destroy()).on('data', (piece: Buffer) => recorded.push(piece));
    holder.write(first);
    socket.pipe(holder).pipe(socket);
  });
  const done = await patched(bytes);
  t.deepEqual(
    [done.status, done.headers.get('range')],
    [202, `0-${bytes.length - 1}`],
    'the holder answers through it',
  );
  const answer = Buffer.concat(recorded);
  t.regex(answer.toString(), /100 Continue[^]*entrepot-answer: [0-9a-f]{64}[^]*\{"result":300000\}/i);
  await impostor(t, b, folder, (socket) => socket.resume().end(answer));
  t.is((await patched(bytes)).status, 404, 'the same answer to another call');
});

test('an instance that could not write its heartbeats during an outage of the database keeps its uploads', async (t) => {
  const start = await instancesOf(t);
  const a = await start({}, { instanceTimes: { beat: 3_600_000 } });
  const { folder } = await rowOf(a);
  const b = await start({}, { instanceTimes: { beat: 100 } });
  const at = new TestRepository(b, 'app');
  const location = await new TestRepository(a, 'app').start();
  const silent = 'UPDATE instances SET seen_at = seen_at - 1000000 WHERE folder = ?';
  await databaseOf(a).transaction((tx) => tx.run(silent, [folder]));
  const first = await at.fetch(location, { method: 'PATCH', body: bytes });
  t.is(first.status, 202, 'a call that begins');

  const beat = 'UPDATE instances SET seen_at = ? WHERE folder = ?';
  await databaseOf(a).transaction((tx) => tx.run(beat, [Date.now(), folder]));
  const length = 2 * bytes.length;
  const request = openRequest(b, 'PATCH', location, {
    'content-length': bytes.length,
    'content-range': `${bytes.length}-${length - 1}`,
  });
  const answer = answerOf(request);
  request.write(bytes.subarray(0, 1000));
  await until(
    async () => (await new TestRepository(a, 'app').fetch(location)).headers.get('range') === `0-${bytes.length + 999}`,
  );
  await databaseOf(a).transaction((tx) => tx.run(silent, [folder]));
  let looks = 0;
  const database = databaseOf(b);
  const select = database.select.bind(database);
  database.select = (sql, ...rest) => {
    if (sql.includes('FROM instances WHERE folder')) looks += 1;
    return select(sql, ...rest);
  };
  await until(() => looks > 5);
  await databaseOf(a).transaction((tx) => tx.run(beat, [Date.now(), folder]));
  request.end(bytes.subarray(1000));
  t.is((await within(answer)).status, 202, 'a call in progress');
});

test('a holder that does not read holds the client back', async (t) => {
  const start = await instancesOf(t);
  const a = await start({}, { instanceTimes: { beat: 3_600_000 } });
  const { folder } = await rowOf(a);
  const b = await start({}, { instanceTimes: { beat: 100, lease: 500 } });
  const location = await new TestRepository(a, 'app').start();
  let sent = 0;
  await impostor(t, b, folder, (socket) => {
    socket.pause();
    socket.write('HTTP/1.1 100 Continue\r\n\r\n');
    // Until the client is held back, or has sent more than all buffers take.
    let [last, same] = [-1, 0];
    const timer = setInterval(() => {
      same = sent === last ? same + 1 : 0;
      last = sent;
      if (same < 5 && sent < 100) return;
      clearInterval(timer);
      markSilent(b, folder);
    }, 100);
  });
  const piece = Buffer.alloc(MiB);
  const endless = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      sent += 1;
      controller.enqueue(piece);
      if (sent === 500) controller.close();
    },
  });
  const answer = await within(
    new TestRepository(b, 'app').fetch(location, { method: 'PATCH', body: endless, duplex: 'half' }),
  );
  t.is(answer.status, 404);
  await until(() => b.lines.some((line) => line.includes('"PATCH"')));
  const { received } = JSON.parse(b.lines.find((line) => line.includes('"PATCH"'))!) as { received: number };
  t.true(received > 0 && received < 40 * MiB, String(received));
});

test('a start with a short secret or a used port stops with the name of the setting', async (t) => {
  const start = await instancesOf(t);
  const internal = await internalOf(t, 'too short');
  await t.throwsAsync(start({ server: { internal } }), { message: /^ENTREPOT_INTERNAL_SECRET_FILE: .* 32 characters/ });
  const used = (await rowOf(await start())).address.split(':')[1];
  const same = { ...(await internalOf(t)), port: used };
  await t.throwsAsync(start({ server: { internal: same } }), { message: /^ENTREPOT_INTERNAL_PORT: cannot listen: / });
  const foreign = { ...(await internalOf(t)), host: '192.0.2.1' };
  await t.throwsAsync(start({ server: { internal: foreign } }), {
    message: /^ENTREPOT_INTERNAL_HOST: cannot listen: /,
  });
});

test('a request that another one has taken over does not end the session', async (t) => {
  const start = await instancesOf(t);
  const [a, b] = [await start(), await start()];
  const location = await new TestRepository(a, 'app').start();
  const at = new TestRepository(b, 'app');
  const late = openRequest(b, 'PATCH', location, { 'content-length': bytes.length });
  const ended = answerOf(late);
  late.write(bytes.subarray(0, 1000));
  await until(async () => (await at.fetch(location)).headers.get('range') === '0-999');
  let status = 409;
  const rest = { method: 'PATCH', headers: { 'content-range': `1000-${bytes.length - 1}` } };
  await until(async () => {
    ({ status } = await at.fetch(location, { ...rest, body: bytes.subarray(1000) }));
    return status !== 409;
  });
  t.is(status, 202);
  t.is((await within(ended)).status, 409);
  t.is((await at.fetch(`${location}?digest=${digestOf(bytes)}`, { method: 'PUT' })).status, 201);
});
