import test, { type ExecutionContext } from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import type { Dialect } from '../../src/database/database.ts';
import { countOn } from '../../src/mirror/store/counted-on.ts';
import { Entries, entryId, rowOf, type EntryMetadata } from '../../src/mirror/store/entries.ts';
import { evict } from '../../src/mirror/store/eviction.ts';
import { MirrorTotals } from '../../src/mirror/store/totals.ts';
import { UsedEntries } from '../../src/mirror/store/used-entries.ts';
import type { EntryKinds, ListedKinds } from '../../src/mirror/store/entry-kinds.ts';
import { Withdrawals } from '../../src/mirror/withdrawals.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { testLog } from '../support/mirror.ts';
import { until } from '../support/until.ts';

// What the mirror stores about its entries, without upstreams and bytes.

const name = { upstream: 'u', kind: 'manifest', name: 'app' };
const key = (reference: string, changes: object = {}) => ({ ...name, reference, ...changes });
const subject = { kind: 'container', name: 'u/app', upstream: 'u' };
const day = 86_400_000;

function metadata(text: string, changes: Partial<EntryMetadata> = {}): EntryMetadata {
  const times = { storedAt: 1, validatedAt: 1 };
  const base = { digest: digestOf(text), size: 10, type: 'x', etag: null, lastModified: null, attributes: {} };
  return { ...base, ...times, ...changes };
}

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const clock = { now: 1000 };
  const time = () => clock.now;
  const cache = await Cache.open(undefined, time, () => undefined);
  const entries = new Entries(database, cache, time);
  const put = (reference: string, changes: Partial<EntryMetadata> = {}, place: object = {}) =>
    database.transaction((tx) => entries.write(tx, [key(reference, place)], metadata(reference, changes)));
  const usedAt = async (reference: string) =>
    (await database.get<{ at: number }>('SELECT used_at AS at FROM mirror_entries WHERE id = ?', [
      entryId(key(reference)),
    ]))!.at;
  const { log, lines } = testLog();
  return { database, clock, cache, entries, put, usedAt, withdrawals: new Withdrawals(database, log, time), lines };
}

const background = new BackgroundTask(new AbortController().signal);

for (const dialect of dialects) {
  test(`${dialect}: only a use by a client keeps an entry`, async (t) => {
    const { database, clock, entries, put, usedAt } = await open(t, dialect);
    await put('old');
    await put('new');
    clock.now = 2000;
    await background.run(async () => {
      await put('old');
      entries.used(entryId(key('old')));
    });
    await entries.flushUses();
    t.is(await usedAt('old'), 1000);
    entries.used(entryId(key('old')));
    const failing = changedDatabase(database, { transaction: () => Promise.reject(new Error('down')) });
    const other = new Entries(failing, await Cache.open(undefined, Date.now, () => undefined), () => 9000);
    other.used(entryId(key('new')));
    await t.throwsAsync(other.flushUses(), { message: 'down' });
    failing.transaction = (work, options) => database.transaction(work, options);
    await other.flushUses();
    t.is(await usedAt('new'), 9000, 'written the next time');
    const rows = [{ id: entryId(key('old')), used_at: 1000 }];
    t.deepEqual([...(await entries.drop(rows, ['u']))], [], 'its use is not written yet');
    await entries.flushUses();
    t.is(await usedAt('old'), 2000);
    t.deepEqual([...(await entries.drop(rows, ['u']))], [], 'it was used since it was read');
    t.deepEqual(await entries.latest(name, 9), ['new', 'old']);
    t.deepEqual(await entries.latest(name, 1), ['new']);
    t.deepEqual([...(await entries.drop([{ ...rows[0]!, used_at: 2000 }], ['u']))], [rows[0]!.id]);
    t.is(await entries.find(rows[0]!.id), undefined);
    t.true(await entries.hasAny('u'));
    t.false(await entries.hasAny('other'));
  });

  test(`${dialect}: an entry that was stored again is not dropped with the one before`, async (t) => {
    const { entries, put, withdrawals } = await open(t, dialect);
    await put('v1', { storedAt: 5 });
    const id = entryId(key('v1'));
    t.is(await entries.getCached(id), undefined);
    const before = (await entries.find(id))!;
    t.deepEqual(before, metadata('v1', { storedAt: 5 }));
    t.deepEqual(await entries.getCached(id), before, 'the next request needs no database');
    await withdrawals.missing(name, ['v1'], 0);
    await put('v1', { storedAt: 6 });
    let also = 0;
    await entries.forget(id, before, async () => void (also += 1));
    t.is((await entries.read(id))!.storedAt, 6);
    t.is(also, 0);
    t.is((await withdrawals.of(name)).length, 1);
    await entries.forget(id, (await entries.read(id))!, async () => void (also += 1));
    t.is(await entries.find(id), undefined);
    t.is(also, 1);
    t.deepEqual(await withdrawals.of(name), []);
    await entries.validated(id, before);
    t.is(await entries.find(id), undefined, 'what is gone does not come back to the cache');
    await put('tag', { digest: digestOf('same') });
    await put(digestOf('same'), { digest: digestOf('same') });
    await put('tag', { digest: digestOf('same') }, { name: 'other' });
    t.deepEqual(await entries.referencesOf(name, digestOf('same')), ['tag']);
    t.deepEqual([...(await entries.among(name, ['tag', 'v1']))], ['tag']);
    t.deepEqual(await entries.references(name, 9), [digestOf('same'), 'tag'].toSorted());
    t.deepEqual(await entries.references(name, 9, digestOf('same')), ['tag']);
  });

  test(`${dialect}: a reference is withdrawn when it is missing twice, and comes back when it is offered`, async (t) => {
    const { database, clock, put, withdrawals } = await open(t, dialect);
    for (const each of ['v1', 'v2', 'v3']) await put(each);
    await put('v1', {}, { name: 'other' });
    const missing = (...references: string[]) => withdrawals.missing(name, references, 100);
    t.deepEqual(await missing('v1', 'v2', 'not stored'), []);
    t.deepEqual((await withdrawals.of(name)).map(({ reference }) => reference).toSorted(), ['v1', 'v2']);
    clock.now += 99;
    t.deepEqual(await missing('v1', 'v2'), []);
    clock.now += 1;
    t.deepEqual(await missing('v1', 'v2'), ['v1', 'v2']);
    await withdrawals.postpone(key('v2'));
    t.deepEqual(await missing('v1', 'v2'), ['v1']);
    const events = async () =>
      (await database.select<{ type: string; at: number }>('SELECT type, time AS at FROM events ORDER BY id')).map(
        ({ type, at }) => `${type} ${at}`,
      );
    await withdrawals.mark(key('v1'), subject);
    clock.now += 1000;
    await withdrawals.mark(key('v1'), subject);
    await withdrawals.mark(key('v3'), subject);
    await withdrawals.postpone(key('v1'));
    t.deepEqual(await events(), ['upstream.withdrawn 1100'], 'once, and only what was missing before');
    t.is(await withdrawals.at(key('v1')), 1100);
    t.is(await withdrawals.at(key('v2')), undefined);
    t.is((await withdrawals.of(name)).find(({ reference }) => reference === 'v1')!.missingAt, 1000);
    t.deepEqual(await missing('v1', 'v2'), ['v2'], 'what is marked is known');
    t.deepEqual([...(await withdrawals.counts())], [['u', 1]]);
    t.is(await withdrawals.bytes(), 20);
    t.deepEqual(await withdrawals.of({ ...name, name: 'other' }), []);
    t.deepEqual((await withdrawals.page('manifest', '', 9)).map(({ reference }) => reference).toSorted(), ['v1', 'v2']);
    t.deepEqual(await withdrawals.page('blob', '', 9), []);

    await withdrawals.offered(name, () => true);
    t.deepEqual(
      (await withdrawals.of(name)).map(({ reference }) => reference),
      ['v1'],
      'a mark stays without a subject',
    );
    await withdrawals.offered(name, (reference) => reference !== 'v1', subject);
    t.is(await withdrawals.at(key('v1')), 1100);
    await withdrawals.offered(name, () => true, subject);
    t.is(await withdrawals.at(key('v1')), undefined);
    t.deepEqual(await events(), ['upstream.withdrawn 1100', 'upstream.restored 2100']);
  });

  test(`${dialect}: what is stored of each upstream is added up, and what is too old or unused`, async (t) => {
    const { database, put } = await open(t, dialect);
    const config = { freshFor: 100, staleFor: 1000 };
    const [one, two, strange] = ['u', 'second', 'u'].map((id) => ({ id, config })) as unknown as Upstream[];
    const kinds: EntryKinds = { manifest: 'by digest', blob: 'immutable', tags: 'document' };
    const now = 1001 + 90 * day;
    const old = { validatedAt: now - 1101 };
    await put('v1', old);
    await put('v2', { validatedAt: now - 1100, digest: digestOf('v1') });
    await put(digestOf('v1'), { ...old, digest: digestOf('v1') });
    await put('', old, { kind: 'tags' });
    await put(digestOf('layer'), { ...old, size: 500 }, { kind: 'blob' });
    await put('x', { validatedAt: 7 }, { upstream: 'second' });
    await put('x', old, { kind: 'unknown' });
    await put('x', old, { upstream: 'gone' });
    await database.transaction((tx) => tx.run("UPDATE mirror_entries SET used_at = 2000 WHERE kind = 'blob'"));
    const totals = new MirrorTotals({
      database,
      upstreams: [strange!, one!, two!],
      kinds: (upstream) => (upstream === strange ? { other: 'document' } : kinds),
      now: () => now,
    });
    let found: Awaited<ReturnType<MirrorTotals['read']>>;
    await until(async () => (found = await totals.read()) !== undefined);
    const { byKind, ...rest } = found!.get(one!)!;
    // The tag, and the list of tags, are expired. What is named by its digest stays.
    const confirmed = { confirmedAt: now - 1100, asOf: now };
    t.deepEqual(rest, { entries: 5, bytes: 520, expired: 2, unusedBytes: 20, ...confirmed });
    t.deepEqual(Object.fromEntries(byKind), {
      blob: { count: 1, bytes: 500 },
      manifest: { count: 3, bytes: 10 },
      tags: { count: 1, bytes: 10 },
    });
    t.like(found!.get(two!), { entries: 1, bytes: 10, expired: 1, confirmedAt: 7 });
    t.like(found!.get(strange!), { entries: 0, bytes: 0 });
    // They are counted again after a minute at the earliest.
    await put('later');
    for (let count = 0; count < 20; count += 1) {
      t.is(await totals.read(), found);
      await database.select('SELECT id FROM mirror_entries');
    }
    await totals.close();
  });

  test(`${dialect}: eviction drops what was used least, and not what could not be fetched again`, async (t) => {
    const { database, clock, entries, put, withdrawals } = await open(t, dialect);
    for (const [index, reference] of ['v1', 'v2', 'v3', 'v4', 'v5', 'v6'].entries()) {
      clock.now = 1000 + index;
      await put(reference);
    }
    await put('same', { digest: digestOf('v1') });
    clock.now = 900;
    await put('off', {}, { upstream: 'offline' });
    await withdrawals.missing(name, ['v2'], 0);
    await database.transaction((tx) => tx.insertNew('mirror_counted_on', [{ digest: digestOf('v3') }]));
    // What withdrawn content needs besides its own.
    const needed = [key('v4')];
    const lines: string[] = [];
    const run = (maxSize: number, dryRun = false) =>
      evict(database, entries, {
        maxSize,
        offline: ['offline'],
        upstreams: ['u', 'offline'],
        contentsOfWithdrawn: (use) => use(needed),
        dryRun,
        signal: new AbortController().signal,
        say: (line) => void lines.push(line),
      });
    t.deepEqual(
      await run(60),
      { entries: 0, bytes: 0, left: 60 },
      'each content once, without the upstream that is offline',
    );
    // The first entry shares its content with one that was used later.
    t.deepEqual(await run(50, true), { entries: 2, bytes: 10, left: 50 });
    t.deepEqual(lines.splice(0), ['u manifest app v1', 'u manifest app v5']);
    t.deepEqual(await run(50), { entries: 2, bytes: 10, left: 50 });
    t.deepEqual(lines.splice(0), ['u manifest app v1', 'u manifest app v5']);
    t.deepEqual(await run(0), { entries: 2, bytes: 20, left: 30 });
    const left = await database.select<{ reference: string }>(
      'SELECT reference FROM mirror_entries ORDER BY reference',
    );
    t.deepEqual(
      left.map(({ reference }) => reference),
      ['off', 'v2', 'v3', 'v4'],
    );
    t.is(await withdrawals.bytes(), 20);
    needed.length = 0;
    t.deepEqual(await run(0), { entries: 1, bytes: 10, left: 20 }, 'nothing withdrawn needs it any more');
  });

  test(`${dialect}: eviction counts and drops any number of entries, also those that were used at the same time`, async (t) => {
    const { database, entries } = await open(t, dialect);
    const references = Array.from({ length: 2001 }, (_, index) => `v${index}`);
    await database.transaction((tx) =>
      tx.insertNew(
        'mirror_entries',
        references.map((each) => rowOf(key(each), metadata(each), 1000)),
      ),
    );
    let lines: string[] = [];
    const run = (maxSize: number, dryRun = false) =>
      evict(database, entries, {
        maxSize,
        offline: [],
        upstreams: ['u'],
        contentsOfWithdrawn: () => Promise.resolve(),
        dryRun,
        signal: new AbortController().signal,
        say: (line) => void lines.push(line),
      });
    t.deepEqual(await run(20_010), { entries: 0, bytes: 0, left: 20_010 });
    const expected = { entries: 401, bytes: 4010, left: 16_000 };
    t.deepEqual(await run(16_000, true), expected);
    const told = lines;
    t.is(new Set(told).size, 401);
    lines = [];
    t.deepEqual(await run(16_000), expected);
    t.deepEqual(lines, told);
    t.deepEqual(await run(16_000), { entries: 0, bytes: 0, left: 16_000 });
  });

  test(`${dialect}: content that an offline upstream has, too, is not counted, and nothing else is evicted for it`, async (t) => {
    const { database, clock, entries, put } = await open(t, dialect);
    await put('shared');
    await put('off', { digest: digestOf('shared') }, { upstream: 'offline' });
    clock.now = 1001;
    await put('own');
    const run = (maxSize: number) =>
      evict(database, entries, {
        maxSize,
        offline: ['offline'],
        upstreams: ['u', 'offline'],
        contentsOfWithdrawn: () => Promise.resolve(),
        dryRun: false,
        signal: new AbortController().signal,
        say: () => undefined,
      });
    t.deepEqual(await run(10), { entries: 0, bytes: 0, left: 10 });
    t.deepEqual(await run(9), { entries: 2, bytes: 10, left: 0 });
  });

  test(`${dialect}: what a receipt names after an eviction has read it is not dropped`, async (t) => {
    const { database, entries, put } = await open(t, dialect);
    await put('v1');
    await put('v2');
    const rows = ['v1', 'v2'].map((each) => ({ id: entryId(key(each)), used_at: 1000 }));
    await countOn(database, [digestOf('v1')]);
    t.deepEqual([...(await entries.drop(rows, ['u']))], [rows[1]!.id]);
    await countOn(database, []);
    t.deepEqual([...(await entries.drop(rows, ['u']))], [rows[0]!.id]);
  });

  test(`${dialect}: the use of content is found by the names of clients and by digest`, async (t) => {
    const { database, clock, put } = await open(t, dialect);
    const listed: ListedKinds = {
      kinds: { manifest: 'by digest', blob: 'immutable', tags: 'document' },
      dropEvent: ({ kind, name: each }, upstream) =>
        kind === 'manifest'
          ? { type: 'container.deleted' as never, kind: 'container', name: `${upstream}/${each}` }
          : undefined,
    };
    const used = new UsedEntries(database, [{ id: 'u', name: 'up.test', entries: listed }]);
    clock.now = 1000;
    await put('v1');
    clock.now = 999;
    await put('v2');
    clock.now = 2000;
    await put('v3', {}, { upstream: 'gone' });
    await put(digestOf('layer'), { digest: digestOf('layer') }, { kind: 'blob' });
    await put('', { digest: digestOf('layer') }, { kind: 'tags' });
    const found = async (names: string[]) =>
      (await used.named(names, 1000)).map((each) => `${each.kind} ${each.name} ${each.reference} ${each.usedAt}`);
    t.deepEqual((await found(['up.test/app', 'up.test/none'])).toSorted(), [
      `container up.test/app ${digestOf('layer')} 2000`,
      'container up.test/app v1 1000',
    ]);
    t.deepEqual(await found(['app', 'up.testapp', 'other/app']), []);
    const layers = await used.withDigests([digestOf('layer')], 0);
    t.deepEqual(
      layers.map(({ kind, name: each }) => [kind, each]),
      [['container', 'up.test/app']],
      'under the name of its image, and not as a list',
    );
    const names: string[] = [];
    for await (const each of used.names()) names.push(each);
    t.deepEqual(names, ['up.test/app']);
    t.deepEqual(await new UsedEntries(database, []).withDigests([digestOf('v1')], 0), []);
  });
}
