import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { Collector } from '../../../src/storage/upkeep/collector.ts';
import { dialects } from '../../support/databases.ts';
import { openStore, quickTimes, references, type Store } from '../../support/store.ts';

const contents = Array.from({ length: 40 }, (_, index) => Buffer.alloc(100 + index * 50, `content ${index}`));

/** Writes and deletes references to content until `ended`, and checks each time that the content exists. */
async function referAndLetGo(
  { blobs, database, driver }: Store,
  repository: number,
  ended: () => boolean,
): Promise<string[]> {
  const wrong: string[] = [];
  while (!ended()) {
    const arrivals = [];
    for (const start = randomInt(contents.length), more = randomInt(1, 4); arrivals.length < more;) {
      arrivals.push(await blobs.stageBytes(contents[(start + arrivals.length) % contents.length]!));
    }
    const digests = arrivals.map(({ digest }) => digest);
    await blobs.commit(arrivals, (tx) =>
      tx.insertNew(
        'repository_blobs',
        digests.map((digest) => ({ repository_id: repository, digest, linked_at: 0 })),
      ),
    );
    for (const digest of digests) {
      const bytes = await readFile(driver.pathOf(digest)).catch((error: Error) => error.message);
      if (typeof bytes === 'string' || digestOf(bytes) !== digest)
        wrong.push(`${digest} was referred to: ${bytes.length}`);
    }
    await database.transaction((tx) => tx.run('DELETE FROM repository_blobs WHERE repository_id = ?', [repository]));
  }
  return wrong;
}

for (const dialect of dialects) {
  test(`${dialect}: collectors that are killed at any time delete no referenced content`, async (t) => {
    const store = await openStore(t, dialect, Date.now, quickTimes);
    const script = join(import.meta.dirname, '../../support/processes/collect-forever.ts');
    let ended = false;
    const writers = [1, 2, 3, 4].map((repository) => referAndLetGo(store, repository, () => ended));
    let removed = 0;
    for (const target of [1, 3, 2, 5]) {
      const child = spawn(process.execPath, [script, store.url, store.data], { stdio: ['ignore', 'pipe', 'inherit'] });
      const closed = once(child, 'close');
      let lines = 0;
      child.stdout.on('data', (chunk: Buffer) => {
        for (const line of chunk.toString().trim().split('\n')) removed += Number(line);
        lines += 1;
        if (lines === target) child.kill('SIGKILL');
      });
      await closed;
    }
    ended = true;
    for (const writer of writers) t.deepEqual(await writer, []);
    t.true(removed > 10, `${removed} blobs were removed meanwhile`);
    const rows = await store.database.select<{ digest: Digest }>("SELECT digest FROM blobs WHERE state = 'live'");
    for (const { digest } of rows)
      t.is(digestOf(await readFile(store.driver.pathOf(digest))), digest, 'each live row has its file');
    const last = new Collector(store.database, store.driver, references, { ...quickTimes, takeOverAfter: 0 });
    await last.collect({ before: Number.MAX_SAFE_INTEGER });
    t.deepEqual(await store.database.select('SELECT digest FROM blobs'), []);
    for await (const files of store.driver.list())
      t.deepEqual(files, [], 'the last collector removes what the killed ones left');
  });
}
