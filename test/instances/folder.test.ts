import { copyFile, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderIdentity } from '../../src/instances/folder.ts';
import { watchSyncs } from '../support/disk.ts';
import { folderUntilEnd } from '../support/folder.ts';

test('processes of one data folder have the same identity, and those of a copy another one', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'instance');
  const all = await Promise.all(Array.from({ length: 8 }, () => folderIdentity(file)));
  t.is(new Set(all).size, 1);
  const text = await readFile(file, 'utf8');
  t.regex(text, /^[\da-f-]{36}\n$/);
  const { ino } = await stat(file, { bigint: true });
  t.is(all[0], `${text.trim()}.${ino}`);
  t.is(await folderIdentity(file), all[0]!);
  await copyFile(file, join(folder, 'copy'));
  const copy = await folderIdentity(join(folder, 'copy'));
  t.not(copy, all[0]);
  t.true(copy.startsWith(`${text.trim()}.`));
});

test('a file that a power cut has left empty is written again, and only its first line counts', async (t) => {
  const folder = await folderUntilEnd(t);
  for (const left of ['', '\0\0\0\0', ' \n']) {
    const file = join(folder, `left-${left.length}`);
    await writeFile(file, left);
    const found = await Promise.all([folderIdentity(file), folderIdentity(file)]);
    t.is(found[0], found[1]);
    t.regex(found[0], /^[\da-f-]{36}\.\d+$/);
    t.is(await folderIdentity(file), found[0]);
  }
  const two = join(folder, 'two');
  const [first, second] = ['a'.repeat(36), 'b'.repeat(36)];
  await writeFile(two, `${first}\n${second}\n`);
  t.regex(await folderIdentity(two), /^a{36}\.\d+$/);
});

test('a damaged file, and one that cannot be read or made, is an error', async (t) => {
  const folder = await folderUntilEnd(t);
  for (const [name, text] of [
    ['short', 'a'.repeat(35)],
    ['long', 'a'.repeat(37)],
    ['other', 'g'.repeat(36)],
  ] as const) {
    const file = join(folder, name);
    await writeFile(file, text);
    await t.throwsAsync(folderIdentity(file), { message: `${file} is damaged. Delete it while no server runs` });
  }
  await mkdir(join(folder, 'folder'));
  await t.throwsAsync(folderIdentity(join(folder, 'folder')), { code: 'EISDIR' });
  await t.throwsAsync(folderIdentity(join(folder, 'none', 'file')), { code: 'ENOENT' });
});

test.serial(
  'while the disk takes no file, each start has an identity of its own, and another failure is an error',
  async (t) => {
    const file = join(await folderUntilEnd(t), 'instance');
    let code: string | undefined;
    await watchSyncs(t, (path) => {
      if (path.startsWith(file)) throw Object.assign(new Error('no sync'), code !== undefined && { code });
    });
    for (code of ['ENOSPC', 'EDQUOT', 'EROFS']) {
      const [one, two] = [await folderIdentity(file), await folderIdentity(file)];
      for (const each of [one, two]) t.regex(each, /^[\da-f-]{36}$/, code);
      t.not(one, two);
    }
    for (code of ['EIO', undefined]) await t.throwsAsync(folderIdentity(file), { message: 'no sync' });
  },
);
