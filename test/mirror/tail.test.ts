import test from 'ava';
import { Tail } from '../../src/mirror/fetch/tail.ts';
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
