import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { keeperOf } from '../../../src/oci/hosted/kept-images.ts';
import { retainImages } from '../../../src/oci/hosted/retention.ts';
import { retainTags, type TagRule } from '../../../src/oci/hosted/tag-retention.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { changedDatabase, dialects } from '../../support/databases.ts';
import { hostedStart as start, openHostedImages, type HostedImage } from '../../support/hosted-images.ts';

/** Hosted images, and the jobs that delete some of them. */
async function open(t: ExecutionContext, dialect?: Dialect) {
  const world = await openHostedImages(t, dialect);
  const { database, rows, change } = world;
  const common = { deletedFor: 0, signal: new AbortController().signal };
  const images = async (
    now: number,
    { protect = [] as string[], dryRun = false, untaggedAfter = 100, from = database } = {},
  ) => {
    const said: string[] = [];
    const say = (line: string) => said.push(line);
    const deleted = await retainImages(from, { ...common, now, untaggedAfter, protect, dryRun, say });
    return { deleted, said };
  };
  const tags = async (
    rules: readonly Partial<TagRule>[],
    now: number,
    { protect = [] as string[], dryRun = false, from = database } = {},
  ) => {
    const said: string[] = [];
    const whole = rules.map((each) => ({
      isFor: () => true,
      matches: () => true,
      keepNewest: 0,
      keepUsedFor: undefined,
      ...each,
    }));
    const say = (line: string) => said.push(line);
    const deleted = await retainTags(from, { ...common, now, rules: whole, protect, dryRun, say });
    return { deleted, said };
  };
  const left = async () => (await rows('SELECT digest FROM manifests ORDER BY id')).map(({ digest }) => digest);
  const tagsLeft = async () =>
    (await rows('SELECT name FROM tags ORDER BY repository_id, name')).map(({ name }) => name);
  /** Sets when a manifest has lost its last tag. */
  const untag = ({ digest }: HostedImage, at: number) =>
    change('UPDATE manifests SET untagged_at = ? WHERE digest = ?', [at, digest]);
  return { ...world, retain: { images, tags }, left, tagsLeft, untag };
}

const subjectOf = ({ digest, size }: HostedImage) => ({ subject: { mediaType: mediaTypes.image, digest, size } });
const lineOf = (...all: HostedImage[]) => all.map(({ digest }) => `manifest app@${digest}`);

for (const dialect of dialects) {
  test(`${dialect}: images are deleted that were unused for longer than allowed, and then those that only they used`, async (t) => {
    const { image, index, retain, left, untag, change } = await open(t, dialect);
    const tagged = await image('app', ['v1'], ['tagged']);
    const [child, shared] = [await image('app', [], ['child']), await image('app', [], ['shared'])];
    const used = await index('app', ['used'], [shared]);
    const list = await index('app', [], [child, shared]);
    const sign = await image('app', [], ['sign'], subjectOf(list));
    const [old, young] = [await image('app', [], ['old']), await image('app', [], ['young'])];
    await untag(young, start + 1);
    // The same image in another repository is another one, and a tag there does not count here.
    await image('else', ['v1'], ['old']);
    const all = await left();
    t.deepEqual(await retain.images(start + 100), { deleted: 0, said: [] });
    t.deepEqual(await retain.images(start + 101, { dryRun: true }), { deleted: 2, said: lineOf(list, old) });
    t.deepEqual(await left(), all);
    // Without a date of its last tag, that of its push counts.
    await change('UPDATE manifests SET untagged_at = NULL WHERE digest = ?', [old.digest]);
    t.deepEqual(await retain.images(start + 101), { deleted: 4, said: lineOf(list, old, child, sign) });
    t.deepEqual(
      await left(),
      [tagged, shared, used, young, old].map(({ digest }) => digest),
    );
    t.deepEqual(await retain.images(start + 102), { deleted: 1, said: lineOf(young) });
  });

  test(`${dialect}: what a rule or the settings keep stays, with all that it needs`, async (t) => {
    const { image, index, retain, left, rule, rows, database } = await open(t, dialect);
    const child = await image('app', [], ['child']);
    const list = await index('app', [], [child]);
    const outer = await index('app', [], [list]);
    const other = await image('app', [], ['other']);
    const [{ id: repositoryId } = {}] = await rows('SELECT id FROM repositories');
    const place = { accountId: 1, repositoryId: repositoryId as number, name: 'app' };
    const keeper = (digest: HostedImage['digest'], always?: string[]) => keeperOf(database, place, digest, always);
    t.is(await keeper(child.digest), undefined);
    t.is(await keeper(child.digest, [`app@${outer.digest}`]), `app@${outer.digest}`);
    t.is(await keeper(digestOf('child'), [`app@${outer.digest}`]), `app@${outer.digest}`, 'its layer');
    t.is(await keeper(other.digest, [`app@${outer.digest}`]), undefined);
    t.is(await keeper(digestOf('none'), [`app@${digestOf('none')}`]), undefined, 'it is not there');
    t.is(await keeperOf(database, { ...place, repositoryId: 99 }, child.digest, ['app']), undefined);
    const protect = [`app@${list.digest}`];
    t.deepEqual(await retain.images(start + 101, { protect, dryRun: true }), {
      deleted: 2,
      said: lineOf(outer, other),
    });
    await rule([`app@${other.digest}`]);
    t.deepEqual(await retain.images(start + 101, { protect }), { deleted: 1, said: lineOf(outer) });
    t.deepEqual(
      await left(),
      [child, list, other].map(({ digest }) => digest),
    );
    await image('app', ['v1'], ['tagged']);
    await rule([], ['app:v*']);
    t.is(await keeper(digestOf('tagged')), 'app:v1');
  });

  test(`${dialect}: tags are deleted beyond the newest ones, by the first rule that matches`, async (t) => {
    const { image, retain, tagsLeft, clock, counts, rows } = await open(t, dialect);
    const push = async (at: number, name: string, ...tags: string[]) => {
      clock.now = start + at;
      return image(name, tags, [`${name} ${at}`]);
    };
    await push(1, 'app', 'v1', 'w1');
    await push(2, 'app', 'v2', 'x1');
    // Of one push, the later name is the newer one.
    const digest = 'a'.repeat(64);
    const belonging = [`sha256-${digest}`, `sha512-${digest}.sig`];
    await push(3, 'app', 'v3', 'v4', ...belonging, 'sha256-short', `sha256-${digest}a`, `of-sha256-${digest}`);
    await push(4, 'other', 'v1', 'v2');
    await push(5, 'skipped', 'v1', 'v2');
    const rules = [
      {
        matches: (tag: string) => tag.startsWith('v'),
        keepNewest: 2,
        isFor: (_: number, name: string) => name === 'app',
      },
      {
        matches: (tag: string) => tag !== 'w1',
        keepNewest: 0,
        isFor: (account: number, name: string) => account === 1 && name !== 'skipped',
      },
      { isFor: (account: number) => account === 2 },
    ];
    const names = ['sha256-short', `sha256-${digest}a`, `of-sha256-${digest}`, 'x1', 'v2', 'v1'];
    const lines = [...names.map((each) => `tag app:${each}`), 'tag other:v2', 'tag other:v1'];
    const all = await tagsLeft();
    t.deepEqual(await retain.tags(rules, start + 9, { dryRun: true }), { deleted: 8, said: lines });
    t.deepEqual(await tagsLeft(), all);
    t.deepEqual(await retain.tags(rules, start + 9), { deleted: 8, said: lines });
    t.deepEqual(await tagsLeft(), [...belonging, 'v3', 'v4', 'w1', 'v1', 'v2']);
    t.is((await counts('app'))![0], 5);
    t.deepEqual(
      await rows("SELECT COUNT(*) AS count FROM events WHERE type = 'tag.deleted' AND time = ?", [start + 9]),
      [{ count: 8 }],
    );
    t.deepEqual(await retain.tags(rules, start + 9), { deleted: 0, said: [] });
    t.deepEqual(await retain.tags([], start + 9), { deleted: 0, said: [] });
  });

  test(`${dialect}: what changes between the decision and the deletion stays, and the repository is locked meanwhile`, async (t) => {
    const { image, push, retain, left, tagsLeft, database, change, rule, rows, clock } = await open(t, dialect);
    const lockedAt = async () =>
      (await rows("SELECT updated_at FROM repositories WHERE name = 'app'"))[0]!['updated_at'];
    /** A database that does `work` before the first transaction. */
    const before = (work: () => Promise<unknown>) => {
      let begun: Promise<unknown> | undefined;
      return changedDatabase(database, {
        transaction: async (...given) => {
          await (begun ??= work());
          return database.transaction(...given);
        },
      });
    };
    const old = await image('app', [], ['old']);
    const kept = async (now: number, work: () => Promise<unknown>, protect: string[] = []) => {
      t.deepEqual(await retain.images(now, { from: before(work), protect }), { deleted: 0, said: [] });
      t.is(await lockedAt(), now);
      t.deepEqual(await left(), [old.digest]);
    };
    await kept(start + 101, () => push('app', old, ['v1']));
    await change('DELETE FROM tags');
    await change('UPDATE manifests SET untagged_at = NULL');
    await kept(start + 102, () => change('UPDATE manifests SET untagged_at = ?', [start + 2]));

    await push('app', old, ['a', 'b', 'c']);
    const rules = [{ keepUsedFor: 100 }];
    const keptTags = async (now: number, work: () => Promise<unknown>, said: string[], more = {}) => {
      t.deepEqual((await retain.tags(rules, now, { from: before(work), ...more })).said, said);
      t.is(await lockedAt(), now);
    };
    const pulled = (at: number) => () => change('UPDATE manifests SET last_pulled_at = ?', [at]);
    await keptTags(start + 201, pulled(start + 150), []);
    await pulled(0)();
    await keptTags(start + 202, () => rule(['app:*']), []);
    await rule([]);
    clock.now = start + 200;
    await keptTags(start + 203, () => push('app', old, ['b']), ['tag app:c', 'tag app:a']);
    t.deepEqual(await tagsLeft(), ['b']);
  });
}

test('a tag that was pushed or pulled lately is kept, also as an image of its index', async (t) => {
  const { image, index, retain, tagsLeft, clock, change } = await open(t);
  const [one, two, three] = [
    await image('app', ['one'], ['1']),
    await image('app', ['two'], ['2']),
    await image('app', [], ['3']),
  ];
  await index('app', ['list'], [three]);
  await image('app', ['never'], ['4']);
  clock.now = start + 50;
  await image('app', ['late'], ['5']);
  const pull = ({ digest }: HostedImage, at: number) =>
    change('UPDATE manifests SET last_pulled_at = ? WHERE digest = ?', [at, digest]);
  await pull(one, start + 49);
  await pull(two, start + 50);
  await pull(three, start + 60);
  const rules = [{ keepUsedFor: 100 }];
  t.deepEqual((await retain.tags(rules, start + 100)).said, []);
  t.deepEqual((await retain.tags(rules, start + 150)).said, ['tag app:one', 'tag app:never']);
  t.deepEqual((await retain.tags(rules, start + 151)).said, ['tag app:late', 'tag app:two']);
  t.deepEqual(await tagsLeft(), ['list']);
  t.deepEqual((await retain.tags([{ keepUsedFor: undefined, keepNewest: 1 }], start + 151)).said, []);
  t.deepEqual((await retain.tags([{ keepUsedFor: 0 }], start + 151)).said, ['tag app:list']);
});

test('tags that a rule or the settings keep are not deleted, but count among the newest', async (t) => {
  const { image, retain, tagsLeft, rule, clock } = await open(t);
  for (const [at, tag] of ['a', 'b', 'c', 'd', 'e'].entries()) {
    clock.now = start + at;
    await image('app', [tag], [tag]);
  }
  await rule(['app:b']);
  const rules = [{ keepNewest: 1 }];
  const kept = { protect: ['app:c'] };
  t.deepEqual((await retain.tags(rules, start + 9, { ...kept, dryRun: true })).said, ['tag app:d', 'tag app:a']);
  t.deepEqual((await retain.tags(rules, start + 9, kept)).said, ['tag app:d', 'tag app:a']);
  t.deepEqual(await tagsLeft(), ['b', 'c', 'e']);
});

test('many tags and repositories are decided about, page by page', async (t) => {
  const { image, push, retain, tagsLeft, database } = await open(t);
  const one = await image('app', [], ['1']);
  const names = Array.from({ length: 601 }, (_, at) => `t${String(at).padStart(4, '0')}`);
  await push('app', one, names);
  await database.transaction((tx) =>
    tx.insertNew(
      'repositories',
      names.map((name) => ({ account_id: 1, name: `r/${name}`, created_at: 0, updated_at: 0, tag_count: 1 })),
    ),
  );
  await image('zz', ['v1'], ['1']);
  const atOnce: number[] = [];
  const from = changedDatabase(database, {
    transaction: async (work, options) => {
      const result = await database.transaction(work, options);
      atOnce.push((result as unknown[]).length);
      return result;
    },
  });
  const { deleted, said } = await retain.tags([{ keepNewest: 20 }], start + 1, { from });
  // Of the first page, and of the second one.
  t.deepEqual(atOnce, [...Array.from({ length: 9 }, () => 50), 30, 50, 50, 1], 'a push does not wait for all of them');
  t.deepEqual([deleted, said[0], said.at(-1)], [581, 'tag app:t0580', 'tag app:t0000']);
  t.deepEqual(await tagsLeft(), [...names.slice(-20), 'v1']);
  t.deepEqual((await retain.tags([{ isFor: (_, name) => name === 'zz' }], start + 1)).said, ['tag zz:v1']);
});
