import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { startTestServer } from '../support/server.ts';

test('docs/openapi.json is what a server answers; `npm run openapi` writes it', async (t) => {
  const server = await startTestServer(t);
  const { servers, ...served } = (await (await server.fetch('/v1/openapi.json')).json()) as Record<string, unknown>;
  t.deepEqual(servers, [{ url: `${server.url}/v1` }]);
  const file = join(import.meta.dirname, '../../docs/openapi.json');
  t.deepEqual(served, JSON.parse(await readFile(file, 'utf8')) as object);
});
