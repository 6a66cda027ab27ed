import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import test from 'ava';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

// In a process of its own: it measures the process.

// Connections that the server closes after an answer, seen from a raw socket.

/** A sender that writes the whole body before it reads, as a simple client does. */
async function pushTooMuch(server: TestServer, { size, path, type }: { size: number; path: string; type: string }) {
  const { port } = new URL(server.url);
  const socket = connect(Number(port), '127.0.0.1');
  socket.pause();
  socket.on('error', () => undefined);
  socket.write(
    `PUT ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${server.token}\r\n` +
      `Content-Type: ${type}\r\nContent-Length: ${size}\r\nConnection: close\r\n\r\n`,
  );
  const piece = Buffer.alloc(64 * 1024);
  for (let sent = 0; sent < size && !socket.errored; sent += piece.length) {
    if (!socket.write(piece)) await until(() => !socket.writableNeedDrain || socket.errored !== null);
  }
  const answer = socket.errored ? '' : await within(readAll(socket));
  return { answer, failure: socket.errored };
}

/** Resources of this process that keep it running. */
function count(kind: 'TCPSocketWrap' | 'Timeout'): number {
  return process.getActiveResourcesInfo().filter((each) => each === kind).length;
}

async function readAll(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (piece: Buffer) => (text += piece.toString()));
  socket.resume();
  await new Promise((resolve) => socket.once('end', resolve).once('close', resolve));
  return text;
}

for (const [what, path, type] of [
  ['package', '/v3/push', 'application/octet-stream'],
  ['manifest', '/v2/team/app/manifests/1', 'application/vnd.oci.image.manifest.v1+json'],
] as const) {
  test.serial(`the sender of a ${what} that is too large, with Connection: close, reads the answer`, async (t) => {
    const server = await startTestServer(t, { limits: { nupkg: '1MiB', manifest: '1MiB' } });
    const { answer, failure } = await pushTooMuch(server, { size: 32 * 2 ** 20, path, type });
    t.is(failure, null);
    t.regex(answer, /^HTTP\/1\.1 413 /);
    t.regex(answer, /\r\nConnection: close\r\n/i);
    t.true(answer.length > 200 && /\}\s*$/.test(answer), 'the whole body of the answer');
  });
}

test.serial('a sender that never ends a refused body is disconnected, although it keeps the connection', async (t) => {
  const server = await startTestServer(t, { limits: { nupkg: '1MiB', uploadIdle: '2s' } });
  const before = count('TCPSocketWrap');
  const { port } = new URL(server.url);
  const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
  socket.on('error', () => undefined);
  socket.write(
    `PUT /v3/push HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${server.token}\r\n` +
      'Content-Length: 100000000\r\nConnection: close\r\n\r\nsome bytes',
  );
  t.regex(await within(readAll(socket)), /^HTTP\/1\.1 413 /);
  // After its answer the server has closed its side only. It closes the connection when the sender is silent.
  t.is(count('TCPSocketWrap'), before + 2);
  await until(() => count('TCPSocketWrap') === before + 1);
  socket.destroy();
});

test.serial('an unused connection does not delay the end', async (t) => {
  const server = await startTestServer(t);
  const { port } = new URL(server.url);
  const sockets = Array.from({ length: 3 }, () => connect(Number(port), '127.0.0.1').on('error', () => undefined));
  await Promise.all(sockets.map((each) => once(each, 'connect')));
  // The answer to a later connection: the server has accepted the ones before.
  await (await server.fetch('/livez')).text();
  await within(server.close(60_000));
  t.pass();
});

test.serial('a failed form push leaves no timer', async (t) => {
  const server = await startTestServer(t);
  await (await server.fetch('/livez')).text();
  const before = count('Timeout');
  for (let pushes = 0; pushes < 20; pushes += 1) {
    const form = new FormData();
    // Refused at the second file, when the whole body has arrived and its end is not read.
    for (const name of ['a.nupkg', 'b.nupkg']) form.append('package', new Blob([new Uint8Array(20_000)]), name);
    const answer = await server.fetch('/v3/push', { method: 'PUT', body: form });
    t.is(answer.status, 400);
    await answer.text();
  }
  await until(() => count('Timeout') < before + 5);
});

test.serial('after a refused body whose sender has left, no timer stays', async (t) => {
  const server = await startTestServer(t, { limits: { nupkg: '1MiB' } });
  const { port } = new URL(server.url);
  await (await server.fetch('/livez')).text();
  const before = count('Timeout');
  const sockets = Array.from({ length: 20 }, () => {
    const socket = connect(Number(port), '127.0.0.1');
    socket.on('error', () => undefined).resume();
    socket.write(
      `PUT /v3/push HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${server.token}\r\n` +
        'Content-Length: 100000000\r\nConnection: close\r\n\r\nsome bytes',
    );
    return socket;
  });
  // As nginx does: it closes after the answer.
  await Promise.all(
    sockets.map(async (socket) => {
      await once(socket, 'data');
      socket.destroy();
    }),
  );
  await until(() => count('Timeout') < before + 5);
  t.pass();
});
