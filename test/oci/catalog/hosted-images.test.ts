import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import type { Row } from '../../../src/database/database.ts';
import { HostedImages } from '../../../src/oci/catalog/hosted-images.ts';
import type { ListedTag, TagQuery } from '../../../src/oci/catalog/repository.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { naturalKey, tagRow } from '../../../src/oci/hosted/natural-order.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';

// Lists of hosted images, from rows of the database.

const digests = Array.from({ length: 6 }, (_, index) => `sha256:${'a'.repeat(63)}${index}` as Digest);
const [one, two, three, four, five, six] = digests as [Digest, Digest, Digest, Digest, Digest, Digest];

const repository = (id: number, name: string, more: Row = {}): Row => ({
  id,
  account_id: 1,
  name,
  claimed_at: 5,
  created_at: 5,
  updated_at: 5,
  pull_count: 10 * id,
  last_pulled_at: 100 * id,
  tag_count: id,
  manifest_count: 1,
  size_bytes: 1000 * id,
  ...more,
});

const manifest = (id: number, repositoryId: number, digest: Digest, more: Row = {}): Row => ({
  id,
  repository_id: repositoryId,
  digest,
  media_type: mediaTypes.image,
  artifact_type: null,
  subject: null,
  annotations: null,
  size_bytes: 7,
  image_bytes: 100 * id,
  pushed_at: 1000 + id,
  untagged_at: null,
  pull_count: id,
  last_pulled_at: null,
  ...more,
});

const reference = (manifestId: number, digest: Digest): Row => ({ manifest_id: manifestId, digest, absent: 0 });

/** The hosted images of a new database with these rows; `calls` has what was asked of the registry. */
async function open(t: ExecutionContext, rows: Record<string, Row[]>) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    for (const [table, some] of Object.entries(rows)) await tx.insertNew(table, some);
  });
  const calls: unknown[] = [];
  const note =
    (name: string, answer: unknown) =>
    (...given: unknown[]) => {
      calls.push([name, ...given]);
      return Promise.resolve(answer);
    };
  const images = {
    repositories: { find: note('find', [{ position: 'p', name: 'app', pulls: 3 }]) },
    blobs: { open: note('open blob', 'the blob') },
    manifests: {
      open: note('open manifest', { content: 'the manifest' }),
      deleteTag: note('delete tag', true),
      delete: note('delete', undefined),
    },
    referrers: { list: note('referrers', { descriptors: ['one'] }) },
  };
  return { database, hosted: new HostedImages(database, images as never), images, calls };
}

const some = {
  repositories: [
    repository(1, 'app'),
    repository(2, 'base', { last_pulled_at: null }),
    repository(3, 'empty'),
    repository(4, 'team/app', { claimed_at: null }),
    repository(5, 'app', { account_id: 2 }),
    repository(6, 'shared', { account_id: 2 }),
  ],
  manifests: [1, 2, 4, 5, 6].map((id) => manifest(id, id, id === 5 ? one : digests[id - 1]!)),
  tags: [tagRow(1, 'v2', one, 20), tagRow(1, 'v10', one, 30), tagRow(1, 'gone', six, 40), tagRow(2, 'latest', two, 50)],
};

const summary = (id: number, name: string, lastPulledAt: number | null = 100 * id) => ({
  name,
  upstream: null,
  sizeBytes: 1000 * id,
  tagCount: id,
  pullCount: 10 * id,
  lastPulledAt,
});

const tag = (name: string, digest: Digest, id: number, updatedAt: number) => ({
  name,
  digest,
  mediaType: mediaTypes.image,
  sizeBytes: 100 * id,
  updatedAt,
  withdrawnAt: null,
});

test('the images of an account with a manifest are listed by name, each with its tags by name', async (t) => {
  const { hosted } = await open(t, some);
  t.is(hosted.origin, 'hosted');
  const app = { ...summary(1, 'app'), tags: [tag('v10', one, 1, 30), tag('v2', one, 1, 20)] };
  const base = { ...summary(2, 'base', null), tags: [tag('latest', two, 2, 50)] };
  const team = { ...summary(4, 'team/app'), tags: [] };
  t.deepEqual(await hosted.list(1, 10, ''), [app, base, team]);
  t.deepEqual(await hosted.list(1, 2, ''), [app, base]);
  t.deepEqual(await hosted.list(1, 10, 'app'), [base, team]);
  t.deepEqual(await hosted.list(1, 1, '', undefined, 1), [{ ...app, tags: app.tags.slice(0, 1) }]);
  t.deepEqual(await hosted.list(1, 1, '', undefined, 0), [{ ...app, tags: [] }]);
  t.deepEqual(await hosted.list(1, 10, '', new NameSet(['app', 'team/*'])), [app, team]);
  t.deepEqual(await hosted.list(1, 10, 'app', new NameSet(['app', 'team/*'])), [team]);
  t.deepEqual(await hosted.list(3, 10, ''), []);
});

test('images are sorted by each number, the largest first, and filtered by a part of their name', async (t) => {
  const { hosted } = await open(t, some);
  const names = async (sort: 'tags' | 'size' | 'pulls' | 'used' | undefined, more: object = {}, limit = 10) =>
    (await hosted.ranked(1, { sort, text: '', only: undefined, ...more }, limit, undefined)).map(
      ({ item }) => item.name,
    );
  for (const sort of ['tags', 'size', 'pulls'] as const)
    t.deepEqual(await names(sort), ['team/app', 'base', 'app'], sort);
  t.deepEqual(await names('used'), ['team/app', 'app', 'base'], 'what was never used comes last');
  t.deepEqual(await names(undefined), ['app', 'base', 'team/app']);
  t.deepEqual(await names('size', { text: 'app' }), ['team/app', 'app']);
  t.deepEqual(await names('size', { text: 'a%p' }), []);
  t.deepEqual(await names('size', { only: new NameSet(['app', 'base']) }), ['base', 'app']);
  t.deepEqual(await names('size', { text: 'b', only: new NameSet(['app']) }), []);
  const [first] = await hosted.ranked(1, { sort: 'size', text: '', only: undefined }, 1, undefined);
  t.deepEqual(first, { rank: [4000, 'team/app'], item: { ...summary(4, 'team/app'), tags: [] } });
  const rest = await hosted.ranked(1, { sort: 'size', text: '', only: undefined }, 10, first!.rank);
  t.deepEqual(
    rest.map(({ rank }) => rank),
    [
      [2000, 'base'],
      [1000, 'app'],
    ],
  );
  const others = { sort: 'size', text: '', only: undefined } as const;
  const shared = await hosted.ranked(2, { ...others, without: 1 }, 10, undefined);
  t.deepEqual(
    shared.map(({ item }) => item.name),
    ['shared'],
    'the account has a name of its own for the other',
  );
  t.is((await hosted.ranked(2, others, 10, undefined)).length, 2);
  t.deepEqual(await hosted.total(1, { text: '', only: undefined }), { count: 3, bytes: 7000 });
  t.deepEqual(await hosted.total(1, { text: 'app', only: new NameSet(['team/*']) }), { count: 1, bytes: 4000 });
  t.deepEqual(await hosted.total(2, { text: '', only: undefined, without: 1 }), { count: 1, bytes: 6000 });
  t.deepEqual(await hosted.total(1, { text: 'x', only: undefined }), { count: 0, bytes: 0 });
});

test('images are found by words, or by the beginning of a digest with a position in that list', async (t) => {
  const { hosted, calls } = await open(t, {
    ...some,
    manifests: [...some.manifests, manifest(7, 2, one)],
  });
  const only = new NameSet(['app']);
  t.deepEqual(await hosted.find(1, 'app', 5, 'after', only), [
    { position: 'p', name: 'app', pulls: 3, upstream: null },
  ]);
  t.like((calls[0] as unknown[]).slice(3), [5, 'after', only]);
  t.deepEqual(await hosted.find(1, ' ', 5, ''), []);
  t.is(calls.length, 1);
  const found = (name: string, pulls: number, digest = one) => ({
    name,
    pulls,
    digest,
    position: `${digest} ${name}`,
    upstream: null,
  });
  const every = [found('app', 10), found('base', 20), found('base', 20, two), found('team/app', 40, four)];
  const beginning = one.slice(0, 20);
  t.deepEqual(await hosted.find(1, beginning, 5, ''), every);
  t.deepEqual(await hosted.find(1, beginning, 2, ''), every.slice(0, 2));
  t.deepEqual(await hosted.find(1, ` ${one} `, 1, ''), every.slice(0, 1));
  t.deepEqual(await hosted.find(1, two, 5, ''), every.slice(2, 3));
  for (const [at, { position }] of every.entries())
    t.deepEqual(await hosted.find(1, beginning, 5, position), every.slice(at + 1));
  t.deepEqual(await hosted.find(1, beginning, 5, '', only), every.slice(0, 1));
  t.deepEqual(await hosted.find(2, one, 5, ''), [found('app', 50)]);
  t.is(calls.length, 1);
});

const index = { media_type: mediaTypes.index };

/** A repository with tags, an index of two images, and what is attached to them. */
const filled = {
  repositories: [repository(1, 'app'), repository(2, 'other')],
  manifests: [
    manifest(1, 1, one, { pull_count: 4, last_pulled_at: 40 }),
    manifest(2, 1, two, { pull_count: 5, last_pulled_at: 50 }),
    manifest(3, 1, three, { ...index, pull_count: 1, last_pulled_at: 10 }),
    manifest(4, 1, four, { subject: one, artifact_type: 'application/spdx+json' }),
    manifest(5, 1, five, { pull_count: 2 }),
    manifest(6, 2, one),
  ],
  manifest_references: [reference(3, one), reference(3, two), reference(6, five)],
  tags: [
    tagRow(1, 'v10', one, 30),
    tagRow(1, 'v2', one, 10),
    tagRow(1, 'V3', two, 20),
    tagRow(1, 'multi', three, 20),
    tagRow(1, 'sha256-abc.sig', two, 60),
    tagRow(1, 'a_b', two, 5),
    tagRow(2, 'v2', one, 99),
  ],
  repository_blobs: [
    { repository_id: 1, digest: five, linked_at: 1, upload_id: null },
    { repository_id: 1, digest: six, linked_at: 1, upload_id: null },
    { repository_id: 2, digest: two, linked_at: 1, upload_id: null },
  ],
};

const all: TagQuery = { text: '', order: 'asc', hidesAttached: false };

test('tags are listed in each order, page by page', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  const walk = async (order: TagQuery['order'], limit: number) => {
    const names: string[] = [];
    let after: ListedTag['key'] | undefined;
    for (;;) {
      const page = await at.tags({ ...all, order, hidesAttached: true }, limit, after);
      t.true(page.length <= limit);
      names.push(...page.map(({ name }) => name));
      if (page.length < limit) return names.join(' ');
      after = page.at(-1)!.key;
    }
  };
  for (const limit of [1, 2, 10]) {
    t.is(await walk('asc', limit), 'a_b multi v2 V3 v10');
    t.is(await walk('desc', limit), 'v10 V3 v2 multi a_b');
    t.is(await walk('newest', limit), 'v10 multi V3 v2 a_b');
    t.is(await walk('oldest', limit), 'a_b v2 V3 multi v10');
    t.is(await walk('size', limit), 'multi a_b V3 v2 v10');
    t.is(await walk('pulls', limit), 'multi a_b V3 v2 v10', 'an index has the pulls of its images');
  }
});

test('a tag has the numbers of its manifest, and the other tags of it', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  t.is(at.name, 'app');
  t.is(at.upstream, null);
  t.deepEqual(await at.tags({ ...all, text: 'v1' }, 10, undefined), [
    {
      ...tag('v10', one, 1, 30),
      pullCount: 4,
      lastPulledAt: 40,
      key: [naturalKey('v10'), 'v10'],
      aliases: ['v2'],
    },
  ]);
  const names = async (query: Partial<TagQuery>) =>
    (await at.tags({ ...all, ...query }, 10, undefined)).map(({ name, aliases }) => `${name}: ${aliases.join()}`);
  t.deepEqual(await names({ text: 'v3' }), ['V3: a_b,sha256-abc.sig'], 'without letter case');
  t.deepEqual(await names({ text: '_' }), ['a_b: V3,sha256-abc.sig'], 'and no letter stands for others');
  t.deepEqual(await names({ text: '%' }), []);
  t.deepEqual(await names({ text: 'sig' }), ['sha256-abc.sig: V3,a_b']);
  t.deepEqual(await names({ text: 'sig', hidesAttached: true }), []);
});

test('at most ten other tags of a manifest are told', async (t) => {
  const tags = Array.from({ length: 14 }, (_, at) => tagRow(1, `t${10 + at}`, one, at));
  const { hosted } = await open(t, { ...filled, tags });
  const [first] = await hosted.repository(1, 'app', 1).tags({ ...all, text: 't10' }, 10, undefined);
  t.deepEqual(
    first!.aliases,
    Array.from({ length: 10 }, (_, at) => `t${11 + at}`),
  );
  const [last] = await hosted.repository(1, 'app', 1).tags({ ...all, text: 't23' }, 10, undefined);
  t.deepEqual(
    last!.aliases,
    Array.from({ length: 10 }, (_, at) => `t${10 + at}`),
  );
});

const namesIn = async (from: HostedImages) =>
  (await from.repository(1, 'app', 1).tags(all, 10, undefined)).map(({ name }) => name);

test('tags of an older release get their keys, and come first while they cannot be written', async (t) => {
  const tags = [
    ...filled.tags.slice(0, 2),
    { ...tagRow(1, 'zebra', one, 1), sort_key: '' },
    { ...tagRow(2, 'zebra', one, 1), sort_key: '' },
  ];
  const { hosted, database, images } = await open(t, { ...filled, tags });
  const failing = (failure: Error) => {
    const transaction = async () => {
      throw failure;
    };
    return new HostedImages(changedDatabase(database, { transaction }), images as never);
  };
  const down = new DomainError('DatabaseUnavailable', 'down');
  t.deepEqual(await namesIn(failing(down)), ['zebra', 'v2', 'v10']);
  const other = new Error('a mistake');
  t.is(await t.throwsAsync(namesIn(failing(other))), other);
  t.deepEqual(await namesIn(hosted), ['v2', 'v10', 'zebra']);
  t.deepEqual(await database.select("SELECT repository_id AS id FROM tags WHERE sort_key = ''"), [{ id: 2 }]);
  let writes = 0;
  const counting = changedDatabase(database, {
    transaction: (work, options) => {
      writes += 1;
      return database.transaction(work, options);
    },
  });
  await namesIn(new HostedImages(counting, images as never));
  t.is(writes, 0);
});

test('tags are not sorted by numbers of their manifests if they are too many', async (t) => {
  const tags = Array.from({ length: 5001 }, (_, at) => tagRow(1, `t${10_000 + at}`, three, at));
  const { hosted, database } = await open(t, { ...filled, tags });
  const at = hosted.repository(1, 'app', 1);
  const sorted = (order: TagQuery['order']) => at.tags({ ...all, order }, 1, undefined);
  const message = 'order: the image has more than 5000 tags. Use another order.';
  for (const order of ['size', 'pulls'] as const) {
    const error = await t.throwsAsync<DomainError>(sorted(order), { name: 'Invalid', message });
    t.deepEqual(error.detail, { parameter: 'order' });
  }
  t.is((await sorted('newest')).length, 1);
  await database.transaction((tx) => tx.run("DELETE FROM tags WHERE repository_id = 1 AND name = 't10000'"));
  t.is((await sorted('size')).length, 1);
  t.is((await sorted('pulls')).length, 1, 'each of them has two images');
  await database.transaction((tx) =>
    tx.insertNew(
      'manifest_references',
      [four, five, six].map((digest) => reference(3, digest)),
    ),
  );
  await t.throwsAsync(sorted('pulls'), {
    message: 'order: the indexes of the tags have more than 20000 images. Use another order.',
  });
  await database.transaction((tx) => tx.run('DELETE FROM manifest_references WHERE digest = ?', [six]));
  t.is((await sorted('pulls')).length, 1);
  t.is((await sorted('size')).length, 1);
});

const manifestRow = (id: number, digest: Digest, more: object) => ({
  digest,
  mediaType: mediaTypes.image,
  sizeBytes: 100 * id,
  updatedAt: 1000 + id,
  pullCount: id,
  lastPulledAt: null,
  artifactType: null,
  subject: null,
  isChild: false,
  isTagged: false,
  ...more,
});

test('manifests are listed by digest, with what they belong to', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  const rows = [
    manifestRow(1, one, { pullCount: 4, lastPulledAt: 40, isChild: true, isTagged: true }),
    manifestRow(2, two, { pullCount: 5, lastPulledAt: 50, isChild: true, isTagged: true }),
    manifestRow(3, three, { mediaType: mediaTypes.index, pullCount: 1, lastPulledAt: 10, isTagged: true }),
    manifestRow(4, four, { artifactType: 'application/spdx+json', subject: one }),
    manifestRow(5, five, { pullCount: 2 }),
  ];
  t.deepEqual(await at.manifests(10, ''), { items: rows, next: undefined });
  t.deepEqual(await at.manifests(5, ''), { items: rows, next: five });
  t.deepEqual(await at.manifests(2, ''), { items: rows.slice(0, 2), next: two });
  t.deepEqual(await at.manifests(10, two), { items: rows.slice(2), next: undefined });
});

test('a manifest is described with its tags and its indexes', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  t.deepEqual(await at.manifest(one), {
    digest: one,
    mediaType: mediaTypes.image,
    sizeBytes: 100,
    updatedAt: 1001,
    pullCount: 4,
    lastPulledAt: 40,
    tags: ['v10', 'v2'],
    withdrawnTags: [],
    indexes: [three],
  });
  t.like(await at.manifest(five), { tags: [], indexes: [] });
  t.is(await at.manifest(six), undefined);
  t.is(await hosted.repository(1, 'other', 2).manifest(two), undefined);
  t.is(await at.digestOf('V3'), two);
  t.is(await at.digestOf('v3'), undefined);
  t.is(await hosted.repository(1, 'other', 2).digestOf('v10'), undefined);
  t.deepEqual(await at.summary(), { ...summary(1, 'app'), tags: [] });
  t.is(await hosted.repository(1, 'none', 9).summary(), undefined);
});

const rowWith = (digest: Digest, mediaType: string) => ({
  digest,
  mediaType,
  sizeBytes: 1,
  updatedAt: 1,
  pullCount: 1,
  lastPulledAt: 10,
  more: digest,
});

test('an index has the pulls of its images, the last one of all', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  const rows = [
    rowWith(one, mediaTypes.image),
    rowWith(three, mediaTypes.index),
    rowWith(six, mediaTypes.dockerList),
    rowWith(two, mediaTypes.image),
  ];
  t.deepEqual(await at.withPulls(rows, () => []), [
    rows[0]!,
    { ...rows[1]!, pullCount: 9, lastPulledAt: 50 },
    rows[2]!,
    rows[3]!,
  ]);
  t.deepEqual(await at.withPulls(rows.slice(0, 1), () => []), rows.slice(0, 1));
});

test('what is stored of a repository is a manifest or a blob of it', async (t) => {
  const { hosted } = await open(t, filled);
  const at = hosted.repository(1, 'app', 1);
  t.deepEqual(await at.storedAmong([one, six, digestOf('none')]), new Set([one, six]));
  t.deepEqual(await hosted.repository(1, 'other', 2).storedAmong([one, two, six]), new Set([one, two]));
  t.deepEqual(await at.storedAmong([]), new Set());
});

const statement = (predicate: string) =>
  JSON.stringify({ 'dev.sigstore.bundle.predicateType': predicate, 'org.opencontainers.image.created': 'x' });

const attached = (id: number, more: Row) => manifest(id, 1, digestOf(`attached ${id}`), more);

test('what is attached to manifests is known by types, by statements and by tags', async (t) => {
  const bundle = 'application/vnd.dev.sigstore.bundle.v0.3+json';
  const { hosted } = await open(t, {
    ...filled,
    manifests: [
      ...filled.manifests,
      attached(10, {
        subject: two,
        artifact_type: bundle,
        annotations: statement('https://sigstore.dev/cosign/sign/v1'),
      }),
      attached(11, { subject: two, artifact_type: bundle, annotations: statement('https://cyclonedx.org/bom') }),
      attached(12, { subject: three, artifact_type: bundle, annotations: statement('https://slsa.dev/provenance/v1') }),
      attached(13, { subject: three, artifact_type: 'application/vnd.cncf.notary.signature' }),
      attached(14, { subject: five, media_type: 'application/vnd.in-toto+json' }),
      attached(15, { subject: five, artifact_type: 'text/plain' }),
      { ...attached(16, { subject: five, artifact_type: 'application/spdx+json' }), repository_id: 2 },
    ],
    tags: [
      ...filled.tags,
      tagRow(1, `${one.replace(':', '-')}.sig`, five, 1),
      tagRow(1, `${three.replace(':', '-')}.att`, five, 1),
      tagRow(1, `${five.replace(':', '-')}.other`, five, 1),
      tagRow(2, `${five.replace(':', '-')}.sbom`, one, 1),
    ],
  });
  const at = hosted.repository(1, 'app', 1);
  t.deepEqual(
    await at.attachedTo([one, two, three, five, six]),
    new Map([
      [one, new Set(['sbom', 'signature'] as const)],
      [two, new Set(['signature', 'sbom'] as const)],
      [three, new Set(['attestation', 'signature'] as const)],
      [five, new Set(['attestation'] as const)],
      [six, new Set()],
    ]),
  );
  t.deepEqual(await at.attachedTo([]), new Map());
});

test('content, referrers and deletions are those of the registry', async (t) => {
  const { hosted, calls } = await open(t, {});
  const at = hosted.repository(7, 'app', 1);
  const never = () => t.fail('it is not shared');
  t.is(await at.open('blob', one), 'the blob' as never);
  t.is(await at.open('manifest', one), 'the manifest' as never);
  t.deepEqual(await at.referrers(one, 5), ['one'] as never);
  t.true(await at.deleteTag('v1', never));
  t.is(await at.deleteManifest(one, never), undefined);
  t.deepEqual(calls, [
    ['open blob', 7, 'app', one],
    ['open manifest', 7, 'app', { digest: one }],
    ['referrers', 7, 'app', one, { limit: 5, last: '' }],
    ['delete tag', 7, 'app', 'v1'],
    ['delete', 7, 'app', { digest: one }],
  ]);
});
