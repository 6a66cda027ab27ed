import test from 'ava';
import * as fc from 'fast-check';
import { isDomainError } from '../../../src/runtime/errors.ts';
import { ambiguousKey } from '../../../src/oci/format/manifest-keys.ts';
import {
  isForeignLayer,
  isIndex,
  manifestTypeIn,
  manifestTypes,
  overheadOf,
  parseManifest,
  parsePushedManifest,
  verifyDigest,
} from '../../../src/oci/format/manifest.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { dockerList, dockerManifest, ociIndex, ociManifest } from '../../support/registry.ts';

const descriptor = (fill: string, more = {}) => ({
  mediaType: 'application/x',
  digest: `sha256:${fill.repeat(64)}`,
  size: 3,
  ...more,
});
const image = { schemaVersion: 2, mediaType: ociManifest, config: descriptor('a'), layers: [descriptor('b')] };
const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [descriptor('c')] };
const pushed = (layers: number) => {
  const many = Array.from({ length: layers }, () => descriptor('b'));
  return parsePushedManifest(Buffer.from(JSON.stringify({ ...image, layers: many })), ociManifest);
};
const pushDocument = (document: object) => parsePushedManifest(Buffer.from(JSON.stringify(document)), undefined);
const parse = (document: unknown, type?: string) => parseManifest(Buffer.from(JSON.stringify(document)), type);

test('the four media types are accepted, without a Content-Type and with its parameters', (t) => {
  for (const mediaType of [ociManifest, dockerManifest]) {
    for (const type of [undefined, '', mediaType, ` ${mediaType.toUpperCase()} ; charset=utf-8`]) {
      const manifest = parse({ ...image, mediaType }, type);
      t.is(manifest.mediaType, mediaType);
      t.is(manifest.kind, 'image');
      t.is(manifest.required.length, 2);
    }
  }
  for (const mediaType of [ociIndex, dockerList]) t.is(parse({ ...index, mediaType }, mediaType).kind, 'index');
  t.is(parse({ ...image, mediaType: undefined }, ociManifest).mediaType, ociManifest);
});

test('manifests of other tools are accepted: empty lists, null lists, unknown fields, a repeated layer', (t) => {
  t.is(parse({ ...image, layers: [] }).required.length, 1);
  t.is(parse({ ...image, layers: null }).required.length, 1);
  t.is(parse({ ...index, manifests: [] }).required.length, 0);
  t.deepEqual(parse({ ...index, manifests: null }).references, []);
  t.is(parse({ ...image, layers: [descriptor('b', { size: 0, mediaType: 'x'.repeat(255) })] }).required.length, 2);
  t.is(parse({ ...image, unknown: { a: [1] } }).required.length, 2);
  t.is(parse({ ...image, layers: [descriptor('b'), descriptor('b')] }).required.length, 2);
});

test('the fields that a registry needs are read, and no others', (t) => {
  const more = { urls: ['https://example.com/'], artifactType: 'application/z', annotations: { b: 'c', d: 'e' } };
  const subject = descriptor('d');
  const common = { subject: subject.digest, annotations: { a: 'b' } };
  const layer = descriptor('b', more);
  const own = { ...image, layers: [{ ...layer, platform: { os: 'linux' } }], subject, annotations: { a: 'b' } };
  t.deepEqual(parse(own), {
    ...common,
    kind: 'image',
    mediaType: ociManifest,
    references: [descriptor('a'), layer] as never[],
    required: [descriptor('a').digest as never],
    artifactType: 'application/x',
  });
  t.deepEqual(parse({ ...index, subject, annotations: { a: 'b' }, artifactType: 'application/y' }), {
    ...common,
    kind: 'index',
    mediaType: ociIndex,
    references: [descriptor('c')] as never[],
    required: [],
    artifactType: 'application/y',
  });
});

test('the type of a manifest of an upstream is found from its fields if it names none that is known', (t) => {
  const untyped = { ...image, mediaType: undefined };
  for (const [document, type] of [
    [image, ociManifest],
    [untyped, ociManifest],
    [
      { ...untyped, config: descriptor('a', { mediaType: 'application/vnd.docker.container.image.v1+json' }) },
      dockerManifest,
    ],
    [{ ...image, mediaType: 'application/other' }, ociManifest],
    [{ ...index, mediaType: undefined }, ociIndex],
    [{ ...index, mediaType: dockerList }, dockerList],
    [{ ...index, mediaType: [dockerList] }, ociIndex],
    [{ ...image, schemaVersion: 1 }, undefined],
    [{ ...untyped, config: undefined }, undefined],
    [{ ...untyped, config: null }, undefined],
    [{ ...untyped, config: 'x' }, undefined],
    [{ ...untyped, layers: {} }, undefined],
    [{ ...index, mediaType: undefined, manifests: {} }, undefined],
  ] as const)
    t.is(manifestTypeIn(document), type, JSON.stringify(document));
});

test('a push has at most 2,000 layers or entries', async (t) => {
  t.is((await pushed(2000)).kind, 'image');
  await t.throwsAsync(pushed(2001), { name: 'ManifestInvalid', message: /"layers" has 2001 entries/ });
});

test('foreign layers are references but not required', (t) => {
  const foreign = [
    descriptor('d', { urls: ['https://example.com/layer'] }),
    descriptor('e', { mediaType: 'application/vnd.oci.image.layer.nondistributable.v1.tar+gzip' }),
    descriptor('f', { mediaType: 'application/vnd.docker.image.rootfs.foreign.diff.tar.gzip' }),
  ];
  const similar = descriptor('9', { mediaType: 'xapplication/vnd.docker.image.rootfs.foreign.diff', urls: [] });
  t.is(parse({ ...image, layers: [similar] }).required.length, 2);
  const manifest = parse({ ...image, layers: [descriptor('b'), ...foreign] });
  t.deepEqual(manifest.required, [`sha256:${'a'.repeat(64)}`, `sha256:${'b'.repeat(64)}`]);
  t.is(manifest.references.length, 5);
});

test('the artifact type of an image falls back to its config’s media type; that of an index does not', (t) => {
  t.is(parse(image).artifactType, 'application/x');
  t.is(parse({ ...image, artifactType: '' }).artifactType, 'application/x');
  t.is(parse({ ...image, artifactType: 'application/y' }).artifactType, 'application/y');
  t.is(parse(index).artifactType, undefined);
});

const wrong: Record<string, unknown> = {
  'no object': [],
  // As text, each of these would be right.
  'a digest in a list': { ...image, layers: [{ ...descriptor('b'), digest: [descriptor('b').digest] }] },
  'a media type in a list': { ...image, layers: [{ ...descriptor('b'), mediaType: ['application/x'] }] },
  'a size in a list': { ...image, layers: [{ ...descriptor('b'), size: [3] }] },
  'a size as text': { ...image, layers: [{ ...descriptor('b'), size: '3' }] },
  'a type of the document in a list': { ...image, mediaType: [ociManifest] },
  'an artifact type in a list': { ...image, artifactType: ['application/y'] },
  null: null,
  'schema version 1': { ...image, schemaVersion: 1 },
  'no schema version': { ...image, schemaVersion: undefined },
  'schema version as text': { ...image, schemaVersion: '2' },
  'no config': { ...image, config: undefined },
  'no layers': { ...image, layers: undefined },
  'layers as object': { ...image, layers: {} },
  'image with manifests': { ...image, manifests: [] },
  'index with layers': { ...index, layers: [] },
  'index with config': { ...index, config: descriptor('a') },
  'another type': { ...image, mediaType: 'application/vnd.docker.distribution.manifest.v1+prettyjws' },
  'type as number': { ...image, mediaType: 2 },
  'digest malformed': { ...image, config: descriptor('a', { digest: 'sha256:abc' }) },
  'digest of another algorithm': { ...image, config: descriptor('a', { digest: `md5:${'a'.repeat(32)}` }) },
  'size missing': { ...image, config: descriptor('a', { size: undefined }) },
  'size negative': { ...image, layers: [descriptor('b', { size: -1 })] },
  'size with a fraction': { ...image, layers: [descriptor('b', { size: 1.5 })] },
  'size as text': { ...image, layers: [descriptor('b', { size: '3' })] },
  'descriptor without a type': { ...image, layers: [descriptor('b', { mediaType: undefined })] },
  'descriptor with a very long type': { ...image, layers: [descriptor('b', { mediaType: 'x'.repeat(256) })] },
  'urls that are no text': { ...image, layers: [descriptor('b', { urls: ['https://example.com', 1] })] },
  'a descriptor in a list': { ...image, layers: [[descriptor('b')]] },
  'a descriptor that is null': { ...index, manifests: [null] },
  'annotations of a layer that are no strings': { ...image, layers: [descriptor('b', { annotations: { a: 1 } })] },
  'an artifact type of a layer as number': { ...image, layers: [descriptor('b', { artifactType: 1 })] },
  'annotations of which one is no string': { ...image, annotations: { a: 'b', c: null } },
  'annotations in a list': { ...image, annotations: ['a'] },
  'urls as text': { ...image, layers: [descriptor('b', { urls: 'https://example.com' })] },
  'subject that is no descriptor': { ...image, subject: 'sha256:abc' },
  'annotations that are no strings': { ...image, annotations: { a: 1 } },
  'artifact type as object': { ...image, artifactType: {} },
};
for (const [what, document] of Object.entries(wrong)) {
  test(`refused: ${what}`, (t) => {
    t.throws(() => parse(document), { name: 'ManifestInvalid' });
  });
}

test('a refusal names the place in the manifest', (t) => {
  for (const [document, message] of [
    [{ ...index, manifests: {} }, /: "manifests" has to be a list\.$/],
    [{ ...image, layers: {} }, /: "layers" has to be a list\.$/],
    [{ ...image, config: 'x' }, /: "config" has to be an object\.$/],
    [{ ...image, layers: [descriptor('b'), 'x'] }, /: "layers\[1\]" has to be an object\.$/],
    [{ ...image, subject: 'x' }, /: "subject" has to be an object\.$/],
    [{ ...image, annotations: 'x' }, /: "annotations" has to be an object\.$/],
    [{ ...image, artifactType: 1 }, /: "artifactType" has to be a string of at most 255 characters\.$/],
    [[], /: it has to be an object\.$/],
    [
      { ...image, mediaType: undefined },
      `This manifest cannot be stored: its media type "" is none of ${[ociManifest, ociIndex, dockerManifest, dockerList].join(', ')}.`,
    ],
  ] as const)
    t.throws(() => parse(document), { name: 'ManifestInvalid', message });
});

test('a Content-Type other than the document’s own type is refused', (t) => {
  const message = `This manifest cannot be stored: its "mediaType" is "${ociManifest}", its Content-Type "${dockerManifest}".`;
  t.throws(() => parse(image, dockerManifest), { name: 'ManifestInvalid', message });
  const other = { name: 'ManifestInvalid', message: /: its media type "application\/json" is none of / };
  t.throws(() => parse(image, 'application/json'), other);
  const long = t.throws(() => parse(image, 'x'.repeat(5000)), { name: 'ManifestInvalid' });
  t.true(long.message.length < 500, 'a message has only the beginning of it');
});

test('bytes that are not UTF-8, not JSON, or start with a byte order mark are refused', (t) => {
  const text = JSON.stringify(image);
  for (const bytes of [
    Buffer.from([0xff, 0xfe]),
    Buffer.from(JSON.stringify({ ...image, annotations: { a: '\xff' } }), 'latin1'),
    Buffer.from(text.slice(1)),
    Buffer.from(`\ufeff${text}`),
    Buffer.from(''),
  ]) {
    t.throws(() => parseManifest(bytes, ociManifest), {
      name: 'ManifestInvalid',
      message: /: it is not JSON in UTF-8\.$/,
    });
  }
});

test('any JSON is a manifest or ManifestInvalid', (t) => {
  const field = fc.constantFrom(
    'config',
    'layers',
    'manifests',
    'subject',
    'annotations',
    'artifactType',
    'schemaVersion',
  );
  fc.assert(
    fc.property(fc.constantFrom(image, index), fc.dictionary(field, fc.jsonValue()), (base, change) => {
      try {
        t.is(parse({ ...base, ...change }).mediaType, base.mediaType);
      } catch (error) {
        t.true(isDomainError(error, 'ManifestInvalid'));
      }
    }),
  );
});

test('null is the same as an absent field', (t) => {
  const nothing = { subject: null, annotations: null, artifactType: null };
  t.is(parse({ ...image, ...nothing, manifests: null }).subject, undefined);
  t.is(parse({ ...image, ...nothing }).artifactType, parse(image).artifactType);
  t.is(parse({ ...index, ...nothing, layers: null, config: null }, ociIndex).kind, 'index');
  t.is(parse({ ...image, mediaType: null }, ociManifest).mediaType, ociManifest);
  const layer = { ...descriptor('b'), urls: null, annotations: null, artifactType: null, platform: null };
  t.is(parse({ ...image, layers: [layer] }).required.length, 2);
});

test('keys that clients read in different ways are found, and no others', (t) => {
  const d = JSON.stringify(descriptor('a'));
  const whole = (more: string) => `{"schemaVersion":2,"config":${d},"layers":[${d}]${more}}`;
  for (const [text, key] of [
    [whole(',"layers":[]'), 'layers'],
    [whole(',"Layers":[]'), 'Layers'],
    [whole(',"MEDIATYPE":"x"'), 'MEDIATYPE'],
    [whole(',"\\u006cayers":[]'), 'layers'],
    [whole(',"layer\u017f":[]'), 'layer\u017f'],
    [whole(',"Manifests":[]'), 'Manifests'],
    [whole(',"annotations":{"a":{"size":1}},"Layers":1'), 'Layers'],
    [whole(',"other":[1,{"a":[2]}],"Config":1'), 'Config'],
    [`{"config":${d.slice(0, -1)},"Digest":1},"layers":[]}`, 'Digest'],
    [`{"layers":[${d},${d.slice(0, -1)},"Urls":1}]}`, 'Urls'],
    [whole(',"manifests":[[{"size":1,"Size":2}]],"Subject":1'), 'Subject'],
    [whole(',"x\\\\":1,"layers":[]'), 'layers'],
    [whole(',"\\"":"\\\\\\"","config":1'), 'config'],
    [whole(',"subject":"x","Layers":1'), 'Layers'],
    [whole(`,"subject":${d.slice(0, -1)},"Digest":"x"}`), 'Digest'],
    [whole(`,"manifests":[${d},${d.slice(0, -1)},"size":1}]`), 'size'],
    [whole(`,"manifests":[${d.slice(0, -1)},"platform":{"os":"linux","OS":"windows"}}]`), 'OS'],
    [whole(`,"manifests":[${d.slice(0, -1)},"platform":{"os.version":"1","os.version":"2"}}]`), 'os.version'],
    [` \n${whole(` , "schemaVersion" : 2 `)}`, 'schemaVersion'],
  ] as const) {
    t.is(ambiguousKey(text), key, text);
  }
  const nested = `${'['.repeat(1000)}{"layers":1,"Layers":2}${']'.repeat(1000)}`;
  for (const text of [
    whole(''),
    whole(',"annotations":{"Size":"1","size":"2","a\\"{[":"}","a":"","A":""}'),
    whole(',"other":{"layers":1,"Layers":2},"Other":1,"other":2'),
    whole(',"artifactType":"layers"'),
    whole(',"subject":["size","Size","size"]'),
    whole(',"manifests":[[{"size":1,"Size":2}]]'),
    whole(`,"manifests":[${d},${d}]`),
    whole(`,"other":${nested}`),
    whole(',"config2":{"digest":1,"Digest":2}'),
    JSON.stringify({ ...image, layers: [descriptor('a', { annotations: { digest: 'x', Digest: 'y' } })] }),
  ]) {
    t.notThrows(() => JSON.parse(text));
    t.is(ambiguousKey(text), undefined, text);
  }
});

test('a body has to have the digest of the request, by its algorithm', (t) => {
  const bytes = Buffer.from('body');
  for (const algorithm of ['sha256', 'sha512'] as const) {
    t.notThrows(() => verifyDigest(bytes, digestOf('body', algorithm)));
    const expected = digestOf('other', algorithm);
    const error = t.throws(() => verifyDigest(bytes, expected), { name: 'DigestMismatch' });
    t.true(isDomainError(error));
    t.deepEqual((error as { detail?: unknown }).detail, { expected, found: digestOf('body', algorithm) });
  }
});

test('the memory of a descriptor grows with each of its annotations', (t) => {
  t.is(overheadOf({}), 300);
  t.is(overheadOf({ annotations: {} }), 300);
  t.is(overheadOf({ annotations: { a: '1' } }), 400);
  t.is(overheadOf({ annotations: { a: '1', b: '2', c: '3' } }), 600);
});

test('the types of manifests are known, and which of them are lists', (t) => {
  t.deepEqual(manifestTypes, [ociManifest, ociIndex, dockerManifest, dockerList]);
  t.deepEqual(manifestTypes.map(isIndex), [false, true, false, true]);
  t.false(isIndex('application/json'));
  for (const [type, isForeign] of [
    ['application/vnd.oci.image.layer.nondistributable.v1.tar', true],
    ['application/vnd.docker.image.rootfs.foreign.diff.tar.gzip', true],
    ['application/vnd.oci.image.layer.v1.tar', false],
    ['application/vnd.docker.image.rootfs.diff.tar.gzip', false],
    ['application/vnd.oci.image.layer.nondistributable', false],
  ] as const)
    t.is(isForeignLayer(type), isForeign, type);
});

test('a stored manifest may have more layers than a push, each digest once, as the last one states it', (t) => {
  const many = Array.from({ length: 2001 }, (_, at) => descriptor('b', { digest: digestOf(String(at)) }));
  t.is(parse({ ...image, layers: many }).references.length, 2002);
  const [first, last] = [descriptor('b', { size: 1 }), descriptor('b', { size: 2 })];
  t.deepEqual(parse({ ...image, layers: [first, descriptor('c'), last] }).references, [
    descriptor('a'),
    last,
    descriptor('c'),
  ] as never[]);
});

test('a push has at most 30,000 values, in UTF-8 and JSON, and no key that clients read in different ways', async (t) => {
  const withValues = (count: number) => ({ ...image, other: Array.from({ length: count }, () => 1) });
  // The fields of the image and of its descriptors are values, too.
  const most = 30_000 - 12;
  t.deepEqual(await pushDocument(withValues(most)), parse(image));
  await t.throwsAsync(pushDocument(withValues(most + 1)), {
    name: 'ManifestInvalid',
    message: 'This manifest cannot be stored: it has more than 30000 values.',
  });
  const twice = JSON.stringify(image).replace('{', '{"Layers":[],');
  await t.throwsAsync(parsePushedManifest(Buffer.from(twice), ociManifest), {
    name: 'ManifestInvalid',
    message:
      'This manifest cannot be stored: its key "Layers" is there twice or in the wrong letter case. Clients read such a manifest in different ways.',
  });
  for (const bytes of [Buffer.from('{'), Buffer.from([0x22, 0xff, 0x22])])
    await t.throwsAsync(parsePushedManifest(bytes, ociManifest), {
      message: 'This manifest cannot be stored: it is not JSON in UTF-8.',
    });
});
