import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { checkAnswer } from '../support/documented.ts';
import { startTestServer } from '../support/server.ts';

test('docs/openapi.json is what a server answers; `npm run openapi` writes it', async (t) => {
  const server = await startTestServer(t);
  const { servers, ...served } = (await (await server.fetch('/v1/openapi.json')).json()) as Record<string, unknown>;
  t.deepEqual(servers, [{ url: `${server.url}/v1` }]);
  const file = join(import.meta.dirname, '../../docs/openapi.json');
  t.deepEqual(served, JSON.parse(await readFile(file, 'utf8')) as object);
});

test('no two paths differ only in the names of their parameters: OpenAPI counts them as one', async (t) => {
  const server = await startTestServer(t);
  const { paths } = (await (await server.fetch('/v1/openapi.json')).json()) as { paths: Record<string, object> };
  const shapes = Object.keys(paths).map((path) => path.replaceAll(/\{\w+\}/g, '{}'));
  t.deepEqual(
    shapes.filter((each, index) => shapes.indexOf(each) !== index),
    [],
  );
  t.deepEqual(Object.keys(paths['/containers/{name}/manifests/{reference}']!), ['get', 'delete']);
  const refused = await server.fetch('/v1/containers/app/manifests/v1', { method: 'PUT' });
  t.deepEqual([refused.status, refused.headers.get('allow')], [405, 'GET, HEAD, DELETE']);
});

test.serial('the document is made once, for every address of the server', async (t) => {
  const server = await startTestServer(t, { server: { trustProxy: 1 } });
  const { stringify } = JSON;
  let made = 0;
  JSON.stringify = ((value: { paths?: unknown } | undefined, ...more: []) => {
    if (value?.paths !== undefined) made += 1;
    return stringify(value, ...more);
  }) as typeof stringify;
  t.teardown(() => (JSON.stringify = stringify));
  const get = async (headers: Record<string, string>, method = 'GET') => {
    const response = await server.fetch('/v1/openapi.json', { token: null, headers, method });
    return {
      type: response.headers.get('content-type'),
      length: response.headers.get('content-length'),
      text: await response.text(),
    };
  };
  const first = await get({});
  t.deepEqual(await get({}), first);
  t.deepEqual([first.type, first.length], ['application/json', String(Buffer.byteLength(first.text))]);
  t.deepEqual(await get({}, 'HEAD'), { ...first, text: '' });
  const [one, other] = [await get({ 'x-forwarded-host': 'one.test' }), await get({ 'x-forwarded-host': 'other.test' })];
  t.true(one.text.includes('http://one.test/v1'));
  t.is(other.text, one.text.replace('http://one.test/v1', 'http://other.test/v1'));
  t.is(made, 1);
});

test('the document counts for the limit of requests without a token', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '0s', anonymousRequestsPerMinute: 3 } });
  const statuses = async (token: string | null) => {
    const found: number[] = [];
    for (let each = 0; each < 2; each += 1) found.push((await server.fetch('/v1/openapi.json', { token })).status);
    return found;
  };
  t.deepEqual([...(await statuses(null)), ...(await statuses(server.token))], [200, 200, 200, 429]);
  const response = await server.fetch('/v1/openapi.json', { token: null });
  t.is(response.headers.get('ratelimit-policy'), '"anonymous-requests";q=3;w=60');
  t.like(await response.json(), { code: 'TooManyRequests', status: 429 });
  t.is((await server.fetch('/v1/me')).status, 200);
});

const check = (answer: object) =>
  checkAnswer('/v1/containers/team/app/tags?limit=1', 'GET', Response.json({ next_cursor: null, ...answer }));

test('each answer of /v1 that a test gets is compared with the document', async (t) => {
  const item = { name: 'team/app', digest: `sha256:${'a'.repeat(64)}`, media_type: 'x', size_bytes: 1 };
  const tag = { ...item, updated_at: '2026-01-31T12:00:00.000Z' };
  const row = {
    ...tag,
    withdrawn_at: null,
    aliases: [],
    platforms: null,
    attached: [],
    pull_count: 0,
    last_pulled_at: null,
  };
  await check({ items: [row] });
  const { digest: _digest, ...short } = row;
  for (const wrong of [{ ...row, id: 5 }, short, { ...row, size_bytes: -1 }, { ...row, updated_at: 5 }])
    await t.throwsAsync(check({ items: [wrong] }), { message: /not as documented at \/containers\/\{name\}\/tags/ });
  await t.throwsAsync(check({}), { message: /items/ });
});
