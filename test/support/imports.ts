import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { folderUntilEnd } from './folder.ts';
import { entrepot, type Heard } from './in-process.ts';
import { startTestServer, type TestServer } from './server.ts';

/** A server that gets content of others, and the command that brings it in. */
export interface Importing {
  target: TestServer;
  folder: string;
  /** Runs `entrepot import` with these words. */
  bring: (...words: string[]) => Promise<Heard>;
  /** The path of a new file in the folder. */
  file: (name: string, text: string | Buffer) => Promise<string>;
}

export async function startImporting(
  t: ExecutionContext,
  upstreams: readonly object[] = [],
  environment: Record<string, string> = {},
): Promise<Importing> {
  const folder = await folderUntilEnd(t);
  const target = await startTestServer(t, { upstreams });
  const settings = { ENTREPOT_DATA: target.data, ENTREPOT_UPSTREAMS: JSON.stringify(upstreams), ...environment };
  return {
    target,
    folder,
    bring: (...words) => entrepot(settings, 'import', ...words),
    file: async (name, text) => {
      await writeFile(join(folder, name), text);
      return join(folder, name);
    },
  };
}

/** The address of a server that answers with `handle`. It is closed when the test ends. */
export async function serving(
  t: ExecutionContext,
  handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
): Promise<string> {
  const server = createServer((request, response) => void handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}
