import test from 'ava';
import { startTestServer } from '../support/server.ts';

test('an expired token that no rule gave stays in the list', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Math.ceil(Date.now() / 1000) * 1000;
  const expires = new Date(server.clock.now + 1000).toISOString();
  const made = await server.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'short', scopes: ['read'], expires_at: expires }),
  });
  t.is(made.status, 201);
  server.clock.now += 1000;
  await server.installation.core.identity.exchange.deleteExpired();
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { name: string }[] };
  t.true(items.some(({ name }) => name === 'short'));
});
