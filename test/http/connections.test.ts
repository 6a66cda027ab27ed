import { once } from 'node:events';
import { connect } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { auditOf } from '../support/audit.ts';
import { flushEvents } from '../support/inside.ts';
import { openRequest } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

// What connections may use. The long test of them has more kinds of bodies, and TLS.

/** A connection from `localAddress`, and what arrives on it. */
async function dial(t: ExecutionContext, { url }: TestServer, localAddress = '127.0.0.1') {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), localAddress });
  t.teardown(() => socket.destroy());
  let text = '';
  socket.on('error', () => undefined).on('data', (piece: Buffer) => (text += piece.toString('latin1')));
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  const serves = async () => {
    socket.write('GET /livez HTTP/1.1\r\nHost: a.test\r\n\r\n');
    await until(() => text !== '' || socket.closed);
    return text.startsWith('HTTP/1.1 200');
  };
  return { socket, closed, serves, text: () => text };
}

test('the connections of an address are limited, not those of others and of a trusted proxy, and headers have a size', async (t) => {
  const server = await startTestServer(t, {
    server: { trustProxy: '127.0.0.3' },
    limits: { connectionsPerAddress: 2, headerSize: '4KiB', nupkg: '1MiB' },
  });
  const open = [await dial(t, server, '127.0.0.2'), await dial(t, server, '127.0.0.2')];
  for (const each of open) t.true(await each.serves());
  const further = await dial(t, server, '127.0.0.2');
  await within(further.closed);
  t.is(further.text(), '');
  for (let each = 0; each < 3; each += 1) t.true(await (await dial(t, server, '127.0.0.3')).serves(), 'of a proxy');
  t.true(await (await dial(t, server, '127.0.0.4')).serves(), 'another address');
  open[0]!.socket.destroy();
  await until(async () => (await dial(t, server, '127.0.0.2')).serves());

  const ask = async (bytes: number) =>
    (await server.fetch('/v3/index.json', { headers: { 'x-more': 'x'.repeat(bytes), connection: 'close' } })).status;
  t.deepEqual([await ask(3000), await ask(5000)], [200, 431]);
  // A simple client writes its whole body before it reads.
  const simple = await dial(t, server, '127.0.0.5');
  simple.socket.pause();
  const size = 8 * 2 ** 20;
  simple.socket.write(
    `PUT /v3/push HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer ${server.token}\r\n` +
      `Content-Type: application/octet-stream\r\nContent-Length: ${size}\r\nConnection: close\r\n\r\n`,
  );
  const piece = Buffer.alloc(64 * 1024);
  for (let sent = 0; sent < size && !simple.socket.errored; sent += piece.length) {
    if (simple.socket.write(piece)) continue;
    await until(() => !simple.socket.writableNeedDrain || simple.socket.errored !== null);
  }
  simple.socket.resume();
  await within(simple.closed);
  t.is(simple.socket.errored, null);
  t.regex(simple.text(), /^HTTP\/1\.1 413 [^]*\}\s*$/, 'the whole answer');
  const metrics = await server.fetch('/metrics', { headers: { connection: 'close' } });
  t.regex(await metrics.text(), /^entrepot_limited_requests_total\{limit="connections",outcome="refused"\} [1-9]/m);
  await flushEvents(server, true);
  const [event] = await auditOf(server, 'type=limit.reached');
  t.like(event, { account: null, address: '127.0.0.2', details: { limit: 'connections', allowed: 2 } });
});

/** Whether a log line reports an answer that its client did not receive completely. */
function isCut(line: string): boolean {
  const { msg, path, complete } = JSON.parse(line) as { msg: string; path: string; complete: boolean };
  return msg === 'request' && path === '/v1/openapi.json' && !complete;
}

test('a connection is closed whose headers or whose body arrive too slowly, or whose client reads no answer', async (t) => {
  const server = await startTestServer(t, {
    limits: { headerTimeout: '1s', uploadIdle: '400ms', uploadRate: '1000' },
  });
  const silent = await dial(t, server);
  const slow = await dial(t, server);
  const deaf = await dial(t, server);
  deaf.socket.pause();
  const asked = `GET /v1/openapi.json HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer ${server.token}\r\n\r\n`;
  deaf.socket.write(asked.repeat(16));
  slow.socket.write('GET /livez HTTP/1.1\r\nHost: a.test\r\n');
  const upload = `/v2/team/app/blobs/uploads/?digest=sha256:${'0'.repeat(64)}`;
  const sending = openRequest(server, 'POST', upload, { 'content-length': 9000 });
  sending.flushHeaders();
  const cut = new Promise((resolve) => sending.once('close', resolve));
  const trickle = setInterval(() => {
    slow.socket.write('X-More: 1\r\n');
    sending.write('x');
  }, 20);
  try {
    await within(Promise.all([silent.closed, slow.closed, cut]));
    await until(() => server.lines.some(isCut));
  } finally {
    clearInterval(trickle);
    sending.destroy();
  }
  t.regex(slow.text(), /^HTTP\/1\.1 408 /);
});
