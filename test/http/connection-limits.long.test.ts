import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { auditOf } from '../support/audit.ts';
import { flushEvents } from '../support/inside.ts';
import { digestOf, openRequest } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { connectTls, startTlsServer } from '../support/tls.ts';
import { until, within } from '../support/until.ts';

/** A connection from `localAddress`, and what arrives on it. */
async function dial(t: ExecutionContext, { url }: TestServer, localAddress = '127.0.0.1') {
  const socket: Socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), localAddress });
  t.teardown(() => socket.destroy());
  let text = '';
  socket.on('error', () => undefined).on('data', (piece: Buffer) => (text += piece.toString('latin1')));
  const closed = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  return { socket, closed, text: () => text };
}

const ask = 'GET /livez HTTP/1.1\r\nHost: a.test\r\n\r\n';

test('headers that arrive too slowly, or not at all, close their connection', async (t) => {
  const server = await startTestServer(t, { limits: { headerTimeout: '2s' } });
  const silent = await dial(t, server);
  const slow = await dial(t, server);
  slow.socket.write('GET /livez HTTP/1.1\r\nHost: a.test\r\n');
  const trickle = setInterval(() => slow.socket.write('X-More: 1\r\n'), 50);
  t.teardown(() => clearInterval(trickle));
  await within(Promise.all([silent.closed, slow.closed]));
  t.regex(slow.text(), /^HTTP\/1\.1 408 /);
  t.is((await server.fetch('/v3/index.json')).status, 200);
});

test('headers larger than the limit are 431', async (t) => {
  const server = await startTestServer(t, { limits: { headerSize: '4KiB' } });
  const status = async (bytes: number) =>
    (await server.fetch('/v3/index.json', { headers: { 'x-more': 'x'.repeat(bytes) } })).status;
  t.is(await status(3000), 200);
  t.is(await status(5000), 431);
  const usual = await startTestServer(t);
  t.is((await usual.fetch('/livez', { headers: { 'x-more': 'x'.repeat(15_000) } })).status, 200);
  t.is((await usual.fetch('/livez', { headers: { 'x-more': 'x'.repeat(17_000) } })).status, 431);
});

test('a body that trickles in is cut, for every kind of request, and one that is fast enough is not', async (t) => {
  const server = await startTestServer(t, { limits: { uploadIdle: '4s', uploadRate: '100' } });
  const body = randomBytes(4000);
  const trickling = (
    [
      ['PUT', '/v3/push', 'multipart/form-data; boundary=b'],
      ['POST', `/v2/team/app/blobs/uploads/?digest=${digestOf(body)}`, 'application/octet-stream'],
      ['PUT', '/v2/team/app/manifests/v1', 'application/vnd.oci.image.manifest.v1+json'],
      ['POST', '/v1/tokens', 'application/json'],
      ['POST', '/token', 'application/x-www-form-urlencoded'],
    ] as const
  ).map(([method, path, type]) => {
    const sending = openRequest(server, method, path, { 'content-type': type, 'content-length': 4000 });
    const timer = setInterval(() => sending.write('x'), 20);
    const closed = new Promise((resolve) => sending.once('close', resolve));
    t.teardown(() => {
      clearInterval(timer);
      sending.destroy();
    });
    return closed.then(() => clearInterval(timer));
  });
  const quick = openRequest(server, 'POST', `/v2/team/app/blobs/uploads/?digest=${digestOf(body)}`, {
    'content-length': 4000,
  });
  const answered = once(quick, 'response');
  for (let start = 0; start < body.length; start += 100) {
    quick.write(body.subarray(start, start + 100));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const [response] = (await within(answered)) as [{ statusCode: number }];
  t.is(response.statusCode, 201);
  await within(Promise.all(trickling));
});

test('the connections of an address are limited, and other addresses connect', async (t) => {
  const server = await startTestServer(t, { limits: { connectionsPerAddress: 3 } });
  const open = [];
  for (let each = 0; each < 3; each += 1) open.push(await dial(t, server));
  for (const each of open) {
    each.socket.write(ask);
    await until(() => each.text().startsWith('HTTP/1.1 200'));
  }
  const fourth = await dial(t, server);
  await within(fourth.closed);
  t.is(fourth.text(), '');
  const other = await dial(t, server, '127.0.0.2');
  other.socket.write(ask);
  await until(() => other.text().startsWith('HTTP/1.1 200'));

  open[0]!.socket.destroy();
  await until(async () => {
    const next = await dial(t, server);
    next.socket.write(ask);
    await until(() => next.text() !== '' || next.socket.closed);
    return next.text().startsWith('HTTP/1.1 200');
  });
  for (const each of open) each.socket.destroy();
  await until(async () => (await server.fetch('/metrics').catch(() => undefined))?.ok ?? false);
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /^entrepot_limited_requests_total\{limit="connections",outcome="refused"\} [1-9]/m);
  await flushEvents(server, true);
  const [event] = await auditOf(server, 'type=limit.reached');
  t.like(event, { account: null, address: '127.0.0.1', details: { limit: 'connections', allowed: 3 } });
});

test('with TLS a connection counts once', async (t) => {
  const { server, pair } = await startTlsServer(t, { limits: { connectionsPerAddress: 2 } });
  for (let each = 0; each < 2; each += 1) {
    const socket = await connectTls(server.url, pair);
    t.teardown(() => socket.destroy());
  }
  await t.throwsAsync(within(connectTls(server.url, pair)));
});

test('connections of a trusted proxy are not limited', async (t) => {
  const server = await startTestServer(t, {
    server: { trustProxy: '127.0.0.1' },
    limits: { connectionsPerAddress: 1 },
  });
  for (let each = 0; each < 3; each += 1) {
    const { socket, text } = await dial(t, server);
    socket.write(ask);
    await until(() => text().startsWith('HTTP/1.1 200'));
  }
  const client = await dial(t, server, '127.0.0.2');
  client.socket.write(ask);
  await until(() => client.text().startsWith('HTTP/1.1 200'));
  const further = await dial(t, server, '127.0.0.2');
  await within(further.closed);
  t.is(further.text(), '');
});

test('with the default settings 600 connections of one address are served at the same time', async (t) => {
  const server = await startTestServer(t);
  const headers = { authorization: `Bearer ${server.token}` };
  const answers = await Promise.all(
    Array.from({ length: 600 }, async () => {
      const [response] = await once(
        request(`${server.url}/v3/index.json`, { agent: false, headers }).end(),
        'response',
      );
      const { statusCode } = response.resume() as { statusCode: number };
      return statusCode;
    }),
  );
  t.deepEqual([...new Set(answers)], [200]);
});
