import test, { type ExecutionContext } from 'ava';
import { Names } from '../../src/accounts/names.ts';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import {
  deletionOf,
  DeletedItems,
  endDeletion,
  noteDeleted,
  noteDeletedTags,
  replaceDeletion,
  tagsDeletedWith,
  type DeletedItem,
} from '../../src/permanence/deleted.ts';
import { deletionWindow, Permanence } from '../../src/permanence/permanence.ts';
import { parseRules } from '../../src/permanence/rule-schema.ts';
import { Guard, guardOf, kept, rulesOf, tagFrozen } from '../../src/permanence/rules.ts';
import type { Actor } from '../../src/runtime/caller.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { asActor } from '../support/as-actor.ts';

// What is stored of deletions that can be undone, and what rules decide, without a server.

const ann: Actor = { kind: 'person', id: 'a', name: 'ann' };

const image = {
  accountId: 1,
  kind: 'container',
  type: 'manifest',
  name: 'Team/App',
  reference: 'sha256:m',
  digest: 'sha256:m',
  size: 7,
} as const;
const tagOf = (reference: string, partOf = 0) => ({ ...image, type: 'tag' as const, reference, changedAt: 3, partOf });
const version = {
  accountId: 1,
  kind: 'package',
  type: 'version',
  name: 'Lib',
  reference: '1.0.0',
  digest: 'sha256:v',
  size: 9,
} as const;
const deletion = { now: 100, deletedFor: 50 };

async function open(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const calls: string[] = [];
  const contentsOf = (kind: string) => ({
    restore: async (_: unknown, { id, name, reference }: DeletedItem) => {
      calls.push(`restore ${kind} ${id} ${name} ${reference}`);
      return [`left of ${reference}`];
    },
    purge: async (_: unknown, { id, reference }: DeletedItem) => {
      await new Promise(setImmediate);
      if (reference === 'stuck') throw new Error('stuck');
      calls.push(`purge ${kind} ${id} ${reference}`);
    },
  });
  const contents = new Map(['package', 'container'].map((kind) => [kind, contentsOf(kind)]));
  const items = new DeletedItems(database, contents, () => 500);
  return {
    database,
    calls,
    items,
    note: (what: Parameters<typeof noteDeleted>[1], when = deletion) =>
      asActor(ann, () => database.transaction((tx) => noteDeleted(tx, what, when))),
    noteTags: (...tags: Parameters<typeof noteDeletedTags>[1]) =>
      database.transaction((tx) => noteDeletedTags(tx, tags, deletion)),
    ids: async () =>
      (await database.select<{ id: number }>('SELECT id FROM deleted_items ORDER BY id')).map(({ id }) => id),
    events: async () =>
      (
        await database.select<{ type: string; kind: string; reference: string | null; details: string }>(
          `SELECT type, time, account_id AS account, subject_kind AS kind, subject_name AS name, subject_reference AS reference, details
           FROM events ORDER BY id`,
        )
      ).map(({ details, ...each }) => ({ ...each, details: JSON.parse(details) as object })),
  };
}

test('a deletion is noted with who deleted what and until when it can be undone, and its tags with it', async (t) => {
  const { database, items, note, noteTags } = await open(t);
  t.is(await note({ ...image, rowId: 5 }), 1);
  await noteTags(tagOf('v2', 1), { ...tagOf('v1', 1), changedAt: 4 }, tagOf('v1', 1), tagOf('other', 9));
  t.is(await note(tagOf('alone')), 6);
  t.is(await note({ ...version, rowId: 5 }), 7);
  await note({ ...version, accountId: 2 });
  const item = { ...image, id: 1, rowId: 5, changedAt: 0, deletedBy: ann, deletedAt: 100, endsAt: 150 };
  t.deepEqual(await deletionOf(database, 'container', 5), item);
  t.like(await deletionOf(database, 'package', 5), { id: 7, name: 'Lib', digest: 'sha256:v', size: 9 });
  t.is(await deletionOf(database, 'package', 6), undefined);
  const tags = async (after: string) =>
    (await tagsDeletedWith(database, { id: 1 }, after)).map(({ reference, changedAt }) => `${reference} ${changedAt}`);
  t.deepEqual([await tags(''), await tags('v1'), await tags('v2')], [['v1 4', 'v2 3'], ['v2 3'], []]);
  const listed = await items.list(1, 9);
  t.deepEqual(
    listed.map(({ id }) => id),
    [7, 6, 1],
    'without tags of a manifest',
  );
  t.deepEqual(listed[2], item);
  const { partOf: _, ...alone } = tagOf('alone');
  t.deepEqual(listed[1], { ...alone, id: 6, rowId: 0, deletedBy: ann, deletedAt: 100, endsAt: 150 });
  const page = async (limit: number, place: object) => (await items.list(1, limit, place)).map(({ id }) => id);
  t.deepEqual(
    [
      await page(2, {}),
      await page(2, { after: 6 }),
      await page(2, { isOldest: true }),
      await page(9, { isOldest: true, after: 1 }),
    ],
    [[7, 6], [1], [1, 6], [6, 7]],
  );
  await noteTags(...Array.from({ length: 101 }, (_, at) => tagOf(`m${String(at).padStart(3, '0')}`, 7)));
  t.deepEqual(
    [
      (await tagsDeletedWith(database, { id: 7 }, '')).length,
      (await tagsDeletedWith(database, { id: 7 }, 'm099')).length,
    ],
    [100, 1],
  );
});

test('a later deletion of a manifest has the tags of the earlier one', async (t) => {
  const { database, note, noteTags, ids } = await open(t);
  await note(image);
  await noteTags(tagOf('v1', 1), tagOf('v2', 99));
  const later = await note({ ...image, size: 8 });
  await database.transaction((tx) => replaceDeletion(tx, 1, later));
  t.deepEqual(await ids(), [2, 3, later]);
  t.deepEqual(
    (await tagsDeletedWith(database, { id: later }, '')).map(({ reference }) => reference),
    ['v1'],
  );
});

test('what is restored by a push is forgotten with its tags, and told', async (t) => {
  const { database, note, noteTags, ids, events } = await open(t);
  await note({ ...image, rowId: 5 });
  await noteTags(tagOf('v1', 1), tagOf('v2', 99));
  await note(tagOf('v3'));
  const item = (await deletionOf(database, 'container', 5))!;
  await database.transaction((tx) => endDeletion(tx, item, 120));
  t.deepEqual(await ids(), [3, 4]);
  const details = { deleted_at: '1970-01-01T00:00:00.100Z' };
  const about = {
    type: 'manifest.restored',
    time: 120,
    account: 1,
    kind: 'container',
    name: 'Team/App',
    reference: 'sha256:m',
  };
  t.deepEqual(await events(), [{ ...about, details }]);
  await database.transaction((tx) => endDeletion(tx, { ...item, id: 4, type: 'tag', reference: 'v3' }, 121));
  await database.transaction((tx) => endDeletion(tx, { ...item, ...version, id: 5 }, 122));
  t.deepEqual(
    (await events()).slice(1).map(({ type, reference, kind }) => `${type} ${kind} ${reference}`),
    ['tag.restored container v3', 'package.restored package 1.0.0'],
  );
});

const missing = (id: number) => ({
  name: 'NotFound',
  message: `This account has no deletion ${id} that can be undone.`,
});

test('a deletion is undone or made final by its account alone, for names that the token has', async (t) => {
  const { calls, items, note, noteTags, ids, events } = await open(t);
  await note(image);
  await noteTags(tagOf('v1', 1));
  await note(version);
  await note(tagOf('alone'));
  const other = new Names({ containers: ['team/other'], packages: ['Lib'] });
  for (const [account, id, names] of [
    [2, 1, undefined],
    [1, 2, undefined],
    [1, 9, undefined],
    [1, 1, other],
    [1, 4, new Names({ packages: ['*'] })],
  ] as const) {
    await t.throwsAsync(items.restore(account, id, names), missing(id));
    await t.throwsAsync(items.purge(account, id, 'why', names), missing(id));
  }
  t.deepEqual(calls, []);
  const own = new Names({ containers: ['Team/*'], packages: ['Lib'] });
  const { item, left } = await items.restore(1, 1, own);
  t.deepEqual([item.id, item.deletedBy, left], [1, ann, ['left of sha256:m']]);
  t.deepEqual([await ids(), await events()], [[1, 2, 3, 4], []], 'the protocol forgets it');
  await items.purge(1, 3, 'a secret', other);
  await items.purge(1, 1, 'because', own);
  t.deepEqual(await ids(), [4]);
  await items.purge(1, 4, 'also');
  t.deepEqual(calls, [
    'restore container 1 Team/App sha256:m',
    'purge package 3 1.0.0',
    'purge container 1 sha256:m',
    'purge container 4 alone',
  ]);
  const about = { time: 500, account: 1, kind: 'container', name: 'Team/App' };
  t.deepEqual(await events(), [
    {
      ...about,
      type: 'package.purged',
      kind: 'package',
      name: 'Lib',
      reference: '1.0.0',
      details: { reason: 'a secret' },
    },
    { ...about, type: 'manifest.purged', reference: 'sha256:m', details: { reason: 'because' } },
    { ...about, type: 'tag.purged', reference: 'alone', details: { reason: 'also' } },
  ]);
  await note(tagOf('stuck'));
  await t.throwsAsync(items.purge(1, 5, 'x'), { message: 'stuck' });
  t.deepEqual([(await ids()).length, (await events()).length], [1, 3]);
});

test('what was deleted long enough ago is deleted for good, in the order in which it ends', async (t) => {
  const { database, calls, items, note, noteTags, ids, events } = await open(t);
  const { signal } = new AbortController();
  await note(tagOf('second'), { now: 60, deletedFor: 40 });
  await note(tagOf('first'), { now: 0, deletedFor: 99 });
  await note(tagOf('third'), { now: 100, deletedFor: 0 });
  await note(tagOf('later'), { now: 100, deletedFor: 1 });
  await noteTags({ ...tagOf('of the first', 2) });
  t.deepEqual(await items.end(100, { dryRun: true, signal }), { ended: 3 });
  t.deepEqual([(await ids()).length, calls], [5, []]);
  t.deepEqual(await items.end(100, { dryRun: false, signal }), { ended: 3 });
  t.deepEqual(calls, ['purge container 2 first', 'purge container 1 second', 'purge container 3 third']);
  t.deepEqual([await ids(), await events()], [[4], []]);
  t.deepEqual(await items.end(100, { dryRun: false, signal }), { ended: 0 });
  await t.throwsAsync(items.end(101, { dryRun: false, signal: AbortSignal.abort(new Error('stopped')) }), {
    message: 'stopped',
  });

  const rows = Array.from({ length: 201 }, (_, at): Row => ({
    account_id: 1,
    kind: 'container',
    type: 'tag',
    name: 'a',
    reference: `${at}`,
    digest: '',
    size_bytes: 0,
    row_id: 0,
    part_of: 0,
    changed_at: 0,
    deleted_by: JSON.stringify(ann),
    deleted_at: 0,
    // The pages end within one time, and with one.
    ends_at: at < 150 ? 10 : at < 200 ? 11 : 12,
  }));
  await database.transaction(async (tx) => {
    for (const some of batches(rows)) await tx.insertNew('deleted_items', some);
  });
  t.deepEqual(await items.end(12, { dryRun: true, signal }), { ended: 201 });
  t.deepEqual(await items.end(11, { dryRun: true, signal }), { ended: 200 });
});

test('what was restored while it ends is not deleted', async (t) => {
  const { database, calls, note } = await open(t);
  await note(version);
  const gone = changedDatabase(database, {
    transaction: async (work, options) => {
      await database.transaction((tx) => tx.run('DELETE FROM deleted_items'));
      return database.transaction(work, options);
    },
  });
  const contents = { restore: () => Promise.resolve([]), purge: () => Promise.resolve(void calls.push('purge')) };
  const items = new DeletedItems(gone, new Map([['package', contents]]), () => 0);
  t.deepEqual(await items.end(1000, { dryRun: false, signal: new AbortController().signal }), { ended: 1 });
  t.deepEqual(calls, []);
});

const none = { freeze: { images: [] }, keep: { packages: [], images: [] } };

test('the rules of an account are stored, and what came and went is told', async (t) => {
  const { database, events } = await open(t);
  let now = 10;
  const permanence = new Permanence(database, () => now);
  const account = { id: 3, name: 'team' };
  t.deepEqual(await permanence.get(3), none);
  const rules = { freeze: { images: ['a:v*'] }, keep: { packages: ['Lib'], images: ['b'] } };
  await permanence.put(account, rules);
  now = 20;
  await permanence.put(account, rules);
  now = 30;
  await permanence.put(account, { freeze: { images: ['b', 'a:v*'] }, keep: { packages: [], images: ['b'] } });
  t.deepEqual(await permanence.get(3), { freeze: { images: ['b', 'a:v*'] }, keep: { packages: [], images: ['b'] } });
  t.deepEqual(await permanence.get(4), none);
  t.deepEqual(await database.select('SELECT account_id, changed_at FROM permanence WHERE account_id > 0'), [
    { account_id: 3, changed_at: 30 },
  ]);
  const about = { type: 'permanence.changed', account: 3, kind: 'account', name: 'team', reference: null };
  t.deepEqual(await events(), [
    { ...about, time: 10, details: { added: ['freeze image a:v*', 'keep package Lib', 'keep image b'], removed: [] } },
    { ...about, time: 30, details: { added: ['freeze image b'], removed: ['keep package Lib'] } },
  ]);
});

test('how long deletions can be undone is as set, or depends on the age of the installation', async (t) => {
  const { database } = await open(t);
  await database.transaction((tx) => tx.run('DELETE FROM permanence'));
  t.is(await deletionWindow(database, undefined), 7 * 86_400_000);
  t.is(await deletionWindow(database, 0), 0);
  t.is(await deletionWindow(database, 5), 5);
  const row = { rules: JSON.stringify(none), changed_at: 0 };
  await database.transaction((tx) => tx.insertNew('permanence', [{ account_id: 1, ...row }]));
  t.is(await deletionWindow(database, undefined), 7 * 86_400_000);
  await database.transaction((tx) => tx.insertNew('permanence', [{ account_id: 0, ...row }]));
  t.is(await deletionWindow(database, undefined), 0, 'it is older than this');
  t.is(await deletionWindow(database, 5), 5);
});

test('rules decide about tags, versions and digests', async (t) => {
  const rules = {
    freeze: { images: ['Team/*:v*', 'whole'] },
    keep: { packages: ['Contoso.*@2.*', 'Fabrikam'], images: ['app:LTS', 'app@sha256:1*', 'all'] },
  };
  const guard = new Guard(rules, ['always', 'Some:1.*', 'other@sha256:2']);
  const shown = (which: 'freezes' | 'keepsVersion' | 'keepsTag' | 'keepsDigest', ...cases: [string, string][]) =>
    cases.filter(([name, reference]) => guard[which](name, reference)).map((each) => each.join(' '));
  t.deepEqual(
    shown(
      'freezes',
      ['team/a', 'v1'],
      ['team/a', 'V1'],
      ['team/a', 'x'],
      ['team', 'v1'],
      ['whole', 'x'],
      ['app', 'LTS'],
    ),
    ['team/a v1', 'whole x'],
  );
  t.deepEqual(
    shown(
      'keepsVersion',
      ['Contoso.Lib', '2.0.0'],
      ['CONTOSO.LIB', '2.0.0-A'],
      ['Contoso.Lib', '1.0.0'],
      ['fabrikam', '1.0.0'],
      ['Always', '1.0.0'],
      ['some', '1.0'],
      ['some', '2.0'],
      ['app', 'lts'],
    ),
    ['Contoso.Lib 2.0.0', 'CONTOSO.LIB 2.0.0-A', 'fabrikam 1.0.0', 'Always 1.0.0', 'some 1.0'],
  );
  t.deepEqual(
    shown(
      'keepsTag',
      ['team/a', 'v1'],
      ['app', 'LTS'],
      ['app', 'lts'],
      ['app', 'sha256:1'],
      ['all', 'x'],
      ['always', 'x'],
      ['some', '1.0'],
      ['other', 'sha256:2'],
    ),
    ['team/a v1', 'app LTS', 'all x', 'always x', 'some 1.0'],
  );
  t.deepEqual(
    shown(
      'keepsDigest',
      ['app', 'sha256:12'],
      ['app', 'sha256:2'],
      ['app', 'LTS'],
      ['all', 'sha256:9'],
      ['always', 'sha256:9'],
      ['other', 'sha256:2'],
      ['some', '1.0'],
      ['whole', 'sha256:1'],
    ),
    ['app sha256:12', 'all sha256:9', 'always sha256:9', 'other sha256:2'],
  );
  t.deepEqual([guard.freezesTags, guard.keepsImages], [true, true]);
  const has = (given: object, always: string[] = []) => {
    const each = new Guard({ ...none, ...given }, always);
    return [each.freezesTags, each.keepsImages];
  };
  t.deepEqual(has({}), [false, false]);
  t.deepEqual(has({ freeze: { images: ['a'] } }), [true, true]);
  t.deepEqual(has({ keep: { packages: [], images: ['a'] } }), [false, true]);
  t.deepEqual(has({ keep: { packages: ['a'], images: [] } }), [false, false]);
  t.deepEqual(has({}, ['a']), [false, true]);

  const { database } = await open(t);
  t.deepEqual(await rulesOf(database, 1), none);
  await new Permanence(database, () => 0).put({ id: 1, name: 'a' }, rules);
  t.true((await guardOf(database, 1)).freezes('team/a', 'v1'));
  t.false((await guardOf(database, 1)).keepsVersion('always', '1'));
  t.true((await guardOf(database, 2, ['always'])).keepsVersion('always', '1'));
  t.false((await guardOf(database, 2, ['always'])).freezesTags);
});

test('a refusal of a rule says what is kept or frozen, and who can change that', (t) => {
  const { name, message } = kept('app:LTS');
  t.deepEqual(
    [name, message],
    [
      'Kept',
      'app:LTS cannot be deleted: a rule of this account keeps it. An administrator can change the rules on the page "Freeze and keep", or with PUT /v1/account/permanence.',
    ],
  );
  const frozen = tagFrozen('app', 'v1');
  t.deepEqual([frozen.name, frozen.message, frozen.detail], [
    'TagFrozen',
    "The image tag 'v1' already exists in the 'app' repository and cannot be overwritten because it is frozen (immutable). Push under another tag.",
    { name: 'app', tag: 'v1' },
  ] as unknown[]);
});

const many = (count: number) => Array.from({ length: count }, (_, at) => `a${at}`);

test('rules are read, and the first wrong one is named', (t) => {
  t.deepEqual(parseRules({}), none);
  t.deepEqual(parseRules({ keep: { images: ['a'] } }), { ...none, keep: { packages: [], images: ['a'] } });
  for (const given of [
    { freeze: { images: ['team/*', 'team/*:v*', ...many(98)] } },
    { keep: { packages: ['Contoso.*', 'Contoso.Core@2.*', 'x'.repeat(400)] } },
    { keep: { images: ['a:b', `a@sha256:${'0'.repeat(64)}`] } },
  ])
    t.notThrows(() => parseRules(given), JSON.stringify(given).slice(0, 60));
  const images = 'expected patterns such as team/* or team/*:v*, without spaces and commas';
  const packages = 'expected patterns such as Contoso.* or Contoso.Core@2.*, without spaces and commas';
  const both = 'expected patterns such as team/*, team/*:v* or team/api@sha256:…, without spaces and commas';
  for (const [given, message] of [
    [{ freeze: { images: ['a', 'a@b'] } }, `freeze.images.1: ${images}`],
    [{ freeze: { images: ['a:'] } }, `freeze.images.0: ${images}`],
    [{ freeze: { images: [7] } }, `freeze.images.0: ${images}`],
    [{ freeze: { images: many(101) } }, 'freeze.images: expected at most 100 patterns'],
    [{ keep: { packages: ['a:b'] } }, `keep.packages.0: ${packages}`],
    [{ keep: { packages: ['a@b:c'] } }, `keep.packages.0: ${packages}`],
    [{ keep: { packages: ['x'.repeat(401)] } }, 'keep.packages.0: expected at most 400 characters'],
    [{ keep: { images: ['a b'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a,b'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a\\b'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a:b:c'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a@b@c'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: [':b'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a\u0001'] } }, `keep.images.0: ${both}`],
    [{ keep: { images: ['a:b\u0001'] } }, `keep.images.0: ${both}`],
    [{ thaw: 1 }, ': Unrecognized key: "thaw"'],
    [{ keep: { all: 1 } }, 'keep: Unrecognized key: "all"'],
  ] as const)
    t.throws(() => parseRules(given), { name: 'Invalid', message }, JSON.stringify(given).slice(0, 60));
});
