import test from 'ava';
import type { Admission, Verdict } from '../../../src/mirror/policy/admission.ts';
import { EarlierDigests } from '../../../src/oci/mirrored/earlier-digests.ts';
import { namingSearched, StoredManifests } from '../../../src/oci/mirrored/stored-manifests.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';

const upstream = { id: 'up', name: 'docker.io', config: {} };
const place = { upstream, name: 'library/app' } as UpstreamRepository;

/** What is stored and known of a repository, by digest or tag. */
interface Known {
  manifests?: readonly object[];
  stored?: ReadonlyMap<string, number>;
  listed?: ReadonlyMap<string, number>;
  tags?: ReadonlyMap<string, string>;
  withdrawn?: ReadonlyMap<string, number>;
  tagsOf?: ReadonlyMap<string, string[]>;
}

interface Resource {
  key: { kind: string; reference: string };
  lifetime: string;
}

const bytesOf = (manifest: object) => Buffer.from(JSON.stringify(manifest));
const digestIn = (manifest: object) => digestOf(bytesOf(manifest));
const among = <T>(map: ReadonlyMap<string, T> | undefined, keys: readonly string[]) =>
  new Map([...(map ?? [])].filter(([key]) => keys.includes(key)));

/** Manifests with a fake mirror; `calls` has what was opened and written. */
function storedManifests({ manifests = [], stored, listed, tags, withdrawn, tagsOf }: Known, noted?: () => Error) {
  const calls = { opened: [] as string[], writes: 0 };
  const byDigest = new Map<string, Buffer>(manifests.map((each) => [digestIn(each), bytesOf(each)]));
  const mirror = {
    latest: (_key: object, most: number) => Promise.resolve([...byDigest.keys(), 'sha256:gone'].slice(0, most)),
    openStored: ({ key: { kind, reference }, lifetime }: Resource, { isSearched }: { isSearched: boolean }) => {
      if (kind !== 'manifest' || lifetime !== 'immutable' || !isSearched) throw new Error('this would be a use');
      calls.opened.push(reference);
      const bytes = byDigest.get(reference);
      const metadata = { digest: reference, size: bytes?.length };
      return Promise.resolve(bytes && { content: contentOf(bytes), metadata, size: bytes.length });
    },
    writeUses: () => Promise.resolve((calls.writes += 1)),
    withdrawals: { times: () => Promise.resolve(withdrawn ?? new Map()) },
    referencesOf: (_key: object, digest: string) => Promise.resolve(tagsOf?.get(digest) ?? []),
  };
  const sightings = {
    latestDigests: (_key: object, some: readonly string[]) => Promise.resolve(among(tags, some)),
    firstSeen: (_key: object, kind: string, some: readonly string[]) =>
      Promise.resolve(among(kind === 'manifest' ? stored : kind === 'listed' ? listed : undefined, some)),
    firstListed: () => (noted ? Promise.reject(noted()) : Promise.resolve()),
  };
  return { found: new StoredManifests(mirror as never, sightings as never, 1), calls, mirror };
}

const child = (digest: Digest) => ({ digest, size: 1 });
const layers = ['one', 'two', 'three', 'four'].map((each) => digestOf(each));
const images = layers.map((each) => ({ layers: [child(each)] }));

test('stored manifests are read until they are too many bytes, and are read once without that limit', async (t) => {
  const { found, calls } = storedManifests({ manifests: images });
  const { length } = bytesOf(images[0]!);
  const read = async (most: number, mostBytes: number) => {
    const named: string[] = [];
    for await (const [, { blobs }] of found.latestContent(place, most, mostBytes)) named.push(blobs[0]!.digest);
    return named;
  };
  t.deepEqual(await read(10, length), layers.slice(0, 2));
  t.deepEqual(await read(10, length - 1), layers.slice(0, 1));
  t.deepEqual(await read(3, Infinity), layers.slice(0, 3));
  t.deepEqual(await read(10, Infinity), layers);
  calls.opened.length = 0;
  t.deepEqual(await read(10, Infinity), layers);
  t.deepEqual(calls.opened, ['sha256:gone']);
  t.deepEqual(await read(10, 10 * length), layers);
  t.is(calls.opened.length, 6);
});

const listOf = (count: number) => () => Promise.resolve(Array.from({ length: count }, (_, index) => `${index}`));

test('uses are written for a repository with more manifests than are searched', async (t) => {
  const { found, calls, mirror } = storedManifests({});
  mirror.latest = listOf(namingSearched - 1);
  t.false(await found.noteUses(place));
  t.is(calls.writes, 0);
  mirror.latest = listOf(namingSearched);
  t.true(await found.noteUses(place));
  t.is(calls.writes, 1);
});

test('facts are told of tags and digests that were stored or listed here', async (t) => {
  const [one, two, three] = layers as [Digest, Digest, Digest];
  const { found } = storedManifests({
    tags: new Map([
      ['v1', one],
      ['v9', digestOf('unseen')],
    ]),
    stored: new Map([
      [one, 10],
      [two, 20],
    ]),
    listed: new Map([
      [two, 15],
      [three, 30],
    ]),
  });
  const name = found.nameOf(place);
  t.deepEqual(name.shown, ['docker.io/library/app', 'docker.io/app']);
  const facts = await name.facts.of(['v1', 'v2', 'v9', two, three, digestOf('unseen')]);
  t.deepEqual(
    [...facts].map(([reference, { namedBy: _namedBy, ...rest }]) => [reference, rest]),
    [
      ['v1', { firstSeenAt: 10, digest: one }],
      [two, { firstSeenAt: 20, listedAt: 15, digest: two }],
      [three, { firstSeenAt: undefined, listedAt: 30, digest: three }],
    ],
  );
});

test('a digest is withdrawn with the last of its tags', async (t) => {
  const [both, half, none] = layers as [Digest, Digest, Digest];
  const withdrawn = new Map([
    ['a', 5],
    ['b', 9],
  ]);
  const tagsOf = new Map([
    [both as string, ['a', 'b']],
    [half, ['a', 'c']],
  ]);
  const { found } = storedManifests({ withdrawn, tagsOf });
  const times = await found.nameOf(place).facts.withdrawn!();
  t.deepEqual(
    [...(await times!(['a', 'c', both, half, none]))],
    [
      ['a', 5],
      [both, 9],
    ],
  );
  t.is(await storedManifests({ tagsOf }).found.nameOf(place).facts.withdrawn!(), undefined);
});

test('an image is named by its indexes, also by way of another one', async (t) => {
  const image = images[0]!;
  const inner = { manifests: [child(digestIn(image))] };
  const outer = { manifests: [child(digestIn(inner)), child(digestOf('not stored'))] };
  const other = { manifests: [child(digestOf('not stored'))] };
  const manifests = [outer, inner, other, image];
  const stored = new Map(manifests.map((each, index) => [digestIn(each), index]));
  const { found } = storedManifests({ manifests, stored });
  const naming = async (digest: Digest) => [...(await found.indexesNaming(place, digest)).keys()].toSorted();
  const sorted = (...some: object[]) => some.map(digestIn).toSorted();
  t.deepEqual(await naming(digestIn(image)), sorted(inner, outer));
  t.deepEqual(await naming(digestIn(inner)), sorted(outer));
  t.deepEqual(await naming(digestOf('not stored')), sorted(outer, other));
  t.deepEqual(await naming(digestIn(outer)), []);
  t.is((await found.indexesNaming(place, digestIn(inner))).get(digestIn(outer))!.digest, digestIn(outer));
  const namedBy = await found.nameOf(place).facts.naming!();
  t.deepEqual([...namedBy(layers[0]!)].toSorted(), sorted(image, inner, outer));
  t.deepEqual([...namedBy(digestOf('unknown'))], []);
});

const sight = (error: Error) => storedManifests({}, () => error).found.sightReferrers(place, layers);

test('referrers are served although a full disk or a database without answers keeps no note of them', async (t) => {
  await t.notThrowsAsync(sight(new DomainError('StorageFull', 'full')));
  await t.notThrowsAsync(sight(new DomainError('DatabaseUnavailable', 'no database')));
  await t.throwsAsync(sight(new DomainError('Invalid', 'other')), { message: 'other' });
});

test('a tag whose digest is held has the latest earlier one that clients get', async (t) => {
  const digests = new Map([
    ['moved', ['new', 'old', 'older']],
    ['denied', ['bad', 'old']],
    ['held', ['new']],
  ]);
  const verdicts: Record<string, Verdict> = {
    new: 'hold',
    bad: { denied: 'no' },
    moved: 'hold',
    denied: 'hold',
    held: 'hold',
  };
  const open = (each: string) => verdicts[each] !== 'hold';
  let asked = 0;
  let wasPast: boolean | undefined;
  const kept = new Map<string, string[]>();
  const admission = {
    listed: (_name: object, items: readonly string[]) => {
      const shown = items.filter(open);
      if (shown.length === items.length) return Promise.resolve(items);
      const known = kept.get(String(items)) ?? shown;
      kept.set(String(items), known);
      return Promise.resolve(known);
    },
    decided: (name: { isPast?: boolean }, items: readonly string[]) => {
      wasPast = name.isPast;
      return Promise.resolve(items.map((each) => verdicts[each] ?? 'allow'));
    },
  } as unknown as Admission;
  const manifests = {
    nameOf: () => ({ facts: {} }),
    digestsOf: (_place: object, tags: readonly string[]) => {
      asked += 1;
      return Promise.resolve(among(digests, tags));
    },
  } as unknown as StoredManifests;
  const earlier = new EarlierDigests(admission, manifests);
  t.deepEqual([...(await earlier.of(place, ['moved', 'denied', 'held', 'other']))], [['moved', 'old']]);
  asked = 0;
  const tags = ['a', 'moved', 'denied', 'held', 'z'];
  const shown = await earlier.listed(place, tags);
  t.deepEqual(shown, ['a', 'moved', 'z']);
  t.is(await earlier.listed(place, tags), shown);
  t.is(asked, 1);
  t.deepEqual(await earlier.listed(place, ['a', 'z']), ['a', 'z']);
  t.is(asked, 1);
  const refused = async (tag: string, verdict: Verdict) => {
    verdicts[tag] = verdict;
    return earlier.isRefusedAnyway(manifests.nameOf(place), tag);
  };
  t.deepEqual(
    [
      await refused('x', { denied: 'no' }),
      await refused('x', { denied: 'no', isHidden: true }),
      await refused('x', 'hold'),
      await refused('x', 'allow'),
    ],
    [true, false, false, false],
  );
  t.true(wasPast);
});
