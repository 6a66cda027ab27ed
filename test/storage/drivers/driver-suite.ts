import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { settings } from '../../../src/config/schema.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import type { Driver, ListedBlob } from '../../../src/storage/drivers/driver.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { folderUntilEnd } from '../../support/folder.ts';

/** A driver under test, and the folder of its staged files. */
export interface TestedDriver<D extends Driver = Driver> {
  driver: D;
  paths: Paths;
}

/** Makes an empty driver. */
export type OpenDriver<D extends Driver = Driver> = (paths: Paths, t: ExecutionContext) => D | Promise<D>;

/** Opens an empty driver with a staging folder until the test ends. */
export async function openDriver<D extends Driver>(t: ExecutionContext, open: OpenDriver<D>): Promise<TestedDriver<D>> {
  const paths = new Paths(await folderUntilEnd(t));
  await mkdir(paths.staging);
  const driver = await open(paths, t);
  await driver.prepare();
  return { driver, paths };
}

/** Stages `bytes`. */
export async function stage({ paths }: TestedDriver, bytes: Buffer): Promise<StagedFile> {
  const staged = await StagedFile.create(paths, []);
  await staged.write(bytes);
  return staged;
}

/** Stores `bytes` as a commit does, under their own digest unless another one is given. */
export async function store(tested: TestedDriver, bytes: Buffer, digest = digestOf(bytes)): Promise<Digest> {
  const staged = await stage(tested, bytes);
  try {
    await tested.driver.put(digest, staged);
  } finally {
    await staged.discard();
  }
  return digest;
}

async function readBack({ driver }: TestedDriver, digest: Digest, size: number): Promise<string> {
  return (await readAll(await driver.open(digest, size), size)).toString();
}

/** Moves bytes to the quarantine, those that are there now unless a version is given. */
async function setAside({ driver }: TestedDriver, digest: Digest, version?: string): Promise<boolean> {
  const move = await driver.setAside(digest, version ?? (await driver.stat(digest))!.version);
  return move();
}

async function listed({ driver }: TestedDriver, prefix?: string): Promise<ListedBlob[]> {
  const found: ListedBlob[] = [];
  for await (const blobs of driver.list(prefix)) found.push(...blobs);
  return found;
}

/** The tests that every driver must pass. */
export function testDriver(name: string, open: OpenDriver): void {
  const suite = (title: string, run: (t: ExecutionContext, tested: TestedDriver) => Promise<void>) =>
    test(`${name}: ${title}`, async (t) => run(t, await openDriver(t, open)));

  suite('it describes itself, and two places differ', async (t, { driver }) => {
    const { kind, name: place, setting } = driver.describe();
    t.regex(`${kind} ${place}`, /^[a-z ]+ \S/);
    t.true(
      settings.some(({ path }) => path === setting),
      setting,
    );
    t.is(driver.checkEvery > 0, driver.isRemote ?? false, 'only checks of another machine cost money');
    const fact = await driver.fact();
    t.deepEqual(await driver.fact(), fact);
    const other = await openDriver(t, open);
    if (fact) t.notDeepEqual(await other.driver.fact(), fact);
  });

  suite('stored bytes can be read at any position', async (t, each) => {
    const digest = await store(each, Buffer.from('hello world'));
    t.is((await each.driver.stat(digest))?.size, 11);
    const content = await each.driver.open(digest, 11);
    t.is(content.size, 11);
    const target = Buffer.alloc(5);
    t.is(await content.read(target, 6), 5);
    t.is(target.toString(), 'world');
    t.is(await content.read(target, 9), 2, 'to the end');
    t.is(await content.read(target, 11), 0, 'at the end');
    content.close();
    content.close();
    for (const [bytes, algorithm] of [
      [Buffer.from('long'), 'sha512'],
      [Buffer.alloc(0), 'sha256'],
      [Buffer.alloc(3_000_000, 'large'), 'sha256'],
    ] as const) {
      const other = await store(each, bytes, digestOf(bytes, algorithm));
      t.is(await readBack(each, other, bytes.length), bytes.toString());
    }
    // First and last bytes, over the end and at it, forwards and backwards.
    const bytes = randomBytes(300_000);
    const large = await each.driver.open(await store(each, bytes), bytes.length);
    for (const [position, length] of [
      [0, 10],
      [299_990, 10],
      [299_995, 10],
      [299_999, 1],
      [300_000, 10],
      [5, 10],
      [0, 100_000],
      [150_000, 100_000],
      [0, 100_000],
    ] as const) {
      const part = Buffer.alloc(length);
      const read = await large.read(part, position);
      const expected = bytes.subarray(position, position + length);
      t.is(read > 0, expected.length > 0, `at ${position}`);
      t.true(part.subarray(0, read).equals(expected.subarray(0, read)), `at ${position}`);
    }
    large.close();
  });

  suite('missing bytes are an error for open and none for delete', async (t, each) => {
    const digest = digestOf('never stored');
    t.is(await each.driver.stat(digest), undefined);
    await t.throwsAsync(each.driver.open(digest, 1), { name: 'BlobUnknown' });
    await each.driver.delete(digest);
    t.false(await setAside(each, digest, 'any'));
    t.deepEqual(await listed(each), []);
    await each.driver.check();
    await each.driver.prepare();
  });

  suite('a put can be repeated concurrently, later, and after a deletion', async (t, each) => {
    const bytes = Buffer.from('put again');
    const digest = digestOf(bytes);
    await Promise.all(Array.from({ length: 8 }, () => store(each, bytes)));
    t.is(await readBack(each, digest, bytes.length), 'put again');
    await store(each, bytes);
    t.is((await listed(each)).length, 1);

    await each.driver.delete(digest);
    const staged = await stage(each, bytes);
    for (let time = 0; time < 3; time += 1) {
      await each.driver.put(digest, staged);
      t.is(await readBack(each, digest, bytes.length), 'put again', 'from the same staged file');
      t.deepEqual(await staged.bytes(), bytes, 'the staged file can still be read');
      await each.driver.delete(digest);
      t.is(await each.driver.stat(digest), undefined);
    }
    await each.driver.put(digest, staged);
    await staged.discard();
    t.is(await readBack(each, digest, bytes.length), 'put again', 'the bytes stay after the staged file is discarded');
  });

  suite('bytes of another size are replaced', async (t, each) => {
    const digest = digestOf('four');
    await store(each, Buffer.from('fo'), digest);
    const before = await each.driver.stat(digest);
    await store(each, Buffer.from('four'), digest);
    t.is(await readBack(each, digest, 4), 'four');
    t.not((await each.driver.stat(digest))?.version, before?.version);
  });

  suite('bytes are never visible in part', async (t, each) => {
    const bytes = Buffer.alloc(8_000_000, 'in part');
    const digest = digestOf(bytes);
    const sizes = new Set<number | undefined>();
    const ended = new AbortController();
    const watching = (async () => {
      for (; !ended.signal.aborted; await setImmediate()) sizes.add((await each.driver.stat(digest))?.size);
    })();
    await store(each, bytes);
    sizes.add((await each.driver.stat(digest))?.size);
    ended.abort();
    await watching;
    sizes.delete(undefined);
    t.deepEqual([...sizes], [bytes.length]);
  });

  suite('a read during a deletion returns complete bytes or fails', async (t, each) => {
    const bytes = Buffer.from('read meanwhile');
    const digest = await store(each, bytes);
    const content = await each.driver.open(digest, bytes.length);
    const target = Buffer.alloc(bytes.length);
    await Promise.all([each.driver.delete(digest), content.read(target, 0).catch(() => bytes.copy(target))]);
    t.deepEqual(target, bytes);
    const later = await content.read(target, 0).catch(() => bytes.length);
    t.is(later, bytes.length, 'not cut');
    content.close();
    await t.throwsAsync(each.driver.open(digest, bytes.length), { name: 'BlobUnknown' });
  });

  suite('damaged bytes are quarantined, unless other bytes have replaced them', async (t, each) => {
    const digest = await store(each, Buffer.from('dam'), digestOf('damaged'));
    const { version } = (await each.driver.stat(digest))!;
    t.is((await each.driver.stat(digest))?.version, version, 'the version stays while the bytes stay');
    await store(each, Buffer.from('damaged'), digest);
    t.false(await setAside(each, digest, version));
    t.is(await readBack(each, digest, 7), 'damaged');
    t.true(await setAside(each, digest));
    t.is(await each.driver.stat(digest), undefined);
    await store(each, Buffer.from('damaged'));
    t.is(await readBack(each, digest, 7), 'damaged', 'the bytes can be put again');
    const move = await each.driver.setAside(digest, (await each.driver.stat(digest))!.version);
    t.is(await readBack(each, digest, 7), 'damaged', 'it is only prepared');
    t.true(await move());
    t.false(await move());
    const late = await each.driver.setAside(digest, version);
    await store(each, Buffer.from('damaged'));
    t.false(await late());
    t.is(await readBack(each, digest, 7), 'damaged', 'it was put after the preparation');
  });

  suite('the quarantine is bounded in time and bytes; the oldest blobs go first', async (t, each) => {
    const put = async (name: string) => {
      const digest = await store(each, Buffer.alloc(10, name), digestOf(name));
      t.true(await setAside(each, digest));
      // The clock of a storage may have a low resolution.
      await sleep(20);
    };
    for (const name of ['one', 'two', 'three']) await put(name);
    await put('one');
    const bounds = { before: 0, maxBytes: 30 };
    const shrink = (changes: object) => each.driver.shrinkQuarantine({ ...bounds, ...changes });
    t.deepEqual(await shrink({}), { blobs: 0, bytes: 0 }, 'the second "one" replaced the first');
    t.deepEqual(await shrink({ maxBytes: 29, dryRun: true }), { blobs: 1, bytes: 10 });
    t.deepEqual(await shrink({ maxBytes: 29 }), { blobs: 1, bytes: 10 }, 'the dry run removed nothing');
    t.deepEqual(await shrink({ maxBytes: 20 }), { blobs: 0, bytes: 0 });
    await put('two');
    t.deepEqual(await shrink({ maxBytes: 20 }), { blobs: 1, bytes: 10 }, '"two" was the oldest');
    t.deepEqual(await shrink({ before: Date.now() + 2000 }), { blobs: 2, bytes: 20 });
    t.deepEqual(await shrink({ before: Date.now() + 2000, maxBytes: 0 }), { blobs: 0, bytes: 0 });
  });

  suite('the first identity stays, unless it is replaced', async (t, each) => {
    t.is(await each.driver.readIdentity(), undefined);
    const names = Array.from({ length: 8 }, (_, index) => `0000000${index}-0000-4000-8000-000000000000`);
    await Promise.all(names.map((name) => each.driver.writeIdentity(name)));
    const first = await each.driver.readIdentity();
    t.true(names.includes(first!), 'of concurrent writes, one is stored whole');
    await each.driver.writeIdentity('another');
    t.is(await each.driver.readIdentity(), first);
    await each.driver.writeIdentity('another', true);
    t.is(await each.driver.readIdentity(), 'another');
    t.deepEqual(await listed(each), [], 'it is no blob');
  });

  suite('every blob is listed once, by prefix, in order and with its time', async (t, each) => {
    const began = Date.now();
    const digests = Array.from({ length: 620 }, (_, index) => {
      const start = ['aa', 'ab', 'cd'][index % 3]!;
      return `sha256:${start}${index.toString(16).padStart(62, '0')}` as const;
    });
    const other = digestOf('by another algorithm', 'sha512');
    for (let start = 0; start < digests.length; start += 31) {
      await Promise.all(digests.slice(start, start + 31).map((digest) => store(each, Buffer.from('x'), digest)));
    }
    await store(each, Buffer.from('xyz'), other);
    const all = await listed(each);
    t.deepEqual(
      all.map(({ digest }) => digest),
      [...digests, other].sort(),
    );
    t.is(all.at(-1)!.size, 3);
    // The clock of a storage may have a low resolution.
    for (const { storedAt } of all) t.true(storedAt > began - 2000 && storedAt < Date.now() + 2000);
    const among = async (prefix: string) => (await listed(each, prefix)).map(({ digest }) => digest);
    for (const prefix of [
      'sha256:ab',
      'sha256:a',
      'sha256:',
      'sha512:',
      digests[7]!,
      'sha256:00',
      'md5:',
      'x-sha256:ab',
      'sha256:abx',
    ]) {
      t.deepEqual(await among(prefix), [...digests, other].filter((each) => each.startsWith(prefix)).sort(), prefix);
    }
    for await (const blobs of each.driver.list()) t.true(blobs.length <= 1000, 'in pages');
  });
}
