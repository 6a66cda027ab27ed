import test, { type ExecutionContext } from 'ava';
import type { Dialect, Row } from '../../src/database/database.ts';
import { PullList, type UsedContent } from '../../src/usage/pull-list.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is read of who used which content. test/usage/pulls.test.ts is about what is written.

const day = 86_400_000;

type Content = UsedContent & { isCompared?: number };

const content = (id: string, changes: Partial<Content> = {}): Content => ({
  id,
  accountId: 1,
  kind: 'package',
  name: 'lib',
  reference: '1.0.0',
  lastDay: 100 * day,
  ...changes,
});

const contentRow = ({ id, accountId, kind, name, reference, lastDay, isCompared = 0 }: Content): Row => ({
  id,
  account_id: accountId,
  kind,
  name,
  reference,
  last_day: lastDay,
  is_compared: isCompared,
});

interface Use {
  content: string;
  user: string;
  act?: 'pull' | 'push';
  day?: number;
  count?: number;
  first: number;
  last?: number;
}

const useRow = ({ content: id, user, act = 'pull', day: at = 100, count = 1, first, last = first }: Use): Row => ({
  content_id: id,
  user_id: user,
  act,
  day: at * day,
  count,
  first_at: first,
  last_at: last,
});

async function setUp(t: ExecutionContext, dialect: Dialect, contents: readonly Content[], uses: readonly Use[] = []) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const insert = (table: string, rows: readonly Row[]) =>
    database.transaction(async (tx) => {
      for (let start = 0; start < rows.length; start += 100) await tx.insertNew(table, rows.slice(start, start + 100));
    });
  await insert('pull_contents', contents.map(contentRow));
  await insert('pulls', uses.map(useRow));
  return { database, insert, list: new PullList(database) };
}

/** A use by Ann. */
const use = (id: string, count: number, firstAt: number, lastAt: number) => ({
  contentId: id,
  userId: 'ann',
  count,
  firstAt,
  lastAt,
});

async function all<T>(pages: AsyncIterable<readonly T[]>): Promise<T[]> {
  const found: T[] = [];
  for await (const page of pages) found.push(...page);
  return found;
}

const padded = (count: number) => Array.from({ length: count }, (_, each) => String(each).padStart(5, '0'));

for (const dialect of dialects) {
  test(`${dialect}: contents and names are listed in order and whole, of one account or of all`, async (t) => {
    const many = padded(1001).map((id) => content(`m${id}`, { kind: 'container', name: id, accountId: 3 }));
    const same = padded(1001).map((id) => content(`s${id}`, { name: 'same', reference: id }));
    const mixed = [
      content('b', { accountId: 2 }),
      content('a', { accountId: 2, reference: '2.0.0' }),
      content('z', { lastDay: 7 * day }),
      content('other', { name: 'other' }),
      content('image', { kind: 'container', name: 'lib', accountId: 2 }),
    ];
    const { list } = await setUp(t, dialect, [...mixed.toReversed(), ...same, ...many]);
    const [b, a, z, , image] = mixed as [Content, Content, Content, Content, Content];
    const under = (name: string, accountId?: number, kind = 'package') => all(list.under({ accountId, kind, name }));
    t.deepEqual(await under('lib'), [z, a, b]);
    t.deepEqual(await under('lib', 2), [a, b]);
    t.deepEqual(await under('lib', 1), [z]);
    t.deepEqual(await under('lib', 3), []);
    t.deepEqual(await under('lib', undefined, 'container'), [image]);
    t.deepEqual(await under('same'), same);
    t.deepEqual(await all(list.names(undefined, 'package')), [{ name: 'lib' }, { name: 'other' }, { name: 'same' }]);
    t.deepEqual(await all(list.names(2, 'package')), [{ name: 'lib' }]);
    t.deepEqual(
      (await all(list.names(undefined, 'container'))).map(({ name }) => name),
      [...padded(1001), 'lib'],
    );
    t.deepEqual(
      (await all(list.names(3, 'container'))).map(({ name }) => name),
      padded(1001),
    );

    t.deepEqual(await list.withReferences(undefined, [], ['lib'], 10), []);
    const ids = async (accountId: number | undefined, references: string[], names: string[], limit = 10) =>
      (await list.withReferences(accountId, references, names, limit)).map(({ id }) => id).sort();
    t.deepEqual(await ids(undefined, ['2.0.0'], []), ['a']);
    t.deepEqual(await ids(undefined, ['2.0.0', '00007'], []), ['a', 's00007']);
    t.deepEqual(await ids(1, ['2.0.0', '00007'], []), ['s00007']);
    t.deepEqual(await ids(undefined, ['1.0.0'], ['lib', 'other']), ['b', 'image', 'other', 'z']);
    t.deepEqual(await ids(2, ['1.0.0'], ['other']), []);
    t.deepEqual(await ids(undefined, ['2.0.0', '00007'], ['same']), ['s00007']);
    t.is((await ids(undefined, ['1.0.0'], [], 3)).length, 3);
    t.deepEqual(await list.withReferences(2, ['2.0.0'], ['lib'], 1), [a]);
  });

  test(`${dialect}: contents are compared in the order of kinds, names, accounts and IDs, each once`, async (t) => {
    const known = padded(201).map((id) => content(id, { kind: 'z' }));
    const first = [
      content('d', { kind: 'container', name: 'z' }),
      content('c', { name: 'a', accountId: 2 }),
      content('a', { name: 'b' }),
      content('b', { name: 'b' }),
    ];
    const { database, list } = await setUp(t, dialect, [...first.toReversed(), ...known]);
    const compared = async (limit: number, ...after: Parameters<typeof list.toCompare>[0]) =>
      (await list.toCompare(after, limit)).map(({ id }) => id);
    t.deepEqual(await compared(4, '', '', 0, ''), ['d', 'c', 'a', 'b']);
    t.deepEqual(await compared(2, 'container', 'z', 1, 'd'), ['c', 'a']);
    t.deepEqual(await compared(2, 'package', 'b', 1, 'a'), ['b', '00000']);
    t.deepEqual(await list.toCompare(['', '', 0, ''], 1), [{ ...first[0]!, isCompared: 0 }]);
    await database.transaction((tx) => list.setCompared(tx, ['c', ...known.map(({ id }) => id)]));
    const done = (await list.toCompare(['', '', 0, ''], 1000)).map(({ isCompared }) => isCompared);
    t.deepEqual(done, [0, 1, 0, 0, ...known.map(() => 1)]);
  });

  test(`${dialect}: uses of contents are added up by user, from a day on, some at a time`, async (t) => {
    const ids = padded(203);
    const last = ids.at(-1)!;
    const { list } = await setUp(
      t,
      dialect,
      [],
      [
        { content: '00000', user: 'ann', count: 2, first: 100 * day + 5, last: 100 * day + 9 },
        { content: '00000', user: 'ann', day: 102, count: 3, first: 102 * day + 1 },
        { content: '00000', user: 'ann', act: 'push', day: 103, first: 103 * day },
        { content: '00000', user: 'bob', day: 101, first: 101 * day },
        { content: '00001', user: 'ann', day: 99, first: 99 * day },
        { content: last, user: 'cid', day: 102, first: 102 * day },
        { content: 'none', user: 'ann', day: 102, first: 102 * day },
      ],
    );
    const annOfFirst = {
      contentId: '00000',
      userId: 'ann',
      count: 5,
      firstAt: 100 * day + 5,
      lastAt: 102 * day + 1,
    };
    const single = (contentId: string, userId: string, at: number) => ({
      contentId,
      userId,
      count: 1,
      firstAt: at * day,
      lastAt: at * day,
    });
    const bob = single('00000', 'bob', 101);
    const [old, cid] = [single('00001', 'ann', 99), single(last, 'cid', 102)];
    t.deepEqual(await list.pulls(ids, 0, 10), [annOfFirst, bob, old, cid]);
    t.deepEqual(await list.pulls(ids, 0, 4), [annOfFirst, bob, old, cid]);
    t.deepEqual(await list.pulls(ids, 0, 3), [annOfFirst, bob, old]);
    t.deepEqual(await list.pulls(ids, 0, 1), [annOfFirst]);
    t.deepEqual(await list.pulls(ids, 100 * day + 7, 10), [annOfFirst, bob, cid], 'the whole day counts');
    t.deepEqual(await list.pulls(ids, 101 * day, 10), [{ ...annOfFirst, count: 3, firstAt: 102 * day + 1 }, bob, cid]);
    t.deepEqual(await list.pulls(ids, 0, 10, ['00000', 'ann']), [bob, old, cid]);
    t.deepEqual(await list.pulls(ids, 0, 10, ['00000', 'bob']), [old, cid]);
    t.deepEqual(await list.pulls(ids, 0, 10, ['00001', 'ann']), [cid]);
    t.deepEqual(await list.pulls([], 0, 10), []);

    t.is(await list.countUsers(ids), 2, 'of the first 200 contents');
    t.is(await list.countUsers(ids.slice(3)), 1);
    t.is(await list.countUsers(['00001']), 1);
    t.is(await list.countUsers(['00002']), 0);
  });

  test(`${dialect}: what a user used between two times is listed once, the latest first`, async (t) => {
    const contents = ['a', 'b', 'c', 'd'].map((id) => content(id, { name: `lib-${id}` }));
    const { list } = await setUp(t, dialect, contents.slice(0, 3), [
      { content: 'a', user: 'ann', day: 100, count: 2, first: 1000, last: 1100 },
      { content: 'a', user: 'ann', day: 102, count: 3, first: 3000, last: 3100 },
      { content: 'a', user: 'bob', day: 102, count: 7, first: 3000, last: 3900 },
      { content: 'b', user: 'ann', day: 101, first: 2000, last: 2100 },
      { content: 'c', user: 'ann', day: 101, act: 'push', first: 2000, last: 2300 },
      { content: 'd', user: 'ann', day: 102, first: 3000, last: 3300 },
    ]);
    const [a, b, c] = contents as [Content, Content, Content, Content];
    const ofA = { ...use('a', 5, 1000, 3100), ...a };
    const ofB = { ...use('b', 1, 2000, 2100), ...b };
    const uses = (since: number, until: number, limit = 10, act: 'pull' | 'push' = 'pull') =>
      list.usesOf('ann', act, { since, until }, limit);
    t.deepEqual(await uses(0, 9999), [ofA, ofB], 'content that is known no more is left out');
    t.deepEqual(await uses(0, 9999, 2), [ofA]);
    t.deepEqual(await uses(0, 9999, 10, 'push'), [{ ...use('c', 1, 2000, 2300), ...c }]);
    t.deepEqual(await uses(2100, 9999), [{ ...use('a', 3, 3000, 3100), ...a }, ofB]);
    t.deepEqual(await uses(2101, 9999), [{ ...use('a', 3, 3000, 3100), ...a }]);
    t.deepEqual(await uses(0, 2000), [ofB, { ...use('a', 2, 1000, 1100), ...a }]);
    t.deepEqual(await uses(0, 1999), [{ ...use('a', 2, 1000, 1100), ...a }]);
    t.deepEqual(await uses(0, 999), []);
  });

  test(`${dialect}: contents and users are found by their IDs, however many`, async (t) => {
    const contents = padded(401).map((id) => content(id));
    const { insert, list } = await setUp(t, dialect, contents);
    const facts = { kind: 'token', name: 'build', ruleId: null, person: 'Ann', job: null } as const;
    const ids = contents.map(({ id }) => id);
    await insert(
      'pull_users',
      ids.map((id) => ({ id, account_id: 1, facts: JSON.stringify({ ...facts, name: id }), last_day: 1 })),
    );
    t.deepEqual(await list.contents([...ids, 'none']), new Map(contents.map((each) => [each.id, each])));
    t.deepEqual(await list.users([...ids, 'none']), new Map(ids.map((id) => [id, { id, ...facts, name: id }])));
    t.deepEqual(await list.contents([]), new Map());
    t.deepEqual(await list.users([]), new Map());
  });
}
