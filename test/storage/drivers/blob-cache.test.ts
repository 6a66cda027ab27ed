import { renameSync } from 'node:fs';
import { mkdir, readdir, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { digestOf } from '../../../src/runtime/digest.ts';
import { BlobCache } from '../../../src/storage/drivers/blob-cache.ts';
import { removeFirst } from '../../support/disk.ts';
import { folderUntilEnd } from '../../support/folder.ts';

// How many bytes of copies stay.

async function setUp(t: ExecutionContext) {
  const folder = join(await folderUntilEnd(t), 'cache');
  const opened = async (limit = 1000) => {
    const cache = new BlobCache(folder, limit);
    await cache.prepare();
    return cache;
  };
  return {
    folder,
    opened,
    /** Keeps a copy that was last used at `at`, seconds since 1970. */
    keep: async (cache: BlobCache, name: string, size: number, at: number) => {
      const part = cache.partPath();
      await writeFile(part, Buffer.alloc(size));
      await utimes(part, at, at);
      await cache.keep(digestOf(name), part, size);
    },
    kept: async (...names: string[]) => {
      const files = new Set(await readdir(folder));
      return names.filter((name) => files.has(digestOf(name).replace(':', '-')));
    },
  };
}

test('an eviction leaves a tenth of the limit free, and copies up to the limit cause none', async (t) => {
  const { opened, keep, kept } = await setUp(t);
  const cache = await opened();
  for (const [index, name] of ['a', 'b', 'c', 'd', 'e'].entries()) await keep(cache, name, 200, 1000 + index);
  t.like(cache.counts, { bytes: 1000, evicted: 0 });
  t.like((await opened()).counts, { bytes: 1000, evicted: 0 });
  await keep(cache, 'f', 150, 1005);
  t.like(cache.counts, { bytes: 750, evicted: 2 });
  await keep(cache, 'g', 251, 1006);
  t.deepEqual(await kept('a', 'b', 'c', 'd', 'e', 'f', 'g'), ['d', 'e', 'f', 'g']);
  t.like(cache.counts, { bytes: 801, evicted: 3 });
  t.like((await opened(800)).counts, { bytes: 601, evicted: 1 });
});

test('an eviction leaves exactly nine tenths of the limit', async (t) => {
  const { opened, keep, kept } = await setUp(t);
  const cache = await opened();
  const roomy = await opened(10_000);
  await keep(roomy, 'a', 101, 1000);
  t.is(roomy.counts.bytes, 101, 'counted without a look at all files');
  await keep(cache, 'a', 101, 1000);
  await keep(cache, 'b', 100, 1001);
  await keep(cache, 'c', 800, 1002);
  t.deepEqual(await kept('a', 'b', 'c'), ['b', 'c']);
  t.is(cache.counts.bytes, 900);
});

test('the copies of other processes are counted after more than a tenth of the limit, or when there are too many', async (t) => {
  const { folder, opened, keep, kept } = await setUp(t);
  const elsewhere = await opened(10_000);
  await keep(elsewhere, 'a', 900, 1000);
  const [cache, other] = [await opened(), await opened()];
  await keep(elsewhere, 'b', 50, 1001);
  await keep(cache, 'c', 100, 1002);
  t.like(cache.counts, { bytes: 1000, evicted: 0 }, 'a tenth, and as many as may stay');
  await keep(cache, 'd', 1, 1003);
  t.deepEqual(await kept('a', 'b', 'c', 'd'), ['b', 'c', 'd']);
  t.like(cache.counts, { bytes: 151, evicted: 1 });
  // It has seen 900 bytes, and 60 are less than a tenth of its limit.
  await keep(elsewhere, 'e', 840, 1004);
  const full = await opened();
  t.is(full.counts.bytes, 991);
  await keep(full, 'f', 10, 1005);
  t.like(full.counts, { bytes: 851, evicted: 2 }, 'too many');
  t.like(other.counts, { bytes: 900, evicted: 0 });
  t.deepEqual(await kept('b', 'c', 'd', 'e', 'f'), ['d', 'e', 'f']);
  await writeFile(join(folder, 'note.txt'), 'x');
  t.is((await opened()).counts.bytes, 851);
  t.true((await readdir(folder)).includes('note.txt'), 'it is new');
});

test('an eviction counts the copies of another process, too', async (t) => {
  const { opened, keep, kept } = await setUp(t);
  const [first, second] = [await opened(), await opened()];
  await keep(first, 'a', 600, 1000);
  await keep(second, 'b', 500, 1001);
  t.deepEqual(await kept('a', 'b'), ['b'], 'although each has added less than the limit');
  t.like(second.counts, { bytes: 500, evicted: 1 });
});

test('two processes exceed the limit by a tenth each at most', async (t) => {
  const { opened, keep, kept } = await setUp(t);
  const caches = [await opened(), await opened()];
  const names = Array.from({ length: 60 }, (_, index) => `copy ${index}`);
  for (const [index, name] of names.entries()) {
    await keep(caches[index % 2]!, name, 50, 1000 + index);
    t.true((await kept(...names)).length * 50 <= 1200, name);
  }
});

test('an eviction that fails keeps the copy, and the next copy causes another one', async (t) => {
  const { folder, opened, keep, kept } = await setUp(t);
  const cache = await opened();
  await keep(cache, 'a', 600, 1000);
  const { counts } = cache;
  let { bytes } = counts;
  // The folder is away when the eviction looks at it, which is after it was counted.
  Object.defineProperty(counts, 'bytes', {
    configurable: true,
    get: () => bytes,
    set: (value: number) => {
      bytes = value;
      renameSync(folder, `${folder} away`);
    },
  });
  await t.notThrowsAsync(keep(cache, 'b', 600, 1001));
  Object.defineProperty(counts, 'bytes', { value: bytes, writable: true });
  await rename(`${folder} away`, folder);
  t.deepEqual(await kept('a', 'b'), ['a', 'b']);
  await keep(cache, 'c', 600, 1002);
  t.deepEqual(await kept('a', 'b', 'c'), ['c']);
});

test('processes that start at the same time remove the same parts and copies, and leave folders', async (t) => {
  const { folder, opened, keep } = await setUp(t);
  const cache = await opened(100_000);
  const names = Array.from({ length: 60 }, (_, index) => String(index));
  for (const name of names) {
    await keep(cache, name, 1000, 1000);
    const part = join(folder, `${name}.part`);
    await writeFile(part, 'x');
    await utimes(part, 1000, 1000);
  }
  await mkdir(join(folder, 'lost+found'));
  await utimes(join(folder, 'lost+found'), 1000, 1000);
  const started = await Promise.all([opened(1), opened(1), opened(1)]);
  t.deepEqual(await readdir(folder), ['lost+found']);
  t.deepEqual(
    started.map(({ counts }) => counts.bytes),
    [0, 0, 0],
  );
});

test.serial('parts and copies that another process removes meanwhile are no failure', async (t) => {
  const { folder, opened, keep } = await setUp(t);
  const cache = await opened();
  for (const name of ['a', 'b']) await keep(cache, name, 10, 1000);
  await writeFile(join(folder, 'old.part'), 'x');
  await utimes(join(folder, 'old.part'), 1000, 1000);
  removeFirst(t);
  await cache.remove(digestOf('a'));
  t.is(cache.counts.bytes, 10);
  t.like((await opened(1)).counts, { bytes: 0, evicted: 1 });
  t.deepEqual(await readdir(folder), []);
});
