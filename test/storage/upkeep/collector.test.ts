import { mkdir, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Dialect, Transaction } from '../../../src/database/database.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { Collector } from '../../../src/storage/upkeep/collector.ts';
import { changedDatabase, dialects } from '../../support/databases.ts';
import { openStore, references, storedSize, type Store } from '../../support/store.ts';

interface CollectedStore extends Store {
  collector: Collector;
  clock: { now: number };
}

async function setUp(t: ExecutionContext, dialect: Dialect): Promise<CollectedStore> {
  const clock = { now: Date.now() };
  const opened = await openStore(t, dialect, () => clock.now);
  return { ...opened, collector: new Collector(opened.database, opened.driver, references), clock };
}

const nothing = (): Promise<void> => Promise.resolve();

async function store({ blobs }: Store, text: string, refer: (tx: Transaction, digest: Digest) => Promise<unknown>) {
  const arrival = await blobs.stageBytes(Buffer.from(text));
  await blobs.commit([arrival], (tx) => refer(tx, arrival.digest));
  return arrival.digest;
}

const link = (tx: Transaction, digest: Digest) =>
  tx.insert('repository_blobs', { repository_id: 1, digest, linked_at: 0 });

/** The sorted digests of the stored files. */
async function filesOf({ driver }: Store): Promise<Digest[]> {
  const found: Digest[] = [];
  for await (const listed of driver.list()) found.push(...listed.map(({ digest }) => digest));
  return found.sort();
}

async function rowsOf({ database }: Store): Promise<Digest[]> {
  const rows = await database.select<{ digest: Digest }>('SELECT digest FROM blobs ORDER BY digest');
  return rows.map(({ digest }) => digest);
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, store: CollectedStore) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite('content that a table refers to stays; the rest and its bytes are deleted', async (t, each) => {
    const kept = [
      await store(each, 'layer', link),
      await store(each, 'manifest', (tx, digest) =>
        tx.insert('manifests', {
          repository_id: 1,
          digest,
          media_type: '',
          size_bytes: 8,
          image_bytes: 8,
          pushed_at: 0,
        }),
      ),
      await store(each, 'child', (tx, digest) => tx.insert('manifest_references', { manifest_id: 1, digest })),
      await store(each, 'nupkg', (tx, digest) => tx.insert('package_blobs', { version_row: 1, digest })),
      await store(each, 'mirrored', (tx, digest) =>
        tx.insert('mirror_entries', {
          id: digestOf('id').slice(7),
          upstream: 'u',
          kind: 'blob',
          name: 'n',
          reference: 'r',
          digest,
          size_bytes: 8,
          content_type: '',
          attributes: '{}',
          stored_at: 0,
          validated_at: 0,
          used_at: 0,
        }),
      ),
    ].sort();
    for (const text of ['one', 'two', 'three']) await store(each, text, nothing);
    const before = each.clock.now + 1;
    t.deepEqual(await each.collector.collect({ before, dryRun: true }), { blobs: 3, bytes: 11 });
    t.is((await rowsOf(each)).length, 8, 'a dry run removes nothing');
    t.deepEqual(await each.collector.collect({ before }), { blobs: 3, bytes: 11 });
    t.deepEqual(await rowsOf(each), kept);
    t.deepEqual(await filesOf(each), kept);
    t.deepEqual(await each.collector.collect({ before }), { blobs: 0, bytes: 0 }, 'a second pass finds nothing');
  });

  suite('content that was stored or pushed again within the grace period stays', async (t, each) => {
    const digest = await store(each, 'young', nothing);
    t.like(await each.collector.collect({ before: each.clock.now }), { blobs: 0 });
    each.clock.now += 1000;
    await store(each, 'young', nothing);
    t.like(await each.collector.collect({ before: each.clock.now }), { blobs: 0 }, 'pushed again');
    t.like(await each.collector.collect({ before: each.clock.now + 1 }), { blobs: 1 });
    t.is(await storedSize(each, digest), undefined);
  });

  suite('a pass covers more than one page of blobs', async (t, each) => {
    const digests = Array.from({ length: 1203 }, (_, index) => digestOf(String(index))).sort();
    await each.database.transaction(async (tx) => {
      await tx.insertNew(
        'blobs',
        digests.map((digest) => ({ digest, size: 2, stored_at: 0 })),
      );
      for (const digest of digests.filter((_, index) => index % 3 === 0)) await link(tx, digest);
    });
    t.deepEqual(await each.collector.collect({ before: 1 }), { blobs: 802, bytes: 1604 });
    t.is((await rowsOf(each)).length, 401);
  });

  suite('bytes without a row are kept', async (t, each) => {
    const kept = await store(each, 'kept', link);
    const unknown = digestOf('from a backup');
    await mkdir(dirname(each.driver.pathOf(unknown)), { recursive: true });
    await writeFile(each.driver.pathOf(unknown), 'from a backup');
    await utimes(each.driver.pathOf(unknown), 0, 0);
    t.deepEqual(await each.collector.collect({ before: Number.MAX_SAFE_INTEGER }), { blobs: 0, bytes: 0 });
    t.deepEqual(await filesOf(each), [kept, unknown].sort());
    await rm(each.paths.blobs, { recursive: true });
    t.like(
      await each.collector.collect({ before: Number.MAX_SAFE_INTEGER }),
      { blobs: 0 },
      'a missing folder is no error',
    );
  });

  suite('the collector waits for a running commit and keeps its blob', async (t, each) => {
    const digest = await store(each, 'wanted again', nothing);
    const [entered, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const arrival = await each.blobs.stageBytes(Buffer.from('wanted again'));
    each.clock.now = 1;
    const pushing = each.blobs.commit([arrival], async (tx) => {
      await link(tx, digest);
      entered.resolve();
      await mayEnd.promise;
    });
    await entered.promise;
    // The collector checks in a transaction that the blobs are still unreferenced.
    const found = Promise.withResolvers<void>();
    const watched = changedDatabase(each.database, {
      transaction: (work, options) => {
        found.resolve();
        return each.database.transaction(work, options);
      },
    });
    const collecting = new Collector(watched, each.driver, references).collect({ before: Number.MAX_SAFE_INTEGER });
    await found.promise;
    mayEnd.resolve();
    await pushing;
    t.like(await collecting, { blobs: 0 });
    t.is((await readFile(each.driver.pathOf(digest))).toString(), 'wanted again');
  });

  suite(
    'content that another process removes, or has begun to, after it was found is left to that one',
    async (t, each) => {
      for (const [sql, left] of [
        ['DELETE FROM blobs', []],
        ["UPDATE blobs SET state = 'deleting'", ['deleting']],
      ] as const) {
        const digest = await store(each, 'free', nothing);
        let isChanged = false;
        const watched = changedDatabase(each.database, {
          transaction: async (work, options) => {
            if (!isChanged) await each.database.transaction((tx) => tx.run(sql));
            isChanged = true;
            return each.database.transaction(work, options);
          },
        });
        const collecting = new Collector(watched, each.driver, references).collect({ before: each.clock.now + 1 });
        t.deepEqual(await collecting, { blobs: 0, bytes: 0 }, sql);
        t.true(isChanged);
        const rows = await each.database.select<{ state: string }>('SELECT state FROM blobs');
        t.deepEqual(
          rows.map(({ state }) => state),
          [...left],
        );
        t.deepEqual(await filesOf(each), [digest]);
      }
    },
  );

  suite('a deletion that fails ends the collection with its error, after all others', async (t, each) => {
    const digests = [];
    for (const text of ['one', 'two', 'three']) digests.push(await store(each, text, nothing));
    const kept = digests.toSorted()[0]!;
    const remove = each.driver.delete.bind(each.driver);
    each.driver.delete = (digest) => (digest === kept ? Promise.reject(new Error('busy')) : remove(digest));
    const collecting = each.collector.collect({ before: each.clock.now + 1 });
    await t.throwsAsync(collecting, { message: 'busy' });
    t.deepEqual(await filesOf(each), [kept]);
    t.deepEqual(await each.database.select('SELECT digest, state FROM blobs'), [{ digest: kept, state: 'deleting' }]);
  });

  suite('after 100 deletions that fail, no further one is tried', async (t, each) => {
    const rows = Array.from({ length: 150 }, (_, index) => ({ digest: digestOf(`${index}`), size: 2, stored_at: 0 }));
    await each.database.transaction((tx) => tx.insertNew('blobs', rows));
    let tried = 0;
    each.driver.delete = () => {
      tried += 1;
      return Promise.reject(new Error('busy'));
    };
    await t.throwsAsync(each.collector.collect({ before: 1 }), { message: 'busy' });
    t.is(tried, 100);
  });

  suite('content of unfinished pushes has a grace of its own', async (t, each) => {
    const rows = ['pending', 'live'].map((state) => ({ digest: digestOf(state), size: state.length, state }));
    await each.database.transaction((tx) =>
      tx.insertNew(
        'blobs',
        rows.map((row) => ({ ...row, stored_at: 10 })),
      ),
    );
    const pendingOnly = { before: 10, pendingBefore: 11 };
    t.deepEqual(await each.collector.collect({ ...pendingOnly, dryRun: true }), { blobs: 1, bytes: 7 });
    t.deepEqual(await each.collector.collect({ before: 11, pendingBefore: 10, dryRun: true }), { blobs: 1, bytes: 4 });
    t.deepEqual(await each.collector.collect({ before: 10 }), { blobs: 0, bytes: 0 });
    t.deepEqual(await each.collector.collect(pendingOnly), { blobs: 1, bytes: 7 });
    t.deepEqual(await rowsOf(each), [digestOf('live')]);
    t.deepEqual(await each.collector.collect({ before: 11, pendingBefore: 10 }), { blobs: 1, bytes: 4 });
    t.deepEqual(await rowsOf(each), []);
  });

  suite('a cancelled collection stops and loses nothing', async (t, each) => {
    await store(each, 'free', nothing);
    const digest = await store(each, 'kept', link);
    const signal = AbortSignal.abort(new Error('closing'));
    await t.throwsAsync(each.collector.collect({ before: each.clock.now + 1, signal }), { message: 'closing' });
    t.true((await rowsOf(each)).includes(digest));
    t.deepEqual(await readdir(each.paths.staging), []);
  });
}
