import test from 'ava';
import type { ImageMirror } from '../../../src/oci/mirrored/image-mirror.ts';
import { fullName, plainImages } from '../../../src/oci/prefetch/plain.ts';
import type { PlainSource } from '../../../src/prefetch/plain.ts';
import { digestOf, hexOf, type Digest } from '../../../src/runtime/digest.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { plainFolder } from '../../support/plain-files.ts';

const digestIn = (text: string) => digestOf(Buffer.from(text));
const blobAt = (digest: Digest) => `blobs/sha256/${hexOf(digest)}`;
const types = {
  image: 'application/vnd.oci.image.manifest.v1+json',
  index: 'application/vnd.oci.image.index.v1+json',
  docker: 'application/vnd.docker.distribution.manifest.v2+json',
  blob: 'application/octet-stream',
};

/** A mirror with these upstreams, of which the first one serves names without a registry. */
function mirrorOf(...upstreams: string[]): ImageMirror {
  const locate = (name: string) => {
    const own = upstreams.find((each) => name.startsWith(`${each}/`));
    const upstream = own ?? (name.split('/', 1)[0]!.includes('.') ? undefined : upstreams[0]);
    const place = upstream && {
      upstream: { id: `id of ${upstream}`, name: upstream, config: {} },
      name: own ? name.slice(own.length + 1) : name,
    };
    return { hosted: [], place };
  };
  return { names: { locate } } as unknown as ImageMirror;
}

/** `upstream kind name reference type digest text` of each entry. */
async function entriesOf(source: PlainSource, name?: string, mirror = mirrorOf('docker.io', 'second.test')) {
  const found: string[][] = [];
  for await (const { key, type, digest, file } of plainImages(mirror, source, { accountId: 1, name })) {
    const text = (await readAll(await file.open(), 10_000)).toString();
    found.push([
      key.upstream,
      key.kind,
      key.name,
      key.reference,
      type,
      digest!,
      file.size === text.length ? text : 'a wrong size',
    ]);
  }
  return found;
}

const layer = 'a layer';
const config = 'a config';
const image = JSON.stringify({
  schemaVersion: 2,
  mediaType: types.image,
  config: { digest: digestIn(config), size: config.length },
  layers: [{ digest: digestIn(layer), size: layer.length }],
});
const absent = digestIn('absent');
const indexOf = (...digests: Digest[]) =>
  JSON.stringify({ schemaVersion: 2, manifests: digests.map((digest) => ({ digest, mediaType: types.image })) });

function layoutOf(manifests: unknown, texts: readonly string[], more: Record<string, string> = {}): PlainSource {
  const blobs = Object.fromEntries(texts.map((text) => [blobAt(digestIn(text)), text]));
  return plainFolder({ 'oci-layout': '{}', 'index.json': JSON.stringify({ manifests }), ...blobs, ...more });
}

const named = (digest: string, name: string) => ({
  digest,
  annotations: { 'org.opencontainers.image.ref.name': name },
});

test('an image layout: each manifest under its digest and its tag, then what it names and the layout has', async (t) => {
  const index = indexOf(digestIn(image), absent, digestIn(image));
  const source = layoutOf(
    [
      named(digestIn(index), 'team/app:1'),
      named(digestIn(image), 'second.test/org/app:2'),
      { ...named(digestIn(image), 'x'), annotations: { 'io.containerd.image.name': 'index.docker.io/a:3' } },
      named(digestIn(image), '4'),
      { digest: digestIn(image) },
    ],
    [index, image, config, layer],
  );
  const blobs = (upstream: string, name: string) => [
    [upstream, 'blob', name, digestIn(config), types.blob, digestIn(config), config],
    [upstream, 'blob', name, digestIn(layer), types.blob, digestIn(layer), layer],
  ];
  const manifests = (upstream: string, name: string, ...references: string[]) =>
    references.map((each) => [upstream, 'manifest', name, each, types.image, digestIn(image), image]);
  const whole = (upstream: string, name: string, tag: string) => [
    ...manifests(upstream, name, digestIn(image), tag),
    ...blobs(upstream, name),
  ];
  t.deepEqual(await entriesOf(source, 'given'), [
    ...[digestIn(index), '1'].map((each) => [
      'id of docker.io',
      'manifest',
      'team/app',
      each,
      types.index,
      digestIn(index),
      index,
    ]),
    ...manifests('id of docker.io', 'team/app', digestIn(image)),
    ...blobs('id of docker.io', 'team/app'),
    ...whole('id of second.test', 'org/app', '2'),
    ...whole('id of docker.io', 'a', '3'),
    ...whole('id of docker.io', 'given', '4'),
    ...whole('id of docker.io', 'given', 'latest'),
  ]);
  const bare = layoutOf([{ digest: digestIn(image) }], [image, config, layer]);
  t.deepEqual(await entriesOf(bare, `given@${digestIn(image)}`), [
    ...manifests('id of docker.io', 'given', digestIn(image)),
    ...blobs('id of docker.io', 'given'),
  ]);
  t.deepEqual(await entriesOf(layoutOf(undefined, [])), []);
});

test('a layout that is not whole, or names nothing that an upstream here has, is refused', async (t) => {
  const odd = '{"schemaVersion":1}';
  const large = `${image}${' '.repeat(4 * 2 ** 20 - image.length + 1)}`;
  const cases: [manifests: unknown, texts: string[], message: string, more?: Record<string, string>][] = [
    [[{ digest: 'sha256:1' }], [], 'images: index.json has no digest'],
    [[{}], [], 'images: index.json has no digest'],
    [[{ digest: digestIn(image) }], [image], 'images: it has an image without a name: give it with --name'],
    [[named(digestIn(image), `a:${'b'.repeat(300)}`)], [], `images: "a:${'b'.repeat(198)}" is not an image name`],
    [
      [named(digestIn(image), 'other.test/a:1')],
      [],
      'images: no upstream here has the image other.test/a:1; add its registry to "upstreams"',
    ],
    [[named(absent, 'a:1')], [image], `images: ${absent} is missing`],
    [[named(absent, 'a:1')], [], `images: ${absent} has other content`, { [blobAt(absent)]: image }],
    [[named(digestIn(odd), 'a:1')], [odd], `images: ${digestIn(odd)} is no manifest of a known type`],
    [[named(digestIn('x'), 'a:1')], ['x'], `images: ${digestIn('x')} is no manifest of a known type`],
    [[named(digestIn(image), 'a:1')], [image, config], `images: ${digestIn(layer)} is missing`],
    [[named(digestIn(large), 'a:1')], [large], 'content is larger than 4194304 bytes'],
  ];
  for (const [manifests, texts, message, more] of cases)
    await t.throwsAsync(entriesOf(layoutOf(manifests, texts, more)), { message });
  for (const text of ['x', '5'])
    await t.throwsAsync(entriesOf(plainFolder({ 'oci-layout': '', 'index.json': text })), {
      name: 'Invalid',
      message: 'images: index.json is not JSON',
    });
});

test('an archive of docker save: the blobs of each name, and a manifest that is made of them', async (t) => {
  const list = [
    { Config: 'c', Layers: ['l'], RepoTags: ['team/app:1', 'second.test/b:2'] },
    { Config: 'c', Layers: ['l'], RepoTags: null },
    { Config: 'c', Layers: ['l'], RepoTags: [] },
  ];
  const archive = (text: unknown) => plainFolder({ c: config, l: layer, 'manifest.json': JSON.stringify(text) });
  const bytes = JSON.stringify({
    schemaVersion: 2,
    mediaType: types.docker,
    config: {
      mediaType: 'application/vnd.docker.container.image.v1+json',
      size: config.length,
      digest: digestIn(config),
    },
    layers: [
      { mediaType: 'application/vnd.docker.image.rootfs.diff.tar', size: layer.length, digest: digestIn(layer) },
    ],
  });
  const whole = (upstream: string, name: string, ...tags: string[]) => [
    [upstream, 'blob', name, digestIn(config), types.blob, digestIn(config), config],
    [upstream, 'blob', name, digestIn(layer), types.blob, digestIn(layer), layer],
    ...[digestIn(bytes), ...tags].map((each) => [
      upstream,
      'manifest',
      name,
      each,
      types.docker,
      digestIn(bytes),
      bytes,
    ]),
  ];
  t.deepEqual(await entriesOf(archive(list), `given@${absent}`), [
    ...whole('id of docker.io', 'team/app', '1'),
    ...whole('id of second.test', 'b', '2'),
    ...whole('id of docker.io', 'given'),
    ...whole('id of docker.io', 'given'),
  ]);
  await t.throwsAsync(entriesOf(archive(list.slice(1))), {
    name: 'Invalid',
    message: 'images: it has an image without a name: give it with --name',
  });
  await t.throwsAsync(entriesOf(archive([{ ...list[0], Layers: ['none'] }])), { message: 'images: "none" is missing' });
  t.deepEqual(await entriesOf(archive({ Config: 'c' })), []);
  for (const name of ['oci-layout', 'index.json']) t.deepEqual(await entriesOf(plainFolder({ [name]: '{}' })), []);
});

test('the name of an image in a layout is whole, or the tag of the name that is given', (t) => {
  for (const [reference, name, expected] of [
    [undefined, 'app', undefined],
    ['a/b', 'app', 'a/b'],
    ['a:1', 'app', 'a:1'],
    ['1', 'app', 'app:1'],
    ['1', undefined, undefined],
    ['1', 'app:2', 'app:2'],
    ['1', 'host:5000/app', 'host:5000/app:1'],
    ['1', 'host:5000/app:2', 'host:5000/app:2'],
  ])
    t.is(fullName(reference, name), expected);
});
