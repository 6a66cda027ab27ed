import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import type { Fetched, MirrorResource } from '../../src/mirror/fetch/resource.ts';
import { entryId } from '../../src/mirror/store/entries.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { runFor, type Caller } from '../../src/runtime/caller.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { DiskReserve } from '../../src/storage/files/disk-reserve.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { openMirror, readEntry, type MirrorSetup } from '../support/mirror.ts';
import { changedDatabase } from '../support/databases.ts';
import { until } from '../support/until.ts';

// What the mirror serves, counts and tells, with fetches that the tests make themselves.

const day = 86_400_000;
const lifetime = { freshFor: 1000, staleFor: 60_000 };
const down = new UpstreamError('UpstreamUnavailable', 'down');

function bodyOf(text: string, more: Partial<Extract<Fetched, { kind: 'fetched' }>> = {}): Fetched {
  const body = Readable.from([Buffer.from(text)]);
  return { kind: 'fetched', body, size: text.length, type: 'x/y', etag: null, lastModified: null, ...more };
}

async function setUp(t: ExecutionContext, setup: MirrorSetup = {}) {
  const made = await openMirror(t, new URL('http://127.0.0.1:1'), setup);
  const clock = made.clock as { now: number };
  clock.now = 100 * day;
  /** The resource of a path, whose fetches answer in turn, the last one again. */
  const of = (path: string, changes: Partial<MirrorResource>, ...answers: (() => Fetched | Promise<Fetched>)[]) => {
    const asked: unknown[] = [];
    const fetch: MirrorResource['fetch'] = async (known) => {
      asked.push(known?.digest);
      return (answers.length > 1 ? answers.shift()! : answers[0]!)();
    };
    return { resource: made.resource(path, { fetch, ...changes }), asked };
  };
  const open = async (resource: MirrorResource) => {
    const entry = await made.mirror.open(resource);
    if (!entry) return 'absent';
    const text = `${entry.outcome}: ${String(await readEntry(entry))}`;
    await entry.complete;
    return text;
  };
  return { ...made, clock, of, open };
}

const absent = (): Fetched => ({ kind: 'absent' });
const unchanged = (): Fetched => ({ kind: 'not-modified' });
const failing = () => Promise.reject(down);
const full = () => new DiskReserve('/', 0, () => Promise.resolve(-1));

const counted = { hit: 0, revalidated: 0, stale: 0, miss: 0, passed: 0, withdrawn: 0, absent: 0, failed: 0 };

test('each request counts once, by what it got', async (t) => {
  const { mirror, of, open, clock } = await setUp(t);
  const use = mirror.counts.of('registry', 'up.test');
  const thing = of('/thing', { lifetime, keeps: true }, () => bodyOf('one'), unchanged, failing, absent);
  const expected = { ...counted };
  const got = async (outcome: keyof typeof counted, text: string) => {
    t.is(await open(thing.resource), text);
    expected[outcome] += 1;
    t.deepEqual(use.requests, expected);
  };
  await got('miss', 'miss: one');
  await got('hit', 'hit: one');
  clock.now += 1000;
  t.is(use.saved, 0);
  await got('revalidated', 'revalidated: one');
  t.is(use.saved, 3);
  clock.now += 1000;
  await got('stale', 'stale: one');
  clock.now += 1000;
  await got('withdrawn', 'withdrawn: one');
  await got('withdrawn', 'withdrawn: one');
  t.is(thing.asked.length, 4, 'that it has it no more is remembered');
  t.deepEqual(thing.asked, [undefined, ...Array(3).fill(digestOf('one'))]);
  t.true(await mirror.isAbsent(thing.resource.key));
  const none = of('/none', {}, absent);
  for (const count of [1, 2]) {
    t.is(await open(none.resource), 'absent');
    t.deepEqual(use.requests, { ...expected, absent: count });
  }
  t.is(none.asked.length, 1);
  const bad = of('/bad', {}, failing);
  t.is(await t.throwsAsync(open(bad.resource)), down);
  t.deepEqual(use.requests, { ...expected, absent: 2, failed: 1 });
  const broken = of('/broken', {}, () => Promise.reject(new Error('a mistake')));
  await t.throwsAsync(open(broken.resource), { message: 'a mistake' });
  t.is(use.requests.failed, 1, 'this is no failure of the upstream');
  t.deepEqual(mirror.counts.requests('registry'), { ...expected, absent: 2, failed: 1 });
  t.deepEqual(mirror.counts.requests('nuget'), counted);
});

test('what is not stored for want of room is passed on, and counts as that', async (t) => {
  const { mirror, of, open, blobCount } = await setUp(t, { mirror: { room: full() } });
  const bytes = 'x'.repeat(20_000);
  const large = of('/large', { digest: digestOf(bytes) }, () => bodyOf(bytes));
  t.is(await open(large.resource), `passed: ${bytes}`);
  t.is(await open(large.resource), `passed: ${bytes}`);
  t.is(large.asked.length, 2);
  const whole = of('/whole', { whole: true, lifetime }, () => bodyOf('{}'));
  const entry = await mirror.open(whole.resource);
  t.like(entry, { outcome: 'passed', type: 'x/y', size: 2 });
  t.is(entry!.metadata!.digest, digestOf('{}'));
  t.is(String(await readEntry(entry)), '{}');
  t.is(await entry!.complete, entry!.metadata!);
  t.deepEqual(mirror.counts.of('registry', 'up.test').requests, { ...counted, passed: 3 });
  t.is(await blobCount(), 0);
});

test('the bytes of stored content are those that clients get of an upstream', async (t) => {
  const { mirror, of } = await setUp(t);
  const thing = of('/thing', {}, () => bodyOf('one'));
  const counters: unknown[] = [];
  const caller: Caller = {
    account: undefined,
    gone: false,
    whenGone: () => () => undefined,
    readsFrom: (counter) => void counters.push(counter),
  };
  const read = async () => readEntry(await runFor(caller, () => mirror.open(thing.resource)));
  await read();
  t.deepEqual(counters, [], 'it came from the upstream');
  await read();
  t.is(counters.length, 1);
  t.is(counters[0], mirror.counts.of('registry', 'up.test'));
});

test('what is stored is opened without a request, as its time allows', async (t) => {
  const { mirror, of, open, clock, blobs, entries, database } = await setUp(t);
  const thing = of('/thing', { lifetime }, () => bodyOf('one'));
  const { key } = thing.resource;
  t.is(await mirror.openStored({ key, lifetime }), undefined);
  await open(thing.resource);
  const use = mirror.counts.of('registry', 'up.test').requests;
  t.like(await mirror.openStored({ key, lifetime }), { outcome: 'stale' });
  t.like(await mirror.openStored({ key, lifetime: 'immutable' }), { outcome: 'hit' });
  t.deepEqual(use, { ...counted, miss: 1 });
  t.like(await mirror.openStored({ key, lifetime, upstreamKind: 'registry' }), { outcome: 'stale' });
  t.deepEqual(use, { ...counted, miss: 1, stale: 1 });
  const usedAt = async () => {
    await entries.flushUses();
    return (await database.get<{ at: number }>('SELECT used_at AS at FROM mirror_entries'))!.at;
  };
  await usedAt();
  clock.now += 5;
  await mirror.openStored({ key, lifetime }, { isSearched: true });
  t.is(await usedAt(), clock.now - 5);
  await mirror.openStored({ key, lifetime });
  t.is(await usedAt(), clock.now);
  clock.now += 60_994;
  t.like(await mirror.openStored({ key, lifetime }), { outcome: 'stale' });
  clock.now += 1;
  t.is(await mirror.openStored({ key, lifetime }), undefined);
  t.is((await mirror.stored(key))?.digest, digestOf('one'), 'whatever its age');
  for (const name of ['BlobUnknown', 'ContentDamaged'] as const) {
    blobs.open = () => Promise.reject(new DomainError(name, 'lost'));
    t.is(await mirror.openStored({ key, lifetime: 'immutable' }), undefined);
  }
  blobs.open = () => Promise.reject(new DomainError('StorageUnavailable', 'no storage'));
  await t.throwsAsync(mirror.openStored({ key, lifetime: 'immutable' }), { message: 'no storage' });
  t.is(thing.asked.length, 1);
});

test('the use of a tag is one of its digest, too', async (t) => {
  const { mirror, of, open, clock, entries, database } = await setUp(t);
  const { key } = of('/thing', {}, absent).resource;
  const alias = { ...key, reference: digestOf('one') };
  const thing = of('/thing', { aliases: () => [alias] }, () => bodyOf('one'));
  await open(thing.resource);
  clock.now += 7;
  await open(thing.resource);
  await entries.flushUses();
  const rows = await database.select<{ id: string; at: number }>('SELECT id, used_at AS at FROM mirror_entries');
  t.deepEqual(
    new Map(rows.map(({ id, at }) => [id, at])),
    new Map([
      [entryId(key), clock.now],
      [entryId(alias), clock.now],
    ]),
  );
  t.true(await mirror.remove(alias));
  t.false(await mirror.remove(alias));
  t.is(await mirror.stored(alias), undefined);
  t.truthy(await mirror.stored(key));
});

/** What another entry of the upstream, which is stale, gets after a fetch that ended so, so long after its beginning. */
async function afterFailure(
  t: ExecutionContext,
  changes: Partial<MirrorResource>,
  age: number,
  end: (body: Readable) => Fetched | Promise<Fetched>,
) {
  const { mirror, of, open, clock } = await setUp(t);
  const other = of(
    '/other',
    { lifetime },
    () => bodyOf('one'),
    () => bodyOf('two'),
  );
  await open(other.resource);
  clock.now += 1000;
  const body = new Readable({ read: () => undefined });
  const bad = of('/bad', { idle: 10_000, ...changes }, () => {
    clock.now += age;
    return end(body);
  });
  await t.throwsAsync(async () => {
    const entry = await mirror.open(bad.resource);
    body.destroy(new Error('cut'));
    await readEntry(entry);
  });
  await until(() => mirror.flights === 0);
  return open(other.resource);
}

const begun = (body: Readable): Fetched => ({
  kind: 'fetched',
  body,
  size: 100_000,
  type: 'x/y',
  etag: null,
  lastModified: null,
});

test('an upstream has hung if it sent no answer for half of its time', async (t) => {
  const aborted = new DomainError('Aborted', 'all have left');
  t.is(await afterFailure(t, {}, 5000, failing), 'stale: one');
  t.is(await afterFailure(t, {}, 4999, failing), 'miss: two');
  t.is(await afterFailure(t, {}, 5000, () => Promise.reject(aborted)), 'stale: one');
  t.is(await afterFailure(t, {}, 5000, () => Promise.reject(new Error('a mistake'))), 'miss: two');
});

test('a large body that is cut late says nothing of its upstream, and a document does', async (t) => {
  const long = { freshFor: 1000, staleFor: 1 };
  t.is(await afterFailure(t, { digest: digestOf('x') }, 5000, begun), 'miss: two');
  t.is(await afterFailure(t, { lifetime: long }, 5000, begun), 'stale: one');
});

test('bytes that are lost are fetched again, and not without end', async (t) => {
  const { mirror, of, open, blobs } = await setUp(t);
  const thing = of('/thing', {}, () => bodyOf('one'));
  await open(thing.resource);
  const opening = blobs.open.bind(blobs);
  blobs.open = (...asked) => {
    blobs.open = opening;
    t.is(asked[0], digestOf('one'));
    return Promise.reject(new DomainError('BlobUnknown', 'lost'));
  };
  t.is(await open(thing.resource), 'miss: one');
  t.is(thing.asked.length, 2);
  const damaged = new DomainError('ContentDamaged', 'damaged');
  blobs.open = () => Promise.reject(damaged);
  const whole = of('/thing', { whole: true }, () => bodyOf('one'));
  t.is(await t.throwsAsync(mirror.open(whole.resource)), damaged);
  t.is(whole.asked.length, 3);
  const other = new DomainError('StorageUnavailable', 'no storage');
  blobs.open = () => Promise.reject(other);
  t.is(await t.throwsAsync(mirror.open(whole.resource)), other);
  t.is(whole.asked.length, 4);
});

const right = digestOf('right');
const wrong = digestOf('wrong');

const refusals: [string, Partial<MirrorResource>, () => Fetched, string][] = [
  ['is announced to be too large', { limit: 4 }, () => bodyOf('wrong'), 'announces 5 bytes; the limit is 4 bytes'],
  ['is too large', { limit: 4 }, () => bodyOf('wrong', { size: undefined }), 'sends more bytes than allowed'],
  ['has another digest than its name', { digest: right }, () => bodyOf('wrong'), `sent ${wrong} instead of ${right}`],
  [
    'has another digest than its upstream says',
    {},
    () => bodyOf('wrong', { digest: right }),
    `sent ${wrong} instead of ${right}`,
  ],
  [
    'is something else',
    { verify: () => Promise.reject(new Error('no manifest')) },
    () => bodyOf('wrong'),
    'sent the wrong content: no manifest',
  ],
];

for (const [what, changes, answer, reason] of refusals) {
  test(`content is refused and told if it ${what}`, async (t) => {
    const mismatches: unknown[] = [];
    const onMismatch = (...values: unknown[]) => void mismatches.push(values);
    const { of, open, lines, staged, blobCount } = await setUp(t, { mirror: { onMismatch } });
    const { resource } = of('/thing', { ...changes }, answer);
    const error = await t.throwsAsync<UpstreamError>(open(resource), {
      instanceOf: UpstreamError,
      message: `The upstream up.test ${reason}.`,
    });
    t.like(error, { name: 'UpstreamUnavailable', upstream: 'up.test', id: 'up.test' });
    const told = lines.map((line) => JSON.parse(line) as object);
    t.is(told.length, 1);
    t.like(told[0], { level: 50, msg: 'an upstream sent content that must not be stored', ...resource.key, reason });
    t.deepEqual(mismatches, reason.includes('instead') ? [[resource.key, right, wrong]] : []);
    await until(async () => (await staged()).length === 0);
    t.is(await blobCount(), 0);
  });
}

test('content with as many bytes as its limit is stored, also without an announced size', async (t) => {
  const { of, open } = await setUp(t);
  t.is(await open(of('/one', { limit: 5 }, () => bodyOf('exact')).resource), 'miss: exact');
  t.is(await open(of('/two', { limit: 5 }, () => bodyOf('exact', { size: undefined })).resource), 'miss: exact');
  const long = `sha512:${'0'.repeat(128)}` as Digest;
  const other = of('/three', { digest: long }, () => bodyOf('exact'));
  await t.throwsAsync(open(other.resource), { message: /sent sha512:.* instead of sha512:0/ });
});

test('an error of this server in a fetch is told as that, once', async (t) => {
  const { of, open, lines } = await setUp(t);
  const { resource } = of('/thing', {}, () => Promise.reject(new Error('a mistake')));
  await t.throwsAsync(open(resource), { message: 'a mistake' });
  await t.throwsAsync(open(of('/other', {}, failing).resource));
  const told = lines.map((line) => JSON.parse(line) as { err: { message: string } });
  t.is(told.length, 1);
  const msg = 'a fetch failed because of an error in this server';
  t.like(told[0], { level: 50, ...resource.key, msg, err: { message: 'a mistake' } });
});

test('content is served although that it is unchanged, or that it is there, cannot be written', async (t) => {
  let failure: Error | undefined;
  const { of, open, clock, lines, mirror } = await setUp(t, {
    wrap: (database) =>
      changedDatabase(database, {
        transaction: async (work, options) => {
          if (failure) throw failure;
          return database.transaction(work, options);
        },
      }),
  });
  const thing = of('/thing', { lifetime }, () => bodyOf('one'), unchanged);
  await open(thing.resource);
  const failures: [Error, string][] = [
    [new DomainError('DatabaseUnavailable', 'down'), 'the storage or the database cannot be written'],
    [new DomainError('StorageUnavailable', 'down'), 'the storage or the database cannot be written'],
    [new DomainError('StorageFull', 'full'), 'the disk is full'],
  ];
  for (const [error, reason] of failures) {
    failure = error;
    clock.now += 1000;
    t.is(await open(thing.resource), 'revalidated: one');
    const { key } = thing.resource;
    t.like(JSON.parse(lines.pop()!), { level: 40, ...key, msg: 'a validation was not recorded' });
    const other = of(`/${error.name}`, {}, () => bodyOf('two'));
    t.is(await open(other.resource), 'miss: two');
    const msg = `${reason}: fetched content was not stored`;
    t.like(JSON.parse(lines.pop()!), { level: 40, ...other.resource.key, msg, err: { message: error.message } });
    t.is(await mirror.stored(other.resource.key), undefined);
    await t.throwsAsync(open(of('/empty', {}, () => bodyOf('')).resource), { name: error.name }, 'its readers wait');
  }
  lines.length = 0;
  failure = new Error('a mistake');
  clock.now += 1000;
  await t.throwsAsync(open(thing.resource), { message: 'a mistake' });
  await t.throwsAsync(open(of('/new', {}, () => bodyOf('three')).resource), { message: 'a mistake' });
});

test('an empty body is served when it is stored', async (t) => {
  const { of, mirror } = await setUp(t);
  const empty = of('/empty', {}, () => bodyOf(''));
  for (let count = 0; count < 2; count += 1) {
    const entry = await mirror.open(empty.resource);
    t.is(entry!.outcome, 'hit');
    t.is(entry!.metadata!.size, 0);
    t.is((await readEntry(entry)).length, 0);
  }
  t.is(empty.asked.length, 1);
});

test('requests that join a fetch count, and one that the account may not make is refused before', async (t) => {
  const told: string[] = [];
  const admit = () => {
    told.push('admitted');
    return told.length > 1 ? Promise.reject(new DomainError('TooManyRequests', 'later')) : undefined;
  };
  const { of, open, mirror } = await setUp(t, { mirror: { admit } });
  const answered = Promise.withResolvers<Fetched>();
  const thing = of('/thing', {}, () => answered.promise);
  const readers = [open(thing.resource)];
  await until(() => mirror.flights === 1);
  readers.push(open(thing.resource), open(thing.resource));
  await until(() => mirror.counts.joined === 2);
  answered.resolve(bodyOf('one'));
  t.deepEqual(await Promise.all(readers), ['miss: one', 'miss: one', 'miss: one']);
  t.deepEqual(told, ['admitted']);
  const other = of('/other', {}, () => bodyOf('two'));
  await t.throwsAsync(open(other.resource), { name: 'TooManyRequests', message: 'later' });
  t.is(other.asked.length, 0);
  t.is(mirror.flights, 0);
});

test('a background task that is cancelled waits for no fetch', async (t) => {
  const { of, mirror } = await setUp(t);
  const answered = Promise.withResolvers<Fetched>();
  const never = of('/thing', {}, () => answered.promise);
  const stop = new AbortController();
  const waiting = new BackgroundTask(stop.signal).run(() => mirror.open(never.resource));
  const rejected = t.throwsAsync<DomainError>(waiting, {
    name: 'Aborted',
    message: 'The fetch was cancelled.',
  });
  await until(() => mirror.flights === 1);
  const reason = new Error('enough');
  stop.abort(reason);
  t.is((await rejected).cause, reason);
  answered.resolve(absent());
});

test('what is stored again from elsewhere is absent no more', async (t) => {
  const { of, open, mirror, blobs, clock } = await setUp(t);
  const alias = { upstream: 'up.test', kind: 'thing', name: 'a', reference: 'alias' };
  const thing = of('/thing', { lifetime, aliases: () => [alias] }, absent);
  t.is(await open(thing.resource), 'absent');
  const staged = await blobs.stage(['sha256']);
  await staged.append(Readable.from([Buffer.from('one')]), { limit: 10, idle: 60_000 });
  const metadata = await mirror.import(thing.resource, staged, { type: 'x/y', etag: null, lastModified: null });
  await staged.discard();
  t.like(metadata, { digest: digestOf('one'), size: 3, storedAt: clock.now, validatedAt: clock.now });
  t.false(await mirror.isAbsent(thing.resource.key));
  t.is(await open(thing.resource), 'hit: one');
  t.deepEqual(await mirror.stored(alias), metadata);
  t.is(thing.asked.length, 1);
});
