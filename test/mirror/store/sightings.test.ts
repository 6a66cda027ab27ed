import test, { type ExecutionContext } from 'ava';
import type { Row } from '../../../src/database/database.ts';
import { record } from '../../../src/history/history.ts';
import { notAsked, storedOnly } from '../../../src/mirror/stored-only.ts';
import { entryId } from '../../../src/mirror/store/entries.ts';
import { mirrorReferences } from '../../../src/mirror/store/references.ts';
import { noteRepublished } from '../../../src/mirror/store/republished.ts';
import { Sightings } from '../../../src/mirror/store/sightings.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { mirrorEntry } from '../../support/builders/mirror-entry.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// When mirrored content was seen first, what was published again, and whose bytes mirrored content counts for.

const name = { upstream: 'up', name: 'lib' };
const owner = { accountId: 0, ...name };
const [one, two] = ['one', 'two'].map((each) => digestOf(each)) as [Digest, Digest];

async function open(t: ExecutionContext) {
  const real = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const calls: string[] = [];
  const database = changedDatabase(real, {
    select: (sql, values) => {
      calls.push('select');
      return real.select(sql, values);
    },
    transaction: (work, options) => {
      calls.push('transaction');
      return real.transaction(work, options);
    },
  });
  const clock = { now: 100 };
  const sightings = new Sightings(database, () => clock.now);
  const see = (kind: 'manifest' | 'tag' | 'listed', reference: string, digest: string) =>
    real.transaction((tx) => record(tx, owner, [{ kind, reference, digest }], clock.now));
  return { database, real, calls, clock, sightings, see };
}

const listedRow = (reference: string, seen_at: number) => ({
  account_id: 0,
  upstream: 'up',
  name: 'lib',
  kind: 'listed',
  reference,
  digest: 'none',
  seen_at,
});

test('what an upstream lists without a date is first listed when it was seen, and written once', async (t) => {
  const { calls, clock, sightings, real } = await open(t);
  const times = async (...references: string[]) => {
    const found = await sightings.firstListed(name, references);
    return references.map((each) => [each, found.get(each)]);
  };
  t.deepEqual(await times('1.0.0', '2.0.0'), [
    ['1.0.0', 100],
    ['2.0.0', 100],
  ]);
  clock.now = 200;
  calls.length = 0;
  t.deepEqual(await times('2.0.0'), [['2.0.0', 100]]);
  t.false(calls.includes('transaction'));
  t.deepEqual(await times('2.0.0', '3.0.0'), [
    ['2.0.0', 100],
    ['3.0.0', 200],
  ]);
  const rows = await real.select('SELECT account_id, upstream, name, kind, reference, digest, seen_at FROM history');
  t.deepEqual(rows, [listedRow('1.0.0', 100), listedRow('2.0.0', 100), listedRow('3.0.0', 200)]);
  t.deepEqual([...(await sightings.firstListed({ ...name, name: 'other' }, ['1.0.0']))], [['1.0.0', 200]]);
});

test('when a manifest was first seen is read once', async (t) => {
  const { calls, clock, sightings, see } = await open(t);
  t.is(await sightings.manifestSeenAt(name, one), undefined);
  await see('manifest', one, one);
  clock.now = 200;
  await see('manifest', one, one);
  t.is(await sightings.manifestSeenAt(name, one), 100, 'also if it was unknown before');
  calls.length = 0;
  t.is(await sightings.manifestSeenAt(name, one), 100);
  t.deepEqual(calls, []);
  t.is(await sightings.manifestSeenAt({ ...name, name: 'other' }, one), undefined);
  t.is(await sightings.manifestSeenAt({ ...name, upstream: 'other' }, one), undefined);
  t.is(await sightings.manifestSeenAt(name, two), undefined);
  t.deepEqual([...(await sightings.firstSeen(name, 'manifest', [one, two]))], [[one, 100]]);
  t.deepEqual([...(await sightings.firstSeen(name, 'tag', [one]))], []);
});

test('the digests of a tag are told from the latest on', async (t) => {
  const { sightings, see } = await open(t);
  await see('tag', 'v1', one);
  await see('tag', 'v1', two);
  t.deepEqual([...(await sightings.latestDigests(name, ['v1', 'v2']))], [['v1', two]]);
  t.deepEqual([...(await sightings.digestsOf(name, ['v1'], 5))], [['v1', [two, one]]]);
  t.deepEqual([...(await sightings.digestsOf(name, ['v1'], 1))], [['v1', [two]]]);
  t.deepEqual([...(await sightings.digestsOf({ ...name, upstream: 'x' }, ['v1'], 1))], []);
});

const files = (digest: string) => ({ digest, subject: 'package', from: 'up.test' });

const event = (time: number, digest: Digest) => ({
  time,
  type: 'upstream.republished',
  account_id: 0,
  actor_kind: 'system',
  subject_kind: 'package',
  subject_name: 'lib',
  subject_reference: '1.0.0',
  details: JSON.stringify({ upstream: 'up.test', digest }),
});

test('a version with other files than its first ones is published again, and told once for each content', async (t) => {
  const { real, sightings } = await open(t);
  const key = { ...name, kind: 'nupkg', reference: '1.0.0' };
  const id = entryId(key);
  const note = async (digest: Digest, of: string | undefined, now: number) => {
    const seen = {
      kind: 'version' as const,
      reference: '1.0.0',
      digest,
      ...(of !== undefined && { files: files(of) }),
    };
    await real.transaction(async (tx) => {
      await record(tx, owner, [seen], now);
      await noteRepublished(tx, { ...key, id }, seen, now);
    });
  };
  const events = () =>
    real.select(
      'SELECT time, type, account_id, actor_kind, subject_kind, subject_name, subject_reference, details FROM events ORDER BY id',
    );
  t.deepEqual([...(await sightings.republished(key))], []);
  await note(one, undefined, 100);
  await note(one, 'files', 100);
  await note(two, 'files', 150);
  t.deepEqual(await events(), [], 'the same files with another signature');
  const entries = { ...mirrorEntry(two), ...key, id, digest: two } satisfies Row;
  await real.transaction((tx) => tx.insertNew('mirror_entries', [entries]));
  await note(two, 'other files', 200);
  await note(two, 'other files', 300);
  t.deepEqual(await events(), [event(200, two)]);
  t.is(await sightings.republishedAt(key, two), 200);
  t.is(await sightings.republishedAt(key, one), undefined);
  t.is(await sightings.republishedAt({ ...key, reference: '2.0.0' }, two), undefined);
  t.deepEqual([...(await sightings.republished(key))], [['1.0.0', 200]]);
  for (const other of [{ name: 'x' }, { kind: 'x' }, { upstream: 'x' }])
    t.deepEqual([...(await sightings.republished({ ...key, ...other }))], []);
  const third = digestOf('three');
  await note(third, 'third files', 400);
  t.deepEqual(await events(), [event(200, two), event(400, third)]);
  t.is(await sightings.republishedAt(key, third), 400);
  t.is(await sightings.republishedAt(key, two), undefined);
  t.deepEqual([...(await sightings.republished(key))], [], 'that content is not stored');
});

const serving = (id: string, accounts?: string[], isOffline = false) =>
  ({ id, config: { accounts }, isOffline }) as unknown as Upstream;

test('mirrored bytes count for the first account that is served alone, else for none', async (t) => {
  const { real } = await open(t);
  const upstreams = [
    serving('all'),
    serving('team', ['none', 'team', 'other'], true),
    serving('gone', ['none']),
    serving('off', undefined, true),
  ];
  const accounts = new Map([
    ['other', 8],
    ['team', 7],
  ]);
  const rows = ['all', 'team', 'gone', 'off', 'unknown'].map((upstream, at) => ({
    ...mirrorEntry(digestOf(upstream)),
    upstream,
    name: `n${at}`,
  }));
  await real.transaction((tx) => tx.insertNew('mirror_entries', rows));
  const references = mirrorReferences(upstreams, accounts);
  t.is(references.origin, 'mirrored');
  t.deepEqual(references.tables, ['mirror_entries', 'mirror_staged']);
  const owners = async (statement: string) => {
    const found = await real.select<{ account_id: number | null; digest: string }>(statement, ['', 'sha256:g']);
    const byDigest = new Map(found.map(({ account_id, digest }) => [digest, account_id]));
    return rows.map(({ digest }) => byDigest.get(digest));
  };
  t.deepEqual(await owners(references.owned[0]!), [null, 7, 0, null, null]);
  t.deepEqual(await owners(mirrorReferences([], new Map()).owned[0]!), [null, null, null, null, null]);
  const lasting = async (all: readonly Upstream[]) => {
    const { mirror_entries: condition } = mirrorReferences(all, accounts).lasting!;
    const found = await real.select<{ upstream: string }>(
      `SELECT upstream FROM mirror_entries WHERE ${condition} ORDER BY upstream`,
    );
    return found.map(({ upstream }) => upstream);
  };
  t.deepEqual(await lasting(upstreams), ['off', 'team']);
  t.deepEqual(await lasting([]), []);
  const withdrawn = { kind: 'blob', reference: 'v1', missing_at: 1, withdrawn_at: null };
  await real.transaction((tx) =>
    tx.insertNew('mirror_withdrawn', [{ id: 'w', upstream: 'all', name: 'n0', ...withdrawn }]),
  );
  t.deepEqual(await lasting(upstreams), ['all', 'off', 'team']);
});

const withdrawnRow = (entry: Row) => ({
  id: entry['id']!,
  upstream: 'u',
  kind: 'blob',
  name: 'n',
  reference: 'v1',
  missing_at: 1,
  withdrawn_at: 2,
});

test('mirrored content that is forgotten leaves nothing that says it is here', async (t) => {
  const { real } = await open(t);
  const [first, second] = [mirrorEntry(one), mirrorEntry(two)];
  await real.transaction(async (tx) => {
    await tx.insertNew('mirror_entries', [first, second]);
    await tx.insertNew('mirror_withdrawn', [withdrawnRow(first), withdrawnRow(second)]);
    await tx.insertNew(
      'mirror_staged',
      [one, two].map((digest) => ({ import_id: 'i', digest, size_bytes: 1 })),
    );
    await mirrorReferences([], new Map()).forget!(tx, one);
  });
  for (const table of ['mirror_entries', 'mirror_staged'])
    t.deepEqual(await real.select(`SELECT digest FROM ${table}`), [{ digest: two }]);
  t.deepEqual(await real.select('SELECT id FROM mirror_withdrawn'), [{ id: second.id }]);
});

test('a mirror without its upstreams opens what is stored at any age, and asks nobody', async (t) => {
  const calls: unknown[] = [];
  let found: unknown = 'entry';
  const answer =
    (what: string) =>
    (...given: unknown[]) => {
      calls.push([what, ...given]);
      return Promise.resolve(found);
    };
  const methods = ['openStored', 'stored', 'references', 'referencesOf', 'among', 'latest', 'remove'];
  const all = Object.fromEntries(methods.map((each) => [each, answer(each)]));
  const unused = () => t.fail('no upstream may be asked');
  const mirror = { ...all, withdrawals: 'withdrawals', open: unused, writeUses: unused };
  const reader = storedOnly(mirror as never);
  const key = { ...name, kind: 'k', reference: 'r' };
  const resource = { key, lifetime: { freshFor: 1, staleFor: 2 }, upstreamKind: 'registry' } as never;
  t.is(reader.withdrawals, 'withdrawals' as never);
  t.is(await reader.open(resource), 'entry' as never);
  t.is(await reader.openStored(resource, { isSearched: true }), 'entry' as never);
  t.is(await reader.stored(key), 'entry' as never);
  t.is(await reader.references(key, 5, 'a'), 'entry' as never);
  t.is(await reader.referencesOf(key, one), 'entry' as never);
  t.is(await reader.among(key, ['a']), 'entry' as never);
  t.is(await reader.latest(key, 5), 'entry' as never);
  t.is(await reader.remove(key), 'entry' as never);
  t.is(await reader.writeUses(), undefined);
  t.deepEqual(calls, [
    ['openStored', { key, lifetime: 'immutable' }],
    ['openStored', { key, lifetime: 'immutable' }, { isSearched: true }],
    ['stored', key],
    ['references', key, 5, 'a'],
    ['referencesOf', key, one],
    ['among', key, ['a']],
    ['latest', key, 5],
    ['remove', key],
  ]);
  found = undefined;
  t.is(await t.throwsAsync(reader.open(resource)), notAsked);
  t.is(notAsked.message, 'No upstream was asked.');
  t.is(notAsked.name, 'UpstreamUnavailable');
});
