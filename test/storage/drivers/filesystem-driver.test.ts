import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import test from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { openDriver, stage, store, testDriver } from './driver-suite.ts';

// In a process of its own: a helper declares tests of it.

const open = (paths: ConstructorParameters<typeof FilesystemDriver>[0]) => new FilesystemDriver(paths);

testDriver('filesystem', open);

test('only the user of the server may read a stored file', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('secret'));
  t.is((await stat(each.driver.pathOf(digest))).mode & 0o077, 0);
});

test('other files in the folders are not listed', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  const folder = join(each.paths.blobs, 'sha256');
  await mkdir(join(folder, 'lost+found'), { recursive: true });
  await writeFile(join(folder, 'note.txt'), 'x');
  await writeFile(join(dirname(each.driver.pathOf(digest)), 'note.txt'), 'x');
  await writeFile(join(folder, 'lost+found', digestOf('elsewhere').slice('sha256:'.length)), 'x');
  await mkdir(each.driver.pathOf(digestOf('a folder')), { recursive: true });
  const found = [];
  for await (const blobs of each.driver.list()) found.push(...blobs);
  t.like(found, [{ digest, size: 6 }]);
  t.is(found.length, 1);
});

test('other files, folders and links in the quarantine stay there', async (t) => {
  const each = await openDriver(t, open);
  const { quarantine } = each.paths;
  const named = (of: string) => join(quarantine, digestOf(of).replace(':', '-'));
  await mkdir(named('a folder'), { recursive: true });
  await writeFile(join(quarantine, 'note.txt'), 'x');
  await writeFile(join(each.paths.blobs, 'elsewhere'), 'x');
  await symlink(join(each.paths.blobs, 'elsewhere'), join(quarantine, 'link'));
  await writeFile(named('damaged'), 'damaged');
  const all = { before: Date.now() + 60_000, maxBytes: 0 };
  t.deepEqual(await each.driver.shrinkQuarantine(all), { blobs: 1, bytes: 7 });
  t.deepEqual((await readdir(quarantine)).toSorted(), ['link', 'note.txt', basename(named('a folder'))].toSorted());
});

test('a put makes a folder again that was removed, and keeps whole bytes that are there without the staged file', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  const path = each.driver.pathOf(digest);
  await rm(dirname(path), { recursive: true });
  await store(each, Buffer.from('stored'));
  t.is(await readFile(path, 'utf8'), 'stored');
  const { ino } = await stat(path);
  const staged = await stage(each, Buffer.from('stored'));
  await rm(staged.path);
  await each.driver.put(digest, staged);
  await staged.discard();
  t.is((await stat(path)).ino, ino, 'not written again');
});

test('a file that cannot be opened is not a missing one', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  await rm(each.driver.pathOf(digest));
  await t.throwsAsync(each.driver.open(digest, 6), { name: 'BlobUnknown' });
  // A link to itself: the root user can open everything else.
  await symlink(each.driver.pathOf(digest), each.driver.pathOf(digest));
  await t.throwsAsync(each.driver.open(digest, 6), { code: 'ELOOP' });
});

test('a missing folder fails the check, and lists nothing', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  await each.driver.check();
  await rm(each.paths.blobs, { recursive: true });
  await t.throwsAsync(each.driver.check(), { name: 'StorageUnavailable' });
  t.is(await each.driver.stat(digest), undefined);
  for await (const blobs of each.driver.list()) t.deepEqual(blobs, []);
});
