import { randomBytes } from 'node:crypto';
import { openDatabase } from '../../../src/database/database.ts';
import { BlobStore, type Arrival } from '../../../src/storage/blobs/blob-store.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../../src/storage/files/paths.ts';

// Commits until it is killed. Each commit has up to three blobs and a row that refers to each of them. Writes a line for
// every acknowledged commit.

const [url = '', data = ''] = process.argv.slice(2);
const database = await openDatabase(url);
const paths = new Paths(data);
const blobs = new BlobStore(database, new FilesystemDriver(paths), paths, Date.now);
await blobs.prepare();

async function commit(writer: number, turn: number): Promise<void> {
  const arrivals: Arrival[] = [];
  for (let index = 0; index <= turn % 3; index += 1) {
    arrivals.push(await blobs.stageBytes(randomBytes(16 + ((turn * 7919) % 50_000))));
  }
  const name = `${process.pid}-${writer}-${turn}`;
  await blobs.commit(arrivals, async (tx) => {
    for (const { digest } of arrivals) await tx.insert('refs', { name, digest, parts: arrivals.length });
  });
  process.stdout.write(`${name}\n`);
}

await Promise.all(
  [0, 1, 2, 3].map(async (writer) => {
    for (let turn = 0; ; turn += 1) await commit(writer, turn);
  }),
);
