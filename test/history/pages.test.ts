import test, { type ExecutionContext } from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Database } from '../../src/database/database.ts';
import {
  digestsOf,
  firstFiles,
  firstSeen,
  historyLines,
  latestDigests,
  readHistory,
  record,
  recordPast,
  type PastLine,
  type ReferenceKind,
  type SeenReference,
} from '../../src/history/history.ts';
import { tagAt, tagsAt } from '../../src/history/past-tags.ts';
import { tagMoves, type TagMovesRange } from '../../src/history/tag-moves.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Histories that are longer than one statement reads, and the bounds of what is read of them.

const mine = { accountId: 1, upstream: '', name: 'app' };

type Line = [kind: ReferenceKind, reference: string, digest: string, seenAt: number];

async function open(t: ExecutionContext, lines: readonly Line[] = [], name = mine.name): Promise<Database> {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const rows = lines.map(([kind, reference, digest, seen_at]) => ({
    account_id: 1,
    upstream: '',
    name,
    kind,
    reference,
    digest,
    seen_at,
  }));
  await database.transaction(async (tx) => {
    for (const some of batches(rows)) await tx.insertNew('history', some);
  });
  return database;
}

const many = (count: number) => Array.from({ length: count }, (_, at) => `r${String(at).padStart(4, '0')}`);

const tag = (reference: string, digest: string): SeenReference => ({ kind: 'tag', reference, digest });

test('more references than one statement reads are recorded and read', async (t) => {
  const database = await open(t);
  const references = many(501);
  const seen = references.map((reference) => tag(reference, `of ${reference}`));
  const see = (some: readonly SeenReference[], now: number) =>
    database.transaction((tx) => record(tx, mine, some, now));
  t.deepEqual(await see(seen, 1), []);
  t.deepEqual(await see(seen, 2), [], 'nothing is new');
  const moved = [seen[0]!, seen[499]!, seen[500]!].map((each) => ({ ...each, digest: 'moved' }));
  t.deepEqual(await see([...moved.slice(0, 1), ...seen.slice(1, 499), ...moved.slice(1)], 3), moved);
  const digests = new Map(seen.map(({ reference, digest }) => [reference, digest]));
  for (const { reference } of moved) digests.set(reference, 'moved');
  t.deepEqual(Object.fromEntries(await latestDigests(database, mine, references)), Object.fromEntries(digests));
  t.deepEqual(await firstSeen(database, mine, 'tag', references), new Map(references.map((each) => [each, 1])));
  const both = await digestsOf(database, mine, references, 9);
  t.deepEqual(
    [both.size, both.get('r0000'), both.get('r0020'), both.get('r0500')],
    [501, ['moved', 'of r0000'], ['of r0020'], ['moved', 'of r0500']],
  );
  t.deepEqual((await digestsOf(database, mine, references, 1)).get('r0500'), ['moved']);
  const lines = await historyLines(database, mine, [...seen, { kind: 'version', reference: 'r0000' }]);
  t.deepEqual([lines.length, lines[0], lines.at(-1)], [504, { ...seen[0]!, seenAt: 1 }, { ...moved[2]!, seenAt: 3 }]);
  t.deepEqual(await historyLines(database, mine, []), []);
});

test('when very many versions were first seen is read in pages, and a deletion is no sighting', async (t) => {
  const versions = many(2001);
  const database = await open(t, [
    ...versions.map((each, at): Line => ['version', each, 'x', 10 + at]),
    ['version', 'r0000', 'y', 5],
    ['version', 'r0001', '', 1],
    ['version', 'gone', '', 1],
  ]);
  const expected = new Map(versions.map((each, at) => [each, 10 + at])).set('r0000', 5);
  t.deepEqual(await firstSeen(database, mine, 'version', many(501)), expected, 'all of the name');
  const some = many(500);
  t.deepEqual(await firstSeen(database, mine, 'version', some), new Map([...expected].slice(0, 500)));
  t.deepEqual(await firstSeen(database, mine, 'version', ['r2000', 'gone', 'none']), new Map([['r2000', 2010]]));
  t.deepEqual(await firstSeen(database, mine, 'manifest', many(501)), new Map());
  t.deepEqual(await firstSeen(database, mine, 'version', []), new Map());
});

test('a version keeps its first line and the files that it had first', async (t) => {
  const database = await open(t);
  const see = (digest: string, files?: string) =>
    database.transaction((tx) =>
      record(
        tx,
        mine,
        [
          {
            kind: 'version',
            reference: '1.0.0',
            digest,
            ...(files && { files: { digest: files, subject: 's', from: 'f' } }),
          },
        ],
        7,
      ),
    );
  const filesIn = async () =>
    (
      await database.select<{ digest: string; files: string | null }>(
        'SELECT digest, files_digest AS files FROM history ORDER BY id',
      )
    ).map(({ digest, files }) => [digest, files]);
  t.deepEqual(await see('a'), []);
  t.is(await firstFiles(database, mine, '1.0.0'), undefined);
  await see('a', 'files a');
  t.deepEqual(await filesIn(), [['a', 'files a']], 'they are known later');
  await see('a', 'other files');
  t.deepEqual(await filesIn(), [['a', 'files a']]);
  t.like(await see('b', 'files b'), [{ digest: 'b' }]);
  await see('c');
  t.deepEqual(await filesIn(), [
    ['a', 'files a'],
    ['b', 'files b'],
    ['c', null],
  ]);
  t.is(await firstFiles(database, mine, '1.0.0'), 'files a');
  for (const [kind, left] of [
    ['version', ['0', '3', '4', '1000', 'new']],
    ['tag', ['2', '3', '4', '1000', 'new']],
  ] as const) {
    const long = await open(
      t,
      Array.from({ length: 1001 }, (_, at): Line => [kind, 'x', `${at}`, at]),
    );
    await long.transaction((tx) => record(tx, mine, [{ kind, reference: 'x', digest: 'new' }], 5000));
    const digests = (await historyLines(long, mine, [{ kind, reference: 'x' }])).map(({ digest }) => digest);
    t.deepEqual([`${digests.length}`, ...digests.slice(0, 3), ...digests.slice(-2)], ['1000', ...left]);
  }
  const longer = await open(
    t,
    Array.from({ length: 1600 }, (_, at): Line => ['tag', 'x', `${at}`, at]),
  );
  await longer.transaction((tx) => record(tx, mine, [{ kind: 'tag', reference: 'x', digest: 'new' }], 5000));
  t.is((await historyLines(longer, mine, [{ kind: 'tag', reference: 'x' }])).length, 1101, 'up to 500 at a time');
});

const content = { mediaType: 'text/plain', size: 5 };

test('a page of a history has the latest lines of all names, before a line and of a kind', async (t) => {
  const database = await open(t, [
    ['tag', 'a', '1', 1],
    ['version', 'b', '2', 2],
    ['listed', 'c', '3', 3],
    ['manifest', 'd', '4', 4],
  ]);
  const other = { ...mine, name: 'other', upstream: 'up', accountId: 0 };
  await database.transaction((tx) => record(tx, other, [{ kind: 'tag', reference: 'e', digest: '5' }], 5));
  const page = async (owners: Parameters<typeof readHistory>[1], query: Parameters<typeof readHistory>[2]) =>
    (await readHistory(database, owners, query)).map(({ reference }) => reference).join('');
  t.deepEqual((await readHistory(database, [mine, other], { limit: 1 })) as unknown, [
    { id: 5, upstream: 'up', kind: 'tag', reference: 'e', digest: '5', seenAt: 5 },
  ]);
  t.is(await page([mine, other], { limit: 9 }), 'edba');
  t.is(await page([other, mine], { limit: 3 }), 'edb');
  t.is(await page([mine, other], { limit: 9, before: 4 }), 'ba');
  t.is(await page([mine, other], { limit: 9, kind: 'tag' }), 'ea');
  t.is(await page([mine, other], { limit: 9, kind: 'tag', before: 5 }), 'a');
  t.is(await page([mine], { limit: 9, kind: 'listed' }), 'c');
  t.is(await page([], { limit: 9 }), '');
});

const line = (
  kind: ReferenceKind,
  reference: string,
  digest: string,
  seenAt: number,
  more: Partial<PastLine> = {},
): PastLine => ({ kind, reference, digest, seenAt, ...more });

test('lines of another installation are added in order, and a tag keeps its latest 1,000', async (t) => {
  const database = await open(t, [
    ['tag', 'v1', 'a', 100],
    ['manifest', 'm1', 'm1', 100],
  ]);
  const add = (lines: readonly PastLine[]) => database.transaction((tx) => recordPast(tx, mine, lines));
  const shown = async (...names: [ReferenceKind, string][]) =>
    (
      await historyLines(
        database,
        mine,
        names.map(([kind, reference]) => ({ kind, reference })),
      )
    ).map(({ digest, seenAt }) => `${digest} ${seenAt}`);
  await add([
    line('tag', 'v1', 'b', 100),
    line('tag', 'v1', 'a', 101),
    line('tag', 'v1', 'c', 102, { content }),
    line('manifest', 'm1', 'm1', 99, { content }),
    line('manifest', 'm1', 'm1', 100),
    line('manifest', 'm2', 'm2', 500),
    line('tag', 'v2', 'x', 1),
  ]);
  t.deepEqual(await shown(['tag', 'v1']), ['a 100', 'c 102']);
  t.deepEqual(await shown(['manifest', 'm1']), ['m1 100', 'm1 99']);
  t.deepEqual(await shown(['manifest', 'm2'], ['tag', 'v2']), ['m2 500', 'x 1']);
  t.deepEqual(
    (await historyLines(database, mine, [{ kind: 'tag', reference: 'v1' }])).map((each) => each.content),
    [undefined, content],
  );
  await add(Array.from({ length: 1001 }, (_, at) => line('tag', 'long', `${at}`, at)));
  const long = await shown(['tag', 'long']);
  t.deepEqual([long.length, long[0], long.at(-1)], [1000, '1 1', '1000 1000']);
  await add([]);
  t.is((await shown(['tag', 'long'])).length, 1000);
});

test('a tag at a time, and the tags at a time, are told', async (t) => {
  const database = await open(t, [
    ['tag', 'a', '1', 10],
    ['tag', 'b', '2', 10],
    ['tag', 'a', '3', 20],
    ['tag', 'b', '', 20],
    ['tag', 'c', '4', 30],
  ]);
  const at = async (tag: string, time: number) => {
    const found = await tagAt(database, mine, tag, time);
    return found && { ...found };
  };
  t.deepEqual(
    [
      await at('a', 9),
      await at('a', 10),
      await at('a', 19),
      await at('a', 20),
      await at('b', 25),
      await at('none', 99),
    ],
    [
      undefined,
      { digest: '1', seenAt: 10 },
      { digest: '1', seenAt: 10 },
      { digest: '3', seenAt: 20 },
      { digest: '', seenAt: 20 },
      undefined,
    ],
  );
  const all = async (...given: [until: number, limit: number, last: string]) =>
    (await tagsAt(database, mine, ...given)).map(({ reference, digest }) => `${reference}${digest}`).join(' ');
  t.deepEqual(
    [
      await all(9, 9, ''),
      await all(10, 9, ''),
      await all(20, 9, ''),
      await all(30, 9, ''),
      await all(30, 9, 'a'),
      await all(30, 2, ''),
      await all(30, 1, 'b'),
    ],
    ['', 'a1 b2', 'a3 b', 'a3 b c4', 'b c4', 'a3 b', 'c4'],
  );
});

const moves = async (database: Database, range: TagMovesRange = {}) => {
  const found: string[] = [];
  for await (const { id, isDeletion, digest, content: has, seenAt } of tagMoves(database, mine, 'v1', range))
    found.push(`${id} ${isDeletion ? '-' : '+'}${digest} ${seenAt}${has ? ` ${has.mediaType} ${has.size}` : ''}`);
  return found;
};

test('the moves of a tag are told between bounds, a deletion with what the tag had, over pages', async (t) => {
  const small = await open(t, [
    ['tag', 'v1', '', 5],
    ['tag', 'v1', 'a', 10],
    ['tag', 'v1', '', 20],
    ['tag', 'v1', 'b', 30],
    ['tag', 'v1', 'a', 40],
    ['tag', 'v1', '', 50],
    ['tag', 'v1', '', 60],
  ]);
  await small.transaction((tx) =>
    tx.run("UPDATE history SET media_type = 'text/plain', size_bytes = 5 WHERE digest = 'b'"),
  );
  await small.transaction((tx) => tx.run("UPDATE history SET media_type = 'text/plain' WHERE id = 5"));
  await small.transaction((tx) => tx.run('UPDATE history SET size_bytes = 5 WHERE id = 2'));
  const all = ['6 -a 50', '5 +a 40', '4 +b 30 text/plain 5', '3 -a 20', '2 +a 10'];
  t.deepEqual(await moves(small), all);
  t.deepEqual(await moves(small, { after: 5 }), all.slice(2));
  t.deepEqual(await moves(small, { since: 10, before: 50 }), all.slice(1, 4));
  t.deepEqual(await moves(small, { since: 9, before: 51 }), all);
  t.deepEqual(await moves(small, { digest: 'a' }), [all[0], all[1], all[3], all[4]]);
  t.deepEqual(await moves(small, { digest: 'b', since: 30 }), []);

  const statements: unknown[] = [];
  for (const count of [499, 500, 501]) {
    const database = await open(
      t,
      Array.from({ length: count }, (_, at): Line => ['tag', 'v1', at % 2 === 1 ? '' : `${at}`, at]),
    );
    statements.length = 0;
    const counting = changedDatabase(database, {
      select: (sql, values) => {
        statements.push(values!.at(-1));
        return database.select(sql, values);
      },
    });
    const found = await moves(counting);
    t.is(found.length, count);
    t.deepEqual(
      found,
      Array.from({ length: count }, (_, at) => count - 1 - at).map(
        (at) => `${at + 1} ${at % 2 === 1 ? `-${at - 1}` : `+${at}`} ${at}`,
      ),
    );
    const last = Number.MAX_SAFE_INTEGER;
    t.deepEqual(statements, count < 500 ? [last] : [last, count - 499]);
  }
});
