import test from 'ava';
import { ImageSource, type LocatedRepository } from '../../../src/oci/catalog/image-source.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { AccessRefused } from '../../../src/upstream/failures.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';

const place = { upstream: { id: 'up', name: 'registry.test' }, name: 'team/app' } as UpstreamRepository;
const digest = digestOf('content');
const tag = { tag: 'v1' } as const;
const mediaType = 'application/vnd.oci.image.manifest.v1+json';
const metadata = { digest, size: 7, type: mediaType, attributes: {} };

/** What the fake mirror and the hosted images answer. */
interface Given {
  failure?: Error;
  entry?: object;
  isNamed?: boolean;
  isMirrored?: boolean;
  isStored?: boolean;
  firstSeen?: Error | number;
  hosted?: Error;
  anySince?: boolean;
  referrers?: readonly object[];
}

function sourceOf(given: Given) {
  const answer = () => (given.failure ? Promise.reject(given.failure) : Promise.resolve(given.entry));
  const mirror = {
    names: { locate: () => ({ isNamed: given.isNamed ?? false }) },
    openManifest: answer,
    openBlob: answer,
    isMirrored: () => Promise.resolve(given.isMirrored ?? false),
    isStored: () => Promise.resolve(given.isStored ?? false),
    firstSeenAt: () =>
      given.firstSeen instanceof Error ? Promise.reject(given.firstSeen) : Promise.resolve(given.firstSeen),
    listReferrers: () => Promise.resolve({ served: 'hit', items: given.referrers ?? [] }),
    listTags: () => Promise.resolve(given.entry),
  };
  const opened = (repairs: boolean) =>
    given.hosted ? Promise.reject(given.hosted) : Promise.resolve({ size: repairs ? 1 : 2 });
  const images = {
    manifests: { open: () => opened(false) },
    blobs: {
      open: () => opened(false),
      openBeforePush: () => opened(true),
      anySince: () => Promise.resolve(given.anySince ?? false),
    },
    repositories: { tags: () => opened(false) },
  };
  const limits = { uploadAge: 1 };
  return new ImageSource({ images, mirrors: { of: () => mirror }, limits, now: () => 5 } as never);
}

const asked = (more: Partial<LocatedRepository> = {}): LocatedRepository => ({
  accountId: 1,
  name: 'team/app',
  ns: undefined,
  mayPush: true,
  hosted: undefined,
  place,
  ...more,
});
const entryWith = (more: object) => ({ content: contentOf(Buffer.from('content')), outcome: 'hit', metadata, ...more });
const failing = (more: ConstructorParameters<typeof UpstreamError>[2] = {}) =>
  new UpstreamError('UpstreamUnavailable', 'it fails', more);
const damaged = new DomainError('ContentDamaged', 'damaged');

const manifestOfFailing = (given: Given, more: Partial<LocatedRepository> = {}, isHead = true) =>
  sourceOf({ failure: failing(), ...given }).openManifest(asked(more), tag, isHead);

test('a client that may push a new name gets "not found" for HEAD while the upstream fails', async (t) => {
  const unknown = { name: 'ManifestUnknown' };
  await t.throwsAsync(manifestOfFailing({}), unknown);
  for (const [given, more, isHead] of [
    [{}, {}, false],
    [{}, { mayPush: false }],
    [{}, { name: 'app' }],
    [{}, { name: 'library/app' }],
    [{ isNamed: true }],
    [{ isMirrored: true }],
  ] as const)
    await t.throwsAsync(manifestOfFailing(given, more, isHead), { name: 'UpstreamUnavailable' });
  for (const lasting of [{ denied: true }, { offline: true }, { cause: new AccessRefused() }])
    await t.throwsAsync(manifestOfFailing({ failure: failing(lasting) }, { name: 'library/app' }), unknown);
  await t.throwsAsync(manifestOfFailing({ failure: new Error('other') }), { message: 'other' });
});

const manifestDuringPush = (given: Given, more: Partial<LocatedRepository> = {}, head = true) =>
  sourceOf({ entry: entryWith({}), firstSeen: 3, ...given }).openManifest(
    asked({ hosted: 'team/app', ...more }),
    tag,
    head,
  );

test('a manifest is unknown while the first push of its name is going on', async (t) => {
  await t.throwsAsync(manifestDuringPush({ anySince: true }), { name: 'ManifestUnknown' });
  for (const [given, more, head] of [
    [{}],
    [{ anySince: true, isMirrored: true }],
    [{ anySince: true }, { hosted: undefined }],
    [{ anySince: true }, {}, false],
  ] as const)
    t.like(await manifestDuringPush(given, more, head), {
      digest,
      mediaType,
      firstSeenAt: 3,
      repository: 'registry.test/team/app',
    });
});

test('a mirrored manifest is closed if it is not known since when it is here', async (t) => {
  let closed = 0;
  const content = { ...contentOf(Buffer.from('content')), close: () => (closed += 1) };
  const entry = entryWith({ content, metadata: undefined, complete: Promise.resolve(metadata) });
  const open = (given: Given) => sourceOf({ entry, ...given }).openManifest(asked(), tag);
  t.is((await open({ firstSeen: 3 })).digest, digest);
  t.is(closed, 0);
  await t.throwsAsync(open({ firstSeen: new Error('no database') }), { message: 'no database' });
  t.is(closed, 1);
  await t.throwsAsync(sourceOf({}).openManifest(asked(), tag), { name: 'ManifestUnknown' });
});

const hostedManifest = (hosted: Error, head: boolean, more: Partial<LocatedRepository> = {}) =>
  sourceOf({ hosted }).openManifest(asked({ place: undefined, hosted: 'team/app', ...more }), tag, head);

test('a hosted manifest that is damaged is unknown before a push', async (t) => {
  await t.throwsAsync(hostedManifest(damaged, true), { name: 'ManifestUnknown' });
  await t.throwsAsync(hostedManifest(damaged, false), { name: 'ContentDamaged' });
  await t.throwsAsync(hostedManifest(damaged, true, { mayPush: false }), { name: 'ContentDamaged' });
  const missing = { hosted: undefined, missing: 'other.test' };
  await t.throwsAsync(hostedManifest(damaged, true, missing), { name: 'NameUnknown', message: /other\.test/ });
  const unknown = new DomainError('NameUnknown', 'no such name');
  await t.throwsAsync(hostedManifest(unknown, false, { missing: 'other.test' }), {
    name: 'NameUnknown',
    message: /other\.test/,
  });
});

const blobOf = (given: Given, more: Partial<LocatedRepository> = {}, head = false) =>
  sourceOf(given).openBlob(asked({ hosted: 'team/app', ...more }), digest, head);

test('a blob that is not hosted, or is damaged, is taken from the upstream', async (t) => {
  const entry = entryWith({});
  for (const hosted of [damaged, new DomainError('BlobUnknown', 'no such blob')]) {
    t.like(await blobOf({ hosted, entry }), { served: 'hit', repository: 'registry.test/team/app' });
    await t.throwsAsync(blobOf({ hosted }), { name: hosted.name });
    await t.throwsAsync(blobOf({ hosted, entry }, { place: undefined }), { name: hosted.name });
  }
  await t.throwsAsync(blobOf({ hosted: new Error('other'), entry }), { message: 'other' });
  t.like(await blobOf({}), { served: 'hosted', repository: 'team/app', content: { size: 2 } });
  t.like(await blobOf({}, {}, true), { content: { size: 1 } });
  t.like(await blobOf({}, { mayPush: false }, true), { content: { size: 2 } });
  await t.throwsAsync(blobOf({}, { hosted: undefined, place: undefined }), { name: 'NameUnknown' });
});

const blobBeforePush = (given: Given, more: Partial<LocatedRepository> = {}, isHead = true) =>
  sourceOf({ entry: entryWith({}), ...given }).openBlob(asked(more), digest, isHead);

test('before a push, the upstream is not asked for a blob of a name of which nothing is mirrored', async (t) => {
  await t.throwsAsync(blobBeforePush({}), { name: 'BlobUnknown' });
  await t.throwsAsync(blobBeforePush({ hosted: damaged }, { hosted: 'team/app' }), { name: 'BlobUnknown' });
  for (const [given, more, isHead] of [
    [{ isStored: true }],
    [{ isMirrored: true }],
    [{}, { mayPush: false }],
    [{}, {}, false],
  ] as const)
    t.is((await blobBeforePush(given, more, isHead)).served, 'hit');
});

const servedOf = async (more: object) => (await sourceOf({ entry: entryWith(more) }).openBlob(asked(), digest)).served;

test('a blob that still arrives is passed on', async (t) => {
  t.is(await servedOf({ outcome: 'miss' }), 'miss');
  t.is(await servedOf({ outcome: 'miss', metadata: undefined }), 'passed');
  t.is(await servedOf({ outcome: 'hit', metadata: undefined }), 'hit');
});

test('a page of mirrored referrers has those of the wanted type after the last one', async (t) => {
  const all = ['a', 'b', 'c', 'd'].map((each, index) => ({
    digest: `sha256:${each.repeat(64)}`,
    mediaType,
    size: 1,
    artifactType: index === 1 ? 'other' : 'wanted',
  }));
  const list = async (artifactType: string | undefined, last: number | undefined) => {
    const query = { artifactType, limit: 2, last: last === undefined ? '' : all[last]!.digest };
    const found = await sourceOf({ referrers: all }).listReferrers(asked(), digest, query);
    t.is(found.served, 'hit');
    const indexes = found.descriptors.map((each) => all.findIndex((one) => one.digest === each.digest));
    return [indexes, all.findIndex((one) => one.digest === found.next)];
  };
  t.deepEqual(await list(undefined, undefined), [[0, 1], 1]);
  t.deepEqual(await list('wanted', undefined), [[0, 2], 2]);
  t.deepEqual(await list(undefined, 1), [[2, 3], -1]);
  t.deepEqual(await list('other', 1), [[], -1]);
});

const tagsOf = (given: Given, more: Partial<LocatedRepository>) => sourceOf(given).listTags(asked(more), 10, '');

test('tags of an unknown repository are refused', async (t) => {
  await t.throwsAsync(tagsOf({}, {}), { name: 'NameUnknown' });
  await t.throwsAsync(tagsOf({}, { place: undefined }), { name: 'NameUnknown' });
  t.is((await tagsOf({}, { place: undefined, hosted: 'team/app' })).served, 'hosted');
  const hosted = new DomainError('NameUnknown', 'no such name');
  const elsewhere = { place: undefined, hosted: 'team/app', missing: 'other.test' };
  await t.throwsAsync(tagsOf({ hosted }, elsewhere), { name: 'NameUnknown', message: /other\.test/ });
  await t.throwsAsync(tagsOf({ hosted: damaged }, elsewhere), { name: 'ContentDamaged' });
});
