import { PassThrough, Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import { appendBody, verify, type Chunk } from '../../../src/oci/uploads/upload-body.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { openStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const MiB = 2 ** 20;
const refusal = () => new DomainError('QuotaExceeded', 'full');

/** A staged file with some bytes, and a lease that grants what `grant` says. */
async function open(
  t: ExecutionContext,
  before = '',
  grant: (least: number, most: number) => number = (least) => least,
) {
  const { blobs } = await openStore(t, 'sqlite');
  const staged = await blobs.stageHosted(0, ['sha256']);
  t.teardown(() => staged.discard());
  if (before !== '') await staged.write(Buffer.from(before));
  const reserved: unknown[] = [];
  const lease = {
    reserve: (least: number, most: number, allowance: unknown) => {
      reserved.push([least, most]);
      t.deepEqual(allowance, { bytes: 7, refusal });
      return Promise.resolve().then(() => grant(least, most));
    },
  };
  const seen = { data: [] as number[], writes: 0, asked: 0 };
  const chunk = (source: Readable, changes: Partial<Chunk> = {}): Chunk => ({
    source,
    size: 0,
    allowance: () => {
      seen.asked += 1;
      return Promise.resolve({ bytes: 7, refusal });
    },
    onData: (bytes) => seen.data.push(bytes),
    onWritten: () => (seen.writes += 1),
    ...changes,
  });
  return { staged, reserved, lease: lease as never, chunk, seen };
}

test('a body is appended with what it announces, and each of its pieces is reported', async (t) => {
  const { staged, reserved, lease, chunk, seen } = await open(t, 'before');
  const source = Readable.from([Buffer.from('one'), Buffer.from('three')]);
  // Without a limit of storage, or without a session, nothing is reserved.
  t.is(await appendBody(staged, chunk(source, { allowance: undefined }), {}, lease), 8);
  t.is(await appendBody(staged, chunk(Readable.from([Buffer.from('two')])), {}, undefined), 3);
  t.deepEqual([reserved, seen.data, seen.asked], [[], [3, 5, 3], 0]);
  t.true(seen.writes >= 2);
  t.is(String(await staged.bytes()), 'beforeonethreetwo');
  t.is(await appendBody(staged, chunk(Readable.from([])), {}, lease), 0);
});

test('each part of a body is reserved before it is written', async (t) => {
  const { staged, reserved, lease, chunk, seen } = await open(t, '12345', (least) => least + 2);
  const source = new PassThrough();
  const appended = appendBody(staged, chunk(source), {}, lease);
  source.write(Buffer.alloc(10));
  await until(() => reserved.length === 1 && !source.isPaused());
  // Within what was granted.
  source.write(Buffer.alloc(2));
  await until(() => seen.data.length === 2);
  t.is(reserved.length, 1);
  source.end(Buffer.alloc(1));
  t.is(await appended, 13);
  t.deepEqual(reserved, [
    [15, 15 + MiB],
    [18, 18 + MiB],
  ]);
  t.deepEqual([seen.data, seen.asked, staged.size], [[10, 2, 1], 2, 18]);
  t.true(seen.writes >= 2);
});

test('what is reserved at once grows with what has arrived, from 1 MiB to 64 MiB, or is what the body announces', async (t) => {
  for (const [bytes, size, most] of [
    [3 * MiB, 0, 6 * MiB],
    [65 * MiB, 0, 129 * MiB],
    [3 * MiB, 5 * MiB, 6 * MiB],
    [3 * MiB, 7 * MiB, 7 * MiB],
    [100, 50, 100 + MiB],
  ] as const) {
    const { staged, reserved, lease, chunk } = await open(t, '1');
    t.is(await appendBody(staged, chunk(Readable.from([Buffer.alloc(bytes)]), { size }), {}, lease), bytes);
    t.deepEqual(reserved, [[1 + bytes, 1 + most]], `${bytes} of ${size}`);
  }
});

test('after a refusal, the rest of the body is read and dropped', async (t) => {
  const full = new DomainError('QuotaExceeded', 'full');
  const { staged, reserved, lease, chunk } = await open(t, '', () => {
    throw full;
  });
  const source = Readable.from([Buffer.alloc(10), Buffer.alloc(20), Buffer.alloc(30)]);
  const ended = new Promise((resolve) => source.once('end', resolve));
  t.is(await t.throwsAsync(appendBody(staged, chunk(source), {}, lease)), full);
  await ended;
  t.deepEqual([reserved.length, staged.size], [1, 10]);
});

test('the bytes of a file are verified by the digest that is known, or else by the file itself', async (t) => {
  const { staged } = await open(t, 'content');
  const [right, long, wrong] = [digestOf('content'), digestOf('content', 'sha512'), digestOf('other')];
  let reads = 0;
  const counting = { digest: (algorithm: 'sha256' | 'sha512') => (reads++, staged.digest(algorithm)) } as never;
  await t.notThrowsAsync(verify(counting, right, null));
  await t.notThrowsAsync(verify(counting, long, null));
  t.is(reads, 2);
  await t.notThrowsAsync(verify(counting, right, right));
  t.is(reads, 2, 'a known digest is used');
  await t.notThrowsAsync(verify(counting, long, wrong));
  t.is(reads, 3, 'one of another algorithm is not');
  for (const known of [null, right]) {
    const error = await t.throwsAsync(verify(counting, wrong, known), { name: 'DigestMismatch' });
    t.deepEqual((error as DomainError).detail, { expected: wrong, found: right });
  }
});
