import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { deletedImages } from '../../../src/oci/hosted/deleted-images.ts';
import { deleteManifest } from '../../../src/oci/hosted/manifest-deletion.ts';
import { DeletedItems } from '../../../src/permanence/deleted.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { dialects } from '../../support/databases.ts';
import { hostedStart as start, openHostedImages, type HostedImage } from '../../support/hosted-images.ts';

/** Hosted images whose deletions can be undone for a time. */
async function open(t: ExecutionContext, dialect?: Dialect, deletedFor = 0) {
  const world = await openHostedImages(t, dialect, deletedFor);
  const { database, manifests, rows, clock } = world;
  const deleted = new DeletedItems(database, new Map([['container', deletedImages(clock.time)]]), clock.time);
  const remove = (name: string, reference: string) =>
    manifests.delete(
      1,
      name,
      reference.includes(':') ? { digest: reference as HostedImage['digest'] } : { tag: reference },
    );
  /** What the rows of a manifest say, by its digest. */
  const stateOf = async ({ digest }: HostedImage) => {
    const [row] = await rows(
      'SELECT repository_id > 0 AS there, image_bytes, untagged_at, pull_count FROM manifests WHERE digest = ?',
      [digest],
    );
    return row && [Number(row['there']), row['image_bytes'], row['untagged_at'], row['pull_count']];
  };
  const tags = async () => (await rows('SELECT name FROM tags ORDER BY name')).map(({ name }) => name);
  const linkedAt = async (text: string) =>
    (await rows('SELECT linked_at FROM repository_blobs WHERE digest = ?', [digestOf(text)])).map(
      (row) => row['linked_at'],
    );
  const events = async () =>
    (await rows('SELECT type, time, subject_name, subject_reference, details FROM events ORDER BY id'))
      .filter(({ type }) => type !== 'image.pushed')
      .map(({ details, ...rest }): Record<string, unknown> => ({ ...rest, details: JSON.parse(details as string) }));
  const items = () =>
    rows('SELECT type, reference, digest, size_bytes, changed_at, deleted_at, ends_at FROM deleted_items ORDER BY id');
  return { ...world, deleted, remove, stateOf, tags, linkedAt, events, items };
}

/** Another image with a subject, as a signature has it. */
const subjectOf = ({ digest, size }: HostedImage) => ({ subject: { mediaType: mediaTypes.image, digest, size } });

for (const dialect of dialects) {
  test(`${dialect}: a deletion without a way back takes the manifest with its tags, and times what it leaves`, async (t) => {
    const world = await open(t, dialect);
    const { image, index, remove, stateOf, tags, linkedAt, events, items, counts, clock, rows, change } = world;
    const [one, two] = [await image('app', ['v1', 'v2'], ['a', 'b']), await image('app', ['other'], ['b'])];
    const list = await index('app', ['list'], [one, two]);
    const [early, late] = [
      await image('app', [], ['s'], subjectOf(one)),
      await image('app', [], ['t'], subjectOf(one)),
    ];
    await change('UPDATE manifests SET untagged_at = ? WHERE digest = ?', [start + 50, late.digest]);
    await image('else', ['v1'], ['a', 'b']);
    const before = await counts('app');
    t.deepEqual(before, [4, 5, one.size + two.size + list.size + early.size + late.size + 6]);
    clock.now = start + 20;
    await remove('app', one.digest);
    t.deepEqual(await tags(), ['list', 'other', 'v1'], 'that of the other repository stays');
    t.deepEqual(await counts('app'), [2, 4, (before![2] as number) - one.size]);
    t.deepEqual((await stateOf(list))!.slice(0, 2), [1, list.size + two.size + 3]);
    t.deepEqual(await stateOf(early), [1, early.size + 3, start + 20, 0], 'it refers to nothing since now');
    t.deepEqual(await stateOf(late), [1, late.size + 3, start + 50, 0]);
    t.deepEqual(await linkedAt('a'), [start + 20, start]);
    t.deepEqual(await rows('SELECT COUNT(*) AS count FROM manifest_references'), [{ count: 11 }]);
    t.deepEqual(await items(), []);
    t.deepEqual(await events(), [
      {
        type: 'manifest.deleted',
        time: start + 20,
        subject_name: 'app',
        subject_reference: one.digest,
        details: { tags: ['v1', 'v2'], tag_count: 2 },
      },
    ]);
    t.deepEqual(
      await rows(
        "SELECT reference, seen_at FROM history WHERE kind = 'tag' AND digest = '' AND name = 'app' AND upstream = '' ORDER BY reference",
      ),
      ['v1', 'v2'].map((reference) => ({ reference, seen_at: start + 20 })),
    );
    // An image of an index without a tag is unused since then.
    clock.now = start + 30;
    await remove('app', list.digest);
    t.deepEqual(await stateOf(two), [1, two.size + 3, start + 30, 0]);
    await t.throwsAsync(remove('app', list.digest), { name: 'ManifestUnknown' });
    await remove('app', 'other');
    t.deepEqual(await counts('app'), [0, 3, two.size + early.size + late.size + 6]);
    t.deepEqual((await events()).at(-1), {
      type: 'tag.deleted',
      time: start + 30,
      subject_name: 'app',
      subject_reference: 'other',
      details: { digest: two.digest },
    });
  });

  test(`${dialect}: a deletion of many tags and referrers takes all of them, page by page`, async (t) => {
    const { image, push, remove, rows, change, database, clock, events, counts } = await open(t, dialect, 1000);
    const one = await image('app', [], ['a']);
    const names = Array.from({ length: 201 }, (_, at) => `t${String(at).padStart(3, '0')}`);
    await push('app', one, names);
    const [{ id } = {}] = await rows('SELECT id FROM repositories');
    await database.transaction((tx) =>
      tx.insertNew(
        'manifests',
        names.map((each) => ({
          repository_id: id as number,
          digest: digestOf(each),
          media_type: mediaTypes.image,
          subject: one.digest,
          size_bytes: 1,
          image_bytes: 1,
          pushed_at: start,
        })),
      ),
    );
    await change('UPDATE manifests SET untagged_at = NULL');
    clock.now = start + 7;
    await remove('app', one.digest);
    const since = 'SELECT COUNT(*) AS count FROM manifests WHERE untagged_at = ? AND repository_id > 0';
    t.deepEqual(await rows(since, [start + 7]), [{ count: 201 }]);
    t.deepEqual((await events()).at(-1)!.details, { tags: names.slice(0, 50), tag_count: 201 });
    t.deepEqual(await rows("SELECT COUNT(*) AS count FROM deleted_items WHERE type = 'tag'"), [{ count: 201 }]);
    t.is((await counts('app'))![0], 0);
    t.deepEqual(await rows('SELECT COUNT(*) AS count FROM tags'), [{ count: 0 }]);
  });

  test(`${dialect}: a deletion that can be undone keeps the manifest, and its restoration brings all of it back`, async (t) => {
    const world = await open(t, dialect, 1000);
    const { image, index, push, remove, stateOf, tags, items, counts, clock, deleted, linkedAt, events, change } =
      world;
    const one = await image('app', ['v1', 'v2'], ['a', 'b']);
    const list = await index('app', [], [one]);
    const before = await counts('app');
    await change('UPDATE manifests SET pull_count = 5 WHERE digest = ?', [one.digest]);
    clock.now = start + 20;
    await remove('app', one.digest);
    t.deepEqual(await counts('app'), [0, 1, (before![2] as number) - one.size]);
    t.is((await stateOf(one))![0], 0);
    t.deepEqual((await stateOf(list))![1], list.size);
    const noted = { digest: one.digest, deleted_at: start + 20, ends_at: start + 1020 };
    t.deepEqual(await items(), [
      { ...noted, type: 'manifest', reference: one.digest, size_bytes: one.size, changed_at: 0 },
      { ...noted, type: 'tag', reference: 'v1', size_bytes: 0, changed_at: start },
      { ...noted, type: 'tag', reference: 'v2', size_bytes: 0, changed_at: start },
    ]);
    // Pushed again, pulled and deleted again, it is one deletion with the tags and pulls of both.
    clock.now = start + 30;
    await push('app', one, ['v2', 'v3']);
    await change('UPDATE manifests SET pull_count = 2 WHERE digest = ? AND repository_id > 0', [one.digest]);
    clock.now = start + 40;
    await remove('app', one.digest);
    const [item, ...others] = await deleted.list(1, 10);
    t.deepEqual([others.length, item!.reference, item!.deletedAt], [0, one.digest, start + 40]);
    t.is((await stateOf(one))![3], 7);
    // A tag that another manifest has now is left out.
    const two = await image('app', ['v3'], ['a']);
    clock.now = start + 50;
    const { left } = await deleted.restore(1, item!.id);
    t.deepEqual(left, ['v3']);
    t.deepEqual(await tags(), ['v1', 'v2', 'v3']);
    t.deepEqual(await stateOf(one), [1, one.size + 4, start + 50, 7]);
    t.is((await stateOf(list))![1], list.size + one.size + 4);
    t.deepEqual(await counts('app'), [3, 3, (before![2] as number) + two.size]);
    t.deepEqual(await items(), []);
    t.deepEqual((await events()).at(-1), {
      type: 'manifest.restored',
      time: start + 50,
      subject_name: 'app',
      subject_reference: one.digest,
      details: { deleted_at: new Date(start + 40).toISOString() },
    });
    t.deepEqual(await linkedAt('b'), [start + 40]);
  });
}

test('a manifest that was pushed again since its deletion gets the pulls and the tags of before', async (t) => {
  const { image, push, remove, stateOf, tags, deleted, change, counts, rows } = await open(t, 'sqlite', 1000);
  const one = await image('app', ['v1'], ['a']);
  await change('UPDATE manifests SET pull_count = 5');
  await remove('app', one.digest);
  await push('app', one, ['v2']);
  await change('UPDATE manifests SET pull_count = 2 WHERE repository_id > 0');
  const [item] = await deleted.list(1, 10);
  t.deepEqual((await deleted.restore(1, item!.id)).left, []);
  t.deepEqual(await tags(), ['v1', 'v2']);
  t.is((await stateOf(one))![3], 7);
  t.deepEqual(await rows('SELECT COUNT(*) AS count FROM manifests'), [{ count: 1 }]);
  t.deepEqual(await counts('app'), [2, 1, one.size + 3]);
});

test('what was deleted after an image comes back with it, and what was deleted before does not', async (t) => {
  const { image, index, remove, stateOf, deleted } = await open(t, 'sqlite', 1000);
  const [child, gone] = [await image('app', [], ['a']), await image('app', [], ['b'])];
  const list = await index('app', ['list'], [child, gone]);
  const [sign, old] = [await image('app', [], ['s'], subjectOf(list)), await image('app', [], ['t'], subjectOf(list))];
  for (const { digest } of [gone, old, list, child, sign]) await remove('app', digest);
  const item = (await deleted.list(1, 10)).find(({ digest }) => digest === list.digest);
  await deleted.restore(1, item!.id);
  const there = [];
  for (const each of [list, child, sign, gone, old]) there.push((await stateOf(each))![0]);
  t.deepEqual(there, [1, 1, 1, 0, 0]);
  t.is((await stateOf(list))![1], list.size + child.size + 3);
});

test('a deleted tag comes back with its manifest, unless that is gone or the tag is another one', async (t) => {
  const { image, push, remove, tags, deleted, items, rows, events, clock } = await open(t, 'sqlite', 1000);
  const one = await image('app', ['v1', 'v2'], ['a']);
  clock.now = start + 5;
  await remove('app', 'v1');
  await remove('app', one.digest);
  const tag = async () => (await deleted.list(1, 10)).find(({ type }) => type === 'tag')!;
  clock.now = start + 6;
  t.deepEqual((await deleted.restore(1, (await tag()).id)).left, []);
  t.deepEqual([await tags(), await items()], [['v1', 'v2'], []]);
  t.deepEqual(await rows("SELECT updated_at FROM tags WHERE name = 'v1'"), [{ updated_at: start }]);
  t.deepEqual(
    (await events()).slice(-2).map(({ type, subject_reference: reference }) => [type, reference]),
    [
      ['manifest.restored', one.digest],
      ['tag.restored', 'v1'],
    ],
  );
  await remove('app', 'v1');
  const two = await image('app', ['v1'], ['b']);
  const taken = await t.throwsAsync(deleted.restore(1, (await tag()).id), { name: 'AlreadyExists' });
  t.is(taken.message, `app:v1 exists again, with another manifest. Delete that tag first, or pull app@${one.digest}.`);
  await remove('app', 'v1');
  await remove('app', one.digest);
  const manifest = (await deleted.list(1, 10)).find(({ type }) => type === 'manifest')!;
  await deleted.purge(1, manifest.id, 'a reason');
  const first = (await deleted.list(1, 10)).find(({ digest }) => digest === one.digest)!;
  const gone = await t.throwsAsync(deleted.restore(1, first.id), { name: 'ManifestUnknown' });
  t.is(gone.message, `app:v1 pointed to ${one.digest}, which was deleted for good.`);
  await deleted.purge(1, first.id, 'a reason');
  t.is((await deleted.list(1, 10)).length, 1);
  t.deepEqual(await rows('SELECT digest FROM manifests'), [{ digest: two.digest }]);
  await push('app', two, ['v1']);
  const last = await tag();
  t.deepEqual((await deleted.restore(1, last.id)).left, [], 'the tag has this manifest already');
});

test('a purge deletes the rows of a manifest, and its blobs are unused since then', async (t) => {
  const { image, remove, deleted, rows, linkedAt, clock } = await open(t, 'sqlite', 1000);
  const [one, two] = [await image('app', [], ['a']), await image('app', [], ['b'])];
  await remove('app', one.digest);
  clock.now = start + 9;
  const [item] = await deleted.list(1, 10);
  await deleted.purge(1, item!.id, 'a reason');
  t.deepEqual([await linkedAt('a'), await linkedAt('b')], [[start + 9], [start]]);
  t.deepEqual(await rows('SELECT digest FROM manifests'), [{ digest: two.digest }]);
  t.deepEqual(
    await rows('SELECT DISTINCT digest FROM manifest_references ORDER BY digest'),
    [digestOf('b'), digestOf('{}')].toSorted().map((digest) => ({ digest })),
  );
});

test('children and referrers of an image that was unused for long are unused since then', async (t) => {
  const { image, index, stateOf, database, rows, change } = await open(t);
  const [one, young] = [await image('app', [], ['a']), await image('app', [], ['b'])];
  const list = await index('app', [], [one, young]);
  const sign = await image('app', [], ['s'], subjectOf(list));
  await change('UPDATE manifests SET pushed_at = ?, untagged_at = NULL', [start - 900]);
  await change('UPDATE manifests SET untagged_at = ? WHERE digest = ?', [start - 100, young.digest]);
  const [{ id } = {}] = await rows('SELECT id FROM repositories');
  const remove = (digest: HostedImage['digest']) =>
    database.transaction((tx) => deleteManifest(tx, id as number, digest, { now: start, deletedFor: 0 }, start - 500));
  t.is(await remove(list.digest), 1);
  t.is(await remove(list.digest), 0);
  const untagged = [];
  for (const each of [one, young, sign]) untagged.push((await stateOf(each))![2]);
  t.deepEqual(untagged, [start - 500, start - 100, start - 500]);
});
