import { request, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import test from 'ava';
import { packageForm, TestFeed } from '../support/feed.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { raw } from '../support/raw.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

async function send(
  { url }: Pick<TestServer, 'url'>,
  [method, path, type = 'application/x-www-form-urlencoded']: readonly [string, string, string?],
  headers: Record<string, string>,
  body: Buffer | string = '',
): Promise<{ status: number; body: string }> {
  // Node sends the body of a DELETE without its length.
  const own = { 'content-type': type, 'content-length': Buffer.byteLength(body) };
  const asked = request(url + path, { method, agent: false, headers: { ...own, ...headers } });
  const [response] = (await once(asked.end(body), 'response')) as [IncomingMessage];
  return { status: response.statusCode!, body: await text(response) };
}

const otherSites: readonly Record<string, string>[] = [
  { 'sec-fetch-site': 'cross-site' },
  { 'sec-fetch-site': 'same-site' },
  { origin: 'https://evil.test' },
  { origin: 'null' },
  { origin: 'file://' },
];

test('a page of another site changes nothing with the Basic credentials that a browser remembers', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Ours', version: '1.0.0' });
  const authorization = `Basic ${Buffer.from(`api:${server.token}`).toString('base64')}`;
  const { body, type } = packageForm(await makeNupkg({ id: 'Theirs', version: '1.0.0' }));
  const changes = [
    ['PUT', '/v3/push', type],
    ['POST', '/v3/push/Ours/1.0.0'],
    ['DELETE', '/v3/push/Ours/1.0.0'],
    ['POST', '/v2/team/app/blobs/uploads/'],
    ['PUT', '/v2/team/app/manifests/v1'],
    ['POST', '/v1/jobs/gc/run'],
    ['POST', '/v1/tokens', 'application/json'],
    ['POST', '/v1/packages', type],
    ['POST', '/token'],
    ['POST', '/console/sign-out'],
    ['POST', '/nothing/here'],
  ] as const;
  for (const change of changes) {
    for (const headers of otherSites) {
      const answer = await send(server, change, { authorization, ...headers }, body);
      t.is(answer.status, 403, `${change.join(' ')} ${JSON.stringify(headers)}`);
      t.regex(answer.body, /A page of another site/);
    }
  }
  t.is((await server.fetch('/v3/package/theirs/index.json')).status, 404);
  const own = { authorization, 'sec-fetch-site': 'same-origin', origin: server.url };
  t.is((await send(server, ['PUT', '/v3/push', type], own, body)).status, 201);
});

test('reading, and requests of this server’s pages and of other programs, are not refused', async (t) => {
  const server = await startTestServer(t);
  const authorization = `Bearer ${server.token}`;
  for (const headers of otherSites) {
    t.is((await raw(server, '/v3/index.json', { headers })).status, 200);
    t.is((await raw(server, '/v2/', { method: 'HEAD', headers })).status, 200);
  }
  const upload = ['POST', '/v2/team/app/blobs/uploads/'] as const;
  const { host } = new URL(server.url);
  const accepted: Record<string, string>[] = [
    {},
    { 'sec-fetch-site': 'none' },
    { 'sec-fetch-site': 'same-origin', origin: 'https://hub.test' },
    { origin: server.url },
    { origin: `https://${host}` },
    { host: 'hub.test', origin: 'https://hub.test' },
    { host: 'hub.test:443', origin: 'https://hub.test' },
    { host: 'HUB.test:8080', origin: 'http://hub.test:8080' },
  ];
  for (const headers of accepted)
    t.is((await send(server, upload, { authorization, ...headers })).status, 202, JSON.stringify(headers));
  const refused: Record<string, string>[] = [
    { host: 'hub.test', origin: 'http://hub.test:8080' },
    { host: 'hub.test:8443', origin: 'https://hub.test' },
    { host: 'hub.test', origin: 'https://evil.hub.test' },
    { host: 'hub.test', 'x-forwarded-host': 'evil.test', origin: 'https://evil.test' },
    // A URL of a file has no host, also with this one.
    { host: 'localhost', origin: 'file://' },
  ];
  for (const headers of refused)
    t.is((await send(server, upload, { authorization, ...headers })).status, 403, JSON.stringify(headers));
});

test('an origin may be any public address, and the host that a trusted proxy reports', async (t) => {
  const server = await startTestServer(t, {
    server: {
      baseUrl: 'https://hub.test/base',
      feedUrl: 'https://feed.test:8443',
      registryUrl: 'https://registry.test',
      trustProxy: 'loopback',
    },
  });
  const authorization = `Bearer ${server.token}`;
  const status = async (headers: Record<string, string>) =>
    (await send(server, ['POST', '/v2/team/app/blobs/uploads/'], { authorization, ...headers })).status;
  for (const origin of ['https://hub.test', 'https://feed.test:8443', 'https://registry.test', server.url])
    t.is(await status({ origin }), 202, origin);
  t.is(await status({ origin: 'https://feed.test' }), 403);
  t.is(await status({ origin: 'https://other.test' }), 403);
  const other = await startTestServer(t, { server: { trustProxy: 'loopback' } });
  const forwarded = {
    authorization: `Bearer ${other.token}`,
    'x-forwarded-host': 'out.test',
    origin: 'https://out.test',
  };
  t.is((await send(other, ['POST', '/v2/team/app/blobs/uploads/'], forwarded)).status, 202);
});

test('with a base URL other hosts are 421, except for health', async (t) => {
  const server = await startTestServer(t, {
    server: {
      baseUrl: 'https://hub.test',
      feedUrl: 'https://feed.test:8443',
      registryUrl: 'https://registry.test',
      hosts: ['Inner.test', '10.0.0.7', 'fd00::7'],
    },
  });
  const paths = ['/v2/', '/v3/index.json', '/v1/account', '/console/', '/token', '/', '/livezz', '/livez/x'];
  const status = async (host: string, path: string) => (await raw(server, path, { headers: { host } })).status;
  for (const host of ['evil.test', 'evil.hub.test', '10.0.0.8', '[fd00::8]', '127.0.0.1.evil.test', 'hub.test.evil']) {
    for (const path of paths) t.is(await status(host, path), 421, `${host} ${path}`);
    for (const path of ['/livez', '/readyz?x=1', '/metrics']) t.is(await status(host, path), 200, `${host} ${path}`);
  }
  for (const host of [
    'hub.test',
    'HUB.test:8080',
    'feed.test',
    'registry.test:443',
    'inner.test:9',
    '10.0.0.7',
    '[FD00:0::7]:8080',
    'localhost:8080',
    '127.0.0.1',
    '127.8.8.8:1',
    '[::1]',
  ])
    t.is(await status(host, '/v3/index.json'), 200, host);
  const open = await startTestServer(t, { server: { hosts: ['inner.test'] } });
  t.is((await raw(open, '/v3/index.json', { headers: { host: 'any.test' } })).status, 200);
});

test('a trusted proxy reports the requested host', async (t) => {
  const server = await startTestServer(t, { server: { baseUrl: 'https://hub.test', trustProxy: 'loopback' } });
  const status = async (headers: Record<string, string>) => (await raw(server, '/v3/index.json', { headers })).status;
  t.is(await status({ host: 'inner.test', 'x-forwarded-host': 'hub.test' }), 200);
  t.is(await status({ host: 'hub.test', 'x-forwarded-host': 'evil.test' }), 421);
});
