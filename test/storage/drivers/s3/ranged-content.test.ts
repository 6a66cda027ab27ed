import { randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { mock } from 'node:test';
import { PassThrough, Readable } from 'node:stream';
import test from 'ava';
import { digestOf } from '../../../../src/runtime/digest.ts';
import type { Bucket } from '../../../../src/storage/drivers/s3/bucket.ts';
import { RangedContent } from '../../../../src/storage/drivers/s3/ranged-content.ts';
import { until, within } from '../../../support/until.ts';

// What is hard to see from outside: when bodies end, and what is waited for.

const bytes = randomBytes(300_000);

/** Content of a bucket whose answers have these bodies, one after the other; by default the requested bytes. */
function contentWith(bodies: (Readable | Promise<Readable>)[] = [], attempts = 1, size = bytes.length) {
  const gets: { range: [number, number]; signal: AbortSignal; body: Readable | Promise<Readable> }[] = [];
  const bucket = {
    times: { request: 100, idle: 60_000, attempts },
    counts: { received: 0 },
    pauses: 0,
    pause() {
      this.pauses += 1;
      return Promise.resolve();
    },
    async get(_: string, start: number, end: number, signal: AbortSignal) {
      const body =
        bodies[gets.length] ?? Readable.from([Buffer.from(bytes.subarray(start, end))], { objectMode: false });
      gets.push({ range: [start, end], signal, body });
      return { body: await body, start, length: end - start, size };
    },
  };
  const content = new RangedContent(bucket as unknown as Bucket, 'key', digestOf(bytes), bytes.length, true);
  return { bucket, content, gets };
}

const ranges = ({ gets }: ReturnType<typeof contentWith>) => gets.map(({ range }) => range);

test.serial('a body whose reader rests is ended after 5 s, and the next read continues', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const body = new PassThrough();
    const all = contentWith([body]);
    const target = Buffer.alloc(1000);
    body.write(bytes.subarray(0, 100_000));
    t.is(await all.content.read(Buffer.alloc(100_000), 0), 100_000);
    mock.timers.tick(4999);
    const reading = all.content.read(target, 100_000);
    await setImmediate();
    // A reader that waits does not rest.
    mock.timers.tick(5000);
    body.write(bytes.subarray(100_000, 100_500));
    t.is(await within(reading), 500);
    t.true(target.subarray(0, 500).equals(bytes.subarray(100_000, 100_500)));
    mock.timers.tick(4999);
    t.false(body.destroyed);
    mock.timers.tick(1);
    t.true(body.destroyed);
    t.is(await all.content.read(target, 100_500), 1000);
    t.true(target.equals(bytes.subarray(100_500, 101_500)));
    t.deepEqual(ranges(all), [
      [0, 300_000],
      [100_500, 300_000],
    ]);
    all.content.close();
  } finally {
    mock.timers.reset();
  }
});

test('a reader that goes on after a small part gets the rest with one request', async (t) => {
  const all = contentWith();
  const target = Buffer.alloc(10);
  for (const position of [0, 10, 20]) {
    t.is(await all.content.read(target, position), 10);
    t.true(target.equals(bytes.subarray(position, position + 10)));
  }
  t.deepEqual(ranges(all), [
    [0, 10],
    [10, 300_000],
  ]);
  t.is(all.bucket.pauses, 0);
  all.content.close();
});

test('a small part is waited for as a whole, a long read is not', async (t) => {
  const [small, long] = [new PassThrough(), new PassThrough()];
  const all = contentWith([small, long]);
  small.write(bytes.subarray(1000, 1004));
  const target = Buffer.alloc(10);
  const reading = all.content.read(target, 1000);
  for (let turn = 0; turn < 10; turn += 1) await setImmediate();
  small.write(bytes.subarray(1004, 1010));
  t.is(await within(reading), 10);
  t.true(target.equals(bytes.subarray(1000, 1010)));
  t.true(small.destroyed);
  long.write(bytes.subarray(0, 7));
  t.is(await within(all.content.read(Buffer.alloc(100_000), 0)), 7);
  all.content.close();
});

test('no listener stays at a body, and a piece that is read at once is freed', async (t) => {
  const body = new PassThrough();
  const all = contentWith([body]);
  const listeners = () => ['readable', 'end', 'close', 'error'].map((each) => body.listenerCount(each));
  const before = listeners();
  const own = (start: number, end: number) => Buffer.from(new Uint8Array(bytes.subarray(start, end)).buffer);
  const piece = own(0, 100_000);
  const reading = all.content.read(Buffer.alloc(70_000), 0);
  await setImmediate();
  body.write(piece);
  t.is(await within(reading), 70_000);
  t.deepEqual(listeners(), before);
  t.is(piece.length, 100_000);
  const target = Buffer.alloc(70_000);
  t.is(await within(all.content.read(target, 70_000)), 30_000);
  t.true(target.subarray(0, 30_000).equals(bytes.subarray(70_000, 100_000)));
  const next = own(100_000, 170_000);
  body.write(next);
  t.is(await within(all.content.read(target, 100_000)), 70_000);
  t.true(target.equals(bytes.subarray(100_000, 170_000)));
  t.is(next.length, 0);
  all.content.close();
});

test('closing ends a read that waits for a request, for an answer, or for bytes', async (t) => {
  const closed = { name: 'Aborted' };
  const body = new PassThrough();
  const waiting = contentWith([body]);
  const reading = waiting.content.read(Buffer.alloc(100_000), 0);
  await setImmediate();
  waiting.content.close();
  await t.throwsAsync(within(reading), closed);
  t.true(body.destroyed);
  t.false(waiting.gets[0]!.signal.aborted, 'the request has its answer');

  const answer = Promise.withResolvers<Readable>();
  const late = contentWith([answer.promise]);
  const opening = late.content.read(Buffer.alloc(100_000), 0);
  await setImmediate();
  late.content.close();
  t.true(late.gets[0]!.signal.aborted);
  const found = Readable.from([bytes], { objectMode: false });
  answer.resolve(found);
  await t.throwsAsync(within(opening), closed);
  t.true(found.destroyed);
});

test('the time of a request is the time until its answer begins', async (t) => {
  const begun = contentWith([new PassThrough()]);
  const reading = begun.content.read(Buffer.alloc(100_000), 0).catch(() => undefined);
  const never = contentWith([new Promise<Readable>(() => undefined)]);
  void never.content.read(Buffer.alloc(100_000), 0);
  // The limit of the first request was over before that of the second one.
  await until(() => never.gets[0]?.signal.aborted === true);
  t.false(begun.gets[0]!.signal.aborted);
  begun.content.close();
  await reading;
});

test('a body that fails, is gone, or is of another object', async (t) => {
  const failure = new Error('reset');
  const body = new PassThrough();
  const failing = contentWith([body]);
  const reading = failing.content.read(Buffer.alloc(100_000), 0);
  await setImmediate();
  body.destroy(failure);
  const error = await t.throwsAsync<Error>(within(reading), { name: 'StorageUnavailable' });
  t.is(error.cause, failure);

  const gone = new PassThrough();
  gone.destroy();
  await new Promise((resolve) => gone.once('close', resolve));
  const again = contentWith([gone], 2);
  t.true((await within(again.content.read(Buffer.alloc(100_000), 0))) > 0);
  t.is(again.bucket.pauses, 1);
  again.content.close();

  const other = Readable.from([bytes], { objectMode: false });
  const changed = contentWith([other], 1, 1);
  await t.throwsAsync(changed.content.read(Buffer.alloc(100_000), 0), { name: 'ContentDamaged' });
  t.true(other.destroyed);
});

test('only bytes that are read in order count for the digest', async (t) => {
  const { content } = contentWith();
  const read = async (position: number) => {
    const target = Buffer.alloc(100_000);
    for (let length = 0; length < target.length;)
      length += await content.read(target.subarray(length), position + length);
    t.true(target.equals(bytes.subarray(position, position + target.length)));
  };
  for (const position of [200_000, 0, 100_000]) await read(position);
  t.is(await content.read(Buffer.alloc(10), 300_000), 0);
  content.close();
});
