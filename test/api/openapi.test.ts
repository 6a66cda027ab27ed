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
