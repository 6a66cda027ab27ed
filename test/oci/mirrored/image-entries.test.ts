import test from 'ava';
import {
  blobEntry,
  describeImageEntry,
  imageBytesOf,
  imageEntries,
  manifestEntry,
  manifestTypeOf,
} from '../../../src/oci/mirrored/image-entries.ts';
import { storedTags } from '../../../src/oci/mirrored/stored-tags.ts';
import { pastName } from '../../../src/oci/mirrored/past-name.ts';
import { askRateLimit } from '../../../src/oci/mirrored/rate-limit.ts';
import type { MirroredName } from '../../../src/mirror/policy/admission.ts';
import type { EntryMetadata } from '../../../src/mirror/store/entries.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import type { StagedFile } from '../../../src/storage/files/staged-file.ts';
import type { Upstream, UpstreamRequest } from '../../../src/upstream/upstream.ts';

// What the mirror stores of a registry, and how it is checked.

const config = { freshFor: 1, staleFor: 2, negativeFor: 3, timeout: 4, kind: 'registry' };
const upstream = { id: 'up', name: 'registry.test', config } as unknown as Upstream;
const place = { upstream, name: 'team/app' };
const digest = digestOf('content');
const key = { upstream: 'up', kind: 'manifest', name: 'team/app', reference: 'v1' };
const common = { negativeFor: 3, idle: 4, upstreamName: 'registry.test', upstreamKind: 'registry' };
const metadata = { digest, size: 7, type: mediaTypes.image, attributes: {} } as unknown as EntryMetadata;
const gibibyte = 2 ** 30;

test('a tag is a document, and its manifest is stored under its digest, too', (t) => {
  const { verify: _verify, history, aliases, ...rest } = manifestEntry(place, 'v1', 100);
  t.deepEqual(rest, { ...common, key, lifetime: { freshFor: 1, staleFor: 2 }, limit: 100, whole: true } as typeof rest);
  const content = { mediaType: mediaTypes.image, size: 7 };
  t.deepEqual(history(metadata), [
    { kind: 'tag', reference: 'v1', digest, content },
    { kind: 'manifest', reference: digest, digest },
  ]);
  t.deepEqual(aliases(metadata), [{ ...key, reference: digest }]);
});

test('a manifest with a digest, and a blob, never change', (t) => {
  const { verify: _verify, history, aliases, ...rest } = manifestEntry(place, digest, 100);
  const named = { ...key, reference: digest };
  t.deepEqual(rest, { ...common, key: named, lifetime: 'immutable', digest, limit: 100, whole: true } as typeof rest);
  t.deepEqual(history(metadata), [{ kind: 'manifest', reference: digest, digest }]);
  t.deepEqual(aliases(metadata), []);
  const blob = { ...common, key: { ...named, kind: 'blob' }, lifetime: 'immutable' as const, digest };
  t.deepEqual(blobEntry(place, digest, 100), { ...blob, limit: 100 });
  t.deepEqual(blobEntry(place, digest, undefined), { ...blob, limit: 16 * gibibyte });
  t.deepEqual(blobEntry(place, digest, 17 * gibibyte), { ...blob, limit: 16 * gibibyte });
});

const verified = (text: string) =>
  manifestEntry(place, 'v1', 100).verify({
    size: text.length,
    bytes: () => Promise.resolve(Buffer.from(text)),
  } as unknown as StagedFile);

const configOf = (mediaType: string, size: unknown = 5) => ({ mediaType, digest, size });

const values = (count: number) => `{"schemaVersion":2,"manifests":[${Array(count).fill('{}').join()}]}`;

test('a manifest is looked into: its type, and the size of what it names', async (t) => {
  const oci = configOf(mediaTypes.imageConfig);
  for (const [manifest, mediaType, named] of [
    [{ schemaVersion: 2, config: oci, layers: [{ size: 10 }, { size: 20 }] }, mediaTypes.image, 35],
    [{ schemaVersion: 2, config: configOf(mediaTypes.dockerConfig), layers: [] }, mediaTypes.dockerImage, 5],
    [{ schemaVersion: 2, mediaType: mediaTypes.dockerList, manifests: [{ size: 3 }] }, mediaTypes.dockerList, 3],
    [{ schemaVersion: 2, manifests: [{ size: 3 }, { size: 4 }] }, mediaTypes.index, 7],
    [{ schemaVersion: 2, manifests: [{ size: '3' }, null, 7, { size: 1.5 }, {}, { size: 2 }] }, mediaTypes.index, 2],
  ] as const) {
    const text = JSON.stringify(manifest);
    t.deepEqual(await verified(text), { imageBytes: String(named + text.length), mediaType });
  }
  for (const text of ['{}', '[]', '7', 'text', '{"schemaVersion":1,"manifests":[]}'])
    await t.throwsAsync(verified(text), { message: 'it is not a manifest of a known type' });
  t.is((await verified(values(14_999)))['mediaType'], mediaTypes.index);
  await t.throwsAsync(verified(values(15_000)), { message: 'it has more than 30000 values' });
});

const typeOf = (type: string, mediaType?: string) =>
  manifestTypeOf({ type, attributes: mediaType === undefined ? {} : { mediaType } });

test('the type of a manifest is the one of its upstream if that is known, else that in it', (t) => {
  t.is(typeOf(mediaTypes.image, mediaTypes.index), mediaTypes.image);
  t.is(typeOf('text/plain', mediaTypes.index), mediaTypes.index);
  t.is(typeOf('text/plain', 'text/html'), 'application/octet-stream');
  t.is(typeOf('text/plain'), 'application/octet-stream');
  t.is(imageBytesOf({ size: 7, attributes: { imageBytes: '20' } }), 20);
  t.is(imageBytesOf({ size: 7, attributes: {} }), 7);
});

const dropped = (kind: string, reference: string) =>
  imageEntries.dropEvent({ kind, name: 'team/app', reference }, 'registry.test') as object | undefined;

test('which entries of a registry there are, and what their drop is in the list of events', (t) => {
  t.deepEqual(imageEntries.kinds, {
    manifest: 'by digest',
    blob: 'immutable',
    tags: 'document',
    referrers: 'document',
  });
  const subject = { kind: 'container', name: 'registry.test/team/app' };
  t.deepEqual(dropped('manifest', 'v1'), { ...subject, type: 'tag.deleted' });
  t.deepEqual(dropped('manifest', digest), { ...subject, type: 'manifest.deleted' });
  t.is(dropped('blob', digest), undefined);
  t.deepEqual(imageEntries.namesAtUpstream!('app', 'docker.io'), ['library/app', 'app']);
});

test('an entry of a bundle is described as it is fetched, and none that cannot be one', (t) => {
  const limits = { manifest: 10, blob: 20 } as never;
  const describe = (kind: string, reference: string, name = 'team/app') =>
    describeImageEntry(upstream, { kind, name, reference }, limits);
  t.like(describe('manifest', 'v1'), { key, limit: 10, whole: true });
  t.like(describe('manifest', digest), { key: { ...key, reference: digest }, lifetime: 'immutable', limit: 10 });
  t.deepEqual(describe('blob', digest), blobEntry(place, digest, 20));
  const referrers = { ...key, kind: 'referrers', reference: digest };
  t.deepEqual(describe('referrers', digest), {
    ...common,
    key: referrers,
    lifetime: { freshFor: 1, staleFor: 2 },
    limit: 16 * 2 ** 20,
  } as never);
  for (const none of [
    describe('manifest', '-bad'),
    describe('blob', 'v1'),
    describe('referrers', 'v1'),
    describe('tags', digest),
    describe('tags', ''),
    describe('manifest', 'v1', 'Team/App'),
    describe('blob', digest, '../app'),
  ])
    t.is(none, undefined);
});

const withdrawn = () => Promise.resolve(new Map<string, number>());

test('a repository of the past has the facts of the digests that its tags had then', async (t) => {
  const asked: (readonly string[])[] = [];
  const facts = {
    of: (references: readonly string[]) => {
      asked.push(references);
      return Promise.resolve(new Map([['d1', { firstSeenAt: 1 }]]));
    },
    withdrawn: () => Promise.resolve(withdrawn),
  };
  const name = { accountId: 1, kind: 'image', name: 'app', facts } as unknown as MirroredName;
  const digests = new Map([
    ['v1', 'd1'],
    ['v2', 'd1'],
    ['v3', 'd3'],
  ]);
  const past = pastName(name, digests);
  t.like(past, { accountId: 1, kind: 'image', name: 'app', isPast: true });
  t.is(await past.facts.withdrawn!(), withdrawn);
  t.deepEqual(
    [...(await past.facts.of(['v1', 'v2', 'v3', 'd1', 'other']))],
    ['v1', 'v2', 'd1'].map((each) => [each, { firstSeenAt: 1 }]),
  );
  t.deepEqual(asked, [['d1', 'd3', 'other']]);
});

test('only Docker Hub is asked for its limit, by a request that does not count', async (t) => {
  const asked: UpstreamRequest[] = [];
  const read: string[] = [];
  const body = { on: (event: string) => read.push(event), once: () => undefined, destroy: () => undefined };
  const registry = (name: string) =>
    ({
      name,
      config: { kind: 'registry', name, url: 'https://hub.test/x' },
      send: (request: UpstreamRequest) => {
        asked.push(request);
        return Promise.resolve({ body });
      },
    }) as unknown as Upstream;
  await askRateLimit(registry('second.test'));
  t.deepEqual(asked, []);
  await askRateLimit(registry('docker.io'));
  t.deepEqual(asked, [
    {
      method: 'HEAD',
      url: new URL('https://hub.test/v2/ratelimitpreview/test/manifests/latest'),
      subject: 'ratelimitpreview/test',
      scope: 'repository:ratelimitpreview/test:pull',
    },
  ]);
  t.true(read.includes('data'), 'the rest is read');
});

test('stored tags are those of images that the account gets from their upstream', async (t) => {
  const claims = new Map<string, number | null>();
  const database = {
    selectCached: (_sql: string, [accountId, ...names]: (number | string)[]) => {
      t.is(accountId, 7);
      const rows = [...claims].map(([name, claimed_at]) => ({ name, claimed_at }));
      return Promise.resolve(rows.filter((each) => names.includes(each.name)));
    },
  };
  const named = { name: 'as policies see it' };
  const located: unknown[] = [];
  const mirror = {
    upstreams: [upstream],
    nameOf: (at: unknown) => {
      t.is(at, place);
      return named;
    },
    names: {
      locate: (...asked: unknown[]) => {
        located.push(asked);
        return { place: asked[0] === 'registry.test/team/app' ? place : undefined, hosted: ['one', 'two'] };
      },
    },
  };
  const mirrors = { of: (accountId: number) => (accountId === 7 ? mirror : undefined) };
  const tags = storedTags(database as never, mirrors as never);
  t.like(tags, { kind: 'container', entryKind: 'manifest', contentKind: 'manifest', hasVersions: false });
  t.deepEqual(await tags.upstreams(7), [upstream]);
  t.is(tags.shownName(upstream, 'team/app'), 'registry.test/team/app');
  const entry = { name: 'team/app', reference: 'v1' };
  const found = await tags.find(7, upstream, entry);
  t.is(found?.name, named as never);
  t.is(found?.asking, named as never);
  t.deepEqual(await found?.references(), ['v1']);
  t.deepEqual(located, [['registry.test/team/app', undefined]]);
  t.is(await tags.find(7, upstream, { ...entry, name: 'other' }), undefined);
  claims.set('two', null);
  t.is((await tags.find(7, upstream, entry))?.name, named as never, 'a push has only begun');
  claims.set('two', 5);
  t.is(await tags.find(7, upstream, entry), undefined);
});
