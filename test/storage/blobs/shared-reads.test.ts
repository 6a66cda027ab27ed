import test from 'ava';
import * as fc from 'fast-check';
import { randomBytes } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Content } from '../../../src/storage/files/content.ts';
import { SharedReads } from '../../../src/storage/blobs/shared-reads.ts';
import { within } from '../../support/until.ts';

const bytes = randomBytes(1_500_000);
const piece = 512 * 1024;
const reads = new SharedReads();
const holdRead = reads.hold.bind(reads);

/** Content that counts its reads, each of which takes a turn of the event loop. `there` is the available length. */
function counted(source: string | undefined, there = () => bytes.length): Content & { reads: number } {
  return {
    size: bytes.length,
    ...(source !== undefined && { source }),
    reads: 0,
    async read(target, position) {
      this.reads += 1;
      await nextTurn();
      return bytes.copy(target, 0, position, Math.min(there(), position + target.length));
    },
    close: () => undefined,
  };
}

test('concurrent readers share one read; after all have released it, the next reader reads again', async (t) => {
  const [a, b] = [counted('a'), counted('a')];
  const first = await Promise.all([holdRead(a, 0, 1), holdRead(b, 0, 1), holdRead(b, 0, 1)]);
  for (const each of first) t.deepEqual(each.bytes, bytes.subarray(0, piece));
  const later = await holdRead(b, 1000, 1);
  t.deepEqual(later.bytes, bytes.subarray(1000, piece));
  first[0].release();
  const latest = await holdRead(b, 2000, 1);
  t.is(a.reads + b.reads, 1, 'others still hold it');
  for (const each of [...first.slice(1), later, latest]) each.release();
  (await holdRead(b, 0, 1)).release();
  t.is(a.reads + b.reads, 2);
});

test('two installations in one process share no reads', async (t) => {
  const [mine, theirs] = [counted('both'), counted('both')];
  const held = await Promise.all([reads.hold(mine, 0, 1), new SharedReads().hold(theirs, 0, 1)]);
  t.deepEqual([mine.reads, theirs.reads], [1, 1]);
  for (const each of held) each.release();
});

test('other content, other pieces and content without a source are read separately', async (t) => {
  const contents = [counted('b'), counted('c'), counted(undefined), counted(undefined)];
  const held = await Promise.all(contents.flatMap((each) => [holdRead(each, 0, 1), holdRead(each, piece, 1)]));
  for (const [index, each] of held.entries()) {
    t.deepEqual(each.bytes, bytes.subarray((index % 2) * piece, ((index % 2) + 1) * piece));
    each.release();
  }
  t.deepEqual(
    contents.map(({ reads }) => reads),
    [2, 2, 2, 2],
  );
});

test('a reader that starts before the filled part of a piece reads separately', async (t) => {
  const content = counted('d');
  const late = await holdRead(content, 5000, 1);
  const early = await holdRead(content, 10, 1);
  t.deepEqual(early.bytes, bytes.subarray(10, piece));
  early.release();
  const shared = await holdRead(content, 6000, 1);
  t.deepEqual(shared.bytes, bytes.subarray(6000, piece));
  t.is(content.reads, 2);
  late.release();
  shared.release();
});

test('a piece of growing content grows for all its readers; at the end, a read is empty', async (t) => {
  let there = 1000;
  const content = counted('e', () => there);
  const [a, b] = await Promise.all([holdRead(content, 0, 1), holdRead(content, 0, 1)]);
  there = 3000;
  const [c, d] = await Promise.all([holdRead(content, 1000, 1), holdRead(content, 1000, 1)]);
  t.deepEqual([a.bytes, b.bytes], [bytes.subarray(0, 1000), bytes.subarray(0, 1000)]);
  t.deepEqual([c.bytes, d.bytes], [bytes.subarray(1000, 3000), bytes.subarray(1000, 3000)]);
  const end = await holdRead(content, 3000, 1);
  t.is(end.bytes.length, 0);
  t.is(content.reads, 3);
  for (const each of [a, b, c, d, end]) each.release();
});

test('a failed read fails only for the reader that started it; a reader that waited reads again', async (t) => {
  const failing: Content = { ...counted('f'), read: () => Promise.reject(new Error('its client left')) };
  const content = counted('f');
  const settled = await Promise.allSettled([failing, content, failing, content].map((each) => holdRead(each, 0, 1)));
  t.deepEqual(
    settled.map(({ status }) => status),
    ['rejected', 'fulfilled', 'fulfilled', 'fulfilled'],
  );
  for (const each of settled) {
    if (each.status !== 'fulfilled') continue;
    t.deepEqual(each.value.bytes, bytes.subarray(0, piece));
    each.value.release();
  }
  t.is(content.reads, 1);
  const held = await holdRead(content, 0, 1);
  t.deepEqual(held.bytes, bytes.subarray(0, piece));
  held.release();
  t.is(content.reads, 2, 'the readers that failed hold nothing');
});

test('a reader of bytes that are there does not wait for a read of further ones', async (t) => {
  const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const content: Content = {
    ...counted('i'),
    read: async (target, position) => {
      if (position > 0) {
        asked.resolve();
        await answer.promise;
      }
      return bytes.copy(target, 0, position, position + 1000);
    },
  };
  const first = await holdRead(content, 0, 1);
  const further = holdRead(content, 1000, 1);
  await asked.promise;
  const there = await within(holdRead(content, 10, 1));
  t.deepEqual(there.bytes, bytes.subarray(10, 1000));
  answer.resolve();
  for (const each of [first, there, await further]) each.release();
});

test('more than 112 readers get small pieces; large buffers are used again, at most 24 of them', async (t) => {
  const own = new SharedReads();
  const heldBy = async (readers: number) => own.hold(counted(undefined), 0, readers);
  const [large, small] = [await heldBy(112), await heldBy(113)];
  t.deepEqual([large.bytes.length, small.bytes.length], [piece, piece / 4]);
  const used = large.bytes.buffer;
  small.release();
  large.release();
  const smallAgain = await heldBy(113);
  t.is(smallAgain.bytes.length, piece / 4);
  smallAgain.release();
  const again = await heldBy(1);
  t.is(again.bytes.length, piece);
  t.is(again.bytes.buffer, used);
  const many = [again, ...(await Promise.all(Array.from({ length: 25 }, () => heldBy(1))))];
  const buffers = new Set(many.map(({ bytes: { buffer } }) => buffer));
  t.is(buffers.size, 26, 'none is used twice at the same time');
  for (const each of many) each.release();
  const later = await Promise.all(Array.from({ length: 26 }, () => heldBy(1)));
  t.is(later.filter(({ bytes: { buffer } }) => buffers.has(buffer)).length, 24);
  for (const each of later) each.release();
});

test('readers that start and stop at random get the right bytes', async (t) => {
  const reader = fc.record({
    start: fc.nat(bytes.length - 1),
    source: fc.constantFrom('g', 'h'),
    readers: fc.constantFrom(1, 200),
    rests: fc.array(fc.nat(3), { minLength: 1, maxLength: 5 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(reader, { minLength: 1, maxLength: 12 }), async (all) => {
      const read = async ({ start, source, readers, rests }: (typeof all)[number]) => {
        const content = counted(source);
        const found: Buffer[] = [];
        for (let position = start, turn = 0; ; turn += 1) {
          const held = await holdRead(content, position, readers);
          if (held.bytes.length === 0) return held.release();
          for (let rest = rests[turn % rests.length]!; rest > 0; rest -= 1) await nextTurn();
          found.push(Buffer.from(held.bytes));
          position += held.bytes.length;
          held.release();
          if (position === bytes.length) break;
        }
        if (!Buffer.concat(found).equals(bytes.subarray(start))) throw new Error(`wrong bytes from ${start} on`);
      };
      await Promise.all(all.map(read));
    }),
    { numRuns: 50 },
  );
  t.pass();
});
