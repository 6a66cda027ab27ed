import test, { type ExecutionContext } from 'ava';
import { record, type SeenReference } from '../../../src/history/history.ts';
import { historyOwner, ImageHistory } from '../../../src/oci/catalog/image-history.ts';
import type { LocatedRepository } from '../../../src/oci/catalog/image-source.ts';
import { PastImages } from '../../../src/oci/catalog/past-images.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// What is told of images as they were in the past, from lines of their history.

const digests = Array.from({ length: 4 }, (_, index) => `sha256:${'a'.repeat(63)}${index}` as Digest);
const [one, two, three, four] = digests as [Digest, Digest, Digest, Digest];
const place = { upstream: { id: 'up', name: 'registry.test' }, name: 'team/app' } as UpstreamRepository;
const day = 86_400_000;

const common = { accountId: 1, name: 'asked', ns: undefined, mayPush: false };
const hosted: LocatedRepository = { ...common, hosted: 'app', place: undefined };
const mirrored: LocatedRepository = { ...common, hosted: undefined, place };
const nowhere: LocatedRepository = { ...common, hosted: undefined, place: undefined };

type Line = Omit<SeenReference, 'kind'> & { kind?: SeenReference['kind'] };

interface Given {
  /** The references that clients do not get of the mirrored repository, today or in the past. */
  held?: readonly string[];
  /** The indexes that name each manifest, with when they were first seen. */
  naming?: Record<string, Record<string, number | undefined>>;
  referrers?: readonly Digest[];
  /** Stored manifests of the mirror. */
  stored?: Record<string, object>;
}

async function open(t: ExecutionContext, given: Given = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  /** Writes lines of history at a time. */
  const seen = async (asked: LocatedRepository, at: number, ...lines: Line[]) => {
    const some = lines.map((each) => ({ kind: 'tag' as const, ...each }));
    await database.transaction((tx) => record(tx, historyOwner(asked)!, some, at));
  };
  const isOpen = (text: string) => !given.held?.includes(text);
  const mirror = {
    servesPast: (_place: object, tag: string, digest: string) => Promise.resolve(isOpen(tag) && isOpen(digest)),
    listedPast: <T extends { reference: string; digest: string }>(_place: object, tags: readonly T[]) =>
      Promise.resolve(tags.filter(({ reference, digest }) => isOpen(reference) && isOpen(digest))),
    listed: (_place: object, items: readonly string[]) => Promise.resolve(items.filter(isOpen)),
    listedEntries: <T extends { reference: string; digest: string }>(_place: object, items: readonly T[]) =>
      Promise.resolve(items.filter(({ reference, digest }) => isOpen(reference) && isOpen(digest))),
    indexesNaming: (_place: object, digest: string) =>
      Promise.resolve(
        new Map(Object.entries(given.naming?.[digest] ?? {}).map(([index, firstSeenAt]) => [index, { firstSeenAt }])),
      ),
    stored: (_place: object, kind: string, digest: string) => Promise.resolve(given.stored?.[`${kind} ${digest}`]),
  };
  const calls: unknown[] = [];
  const source = {
    openManifest: (...asked: unknown[]) => {
      calls.push(asked);
      return Promise.resolve('opened');
    },
    openBlob: (...asked: unknown[]) => {
      calls.push(asked);
      return Promise.resolve('blob');
    },
    listReferrers: (...asked: unknown[]) => {
      calls.push(asked);
      const descriptors = (given.referrers ?? []).map((digest) => ({ digest }));
      return Promise.resolve({ descriptors, next: 'next', served: 'stale' });
    },
  };
  const mirrors = { of: (accountId: number) => (accountId === 1 ? mirror : undefined) };
  const past = (until: number) => new PastImages({ database, mirrors, source } as never, until);
  return { database, seen, past, calls, history: new ImageHistory(database, mirrors as never) };
}

test('a tag has the digest that it had then', async (t) => {
  const { seen, past, calls } = await open(t);
  await seen(hosted, 100, { reference: 'v1', digest: one });
  await seen(hosted, 200, { reference: 'v1', digest: two });
  await seen(hosted, 300, { reference: 'v1', digest: '' });
  for (const [until, digest] of [
    [100, one],
    [199, one],
    [200, two],
    [299, two],
  ] as const) {
    t.is(await past(until).openManifest(hosted, { tag: 'v1' }), 'opened' as never);
    t.deepEqual(calls.pop(), [hosted, { digest }]);
  }
  for (const until of [300, 10 * day]) {
    const error = await t.throwsAsync<DomainError>(past(until).openManifest(hosted, { tag: 'v1' }));
    t.is(error.name, 'ManifestUnknown');
    t.deepEqual(error.detail, { tag: 'v1' });
  }
  await t.throwsAsync(past(500).openManifest(nowhere, { tag: 'v1' }), { name: 'ManifestUnknown' });
  await t.throwsAsync(past(500).openManifest(mirrored, { tag: 'v1' }), { name: 'ManifestUnknown' });
  t.deepEqual(calls, []);
});

test('a manifest exists since it was first seen, and a message says since when a later one does', async (t) => {
  const { seen, past, calls } = await open(t);
  await seen(hosted, 3 * day, { kind: 'manifest', reference: one, digest: one }, { reference: 'v1', digest: one });
  t.is(await past(3 * day).openManifest(hosted, { digest: one }), 'opened' as never);
  t.deepEqual(calls.splice(0), [[hosted, { digest: one }]]);
  for (const reference of [{ digest: one }, { tag: 'v1' }]) {
    const error = await t.throwsAsync<DomainError>(past(3 * day - 1).openManifest(hosted, reference));
    t.is(error.name, 'ManifestUnknown');
    t.true(error.message.includes('1970-01-04'), error.message);
    t.true(error.message.includes('1970-01-03'), error.message);
  }
  const unknown = await t.throwsAsync<DomainError>(past(day).openManifest(hosted, { digest: two }));
  t.false(unknown.message.includes('1970'), unknown.message);
  t.deepEqual(calls, []);
});

test('of mirrored images, nothing is told that a policy holds today', async (t) => {
  const { seen, past, calls } = await open(t, { held: ['held', two] });
  await seen(mirrored, day, { reference: 'held', digest: one }, { reference: 'v1', digest: one });
  await seen(mirrored, day, { reference: 'v2', digest: two }, { kind: 'manifest', reference: two, digest: two });
  t.is(await past(day).openManifest(mirrored, { tag: 'v1' }), 'opened' as never);
  t.deepEqual(calls.splice(0), [[mirrored, { digest: one }]]);
  for (const tag of ['held', 'v2'])
    await t.throwsAsync(past(day).openManifest(mirrored, { tag }), { name: 'ManifestUnknown' });
  for (const asked of [{ tag: 'held' }, { digest: two }]) {
    const error = await t.throwsAsync(past(0).openManifest(mirrored, asked as never), { name: 'ManifestUnknown' });
    t.false(error.message.includes('1970'), 'not even since when it is known');
  }
  const shown = await t.throwsAsync(past(0).openManifest(mirrored, { tag: 'v1' }));
  t.true(shown.message.includes('1970-01-02'), shown.message);
  t.deepEqual(calls, []);
});

test('an image of an index exists with the index', async (t) => {
  const naming = { [one]: { [three]: 50, [four]: undefined }, [two]: { [four]: undefined } };
  const { past, calls } = await open(t, { naming });
  t.is(await past(50).openManifest(mirrored, { digest: one }), 'opened' as never);
  t.is(calls.length, 1);
  await t.throwsAsync(past(49).openManifest(mirrored, { digest: one }), { name: 'ManifestUnknown' });
  await t.throwsAsync(past(50).openManifest(mirrored, { digest: two }), { name: 'ManifestUnknown' });
  await t.throwsAsync(past(50).openManifest(hosted, { digest: one }), { name: 'ManifestUnknown' });
});

test('tags of the past are listed in pages, without deleted ones', async (t) => {
  const { seen, past } = await open(t, { held: ['v1', two] });
  const lines = ['v0', 'v1', 'v2', 'v3'].map((reference) => ({ reference, digest: reference === 'v2' ? two : one }));
  for (const asked of [hosted, mirrored]) {
    await seen(asked, 100, ...lines);
    await seen(asked, 200, { reference: 'v3', digest: '' }, { reference: 'v4', digest: one });
  }
  const list = (asked: LocatedRepository, until: number, limit = 10, last = '') =>
    past(until).listTags(asked, limit, last);
  const items = ['v0', 'v1', 'v2', 'v3'];
  t.deepEqual(await list(hosted, 100), { served: 'hosted', items, more: false });
  t.deepEqual(await list(hosted, 200), { served: 'hosted', items: ['v0', 'v1', 'v2', 'v4'], more: false });
  t.deepEqual(await list(hosted, 100, 3), { served: 'hosted', items: items.slice(0, 3), more: true });
  t.deepEqual(await list(hosted, 100, 4), { served: 'hosted', items, more: false });
  t.deepEqual(await list(hosted, 100, 1, 'v1'), { served: 'hosted', items: ['v2'], more: true });
  t.deepEqual(await list(hosted, 100, 10, 'v3'), { served: 'hosted', items: [], more: false });
  t.deepEqual(await list(mirrored, 100), { served: 'hit', items: ['v0', 'v3'], more: false });
  t.deepEqual(await list(mirrored, 100, 1), { served: 'hit', items: ['v0'], more: true });
  for (const asked of [list(hosted, 99), list(mirrored, 99), list(nowhere, 100)]) {
    const error = await t.throwsAsync<DomainError>(asked, { name: 'NameUnknown' });
    t.deepEqual(error.detail, { name: 'asked' });
  }
});

test('tags of the past are read until a page is full, however many were deleted', async (t) => {
  const { seen, past } = await open(t);
  const lines = Array.from({ length: 1001 }, (_, index) => ({ reference: `v${1000 + index}`, digest: one as string }));
  await seen(hosted, 100, ...lines);
  await seen(hosted, 200, ...lines.slice(0, 999).map((each) => ({ ...each, digest: '' })));
  t.deepEqual(await past(200).listTags(hosted, 1, ''), { served: 'hosted', items: ['v1999'], more: true });
  t.deepEqual(await past(200).listTags(hosted, 5, ''), { served: 'hosted', items: ['v1999', 'v2000'], more: false });
  t.is((await past(100).listTags(hosted, 1001, '')).items.length, 1001);
});

test('referrers of the past are those of today that were seen by then', async (t) => {
  const { seen, past, calls } = await open(t, { referrers: [one, two, three] });
  await seen(hosted, 100, { kind: 'manifest', reference: one, digest: one });
  await seen(hosted, 200, { kind: 'manifest', reference: two, digest: two });
  const query = { limit: 5, last: '' } as never;
  const list = async (until: number, asked = hosted) => {
    const page = await past(until).listReferrers(asked, four, query);
    t.like(page, { next: 'next', served: 'stale' });
    return page.descriptors.map(({ digest }) => digest);
  };
  t.deepEqual([await list(99), await list(100), await list(200)], [[], [one], [one, two]]);
  t.deepEqual(await list(200, nowhere), []);
  t.deepEqual(calls[0], [hosted, four, query]);
  calls.length = 0;
  t.is(await past(0).openBlob(hosted, one, true), 'blob' as never);
  t.deepEqual(calls, [[hosted, one, true]]);
});

const content = { mediaType: mediaTypes.image, size: 7 };

const line = (digest: Digest, seenAt: number, event = 'created') => ({
  ...content,
  digest,
  annotations: {
    'org.opencontainers.distribution.tag.timestamp': new Date(seenAt).toISOString(),
    'org.opencontainers.distribution.tag.event': event,
  },
});

test('the history of a tag is listed from the latest line on, in pages', async (t) => {
  const { seen, history } = await open(t);
  for (const [at, digest] of [one, two, '', three].entries())
    await seen(hosted, 1000 * (at + 1), { reference: 'v1', digest, content });
  const all = [line(three, 4000), line(two, 3000, 'deleted'), line(two, 2000), line(one, 1000)];
  t.deepEqual(await history.page(hosted, 'v1', {}, 10), { descriptors: all, next: undefined });
  for (const limit of [1, 2, 3, 4]) {
    const found = [];
    for (let after: number | undefined; ;) {
      const page = await history.page(hosted, 'v1', { after }, limit);
      t.true(page.descriptors.length <= limit);
      found.push(...page.descriptors);
      if (page.next === undefined) break;
      t.is(page.descriptors.length, limit);
      after = page.next;
    }
    t.deepEqual(found, all);
  }
  t.deepEqual(await history.page(hosted, 'v1', {}, 0), { descriptors: [], next: undefined });
  t.deepEqual(await history.page(nowhere, 'v1', {}, 5), { descriptors: [], next: undefined });
  t.deepEqual(await history.page(mirrored, 'v1', {}, 5), { descriptors: [], next: undefined });
  t.deepEqual(await history.digestsOf(hosted, 'v1', 10), [three, two, one]);
  t.deepEqual(await history.digestsOf(hosted, 'v1', 1), [three]);
  t.deepEqual(await history.digestsOf(hosted, 'v2', 1), []);
  t.deepEqual(await history.digestsOf(nowhere, 'v1', 1), []);
});

test('a long history goes on over the lines that lists do not show', async (t) => {
  const { seen, history } = await open(t, { held: [two] });
  for (let at = 0; at < 250; at += 1)
    await seen(mirrored, at, { reference: 'v1', digest: at % 2 === 0 ? one : two, content });
  const all = await history.page(mirrored, 'v1', {}, 1000);
  t.is(all.next, undefined);
  t.deepEqual(
    all.descriptors,
    Array.from({ length: 125 }, (_, index) => line(one, 248 - 2 * index)),
  );
  const first = await history.page(mirrored, 'v1', {}, 101);
  t.deepEqual(first.descriptors, all.descriptors.slice(0, 101));
  const rest = await history.page(mirrored, 'v1', { after: first.next }, 101);
  t.deepEqual(rest, { descriptors: all.descriptors.slice(101), next: undefined });
});

test('a line without a size has that of the stored manifest, or is left out', async (t) => {
  const stored = { [`manifest ${one}`]: { type: mediaTypes.index, size: 9, attributes: {} } };
  const { seen, history, database } = await open(t, { stored });
  for (const asked of [hosted, mirrored]) {
    await seen(asked, 1000, { reference: 'v1', digest: one });
    await seen(asked, 2000, { reference: 'v1', digest: two });
    await seen(asked, 3000, { reference: 'v1', digest: three, content });
  }
  const index = { ...line(one, 1000), mediaType: mediaTypes.index, size: 9 };
  t.deepEqual((await history.page(mirrored, 'v1', {}, 10)).descriptors, [line(three, 3000), index]);
  t.deepEqual((await history.page(hosted, 'v1', {}, 10)).descriptors, [line(three, 3000)]);
  await database.transaction(async (tx) => {
    const times = { created_at: 1, updated_at: 1 };
    const repository_id = await tx.insert('repositories', { account_id: 1, name: 'app', claimed_at: 1, ...times });
    const media_type = mediaTypes.index;
    const row = { repository_id, digest: one, media_type, size_bytes: 9, image_bytes: 99, pushed_at: 1 };
    await tx.insert('manifests', row);
  });
  t.deepEqual((await history.page(hosted, 'v1', {}, 10)).descriptors, [line(three, 3000), index]);
});
