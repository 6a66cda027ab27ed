import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { readdir, rename, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import test from 'ava';
import { LockedProcesses, type Lock } from '../../src/database/processes.ts';
import { folderUntilEnd } from '../support/folder.ts';

test('a process has ended when nothing locks its file, or when it has none', async (t) => {
  const folder = join(await folderUntilEnd(t), 'processes');
  const locked = new Set<string>();
  const lock: Lock = (path) => {
    const name = basename(path).replace('.new', '');
    if (locked.has(name)) return undefined;
    locked.add(name);
    // As SQLite does.
    writeFileSync(path, '');
    return { [Symbol.dispose]: () => void locked.delete(name) };
  };
  const missing = randomUUID();
  const others = new LockedProcesses(folder, lock);
  t.deepEqual([...(await others.gone([missing]))], [], 'without the folder nothing is known');

  const own = new LockedProcesses(folder, lock);
  const id = own.id!;
  t.is(own.id, id);
  t.deepEqual(await readdir(folder), [id]);
  const [killed, alive] = [randomUUID(), randomUUID()];
  for (const each of [killed, alive]) await writeFile(join(folder, each), '');
  locked.add(alive);
  t.deepEqual([...(await own.gone([id, killed, alive, missing, '../outside', '']))], [killed, missing]);
  t.deepEqual((await readdir(folder)).toSorted(), [id, alive].toSorted(), 'the file of the killed one is removed');
  t.deepEqual([...(await own.gone([id]))], [], 'never itself');

  own[Symbol.dispose]();
  t.false(locked.has(id));
  t.deepEqual(await readdir(folder), [alive]);
  t.is(own.id, null, 'it signs nothing any more');
  t.deepEqual([...(await others.gone([id]))], [id]);
  await rename(folder, `${folder}.away`);
  t.deepEqual([...(await others.gone([id]))], []);
});

test('a process whose file cannot be made has no name, and another start removes what killed ones have left', async (t) => {
  const folder = await folderUntilEnd(t);
  let locks = 0;
  const failing = new LockedProcesses(folder, () => {
    locks += 1;
    throw new Error('no room');
  });
  t.is(failing.id, null);
  t.is(failing.id, null);
  t.is(locks, 1, 'it tries once');
  const left = randomUUID();
  await writeFile(join(folder, left), '');
  await writeFile(join(folder, 'other'), '');
  const next = new LockedProcesses(folder, (path) => {
    writeFileSync(path, '');
    return { [Symbol.dispose]: () => undefined };
  });
  const id = next.id!;
  t.deepEqual((await readdir(folder)).toSorted(), [id, 'other'].toSorted());
});
