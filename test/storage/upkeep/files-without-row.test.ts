import { mkdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { FilesWithoutRow } from '../../../src/storage/upkeep/files-without-row.ts';
import { changedDatabase, dialects, temporaryDatabase } from '../../support/databases.ts';
import { entrepot } from '../../support/in-process.ts';
import { databaseOf, rowsOf, runJob } from '../../support/inside.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { openStoreOn } from '../../support/store.ts';

for (const dialect of dialects) {
  test.serial(
    `${dialect}: gc --files shows the files without a row, and deletes them with --yes only after the grace`,
    async (t) => {
      const url = await temporaryDatabase(t, dialect);
      const server = await startTestServer(t, { database: { url } });
      const app = new TestRepository(server, 'app');
      const { digest: kept } = await app.blob('kept');
      for (const [text, age] of [
        ['old', 2],
        ['older', 3],
        ['young', 0],
      ] as const) {
        const path = pathOf(server.data, digestOf(text));
        await mkdir(dirname(path), { recursive: true });
        await writeFile(path, text);
        const at = Date.now() / 1000 - age * 86_400;
        await utimes(path, at, at);
      }
      const exists = (text: string) =>
        readFile(pathOf(server.data, digestOf(text)), 'utf8').then(
          () => true,
          () => false,
        );
      const environment = { ENTREPOT_DATA: server.data, ENTREPOT_DATABASE_URL: url };
      const shown = await entrepot(environment, 'gc', '--files');
      t.deepEqual([shown.code, shown.stderr], [0, '']);
      const lines = shown.stdout.split('\n');
      t.regex(
        lines.slice(0, 2).sort().join('\n'),
        new RegExp(`^${[digestOf('old'), digestOf('older')].sort()[0]}\t\\d bytes\t\\S+Z\n`),
      );
      t.deepEqual(lines.slice(2), [
        'kept: 1 files that are younger than the setting "gc.grace"',
        'would delete 2 files, 8 bytes. To delete them, add --yes',
        '',
      ]);
      t.true(await exists('old'));
      for (const words of [['--yes'], ['--files', '--yes', '--dry-run']]) {
        const refused = await entrepot(environment, 'gc', ...words);
        t.deepEqual([refused.code, refused.stderr], [1, 'entrepot: --yes needs --files, without --dry-run.\n']);
      }
      const done = await entrepot(environment, 'gc', '--files', '--yes');
      t.regex(done.stdout, /\ndeleting 2 files, 8 bytes\ndone: 2 files, 8 bytes\n$/);
      t.deepEqual([await exists('old'), await exists('older'), await exists('young')], [false, false, true]);
      t.deepEqual(
        (await rowsOf<{ digest: string; state: string }>(server, 'SELECT digest, state FROM blobs')).map((row) => ({
          ...row,
        })),
        [{ digest: kept, state: 'live' }],
      );
      t.is(await (await app.fetch(`blobs/${kept}`)).text(), 'kept');
      await app.blob('old');
      t.is(await (await app.fetch(`blobs/${digestOf('old')}`)).text(), 'old');
    },
  );

  test.serial(
    `${dialect}: content that is pushed while gc --files deletes the same file is stored again`,
    async (t) => {
      const driver = new MemoryDriver();
      const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }, { driver });
      const app = new TestRepository(server, 'app');
      const digest = digestOf('pushed again');
      // A damaged file, of another size.
      driver.damage(digest, Buffer.from('pushed'));
      const [reached, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      driver.faults.before = async (operation) => {
        if (operation !== 'delete') return;
        reached.resolve();
        await mayEnd.promise;
      };
      const removing = server.installation.filesWithoutRow.remove({ before: Date.now() + 2000 });
      await reached.promise;
      let puts = 0;
      driver.faults.after = (operation) => {
        if (operation === 'put') puts += 1;
      };
      const pushing = app.blob('pushed again');
      // Time for the push to end, if it did not wait for the deletion.
      for (let turn = 0; turn < 20; turn += 1) t.is((await app.fetch(`blobs/${digest}`)).status, 404);
      t.is(puts, 0);
      mayEnd.resolve();
      t.like(await removing, { files: 1, bytes: 6 });
      await pushing;
      t.is(puts, 1);
      t.is(await (await app.fetch(`blobs/${digest}`)).text(), 'pushed again');
    },
  );
}

test.serial('many files without a row are reported, counted and deleted, and younger ones stay', async (t) => {
  const { database, driver, blobs } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const arrival = await blobs.stageBytes(Buffer.from('kept'));
  await blobs.commit([arrival], () => Promise.resolve());
  const texts = Array.from({ length: 120 }, (_, index) => `file ${index + 100}`);
  for (const text of texts) driver.damage(digestOf(text), Buffer.from(text));
  const times: number[] = [];
  for await (const page of driver.list()) times.push(...page.map(({ storedAt }) => storedAt));
  const files = new FilesWithoutRow(database, driver);
  t.deepEqual(await files.find({ before: Math.min(...times) }), { files: 0, bytes: 0, recent: 120 });
  t.deepEqual(await files.remove({ before: Math.min(...times) }), { files: 0, bytes: 0, recent: 120 });
  const before = Math.max(...times) + 1;
  const ended = AbortSignal.abort();
  await t.throwsAsync(files.remove({ before, signal: ended }), { name: 'AbortError' });
  for (const work of ['find', 'remove'] as const) {
    const seen: string[] = [];
    const report = ({ digest, size }: { digest: string; size: number }) => void seen.push(`${digest} ${size}`);
    t.deepEqual(await files[work]({ before, report }), { files: 120, bytes: 960, recent: 0 });
    t.deepEqual(seen.toSorted(), texts.map((text) => `${digestOf(text)} 8`).toSorted());
  }
  t.deepEqual([...driver.contents.keys()], [arrival.digest]);
  t.deepEqual(await database.select('SELECT digest FROM blobs'), [{ digest: arrival.digest }]);
  t.deepEqual(await files.find({ before }), { files: 0, bytes: 0, recent: 0 });
});

test.serial('files without a row are removed in the order of their digests, in which pushes lock rows', async (t) => {
  const { database, driver } = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const digests = Array.from({ length: 10 }, (_, index) => digestOf(`file ${index}`)).toSorted();
  for (const digest of digests) driver.damage(digest, Buffer.from('x'));
  driver.list = async function* () {
    yield [];
    yield [...digests.slice(1), digests[0]!].map((digest) => ({ digest, size: 1, storedAt: 0 }));
  };
  const inserted: unknown[] = [];
  const watched = changedDatabase(database, {
    transaction: (work, options) =>
      database.transaction((tx) => {
        const insertNew = tx.insertNew.bind(tx);
        tx.insertNew = (table, rows) => {
          inserted.push(...rows.map(({ digest }) => digest));
          return insertNew(table, rows);
        };
        return work(tx);
      }, options),
  });
  t.like(await new FilesWithoutRow(watched, driver).remove({ before: 1 }), { files: 10 });
  t.deepEqual(inserted, digests);
});

test.serial('a file whose push inserts its row just before the deletion stays', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver });
  const app = new TestRepository(server, 'app');
  const digest = digestOf('pushed meanwhile');
  driver.damage(digest, Buffer.from('pushed meanwhile'));
  const real = databaseOf(server);
  let reads = 0;
  const database = changedDatabase(real, {
    select: async (sql, values) => {
      const rows = await real.select(sql, values);
      if ((reads += 1) === 1) await app.blob('pushed meanwhile');
      return rows as never;
    },
  });
  t.like(await new FilesWithoutRow(database, driver).remove({ before: Date.now() + 2000 }), { files: 0 });
  t.true(reads > 0);
  t.is(await (await app.fetch(`blobs/${digest}`)).text(), 'pushed meanwhile');
});

test.serial(
  'a failed deletion of a file without a row fails the command, and leaves a row for the collector',
  async (t) => {
    const driver = new MemoryDriver();
    const server = await startTestServer(t, {}, { driver });
    driver.damage(digestOf('stuck'), Buffer.from('stuck'));
    driver.faults.before = (operation) => {
      if (operation === 'delete') throw new Error('unreachable');
    };
    const { filesWithoutRow } = server.installation;
    await t.throwsAsync(filesWithoutRow.remove({ before: Date.now() + 2000 }), { message: 'unreachable' });
    t.like(await rowsOf(server, 'SELECT state FROM blobs'), [{ state: 'deleting' }]);
  },
);

test.serial('gc removes quarantined bytes after 30 days, and says so', async (t) => {
  const server = await startTestServer(t, { gc: { grace: '0s' } });
  const app = new TestRepository(server, 'app');
  const { digest } = await app.blob('whole');
  await writeFile(pathOf(server.data, digest), 'whOle');
  await runJob(server, 'scrub');
  const day = 86_400_000;
  const quarantined = join(server.data, 'quarantine', digest.replace(':', '-'));
  server.clock.now = Date.now() + 30 * day - 60_000;
  t.like(await runJob(server, 'gc'), { quarantined: 0, quarantined_bytes: 0 });
  t.is(await readFile(quarantined, 'utf8'), 'whOle');
  server.clock.now = Date.now() + 30 * day + 60_000;
  t.like(await runJob(server, 'gc', { dryRun: true }), { quarantined: 1, quarantined_bytes: 5 });
  t.like(await runJob(server, 'gc'), { quarantined: 1, quarantined_bytes: 5 });
  await t.throwsAsync(readFile(quarantined), { code: 'ENOENT' });
  t.like(await runJob(server, 'gc'), { quarantined: 0 });
});

function pathOf(data: string, digest: string): string {
  const hex = digest.slice('sha256:'.length);
  return join(data, 'blobs/sha256', hex.slice(0, 2), hex);
}
