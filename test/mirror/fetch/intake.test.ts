import test from 'ava';
import { Intake, mayPassThrough } from '../../../src/mirror/fetch/intake.ts';
import type { MirrorResource } from '../../../src/mirror/fetch/resource.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';

// Where the bytes of a body go, by the room on the disk and by what must be checked of them.

interface Given {
  /** As announced. */
  size?: number;
  /** The bytes that an earlier fetch has staged. */
  there?: number;
  resource?: Partial<MirrorResource>;
  expected?: Digest;
  hasRoom?: boolean;
  hasForAMoment?: boolean;
  isOffDisk?: boolean;
  /** Whether memory has room. */
  fitsInMemory?: boolean;
}

const digest = digestOf('x');

async function open(given: Given) {
  const calls: unknown[] = [];
  const staged = {
    id: 'a',
    size: given.there ?? 0,
    isOffDisk: given.isOffDisk ?? false,
    isInMemory: false,
    follow: () => Promise.resolve({ close: () => undefined }),
    continueInMemory: (missing: number) => {
      calls.push(['memory', missing]);
      staged.isInMemory = given.fitsInMemory ?? true;
      return staged.isInMemory;
    },
    runningDigest: (algorithm: string) => `${algorithm} of what came`,
  };
  const room = {
    has: (bytes: number) => {
      calls.push(['has', bytes]);
      return Promise.resolve(given.hasRoom ?? true);
    },
    hasForAMoment: (bytes: number) => {
      calls.push(['has for a moment', bytes]);
      return Promise.resolve(given.hasForAMoment ?? true);
    },
    expect: (bytes: number) => {
      calls.push(['expects', bytes]);
      return (rest: number) => void calls.push(['expects still', rest]);
    },
  };
  const intake = await Intake.open({
    resource: { upstreamName: 'up.test', limit: 10 ** 9, ...given.resource } as MirrorResource,
    staged: staged as never,
    size: given.size,
    expected: given.expected,
    room: room as never,
    stop: new AbortController(),
    onProgress: () => undefined,
  });
  return { intake, calls, staged };
}

const verify = () => Promise.resolve({});

test('only content whose digest alone is checked can be passed through', (t) => {
  const cases: Partial<MirrorResource>[] = [
    { digest },
    {},
    { digest, verify },
    { digest, whole: true },
    { whole: true },
  ];
  t.deepEqual(
    cases.map((each) => mayPassThrough(each as MirrorResource)),
    [true, false, false, false, false],
  );
});

test('a body for which there is room is stored, and the rest of it is expected', async (t) => {
  const { intake, calls } = await open({ size: 100, there: 30 });
  t.deepEqual([intake.isStored, intake.isFull, intake.tail.isPassThrough], [true, false, false]);
  intake.end();
  t.deepEqual(calls, [
    ['has', 70],
    ['expects', 70],
    ['expects still', 0],
  ]);
  const unknown = await open({ there: 30 });
  t.deepEqual(unknown.calls, [
    ['has', 0],
    ['expects', 0],
  ]);
});

test('without room, a body is passed through, staged for a moment, or kept in memory, as it is checked', async (t) => {
  const passed = await open({ size: 100, hasRoom: false, resource: { digest } });
  t.deepEqual([passed.intake.isStored, passed.intake.tail.isPassThrough], [false, true]);
  t.deepEqual(passed.calls, [
    ['has', 100],
    ['has for a moment', 100],
    ['expects', 0],
  ]);
  const whole = await open({ size: 100, hasRoom: false });
  t.deepEqual([whole.intake.isStored, whole.intake.tail.isPassThrough], [false, false]);
  t.deepEqual(whole.calls.slice(1), [
    ['has for a moment', 100],
    ['expects', 100],
  ]);
  const full = await open({ size: 100, there: 10, hasRoom: false, hasForAMoment: false });
  t.deepEqual([full.intake.isStored, full.intake.tail.isPassThrough], [false, false]);
  t.deepEqual(full.calls, [
    ['has', 90],
    ['has for a moment', 90],
    ['memory', 90],
    ['expects', 90],
  ]);
  const off = await open({ size: 100, isOffDisk: true });
  t.false(off.intake.isStored);
  t.deepEqual(off.calls, [
    ['memory', 100],
    ['expects', 100],
  ]);
  const passedOff = await open({ size: 100, isOffDisk: true, hasRoom: true, resource: { digest } });
  t.true(passedOff.intake.tail.isPassThrough);
  const none = { size: 100, hasRoom: false, hasForAMoment: false, fitsInMemory: false };
  await t.throwsAsync(open(none), {
    name: 'StorageFull',
    message: 'The disk of the server has no room to fetch this. Free some space on it.',
  });
  await t.throwsAsync(open({ size: 100, isOffDisk: true, fitsInMemory: false }), { name: 'StorageFull' });
  t.true((await open({ ...none, resource: { digest } })).intake.tail.isPassThrough);
});

const nearly = async (size: number | undefined, there: number, rest: number, since = 0, more: Given = {}) =>
  (await open({ ...(size !== undefined && { size }), there, ...more })).intake.isNearlyDone(rest, since);

test('a body is nearly done when few bytes or a tenth of it are missing', async (t) => {
  t.true(await nearly(1000, 950, 50));
  t.true(await nearly(1000, 949, 51));
  t.true(await nearly(1000, 900, 10), 'a tenth');
  t.false(await nearly(1000, 899, 100));
  t.true(await nearly(1000, 899, 101));
  t.true(await nearly(1000, 2000, 0));
  t.true(await nearly(undefined, 99, 100), 'of an unknown length: what has come since');
  t.false(await nearly(undefined, 100, 100));
  t.true(await nearly(undefined, 199, 100, 100));
  t.false(await nearly(undefined, 200, 100, 100));
  t.false(await nearly(1000, 999, 100, 0, { hasRoom: false, resource: { digest } }), 'it is not stored');
});

const received = async (expected?: Digest) =>
  (await open({ size: 100, there: 30, ...(expected && { expected }) })).intake.received as unknown;

test('of what has come, the digest is told if that of the whole is not known', async (t) => {
  t.deepEqual(await received(), { bytes: 30, digest: 'sha256 of what came' });
  t.deepEqual(await received(digest), { bytes: 30, digest: undefined });
});
