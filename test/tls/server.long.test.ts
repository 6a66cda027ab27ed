import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectWithTls, type ConnectionOptions } from 'node:tls';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { packageForm } from '../support/feed.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import type { TestServer } from '../support/server.ts';
import { askTls, connectTls, startTlsServer, type TestPair } from '../support/tls.ts';
import { until, within } from '../support/until.ts';

// HTTPS on the public port, over real connections.

const portOf = (url: string) => Number(new URL(url).port);

/** Sends the first three bytes one by one, each after a turn of the event loop. */
class SplitWrites extends Duplex {
  readonly #socket: Socket;
  #left = 3;

  constructor(socket: Socket) {
    super();
    this.#socket = socket;
    socket.on('data', (chunk) => this.push(chunk)).on('end', () => this.push(null));
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#send(chunk, done);
  }

  #send(chunk: Buffer, done: () => void): void {
    if (this.#left === 0 || chunk.length === 0) {
      this.#socket.write(chunk, () => done());
      return;
    }
    this.#left -= 1;
    this.#socket.write(chunk.subarray(0, 1), () => setImmediate(() => this.#send(chunk.subarray(1), done)));
  }
}

/** What a raw sender reads until the end of its connection. */
async function sendRaw(url: string, ...pieces: (string | Buffer)[]): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: portOf(url) });
  for (const piece of pieces) socket.write(piece);
  return within(text(socket));
}

test('with TLS the server serves over HTTPS, and its URLs say so', async (t) => {
  const { server, pair } = await startTlsServer(t);
  t.regex(server.url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const { body, type } = packageForm(await makeNupkg({ id: 'Over.Tls', version: '1.0.0' }));
  const pushed = await askTls(server, pair, '/v3/push', { method: 'PUT', headers: { 'content-type': type }, body });
  t.is(pushed.status, 201, pushed.body);
  const index = JSON.parse((await askTls(server, pair, '/v3/index.json')).body) as { resources: { '@id': string }[] };
  for (const resource of index.resources) t.true(resource['@id'].startsWith(`${server.url}/`), resource['@id']);
  const upload = await askTls(server, pair, '/v2/team/app/blobs/uploads/', { method: 'POST' });
  t.is(upload.status, 202);
  t.is((await askTls(server, pair, '/readyz')).body, '{"status":"ready"}');
  const denied = await askTls(server, pair, '/v2/', { headers: { authorization: '' } });
  t.is(denied.status, 401);
});

test('a trusted proxy in front of TLS still says which scheme its client used', async (t) => {
  const { server, pair } = await startTlsServer(t, { server: { trustProxy: 'loopback' } });
  const base = async (headers: Record<string, string>) =>
    (JSON.parse((await askTls(server, pair, '/v3/index.json', { headers })).body) as { resources: { '@id': string }[] })
      .resources[0]!['@id'];
  t.regex(await base({}), /^https:/);
  t.regex(await base({ 'x-forwarded-proto': 'http' }), /^http:/);
});

/** Fails unless a server accepts only TLS 1.2 and 1.3 with forward secrecy, and only HTTP/1.1. */
async function checkStrict(t: ExecutionContext, server: TestServer, pair: TestPair): Promise<void> {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const socket = await connectTls(server.url, pair, { minVersion: version, maxVersion: version });
    t.is(socket.getProtocol(), version);
    socket.destroy();
  }
  const offered = await connectTls(server.url, pair, { ALPNProtocols: ['h2', 'http/1.1'] });
  t.is(offered.alpnProtocol, 'http/1.1');
  offered.destroy();
  const refused: ConnectionOptions[] = [
    { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' },
    { maxVersion: 'TLSv1.2', ciphers: 'AES128-SHA:AES256-GCM-SHA384' },
    { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA' },
  ];
  for (const options of refused) {
    await t.throwsAsync(connectTls(server.url, pair, options), undefined, JSON.stringify(options));
  }
}

test('only TLS 1.2 and 1.3 with forward secrecy are accepted, and only HTTP/1.1', async (t) => {
  const { server, pair } = await startTlsServer(t);
  await checkStrict(t, server, pair);
});

test('a changed certificate changes nothing else: versions, ciphers, protocols and renegotiation', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const serial = async () => {
    const socket = await connectTls(server.url, pair);
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const first = await serial();
  await pair.replace(pair.authority.issue('127.0.0.1', 'localhost'));
  await until(async () => (await serial()) !== first, 60_000);
  await checkStrict(t, server, pair);
  const socket = await connectTls(server.url, pair, { maxVersion: 'TLSv1.2' });
  const renegotiated = new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.renegotiate({}, (error) => (error ? reject(error) : resolve('renegotiated')));
  });
  await t.throwsAsync(within(renegotiated), { code: 'ERR_SSL_NO_RENEGOTIATION' });
  socket.destroy();
});

test('plain HTTP on the TLS port gets 400 with a sentence, is not redirected, and does not reach the service', async (t) => {
  const { server } = await startTlsServer(t);
  const secret = `Authorization: Bearer ${server.token}`;
  for (const pieces of [
    [`GET /v3/index.json HTTP/1.1\r\nHost: 127.0.0.1\r\n${secret}\r\n\r\n`],
    [`PUT /v3/push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n`, Buffer.alloc(4_000_000)],
    ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [Buffer.from([0])],
  ]) {
    const answer = await sendRaw(server.url, ...pieces);
    t.regex(answer, /^HTTP\/1\.1 400 Bad Request\r\n/);
    t.notRegex(answer, /location/i);
    t.regex(answer, /\r\n\r\nThis port accepts only HTTPS\. Use a URL that begins with https:\/\/\.\n$/);
  }
  t.false(server.lines.some((line) => line.includes('"msg":"request"')));
});

test('a handshake whose first bytes come one by one works', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const slow = connect({ host: '127.0.0.1', port: portOf(server.url), noDelay: true });
  const inner = new SplitWrites(slow);
  const socket = connectWithTls({ socket: inner, ca: pair.authority.ca, servername: 'localhost' });
  await within(once(socket, 'secureConnect'));
  socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  t.regex(await within(text(socket)), /^HTTP\/1\.1 200 /);
});

test('a connection without a byte, and one that stops in its handshake, are closed after the time for handshakes', async (t) => {
  t.timeout(60_000);
  const { server } = await startTlsServer(t);
  const startedAt = performance.now();
  const hello = Buffer.from('160301', 'hex');
  const ended = await Promise.all(
    [[], [hello.subarray(0, 1)], [hello], [Buffer.from('1603010200010001fc0303', 'hex')]].map(async (pieces) => {
      const socket = connect({ host: '127.0.0.1', port: portOf(server.url) });
      for (const piece of pieces) socket.write(piece);
      socket.on('error', () => undefined).resume();
      await within(once(socket, 'close'), 40_000);
      return performance.now() - startedAt;
    }),
  );
  for (const time of ended) t.true(time > 8000 && time < 30_000, `${time}`);
});

test('connections that break before or in the handshake end nothing else, and leave no connection', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const breaks: ((socket: Socket) => void)[] = [
    (socket) => socket.destroy(),
    (socket) => socket.resetAndDestroy(),
    (socket) => socket.end(),
    (socket) => socket.write(Buffer.from('1603', 'hex'), () => socket.resetAndDestroy()),
    (socket) => socket.write(Buffer.from('1603010200010001fc0303', 'hex'), () => socket.end()),
    (socket) => socket.end(Buffer.concat([Buffer.from('1603010200', 'hex'), Buffer.alloc(512, 7)])),
    (socket) => socket.write('G', () => socket.resetAndDestroy()),
  ];
  for (const broken of breaks) {
    const socket = connect({ host: '127.0.0.1', port: portOf(server.url) });
    socket.on('error', () => undefined).resume();
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    broken(socket);
    await within(closed);
  }
  t.is((await askTls(server, pair, '/livez')).status, 200);
  // A connection that the server kept would delay this.
  const startedAt = performance.now();
  await server.close(20_000);
  t.true(performance.now() - startedAt < 5000);
});

test('a refused upload with Connection: close reads its answer over TLS', async (t) => {
  const { server, pair } = await startTlsServer(t, { limits: { nupkg: '1MiB' } });
  const socket = await connectTls(server.url, pair);
  const size = 16 * 2 ** 20;
  socket.write(
    `PUT /v3/push HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${server.token}\r\n` +
      `Content-Type: application/octet-stream\r\nContent-Length: ${size}\r\nConnection: close\r\n\r\n`,
  );
  const piece = Buffer.alloc(64 * 1024);
  for (let sent = 0; sent < size; sent += piece.length) {
    if (!socket.write(piece)) await until(() => !socket.writableNeedDrain || socket.destroyed);
  }
  t.regex(await within(text(socket)), /^HTTP\/1\.1 413 [^]*\}\s*$/);
});

test('closing finishes a download over TLS, and closes connections without a request at once', async (t) => {
  const { server, pair } = await startTlsServer(t);
  const nupkg = await makeNupkg({ id: 'Large', version: '1.0.0', payloadBytes: 32 * 2 ** 20 });
  const { body, type } = packageForm(nupkg);
  await askTls(server, pair, '/v3/push', { method: 'PUT', headers: { 'content-type': type }, body });
  const silent = await connectTls(server.url, pair);
  const idle = await connectTls(server.url, pair);
  idle.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await within(once(idle, 'data'));
  const reader = await connectTls(server.url, pair);
  reader.write(
    `GET /v3/package/large/1.0.0/large.1.0.0.nupkg HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${server.token}\r\n\r\n`,
  );
  await within(once(reader, 'readable'));
  const closings = [silent, idle].map((socket) => within(once(socket.resume(), 'close')));
  const closed = server.close(20_000);
  await Promise.all(closings);
  const pieces: Buffer[] = [];
  for await (const piece of reader) pieces.push(piece as Buffer);
  t.true(Buffer.concat(pieces).subarray(-nupkg.length).equals(nupkg));
  await closed;
});

test('a slow body over TLS is not taken for a silent one, neither by its reader nor after a refusal', async (t) => {
  const { server, pair } = await startTlsServer(t, { limits: { uploadIdle: '3s', uploadRate: 0 } });
  const { body, type } = packageForm(await makeNupkg({ id: 'Slow', version: '1.0.0' }));
  const send = async (token: string) => {
    const socket = await connectTls(server.url, pair);
    socket.write(
      `PUT /v3/push HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n` +
        `Content-Type: ${type}\r\nContent-Length: ${body.length}\r\n\r\n`,
    );
    const answer = once(socket, 'data') as Promise<[Buffer]>;
    const step = Math.ceil(body.length / 12);
    for (let sent = 0; sent < body.length; sent += step) {
      socket.write(body.subarray(sent, sent + step));
      await sleep(400);
    }
    const [first] = await within(answer);
    const status = first.toString().slice(0, 12);
    // The connection works for another request.
    const next = once(socket, 'data') as Promise<[Buffer]>;
    socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    t.regex(String((await within(next))[0]), /^HTTP\/1\.1 200 /);
    socket.destroy();
    return status;
  };
  t.deepEqual(await Promise.all([send(server.token), send('ent_wrong')]), ['HTTP/1.1 201', 'HTTP/1.1 401']);
});
