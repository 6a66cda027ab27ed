import test, { type ExecutionContext } from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import { maxHostedMemory, type HostedEntry } from '../../../src/bundle/hosted-contents.ts';
import type { Dialect } from '../../../src/database/database.ts';
import { mediaTypes, type Manifest } from '../../../src/oci/format/manifest.ts';
import { carriedImages, manifestsInOrder, type PreparedManifest } from '../../../src/oci/hosted/carried.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { byBytes } from '../../../src/runtime/sorted.ts';
import { allOf } from '../../support/all-of.ts';
import { dialects } from '../../support/databases.ts';
import { hostedStart as start, openHostedImages, type HostedImage } from '../../support/hosted-images.ts';

const everything = new NameSet(['*']);
const stage = () => Promise.reject(new Error('staged'));

/** Account 1 hosts `app`, with an index of two images and an image without a tag, and `base`; account 2 hosts `app`, too. */
async function withImages(t: ExecutionContext, dialect?: Dialect) {
  const world = await openHostedImages(t, dialect);
  const { image, index, blob, blobs, database, manifests, clock, rows } = world;
  const [amd, arm] = [await image('app', ['amd'], ['amd layer']), await image('app', [], ['arm layer'])];
  clock.now = start + 1;
  const list = await index('app', ['v1', 'v2'], [amd, arm]);
  const base = await image('base', ['v1'], ['base layer']);
  await image('app', ['v1'], ['theirs'], {}, 2);
  // No manifest refers to it, so that it is not carried.
  await blob('app', 'unused');
  await blob('unused', 'unused');
  // Only a manifest of another repository does.
  await blob('base', 'amd layer');
  clock.now = start + 5000;
  const asked: unknown[][] = [];
  const mirroredFrom = (...question: unknown[]) => {
    asked.push(question);
    return Promise.resolve(question[1] === 'base' ? 'up.test' : undefined);
  };
  const source = { mirroredFrom };
  const parts = { database, blobs, manifests, source, limit: 10_000, now: clock.time };
  const contents = carriedImages(parts);
  /** Imports entries into an account. */
  const write = async (account: number, entries: readonly HostedEntry[], isOlder = false) => {
    const writing = await contents.prepare(account, entries, stage);
    return database.transaction((tx) => writing(tx, { isOlder, from: 'bundle 7' }));
  };
  /** The tags of an account, with the digests to which they point. */
  const tagsOf = async (account: number) =>
    (
      await rows(
        `SELECT r.name, t.name AS tag, t.digest FROM tags t JOIN repositories r ON r.id = t.repository_id
         WHERE r.account_id = ${account} ORDER BY r.name, t.name`,
      )
    ).map((each) => `${each['name']}:${each['tag']} ${each['digest']}`);
  const historyOf = (account: number) =>
    rows(
      `SELECT name, kind, reference, digest, seen_at, media_type, size_bytes FROM history
       WHERE account_id = ${account} AND kind = 'tag' ORDER BY name, reference, id`,
    );
  return { ...world, amd, arm, list, base, parts, contents, asked, write, tagsOf, historyOf };
}

const common = { attributes: {}, seen: [] };

function blobEntry(name: string, text: string): HostedEntry {
  const digest = digestOf(text);
  const size = text.length;
  return { ...common, kind: 'blob', name, reference: digest, digest, size, type: 'application/octet-stream' };
}

function manifestEntry(name: string, { digest, size }: HostedImage, type: string = mediaTypes.image): HostedEntry {
  return { ...common, kind: 'manifest', name, reference: digest, digest, size, type };
}

const seenOf = (kind: 'tag' | 'manifest', reference: string, seenAt: number) => ({
  kind,
  reference,
  digest: digestOf(`seen ${seenAt}`),
  seenAt,
});

const withoutContent = (kind: string, reference: string) =>
  `the bundle has a ${kind} base:${reference} without its content`;

const manifestRow = (repository: unknown, digest: Digest) => ({
  repository_id: repository as number,
  digest,
  media_type: mediaTypes.image,
  size_bytes: 1,
  image_bytes: 1,
  pushed_at: 0,
});

const byDigest = (entries: HostedEntry[]) => entries.toSorted((one, other) => byBytes(one.digest, other.digest));

for (const dialect of dialects) {
  test(`${dialect}: of each repository its blobs are carried, then its manifests, then its tags with their history`, async (t) => {
    const { contents, amd, arm, list, base, image, clock } = await withImages(t, dialect);
    const tagEntry = (name: string, tag: string, of: HostedImage, seenAt: number, type: string = mediaTypes.image) => {
      const content = { mediaType: type, size: of.size };
      const seen = [{ kind: 'tag' as const, reference: tag, digest: of.digest, seenAt, content }];
      return { ...manifestEntry(name, of, type), reference: tag, seen };
    };
    const ofBase = [
      ...byDigest([blobEntry('base', '{}'), blobEntry('base', 'base layer')]),
      manifestEntry('base', base),
      tagEntry('base', 'v1', base, start + 1),
    ];
    const entries = [
      ...byDigest(['{}', 'amd layer', 'arm layer'].map((each) => blobEntry('app', each))),
      ...byDigest([manifestEntry('app', amd), manifestEntry('app', arm), manifestEntry('app', list, mediaTypes.index)]),
      tagEntry('app', 'amd', amd, start),
      tagEntry('app', 'v1', list, start + 1, mediaTypes.index),
      tagEntry('app', 'v2', list, start + 1, mediaTypes.index),
      ...ofBase,
    ];
    t.deepEqual(await allOf(contents.entries(1, everything)), entries);
    t.deepEqual(await allOf(contents.entries(1, new NameSet(['b*', 'c']))), ofBase);
    t.deepEqual(await allOf(contents.entries(3, everything)), []);
    clock.now = start + 6000;
    const moved = await image('base', ['v1'], ['base layer', 'amd layer']);
    const tags = (await allOf(contents.entries(1, new NameSet(['base'])))).filter(({ seen }) => seen.length > 0);
    t.deepEqual(
      tags.map(({ reference, digest, seen }) => [reference, digest, seen.map((each) => each.digest)]),
      [['v1', moved.digest, [base.digest, moved.digest]]],
      'to what it pointed before, too',
    );

    const known = [list.digest, digestOf('arm layer'), digestOf('unused'), base.digest];
    const among = async (account: number, some: Digest[]) =>
      [...(await contents.among(account, some))].toSorted(byBytes);
    t.deepEqual(await among(1, [...known, digestOf('theirs'), digestOf('none')]), known.toSorted(byBytes));
    t.deepEqual(
      await among(2, [...known, digestOf('theirs'), digestOf('{}')]),
      [digestOf('theirs'), digestOf('{}')].toSorted(byBytes),
    );
    t.deepEqual(await among(1, []), []);
  });

  test(`${dialect}: an import shows in another account what the first one hosts, with the times of its tags`, async (t) => {
    const { contents, write, tagsOf, historyOf, asked, rows, clock, list, base, amd } = await withImages(t, dialect);
    const entries = await allOf(contents.entries(1, everything));
    // An index comes before its images, and tags before what they point to.
    t.is(await write(3, entries.toReversed()), 8, 'four manifests and four tags');
    t.deepEqual(asked, [
      [3, 'base'],
      [3, 'app'],
    ]);
    t.deepEqual(await tagsOf(3), await tagsOf(1));
    t.deepEqual(await historyOf(3), await historyOf(1));
    const manifestsOf = (account: number) =>
      rows(
        `SELECT m.digest, m.image_bytes, f.digest AS child, f.absent FROM manifests m
         JOIN repositories r ON r.id = m.repository_id AND r.account_id = ${account}
         JOIN manifest_references f ON f.manifest_id = m.id ORDER BY m.digest, f.digest`,
      );
    t.deepEqual(await manifestsOf(3), await manifestsOf(1));
    t.deepEqual(
      await rows('SELECT name, tag_count, manifest_count FROM repositories WHERE account_id = 3 ORDER BY name'),
      [
        { name: 'app', tag_count: 3, manifest_count: 3 },
        { name: 'base', tag_count: 1, manifest_count: 1 },
      ],
    );
    const events = await rows(
      "SELECT subject_name, details FROM events WHERE account_id = 3 AND type = 'image.pushed' ORDER BY subject_name, id",
    );
    t.deepEqual(
      events
        .map(({ subject_name: name, details }) => [name, JSON.parse(details as string).taken_over_from])
        .filter(([, from]) => from !== undefined),
      [['base', 'up.test']],
    );
    t.is(events.length, 4);
    clock.now = start + 9000;
    t.is(await write(3, entries), 0, 'all of it is there');
    t.deepEqual(await rows('SELECT id FROM manifests WHERE untagged_at = ?', [start + 9000]), []);
    t.is((await rows("SELECT id FROM events WHERE account_id = 3 AND type = 'image.pushed'")).length, 4);

    // A tag that is gone or points elsewhere is set again; an older bundle adds only what is missing.
    const tags = entries.filter(({ reference, digest }) => reference !== digest);
    t.deepEqual(
      tags.map(({ name, reference }) => `${name}:${reference}`),
      ['app:amd', 'app:v1', 'app:v2', 'base:v1'],
    );
    t.is(await write(4, entries, true), 4, 'the manifests');
    t.deepEqual(await tagsOf(4), []);
    t.is(await write(4, entries), 4, 'the tags');
    t.deepEqual(await tagsOf(4), await tagsOf(1));
    const moved = entries.map((each) =>
      each.reference === 'v2' ? { ...each, ...manifestEntry('app', amd), reference: 'v2' } : each,
    );
    t.is(await write(4, moved, true), 0);
    t.deepEqual(await tagsOf(4), await tagsOf(1));
    t.is(await write(4, moved), 1);
    t.deepEqual(await tagsOf(4), [
      `app:amd ${amd.digest}`,
      `app:v1 ${list.digest}`,
      `app:v2 ${amd.digest}`,
      `base:v1 ${base.digest}`,
    ]);
  });
}

test('the history of a tag is that of its own entry', async (t) => {
  const { contents, write, rows } = await withImages(t);
  const entries = await allOf(contents.entries(1, new NameSet(['base'])));
  const seen = [seenOf('tag', 'other', 5), seenOf('manifest', 'v1', 6), seenOf('tag', 'v1', 7)];
  await write(
    3,
    entries.map((each) => ({ ...each, seen })),
  );
  t.deepEqual(
    await rows(
      "SELECT kind, reference, seen_at FROM history WHERE account_id = 3 AND reference IN ('v1', 'other') ORDER BY id",
    ),
    [
      { kind: 'tag', reference: 'v1', seen_at: 7 },
      { kind: 'tag', reference: 'v1', seen_at: start + 5000 },
    ],
  );
});

test('entries that are not what their content is are refused', async (t) => {
  const { contents, write, parts, rows, base, list } = await withImages(t);
  const entries = await allOf(contents.entries(1, new NameSet(['base'])));
  const [tag] = entries.filter(({ reference }) => reference === 'v1') as [HostedEntry];
  const refuse = (some: readonly HostedEntry[], message: string) =>
    t.throwsAsync(write(3, some), { name: 'Invalid', message });
  await refuse([{ ...tag, name: 'No/Name' }], 'the bundle has an image with the wrong name No/Name');
  const rest = entries.filter((each) => each !== tag);
  await refuse([tag], withoutContent('manifest', 'v1'));
  await refuse([...rest, { ...tag, digest: list.digest }], withoutContent('manifest', 'v1'));
  await refuse([...rest, { ...tag, kind: 'chart' }], withoutContent('chart', 'v1'));
  for (const reference of ['', '-v1', 'a:b', list.digest, 'x'.repeat(129)])
    await refuse([...rest, { ...tag, reference }], withoutContent('manifest', reference));
  const asIndex = entries.map((each) => (each.kind === 'manifest' ? { ...each, type: mediaTypes.index } : each));
  await t.throwsAsync(write(3, asIndex), { name: 'ManifestInvalid' });
  await t.notThrowsAsync(
    contents.prepare(3, [...entries, { ...blobEntry('base', 'base layer'), reference: '' }], stage),
  );
  await t.throwsAsync(carriedImages({ ...parts, limit: base.size - 1 }).prepare(3, entries, stage), {
    message: `content is larger than ${base.size - 1} bytes`,
  });
  await t.notThrowsAsync(carriedImages({ ...parts, limit: base.size }).prepare(3, entries, stage));
  t.deepEqual(await rows('SELECT id FROM repositories WHERE account_id = 3'), []);
});

test('the manifests of an import have a bound in memory, over all its repositories', async (t) => {
  const { contents, write } = await withImages(t);
  const entries = await allOf(contents.entries(1, new NameSet(['base'])));
  const sum = entries.reduce((bytes, { kind, size }) => bytes + (kind === 'manifest' ? size : 0), 0);
  // Large blobs do not count, and a tag without its content is refused later.
  const large = { ...blobEntry('base', 'large'), size: 2 * maxHostedMemory };
  const tag = entries.find(({ reference }) => reference === 'v1')!;
  const more = (size: number) => [...entries, large, { ...tag, name: 'other', size }];
  const tooMany = 'the bundle has too many hosted images. Carry them in several bundles';
  await t.throwsAsync(write(3, more(maxHostedMemory - sum + 1)), { name: 'Invalid', message: tooMany });
  const without = 'the bundle has a manifest other:v1 without its content';
  await t.throwsAsync(write(3, more(maxHostedMemory - sum)), { name: 'Invalid', message: without });
});

test('a blob that is not stored is not carried', async (t) => {
  const { contents, change } = await withImages(t);
  await change('DELETE FROM blobs WHERE digest = ?', [digestOf('base layer')]);
  const found = (await allOf(contents.entries(1, new NameSet(['base'])))).filter(({ kind }) => kind === 'blob');
  t.deepEqual(found, [blobEntry('base', '{}')]);
});

const order = (references: [Digest, Digest[]][]) => {
  const prepared = references.map(([digest, all]): [Digest, PreparedManifest] => {
    const manifest = { references: all.map((each) => ({ digest: each })) } as Manifest;
    return [digest, { manifest, digest, size: 1, tags: [] }];
  });
  return manifestsInOrder(new Map(prepared)).map(({ digest }) => digest);
};

test('each manifest is written after those to which it refers, once', (t) => {
  const [a, b, c, d, none] = ['a', 'b', 'c', 'd', 'none'].map((each) => digestOf(each)) as [
    Digest,
    Digest,
    Digest,
    Digest,
    Digest,
  ];
  t.deepEqual(
    order([
      [a, [b, c, none]],
      [b, [d]],
      [c, []],
      [d, []],
    ]),
    [d, b, c, a],
  );
  t.deepEqual(
    order([
      [d, []],
      [c, [d]],
      [a, [c, d]],
    ]),
    [d, c, a],
  );
  t.deepEqual(order([]), []);
});

test('more blobs, manifests and tags than one statement reads are carried, each once', async (t) => {
  const { contents, push, base, blob, database, rows } = await withImages(t);
  const tags = Array.from({ length: 1001 }, (_, at) => `t${at}`);
  await push('base', base, tags);
  await blob('base', 'base layer');
  const [{ id } = {}] = await rows("SELECT id FROM repositories WHERE account_id = 1 AND name = 'base'");
  const names = Array.from({ length: 501 }, (_, at) => ({
    account_id: 1,
    name: `many/${at}`,
    created_at: 0,
    updated_at: 0,
  }));
  await database.transaction((tx) => tx.insertNew('repositories', names));
  const made = await rows("SELECT id, name FROM repositories WHERE name LIKE 'many/%'");
  const digests = Array.from({ length: 501 }, (_, at) => digestOf(`manifest ${at}`));
  await database.transaction(async (tx) => {
    await tx.insertNew(
      'manifests',
      digests.map((digest) => manifestRow(id, digest)),
    );
    await tx.insertNew(
      'manifests',
      made.map((each) => manifestRow(each['id'], digests[0]!)),
    );
  });
  const ofBase = await allOf(contents.entries(1, new NameSet(['base'])));
  t.is(new Set(ofBase.map(({ reference }) => reference)).size, ofBase.length);
  t.is(ofBase.length, 2 + 502 + 1002);
  const found = new Set((await allOf(contents.entries(1, new NameSet(['many/*'])))).map(({ name }) => name));
  t.is(found.size, 501);
});
