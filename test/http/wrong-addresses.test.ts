import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import test from 'ava';
import { startTestServer, type TestServer } from '../support/server.ts';

async function ask(server: TestServer, path: string, method = 'GET') {
  const asked = request(server.url + path, { method, agent: false }).end(method === 'PUT' ? 'package' : undefined);
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  let body = '';
  for await (const chunk of response) body += String(chunk);
  return { response, body };
}

test('a wrong address of the feed is answered with the right one, also in the status line', async (t) => {
  const server = await startTestServer(t);
  for (const [path, method] of [
    ['/v3'],
    ['/v3/'],
    ['/v3/FindPackagesById()?id=%27a%27'],
    ['/nuget'],
    ['/nuget/v3/index.json'],
    ['/api/v2'],
    ['/api/v2/package', 'PUT'],
    ['/api/v2/$metadata'],
    ['/api/v3/index.json'],
  ] as const) {
    const { response, body } = await ask(server, path, method);
    t.is(response.statusCode, 404, path);
    t.is(response.headers['content-type'], 'application/problem+json', path);
    const { code, detail } = JSON.parse(body) as Record<'code' | 'detail', string>;
    t.is(code, 'NotFound', path);
    t.true(detail.includes(`use ${server.url}/v3/index.json as package source`), path);
    t.is(response.statusMessage, detail, path);
  }
  t.is((await ask(server, '/nuget-packages')).response.statusCode, 404);
});

test('the address of the feed in the answer is the configured one', async (t) => {
  const server = await startTestServer(t, { server: { feedUrl: 'https://feed.example/nuget' } });
  const { body } = await ask(server, '/api/v2');
  t.regex(body, /use https:\/\/feed\.example\/nuget\/v3\/index\.json as package source/);
});

test('a wrong address below /v1 and /v2 is answered with where to look, in the form of the interface', async (t) => {
  const server = await startTestServer(t);
  for (const path of ['/v1', '/v1/', '/v1/package']) {
    const { response, body } = await ask(server, path);
    t.is(response.statusCode, 404, path);
    t.is(response.headers['content-type'], 'application/problem+json', path);
    t.true(body.includes(`${server.url}/v1/openapi.json lists the addresses`), path);
    t.true(body.includes('"code":"NotFound"'), path);
  }
  const registry = await server.fetch('/v2/team');
  t.is(registry.status, 404);
  const { errors } = (await registry.json()) as { errors: { message: string }[] };
  t.regex(errors[0]!.message, /its endpoints are \/v2\/, and below/);
  t.is((await server.fetch('/v2')).status, 200);
});
