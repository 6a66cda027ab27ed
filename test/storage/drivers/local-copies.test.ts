import { mkdir, readdir, readlink, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import type { Digest } from '../../../src/runtime/digest.ts';
import { CachedDriver } from '../../../src/storage/drivers/cached-driver.ts';
import type { Throttle } from '../../../src/runtime/incoming.ts';
import { contentDamaged, readAll, type Content } from '../../../src/storage/files/content.ts';
import { S3Counts } from '../../../src/storage/drivers/counts.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { allOf } from '../../support/all-of.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { until, within } from '../../support/until.ts';
import { store } from './driver-suite.ts';

// In a process of its own: a helper declares tests of it.

// The folder of the copies, and the copies that reads make.

const mebibyte = 2 ** 20;

/** A storage whose first opened content, with `slow`, gives no byte from `slowFrom` on before `release`; all of it with `allSlow`. */
class SlowDriver extends MemoryDriver {
  readonly counts = { s3: new S3Counts() };
  opened = 0;
  closed = 0;
  slow = false;
  allSlow = false;
  slowFrom = 0;
  readonly #released = Promise.withResolvers<void>();

  release(): void {
    this.#released.resolve();
  }

  override async open(digest: Digest, size: number): Promise<Content> {
    const content = await super.open(digest, size);
    this.opened += 1;
    const isSlow = this.slow && (this.allSlow || this.opened === 1);
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

async function setUp(t: ExecutionContext, limit = 1000, hasRoom: boolean | (() => Promise<boolean>) = true) {
  const paths = new Paths(await folderUntilEnd(t));
  await mkdir(paths.staging, { recursive: true });
  const origin = new SlowDriver();
  const driver = new CachedDriver(origin, paths.cache, limit, async () =>
    typeof hasRoom === 'boolean' ? hasRoom : hasRoom(),
  );
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
    /** Descriptors of this process for files of copies. */
    descriptors: async () => {
      const all = await readdir('/proc/self/fd');
      const links = await Promise.all(all.map((each) => readlink(`/proc/self/fd/${each}`).catch(() => '')));
      return links.filter((each) => each.startsWith(paths.cache)).length;
    },
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

test('a check drops a copy with wrong bytes, keeps a right one, and is no use of it', async (t) => {
  const { driver, put, copyOf, copies, descriptors } = await setUp(t);
  const digest = await put(Buffer.from('content'));
  await utimes(copyOf(digest), 1000, 1000);
  let spent = 0;
  const throttle = {
    spend: (bytes: number) => {
      spent += bytes;
      return Promise.resolve();
    },
  } as unknown as Throttle;
  await driver.checkCopy({ digest, size: 7 }, throttle);
  t.deepEqual(await copies(), [copyOf(digest)]);
  t.is(spent, 7, 'the rate limit counts what is read');
  t.is((await stat(copyOf(digest))).mtimeMs, 1_000_000);
  await writeFile(copyOf(digest), 'damaged');
  await driver.checkCopy({ digest, size: 7 });
  t.deepEqual(await copies(), []);
  await driver.checkCopy({ digest, size: 7 });
  await until(async () => (await descriptors()) === 0);
});

test('only content of a copy’s size is copied, and each reader is counted', async (t) => {
  const { driver, origin, putElsewhere, copies, copyOf } = await setUp(t, 10);
  const read = async (digest: Digest, size: number) => {
    const content = await driver.open(digest, size);
    const bytes = await readAll(content, size);
    content.close();
    return bytes.toString();
  };
  const [empty, whole, large] = [
    await putElsewhere(Buffer.alloc(0)),
    await putElsewhere(Buffer.from('0123456789')),
    await putElsewhere(Buffer.from('0123456789a')),
  ];
  t.is(await read(empty, 0), '');
  t.is(await read(large, 11), '0123456789a');
  t.deepEqual(driver.counts?.cache, { hit: 0, joined: 0, miss: 0, evicted: 0, bytes: 0 });
  t.is(await read(whole, 10), '0123456789');
  await until(async () => (await copies())[0] === copyOf(whole));
  await until(() => driver.counts?.cache?.bytes === 10);
  t.is(await read(whole, 10), '0123456789');
  t.deepEqual(driver.counts?.cache, { hit: 1, joined: 0, miss: 1, evicted: 0, bytes: 10 });
  const { opened } = origin;
  // A copy that was made earlier is not followed once it has ended.
  await until(async () => {
    await rm(copyOf(whole), { force: true });
    t.is(await read(whole, 10), '0123456789');
    return origin.opened > opened;
  });
  t.is(driver.counts?.cache?.miss, 2);
});

test('a read that does not begin at the first byte makes no copy', async (t) => {
  const { driver, origin, putElsewhere, copies } = await setUp(t);
  const content = await driver.open(await putElsewhere(Buffer.from('content')), 7);
  const target = Buffer.alloc(3);
  t.is(await content.read(target, 4), 3);
  t.is(target.toString(), 'ent');
  content.close();
  content.close();
  await until(() => origin.closed > 0);
  await driver.close();
  t.deepEqual([await copies(), origin.closed], [[], 1]);
});

test('content that is closed before its first read, or before its copy begins, is closed once', async (t) => {
  const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<boolean>()];
  const { driver, origin, putElsewhere, copies } = await setUp(t, 1000, () => {
    asked.resolve();
    return answer.promise;
  });
  const digest = await putElsewhere(Buffer.from('content'));
  const unread = await driver.open(digest, 7);
  unread.close();
  unread.close();
  t.is(origin.closed, 1);
  const content = await driver.open(digest, 7);
  const reading = content.read(Buffer.alloc(7), 0);
  await asked.promise;
  content.close();
  answer.resolve(true);
  await t.throwsAsync(reading, { name: 'Aborted' });
  await until(() => origin.closed === 2);
  t.deepEqual(await copies(), []);
});

test('of two readers that open content before its first read, the second follows the copy of the first', async (t) => {
  const { driver, origin, putElsewhere } = await setUp(t);
  const digest = await putElsewhere(Buffer.from('content'));
  origin.slow = origin.allSlow = true;
  const [one, other] = [await driver.open(digest, 7), await driver.open(digest, 7)];
  const first = one.read(Buffer.alloc(7), 0);
  await until(() => origin.opened === 2);
  const target = Buffer.alloc(7);
  const second = other.read(target, 0);
  await until(() => origin.closed === 1);
  origin.release();
  t.deepEqual([await first, await second, target.toString()], [7, 7, 'content']);
  t.is(await other.read(target, 7), 0);
  for (const each of [one, other]) each.close();
  await until(() => origin.closed === 2);
  await t.throwsAsync(other.read(target, 0), { name: 'Aborted' });
});

test('at most 64 copies are made at the same time', async (t) => {
  const { driver, origin, putElsewhere, copies } = await setUp(t);
  origin.slow = origin.allSlow = true;
  const readings = [];
  for (let index = 0; index < 65; index += 1) {
    const bytes = Buffer.from(`content ${String(index).padStart(2, '0')}`);
    const content = await driver.open(await putElsewhere(bytes), bytes.length);
    readings.push(content.read(Buffer.alloc(10), 0).finally(() => content.close()));
    if (index < 64) await until(async () => (await copies()).length === index + 1);
  }
  origin.release();
  t.deepEqual(new Set(await Promise.all(readings)), new Set([10]));
  await driver.close();
  t.is((await copies()).length, 64);
});

test('a disk of the copies that fails costs no reader its bytes, and a failed storage no second request', async (t) => {
  const { driver, origin, folder, putElsewhere, copies } = await setUp(t);
  const digest = await putElsewhere(Buffer.from('content'));
  await rm(folder, { recursive: true });
  const whole = await driver.open(digest, 7);
  t.is((await readAll(whole, 7)).toString(), 'content');
  whole.close();
  t.is(origin.opened, 2);
  await mkdir(folder);
  const open = origin.open.bind(origin);
  origin.open = async (...args) => ({
    ...(await open(...args)),
    read: () => Promise.reject(contentDamaged(digest)),
  });
  const content = await driver.open(digest, 7);
  await t.throwsAsync(content.read(Buffer.alloc(7), 0), { name: 'ContentDamaged' });
  content.close();
  t.is(origin.opened, 3);
  await until(async () => (await copies()).length === 0);
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
  t.is(await within(other.read(target, position + 10)), 10);
  t.is(origin.opened, 2);
  t.deepEqual(driver.counts?.cache, { hit: 0, joined: 1, miss: 1, evicted: 0, bytes: 0 });
  other.close();
  await until(() => origin.closed === 1);
});

test('a reader as far ahead of a slow copy as it may be waits for it', async (t) => {
  const { driver, bytes, digest, origin } = await beginRead(t, 9 * mebibyte);
  const other = await driver.open(digest, bytes.length);
  const target = Buffer.alloc(10);
  const ahead = other.read(target, 8 * mebibyte);
  origin.release();
  t.is(await within(ahead), 10);
  t.deepEqual(target, bytes.subarray(8 * mebibyte, 8 * mebibyte + 10));
  t.is(origin.opened, 1);
  other.close();
});

test('a reader that closes its content while it reads the storage gets what it has asked for', async (t) => {
  const { driver, bytes, digest, origin } = await beginRead(t, 9 * mebibyte);
  const other = await driver.open(digest, bytes.length);
  origin.allSlow = true;
  const target = Buffer.alloc(10);
  const ahead = other.read(target, 9 * mebibyte - 5);
  await until(() => origin.opened === 2);
  other.close();
  // Its read begins, and waits.
  await setImmediate();
  t.is(origin.closed, 0);
  origin.release();
  t.is(await within(ahead), 5);
  await until(() => origin.closed === 2);
});

test('a copy of which much is missing goes on while one reader is left, also one that has closed its content', async (t) => {
  const { driver, origin, bytes, digest, content, reading, copies, copyOf } = await beginRead(t, 18 * mebibyte);
  const other = await driver.open(digest, bytes.length);
  other.close();
  t.is(origin.closed, 0, 'another reader is left');
  content.close();
  t.is(origin.closed, 0, 'its read goes on');
  const third = await driver.open(digest, bytes.length);
  origin.release();
  t.true((await within(reading)) > 0);
  await until(async () => (await copies())[0] === copyOf(digest));
  third.close();
  t.deepEqual(driver.counts?.cache, { hit: 0, joined: 2, miss: 1, evicted: 0, bytes: bytes.length });
});

test('content whose copy has ended can still be read, and leaves no descriptor when it is closed', async (t) => {
  const { driver, put, putElsewhere, copies, copyOf, descriptors } = await setUp(t, 4 * mebibyte);
  const bytes = Buffer.alloc(2 * mebibyte, 'abc');
  const digest = await putElsewhere(bytes);
  const content = await driver.open(digest, bytes.length);
  const target = Buffer.alloc(10);
  t.is(await content.read(target, 0), 10);
  await until(async () => (await copies())[0] === copyOf(digest));
  // The copy of another blob ends meanwhile.
  await put(Buffer.from('content'));
  for (const position of [0, mebibyte, bytes.length - 10]) {
    t.is(await content.read(target, position), 10);
    t.deepEqual(target, bytes.subarray(position, position + 10));
  }
  t.true((await descriptors()) > 0);
  content.close();
  await until(async () => (await descriptors()) === 0);
});

test('a copy that is ended reads nothing more of the storage', async (t) => {
  const { driver, origin, putElsewhere, copies } = await setUp(t, 4 * mebibyte);
  const size = 2 * mebibyte;
  const digest = await putElsewhere(Buffer.alloc(size, 'abc'));
  const open = origin.open.bind(origin);
  const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let reads = 0;
  // Its reads succeed although it is closed.
  origin.open = async (...args) => {
    const content = await open(...args);
    return {
      ...content,
      read: async (target, position) => {
        reads += 1;
        asked.resolve();
        await answer.promise;
        return content.read(target, position);
      },
    };
  };
  const content = await driver.open(digest, size);
  const reading = content.read(Buffer.alloc(10), 0);
  reading.catch(() => undefined);
  await asked.promise;
  const closing = driver.close();
  answer.resolve();
  await within(closing);
  t.is(reads, 1);
  t.deepEqual(await copies(), []);
  content.close();
});

test('the end of a copy that was dropped leaves the next one to its readers', async (t) => {
  const { driver, origin, bytes, digest, content, reading, putElsewhere, descriptors } = await beginRead(t, mebibyte);
  await driver.delete(digest);
  await putElsewhere(bytes);
  const open = origin.open.bind(origin);
  const released = Promise.withResolvers<void>();
  origin.open = async (...args) => {
    const each = await open(...args);
    return {
      ...each,
      read: async (target, position) => {
        await released.promise;
        return each.read(target, position);
      },
    };
  };
  const second = await driver.open(digest, bytes.length);
  const readingToo = second.read(Buffer.alloc(10), 0);
  await until(() => origin.opened === 2);
  origin.release();
  t.true((await reading) > 0);
  content.close();
  await until(async () => (await descriptors()) === 1);
  const third = await driver.open(digest, bytes.length);
  t.like(driver.counts?.cache, { joined: 1, miss: 2 });
  released.resolve();
  t.is(await within(readingToo), 10);
  for (const each of [second, third]) each.close();
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

test('storage that sends too few bytes gives no copy, and does not hold its reader', async (t) => {
  const { driver, origin, putElsewhere, copies } = await setUp(t);
  const digest = await putElsewhere(Buffer.from('content'));
  const open = origin.open.bind(origin);
  origin.open = async (...args) => {
    const content = await open(...args);
    return {
      ...content,
      read: async (target, position) => (position < 3 ? content.read(target.subarray(0, 3), position) : 0),
    };
  };
  const content = await driver.open(digest, 7);
  const target = Buffer.alloc(7, '-');
  t.is(await within(content.read(target, 0)), 3);
  t.is(target.toString(), 'con----');
  t.is(await within(content.read(target, 3)), 0);
  content.close();
  await until(async () => (await copies()).length === 0);
});

test('closing ends the copies that are being made', async (t) => {
  const { driver, reading, copies } = await beginRead(t, mebibyte);
  await within(driver.close());
  await t.throwsAsync(reading);
  t.deepEqual(await copies(), []);
});

test('all but the copies is asked of the storage', async (t) => {
  const { driver, origin, putElsewhere, copies } = await setUp(t);
  t.true(driver.isRemote);
  const digest = await putElsewhere(Buffer.from('content'));
  const staged = undefined as unknown as StagedFile;
  t.is(driver.locationOf(digest), undefined);
  t.is(driver.putEarly(digest, staged, 7), undefined);
  const early = { grown: () => undefined, stop: () => undefined };
  let ended = 0;
  const mayRepeat: unknown[] = [];
  const remove = origin.delete.bind(origin);
  Object.assign(origin, {
    checkEvery: 7,
    fact: () => Promise.resolve({ place: 'a bucket' }),
    locationOf: (of: Digest) => () => Promise.resolve(`https://bucket/${of}`),
    putEarly: (_: Digest, __: StagedFile, size: number) => (size === 7 ? early : undefined),
    checkWrites: () => Promise.reject(new Error('read-only')),
    close: () => Promise.resolve(void (ended += 1)),
    delete: (of: Digest, may?: () => boolean) => {
      mayRepeat.push(may?.());
      return remove(of);
    },
  });
  t.is(driver.checkEvery, 7);
  t.deepEqual(driver.describe(), origin.describe());
  t.deepEqual(await driver.fact(), { place: 'a bucket' });
  t.is(await driver.locationOf(digest)!(), `https://bucket/${digest}`);
  t.is(driver.putEarly(digest, staged, 7), early);
  await driver.writeIdentity('ours');
  await driver.writeIdentity('theirs');
  t.is(await driver.readIdentity(), 'ours');
  await driver.writeIdentity('theirs', true);
  t.is(await origin.readIdentity(), 'theirs');
  const listed = async (prefix?: string) => (await allOf(driver.list(prefix))).flat().length;
  t.deepEqual([await listed(), await listed('sha512:')], [1, 0]);
  await t.throwsAsync(driver.checkWrites(), { message: 'read-only' });
  await driver.check();
  origin.faults.before = (operation) => {
    if (operation === 'check') throw new Error('away');
  };
  await t.throwsAsync(driver.check(), { message: 'away' });
  t.is((await driver.stat(digest))?.size, 7);
  t.true(await (await driver.setAside(digest, (await driver.stat(digest))!.version))());
  t.deepEqual(await driver.shrinkQuarantine({ before: 0, maxBytes: 0 }), { blobs: 1, bytes: 7 });
  await driver.delete(digest, () => false);
  t.deepEqual(mayRepeat, [false]);
  await driver.close();
  t.is(ended, 1);
  t.deepEqual(await copies(), []);
});
