import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { schema } from '../src/config/schema.ts';
import { startServer } from '../src/server/server.ts';

// Writes docs/openapi.json: the description of `/v1`, as a server answers it, without its address.

const data = await mkdtemp(join(tmpdir(), 'entrepot-openapi-'));
const config = schema.parse({ data, upstreams: [], server: { port: 0 } });
const server = await startServer(config, { log: pino({ level: 'silent' }), now: Date.now, proxy: {} });
try {
  const answer = (await (await fetch(`${server.url}/v1/openapi.json`)).json()) as Record<string, unknown>;
  const { servers: _address, ...description } = answer;
  const file = join(import.meta.dirname, '../docs/openapi.json');
  await writeFile(file, `${JSON.stringify(description, undefined, 2)}\n`);
} finally {
  await server.close();
  await rm(data, { recursive: true });
}
