import { Readable } from 'node:stream';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { MirrorOverview } from '../../src/mirror/overview.ts';
import type { Mirror } from '../../src/mirror/mirror.ts';
import type { ListedKinds } from '../../src/mirror/store/entry-kinds.ts';
import { UpstreamSamples } from '../../src/mirror/upstream-samples.ts';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import type { Rank } from '../../src/runtime/ranked.ts';
import type { Upstream } from '../../src/upstream/upstream.ts';
import { UpstreamError } from '../../src/upstream/upstream-error.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { figuresOf } from '../support/upstreams/figures.ts';

// What is stored of upstreams, as its operator sees it, without requests to them.

interface Made {
  id: string;
  upstream?: string;
  kind?: string;
  name?: string;
  digest?: Digest;
  size?: number;
  at?: number;
}

/** A feed and a registry with one ID, and another registry. */
const [feed, registry, second] = [
  ['up', 'nuget'],
  ['up', 'registry'],
  ['second', 'registry'],
].map(([id, kind]) => ({ id, name: `${id}.test`, config: { kind } })) as unknown as [Upstream, Upstream, Upstream];

const kinds = new Map<string, ListedKinds>([
  ['nuget', { kinds: { nupkg: 'immutable' }, dropEvent: () => undefined }],
  [
    'registry',
    {
      kinds: { manifest: 'by digest', blob: 'immutable' },
      dropEvent: ({ kind, name }, upstream) =>
        kind === 'manifest' ? { type: 'manifest.deleted', kind: 'container', name: `${upstream}/${name}` } : undefined,
    },
  ],
]);

async function open(t: ExecutionContext, dialect: Dialect, entries: readonly Made[]) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const rows = entries.map(
    ({ id, upstream = 'up', kind = 'manifest', name = 'app', digest = digestOf(id), ...rest }) => {
      const { size = 10, at = 1 } = rest;
      const times = { stored_at: at, validated_at: at, used_at: at };
      const content = { digest, size_bytes: size, content_type: 'x', attributes: '{}' };
      return { id, upstream, kind, name, reference: `of ${id}`, ...content, ...times };
    },
  );
  await database.transaction((tx) => tx.insertNew('mirror_entries', rows));
  const removed: object[] = [];
  const mirror = {
    remove: async (key: object, also: (tx: unknown) => Promise<void>) => {
      removed.push(key);
      await database.transaction(also);
    },
  };
  const byKind = new Map([['manifest', { count: 5, bytes: 50 }]]);
  const overview = new MirrorOverview({
    database,
    mirror: mirror as unknown as Mirror,
    upstreams: [feed, registry, second],
    totals: { read: () => Promise.resolve(new Map([[registry, { byKind }]])) } as never,
    kinds,
    figures: () => Promise.resolve([figuresOf({ id: 'up' }), figuresOf({ id: 'second', kind: 'nuget' })]),
    probe: () => new URL('https://up.test/probe'),
    now: () => 7000,
  });
  const events = async () =>
    (
      await database.select<{ type: string; name: string; reference: string | null; details: string }>(
        'SELECT type, subject_name AS name, subject_reference AS reference, details FROM events ORDER BY id',
      )
    ).map(({ type, name, reference, details }) => [type, name, reference, JSON.parse(details)]);
  return { database, overview, removed, events };
}

/** What a process has counted of the registry. */
const up = (requests: number, received = 0) =>
  figuresOf({ id: 'up', statuses: { 200: requests }, received, outcomes: { hit: requests } });

const idsOf = (entries: readonly { id: string }[]) => entries.map(({ id }) => id);

for (const dialect of dialects) {
  test(`${dialect}: the entries of an upstream are listed by kind and name, sorted and added up`, async (t) => {
    const same = digestOf('same');
    const { overview } = await open(t, dialect, [
      { id: 'm1', name: 'app', size: 30, at: 5 },
      { id: 'm2', name: 'app', digest: same, at: 9 },
      { id: 'm3', name: 'apple', digest: same, at: 2 },
      { id: 'm4', name: 'zebra', size: 5, at: 7 },
      { id: 'b1', name: 'app', kind: 'blob', size: 20, at: 8 },
      { id: 'b2', name: 'base', kind: 'blob', size: 40 },
      { id: 'other', upstream: 'second', size: 99, at: 99 },
      { id: 'n1', kind: 'nupkg', name: 'app', size: 99, at: 99 },
    ]);
    const all = ['m1', 'm2', 'm3', 'm4', 'b1', 'b2'];
    for (const limit of [1, 2, 4, 9]) {
      const found: string[] = [];
      let after: [string, string, string] | undefined;
      for (;;) {
        const page = await overview.entries(registry, {}, limit, after);
        t.true(page.length <= limit);
        if (page.length === 0) break;
        found.push(...idsOf(page));
        const { kind, name, id } = page.at(-1)!;
        after = [kind, name, id];
      }
      t.deepEqual(found, all, String(limit));
    }
    t.deepEqual(idsOf(await overview.entries(registry, { kind: 'blob' }, 9)), ['b1', 'b2']);
    t.deepEqual(idsOf(await overview.entries(registry, { prefix: 'app' }, 9)), ['m1', 'm2', 'm3', 'b1']);
    t.deepEqual(idsOf(await overview.entries(registry, { prefix: 'app' }, 9, ['manifest', 'app', 'm2'])), ['m3', 'b1']);
    t.deepEqual(idsOf(await overview.entries(feed, {}, 9)), ['n1']);

    const sorted = async (...[sort, filter, limit, after]: [string, object, number, Rank?]) =>
      idsOf((await overview.sortedEntries(registry, sort as 'size', filter, limit, after)).map(({ item }) => item));
    t.deepEqual(await sorted('size', {}, 3), ['b2', 'm1', 'b1']);
    t.deepEqual(await sorted('used', { prefix: 'app' }, 9), ['m2', 'b1', 'm1', 'm3']);
    t.deepEqual(await sorted('stored', { kind: 'manifest' }, 2), ['m2', 'm4']);
    const [, { rank } = { rank: [0, ''] as Rank }] = await overview.sortedEntries(registry, 'size', {}, 2, undefined);
    t.deepEqual(await sorted('size', {}, 2, rank), ['b1', ...(await sorted('size', {}, 4)).slice(3)]);

    const total = (filter: object, upstream = registry) => overview.total(upstream, filter);
    t.deepEqual(await total({ prefix: 'app' }), { count: 4, bytes: 60 }, 'each content of a kind once');
    t.deepEqual(await total({ prefix: 'app', kind: 'blob' }), { count: 1, bytes: 20 });
    t.deepEqual(await total({ prefix: 'app', kind: 'nupkg' }), { count: 0, bytes: 0 });
    t.deepEqual(await total({}), { count: 5, bytes: 50 }, 'as it was counted a moment ago');
    t.deepEqual(await total({ kind: 'blob' }), { count: 0, bytes: 0 });
    t.is(await total({}, second), undefined);
    t.deepEqual({ ...(await overview.storedUnder(registry, 'app')) }, { entries: 3, validatedAt: 9 });
    t.deepEqual({ ...(await overview.storedUnder(second, 'none')) }, { entries: 0, validatedAt: null });
  });

  test(`${dialect}: an entry is dropped with the event of its kind, and only of its upstream`, async (t) => {
    const { overview, removed, events } = await open(t, dialect, [
      { id: 'm1', name: 'app' },
      { id: 'b1', name: 'app', kind: 'blob' },
      { id: 'n1', kind: 'nupkg' },
    ]);
    t.like(await overview.entry(registry, 'm1'), { id: 'm1', kind: 'manifest', sizeBytes: 10, lastUsedAt: 1 });
    const gone = { name: 'NotFound', message: 'Nothing is stored of up.test under this ID.' };
    await t.throwsAsync(overview.entry(registry, 'n1'), gone, 'a kind of the other upstream with this ID');
    await t.throwsAsync(overview.entry(second, 'm1'), { name: 'NotFound' });
    await overview.drop(registry, 'm1', 7);
    await overview.drop(registry, 'b1', 7);
    const key = { upstream: 'up', name: 'app' };
    t.deepEqual(removed, [
      { ...key, kind: 'manifest', reference: 'of m1' },
      { ...key, kind: 'blob', reference: 'of b1' },
    ]);
    t.deepEqual(await events(), [
      ['manifest.deleted', 'up.test/app', 'of m1', { origin: 'mirrored', upstream: 'up.test' }],
      ['upstream.entry_dropped', 'up.test', null, { kind: 'blob', name: 'app', reference: 'of b1' }],
    ]);
  });

  test(`${dialect}: what was asked of upstreams is told by day, and since a time`, async (t) => {
    const { database } = await open(t, dialect, [{ id: 'm1' }]);
    const day = 86_400_000;
    const start = 100 * day;
    let now = start + 5000;
    const samples = new UpstreamSamples(database, () => now);
    await samples.add([up(3, 10), { ...up(50), kind: 'nuget' }, { ...up(70), id: 'second' }]);
    now += 3 * 3_600_000;
    await samples.add([up(5, 30)]);
    now += day;
    await samples.add([up(6, 30)]);
    await samples.add([up(6, 30)]);
    const daily = await samples.daily([feed, registry, second], [start - day, start, start + day]);
    t.deepEqual([feed, registry, second].map(daily), [
      [0, 50, 0],
      [0, 5, 1],
      [0, 70, 0],
    ]);
    const last = await samples.daily([registry], [start + day]);
    t.deepEqual(last(registry), [1]);
    const sums = { failures: 0, milliseconds: 0 };
    const of = { kind: 'registry', id: 'up' };
    t.deepEqual(await samples.since(of, start), { ...sums, requests: 6, needed: 6, hits: 6, received_bytes: 30 });
    t.like(await samples.since(of, start + day), { requests: 1, received_bytes: 0 });
    t.like(await samples.since(of, start + 1), { requests: 3 });
    t.like(await samples.since({ ...of, id: 'none' }, 0), { requests: 0, received_bytes: 0 });
    now = start + 400 * day;
    await samples.deleteOld();
    t.like(await samples.since(of, 0), { requests: 6 });
    now += 1;
    await samples.deleteOld();
    t.like(await samples.since(of, 0), { requests: 3 });
  });
}

test('an upstream is found by its ID, and by its kind if two have the ID', async (t) => {
  const { overview } = await open(t, 'sqlite', [{ id: 'm1' }]);
  t.is(overview.find('second'), second);
  t.is(overview.find('up', 'nuget'), feed);
  t.throws(() => overview.find('second', 'nuget'), { name: 'NotFound' });
  t.throws(() => overview.find('x'.repeat(200)), {
    name: 'NotFound',
    message: `The settings have no upstream with the ID "${'x'.repeat(100)}".`,
  });
  t.throws(() => overview.find('up'), {
    name: 'Invalid',
    message: 'kind: a feed and a registry have the ID "up". Send kind=nuget or kind=registry.',
  });
  const views = await overview.list();
  t.deepEqual(
    views.map(({ upstream, kinds: each, figures, cached }) => [upstream.id, each, figures?.kind, cached !== undefined]),
    [
      ['up', ['nupkg'], undefined, false],
      ['up', ['manifest', 'blob'], 'registry', true],
      ['second', ['manifest', 'blob'], undefined, false],
    ],
  );
});

test('an upstream is tried again after its pauses were ended, and may fail', async (t) => {
  const { overview } = await open(t, 'sqlite', [{ id: 'm1' }]);
  const done: unknown[] = [];
  const tried = (send: () => Promise<unknown>) =>
    overview.retry({
      tryNow: () => void done.push('pauses'),
      send: (request: object) => {
        done.push(request);
        return send();
      },
    } as unknown as Upstream);
  const body = Readable.from([Buffer.from('x')]);
  await tried(() => Promise.resolve({ body }));
  t.deepEqual(done, ['pauses', { url: new URL('https://up.test/probe'), subject: 'retry' }]);
  await tried(() => Promise.reject(new UpstreamError('UpstreamUnavailable', 'It is down.')));
  await t.throwsAsync(
    tried(() => Promise.reject(new Error('a defect'))),
    { message: 'a defect' },
  );
});
