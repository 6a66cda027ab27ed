import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { KnownBad } from '../../src/known-bad/known-bad.ts';
import { changedDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { hour, linesOf, listOf, openLists, osv } from '../support/known-bad.ts';

// What two lists of one database say, without a server.

const [one, two, three] = ['a', 'b', 'c'].map((each) => `sha256:${each.repeat(64)}`) as [string, string, string];

async function twoLists(t: ExecutionContext) {
  const folder = await folderUntilEnd(t);
  const [own, public_] = [join(folder, 'own'), join(folder, 'public')];
  await writeFile(
    own,
    linesOf([
      { id: 'SEC-2', reason: 'second', images: ['up.test/Bad', 'up.test/team/*'], digests: [one, two] },
      {
        id: 'SEC-1',
        reason: 'first',
        images: ['up.test/bad'],
        packages: [{ id: 'Lib', versions: '[1.0]' }],
        digests: [one],
      },
    ]),
  );
  await writeFile(public_, linesOf([osv('MAL-1', 'Lib'), osv('MAL-2', 'other'), osv('SEC-1', 'Third')]));
  const settings = [
    listOf({ name: 'public', file: public_, ids: ['MAL-*', 'sec-*'], refresh: hour }),
    listOf({ name: 'own', file: own }),
  ];
  const lists = await openLists(t, 'sqlite', settings);
  t.deepEqual(await lists.refresh(), { lists_read: 2, entries: 10 });
  return { lists, settings, own };
}

const second = { list: 'own', id: 'SEC-2', reason: 'second' };
const first = { list: 'own', id: 'SEC-1', reason: 'first' };
const all = { ranges: [[{ introduced: '0' }]] };
const malware = { list: 'public', id: 'MAL-1', reason: 'Lib is malware', ...all };
const third = { list: 'public', id: 'SEC-1', reason: 'Third is malware', ...all };

test('the entries of all lists for a name, an ID and digests are told in the order of lists and IDs', async (t) => {
  const { lists } = await twoLists(t);
  const { knownBad } = lists;
  t.deepEqual(await knownBad.of('package', 'LIB'), [{ ...first, range: '[1.0]' }, malware]);
  t.deepEqual(await knownBad.of('image', 'Up.test/bad'), [first, second]);
  t.deepEqual(await knownBad.of('image', 'up.test/Team/x/y'), [second], 'by a pattern');
  t.deepEqual(await knownBad.of('image', 'lib'), []);
  t.deepEqual(await knownBad.of('package', 'up.test/bad'), []);
  t.deepEqual(await knownBad.of('package', 'up.test/team/*'), [], 'a pattern is no name of a package');
  t.deepEqual(await knownBad.named('sec-1'), [
    { kind: 'digest', key: one, entry: first },
    { kind: 'image', key: 'up.test/bad', entry: first },
    { kind: 'package', key: 'lib', entry: { ...first, range: '[1.0]' } },
    { kind: 'package', key: 'third', entry: third },
  ]);
  t.deepEqual(await knownBad.named('SEC-3'), []);
  t.true(await knownBad.haveDigests());
  const found = await knownBad.ofDigests([three, two, one]);
  t.deepEqual(Object.fromEntries(found), { [one]: [first, second], [two]: [second] });
  t.deepEqual([...(await knownBad.ofDigests([one]))], [[one, [first, second]]]);
  t.deepEqual([...(await knownBad.ofDigests([three])), ...(await knownBad.ofDigests([]))], []);
});

test('without lists in the policy, what is stored of them says nothing', async (t) => {
  const { lists } = await twoLists(t);
  lists.lists = [];
  const { knownBad } = lists;
  t.deepEqual(await knownBad.of('package', 'lib'), []);
  t.deepEqual(await knownBad.of('image', 'up.test/bad'), []);
  t.deepEqual(await knownBad.named('MAL-1'), []);
  t.false(await knownBad.haveDigests());
  t.deepEqual([...(await knownBad.ofDigests([one])), ...(await knownBad.ofDigests([one, two]))], []);
  t.deepEqual(await knownBad.states(lists.clock.now), []);
  await t.throwsAsync(knownBad.records(), {
    name: 'NotFound',
    message: 'The policy names no list of known bad content.',
  });
});

test('answers for a request for content come from memory, and need no list where none has an entry', async (t) => {
  const { lists, own } = await twoLists(t);
  const reads: string[] = [];
  const counting = changedDatabase(lists.database, {
    select: (sql, values) => {
      reads.push('select');
      return lists.database.select(sql, values);
    },
    selectCached: (sql, values, options) => {
      reads.push('from memory');
      return lists.database.selectCached(sql, values, options);
    },
  });
  const knownBad = new KnownBad(counting, () => Promise.resolve(lists.lists));
  const readsOf = async (ask: () => Promise<unknown>) => {
    reads.length = 0;
    await ask();
    return reads.join(', ');
  };
  t.is(await readsOf(() => knownBad.ofDigests([one])), 'from memory');
  t.is(await readsOf(() => knownBad.ofDigests([one, two])), 'select', 'many digests would fill the memory');
  t.is(await readsOf(() => knownBad.ofDigests([])), '');
  t.is(await readsOf(() => knownBad.of('package', 'lib')), 'from memory');
  t.is(await readsOf(() => knownBad.of('image', 'lib')), 'from memory, from memory');
  t.is(await readsOf(() => knownBad.haveDigests()), 'from memory');
  t.is(await knownBad.of('package', 'lib'), await knownBad.of('package', 'Lib'), 'the same until a list changes');
  t.is((await knownBad.of('image', 'up.test/team/a'))[0], (await knownBad.of('image', 'up.test/team/b'))[0]);
  lists.lists = [listOf({ name: 'own', file: own })];
  await writeFile(own, '[]');
  lists.clock.now += 6 * hour;
  await lists.refresh();
  for (const ask of [
    () => knownBad.ofDigests([one, two]),
    () => knownBad.of('image', 'a'),
    () => knownBad.named('SEC-1'),
    () => knownBad.haveDigests(),
  ])
    t.is(await readsOf(ask), '');
});

test('a list without digests says so', async (t) => {
  const file = join(await folderUntilEnd(t), 'list');
  await writeFile(file, linesOf([osv('MAL-1', 'a')]));
  const lists = await openLists(t, 'sqlite', [listOf({ name: 'osv', file })]);
  await lists.refresh();
  t.false(await lists.knownBad.haveDigests());
  t.deepEqual([...(await lists.knownBad.ofDigests([one]))], []);
});

test('the state of each list is told in the order of the policy, also of one that was never read', async (t) => {
  const { lists, settings } = await twoLists(t);
  const [public_, own] = settings;
  const { now } = lists.clock;
  lists.lists = [own!, listOf({ name: 'new', file: '/missing', refresh: 2 * hour }), public_!];
  const read = { refreshedAt: now, checkedAt: now, failures: 0, failure: null, failedAt: null, inUse: [] };
  t.deepEqual(await lists.knownBad.states(now), [
    { name: 'own', refresh: 6 * hour, entries: 7, ...read },
    { name: 'new', refresh: 2 * hour, entries: 0, ...read, refreshedAt: null, checkedAt: null },
    { name: 'public', refresh: hour, entries: 3, ...read },
  ]);
});

const affected = (name: string) => [
  {
    package: { ecosystem: 'NuGet', name },
    ranges: [{ type: 'ECOSYSTEM', events: [{ introduced: '0' }] }],
    versions: [],
  },
];

test('the records of the lists are told as another installation reads them', async (t) => {
  const { lists } = await twoLists(t);
  t.deepEqual(await lists.knownBad.records(), [
    { list: 'public', record: { id: 'MAL-1', summary: 'Lib is malware', affected: affected('lib') } },
    { list: 'public', record: { id: 'MAL-2', summary: 'other is malware', affected: affected('other') } },
    { list: 'public', record: { id: 'SEC-1', summary: 'Third is malware', affected: affected('third') } },
    {
      list: 'own',
      record: {
        id: 'SEC-1',
        reason: 'first',
        packages: [{ id: 'lib', versions: '[1.0]' }],
        images: ['up.test/bad'],
        digests: [one],
      },
    },
    {
      list: 'own',
      record: {
        id: 'SEC-2',
        reason: 'second',
        packages: [],
        images: ['up.test/bad', 'up.test/team/*'],
        digests: [one, two],
      },
    },
  ]);
  lists.lists.push(listOf({ name: 'new', file: '/missing' }));
  await t.throwsAsync(lists.knownBad.records(), {
    name: 'NotFound',
    message: 'The list new of known bad content was never read.',
  });
});
