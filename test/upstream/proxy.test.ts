import test from 'ava';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { createAuthority } from '../support/builders/certificates.ts';
import { answer, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openUpstream } from '../support/mirror.ts';
import { until } from '../support/until.ts';

interface Proxy {
  url: string;
  /** Request lines: `GET http://…` or `CONNECT host:port`. */
  asked: string[];
  headers: IncomingMessage['headers'][];
}

/** Forwards to `port` on loopback for any requested name; `silent` accepts requests and does not answer. */
async function startProxy(t: ExecutionContext, port: string, silent = false): Promise<Proxy> {
  const asked: string[] = [];
  const headers: IncomingMessage['headers'][] = [];
  const sockets = new Set<Socket>();
  const server = createServer(async (request, response) => {
    asked.push(`${request.method} ${request.url}`);
    headers.push(request.headers);
    if (silent) return;
    const url = new URL(request.url!);
    const found = await fetch(`http://127.0.0.1:${port}${url.pathname}`, { redirect: 'manual' });
    response.writeHead(found.status).end(Buffer.from(await found.arrayBuffer()));
  });
  server.on('connection', (socket) => sockets.add(socket));
  server.on('connect', (request: IncomingMessage, socket: Socket) => {
    asked.push(`CONNECT ${request.url}`);
    headers.push(request.headers);
    socket.on('error', () => undefined);
    if (silent) return;
    const target = connect(Number(port), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(target).pipe(socket);
    });
    target.on('error', () => socket.destroy());
    socket.once('close', () => target.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, headers };
}

const authority = createAuthority();
const read = async (upstream: Awaited<ReturnType<typeof openUpstream>>['upstream'], url: URL) =>
  (await (await upstream.send({ subject: 'thing', url })).body.toArray()).join('');

test('HTTP_PROXY is used for http, with its credentials; it may be at a private address', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/thing', answer(200, {}, 'content'));
  const proxy = await startProxy(t, server.url.port);
  const base = new URL('http://feed.test/');
  const { upstream } = await openUpstream(t, base, {
    settings: { allowPrivateNetwork: false },
    proxy: { HTTP_PROXY: proxy.url.replace('//', '//proxy-user:proxy-secret@') },
  });
  t.is(await read(upstream, new URL('/thing', base)), 'content');
  t.deepEqual(proxy.asked, ['GET http://feed.test/thing']);
  t.is(proxy.headers[0]!['proxy-authorization'], `Basic ${Buffer.from('proxy-user:proxy-secret').toString('base64')}`);
});

test('HTTPS_PROXY opens a tunnel; the upstream’s certificate is checked with the configured authority', async (t) => {
  const server = await startFaultyUpstream(t, { tls: authority.issue('feed.test') });
  server.on('/thing', answer(200, {}, 'content'));
  const proxy = await startProxy(t, server.url.port);
  const base = new URL('https://feed.test/');
  const setup = { proxy: { HTTPS_PROXY: proxy.url }, auth: { username: 'me', password: 'secret' } };
  const settings = { allowPrivateNetwork: false, kind: 'nuget' };
  const trusting = await openUpstream(t, base, {
    ...setup,
    settings,
    ca: authority.ca,
  });
  t.is(await read(trusting.upstream, new URL('/thing', base)), 'content');
  t.deepEqual(proxy.asked, ['CONNECT feed.test:443']);
  t.is(proxy.headers[0]!.authorization, undefined);
  t.truthy(server.asked[0]!.headers.authorization);

  const distrusting = await openUpstream(t, base, { ...setup, settings });
  await t.throwsAsync(read(distrusting.upstream, new URL('/thing', base)), { name: 'UpstreamUnavailable' });
  t.is(server.asked.length, 1);
});

test('a certificate for another name is refused, even from a trusted authority', async (t) => {
  const server = await startFaultyUpstream(t, { tls: authority.issue('other.test') });
  const { upstream } = await openUpstream(t, server.url, { ca: authority.ca });
  await t.throwsAsync(read(upstream, new URL('/thing', server.url)), { message: /ERR_TLS_CERT_ALTNAME_INVALID/ });
  t.is(server.asked.length, 0);
});

test('hosts in NO_PROXY are connected to directly', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/thing', answer(200, {}, 'content'));
  const proxy = await startProxy(t, server.url.port);
  const { upstream } = await openUpstream(t, server.url, {
    proxy: { HTTP_PROXY: proxy.url, NO_PROXY: 'elsewhere.test,127.0.0.1' },
  });
  t.is(await read(upstream, new URL('/thing', server.url)), 'content');
  t.deepEqual(proxy.asked, []);
});

test('a request for a refused address is not sent to a proxy either', async (t) => {
  const server = await startFaultyUpstream(t);
  const proxy = await startProxy(t, server.url.port);
  const { upstream } = await openUpstream(t, new URL('http://feed.test/'), {
    settings: { allowPrivateNetwork: false },
    proxy: { HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url },
  });
  for (const url of ['http://169.254.169.254/', 'https://169.254.169.254/', 'http://127.0.0.1/', 'https://[::1]/']) {
    await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL(url) }), { message: /refused/ });
  }
  t.deepEqual(proxy.asked, []);
});

for (const scheme of ['http', 'https']) {
  test(`a proxy that does not answer for ${scheme} is a failure after the time-out`, async (t) => {
    const proxy = await startProxy(t, '9', true);
    const base = new URL(`${scheme}://feed.test/`);
    const { upstream } = await openUpstream(t, base, {
      settings: { timeout: '15s' },
      proxy: { HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url },
    });
    const started = performance.now();
    await t.throwsAsync(read(upstream, new URL('/thing', base)));
    t.true(performance.now() - started < 60_000);
    await until(() => proxy.asked.length > 0);
    t.is(proxy.asked.length, 1);
  });
}

test('without a connection to the proxy the request fails, and the proxy is not bypassed', async (t) => {
  const server = await startFaultyUpstream(t);
  const gone = await startFaultyUpstream(t);
  await gone.stop();
  const { upstream } = await openUpstream(t, server.url, { proxy: { HTTP_PROXY: gone.url.href } });
  await t.throwsAsync(read(upstream, new URL('/thing', server.url)), { name: 'UpstreamUnavailable' });
  t.is(server.asked.length, 0);
});

for (const proxied of [false, true]) {
  test(`a long body may take longer than the time-out of an answer${proxied ? ', through a proxy too' : ''}`, async (t) => {
    const server = await startFaultyUpstream(t, { tls: authority.issue('feed.test', '127.0.0.1') });
    server.on('/thing', (_request, response) => {
      response.writeHead(200);
      let left = 8;
      const timer = setInterval(() => {
        if (left > 0) response.write('x'.repeat(400));
        else response.end(() => clearInterval(timer));
        left -= 1;
      }, 1500);
    });
    const proxy = await startProxy(t, server.url.port);
    const base = proxied ? new URL('https://feed.test/') : server.url;
    const { upstream } = await openUpstream(t, base, {
      settings: { timeout: '10s' },
      ca: authority.ca,
      proxy: proxied ? { HTTPS_PROXY: proxy.url } : {},
    });
    t.is(await read(upstream, new URL('/thing', base)), 'x'.repeat(3200));
  });
}

test('an https upstream stays https: http redirects, links and realms are refused', async (t) => {
  const plain = await startFaultyUpstream(t);
  plain.on('/thing', serve(Buffer.from('content')));
  const server = await startFaultyUpstream(t, { tls: authority.issue('127.0.0.1') });
  const inClear = new URL('/thing', plain.url);
  server.on('/moved', answer(302, { location: inClear.href }));
  server.on('/token', answer(401, { 'www-authenticate': `Bearer realm="${inClear.href}",service="x"` }));
  const { upstream } = await openUpstream(t, server.url, { ca: authority.ca });
  const send = (url: URL) => upstream.send({ subject: 'thing', url, scope: 'x' });
  await t.throwsAsync(send(new URL('/moved', server.url)), { message: /from https to http/ });
  await t.throwsAsync(send(inClear), { message: /from https to http/ });
  await t.throwsAsync(send(new URL('/token', server.url)), { message: /from https to http/ });
  t.is(plain.asked.length, 0);
});
