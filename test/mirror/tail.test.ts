import test from 'ava';
import { Tail } from '../../src/mirror/fetch/tail.ts';
import { UnreadBytes } from '../../src/mirror/fetch/unread-bytes.ts';
import type { Content } from '../../src/storage/files/content.ts';

/** A tail of a body of which `staged.size` bytes have arrived. */
function setUp(size: number, firstWait?: number) {
  const staged = { id: 'a', size };
  const file: Content = {
    size: undefined,
    read: async (target, position) => Math.min(target.length, staged.size - position),
    close: () => undefined,
  };
  return { staged, tail: new Tail(staged, file, firstWait) };
}

test('a reader gets its first bytes when more than 16 KiB have arrived, and later ones at once', async (t) => {
  const { staged, tail } = setUp(16_385);
  const reader = tail.follow(undefined, () => undefined);
  let read = 0;
  const first = reader.read(Buffer.alloc(100_000), 0).then((bytes) => (read = bytes));
  await new Promise(setImmediate);
  t.is(read, 0);
  staged.size = 16_386;
  tail.grown();
  t.is(await first, 16_385);
  staged.size = 16_387;
  tail.grown();
  t.is(await reader.read(Buffer.alloc(100_000), 16_385), 1);
});

test('a reader gets the first bytes of a slow upstream after a while, however few they are', async (t) => {
  const { tail } = setUp(10, 0);
  t.is(await tail.follow(undefined, () => undefined).read(Buffer.alloc(100), 0), 9);
});

test('a reader without bytes gets the failure; one with some gets the rest of them first', async (t) => {
  const { staged, tail } = setUp(20_000);
  const early = tail.follow(undefined, () => undefined);
  t.is(await early.read(Buffer.alloc(100), 0), 100);
  const late = tail.follow(undefined, () => undefined);
  staged.size = 200;
  tail.end({ error: new Error('cut') });
  await t.throwsAsync(late.read(Buffer.alloc(100), 0), { message: 'cut' });
  t.is(await early.read(Buffer.alloc(1000), 100), 99);
  await t.throwsAsync(early.read(Buffer.alloc(1000), 199), { message: 'cut' });
});

test('a body that is not stored waits for the slowest reader, and not for one that has left', async (t) => {
  const { tail } = setUp(10, 0);
  t.false(tail.isPassThrough);
  let left = 0;
  let drained = 0;
  const fast = tail.follow(100, () => undefined);
  const slow = tail.follow(undefined, () => (left += 1));
  t.deepEqual([fast.size, fast.source, slow.size], [100, 'a', undefined]);
  tail.passThrough();
  t.true(tail.isPassThrough);
  t.is(fast.source, undefined);
  const add = (bytes: Buffer) => tail.push(bytes, () => (drained += 1));
  t.true(add(Buffer.alloc(2 ** 20 - 1, 'a')));
  t.false(add(Buffer.from('b')));
  t.is(tail.received, 2 ** 20 + 10);
  const target = Buffer.alloc(2 ** 21);
  t.is(await fast.read(target, 4), 6, 'the stored part comes from the file');
  t.is(await fast.read(target, 10), 2 ** 20 - 1, 'the last byte is held back');
  t.is(target.toString('latin1', 0, 1), 'a');
  t.is(drained, 0);
  slow.close();
  slow.close();
  t.is(left, 1);
  t.is(drained, 1, 'the upstream goes on when the other reader leaves');
  await t.throwsAsync(slow.read(target, 10), { name: 'Aborted' });
  const last = fast.read(target, 2 ** 20 + 9);
  tail.verified();
  t.is(await last, 1);
  t.is(target.toString('latin1', 0, 1), 'b');
  t.is(await fast.read(target, 2 ** 20 + 10), 0);
  t.true(add(Buffer.alloc(1000)));
});

test('a read frees memory for the upstream when the bytes were read before, and once for each wait', async (t) => {
  const { tail } = setUp(0, 0);
  tail.passThrough();
  const [one, other] = [tail.follow(undefined, () => undefined), tail.follow(undefined, () => undefined)];
  const early = one.read(Buffer.alloc(5), 0);
  let drained = 0;
  t.false(tail.push(Buffer.alloc(2 ** 20), () => (drained += 1)));
  t.false(tail.push(Buffer.alloc(2 ** 20), () => (drained += 1)));
  t.is(await early, 5);
  const target = Buffer.alloc(2 ** 20);
  for (const each of [one, other]) {
    t.is(drained, 0);
    t.is(await each.read(target, 0), 2 ** 20);
    t.is(await each.read(target, 2 ** 20), 2 ** 20 - 1);
  }
  t.is(drained, 0, 'the last piece is not read to its end');
  tail.verified();
  for (const each of [one, other]) t.is(await each.read(target, 2 ** 21 - 1), 1);
  t.is(drained, 1);
});

test('a read that waits ends when its reader is closed; the others go on', async (t) => {
  const { staged, tail } = setUp(1, 0);
  const [one, other] = [tail.follow(undefined, () => undefined), tail.follow(undefined, () => undefined)];
  const [ended, waiting] = [one.read(Buffer.alloc(10), 0), other.read(Buffer.alloc(10), 0)];
  one.close();
  await t.throwsAsync(ended, { name: 'Aborted' });
  staged.size = 3;
  tail.grown();
  t.is(await waiting, 2);
});

test('the more readers a body has, the longer they wait for more of it, until it is complete', async (t) => {
  const { staged, tail } = setUp(1, 0);
  const one = tail.follow(undefined, () => undefined);
  const first = one.read(Buffer.alloc(9), 0);
  staged.size = 3;
  tail.grown();
  t.is(await first, 2, 'at once, because it was not woken before');
  // Together they are woken once in 26 s.
  for (let more = 0; more < 20_000; more += 1) tail.follow(undefined, () => undefined);
  let read = 0;
  const second = one.read(Buffer.alloc(9), 2).then((bytes) => (read = bytes));
  staged.size = 5;
  tail.grown();
  tail.grown();
  await new Promise(setImmediate);
  t.is(read, 0);
  tail.verified();
  await second;
  t.is(read, 3);
});

test('bytes that were freed are never read as others', (t) => {
  const unread = new UnreadBytes(10);
  unread.push(Buffer.from('abc'));
  unread.push(Buffer.from('def'));
  unread.drop(13);
  const target = Buffer.alloc(3);
  t.throws(() => unread.read(target, 12), { message: /is not in memory any more/ });
  t.is(unread.read(target, 13), 3);
  t.is(target.toString(), 'def');
});
