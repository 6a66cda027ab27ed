import { randomBytes } from 'node:crypto';
import type { PathLike, StatOptions } from 'node:fs';
import fs, { mkdir, readdir, readFile, readlink, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename, dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { FilesystemDriver } from '../../../src/storage/drivers/filesystem.ts';
import { allOf } from '../../support/all-of.ts';
import { removeFirst } from '../../support/disk.ts';
import { openDriver, stage, store, testDriver } from './driver-suite.ts';

// In a process of its own: a helper declares tests of it.

const open = (paths: ConstructorParameters<typeof FilesystemDriver>[0]) => new FilesystemDriver(paths);

testDriver('filesystem', open);

/** Descriptors of this process for files and folders below `path`. */
async function descriptors(path: string): Promise<string[]> {
  const all = await readdir('/proc/self/fd');
  const links = await Promise.all(all.map((each) => readlink(`/proc/self/fd/${each}`).catch(() => '')));
  return links.filter((each) => each.startsWith(path)).sort();
}

/** Makes a disk of folder `data` that has no links, as some network disks, until the test ends. */
function forbidLinks(t: ExecutionContext, data: string): void {
  const { link } = fs;
  const replace = (by: typeof link) => {
    fs.link = by;
    syncBuiltinESMExports();
  };
  replace(async (from, to) => {
    if (String(from).startsWith(data)) throw Object.assign(new Error('EPERM: not permitted, link'), { code: 'EPERM' });
    return link(from, to);
  });
  t.teardown(() => replace(link));
}

test.serial('on a disk without links, a put renames the staged file unless the bytes are there', async (t) => {
  const each = await openDriver(t, open);
  forbidLinks(t, each.paths.data);
  const bytes = Buffer.from('content');
  const staged = await stage(each, bytes);
  const { ino } = await stat(staged.path);
  const digest = digestOf(bytes);
  await each.driver.put(digest, staged);
  const path = each.driver.pathOf(digest);
  t.is((await stat(path)).ino, ino);
  t.deepEqual(await readdir(each.paths.staging), []);
  await staged.discard();
  const again = await stage(each, bytes);
  await each.driver.put(digest, again);
  t.is((await stat(path)).ino, ino, 'the bytes stay');
  t.deepEqual(await readdir(each.paths.staging), [basename(again.path)]);
  await again.discard();
  const longer = await stage(each, Buffer.from('content and more'));
  await each.driver.put(digest, longer);
  await longer.discard();
  t.is(await readFile(path, 'utf8'), 'content and more');

  await each.driver.writeIdentity('ours');
  await each.driver.writeIdentity('theirs');
  t.is(await each.driver.readIdentity(), 'ours');
  await each.driver.writeIdentity('theirs', true);
  t.is(await each.driver.readIdentity(), 'theirs');
});

test.serial('a folder of another disk is not used, also if it has the same number', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  await each.driver.check();
  const { stat: real } = fs;
  const replace = (by: typeof real) => {
    fs.stat = by;
    syncBuiltinESMExports();
  };
  t.teardown(() => replace(real));
  const mounted = async (path: PathLike, options?: StatOptions) => {
    const found = await real(path, options);
    if (path === each.paths.blobs && typeof found.dev === 'bigint') found.dev += 1n;
    return found;
  };
  replace(mounted as typeof real);
  await t.throwsAsync(each.driver.check(), { name: 'StorageUnavailable', message: /was removed or replaced/ });
  await t.throwsAsync(store(each, Buffer.from('new')), { name: 'StorageUnavailable' });
  t.is((await each.driver.stat(digest))?.size, 6);
});

test('a put links the staged file, also into a new folder', async (t) => {
  const each = await openDriver(t, open);
  const bytes = Buffer.from('content');
  const staged = await stage(each, bytes);
  const digest = digestOf(bytes);
  await each.driver.put(digest, staged);
  t.is((await stat(each.driver.pathOf(digest))).ino, (await stat(staged.path)).ino);
  await staged.discard();
});

test('the folder of the blobs is open from the start to the end, and a check leaves nothing open', async (t) => {
  const each = await openDriver(t, open);
  await each.driver.prepare();
  await store(each, Buffer.from('content'));
  await each.driver.writeIdentity('ours');
  for (let time = 0; time < 3; time += 1) await each.driver.check();
  t.deepEqual(await descriptors(each.paths.data), [each.paths.blobs]);
  await each.driver.close();
  t.deepEqual(await descriptors(each.paths.data), []);
});

test('a blob of a large folder is listed once, in pages of 500 blobs', async (t) => {
  const each = await openDriver(t, open);
  const digests = Array.from({ length: 1000 }, (_, index) => `sha256:ab${String(index).padStart(62, '0')}` as const);
  await mkdir(dirname(each.driver.pathOf(digests[0]!)), { recursive: true });
  for (const digest of digests) await writeFile(each.driver.pathOf(digest), 'x');
  const pages = await allOf(each.driver.list());
  t.deepEqual(
    pages.map((page) => page.map(({ digest }) => digest)),
    [digests.slice(0, 500), digests.slice(500)],
  );
});

test('what was moved to the quarantine at the time of the bound stays', async (t) => {
  const each = await openDriver(t, open);
  await mkdir(each.paths.quarantine);
  const path = each.driver.quarantinePathOf(digestOf('content'));
  await writeFile(path, 'content');
  const { ctimeMs } = await stat(path);
  const shrink = (before: number) => each.driver.shrinkQuarantine({ before, maxBytes: 7 });
  t.deepEqual(await shrink(ctimeMs), { blobs: 0, bytes: 0 });
  t.deepEqual(await shrink(ctimeMs + 1), { blobs: 1, bytes: 7 });
});

test.serial('blobs in the quarantine that another process removes meanwhile are no failure', async (t) => {
  const each = await openDriver(t, open);
  removeFirst(t);
  await mkdir(each.paths.quarantine);
  for (const name of ['one', 'two']) await writeFile(each.driver.quarantinePathOf(digestOf(name)), name);
  const bounds = { before: Date.now() + 60_000, maxBytes: 0 };
  t.deepEqual(await each.driver.shrinkQuarantine(bounds), { blobs: 2, bytes: 6 });
  t.deepEqual(await readdir(each.paths.quarantine), []);
});

test('only the user of the server may read a stored file', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('secret'));
  t.is((await stat(each.driver.pathOf(digest))).mode & 0o077, 0);
  const folder = dirname(each.driver.pathOf(digest));
  t.is((await stat(folder)).mode & 0o777, 0o700);
  await rm(folder, { recursive: true });
  await store(each, Buffer.from('secret'));
  t.is((await stat(folder)).mode & 0o777, 0o700, 'made again');
  t.is((await stat(each.driver.pathOf(digest))).mode & 0o077, 0);
  await each.driver.writeIdentity('ours');
  t.is((await stat(each.paths.identity)).mode & 0o077, 0);
});

test('the data folder is named by its path, and its identity is one line of a file', async (t) => {
  const each = await openDriver(t, open);
  t.deepEqual(each.driver.describe(), { kind: 'data folder', name: each.paths.data, setting: 'data' });
  const { ino } = await stat(each.paths.blobs, { bigint: true });
  t.deepEqual(await each.driver.fact(), { place: 'folder', inode: ino });
  await each.driver.writeIdentity('ours');
  await each.driver.writeIdentity('theirs');
  t.is(await readFile(each.paths.identity, 'utf8'), 'ours\n');
  await each.driver.writeIdentity('theirs', true);
  t.is(await readFile(each.paths.identity, 'utf8'), 'theirs\n');
  t.deepEqual(await readdir(each.paths.blobs), [basename(each.paths.identity)], 'no other files stay');
  await writeFile(each.paths.identity, ' edited \r\n');
  t.is(await each.driver.readIdentity(), 'edited');
  await rm(each.paths.identity);
  t.is(await each.driver.readIdentity(), undefined);
  await mkdir(each.paths.identity);
  await t.throwsAsync(each.driver.readIdentity(), { code: 'EISDIR' });
  await rm(each.paths.blobs, { recursive: true });
  t.is(await each.driver.fact(), undefined);
  await each.driver.close();
  await t.notThrowsAsync(each.driver.close());
});

test('other files in the folders are not listed', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  const folder = join(each.paths.blobs, 'sha256');
  await mkdir(join(folder, 'lost+found'), { recursive: true });
  await writeFile(join(folder, 'note.txt'), 'x');
  await writeFile(join(dirname(each.driver.pathOf(digest)), 'note.txt'), 'x');
  for (const name of ['elsewhere', 'stored'])
    await writeFile(join(folder, 'lost+found', digestOf(name).slice('sha256:'.length)), 'x');
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
  // More than is copied at a time.
  const bytes = randomBytes(2 ** 20 + 5);
  const digest = await store(each, bytes);
  const path = each.driver.pathOf(digest);
  await rm(dirname(path), { recursive: true });
  const again = await stage(each, bytes);
  const read = again.read.bind(again);
  const pieces: number[] = [];
  again.read = (target, position) => {
    pieces.push(target.length);
    return read(target, position);
  };
  await each.driver.put(digest, again);
  t.true(bytes.equals(await readFile(path)));
  t.deepEqual(pieces, [2 ** 20, 2 ** 20], 'never all of it in memory');
  await rm(again.path);
  await rm(path);
  await each.driver.put(digest, again);
  t.true(bytes.equals(await readFile(path)), 'from the open file, whose name is gone');
  t.deepEqual(await readdir(each.paths.staging), []);
  await again.discard();
  const { ino } = await stat(path);
  const staged = await stage(each, bytes);
  await rm(staged.path);
  await each.driver.put(digest, staged);
  await staged.discard();
  t.is((await stat(path)).ino, ino, 'not written again');
});

test('a put that cannot take the place of a folder fails without a copy', async (t) => {
  const each = await openDriver(t, open);
  const bytes = Buffer.from('content');
  await mkdir(each.driver.pathOf(digestOf(bytes)), { recursive: true });
  const staged = await stage(each, bytes);
  staged.read = () => Promise.reject(new Error('read'));
  await t.throwsAsync(each.driver.put(digestOf(bytes), staged), { code: 'EISDIR' });
  await staged.discard();
});

test('a staged file that was cut is not copied, and leaves no part', async (t) => {
  const each = await openDriver(t, open);
  const bytes = Buffer.from('content');
  const digest = await store(each, bytes);
  await rm(dirname(each.driver.pathOf(digest)), { recursive: true });
  const staged = await stage(each, bytes);
  await truncate(staged.path, 3);
  await t.throwsAsync(each.driver.put(digest, staged), { message: `${staged.path} is shorter than its 7 bytes` });
  t.deepEqual(await readdir(each.paths.staging), [basename(staged.path)]);
  t.is(await each.driver.stat(digest), undefined);
  await staged.discard();
});

test('a file that cannot be opened is not a missing one', async (t) => {
  const each = await openDriver(t, open);
  const digest = await store(each, Buffer.from('stored'));
  await rm(each.driver.pathOf(digest));
  await t.throwsAsync(each.driver.open(digest, 6), { name: 'BlobUnknown' });
  // A link to itself: the root user can open everything else.
  await symlink(each.driver.pathOf(digest), each.driver.pathOf(digest));
  await t.throwsAsync(each.driver.open(digest, 6), { code: 'ELOOP' });
  await t.throwsAsync(each.driver.stat(digest), { code: 'ELOOP' });
  await t.throwsAsync(
    async () => {
      for await (const page of each.driver.list()) t.fail(`${page.length} listed`);
    },
    { code: 'ELOOP' },
  );
  await each.driver.delete(digest);
  await mkdir(each.driver.pathOf(digest));
  await t.throwsAsync(each.driver.delete(digest), { message: /^E(?:ISDIR|PERM): .*unlink/ });
});

test('a folder that replaced the one of the start is not used', async (t) => {
  const each = await openDriver(t, open);
  const unprepared = open(each.paths);
  await rm(each.paths.blobs, { recursive: true });
  await mkdir(each.paths.blobs);
  await t.throwsAsync(each.driver.check(), { name: 'StorageUnavailable', message: /was removed or replaced/ });
  await t.throwsAsync(store(each, Buffer.from('new')), { name: 'StorageUnavailable' });
  await t.notThrowsAsync(each.driver.checkWrites());
  await t.notThrowsAsync(unprepared.check());
  await each.driver.prepare();
  await t.notThrowsAsync(store(each, Buffer.from('new')));
  await rm(each.paths.blobs, { recursive: true });
  await t.throwsAsync(each.driver.checkWrites(), { code: 'ENOENT' });
  await t.throwsAsync(unprepared.check(), { code: 'ENOENT' });
  await symlink(each.paths.blobs, each.paths.blobs);
  await t.throwsAsync(each.driver.check(), { code: 'ELOOP' }, 'nobody knows whether it was replaced');
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
