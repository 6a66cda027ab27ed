import { open, readdir, readFile, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import {
  contentOfPieces,
  digestOfContent,
  ownBytes,
  piecesOf,
  readAll,
  readThrough,
  type Content,
} from '../../../src/storage/files/content.ts';
import { localDisk, reserveReached, storageFull, writeAll, type Writing } from '../../../src/storage/files/disk.ts';
import { makeFile } from '../../../src/storage/files/durable.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { copyPieces } from '../../../src/storage/files/pieces.ts';
import { ReadWindow } from '../../../src/storage/files/read-window.ts';
import type { ZipBytes } from '../../../src/storage/files/zip-bytes.ts';
import { folderUntilEnd } from '../../support/folder.ts';

/** Content that gives at most `most` bytes at a time, and the sizes of its reads and the number of its ends. */
function slowContent(bytes: Buffer, most: number, size = bytes.length) {
  const seen: { reads: number[]; closed: number; targets: Buffer[] } = { reads: [], closed: 0, targets: [] };
  const content: Content = {
    size,
    read: (target, position) => {
      seen.reads.push(target.length);
      seen.targets.push(target);
      return Promise.resolve(bytes.copy(target.subarray(0, most), 0, position));
    },
    close: () => {
      seen.closed += 1;
    },
  };
  return { content, seen };
}

test('pieces in memory are read as one content', async (t) => {
  const content = contentOfPieces(['ab', '', 'cde'].map((each) => Buffer.from(each)));
  t.is(content.size, 5);
  for (const [position, length, expected] of [
    [0, 1, 'a'],
    [0, 9, 'ab'],
    [1, 9, 'b'],
    [2, 9, 'cde'],
    [3, 1, 'd'],
    [4, 9, 'e'],
    [5, 9, ''],
    [9, 9, ''],
  ] as const) {
    const target = Buffer.alloc(length);
    const read = await content.read(target, position);
    t.is(target.toString('latin1', 0, read), expected, `${length} from ${position}`);
  }
  t.is((await readAll(content, 5)).toString(), 'abcde');
});

test('all of content is read up to its size, and not more than a limit', async (t) => {
  const bytes = Buffer.from('0123456789');
  const whole = slowContent(bytes, 10);
  const read = await readAll(whole.content, 20);
  t.deepEqual(read, bytes);
  t.is(read.buffer, whole.seen.targets[0]!.buffer, 'not copied');
  t.deepEqual([whole.seen.reads, whole.seen.closed], [[10], 1]);
  const slow = slowContent(bytes, 4);
  t.deepEqual(await readAll(slow.content, 10), bytes);
  t.deepEqual([slow.seen.reads, slow.seen.closed], [[10, 6, 2], 1]);
  const large = slowContent(bytes, 4);
  await t.throwsAsync(readAll(large.content, 8), { instanceOf: RangeError, message: 'content is larger than 8 bytes' });
  t.deepEqual([large.seen.reads, large.seen.closed], [[9, 5, 1], 1]);
  const growing = slowContent(bytes, 5);
  const content = { ...growing.content, size: undefined };
  t.deepEqual(await readAll(content, 10), bytes);
  t.deepEqual(growing.seen.reads, [65_536, 65_536, 65_536]);
  await t.throwsAsync(readAll(content, 9), { instanceOf: RangeError });
  const short = slowContent(bytes, 10, 12);
  t.deepEqual(await readAll(short.content, 20), bytes, 'content that ends before its size');
  const failing = slowContent(bytes, 1);
  failing.content.read = () => Promise.reject(new Error('broken'));
  await t.throwsAsync(readAll(failing.content, 10), { message: 'broken' });
  t.is(failing.seen.closed, 1);
});

test('content is read piece by piece, and closed at the end', async (t) => {
  const bytes = Buffer.from('0123456789');
  const first = slowContent(bytes, 4);
  const pieces: string[] = [];
  for await (const piece of piecesOf(first.content)) pieces.push(piece.toString());
  t.deepEqual([pieces, first.seen.closed], [['0123', '4567', '89'], 1]);
  const left = slowContent(bytes, 4);
  for await (const piece of piecesOf(left.content)) if (piece.length > 0) break;
  t.is(left.seen.closed, 1);
  t.is(await readThrough(slowContent(bytes, 3).content), 10);
  t.is(await digestOfContent(slowContent(bytes, 3).content), digestOf(bytes));
  t.is(await digestOfContent(slowContent(bytes, 3).content, 'sha512'), digestOf(bytes, 'sha512'));
});

test('kept bytes have memory of their own', (t) => {
  const whole = Buffer.allocUnsafeSlow(3);
  t.is(ownBytes(whole), whole);
  const part = Buffer.from('abcdef').subarray(1, 4);
  const own = ownBytes(part);
  t.is(own.toString(), 'bcd');
  t.is(own.buffer.byteLength, 3);
});

test('bytes of pieces are copied from any position', (t) => {
  const pieces = ['ab', 'cde', 'f'].map((each) => Buffer.from(each));
  for (const [position, length, expected] of [
    [10, 6, 'abcdef'],
    [10, 9, 'abcdef'],
    [10, 1, 'a'],
    [11, 2, 'bc'],
    [12, 2, 'cd'],
    [14, 2, 'ef'],
    [15, 2, 'f'],
    [16, 2, ''],
  ] as const) {
    const target = Buffer.alloc(length);
    const copied = copyPieces(pieces, 10, target, position);
    t.is(target.toString('latin1', 0, copied), expected, `${length} from ${position}`);
  }
});

test('a window reads a file in steps, and what it has not again', async (t) => {
  const bytes = Buffer.from(Array.from({ length: 250 }, (_, index) => index));
  const reads: [number, number][] = [];
  const buffers = new Set<unknown>();
  const file = {
    size: bytes.length,
    inMemory: () => undefined,
    readInto: (target: Buffer, position: number) => {
      reads.push([position, target.length]);
      buffers.add(target.buffer);
      bytes.copy(target, 0, position);
      return Promise.resolve();
    },
  };
  const window = new ReadWindow(file as unknown as ZipBytes, 100);
  for (const [position, length] of [
    [10, 10],
    [100, 10],
    [10, 100],
    [101, 10],
    [100, 1],
    [200, 10],
    [240, 10],
    [0, 100],
    [0, 120],
  ] as const)
    t.deepEqual(await window.read(position, length), bytes.subarray(position, position + length), `${position}`);
  t.deepEqual(reads, [
    [10, 100],
    [101, 100],
    [100, 100],
    [200, 50],
    [0, 100],
    [0, 120],
  ]);
  t.is(buffers.size, 2, 'one for a step, and one for the longer read');
});

/** A disk that takes at most `most` bytes at a time, and none from `end` on. */
const inParts = (most: number, end = Number.POSITIVE_INFINITY): Writing => ({
  ...localDisk,
  write: async (file, some, position) => {
    if (position >= end) return 0;
    const bytes = Buffer.concat(some).subarray(0, most);
    return (await file.write(bytes, 0, bytes.length, position)).bytesWritten;
  },
});

test('a write that the disk takes in parts is completed, and one that fails leaves nothing', async (t) => {
  const path = join(await folderUntilEnd(t), 'file');
  await using handle = await open(path, 'w+');
  const pieces = ['ab', '', 'cde', 'f'].map((each) => Buffer.from(each));
  for (const most of [1, 2, 3, 4, 9]) {
    await handle.truncate(0);
    await writeAll(inParts(most), handle, [Buffer.from('.')], 0);
    await writeAll(inParts(most), handle, pieces, 1);
    t.is((await readFile(path)).toString(), '.abcdef', `${most} at a time`);
  }
  await t.throwsAsync(writeAll(inParts(2, 10), handle, pieces, 7), { message: 'the file system wrote no bytes' });
  t.is((await readFile(path)).toString(), '.abcdef');
  await using device = await open('/dev/null', 'w');
  await t.throwsAsync(writeAll(inParts(2, 3), device, pieces, 0), { message: 'the file system wrote no bytes' });
  const { bavail, bsize, blocks } = await statfs('/');
  const free = await localDisk.free('/');
  t.true(free <= blocks * bsize && Math.abs(free - bavail * bsize) < blocks * bsize * 0.2);
});

test('errors of a full disk, quota or database are a full storage', (t) => {
  for (const [error, message] of [
    [{ code: 'ENOSPC' }, /^The disk of this server is full\. Ask the operator/],
    [{ code: 'EDQUOT' }, /^The disk quota of this server is used up\. Ask the operator/],
    [{ code: 'EFBIG' }, /^A file on this server reached the limit for the size of a file\. Ask/],
    [{ errcode: 13 }, /^The disk of this server's database is full\. Ask the operator/],
    [{ errcode: 13 + 3 * 256 }, /database is full/],
    [{ errno: 1021 }, /database is full/],
    [{ errno: 1114 }, /database is full/],
    [{ parent: { parent: { errno: 1114 } } }, /database is full/],
  ] as const) {
    const found = storageFull(error);
    t.is(found?.name, 'StorageFull', JSON.stringify(error));
    t.regex(found!.message, message);
  }
  for (const error of [{}, { code: 'EIO' }, { errcode: 14 }, { errcode: 256 }, { errno: 1 }, { parent: {} }, undefined])
    t.is(storageFull(error), undefined, JSON.stringify(error));
  const reached = reserveReached();
  t.is(storageFull(reached), reached);
  t.regex(reached.message, /almost full.*Ask the operator/);
  t.is(storageFull(new DomainError('Aborted', 'no', { cause: { code: 'ENOSPC' } })), undefined);
});

test('a file is made once, as a whole, and for its user only', async (t) => {
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'key');
  await makeFile(file, 'first');
  await makeFile(file, 'second');
  t.is((await readFile(file)).toString(), 'first');
  t.is((await stat(file)).mode & 0o777, 0o600);
  t.deepEqual(await readdir(folder), ['key']);
  await t.throwsAsync(makeFile(join(folder, 'none', 'key'), ''), { code: 'ENOENT', message: /, open / });
  await writeFile(join(folder, 'plain'), '');
  await t.throwsAsync(makeFile(join(folder, 'plain', 'key'), ''), { code: 'ENOTDIR' });
});

test('the names in a data folder stay, because an upgrade must find its data', (t) => {
  const paths = new Paths('/data');
  t.like(paths, {
    data: '/data',
    blobs: '/data/blobs',
    identity: '/data/blobs/identity',
    staging: '/data/staging',
    quarantine: '/data/quarantine',
    cache: '/data/cache',
    bundles: '/data/bundles',
    unwritten: '/data/unwritten',
    secretKey: '/data/secret-key',
    folderId: '/data/folder-id',
  });
  t.is(paths.staged('id'), '/data/staging/id');
});
