import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { readArchive } from '../../src/backup/archive.ts';
import type { BackupManifest, Member } from '../../src/backup/format.ts';
import type { Dialect } from '../../src/database/database.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { token } from '../faults/pushes.ts';

type Test = Pick<ExecutionContext, 'teardown'>;

/** Settings of an installation, as commands get them. */
export interface Installed {
  folder: string;
  data: string;
  url: string;
  environment: Record<string, string>;
}

/** An empty place for an installation. */
export async function emptyPlace(t: Test, dialect: Dialect): Promise<Installed> {
  const folder = await folderUntilEnd(t);
  const data = join(folder, 'data');
  const url = dialect === 'mysql' ? await temporaryDatabase(t, dialect) : `sqlite:${join(data, 'entrepot.db')}`;
  const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
  return { folder, data, url, environment };
}

/** A server in this process on such a place. Its first token is that of `Pushes`. */
export async function serveOn(
  t: Test,
  { data, url }: Installed,
  settings: Record<string, unknown> = {},
): Promise<TestServer> {
  const server = await startTestServer(t, { data, database: { url }, bootstrapToken: token, ...settings });
  return { ...server, token, fetch: (path, init) => server.fetch(path, { token, ...init }) };
}

/** The members of an archive, in order, in memory. */
export async function membersOf(path: string): Promise<{ name: string; bytes: Buffer }[]> {
  const found: { name: string; bytes: Buffer }[] = [];
  for await (const { name, bytes } of readArchive(path)) {
    const pieces: Uint8Array[] = [];
    for await (const each of bytes) pieces.push(each);
    found.push({ name, bytes: Buffer.concat(pieces) });
  }
  return found;
}

/** The manifest of an archive, or of a backup in a folder. */
export async function manifestOf(path: string): Promise<BackupManifest> {
  const bytes = path.endsWith('.tar') ? (await membersOf(path)).at(-1)!.bytes : await readFile(join(path, 'manifest'));
  return JSON.parse(bytes.toString().split('\n', 1)[0]!) as BackupManifest;
}

/** Members from memory, as a source for a check. */
export async function* fromMemory(members: readonly { name: string; bytes: Buffer }[]): AsyncGenerator<Member> {
  for (const { name, bytes } of members) {
    yield {
      name,
      size: bytes.length,
      bytes: (async function* () {
        yield bytes;
      })(),
    };
  }
}
