import test from 'ava';
import { Pushes } from '../../../src/oci/catalog/pushes.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';

const place = { upstream: { id: 'up', name: 'registry.test' }, name: 'team/app' };
const config = { mediaType: mediaTypes.imageConfig, digest: digestOf('config'), size: 6 };
const layerOf = (text: string) => ({
  mediaType: 'application/vnd.oci.image.layer.v1.tar',
  digest: digestOf(text),
  size: text.length,
});

function sent(document: object, contentType: string = mediaTypes.image) {
  const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: contentType, ...document }));
  return { tags: ['v1'], digest: digestOf(bytes), bytes, contentType };
}
const imageOf = (...layers: readonly string[]) => sent({ config, layers: layers.map(layerOf) });
const indexOf = (...children: readonly { digest: Digest; bytes: Buffer }[]) => {
  const manifests = children.map(({ digest, bytes }) => ({ mediaType: mediaTypes.image, digest, size: bytes.length }));
  return sent({ manifests }, mediaTypes.index);
};

interface Given {
  isElsewhere?: boolean;
  /** Whether hosted content lacks something of the manifest. */
  isIncomplete?: boolean;
  /** Blobs that the mirror has. */
  stored?: readonly Digest[];
  /** Those of images that were pulled. */
  named?: readonly Digest[];
  manifests?: readonly { digest: Digest; bytes: Buffer }[];
  /** How a fetch of a blob goes. */
  fetch?: 'arrives' | 'stored' | 'passed' | 'absent' | Error;
  hasPulled?: boolean;
  isClaimed?: boolean;
  mirroredFrom?: string;
  claims?: boolean;
}

async function push(given: Given, manifest: ReturnType<typeof sent>) {
  const did = {
    pushed: [] as Digest[],
    tags: [] as (readonly string[])[],
    options: [] as unknown[],
    adopted: [] as Digest[][],
    fetched: 0,
    closed: 0,
    searched: 0,
    asked: new Set<Digest>(),
  };
  const warned: unknown[] = [];
  const here = new Set<string>(given.stored);
  const among = (some: readonly Digest[]) => Promise.resolve(new Set(some.filter((each) => here.has(each))));
  const contentOfBlob = (digest: Digest) => {
    const bytes = contentOf(Buffer.from('x'));
    const read = async (target: Buffer, position: number) => {
      if (given.fetch !== 'arrives') throw new Error('this is not read');
      if (position === 1) here.add(digest);
      return bytes.read(target, position);
    };
    return { ...bytes, read, close: () => (did.closed += 1) };
  };
  const mirror = {
    names: { locate: () => ({ place: given.isElsewhere ? undefined : place }) },
    blobsAmong: (_place: object, some: readonly Digest[]) => among(some),
    servedBlobs: (_place: object, some: readonly Digest[]) => Promise.resolve(new Set(some)),
    blobsOfImages: () => {
      did.searched += 1;
      return Promise.resolve(new Set<string>(given.named));
    },
    storedAmong: (_place: object, _kind: string, some: readonly Digest[]) =>
      Promise.resolve(new Set(some.filter((each) => given.manifests?.some(({ digest }) => digest === each)))),
    openManifest: (_place: object, digest: Digest) => {
      did.asked.add(digest);
      const found = given.manifests?.find((each) => each.digest === digest);
      const metadata = found && { digest, size: found.bytes.length, type: mediaTypes.image, attributes: {} };
      return Promise.resolve(found && { content: contentOf(found.bytes), complete: Promise.resolve(metadata) });
    },
    openBlob: (_place: object, digest: Digest) => {
      did.fetched += 1;
      if (given.fetch instanceof Error) return Promise.reject(given.fetch);
      if (given.fetch === 'absent') return Promise.resolve();
      const metadata = given.fetch === 'stored' ? { digest, size: 1 } : undefined;
      return Promise.resolve({
        content: contentOfBlob(digest),
        metadata,
        outcome: given.fetch === 'passed' ? 'passed' : 'miss',
      });
    },
  };
  const manifests = {
    push: (
      _account: number,
      _name: string,
      { digest, tags }: { digest: Digest; tags: readonly string[] },
      options?: { isWhole?: boolean },
    ) => {
      if (options?.isWhole && given.isIncomplete)
        return Promise.reject(new DomainError('ManifestBlobUnknown', 'lacks'));
      did.pushed.push(digest);
      did.options.push(options);
      did.tags.push(tags);
      return Promise.resolve({ claimed: (given.claims ?? false) && did.pushed.length === 1 });
    },
    missing: (_account: number, _name: string, { references }: { references: readonly { digest: Digest }[] }) =>
      Promise.resolve(references.map(({ digest }) => digest)),
  };
  const parts = {
    images: {
      manifests,
      blobs: { adopt: (_account: number, _name: string, blobs: Digest[]) => Promise.resolve(did.adopted.push(blobs)) },
    },
    source: {
      mirroredFrom: () => Promise.resolve(given.mirroredFrom),
      isClaimed: () => Promise.resolve(given.isClaimed ?? false),
    },
    mirrors: { of: () => Promise.resolve(mirror) },
    hasPulled: () => Promise.resolve(given.hasPulled ?? true),
    log: { warn: (line: object) => warned.push(line) },
  };
  const result = new Pushes(parts as never).push(1, 'team/app', manifest as never).then(
    ({ claimed, warning }) => ({ claimed, warning, error: undefined }),
    (error: DomainError) => ({ error, claimed: undefined, warning: undefined }),
  );
  return { ...(await result), ...did, warned };
}

const image = imageOf('a', 'b');
const blobs = [config.digest, digestOf('a'), digestOf('b')];
const incomplete = { isIncomplete: true };

test('a whole image is pushed as it is, and takes over the name of a mirrored one with a warning', async (t) => {
  const there = await push({ isElsewhere: true }, image);
  t.deepEqual([there.pushed, there.options, there.warning], [[image.digest], [undefined], undefined]);
  const own = await push({ claims: true }, image);
  t.deepEqual([own.options, own.warning, own.warned], [[{ isWhole: true, mirroredFrom: undefined }], undefined, []]);
  const taken = await push({ claims: true, mirroredFrom: 'registry.test' }, image);
  t.regex(taken.warning!, /team\/app was served from registry\.test/);
  t.deepEqual(taken.warned, [{ account: 1, name: 'team/app', upstream: 'registry.test' }]);
  const again = await push({ mirroredFrom: 'registry.test' }, image);
  t.deepEqual([again.warning, again.warned], [undefined, []]);
});

test('blobs that the mirror has are adopted, and others of pulled images are fetched', async (t) => {
  const stored = await push({ ...incomplete, stored: blobs }, image);
  t.deepEqual([stored.adopted, stored.fetched, stored.pushed], [[blobs], 0, [image.digest]]);
  t.is(stored.searched, 0);
  for (const fetch of ['arrives', 'stored'] as const) {
    const some = await push({ ...incomplete, stored: blobs.slice(0, 1), named: blobs, fetch }, image);
    t.deepEqual([some.adopted, some.fetched, some.closed, some.pushed], [[blobs], 2, 2, [image.digest]], fetch);
  }
});

test('what no pulled image names, or this account may not fetch, is missing', async (t) => {
  const given = { ...incomplete, stored: blobs.slice(0, 1), named: blobs };
  for (const [more, fetched] of [
    [{ named: [] }, 0],
    [{ hasPulled: false }, 0],
    [{ isClaimed: true }, 0],
    [{ fetch: 'absent' }, 2],
    [{ fetch: new UpstreamError('UpstreamUnavailable', 'it fails') }, 2],
  ] as const) {
    const found = await push({ ...given, ...more }, image);
    t.is(found.error?.name, 'ManifestBlobUnknown');
    t.deepEqual([found.fetched, found.pushed, found.adopted], [fetched, [], []]);
  }
  t.is((await push({ ...given, fetch: new Error('other') }, image)).error?.message, 'other');
  const full = await push({ ...given, fetch: 'passed' }, image);
  t.deepEqual([full.error?.name, full.closed], ['StorageFull', 1]);
});

test('a push fetches at most 200 layers', async (t) => {
  const layers = Array.from({ length: 201 }, (_, index) => `layer ${index}`);
  const given = { ...incomplete, stored: [config.digest], named: layers.map((each) => digestOf(each)) };
  const found = await push({ ...given, fetch: 'stored' }, imageOf(...layers));
  t.deepEqual([found.error?.name, found.fetched], ['ManifestBlobUnknown', 200]);
  const fewer = await push({ ...given, fetch: 'stored' }, imageOf(...layers.slice(1)));
  t.deepEqual([fewer.error, fewer.fetched], [undefined, 200]);
});

test('mirrored images of an index are pushed before it, each once', async (t) => {
  const [one, two, lost] = [imageOf('a'), imageOf('b'), imageOf('c')];
  const index = indexOf(one, two, one, lost);
  const given = { ...incomplete, stored: blobs, manifests: [one, two] };
  const found = await push({ ...given, claims: true, mirroredFrom: 'registry.test' }, index);
  t.deepEqual(found.pushed, [one.digest, two.digest, index.digest]);
  t.deepEqual([found.claimed, found.tags], [true, [[], [], ['v1']]]);
  t.false(found.asked.has(lost.digest), 'the upstream is not asked for what is not stored');
  t.deepEqual(
    found.options,
    Array.from({ length: 3 }, () => ({ mirroredFrom: 'registry.test' })),
  );
  const other = await push({ ...given, manifests: [] }, index);
  t.deepEqual([other.pushed, other.claimed], [[index.digest], false]);
  const lacking = await push({ ...given, stored: [], hasPulled: false }, index);
  t.deepEqual([lacking.error?.name, lacking.pushed], ['ManifestBlobUnknown', []]);
  // A mirrored manifest names its blobs, so all of them may be fetched.
  const fetched = await push({ ...given, stored: [], fetch: 'arrives' }, index);
  t.deepEqual([fetched.pushed.length, fetched.fetched], [3, 3]);
});
