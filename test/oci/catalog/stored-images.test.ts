import test, { type ExecutionContext } from 'ava';
import { describeManifest } from '../../../src/oci/catalog/manifest-details.ts';
import type { DescribedManifest, ListedTag, StoredRepository } from '../../../src/oci/catalog/repository.ts';
import { isAttestation, platformOf, StoredImages } from '../../../src/oci/catalog/stored-images.ts';
import { mediaTypes, type Descriptor } from '../../../src/oci/format/manifest.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';

const [main, other] = [digestOf('main'), digestOf('other')];
const configDigest = digestOf('config');
const images = () => new StoredImages({} as never);
const descriptor = (text: string, more: object = {}) => ({
  mediaType: mediaTypes.image,
  digest: digestOf(text),
  size: 1,
  ...more,
});
const rowOf = (digest: Digest, mediaType: string = mediaTypes.image): DescribedManifest => ({
  digest,
  mediaType,
  sizeBytes: 7,
  updatedAt: 1,
  pullCount: 0,
  lastPulledAt: null,
  tags: [],
  withdrawnTags: [],
  indexes: [],
});
const tagOf = (name: string, digest: Digest, mediaType?: string): ListedTag => ({
  ...rowOf(digest, mediaType),
  key: [name, name],
  name,
  withdrawnAt: null,
  aliases: [],
});

/** A repository with these manifests and configs; `opened` has what was opened, `open` is the number that was not closed again. */
function repositoryOf(
  stored: ReadonlyMap<Digest, unknown>,
  given: { type?: string; tags?: ListedTag[]; referrers?: Descriptor[] } = {},
) {
  const reads = { opened: [] as Digest[], open: 0 };
  const at: Partial<StoredRepository> = {
    name: 'team/app',
    upstream: null,
    manifest: (digest) => Promise.resolve(stored.has(digest) ? rowOf(digest, given.type) : undefined),
    open: (_kind, digest) => {
      const document = stored.get(digest);
      if (document === undefined) return Promise.resolve(undefined);
      if (document instanceof Error) return Promise.reject(document);
      reads.opened.push(digest);
      reads.open += 1;
      const text = typeof document === 'string' ? document : JSON.stringify(document);
      return Promise.resolve({ ...contentOf(Buffer.from(text)), close: () => (reads.open -= 1) });
    },
    tags: () => Promise.resolve(given.tags ?? []),
    withPulls: (rows, childrenOf) =>
      Promise.resolve(rows.map((row) => ({ ...row, pullCount: childrenOf(row.digest).length }))),
    storedAmong: (digests) => Promise.resolve(new Set(digests.filter((each) => stored.has(each)))),
    referrers: () => Promise.resolve(given.referrers),
    attachedTo: () => Promise.resolve(new Map([[main, new Set(['sbom'] as const)]])),
  };
  return { at: at as StoredRepository, reads };
}

const describe = (stored: ReadonlyMap<Digest, unknown>, given?: Parameters<typeof repositoryOf>[1]) =>
  describeManifest(images(), repositoryOf(stored, given).at, main);
const many = <T>(count: number, each: (index: number) => T) => Array.from({ length: count }, (_, index) => each(index));
const pairs = (count: number) => Object.fromEntries(many(count, (index) => [`name-${index}`, 'value']));

test('a description of a manifest is no longer than its limits', async (t) => {
  const inner = { Labels: pairs(101), Env: many(101, String), Entrypoint: ['x'.repeat(2001)], User: 'u'.repeat(256) };
  const found = await describe(
    new Map<Digest, unknown>([
      [
        main,
        {
          config: { ...descriptor('config'), mediaType: mediaTypes.imageConfig },
          layers: many(501, (index) => descriptor(`layer ${index}`)),
          annotations: { ['n'.repeat(256)]: 'v'.repeat(2001), ...pairs(101) },
        },
      ],
      [configDigest, { config: inner, history: many(501, () => ({ comment: 'c' })) }],
    ]),
    { referrers: many(101, (index) => descriptor(`referrer ${index}`, { annotations: pairs(101) })) },
  );
  t.is(found.layers.length, 500);
  t.is(found.history.length, 500);
  t.is(found.annotations.length, 100);
  t.deepEqual(found.annotations[0], { name: 'n'.repeat(255), value: 'v'.repeat(2000) });
  t.is(found.referrers.length, 100);
  t.is(found.referrers[0]!.annotations.length, 100);
  t.is(found.config!.labels.length, 100);
  t.is(found.config!.environment.length, 100);
  t.deepEqual(found.config!.entrypoint, ['x'.repeat(2000)]);
  t.is(found.config!.user, 'u'.repeat(255));
});

test('what a manifest and its config have of another kind is left out', async (t) => {
  const found = await describe(
    new Map<Digest, unknown>([
      [
        main,
        {
          config: descriptor('config'),
          layers: [null, { digest: 'wrong', mediaType: 'a' }, descriptor('layer')],
          artifactType: 1,
          subject: null,
          annotations: { number: 1, text: 'kept' },
        },
      ],
      [
        configDigest,
        {
          created: 1,
          author: 'me',
          config: { Labels: ['a'], Env: 'A=1', Entrypoint: [1, 'run'], Cmd: null, WorkingDir: '', ExposedPorts: null },
          history: [null, 'text', { created_by: 'RUN', empty_layer: true }, { created: '2026', empty_layer: 'yes' }],
        },
      ],
    ]),
  );
  t.is(found.artifact_type, null);
  t.is(found.subject, null);
  t.deepEqual(found.annotations, [{ name: 'text', value: 'kept' }]);
  t.deepEqual(
    found.layers.map(({ digest }) => digest),
    [digestOf('layer')],
  );
  const { labels, environment, entrypoint, command, ports, created, author } = found.config!;
  t.deepEqual([labels, environment, entrypoint, command, ports], [[], [], ['run'], [], []]);
  t.deepEqual([created, author, found.config!.working_directory, found.config!.user], [null, 'me', null, null]);
  t.true(found.config!.is_stored);
  const nothing = { created: null, created_by: null, comment: null, is_empty: false };
  t.deepEqual(found.history, [
    nothing,
    nothing,
    { ...nothing, created_by: 'RUN', is_empty: true },
    { ...nothing, created: '2026' },
  ]);
  t.false(found.are_referrers_known);
  t.deepEqual(found.referrers, []);
});

test('a config that is not stored is named, and a manifest that is not stored is unknown', async (t) => {
  const found = await describe(new Map([[main, { config: descriptor('config'), annotations: [] }]]), { referrers: [] });
  const { is_stored: isStored, platform, created, author, labels } = found.config!;
  t.deepEqual([isStored, platform, created, author, labels], [false, null, null, null, []]);
  t.deepEqual([found.annotations, found.layers, found.history, found.children], [[], [], [], []]);
  t.true(found.are_referrers_known);
  t.is((await describe(new Map([[main, {}]]))).config, null);
  t.deepEqual((await describe(new Map([[main, 'no JSON']]))).layers, []);
  const error = await t.throwsAsync(describe(new Map()), { instanceOf: DomainError, name: 'ManifestUnknown' });
  t.deepEqual(error.detail, { digest: main });
});

test('the first entry of an index for a digest describes it', async (t) => {
  const linux = { os: 'linux', architecture: 'amd64' };
  const attestation = {
    'vnd.docker.reference.type': 'attestation-manifest',
    'vnd.docker.reference.digest': digestOf('a'),
  };
  const manifests = [
    null,
    descriptor('a', { platform: linux }),
    descriptor('a', { platform: { os: 'other' } }),
    descriptor('b', { platform: { os: 'unknown', architecture: 'unknown' }, annotations: attestation }),
  ];
  const stored = new Map<Digest, unknown>([
    [main, { manifests, config: descriptor('config') }],
    [digestOf('a'), {}],
  ]);
  const found = await describe(stored, { type: mediaTypes.index });
  t.is(found.config, null);
  const entryOf = (digest: Digest) => found.children.find((each) => each.digest === digest)!;
  const {
    platform,
    is_stored: isStored,
    content_bytes: bytes,
    attests,
    media_type: type,
    size_bytes: size,
  } = entryOf(digestOf('a'));
  t.deepEqual([platform, isStored, bytes, attests, type, size], ['linux/amd64', true, 7, null, mediaTypes.image, 1]);
  const { platform: none, is_stored: isThere, content_bytes: unknown, attests: image } = entryOf(digestOf('b'));
  t.deepEqual([none, isThere, unknown, image], [null, false, null, digestOf('a')]);
  t.is(found.children.length, 2);
  const long = new Map([[main, { manifests: many(201, (index) => descriptor(`child ${index}`)) }]]);
  t.is((await describe(long, { type: mediaTypes.index })).children.length, 200);
});

test('documents are read within a budget, and closed', async (t) => {
  const { at, reads } = repositoryOf(
    new Map<Digest, unknown>([
      [main, { a: 1 }],
      [other, '[' + '1,'.repeat(30_000) + '1]'],
      [digestOf('broken'), new DomainError('ContentDamaged', 'damaged')],
      [digestOf('failed'), new Error('no disk')],
    ]),
  );
  const read = (digest: Digest, budget: { each: number; left: number }) =>
    images().json(at, 'manifest', digest, budget);
  const size = '{"a":1}'.length;
  t.deepEqual(await read(main, { each: size, left: 100 }), { a: 1 });
  t.is(await read(main, { each: size - 1, left: 100 }), undefined);
  const budget = { each: 100, left: 2 * size };
  t.deepEqual([await read(main, budget), await read(main, budget)], [{ a: 1 }, { a: 1 }]);
  t.is(budget.left, 0);
  t.is(await read(main, budget), undefined);
  t.is(await read(other, { each: 1e6, left: 1e6 }), undefined);
  t.is(await read(digestOf('absent'), budget), undefined);
  t.is(await read(digestOf('broken'), budget), undefined);
  await t.throwsAsync(read(digestOf('failed'), budget), { message: 'no disk' });
  t.is(reads.open, 0);
});

async function platformsOf(t: ExecutionContext, stored: ReadonlyMap<Digest, unknown>, tags: ListedTag[]) {
  const { at, reads } = repositoryOf(stored, { tags });
  const found = images();
  const query = { text: '', order: 'asc', hidesAttached: false } as const;
  const listed = await found.tags(at, query, 100, undefined);
  const { length } = reads.opened;
  t.deepEqual(await found.tags(at, query, 100, undefined), listed);
  t.is(reads.open, 0);
  return { listed, first: length, again: reads.opened.length - length };
}

test('tags have the platforms of their manifests, which are read once', async (t) => {
  const manifests = [
    descriptor('a', { platform: { os: 'linux', architecture: 'arm', variant: 'v7' } }),
    { digest: 1 },
    null,
    descriptor('b', { annotations: { 'vnd.docker.reference.type': 'attestation-manifest' } }),
  ];
  const stored = new Map<Digest, unknown>([
    [main, { manifests }],
    [other, { config: descriptor('config') }],
    [configDigest, { os: 'windows', architecture: 'amd64' }],
  ]);
  const tags = [tagOf('a', main, mediaTypes.index), tagOf('b', main, mediaTypes.index), tagOf('c', other)];
  const { listed, first, again } = await platformsOf(t, stored, tags);
  t.deepEqual(
    listed.map(({ platforms, attached, pullCount }) => [platforms, attached, pullCount]),
    [
      [['linux/arm/v7'], ['sbom', 'attestation'], 2],
      [['linux/arm/v7'], ['sbom', 'attestation'], 2],
      [['windows/amd64'], [], 0],
    ],
  );
  t.deepEqual([first, again], [3, 0]);
});

test('a tag whose manifest or config is not stored has no platforms, and is looked for again', async (t) => {
  const stored = new Map<Digest, unknown>([
    [other, { config: descriptor('config') }],
    [digestOf('plain'), {}],
    [digestOf('scratch'), { config: descriptor('empty') }],
    [digestOf('empty'), {}],
    [digestOf('odd'), { manifests: 'none' }],
  ]);
  const tags = [
    tagOf('a', main),
    tagOf('b', other),
    tagOf('c', digestOf('plain')),
    tagOf('d', digestOf('scratch')),
    tagOf('e', digestOf('odd'), mediaTypes.index),
  ];
  const { listed, again } = await platformsOf(t, stored, tags);
  t.deepEqual(
    listed.map(({ platforms, attached }) => [platforms, attached]),
    [
      [undefined, ['sbom']],
      [undefined, []],
      [undefined, []],
      [[], []],
      [[], []],
    ],
  );
  t.is(again, 2);
});

test('a list reads at most 4 MiB of manifests, and none above 256 KiB', async (t) => {
  const each = 256 * 1024;
  const names = many(18, (index) => `tag ${index}`);
  const stored = new Map(
    names.map((name, index) => [digestOf(name), '{"manifests":[]}'.padEnd(index === 0 ? each + 1 : each)]),
  );
  const tags = names.map((name) => tagOf(name, digestOf(name), mediaTypes.index));
  const { at } = repositoryOf(stored, { tags });
  const listed = await images().tags(at, { text: '', order: 'asc', hidesAttached: false }, 100, undefined);
  t.deepEqual(
    listed.map(({ platforms }) => platforms),
    [undefined, ...many(16, () => []), undefined],
  );
});

const entry = (index: number) => descriptor(`entry ${index}`, { platform: { os: `os-${index}` } });

test('a tag has at most 20 platforms of the first 1,000 entries of its index', async (t) => {
  const manifests = [...many(2, entry), ...many(998, (index) => descriptor(`${index}`)), entry(2)];
  const tags = [tagOf('long', main, mediaTypes.index), tagOf('many', other, mediaTypes.index)];
  const stored = new Map([
    [main, { manifests }],
    [other, { manifests: many(21, entry) }],
  ]);
  const { listed } = await platformsOf(t, stored, tags);
  t.deepEqual(listed[0]!.platforms, ['os-0', 'os-1']);
  t.is(listed[0]!.pullCount, 1000);
  t.is(listed[1]!.platforms!.length, 20);
});

test('a platform is written with what is known of it', (t) => {
  t.is(platformOf({ os: 'linux', architecture: 'arm64', variant: 'v8' }), 'linux/arm64/v8');
  t.is(platformOf({ os: 'linux', architecture: '', variant: 8 }), 'linux');
  t.is(platformOf({ os: 'x'.repeat(61) }), 'x'.repeat(60));
  t.is(platformOf({ os: 'linux', architecture: 'unknown' }), 'linux/unknown');
  for (const each of [{ os: 'unknown', architecture: 'unknown' }, {}, null, 'linux', undefined])
    t.is(platformOf(each), undefined);
  for (const each of [null, undefined, {}, { annotations: {} }]) t.false(isAttestation(each));
});

test('the digest of a reference is itself, or that of its tag', async (t) => {
  const at = { digestOf: (tag: string) => Promise.resolve(tag === 'v1' ? main : undefined) } as StoredRepository;
  t.is(await images().digestOf(at, other), other);
  t.is(await images().digestOf(at, 'v1'), main);
  const known = { instanceOf: DomainError, name: 'ManifestUnknown' };
  for (const [tag, shown] of [
    ['v2', 'v2'],
    ['x'.repeat(300), 'x'.repeat(160)],
  ] as const)
    t.deepEqual((await t.throwsAsync(images().digestOf(at, tag), known)).detail, { tag: shown });
});
