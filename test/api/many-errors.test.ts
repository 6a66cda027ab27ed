import test from 'ava';
import { processorTime } from '../support/measures.ts';
import { startTestServer } from '../support/server.ts';

test('of very many wrong values an answer names a few', async (t) => {
  const server = await startTestServer(t);
  const numbers = Array.from({ length: 30_000 }, () => 1);
  for (const [method, path, body] of [
    ['PUT', '/v3/push/Lib/deprecations', { versions: numbers }],
    ['POST', '/v1/tokens', { name: 'x', scopes: numbers }],
    ['POST', '/v1/tokens', { name: 'x', scopes: ['read'], patterns: { packages: numbers } }],
    ['POST', '/v1/publishers', { name: 'x', issuer: 'github', claims: { sub: 'x' }, scopes: numbers }],
    [
      'POST',
      '/v1/publishers',
      { name: 'x', issuer: 'github', claims: { sub: numbers.slice(0, 12_000).map(() => null) }, scopes: ['read'] },
    ],
    ['POST', '/v1/grants', { subject: { kind: 'token', id: 'x' }, verbs: numbers }],
  ] as const) {
    const taken = await processorTime(async () => {
      const answer = await server.fetch(path, {
        method,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      t.is(answer.status, 400, path);
      t.true((await answer.text()).length < 4000, path);
    });
    t.true(taken < 500_000, path);
  }
});
