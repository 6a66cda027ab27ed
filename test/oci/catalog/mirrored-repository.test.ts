import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import type { Row } from '../../../src/database/database.ts';
import type { MirroredOwner } from '../../../src/history/history.ts';
import { entryId, type EntryKey } from '../../../src/mirror/store/entries.ts';
import { addWords } from '../../../src/mirror/store/words.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import { MirroredImages } from '../../../src/oci/catalog/mirrored-images.ts';
import type { ListedTag, TagQuery } from '../../../src/oci/catalog/repository.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { naturalKey } from '../../../src/oci/hosted/natural-order.ts';
import { RepositoryNames } from '../../../src/oci/mirrored/repository-names.ts';
import type { UpstreamRepository } from '../../../src/oci/mirrored/upstream-repository.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';
import { openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { until } from '../../support/until.ts';

// Lists of mirrored images, from the rows of stored entries.

const digests = Array.from({ length: 6 }, (_, index) => `sha256:${'a'.repeat(63)}${index}` as Digest);
const [one, two, three, four, layer] = digests as [Digest, Digest, Digest, Digest, Digest];

function upstream(id: string, isDefault = false) {
  const config = { include: ['*'], exclude: ['team/excluded'], default: isDefault, kind: 'registry' };
  return { id, name: `${id}.test`, config, serves: () => true } as unknown as Upstream;
}

const first = upstream('first', true);
const second = upstream('second');

interface Stored {
  upstream?: string;
  kind?: string;
  name?: string;
  reference: string;
  digest?: Digest;
  /** Milliseconds. */
  at?: number;
  usedAt?: number;
  size?: number;
  imageBytes?: number;
}

function entry({
  reference,
  digest = reference as Digest,
  at = 10,
  usedAt = 20,
  size = 7,
  imageBytes,
  ...key
}: Stored): Row {
  const whole = { upstream: 'first', kind: 'manifest', name: 'team/app', reference, ...key };
  return {
    ...whole,
    id: entryId(whole),
    digest,
    size_bytes: size,
    content_type: mediaTypes.image,
    etag: null,
    last_modified: null,
    attributes: JSON.stringify(imageBytes === undefined ? {} : { imageBytes: String(imageBytes) }),
    stored_at: at,
    validated_at: at,
    used_at: usedAt,
  };
}

interface Given {
  entries?: Stored[];
  /** References and digests that lists do not show. */
  hidden?: readonly string[];
  earlier?: Record<string, Digest>;
  withdrawn?: Record<string, number>;
  /** Downloads of account 1 by image and version. */
  downloads?: [name: string, version: string, count: number][];
  /** Names that account 1 hosts; null for one whose first push goes on. */
  claims?: Record<string, number | null>;
  stored?: Record<string, object | 'gone meanwhile'>;
  blobs?: Record<string, string | Error>;
  tagsOf?: readonly string[];
}

/** Mirrored images of a new database; `calls` has what was dropped. */
async function open(t: ExecutionContext, given: Given) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await database.transaction(async (tx) => {
    const rows = (given.entries ?? []).map(entry);
    if (rows.length > 0) await tx.insertNew('mirror_entries', rows);
    const downloads = (given.downloads ?? []).map(([name, version, count]) => ({
      account_id: 1,
      kind: 'container',
      name,
      version,
      downloads: count,
    }));
    if (downloads.length > 0) await tx.insertNew('mirrored_downloads', downloads);
    for (const [name, claimed_at] of Object.entries(given.claims ?? {}))
      await tx.insert('repositories', { account_id: 1, name, claimed_at, created_at: 1, updated_at: 1 });
  });
  const calls: unknown[] = [];
  const hidden = new Set(given.hidden);
  const isShown = (text: string) => !hidden.has(text);
  const mirror = {
    upstreams: [second, first],
    names: new RepositoryNames(new UpstreamPolicy([second, first], undefined, [])),
    withdrawn: () => Promise.resolve(new Map(Object.entries(given.withdrawn ?? {}))),
    listed: <T>(_place: UpstreamRepository, items: readonly T[], referenceOf: (item: T) => string) =>
      Promise.resolve(items.filter((each) => isShown(referenceOf(each)))),
    listedEntries: <T extends { reference: string; digest: string }>(
      _place: UpstreamRepository,
      items: readonly T[],
    ) => {
      const shown = items.filter(({ reference, digest }) => isShown(reference) && isShown(digest));
      return Promise.resolve(shown.length === items.length ? items : shown);
    },
    earlierDigests: (_place: UpstreamRepository, tags: readonly string[]) =>
      Promise.resolve(new Map(Object.entries(given.earlier ?? {}).filter(([tag]) => tags.includes(tag)))),
    stored: (_place: UpstreamRepository, kind: string, reference: string) =>
      Promise.resolve(given.stored?.[`${kind} ${reference}`]),
    storedAmong: (_place: UpstreamRepository, kind: string, some: readonly string[]) =>
      Promise.resolve(new Set(some.filter((each) => given.stored?.[`${kind} ${each}`]))),
    isStored: (_place: UpstreamRepository, kind: string, reference: string) =>
      Promise.resolve(given.stored?.[`${kind} ${reference}`] !== undefined),
    tagsOf: () => Promise.resolve(given.tagsOf ?? []),
    forgetTag: (_place: UpstreamRepository, tag: string, also: (tx: unknown) => Promise<void>) => {
      calls.push(`forget ${tag}`);
      return database.transaction(also).then(() => given.stored?.[`manifest ${tag}`] !== 'gone meanwhile');
    },
    forgetTagsOf: (_place: UpstreamRepository, digest: string) => {
      calls.push(`forget tags of ${digest}`);
      return Promise.resolve();
    },
  };
  const blobs = {
    open: (digest: string, size: number) => {
      calls.push(`open ${digest} ${size}`);
      const found = given.blobs?.[digest];
      return found instanceof Error ? Promise.reject(found) : Promise.resolve(contentOf(Buffer.from(found!)));
    },
  };
  const parts = { database, blobs, mirrors: { of: () => mirror }, now: () => 999 };
  const images = new MirroredImages(parts as never);
  const at = images.repository(1, mirror as never, { upstream: first, name: 'team/app' });
  return { database, images, at, calls };
}

const entries: Stored[] = [
  { reference: 'v2', digest: one, at: 10, usedAt: 11, imageBytes: 100 },
  { reference: 'v10', digest: one, at: 30, usedAt: 15, imageBytes: 100 },
  { reference: 'V3', digest: two, at: 20, usedAt: 12, imageBytes: 300 },
  { reference: 'sha256-abc.sig', digest: three, at: 5, usedAt: 13 },
  { reference: one, at: 10, usedAt: 50 },
  { reference: two, at: 20, usedAt: 14 },
  { reference: four, at: 20, usedAt: 14 },
  { kind: 'blob', reference: layer, size: 5000, usedAt: 99 },
  { upstream: 'second', reference: 'v1', digest: three, at: 1 },
  { upstream: 'second', name: 'app', reference: 'v9', digest: one, at: 40, usedAt: 41 },
  { name: 'open', reference: one },
  { name: 'team/excluded', reference: one },
  { name: 'zoo', reference: one, usedAt: 3 },
];

const base = { text: '', order: 'asc', hidesAttached: false } as const;

const summary = {
  name: 'first.test/team/app',
  upstream: 'first.test',
  sizeBytes: 7 * 4 + 5000,
  tagCount: 4,
  pullCount: 7,
  lastPulledAt: 50,
  tags: [],
};

const downloads: Given['downloads'] = [
  ['first.test/team/app', one, 4],
  ['first.test/team/app', two, 3],
  ['second.test/app', one, 9],
];

const row = (digest: Digest, updatedAt: number, sizeBytes: number) => ({
  digest,
  mediaType: mediaTypes.image,
  sizeBytes,
  updatedAt,
});

test('a repository has the numbers of its entries at its upstream', async (t) => {
  const { at, images } = await open(t, { entries, downloads, withdrawn: { V3: 77 } });
  t.deepEqual([at.name, at.upstream], ['first.test/team/app', 'first.test']);
  t.deepEqual(await at.summary(), summary);
  t.deepEqual(await at.withTags(2), {
    ...summary,
    tags: [
      { ...row(two, 20, 300), name: 'V3', withdrawnAt: 77 },
      { ...row(three, 5, 7), name: 'sha256-abc.sig', withdrawnAt: null },
    ],
  });
  const none = images.repository(1, { withdrawn: () => new Map() } as never, { upstream: first, name: 'none' });
  t.is(await none.summary(), undefined);
  t.like(await none.withTags(0), { sizeBytes: 0, tagCount: 0, pullCount: 0, lastPulledAt: 0 });
});

const tagNames = async (tags: Promise<ListedTag[]>) => (await tags).map(({ name }) => name).join(' ');

test('tags are sorted in each order, page by page', async (t) => {
  const { at } = await open(t, { entries });
  const walk = async (order: TagQuery['order'], limit: number) => {
    const found: ListedTag[] = [];
    for (;;) {
      const page = await at.tags({ ...base, order, hidesAttached: true }, limit, found.at(-1)?.key);
      found.push(...page);
      if (page.length < limit) return tagNames(Promise.resolve(found));
    }
  };
  for (const limit of [1, 2, 5]) {
    t.is(await walk('asc', limit), 'v2 V3 v10');
    t.is(await walk('desc', limit), 'v10 V3 v2');
    t.is(await walk('newest', limit), 'v10 V3 v2');
    t.is(await walk('oldest', limit), 'v2 V3 v10');
    t.is(await walk('size', limit), 'V3 v2 v10');
  }
  const error = await t.throwsAsync<DomainError>(at.tags({ ...base, order: 'pulls' }, 5, undefined), {
    name: 'Invalid',
    message: 'order: the pulls of mirrored tags are counted by image, and not by tag. Use another order.',
  });
  t.deepEqual(error.detail, { parameter: 'order' });
  t.is(await tagNames(at.tags(base, 9, undefined)), 'sha256-abc.sig v2 V3 v10');
  t.is(await tagNames(at.tags({ ...base, text: 'v3' }, 9, undefined)), 'V3');
});

test('a tag has the numbers of its manifest, other tags of it, and when it was withdrawn', async (t) => {
  const { at } = await open(t, { entries, withdrawn: { v10: 77 } });
  const [tag] = await at.tags({ ...base, text: 'v10' }, 9, undefined);
  t.deepEqual(tag, {
    ...row(one, 30, 100),
    pullCount: 0,
    lastPulledAt: 15,
    key: [naturalKey('v10'), 'v10'],
    name: 'v10',
    withdrawnAt: 77,
    aliases: ['v2'],
  });
  const many = Array.from({ length: 13 }, (_, index) => ({ reference: `t${10 + index}`, digest: one }));
  const [last] = (await (await open(t, { entries: many })).at.tags(base, 20, undefined)).slice(-1);
  t.deepEqual(
    last!.aliases,
    Array.from({ length: 10 }, (_, index) => `t${10 + index}`),
  );
  t.is(last!.withdrawnAt, null);
});

test('a tag whose digest is held has the content that clients get, if that is stored', async (t) => {
  const { at } = await open(t, { entries, hidden: ['v10', 'V3', three], earlier: { v10: two, V3: digestOf('gone') } });
  const tags = await at.tags(base, 9, undefined);
  t.deepEqual(
    tags.map(({ name, digest }) => [name, digest]),
    [
      ['v2', one],
      ['v10', two],
    ],
  );
});

const item = (digest: Digest, updatedAt: number, lastPulledAt: number, isTagged: boolean) => ({
  ...row(digest, updatedAt, 7),
  pullCount: 0,
  lastPulledAt,
  artifactType: null,
  subject: null,
  isChild: false,
  isTagged,
});

test('manifests are listed by digest, without those that lists do not show', async (t) => {
  const { at } = await open(t, { entries, hidden: [two] });
  const [a, b] = [item(one, 10, 50, true), item(four, 20, 14, false)];
  t.deepEqual(await at.manifests(9, ''), { items: [a, b], next: undefined });
  t.deepEqual(await at.manifests(3, ''), { items: [a, b], next: four });
  t.deepEqual(await at.manifests(2, ''), { items: [a], next: two });
  t.deepEqual(await at.manifests(2, two), { items: [b], next: undefined });
});

const metadata = (digest: Digest, more: object = {}) => ({
  digest,
  size: 7,
  type: mediaTypes.image,
  attributes: {},
  storedAt: 10,
  ...more,
});

test('a manifest is described with its last use, and with its tags', async (t) => {
  const stored: Given['stored'] = {
    [`manifest ${one}`]: metadata(one),
    'manifest v2': metadata(one),
    [`blob ${layer}`]: metadata(layer),
  };
  const tagsOf = ['v10', 'v2'];
  const { at, calls } = await open(t, {
    entries,
    stored,
    tagsOf,
    withdrawn: { v2: 77, V3: 78 },
    blobs: { [layer]: 'text' },
  });
  t.deepEqual(await at.manifest(one), {
    ...row(one, 10, 7),
    pullCount: 0,
    lastPulledAt: 50,
    tags: tagsOf,
    withdrawnTags: [{ name: 'v2', withdrawnAt: 77 }],
    indexes: [],
  });
  t.is(await at.manifest(two), undefined);
  const many = Array.from({ length: 101 }, (_, index) => `t${index}`);
  t.deepEqual((await (await open(t, { stored, tagsOf: many })).at.manifest(one))!.tags, many.slice(0, 100));
  t.is(await at.digestOf('v2'), one);
  t.is(await at.digestOf('v9'), undefined);
  t.deepEqual(await at.storedAmong([one, two]), new Set([one]));
  t.is((await at.open('blob', layer))!.size, 4);
  t.is(await at.open('blob', one), undefined);
  t.deepEqual(calls, [`open ${layer} 7`]);
});

test('the pulls of an index are its own and those of its images', async (t) => {
  const { at } = await open(t, { downloads });
  const rows = [one, two, three].map((digest) => ({ ...row(digest, 1, 1), pullCount: 0, lastPulledAt: null }));
  const pulls = async (childrenOf: (digest: Digest) => Digest[]) =>
    (await at.withPulls(rows, childrenOf)).map(({ pullCount }) => pullCount);
  t.deepEqual(await pulls(() => []), [4, 3, 0]);
  t.deepEqual(await pulls((digest) => (digest === one ? [two, four] : digest === three ? [two] : [])), [7, 3, 3]);
});

const descriptor = (digest: Digest, more: object = {}) => ({ mediaType: 'text/plain', digest, size: 1, ...more });

test('referrers are known from the stored list, without those that lists do not show', async (t) => {
  const list = [
    descriptor(two, { artifactType: 'application/spdx+json' }),
    descriptor(three, { mediaType: 'application/vnd.in-toto+json' }),
    descriptor(four, {
      artifactType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
      annotations: { 'dev.sigstore.bundle.predicateType': 'https://sigstore.dev/cosign/sign/v1' },
    }),
    descriptor(layer),
  ];
  const text = JSON.stringify(list);
  const listed = metadata(digestOf(text), { size: text.length });
  const lost = metadata(digestOf('lost'));
  const broken = metadata(digestOf('broken'));
  const given: Given = {
    stored: { [`referrers ${one}`]: listed, [`referrers ${two}`]: lost, [`referrers ${three}`]: broken },
    blobs: {
      [listed.digest]: text,
      [lost.digest]: new DomainError('BlobUnknown', 'lost'),
      [broken.digest]: new Error('a mistake'),
    },
  };
  const { at } = await open(t, given);
  t.deepEqual(await at.referrers(one), list as never);
  t.is(await at.referrers(two), undefined);
  t.is(await at.referrers(four), undefined);
  await t.throwsAsync(at.referrers(three), { message: 'a mistake' });
  t.deepEqual(
    await at.attachedTo([one, two, four]),
    new Map([
      [one, new Set(['sbom', 'attestation', 'signature'] as const)],
      [two, new Set()],
    ]),
  );
  const some = await open(t, { ...given, hidden: [three] });
  t.deepEqual(
    (await some.at.referrers(one))!.map(({ digest }) => digest),
    [two, four, layer],
  );
});

const mayNot = () => {
  throw new DomainError('ScopeMissing', 'not allowed');
};

test('a tag or manifest is deleted for all accounts by those who may, with an event', async (t) => {
  const stored: Given['stored'] = {
    'manifest v2': metadata(one),
    [`manifest ${one}`]: metadata(one),
    [`manifest ${two}`]: 'gone meanwhile',
  };
  const { at, calls, database } = await open(t, { stored });
  const asked: string[] = [];
  const may = () => void asked.push('asked');
  t.false(await at.deleteTag('v9', mayNot));
  await t.throwsAsync(at.deleteTag('v2', mayNot), { name: 'ScopeMissing' });
  await t.throwsAsync(at.deleteManifest(one, mayNot), { name: 'ScopeMissing' });
  await t.throwsAsync(at.deleteManifest(three, mayNot), { name: 'ManifestUnknown' });
  t.deepEqual(calls, []);
  t.true(await at.deleteTag('v2', may));
  await at.deleteManifest(one, may);
  await t.throwsAsync(at.deleteManifest(two, may), { name: 'ManifestUnknown' });
  t.deepEqual(asked, ['asked', 'asked', 'asked']);
  t.deepEqual(calls, ['forget v2', `forget tags of ${one}`, `forget ${one}`, `forget tags of ${two}`, `forget ${two}`]);
  const events = await database.select('SELECT * FROM events ORDER BY id LIMIT 2');
  const common = {
    time: 999,
    account_id: 1,
    subject_kind: 'container',
    subject_name: 'first.test/team/app',
    details: '{"origin":"mirrored","upstream":"first.test"}',
  };
  t.like(events, [
    { ...common, type: 'tag.deleted', subject_reference: 'v2' },
    { ...common, type: 'manifest.deleted', subject_reference: one },
  ]);
});

const names = (some: readonly { name: string }[]) => some.map(({ name }) => name);
const all = ['first.test/open', 'first.test/team/app', 'first.test/zoo', 'second.test/app', 'second.test/team/app'];

test('mirrored images are listed by name, without those that the account hosts or may not get', async (t) => {
  const { images } = await open(t, { entries, downloads });
  t.is(images.origin, 'mirrored');
  t.deepEqual(names(await images.list(1, 9, '')), all);
  for (const [at, name] of all.entries()) {
    t.deepEqual(names(await images.list(1, 9, name)), all.slice(at + 1));
    t.deepEqual(names(await images.list(1, at + 1, '')), all.slice(0, at + 1));
  }
  t.deepEqual(names(await images.list(1, 9, 'first.test')), all);
  t.deepEqual(names(await images.list(1, 9, 'second')), all.slice(3));
  t.deepEqual(names(await images.list(1, 9, 'third')), []);
  const only = new NameSet(['zoo', 'second.test/*']);
  t.deepEqual(names(await images.list(1, 9, '', only)), all.slice(2));
  const [app] = await images.list(1, 1, all[0]!, undefined, 1);
  t.like(app, { ...summary, tags: [{ name: 'V3' }] });
  t.is((await images.list(1, 2, ''))[1]!.tags.length, 4);
  const claims = { 'first.test/team/app': 1, zoo: 2, 'second.test/app': null };
  const hosting = await open(t, { entries, claims });
  t.deepEqual(names(await hosting.images.list(1, 9, '')), [all[0], all[3], all[4]]);
});

test('mirrored images are sorted by numbers as they were counted, and added up', async (t) => {
  const { images } = await open(t, { entries, downloads });
  const asked = { text: '', only: undefined };
  await until(async () => (await images.total(1, asked)) !== undefined);
  const bytes = summary.sizeBytes + 4 * 7;
  t.deepEqual(await images.total(1, asked), { count: 5, bytes });
  t.deepEqual(await images.total(1, { text: 'app', only: undefined }), { count: 3, bytes: bytes - 14 });
  t.deepEqual(await images.total(1, { text: '', only: new NameSet(['zoo']) }), { count: 1, bytes: 7 });
  const sorted = async (sort: 'tags' | 'size' | 'pulls' | 'used' | undefined, more: object = {}) =>
    (await images.ranked(1, { sort, ...asked, ...more }, 9, undefined)).map(({ item }) => item.name);
  const [opened, app, zoo, other, same] = all;
  t.deepEqual(await sorted('size'), [app, opened, zoo, other, same]);
  t.deepEqual(await sorted('tags'), [app, other, same, opened, zoo]);
  t.deepEqual(await sorted('pulls'), [other, app, opened, zoo, same]);
  t.deepEqual(await sorted('used'), [app, other, opened, same, zoo]);
  t.deepEqual(await sorted(undefined), all);
  t.deepEqual(await sorted('size', { text: 'zoo' }), [zoo]);
  t.deepEqual(await sorted('size', { only: new NameSet(['second.test/app', 'team/app']) }), [app, other]);
  const [top] = await images.ranked(1, { sort: 'size', ...asked }, 1, undefined);
  t.deepEqual(top, { rank: [summary.sizeBytes, app!], item: summary });
});

test('images that were dropped or are hosted since they were counted are not shown', async (t) => {
  const { images, database } = await open(t, { entries });
  const asked = { text: '', only: undefined };
  await until(async () => (await images.total(1, asked)) !== undefined);
  await database.transaction(async (tx) => {
    await tx.run("DELETE FROM mirror_entries WHERE name = 'team/app' AND upstream = 'first'");
    await tx.insert('repositories', { account_id: 1, name: 'zoo', claimed_at: 1, created_at: 1, updated_at: 1 });
  });
  const left = await images.ranked(1, { sort: undefined, ...asked }, 9, undefined);
  t.deepEqual(
    left.map(({ item }) => item.name),
    [all[0], all[3], all[4]],
  );
});

const found = (name: string, digest: Digest) => ({
  position: name,
  name,
  upstream: name.split('/', 1)[0],
  pulls: 0,
  digest,
});

test('mirrored images are found by the beginning of a digest, on one page', async (t) => {
  const { images } = await open(t, { entries, hidden: [two], claims: { zoo: 1 } });
  const beginning = one.slice(0, 30);
  const expected = [
    found('second.test/app', one),
    found('second.test/team/app', three),
    found('first.test/open', one),
    found('first.test/team/app', one),
    found('first.test/team/app', three),
    found('first.test/team/app', four),
  ];
  t.deepEqual(await images.find(1, ` ${beginning} `, 9, ''), expected);
  t.deepEqual(await images.find(1, beginning, 9, 'first.test/team/app'), []);
  t.deepEqual(await images.find(1, three, 9, ''), [expected[1]!, expected[4]!]);
  t.deepEqual(await images.find(1, three, 9, '', new NameSet(['team/app'])), [expected[4]!]);
});

test('mirrored images are found by the words of their names, of one upstream if it is named', async (t) => {
  const { images, database } = await open(t, { entries, downloads, claims: { zoo: 1 } });
  await database.transaction(async (tx) => {
    for (const row of entries.map(entry) as unknown as EntryKey[]) await addWords(tx, row);
  });
  const find = (text: string, limit = 9, after = '', only?: NameSet) => images.find(1, text, limit, after, only);
  const app = { name: 'first.test/team/app', upstream: 'first.test', pulls: 7 };
  const found = await find('app');
  t.deepEqual(
    found.map(({ position: _position, ...each }) => each),
    [
      app,
      { name: 'second.test/app', upstream: 'second.test', pulls: 9 },
      { name: 'second.test/team/app', upstream: 'second.test', pulls: 0 },
    ],
  );
  for (const [at, { position }] of found.entries()) t.deepEqual(await find('app', 9, position), found.slice(at + 1));
  t.deepEqual(await find('app', 1), found.slice(0, 1));
  t.deepEqual(await find('app', 9, '', new NameSet(['team/app'])), found.slice(0, 1));
  t.deepEqual(names(await find(' Second.test/app ')), ['second.test/app', 'second.test/team/app']);
  t.deepEqual(names(await find('first.test/team')), ['first.test/team/app']);
  t.deepEqual(await find('zoo'), [], 'the account hosts it');
  t.deepEqual(await find(' '), []);
  t.deepEqual(await find('second.test/ '), []);
});

const reader = { accountId: 1, kind: 'token', scopes: new Set(['read']) };

const limited = (...patterns: string[]) => ({ names: { of: () => new NameSet(patterns) } });

test('the history of an image is that of its names here and at its upstream, as far as they may be read', async (t) => {
  const { images } = await open(t, { hidden: ['v1'] });
  const owners = async (name: string, more: object = {}) => {
    const all = await images.historyOwners({ ...reader, ...more } as never, name);
    return all.map(({ accountId, upstream: id, name: own, ...rest }) => {
      const told = 'upstreamName' in rest ? ` of ${rest.upstreamName}` : '';
      return `${accountId} ${id} ${own}${told}`;
    });
  };
  const mirrored = '0 first team/app of first.test';
  t.deepEqual(await owners('team/app'), ['1  team/app', '1  first.test/team/app', mirrored]);
  t.deepEqual(await owners('team/excluded'), ['1  team/excluded', '1  first.test/team/excluded']);
  t.deepEqual(await owners('team/app', limited('team/app')), ['1  team/app', mirrored]);
  t.deepEqual(await owners('second.test/app', limited('second.test/*')), [
    '1  second.test/app',
    '0 second app of second.test',
  ]);
  await t.throwsAsync(owners('team/app', limited('other')), { name: 'NameDenied' });
  const shared = {
    ownerOf: (_own: number, _kind: string, name: string) => Promise.resolve(name === 'team/app' ? 2 : 1),
  };
  t.deepEqual(await owners('team/app', { shared }), ['2  team/app'], 'of another account, without its upstream');
  const [, , last] = await images.historyOwners(reader as never, 'team/app');
  const lines = [
    { reference: 'v1', digest: one },
    { reference: 'v2', digest: one },
  ];
  t.deepEqual(await (last as MirroredOwner).listed(lines as never), [lines[1]] as never);
});
