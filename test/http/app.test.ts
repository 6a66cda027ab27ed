import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import test from 'ava';
import { originForm, splitTarget } from '../../src/http/target.ts';
import { freePort } from '../support/services.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

test('a target is split into path and query, in absolute form too', (t) => {
  for (const target of ['/v2/a/tags/list?n=1&last=b', 'http://registry.example:5000/v2/a/tags/list?n=1&last=b']) {
    const { path, query } = splitTarget(originForm(target));
    t.is(path, '/v2/a/tags/list');
    t.deepEqual(Object.fromEntries(query), { n: '1', last: 'b' });
  }
  t.is(splitTarget('/v2/').path, '/v2/');
  t.is(originForm('http://registry.example'), '/');
  t.is(originForm('http://registry.example?n=1'), '/?n=1');
});

test('each interface answers to its own prefix, in absolute form too, and to no other that begins alike', async (t) => {
  const server = await startTestServer(t);
  for (const [target, status] of [
    ['/v2/', 200],
    ['/v2', 200],
    [`${server.url}/v2/`, 200],
    [`${server.url}/v3/index.json`, 200],
    [`${server.url}/v1/tokens?limit=1`, 200],
    ['/v1/tokens?limit=1&limit=2', 400],
    ['/token?service=x', 200],
    ['/v22/', 404],
    ['/tokens', 404],
    ['/v3', 404],
    ['/', 404],
    ['http://other.example', 404],
    ['/v3/package/%E0%A4%A/index.json', 400],
    ['/livez', 200],
  ] as const) {
    t.is((await ask(server, target)).status, status, target);
  }
});

test('behind a proxy that is trusted, and only there, its word is taken for scheme, host and client', async (t) => {
  const headers = {
    'X-Forwarded-Proto': 'https, http',
    'X-Forwarded-Host': 'packages.example, inner.example',
    'X-Forwarded-For': '192.0.2.7, 10.0.0.1',
  };
  const trusting = await startTestServer(t, { server: { trustProxy: true } });
  const wary = await startTestServer(t);
  for (const [server, base, remote] of [
    [trusting, 'https://packages.example', '192.0.2.7'],
    [wary, wary.url, '127.0.0.1'],
  ] as const) {
    const { body } = await ask(server, '/v3/index.json', headers);
    const { resources } = JSON.parse(body) as { resources: { '@id': string }[] };
    t.true(
      resources.every((each) => each['@id'].startsWith(`${base}/v3/`)),
      base,
    );
    const line = JSON.parse(server.lines.find((each) => each.includes('/v3/index.json'))!) as { remote: string };
    t.is(line.remote, remote);
  }
  const strange = { ...headers, 'X-Forwarded-Proto': 'javascript' };
  t.true((await ask(trusting, '/v3/index.json', strange)).body.includes('"http://packages.example/v3/'));
  t.is((await ask(trusting, '/v3/index.json', { 'X-Forwarded-Host': 'a"b' })).status, 400);
});

test('operators have a port of their own when they want one', async (t) => {
  const adminPort = await freePort();
  const server = await startTestServer(t, { server: { adminPort } });
  const admin = { ...server, url: `http://127.0.0.1:${adminPort}` };
  t.deepEqual(JSON.parse((await ask(admin, '/livez')).body), { status: 'ok' });
  t.deepEqual(JSON.parse((await ask(admin, '/readyz')).body), { status: 'ready' });
  t.regex((await ask(admin, '/metrics')).body, /^entrepot_http_requests_total\{/m);
  t.is((await ask(admin, '/v2/')).status, 404);
  for (const path of ['/livez', '/readyz', '/metrics']) t.is((await ask(server, path)).status, 404, path);
});

/** Asks with a target exactly as it is written here, which fetch would not. */
async function ask(
  { url, token }: Pick<TestServer, 'url' | 'token'>,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: string }> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const asking = request({ hostname, port, path, headers: { Authorization: `Bearer ${token}`, ...headers } });
    asking.once('error', reject).end();
    asking.once('response', (response) => {
      text(response).then((body) => resolve({ status: response.statusCode!, body }), reject);
    });
  });
}
