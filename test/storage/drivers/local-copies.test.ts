import { mkdir, readdir, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Digest } from '../../../src/runtime/digest.ts';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import { readAll, type Content } from '../../../src/storage/files/content.ts';
import { S3Counts } from '../../../src/storage/drivers/counts.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { until, within } from '../../support/until.ts';
import { store } from './driver-suite.ts';

// In a process of its own: a helper declares tests of it.

// The folder of the copies, and the copies that reads make.

const mebibyte = 2 ** 20;

/** A storage whose first opened content, with `slow`, gives no byte from `slowFrom` on before `release`. */
class SlowDriver extends MemoryDriver {
  readonly counts = { s3: new S3Counts() };
  opened = 0;
  closed = 0;
  slow = false;
  slowFrom = 0;
  readonly #released = Promise.withResolvers<void>();

  release(): void {
    this.#released.resolve();
  }

  override async open(digest: Digest, size: number): Promise<Content> {
    const content = await super.open(digest, size);
    this.opened += 1;
    const isSlow = this.slow && this.opened === 1;
    const ended = Promise.withResolvers<never>();
    ended.promise.catch(() => undefined);
    return {
      size,
      read: async (target, position) => {
        if (isSlow && position >= this.slowFrom) await Promise.race([this.#released.promise, ended.promise]);
        return content.read(target, position);
      },
      close: () => {
        this.closed += 1;
        ended.reject(new Error('closed'));
        content.close();
      },
    };
  }
}

async function setUp(t: ExecutionContext, limit = 1000, hasRoom = true) {
  const paths = new Paths(await folderUntilEnd(t));
  await mkdir(paths.staging, { recursive: true });
  const origin = new SlowDriver();
  const driver = new CachedDriver(origin, paths.cache, limit, () => Promise.resolve(hasRoom));
  await driver.prepare();
  t.teardown(() => driver.close());
  const copyOf = (digest: Digest) => join(paths.cache, digest.replace(':', '-'));
  return {
    origin,
    driver,
    folder: paths.cache,
    copyOf,
    /** Puts bytes through the copies. */
    put: (bytes: Buffer, digest?: Digest) => store({ driver, paths }, bytes, digest),
    /** Puts bytes of which there is no copy. */
    putElsewhere: (bytes: Buffer) => store({ driver: origin, paths }, bytes),
    copies: async () => (await readdir(paths.cache)).map((name) => join(paths.cache, name)).sort(),
  };
}

test('the copies that were not used for the longest time are removed first', async (t) => {
  const { driver, put, copyOf, copies } = await setUp(t);
  const [first, second] = [await put(Buffer.alloc(400, 'a')), await put(Buffer.alloc(400, 'b'))];
  await utimes(copyOf(first), 1000, 1000);
  await utimes(copyOf(second), 2000, 2000);
  (await driver.open(first, 400)).close();
  await until(async () => (await stat(copyOf(first))).mtimeMs > 2_000_000);
  const third = await put(Buffer.alloc(400, 'c'));
  t.deepEqual(await copies(), [copyOf(first), copyOf(third)].sort());
  t.like(driver.counts?.cache, { bytes: 800, evicted: 1, hit: 1 });
  await driver.delete(third);
  t.is(driver.counts?.cache?.bytes, 400);
});

test('at the start, parts that were abandoned are removed, and those of other processes stay', async (t) => {
  const { driver, folder } = await setUp(t);
  for (const name of ['old.part', 'new.part']) await writeFile(join(folder, name), 'x');
  const longAgo = Date.now() / 1000 - 7200;
  await utimes(join(folder, 'old.part'), longAgo, longAgo);
  await driver.prepare();
  t.deepEqual(await readdir(folder), ['new.part']);
});

test('a copy of another size is not used, and a check reads the storage itself', async (t) => {
  const { driver, put, copyOf, copies } = await setUp(t);
  const digest = await put(Buffer.from('content'));
  await writeFile(copyOf(digest), 'damaged');
  t.is((await readAll(await driver.open(digest, 7), 7)).toString(), 'damaged', 'the copy is used');
  t.is((await readAll(await driver.open(digest, 7, true), 7)).toString(), 'content');
  await truncate(copyOf(digest), 3);
  const content = await driver.open(digest, 7);
  t.deepEqual(await copies(), []);
  t.is((await readAll(content, 7)).toString(), 'content');
});

test('content that is set aside has no copy', async (t) => {
  const { driver, put, copies } = await setUp(t);
  const digest = await put(Buffer.from('content'));
  t.false(await (await driver.setAside(digest, 'another version'))());
  t.is((await copies()).length, 1);
  const move = await driver.setAside(digest, (await driver.stat(digest))!.version);
  t.is((await copies()).length, 1);
  t.true(await move());
  t.deepEqual(await copies(), []);
  await t.throwsAsync(driver.open(digest, 7), { name: 'BlobUnknown' });
});

for (const hasRoom of [true, false]) {
  test(`a read makes ${hasRoom ? 'a copy' : 'no copy on a disk without room'}`, async (t) => {
    const { driver, putElsewhere, copies, copyOf } = await setUp(t, mebibyte, hasRoom);
    const bytes = Buffer.alloc(700_000, 'abc');
    const digest = await putElsewhere(bytes);
    t.true(bytes.equals(await readAll(await driver.open(digest, bytes.length), bytes.length)));
    if (hasRoom) await until(async () => (await copies())[0] === copyOf(digest));
    await driver.close();
    t.deepEqual(await copies(), hasRoom ? [copyOf(digest)] : []);
  });
}

/** A reader of bytes of which only those before `slowFrom` have arrived. */
async function beginRead(t: ExecutionContext, size: number, slowFrom = 0) {
  const all = await setUp(t, 64 * mebibyte);
  const bytes = Buffer.alloc(size, 'abc');
  const digest = await all.putElsewhere(bytes);
  all.origin.slow = true;
  all.origin.slowFrom = slowFrom;
  const content = await all.driver.open(digest, size);
  const reading = content.read(Buffer.alloc(10), 0);
  reading.catch(() => undefined);
  await until(async () => (await all.copies()).length === 1);
  return { ...all, bytes, digest, content, reading };
}

test('content that is deleted while it is copied has no copy', async (t) => {
  const { driver, origin, digest, reading, content, copies } = await beginRead(t, mebibyte);
  await driver.delete(digest);
  origin.release();
  t.true((await reading) > 0);
  content.close();
  await until(async () => (await copies()).every((path) => !path.endsWith('.part')));
  t.deepEqual(await copies(), []);
});

test('a reader far ahead of a slow copy reads the storage', async (t) => {
  const { driver, bytes, digest, origin } = await beginRead(t, 9 * mebibyte);
  const other = await driver.open(digest, bytes.length);
  t.is(origin.opened, 1, 'it follows the copy');
  const target = Buffer.alloc(10);
  const position = 8 * mebibyte + 1;
  t.is(await within(other.read(target, position)), 10);
  t.deepEqual(target, bytes.subarray(position, position + 10));
  t.is(origin.opened, 2);
  other.close();
});

test('a copy goes on without readers only if little is missing', async (t) => {
  const first = mebibyte / 2;
  for (const missing of [16 * mebibyte, 16 * mebibyte + 1]) {
    const { origin, content, reading, copies, copyOf, digest } = await beginRead(t, first + missing, first);
    t.true((await reading) > 0);
    content.close();
    const isLittle = missing === 16 * mebibyte;
    if (isLittle) {
      t.is(origin.closed, 0);
      origin.release();
    }
    await until(async () => (await copies()).every((path) => !path.endsWith('.part')));
    t.deepEqual(await copies(), isLittle ? [copyOf(digest)] : []);
    await until(() => origin.closed > 0);
  }
});

test('closing ends the copies that are being made', async (t) => {
  const { driver, reading, copies } = await beginRead(t, mebibyte);
  await within(driver.close());
  await t.throwsAsync(reading);
  t.deepEqual(await copies(), []);
});
