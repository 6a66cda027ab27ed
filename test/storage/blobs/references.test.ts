import test, { type ExecutionContext } from 'ava';
import { migrate } from '../../../src/database/migrate.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { pageEnd, References, type BlobReferences } from '../../../src/storage/blobs/references.ts';
import { allOf } from '../../support/all-of.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// What refers to a blob, with tables of this test.

const shared = 99;
/** In order; the blob at `index` has 10 to the power of it bytes. */
const digests = Array.from({ length: 7 }, (_, index): Digest => `sha256:${String(index).repeat(64)}`);

const owned = (table: string) => `SELECT account_id, digest FROM ${table} WHERE digest > ? AND digest <= ?`;

async function setUp(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  await database.transaction(async (tx) => {
    for (const table of ['hosted_refs', 'sparse_refs', 'mirror_refs', 'free_refs'])
      await tx.run(`CREATE TABLE ${table} (account_id BIGINT, digest VARCHAR(135), absent BIGINT, kept BIGINT)`, []);
    for (const [index, digest] of digests.entries())
      await tx.insert('blobs', { digest, size: 10 ** index, state: 'live', generation: 1, stored_at: 1 });
    const refer = (table: string, index: number, account_id: number | null, absent = 0, kept = 0) =>
      tx.insert(table, { account_id, digest: digests[index]!, absent, kept });
    await refer('hosted_refs', 0, 1);
    await refer('hosted_refs', 0, 2);
    await refer('mirror_refs', 0, 1);
    await refer('sparse_refs', 1, 1, 1);
    await refer('sparse_refs', 2, 1, 0);
    await refer('mirror_refs', 3, null, 0, 1);
    await refer('mirror_refs', 3, null, 0, 0);
    await refer('mirror_refs', 4, 2, 0, 0);
    await refer('free_refs', 5, 2);
  });
  const forgotten: string[] = [];
  const hosted: BlobReferences = {
    origin: 'hosted',
    tables: ['hosted_refs', 'sparse_refs'],
    sparse: ['sparse_refs'],
    owned: [owned('hosted_refs'), `${owned('sparse_refs')} AND absent = 0`],
    holders: (_, digest, limit) => Promise.resolve([`package ${digests.indexOf(digest)}`, `of ${limit}`]),
  };
  const mirrored: BlobReferences = {
    origin: 'mirrored',
    tables: ['mirror_refs', 'free_refs'],
    lasting: { mirror_refs: 'kept = 1' },
    owned: [owned('mirror_refs'), owned('free_refs')],
    forget: (_, digest) => Promise.resolve(void forgotten.push(digest)),
  };
  const references = new References([hosted, mirrored]);
  const which = async (condition: string) => {
    const rows = await database.select<{ digest: Digest }>(
      `SELECT digest FROM blobs WHERE ${condition} ORDER BY digest`,
      [],
    );
    return rows.map(({ digest }) => digests.indexOf(digest));
  };
  return { database, references, hosted, mirrored, forgotten, which };
}

test('blobs are hosted, mirrored, lasting or free by the rows of the tables', async (t) => {
  const { references, hosted, mirrored, which } = await setUp(t);
  t.deepEqual(await which(references.isHosted), [0, 2]);
  t.deepEqual(await which(references.isMirrored), [0, 3, 4, 5]);
  t.deepEqual(await which(references.isReferenced), [0, 2, 3, 4, 5]);
  t.deepEqual(await which(references.isLasting), [3]);
  t.deepEqual(references.lasting, { mirror_refs: 'kept = 1', free_refs: '0 = 1' });
  t.deepEqual(references.needing, ['hosted_refs', 'mirror_refs', 'free_refs']);
  const none = new References([hosted]);
  t.deepEqual(await which(none.isMirrored), []);
  t.deepEqual(await which(none.isLasting), []);
  t.deepEqual(none.lasting, {});
  t.deepEqual(await which(new References([mirrored]).isHosted), []);
});

test('every kind of reference names its holders and is forgotten, if it has them', async (t) => {
  const { database, references, forgotten } = await setUp(t);
  await database.transaction(async (tx) => {
    t.deepEqual(await references.holders(tx, digests[2]!, 5), ['package 2', 'of 5']);
    await references.forget(tx, digests[3]!);
  });
  t.deepEqual(forgotten, [digests[3]]);
});

test('each blob counts once for an account, as hosted if it is, in as many pages as there are', async (t) => {
  const { database, references } = await setUp(t);
  for (const [step, pages] of [
    [1, 7],
    [2, 4],
    [3, 3],
    [7, 1],
    [8, 1],
    [100, 1],
  ] as const) {
    const found = await allOf(references.holdings(database, shared, step));
    // A full page may be the last one.
    t.is(found.length, pages, `${step} at a time`);
    const sums = new Map<string, number>();
    for (const { account_id, mirrored, bytes } of found.flat()) {
      const key = `${account_id} ${mirrored === 1 ? 'mirrored' : 'hosted'}`;
      sums.set(key, (sums.get(key) ?? 0) + bytes);
    }
    t.deepEqual(
      [...sums].toSorted(([a], [b]) => (a < b ? -1 : 1)),
      [
        ['1 hosted', 101],
        ['2 hosted', 1],
        ['2 mirrored', 110_000],
        ['99 mirrored', 1000],
      ],
      `${step} at a time`,
    );
  }
  await database.transaction((tx) => tx.run('DELETE FROM blobs', []));
  t.deepEqual(await allOf(references.holdings(database, shared, 2)), []);
});

test('a page ends with its last digest, and the last page has no end', async (t) => {
  const { database } = await setUp(t);
  t.is(await pageEnd(database, '', 2), digests[1]);
  t.is(await pageEnd(database, digests[1]!, 2), digests[3]);
  t.is(await pageEnd(database, digests[4]!, 2), digests[6]);
  t.is(await pageEnd(database, digests[5]!, 2), undefined);
  t.is(await pageEnd(database, digestOf('never stored').replace(/:./, ':f'), 1), undefined);
});
