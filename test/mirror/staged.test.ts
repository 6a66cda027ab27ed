import test from 'ava';
import type { Digest } from '../../src/runtime/digest.ts';
import { holdMirrored, releaseStaged, stageContent } from '../../src/mirror/store/staged.ts';
import { mirrorEntry } from '../support/builders/mirror-entry.ts';
import { openStore } from '../support/store.ts';

// Which content an import holds without its bytes.

test('an import holds mirrored content of the right size alone, and releases only its own', async (t) => {
  const { database, blobs } = await openStore(t, 'sqlite');
  const push = async (text: string) => {
    const arrival = await blobs.stageBytes(Buffer.from(text));
    await blobs.commit([arrival], () => Promise.resolve());
    return { digest: arrival.digest, size: text.length };
  };
  const mirrored = await push('mirrored');
  const larger = await push('larger');
  const removed = await push('removed');
  const staged = await push('staged');
  const hosted = await push('hosted');
  const foreign = await push('foreign');
  const absent = { digest: `sha256:${'a'.repeat(64)}` as Digest, size: 6 };
  await database.transaction(async (tx) => {
    const entries = [mirrored, larger, removed, absent].map(({ digest }) => mirrorEntry(digest));
    await tx.insertNew('mirror_entries', entries);
    await tx.run("UPDATE blobs SET state = 'deleting' WHERE digest = ?", [removed.digest]);
    await stageContent(tx, 'other', [staged]);
  });
  const asked = [mirrored, { ...larger, size: larger.size + 1 }, removed, staged, hosted, foreign, absent];
  const held = await database.transaction((tx) => holdMirrored(tx, 'own', asked, new Set([hosted.digest])));
  const expected = [mirrored, staged, hosted];
  t.deepEqual(held, expected);
  const rowsOf = (id: string) =>
    database.select('SELECT digest, size_bytes AS size FROM mirror_staged WHERE import_id = ? ORDER BY digest', [id]);
  t.deepEqual(
    await rowsOf('own'),
    expected.toSorted((a, b) => (a.digest < b.digest ? -1 : 1)),
  );
  await database.transaction((tx) => releaseStaged(tx, 'own'));
  t.deepEqual(await rowsOf('own'), []);
  t.deepEqual(await rowsOf('other'), [staged]);
});
