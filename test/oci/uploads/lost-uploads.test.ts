import { utimes, writeFile } from 'node:fs/promises';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { dropLostUploads, dropStagedFiles, withoutFile } from '../../../src/oci/uploads/lost-uploads.ts';
import { dialects } from '../../support/databases.ts';
import { openStore } from '../../support/store.ts';

const before = 1_000_000;

/** A store with these sessions: the folder of each, when it was changed, and whether it is lost. */
async function open(t: ExecutionContext, dialect: Dialect, sessions: Record<string, [string | null, number, number]>) {
  const store = await openStore(t, dialect);
  const { database } = store;
  await database.transaction(async (tx) => {
    for (const [id, [folder, updatedAt, lost]] of Object.entries(sessions))
      await tx.insertNew('uploads', [
        { id, account_id: 1, repository: 'app', received: 0, created_at: 0, updated_at: updatedAt, folder, lost },
      ]);
  });
  const left = async () =>
    (await database.select<{ id: string }>('SELECT id FROM uploads ORDER BY id')).map(({ id }) => id);
  return { ...store, left };
}

for (const dialect of dialects) {
  test(`${dialect}: lost and old sessions end if no live instance has their folder`, async (t) => {
    const { database, left } = await open(t, dialect, {
      'gone-lost': ['gone', before, 1],
      'gone-new': ['gone', before, 0],
      'gone-old': ['gone', before - 1, 0],
      'here-lost': ['here', 0, 1],
      'here-old': ['here', 0, 0],
      'live-old': ['live', 0, 0],
      'no-folder': [null, 0, 1],
      'other-lost': ['other', before + 5, 1],
      'third-new': ['third', before, 0],
    });
    const instances = { folder: 'here', live: () => Promise.resolve([{ folder: 'live' }]) } as never;
    t.is(await dropLostUploads(database, instances, before), 3);
    t.deepEqual(await left(), ['gone-new', 'here-lost', 'here-old', 'live-old', 'no-folder', 'third-new']);
    t.is(await dropLostUploads(database, instances, before), 0);
  });

  test(`${dialect}: sessions of a folder without a file are found, and files without a session are removed`, async (t) => {
    const { database, blobs, paths, left } = await open(t, dialect, {
      file: ['here', 0, 0],
      lost: ['here', 0, 1],
      new: ['here', before, 0],
      old: ['here', before - 1, 0],
      there: ['there', 0, 0],
    });
    const put = async (id: string, milliseconds: number) => {
      await writeFile(paths.staged(id), '1234');
      await utimes(paths.staged(id), milliseconds / 1000, milliseconds / 1000);
    };
    await put('file', 0);
    await put('stray', before - 1000);
    await put('young', before);
    t.deepEqual(await withoutFile(database, blobs, 'here', before), ['old']);
    t.deepEqual(await dropStagedFiles(database, blobs, before), { files: 1, bytes: 4 });
    t.deepEqual((await blobs.stagedIds()).toSorted(), ['file', 'young']);
    t.is((await left()).length, 5);
  });
}
