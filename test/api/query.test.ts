import test from 'ava';
import { startTestServer } from '../support/server.ts';

interface Problem {
  status: number;
  code: string;
  detail: string;
  errors: { field: string; message: string }[];
}

test('/v1 refuses an unknown query parameter with its name, before it changes anything', async (t) => {
  const server = await startTestServer(t);
  const made = await server.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'ci', scopes: ['read'] }),
  });
  const { id } = (await made.json()) as { id: string };
  for (const [path, field, known, method] of [
    ['/v1/tokens?limt=5', 'limt', 'limit, cursor'],
    ['/v1/packages?limit=5&Origin=hosted', 'Origin', 'limit, cursor, origin'],
    ['/v1/account?verbose', 'verbose', 'none'],
    ['/v1/account/usage?__proto__=1', '__proto__', 'limit, cursor, period, granularity'],
    [`/v1/tokens/${id}?dry_run=true`, 'dry_run', 'none', 'DELETE'],
    [`/v1/tokens?${'x'.repeat(1000)}=1`, 'x'.repeat(100), 'limit, cursor'],
  ] as const) {
    const response = await server.fetch(path, { method: method ?? 'GET' });
    const { status, code, detail, errors } = (await response.json()) as Problem;
    t.deepEqual([response.status, status, code], [400, 400, 'Invalid'], path);
    t.true(detail.startsWith(`${field}: there is no such query parameter; this operation has ${known}`), detail);
    t.is(errors[0]!.field, field);
  }
  const { items } = (await (await server.fetch('/v1/tokens?limit=5')).json()) as { items: { id: string }[] };
  t.true(
    items.some((each) => each.id === id),
    'nothing was deleted',
  );
});

test('every list takes limit and cursor, also one that has a single page', async (t) => {
  const server = await startTestServer(t);
  for (const path of [
    'jobs',
    'jobs/gc/runs',
    'upstreams',
    'instances',
    'prefetch',
    'bundles/keys',
    'bundles/runs',
    'imports',
    'publishers',
    'trusted-issuers',
    'tokens',
  ])
    t.is((await server.fetch(`/v1/${path}?limit=50`)).status, 200, path);
  t.is((await server.fetch('/v1/prefetch?limit=50', { method: 'POST' })).status, 400);
});

test('a request without the right to the operation is refused for that, and not for its query', async (t) => {
  const server = await startTestServer(t);
  t.is((await server.fetch('/v1/tokens?limt=5', { token: null })).status, 401);
});

test('the feed and the registry ignore unknown query parameters, as their clients send some', async (t) => {
  const server = await startTestServer(t);
  for (const path of ['/v3/index.json?x=1', '/v3/search?q=a&unknown=1', '/v2/?x=1', '/v2/_catalog?x=1']) {
    t.is((await server.fetch(path)).status, 200, path);
  }
});
