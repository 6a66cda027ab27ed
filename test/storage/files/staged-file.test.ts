import { createHash, randomBytes } from 'node:crypto';
import { getEventListeners } from 'node:events';
import { link, mkdir, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { readAll, wholeBytes } from '../../../src/storage/files/content.ts';
import { OverflowMemory } from '../../../src/storage/files/overflow.ts';
import { Paths } from '../../../src/storage/files/paths.ts';
import { StagedFile } from '../../../src/storage/files/staged-file.ts';
import { startRawUpstream } from '../../support/upstreams/faulty-upstream.ts';
import { watchSyncs } from '../../support/disk.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { TestDisk } from '../../support/test-disk.ts';

async function folder(t: ExecutionContext): Promise<Paths> {
  const data = await folderUntilEnd(t);
  const paths = new Paths(data);
  await mkdir(paths.staging, { recursive: true });
  return paths;
}

function named(name: string) {
  return { instanceOf: DomainError, name };
}

test('pieces of any size in several appends make one file with the right digests', async (t) => {
  const paths = await folder(t);
  const sizes = fc.array(fc.array(fc.nat(3000), { maxLength: 8 }), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(sizes, async (requests) => {
      const staged = await StagedFile.create(paths, ['sha256']);
      const all: Buffer[] = [];
      for (const request of requests) {
        const pieces = request.map((size) => randomBytes(size));
        all.push(...pieces);
        const appended = await staged.append(Readable.from(pieces, { objectMode: false }));
        t.is(appended, Buffer.concat(pieces).length);
      }
      const whole = Buffer.concat(all);
      t.is(staged.size, whole.length);
      t.is(staged.runningDigest('sha256'), digestOf(whole));
      t.is(staged.runningDigest('sha512'), undefined);
      t.is(await staged.digest('sha512'), digestOf(whole, 'sha512'));
      t.deepEqual(await staged.bytes(), whole);
      await staged.discard();
    }),
    { numRuns: 40 },
  );
});

test('a large source is written completely, and is paused while writes are pending', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  const hash = createHash('sha256');
  let made = 0;
  let furthest = 0;
  const piece = randomBytes(256 * 1024);
  const source = new Readable({
    highWaterMark: 256 * 1024,
    read() {
      if (made === 32 * 1024 * 1024) {
        this.push(null);
        return;
      }
      made += piece.length;
      furthest = Math.max(furthest, made - staged.size);
      hash.update(piece);
      this.push(piece);
    },
  });
  t.is(await staged.append(source), made);
  t.is(await staged.digest(), `sha256:${hash.digest('hex')}`);
  t.is((await stat(staged.path)).size, made);
  t.true(furthest <= 5 * 1024 * 1024, `${furthest} bytes were in memory`);
  await staged.discard();
});

test('other work runs between the pieces of many bodies that arrive at once', async (t) => {
  const paths = await folder(t);
  const piece = randomBytes(64 * 1024);
  const staged = await Promise.all(Array.from({ length: 24 }, () => StagedFile.create(paths)));
  const sources = staged.map(() => {
    const source = new Readable({ highWaterMark: 2 ** 22, read: () => undefined });
    for (let pieces = 0; pieces < 30; pieces += 1) source.push(piece);
    source.push(null);
    return source;
  });
  const appends = staged.map((each, index) => each.append(sources[index]!));
  await new Promise((resolve) => setImmediate(resolve));
  const waiting = sources.reduce((sum, source) => sum + source.readableLength, 0);
  t.true(waiting > 0, 'all bodies were taken in one turn of the event loop');
  t.deepEqual(new Set(await Promise.all(appends)), new Set([30 * piece.length]));
  t.is(staged[23]!.runningDigest('sha256'), digestOf(Buffer.concat(Array.from({ length: 30 }, () => piece))));
  await Promise.all(staged.map((each) => each.discard()));
});

test('a body over the limit is refused, a body of exactly the limit is not', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  await staged.append(Readable.from([Buffer.alloc(60), Buffer.alloc(40)]), { limit: 100 });
  t.is(staged.size, 100);
  const endless = new Readable({
    read() {
      setImmediate(() => this.push(Buffer.alloc(10)));
    },
  });
  await t.throwsAsync(staged.append(endless, { limit: 105 }), named('TooLarge'));
  endless.destroy();
  t.is(staged.size, 100, 'the bytes of the append before stay');
  t.is(await staged.digest(), digestOf(Buffer.alloc(100)));
  await staged.discard();
});

test('bytes before a cut stay in the file and the digest, and more can be appended', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  const cuts: ((source: PassThrough) => void)[] = [
    (source) => source.destroy(),
    (source) => source.destroy(new Error('reset')),
  ];
  let whole = '';
  for (const [index, cut] of cuts.entries()) {
    const source = new PassThrough();
    const appending = staged.append(source);
    source.write(`part ${index};`);
    whole += `part ${index};`;
    await new Promise(setImmediate);
    cut(source);
    const error = await t.throwsAsync(appending, named('Aborted'));
    t.regex(error.message, /before the body was complete/);
    t.is(staged.size, whole.length);
    t.is(await staged.digest(), digestOf(whole));
  }
  const gone = new PassThrough();
  gone.destroy();
  await t.throwsAsync(staged.append(gone), named('Aborted'), 'cut before the append');
  await staged.append(Readable.from([Buffer.from('end')]));
  t.is((await readFile(staged.path)).toString(), `${whole}end`);
  await staged.discard();
});

test('an append ends when the sender is silent, not when it is slow', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  const silent = new PassThrough();
  const appending = staged.append(silent, { idle: 500 });
  silent.write('hello');
  await t.throwsAsync(appending, { ...named('Aborted'), message: /stopped sending/ });
  t.true(silent.destroyed);
  t.is(staged.size, 5);
  const slow = new PassThrough();
  const writing = setInterval(() => slow.write('.'), 100);
  setTimeout(() => {
    clearInterval(writing);
    slow.end();
  }, 5000);
  t.true((await staged.append(slow, { idle: 2500 })) > 2);
  await staged.discard();
});

test('a stall of this process does not count as silence of the sender', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  let sender: Socket | undefined;
  const { hostname, port } = await startRawUpstream(t, (socket) => {
    sender = socket;
    socket.write('before');
  });
  const source = connect(Number(port), hostname, () => source.write('go'));
  // This runs when the event loop handles files, after sockets. So the timers fire before " and after" can be read.
  const stall = () => {
    if (staged.size !== 6) return;
    sender!.end(' and after');
    const end = performance.now() + 300;
    while (performance.now() < end);
  };
  t.is(await staged.append(source, { idle: 100, atOnce: true, progress: stall }), 16);
  await staged.discard();
});

test('a source that has ended before appends nothing', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  t.is(await staged.append(Readable.from([])), 0);
  const read = Readable.from([Buffer.from('x')]);
  await buffer(read);
  t.is(await staged.append(read), 0);
  t.is(staged.size, 0);
  await staged.discard();
});

test('an append that stops before the end leaves a paused source for the next one', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  const source = new PassThrough();
  const listeners = () => ['data', 'end', 'error', 'close'].map((each) => source.listenerCount(each));
  const before = listeners();
  const stop = new AbortController();
  const appending = staged.append(source, { until: stop.signal, idle: 60_000 });
  source.write('first');
  await new Promise(setImmediate);
  stop.abort();
  t.is(await appending, 5);
  t.deepEqual(listeners(), before);
  t.deepEqual(getEventListeners(stop.signal, 'abort'), []);
  t.true(source.isPaused());
  const rest = staged.append(source);
  source.resume();
  source.end(' second');
  t.is(await rest, 7);
  t.is(await staged.digest(), digestOf('first second'));
  await staged.discard();
});

test('a reopened file continues at the recorded size, also in another process', async (t) => {
  const paths = await folder(t);
  const first = await StagedFile.create(paths);
  await first.append(Readable.from([Buffer.from('recorded, and more')]));
  await first.close();
  const { ino } = await stat(first.path);
  const again = await StagedFile.reopen(paths, first.id, 'recorded'.length);
  t.is(again.size, 8);
  t.is((await stat(again.path)).ino, ino, 'not a copy');
  t.is(again.runningDigest('sha256'), undefined, 'unknown without a read');
  await again.append(Readable.from([Buffer.from(' and resumed')]));
  t.is(await again.digest(), digestOf('recorded and resumed'));
  t.is(await again.digest('sha512'), digestOf('recorded and resumed', 'sha512'));
  await again.append(Readable.from([Buffer.from('!')]));
  t.is(await again.digest(), digestOf('recorded and resumed!'), 'the digest continues after the read');
  await again.close();

  const detached = await StagedFile.reopen(paths, first.id, 8, true);
  await detached.append(Readable.from([Buffer.from('.')]));
  t.is((await readFile(detached.path)).toString(), 'recorded.');
  await detached.close();

  await t.throwsAsync(StagedFile.reopen(paths, first.id, 10), named('UploadUnknown'), 'shorter than recorded');
  await t.throwsAsync(StagedFile.reopen(paths, 'none', 0), named('UploadUnknown'));
  const empty = await StagedFile.create(paths);
  await empty.close();
  const reopened = await StagedFile.reopen(paths, empty.id, 0);
  t.is(reopened.runningDigest('sha256'), digestOf(''));
  await reopened.discard();
});

test('a reopened file that has another name leaves the bytes of that name', async (t) => {
  const paths = await folder(t);
  const first = await StagedFile.create(paths);
  await first.write(Buffer.from('all of the blob'));
  await first.close();
  const blob = `${paths.staged(first.id)}-blob`;
  await link(paths.staged(first.id), blob);
  const again = await StagedFile.reopen(paths, first.id, 3);
  await again.write(Buffer.from('!'));
  t.is((await readFile(again.path)).toString(), 'all!');
  t.is((await readFile(blob)).toString(), 'all of the blob');
  await again.discard();
});

test.serial('after a sync that has failed, no later one succeeds, because the disk tells only once', async (t) => {
  const paths = await folder(t);
  const staged = await StagedFile.create(paths);
  await staged.write(Buffer.from('lost'));
  let fails = true;
  await watchSyncs(t, () => {
    if (fails) throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' });
  });
  t.false(staged.isLost);
  const [first, second] = [staged.sync(), staged.sync()];
  await t.throwsAsync(first, named('StorageUnavailable'));
  fails = false;
  await t.throwsAsync(second, named('StorageUnavailable'), 'also one that has begun before');
  await t.throwsAsync(staged.sync(), named('StorageUnavailable'));
  t.true(staged.isLost);
  await staged.discard();
});

test('after detaching, a writer that has the old file open does not change the new one', async (t) => {
  const paths = await folder(t);
  const first = await StagedFile.create(paths);
  await first.write(Buffer.from('shared'));
  const second = await StagedFile.reopen(paths, first.id, 6, true);
  await first.write(Buffer.from(' late'));
  await second.write(Buffer.from(' new'));
  t.is((await readFile(second.path)).toString(), 'shared new');
  await first.close();
  await second.discard();
});

test('after detaching, a discard by a writer that has the old file leaves the new one', async (t) => {
  const paths = await folder(t);
  const first = await StagedFile.create(paths);
  await first.write(Buffer.from('shared'));
  const second = await StagedFile.reopen(paths, first.id, 6, true);
  await first.discard();
  await first.discard();
  t.is((await readFile(second.path)).toString(), 'shared');
  await second.discard();
  await t.throwsAsync(stat(second.path), { code: 'ENOENT' });
});

test('a discarded file is deleted, and can be discarded twice', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  await staged.write(Buffer.from('x'));
  await staged.discard();
  await t.throwsAsync(stat(staged.path), { code: 'ENOENT' });
  await t.notThrowsAsync(staged.discard());
  await writeFile(staged.path, '');
  await staged.close();
  t.is((await stat(staged.path)).size, 0, 'closing removes nothing');
});

test('when the disk is full, the file and its digests have the complete writes, and more can be appended', async (t) => {
  const disk = new TestDisk();
  const staged = await StagedFile.create(await folder(t), ['sha256', 'sha512'], disk);
  const body = randomBytes(5 * 2 ** 20);
  await staged.append(Readable.from([body.subarray(0, 1000)]));
  disk.left = 2_500_000;
  const pieces = Array.from({ length: 50 }, (_, index) =>
    body.subarray(index * 100_000 + 1000, (index + 1) * 100_000 + 1000),
  );
  await t.throwsAsync(staged.append(Readable.from(pieces)), named('StorageFull'));
  t.true(staged.size > 1000 && staged.size <= 2_501_000, `${staged.size}`);
  t.is((await stat(staged.path)).size, staged.size, 'no part of an incomplete write');
  t.is(await staged.digest('sha512'), digestOf(body.subarray(0, staged.size), 'sha512'));
  disk.left = 10;
  const before = staged.size;
  await t.throwsAsync(staged.write(body.subarray(before, before + 100)), { code: 'ENOSPC' });
  t.is((await stat(staged.path)).size, before);
  disk.left = Number.POSITIVE_INFINITY;
  await staged.append(Readable.from([body.subarray(staged.size)]));
  t.is(staged.runningDigest('sha256'), digestOf(body));
  t.true((await readFile(staged.path)).equals(body));
  await staged.discard();
});

test('without a file on the disk, a body that the memory does not take is a full disk', async (t) => {
  const memory = new OverflowMemory(1000);
  const staged = await StagedFile.createInMemory(['sha256'], memory);
  await staged.append(Readable.from([Buffer.alloc(900)]));
  t.deepEqual([staged.isOffDisk, staged.isInMemory, await staged.isAtPath()], [true, true, false]);
  await t.notThrowsAsync(staged.sync());
  await t.throwsAsync(staged.append(Readable.from([Buffer.alloc(200)])), named('StorageFull'));
  await t.throwsAsync(staged.write(Buffer.alloc(200)), { code: 'ENOSPC' });
  t.is(staged.size, 900);
  await staged.write(Buffer.alloc(100));
  t.deepEqual([staged.size, memory.left], [1000, 0]);
  await staged.discard();
  t.is(memory.left, 1000);
  const hashed = await StagedFile.createInMemory(['sha512']);
  hashed.hashOn(Buffer.from('hash'));
  hashed.hashOn(Buffer.from('ed'));
  t.is(hashed.runningDigest('sha512'), digestOf('hashed', 'sha512'));
  t.false(hashed.continueInMemory(0));
  await hashed.discard();
});

test('a file goes on in memory if there is room, and its readers keep the memory', async (t) => {
  const memory = new OverflowMemory(10);
  const staged = await StagedFile.create(await folder(t), ['sha256'], undefined, memory);
  await staged.write(Buffer.from('disk,'));
  t.false(staged.continueInMemory(11));
  t.false(staged.isInMemory);
  t.true(staged.continueInMemory(10));
  await staged.write(Buffer.from('memory'));
  t.true(staged.isInMemory);
  t.is((await readFile(staged.path)).toString(), 'disk,');
  t.is((await staged.bytes()).toString(), 'disk,memory');
  const following = await staged.follow();
  await staged.write(Buffer.from('...'));
  t.deepEqual([memory.left, following.size], [1, undefined]);
  await staged.close();
  const content = await staged.open();
  t.is(content.bytes, undefined, 'the closed file is opened again');
  const target = Buffer.alloc(20, '-');
  t.deepEqual([await content.read(target, 3), target.toString('utf8', 0, 3)], [2, 'k,-']);
  t.deepEqual([await content.read(target, 7), target.toString('utf8', 0, 8)], [7, 'mory...-']);
  t.is(await content.read(target, 14), 0);
  await staged.discard();
  t.is((await readAll(following, 100)).toString(), 'disk,memory...');
  for (let times = 0; times < 3; times += 1) following.close();
  t.is(memory.left, 1, 'the other reader still needs it');
  content.close();
  t.is(memory.left, 10);
  await rm(staged.path, { force: true });
  await t.throwsAsync(staged.follow(), { code: 'ENOENT' });
});

test('what follows bytes in memory is in memory, too, and another error of the disk is no full disk', async (t) => {
  const paths = await folder(t);
  const [disk, memory] = [new TestDisk(), new OverflowMemory(10)];
  const staged = await StagedFile.create(paths, ['sha256'], disk, memory);
  await staged.write(Buffer.from('disk'));
  disk.left = 0;
  await staged.write(Buffer.from('a'));
  disk.left = Number.POSITIVE_INFINITY;
  await staged.write(Buffer.from('b'));
  t.is((await staged.bytes()).toString(), 'diskab');
  t.is((await readFile(staged.path)).toString(), 'disk');
  t.is(memory.left, 8);
  await staged.discard();
  const failure = Object.assign(new Error('EIO: i/o error, write'), { code: 'EIO' });
  const broken = { write: () => Promise.reject(failure), copy: () => Promise.reject(failure) };
  const other = await StagedFile.create(paths, ['sha256'], broken, memory);
  t.is(await t.throwsAsync(other.write(Buffer.from('c'))), failure);
  t.deepEqual([memory.left, other.isInMemory], [10, false]);
  await other.discard();
});

test('after a body was too large, no more of it is taken, and consumed pieces are freed', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  const pieces = ['abc', '0123456789', 'd'].map((each) => Buffer.from(new TextEncoder().encode(each).buffer));
  const source = new Readable({ read: () => undefined });
  for (const piece of pieces) source.push(piece);
  source.push(null);
  await t.throwsAsync(staged.append(source, { limit: 5, atOnce: true, consume: true }), named('TooLarge'));
  t.is(staged.size, 3);
  t.is(await staged.digest(), digestOf('abc'));
  t.deepEqual(
    pieces.map(({ length }) => length),
    [0, 10, 1],
  );
  await staged.discard();
});

test('an opened file is in memory if it is small', async (t) => {
  const staged = await StagedFile.create(await folder(t));
  await staged.write(Buffer.alloc(wholeBytes, 'a'));
  const whole = await staged.open();
  t.deepEqual([whole.size, whole.bytes], [wholeBytes, Buffer.alloc(wholeBytes, 'a')]);
  await staged.write(Buffer.from('b'));
  const large = await staged.open();
  t.is(large.bytes, undefined);
  t.is((await readAll(large, wholeBytes + 1)).at(-1), 98);
  await truncate(staged.path, 5);
  for (const read of [staged.bytes(), staged.digest('sha512')])
    await t.throwsAsync(read, { message: /is shorter than its 131073 bytes$/ });
  t.is((await stat(staged.path)).mode & 0o777, 0o600);
  await staged.cut(2);
  await staged.cut(1);
  t.is((await stat(staged.path)).size, 2);
  await staged.discard();
});

test('a staging folder that is missing makes the storage unavailable, and a file that is gone can be discarded', async (t) => {
  const paths = await folder(t);
  const staged = await StagedFile.create(paths);
  await rm(paths.staging, { recursive: true });
  await t.notThrowsAsync(staged.discard());
  const missing = { ...named('StorageUnavailable'), message: /The staging folder is missing/ };
  await t.throwsAsync(StagedFile.create(paths), missing);
  await writeFile(paths.staging, '');
  await t.throwsAsync(StagedFile.create(paths), { code: 'ENOTDIR' });
});

test('small pieces are written together, except where readers follow the file', async (t) => {
  for (const atOnce of [false, true]) {
    const staged = await StagedFile.create(await folder(t));
    const source = new PassThrough();
    let writes = 0;
    let arrived = Promise.withResolvers<void>();
    const progress = () => {
      writes += 1;
      arrived.resolve();
    };
    const appending = staged.append(source, { atOnce, progress });
    for (const piece of ['a', 'b', 'c']) {
      arrived = Promise.withResolvers();
      source.write(piece);
      if (atOnce) await arrived.promise;
      else await new Promise(setImmediate);
    }
    source.end();
    t.is(await appending, 3);
    t.is(writes, atOnce ? 3 : 1);
    await staged.discard();
  }
});

test('a file that cannot be detached because the disk is full is not lost, and no copy stays', async (t) => {
  const paths = await folder(t);
  const first = await StagedFile.create(paths);
  await first.write(Buffer.from('kept'));
  await first.close();
  const disk = new TestDisk();
  disk.left = 0;
  await t.throwsAsync(StagedFile.reopen(paths, first.id, 4, true, disk), named('StorageFull'));
  t.deepEqual(await readdir(paths.staging), [first.id]);
  t.is((await readFile(first.path)).toString(), 'kept');
  const again = await StagedFile.reopen(paths, first.id, 4, true);
  t.deepEqual(await again.bytes(), Buffer.from('kept'));
  await again.discard();
});
