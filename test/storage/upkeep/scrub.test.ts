import { mkdir, readdir, readFile, rename, rmdir, unlink, writeFile } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import type { Dialect, Transaction } from '../../../src/database/database.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { DamageCheck, type Damage } from '../../../src/storage/blobs/damage.ts';
import { Scrubber } from '../../../src/storage/upkeep/scrub.ts';
import { mirrorEntry } from '../../support/builders/mirror-entry.ts';
import { flipBit } from '../../support/damage.ts';
import { dialects } from '../../support/databases.ts';
import { openStore, references, storedSize, type Store } from '../../support/store.ts';

interface ScrubbedStore extends Store {
  damages: Damage[];
  scrub(options?: { rate?: number }): ReturnType<Scrubber['scrub']>;
}

async function setUp(t: ExecutionContext, dialect: Dialect): Promise<ScrubbedStore> {
  const opened = await openStore(t, dialect);
  const { database, driver } = opened;
  await database.transaction(async (tx) => {
    await tx.insert('repositories', { account_id: 1, name: 'team/app', created_at: 0, updated_at: 0 });
  });
  const damage = new DamageCheck(database, driver, references);
  const damages: Damage[] = [];
  return {
    ...opened,
    damages,
    scrub: ({ rate = 2 ** 30 } = {}) =>
      new Scrubber(database, damage, rate).scrub({ report: (each) => damages.push(each) }),
  };
}

async function store({ blobs }: Store, bytes: Buffer, refer: (tx: Transaction, digest: Digest) => Promise<unknown>) {
  const arrival = await blobs.stageBytes(bytes);
  await blobs.commit([arrival], (tx) => refer(tx, arrival.digest));
  return arrival.digest;
}

const hosted = (tx: Transaction, digest: Digest) =>
  tx.insertNew('repository_blobs', [{ repository_id: 1, digest, linked_at: 0 }]);
const unreferenced = () => Promise.resolve();
const mirrored = (tx: Transaction, digest: Digest) => tx.insertNew('mirror_entries', [mirrorEntry(digest)]);

const clean = { corrupt: 0, missing: 0, unreadable: 0, damaged_hosted: 0, damaged_mirrored: 0 };

test.serial(
  'the position of a pass is saved every 5 seconds, and a pass that was killed continues there',
  async (t) => {
    const each = await setUp(t, 'sqlite');
    const digests: Digest[] = [];
    for (let index = 0; index < 6; index += 1) digests.push(await store(each, Buffer.from(`blob ${index}`), hosted));
    digests.sort();
    const now = performance.now.bind(performance);
    let passed = 0;
    performance.now = () => now() + passed;
    t.teardown(() => {
      performance.now = now;
    });
    const open = each.driver.open.bind(each.driver);
    const positions: unknown[] = [];
    each.driver.open = async (digest, ...rest) => {
      const [row] = await each.database.select<{ digest: string }>('SELECT digest FROM storage_cursors');
      positions.push(row?.digest);
      if (digest === digests[1]) passed += 5000;
      return open(digest, ...rest);
    };
    t.like(await each.scrub(), { blobs: 6 });
    t.deepEqual(positions, [undefined, undefined, digests[1], digests[1], digests[1], digests[1]]);
    t.deepEqual(await each.database.select('SELECT digest FROM storage_cursors'), []);
    await each.database.transaction((tx) => tx.insert('storage_cursors', { name: 'scrub', digest: digests[1]! }));
    t.like(await each.scrub(), { blobs: 4 });
  },
);

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, store: ScrubbedStore) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite('a flipped bit on disk is found, the file is quarantined, and a new push repairs it', async (t, each) => {
    const bytes = Buffer.alloc(700_000, 'hosted');
    const digest = await store(each, bytes, hosted);
    const whole = await store(each, Buffer.from('whole'), hosted);
    const empty = await store(each, Buffer.alloc(0), hosted);
    await each.database.transaction((tx) => tx.insert('storage_cursors', { name: 'other', digest: 'z' }));
    t.deepEqual(await each.scrub(), { blobs: 3, bytes: 700_005, ...clean });
    t.deepEqual(each.damages, []);
    const cursors = await each.database.select<{ name: string }>('SELECT name FROM storage_cursors');
    t.deepEqual(cursors, [{ name: 'other' }], 'the position of another job stays');
    await flipBit(each.driver.pathOf(digest), 555_555);
    t.like(await each.scrub(), { blobs: 3, corrupt: 1, missing: 0, damaged_hosted: 1, damaged_mirrored: 0 });
    const damage: Damage = {
      digest,
      size: 700_000,
      kind: 'corrupt',
      hosted: ['repository team/app'],
      mirrored: false,
    };
    t.deepEqual(each.damages.splice(0), [damage]);
    t.is(
      (await readFile(each.driver.quarantinePathOf(digest))).length,
      700_000,
      'the corrupt file is in the quarantine',
    );
    await t.throwsAsync(each.blobs.open(digest, 700_000), { name: 'ContentDamaged' }, 'wrong bytes are never served');
    t.like(await each.scrub(), { missing: 1, damaged_hosted: 1 }, 'the damage is reported until it is repaired');
    each.damages.length = 0;
    await store(each, bytes, hosted);
    t.deepEqual(await each.scrub(), { blobs: 3, bytes: 700_005, ...clean });
    t.deepEqual(await readAll(await each.blobs.open(digest, 700_000), 700_000), bytes);
    for (const good of [whole, empty]) t.true((await storedSize(each, good))! >= 0);
  });

  suite('damaged mirrored content is removed, so that it is fetched again', async (t, each) => {
    const digest = await store(each, Buffer.from('mirrored'), mirrored);
    const lost = await store(each, Buffer.from('lost'), mirrored);
    const both = await store(each, Buffer.from('both'), async (tx, found) => {
      await mirrored(tx, found);
      await hosted(tx, found);
    });
    const free = await store(each, Buffer.from('unreferenced'), unreferenced);
    for (const bad of [digest, both, free]) await flipBit(each.driver.pathOf(bad), 0);
    await unlink(each.driver.pathOf(lost));
    t.like(await each.scrub(), { blobs: 4, corrupt: 3, missing: 1, damaged_hosted: 1, damaged_mirrored: 3 });
    t.deepEqual(await each.database.select('SELECT id FROM mirror_entries'), []);
    t.deepEqual(await each.database.select('SELECT digest FROM blobs'), [{ digest: both }], 'hosted content needs it');
    t.is((await readdir(each.paths.quarantine)).length, 3);
    t.like(
      each.damages.find((each) => each.digest === both),
      { hosted: ['repository team/app'], mirrored: true },
    );
  });

  suite('damaged content that only a row without an owner needs is reported, and keeps its row', async (t, each) => {
    const digest = await store(each, Buffer.from('no owner'), (tx, found) =>
      tx.insertNew('repository_blobs', [{ repository_id: 99, digest: found, linked_at: 0 }]),
    );
    await flipBit(each.driver.pathOf(digest), 0);
    t.like(await each.scrub(), { corrupt: 1, damaged_hosted: 1 });
    t.like(each.damages, [{ digest, hosted: ['a row without an owner'] }]);
    t.is(await storedSize(each, digest), 8, 'a push of the same content repairs it');
  });

  suite('while the folder of the content is not there, nothing counts as lost', async (t, each) => {
    await store(each, Buffer.from('mirrored'), mirrored);
    await store(each, Buffer.from('hosted'), hosted);
    const entries = () => each.database.select('SELECT digest FROM mirror_entries');
    const before = await entries();
    t.is(before.length, 1);
    const { blobs: folder } = each.paths;
    await rename(folder, `${folder}-elsewhere`);
    await mkdir(folder);
    await t.throwsAsync(each.scrub(), { name: 'StorageUnavailable' });
    t.deepEqual(await entries(), before);
    await rmdir(folder);
    await rename(`${folder}-elsewhere`, folder);
    t.like(await each.scrub(), { missing: 0 });
  });

  suite('a blob that cannot be opened is named, stays, and does not end the pass', async (t, each) => {
    const digests = [];
    for (let index = 0; index < 5; index += 1) digests.push(await store(each, Buffer.from(`blob ${index}`), hosted));
    const [closed] = digests.toSorted();
    const open = each.driver.open.bind(each.driver);
    each.driver.open = (digest, ...rest) =>
      digest === closed
        ? Promise.reject(Object.assign(new Error('no permission'), { code: 'EACCES' }))
        : open(digest, ...rest);
    t.deepEqual(await each.scrub(), { blobs: 5, bytes: 30, ...clean, unreadable: 1, damaged_hosted: 1 });
    t.like(each.damages, [{ digest: closed, kind: 'unreadable', hosted: ['repository team/app'] }]);
    each.driver.open = open;
    t.deepEqual(await each.scrub(), { blobs: 5, bytes: 30, ...clean });
  });

  suite('a file of another length is corrupt', async (t, each) => {
    const digest = await store(each, Buffer.from('four'), hosted);
    await writeFile(each.driver.pathOf(digest), '');
    t.like(await each.scrub(), { corrupt: 1 });
    await store(each, Buffer.from('four'), hosted);
    await writeFile(each.driver.pathOf(digest), 'fourfold');
    t.like(await each.scrub(), { corrupt: 1 });
  });

  suite('an interrupted pass continues at its position; the next pass starts again', async (t, each) => {
    const digests: Digest[] = [];
    for (let index = 0; index < 30; index += 1) {
      digests.push(await store(each, Buffer.from(`blob ${index}`), hosted));
    }
    await unlink(each.driver.pathOf(digests.sort()[9]!));
    const controller = new AbortController();
    const pass = new Scrubber(each.database, new DamageCheck(each.database, each.driver, references), 2 ** 30).scrub({
      signal: controller.signal,
      report: () => controller.abort(),
    });
    await t.throwsAsync(pass, { name: 'AbortError' });
    t.like(await each.scrub(), { blobs: 20, missing: 0 }, 'checked blobs are not checked again');
    t.like(await each.scrub(), { blobs: 30, missing: 1 });
  });

  suite('it does not read faster than the rate', async (t, each) => {
    await store(each, Buffer.alloc(1_000_000), hosted);
    const startedAt = performance.now();
    await each.scrub({ rate: 4_000_000 });
    const took = performance.now() - startedAt;
    t.true(took >= 250, `${took} ms for a quarter of a second's bytes`);
  });
}
