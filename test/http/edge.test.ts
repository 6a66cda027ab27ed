import { once } from 'node:events';
import { Agent, createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import test from 'ava';
import { DomainError } from '../../src/runtime/errors.ts';
import { drain } from '../../src/http/drain.ts';
import { answerOf, openRequest } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { within } from '../support/until.ts';
import { containerRegistryOf, failAccounts, failTokens, packageFeedOf, tokenOf } from '../support/inside.ts';

// Rules for all three interfaces, which share one edge.

/** A request with a body for each interface, and for a path outside of them. */
const sending = [
  ['PUT', '/v3/push'],
  ['PUT', '/v3/nowhere'],
  ['PUT', '/v3/index.json'],
  ['POST', '/v2/app/blobs/uploads/'],
  ['PATCH', '/v2/nowhere'],
  ['POST', '/v1/tokens'],
  ['PUT', '/v1/tokens'],
  ['PUT', '/token'],
  ['PUT', '/nowhere'],
] as const;

/** Resolves when the connection ends or is reset. */
function over(socket: Socket): Promise<void> {
  socket.on('error', () => undefined);
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

const defect = () => Promise.reject(new Error('a secret of this core'));

test('after a refusal, a sender that stops sending its body is disconnected, on every interface', async (t) => {
  const server = await startTestServer(t, { limits: { uploadIdle: '200ms' } });
  const { hostname, port } = new URL(server.url);
  await Promise.all(
    sending.map(async ([method, path]) => {
      const socket = connect(Number(port), hostname);
      t.teardown(() => socket.destroy());
      const closed = over(socket);
      let answer = '';
      socket.on('data', (piece: Buffer) => (answer += piece.toString()));
      socket.write(`${method} ${path} HTTP/1.1\r\nHost: ${hostname}\r\nContent-Length: 1000000\r\n\r\nbegun`);
      // Long before the 30 seconds that reading the rest of a body may take.
      await within(closed, 20_000);
      t.regex(answer, /^HTTP\/1\.1 4\d\d /, `${method} ${path}`);
    }),
  );
});

test('after a refusal, the rest of the body is read, and the connection serves the next request', async (t) => {
  const server = await startTestServer(t);
  for (const [method, path] of sending) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.teardown(() => agent.destroy());
    const send = async (how: string, where: string, token: string, body?: Buffer) => {
      const headers = { authorization: `Bearer ${token}`, ...(body && { 'content-length': body.length }) };
      const asked = httpRequest(server.url + where, { method: how, agent, headers });
      asked.end(body);
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      response.resume();
      await once(response, 'end');
      return { status: response.statusCode!, reused: asked.reusedSocket };
    };
    const refused = await send(method, path, 'wrong', Buffer.alloc(3_000_000));
    t.true(refused.status >= 400 && refused.status < 500, path);
    t.deepEqual(await send('GET', '/livez', ''), { status: 200, reused: true }, `${method} ${path}`);
  }
});

test('after a body over the limit of the management API, the connection stays open', async (t) => {
  const server = await startTestServer(t);
  const response = await server.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: `{"name":"${'x'.repeat(70_000)}"}`,
  });
  t.is(response.status, 413);
  t.not(response.headers.get('connection'), 'close');
  const chunked = openRequest(server, 'POST', '/v1/tokens', { 'content-type': 'application/json' });
  const answered = answerOf(chunked);
  chunked.write('{"name":"');
  chunked.end(`${'x'.repeat(70_000)}"}`);
  t.is((await within(answered)).status, 413, 'also without an announced length');
});

test('reading a body after the answer has a limit in bytes and in time', async (t) => {
  for (const limits of [
    { idle: 60_000, total: 400, bytes: 2 ** 30 },
    { idle: 400, total: 60_000, bytes: 100_000 },
  ]) {
    const server = createServer((request, response) => {
      response.on('close', () => drain(request, limits));
      response.end('no');
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.teardown(() => server.close());
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const closed = over(socket);
    socket.write(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${2 ** 40}\r\n\r\n`);
    // The sender is never idle for long.
    const dripping = setInterval(() => socket.write(Buffer.alloc(20_000)), 10);
    socket.resume();
    try {
      await within(closed, 20_000);
    } finally {
      clearInterval(dripping);
      socket.destroy();
    }
  }
  t.pass();
});

test('the management API sends Retry-After', async (t) => {
  const server = await startTestServer(t);
  failAccounts(server, () => Promise.reject(new DomainError('TooManyRequests', 'Not now.', { retryAfter: 7 })));
  const response = await server.fetch('/v1/account');
  t.is(response.status, 429);
  t.is(response.headers.get('retry-after'), '7');
  t.like(await response.json(), { code: 'TooManyRequests', retryAfter: 7 });
});

test('a bug is 500 in the format of each interface, without details, and is logged with its request ID', async (t) => {
  const server = await startTestServer(t);
  failAccounts(server, defect);
  packageFeedOf(server).source.openFile = defect;
  containerRegistryOf(server).source.listTags = defect;
  const expected: Record<string, [string, object]> = {
    '/v1/account': ['application/problem+json', { code: 'Internal', status: 500 }],
    '/v3/package/some/1.0.0/some.1.0.0.nupkg': ['application/problem+json', { code: 'Internal', status: 500 }],
    '/v2/app/tags/list': [
      'application/json',
      { errors: [{ code: 'UNKNOWN', message: 'An error occurred in this server. Its log has the details.' }] },
    ],
  };
  for (const [path, [type, body]] of Object.entries(expected)) {
    const response = await server.fetch(path);
    t.is(response.status, 500, path);
    t.is(response.headers.get('content-type'), type, path);
    const text = await response.text();
    t.false(text.includes('secret'), path);
    t.like(JSON.parse(text), body, path);
    const id = response.headers.get('x-request-id')!;
    const line = server.lines.find((each) => each.includes(id) && each.includes('"err"'));
    t.true(line?.includes('a secret of this core'), path);
  }
});

test('a bug is 500 where tokens are sent to sign in, too', async (t) => {
  const server = await startTestServer(t);
  failTokens(server, defect);
  const body = new URLSearchParams({ token: server.token });
  for (const [path, init, type] of [
    ['/token', {}, 'application/json'],
    ['/console/sign-in', { method: 'POST', body }, 'text/html; charset=utf-8'],
  ] as const) {
    const response = await server.fetch(path, init);
    t.deepEqual([response.status, response.headers.get('content-type')], [500, type], path);
    t.false((await response.text()).includes('secret'), path);
    const id = response.headers.get('x-request-id')!;
    t.true(
      server.lines.some((line) => line.includes(id) && line.includes('a secret of this core')),
      path,
    );
  }
});

test('an error that an interface has no code for is a bug, and its message is not sent', async (t) => {
  const server = await startTestServer(t);
  packageFeedOf(server).source.openFile = () => Promise.reject(new DomainError('TagInvalid', 'a secret of this core'));
  const response = await server.fetch('/v3/package/some/1.0.0/some.1.0.0.nupkg');
  t.deepEqual([response.status, response.statusText], [500, 'Internal Server Error']);
  const text = await response.text();
  t.like(JSON.parse(text), { code: 'Internal', status: 500 });
  t.false(text.includes('secret'));
  t.true(server.lines.some((line) => line.includes('a request failed') && line.includes('a secret of this core')));
});

test('cookies are ignored', async (t) => {
  for (const anonymousRead of [false, true]) {
    const server = await startTestServer(t, { anonymousRead });
    const value = await tokenOf(server, ['read']);
    const cookies = [server.token, 'token', 'session', 'authorization', 'ent', 'api']
      .map((name) => `${name}=${server.token}; ${name}=Bearer ${server.token}`)
      .join('; ');
    for (const path of [
      '/v1/packages',
      '/v1/tokens',
      '/v1/account',
      '/v2/',
      '/v2/_catalog',
      '/v3/index.json',
      '/token',
    ]) {
      for (const token of [null, value, 'wrong']) {
        const told = async (headers: Record<string, string>) => {
          const response = await server.fetch(path, { token, headers });
          const { authorization = '' } = headers;
          t.is(response.headers.get('set-cookie'), null);
          const changing = /"(?:issued_at|(?:storage_)?as_of|last_used_at|last_client_at)":(?:"[^"]*"|null)/g;
          return [response.status, authorization, (await response.text()).replace(changing, '')];
        };
        t.deepEqual(await told({ cookie: cookies }), await told({}), `${path} ${token}`);
      }
    }
    const made = await server.fetch('/v1/tokens', {
      method: 'POST',
      token: null,
      headers: { cookie: cookies, 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'x', scopes: ['read'] }),
    });
    t.is(made.status, 401);
  }
});
