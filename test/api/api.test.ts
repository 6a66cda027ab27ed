import { request } from 'node:http';
import test from 'ava';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';
import { within } from '../support/until.ts';
import { tokenOf } from '../support/inside.ts';

test('the OpenAPI document has every operation, and every schema that it refers to', async (t) => {
  const server = await startTestServer(t);
  const { document, operations } = await OpenDocument.of(server);
  t.deepEqual(
    operations.sort(),
    [
      'DELETE /advisories/{id}',
      'DELETE /me/tokens/{id}',
      'DELETE /packages/{id}/deprecations',
      'DELETE /packages/{id}/{version}',
      'DELETE /packages/{id}/{version}/deprecation',
      'GET /advisories',
      'GET /packages/{id}/deprecations',
      'POST /advisories',
      'PUT /packages/{id}/deprecations',
      'PUT /packages/{id}/{version}/deprecation',
      'GET /explain',
      'GET /account/permanence',
      'PUT /account/permanence',
      'GET /deleted',
      'POST /deleted/{id}/restore',
      'DELETE /deleted/{id}',
      'GET /held',
      'GET /held/refusals',
      'GET /policy',
      'PUT /policy',
      'GET /account/promotion',
      'PUT /account/promotion',
      'GET /promotions',
      'POST /promotions',
      'GET /promotions/{id}',
      'POST /promotions/{id}/approve',
      'POST /promotions/{id}/reject',
      'GET /waivers',
      'POST /waivers',
      'GET /waivers/{id}',
      'POST /waivers/{id}/approve',
      'POST /waivers/{id}/reject',
      'DELETE /waivers/{id}',
      'GET /upstreams/{id}/history',
      'GET /account/counters',
      'GET /account/storage',
      'GET /findings',
      'GET /uses',
      'POST /tokens/find',
      'GET /people',
      'GET /people/{id}',
      'POST /people/{id}/disable',
      'POST /people/{id}/enable',
      'GET /account/personal-tokens',
      'PUT /account/personal-tokens',
      'GET /account/observed-bills',
      'PUT /account/observed-bills',
      'GET /grants/explain',
      'GET /grants/entitled',
      'GET /grants',
      'GET /grants/{id}',
      'POST /grants',
      'POST /grants/{id}/accept',
      'DELETE /grants/{id}',
      'GET /failed-requests',
      'GET /instances',
      'GET /jobs',
      'GET /jobs/{name}/runs',
      'GET /me',
      'GET /me/tokens',
      'GET /packages',
      'GET /packages/{id}',
      'GET /packages/{id}/dependents',
      'GET /packages/{id}/history',
      'GET /packages/{id}/versions',
      'GET /packages/{id}/{version}',
      'GET /packages/{id}/{version}/file',
      'GET /packages/{id}/{version}/icon',
      'GET /search',
      'DELETE /claims/container/{name}',
      'DELETE /claims/package/{name}',
      'DELETE /containers/{name}/manifests/{reference}',
      'DELETE /containers/{name}/{tag}',
      'GET /claims',
      'GET /clients',
      'GET /clients/{kind}',
      'POST /client-checks',
      'GET /client-checks/{id}',
      'GET /containers',
      'GET /containers/{name}',
      'GET /containers/{name}/history',
      'DELETE /sessions/{id}',
      'GET /containers/{name}/manifests',
      'GET /containers/{name}/manifests/{reference}',
      'GET /containers/{name}/tags',
      'DELETE /tokens/{id}',
      'GET /account',
      'GET /account/usage',
      'GET /audit',
      'GET /exposed',
      'GET /sessions',
      'GET /tokens',
      'GET /tokens/{id}',
      'POST /jobs/{name}/preview',
      'POST /jobs/{name}/runs',
      'POST /packages/{id}/{version}/relist',
      'POST /packages/{id}/{version}/unlist',
      'POST /tokens',
      'GET /webhooks',
      'POST /webhooks',
      'GET /webhooks/{id}',
      'PATCH /webhooks/{id}',
      'DELETE /webhooks/{id}',
      'POST /webhooks/{id}/test',
      'GET /webhooks/{id}/deliveries',
      'POST /webhooks/{id}/deliveries/{delivery}/redeliver',
      'POST /webhooks/{id}/redeliver',
      'DELETE /publishers/{id}',
      'GET /publishers',
      'GET /publishers/{id}',
      'GET /trusted-issuers',
      'POST /publishers',
      'POST /publishers/explain',
      'PUT /publishers/{id}',
      'POST /token-exchange',
      'POST /token-exchange/nuget',
      'GET /webhooks/{id}/deliveries/{delivery}',
      'POST /me/tokens',
      'POST /packages',
      'GET /imports',
      'POST /imports',
      'GET /imports/{id}',
      'GET /imports/{id}/problems',
      'POST /imports/{id}/resume',
      'DELETE /imports/{id}',
      'GET /bundles',
      'POST /bundles',
      'GET /bundles/keys',
      'POST /bundles/keys',
      'POST /bundles/keys/revocations',
      'DELETE /bundles/keys/{id}',
      'GET /bundles/runs',
      'POST /bundles/receipt',
      'GET /bundles/receipt',
      'POST /bundles/imports',
      'GET /bundles/imports/{id}',
      'PUT /bundles/imports/{id}/segments/{number}',
      'POST /bundles/imports/{id}/segments',
      'POST /bundles/imports/{id}/run',
      'DELETE /bundles/imports/{id}',
      'GET /bundles/{id}',
      'DELETE /bundles/{id}',
      'GET /bundles/{id}/segments/{number}',
      'GET /prefetch',
      'POST /policy/check',
      'POST /prefetch',
      'GET /prefetch/{id}',
      'POST /prefetch/{id}/fetch',
      'DELETE /prefetch/{id}',
      'GET /upstreams',
      'GET /upstreams/{id}',
      'POST /upstreams/{id}/retry',
      'GET /upstreams/{id}/entries',
      'GET /upstreams/{id}/entries/{entry}',
      'DELETE /upstreams/{id}/entries/{entry}',
    ].sort(),
  );
  t.like(await (await server.fetch('/v1/openapi.json')).json(), { servers: [{ url: `${server.url}/v1` }] });
  const { schemas } = document['components'] as { schemas: Record<string, unknown> };
  const references = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)].map(
    (match) => match[1]!,
  );
  t.true(references.length > 5);
  for (const name of references) t.truthy(schemas[name], name);
});

test('an unsupported method is 405 with the supported methods', async (t) => {
  const server = await startTestServer(t);
  const cases: [string, string, string][] = [
    ['PUT', '/v1/tokens', 'GET, HEAD, POST'],
    ['PUT', '/v1/tokens/x', 'GET, HEAD, DELETE'],
    ['PUT', '/v1/containers/team/app/v1', 'DELETE'],
    ['DELETE', '/v1/containers', 'GET, HEAD'],
    ['PUT', '/v1/packages', 'GET, HEAD, POST'],
    ['DELETE', '/v1/packages/a', 'GET, HEAD'],
    ['PUT', '/v1/packages/a/1.0.0', 'GET, HEAD, DELETE'],
    ['POST', '/v1/account', 'GET, HEAD'],
    ['DELETE', '/v1/account/usage', 'GET, HEAD'],
    ['DELETE', '/v1/openapi.json', 'GET, HEAD'],
  ];
  for (const [method, path, allow] of cases) {
    const response = await server.fetch(path, { method });
    t.is(response.status, 405, path);
    t.is(response.headers.get('allow'), allow, path);
    t.is(response.headers.get('content-type'), 'application/problem+json');
  }
  for (const path of [
    '/v1',
    '/v1/',
    '/v1/nothing',
    '/v1/containers/app',
    '/v1/tokens/a/b',
    '/v1/account/usage/x',
    '/v1/openapi.json/x',
  ]) {
    t.is((await server.fetch(path)).status, 404, path);
  }
});

test('HEAD answers like GET, without a body', async (t) => {
  const server = await startTestServer(t);
  const head = await server.fetch('/v1/account', { method: 'HEAD' });
  t.is(head.status, 200);
  t.is(await head.text(), '');
  t.true(Number(head.headers.get('content-length')) > 100);
  t.is(head.headers.get('cache-control'), 'no-store');
});

test('the account has its period, its limits, and no stored bytes at first', async (t) => {
  const server = await startTestServer(t, { limits: { nupkg: '10MiB' } });
  const document = await OpenDocument.of(server);
  server.clock.now = Date.UTC(2026, 11, 31, 23, 59, 59, 999);
  const body = await document.read('GET /account', await server.fetch('/v1/account'));
  t.like(body, {
    name: 'default',
    billing_period: { start: '2026-12-01T00:00:00.000Z', end: '2027-01-01T00:00:00.000Z' },
    usage: {
      storage_bytes: 0,
      storage_as_of: '2026-12-31T23:59:59.999Z',
      egress_bytes: 0,
      ingress_bytes: 0,
      requests: 0,
      downloads: 0,
    },
  });
  t.deepEqual(body['limits'], [
    { name: 'package', unit: 'bytes', limit: 10 * 1024 * 1024 },
    { name: 'manifest', unit: 'bytes', limit: 4 * 1024 * 1024 },
    { name: 'blob', unit: 'bytes', limit: null },
    { name: 'storage', unit: 'bytes', limit: null },
    { name: 'egress', unit: 'bytes per month', limit: null },
  ]);
});

test('usage of a period: open, closed, in the future, malformed', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  server.clock.now = Date.UTC(2028, 1, 29, 12);
  const usage = async (query: string) =>
    document.read('GET /account/usage', await server.fetch(`/v1/account/usage${query}`));
  t.like(await usage(''), {
    period: { start: '2028-02-01T00:00:00.000Z', end: '2028-03-01T00:00:00.000Z', status: 'open' },
    as_of: '2028-02-29T12:00:00.000Z',
    items: [],
    next_cursor: null,
  });
  t.like(await usage('?period=2028-02&granularity=day&group_by=token'), { period: { status: 'open' } });
  t.like(await usage('?period=2027-12'), {
    period: { start: '2027-12-01T00:00:00.000Z', end: '2028-01-01T00:00:00.000Z', status: 'closed' },
  });
  const bad = {
    'period=2028-03': 'period',
    'period=2028-13': 'period',
    'period=2028-2': 'period',
    'period=': 'period',
    'period=2028-01&period=2028-02': 'period',
    'granularity=hour': 'granularity',
    'group_by=account': 'group_by',
    'limit=0': 'limit',
    'cursor=x': 'cursor',
  };
  for (const [query, field] of Object.entries(bad)) {
    const body = await usage(`?${query}`);
    t.is(body['status'], 400, query);
    t.true((body['detail'] as string).startsWith(field), query);
  }
});

test('anonymous reading does not include the account and its tokens', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  for (const path of ['/v1/account', '/v1/account/usage', '/v1/tokens']) {
    const response = await server.fetch(path, { token: null });
    t.is(response.status, 401, path);
    t.truthy(response.headers.get('www-authenticate'));
  }
  t.is((await server.fetch('/v1/tokens/x', { token: null, method: 'DELETE' })).status, 401);
});

test('public URLs come from the settings, or from the request', async (t) => {
  const set = await startTestServer(t, { server: { baseUrl: 'https://hub.example/entrepot/' } });
  await tokenOf(set, ['read']);
  const link = (await set.fetch('/v1/tokens?limit=1')).headers.get('link')!;
  t.true(link.startsWith('<https://hub.example/entrepot/v1/tokens?limit=1&cursor='), link);
  const { servers } = (await (await set.fetch('/v1/openapi.json')).json()) as { servers: unknown };
  t.deepEqual(servers, [{ url: 'https://hub.example/entrepot/v1' }]);
});

test('a request whose body stops is aborted, and the server continues', async (t) => {
  const server = await startTestServer(t, { limits: { uploadIdle: '1s' } });
  const answered = new Promise((resolve, reject) => {
    const sending = request(`${server.url}/v1/tokens`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${server.token}`,
        'content-type': 'application/json',
        'content-length': '100',
      },
    });
    sending.once('response', (response) => {
      resolve(response.statusCode);
      sending.destroy();
    });
    sending.once('error', reject);
    t.teardown(() => sending.destroy());
    sending.write('{"name":');
  });
  t.is(await within(answered), 400);
  t.is((await server.fetch('/v1/account')).status, 200);
});
