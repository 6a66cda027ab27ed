import test from 'ava';
import type { Database, Dialect } from '../../src/database/database.ts';
import {
  digestsOf,
  firstFiles,
  firstSeen,
  historyLines,
  latestDigests,
  lineSums,
  readHistory,
  record,
  recordPast,
  type NameOwner,
  type SeenReference,
} from '../../src/history/history.ts';
import { tagAt, tagsAt } from '../../src/history/past-tags.ts';
import { tagMoves } from '../../src/history/tag-moves.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const mine = { accountId: 1, upstream: 'up', name: 'app' };
/** Each has one thing that `mine` has not. */
const others: readonly NameOwner[] = [
  { ...mine, accountId: 2 },
  { ...mine, upstream: 'down' },
  { ...mine, name: 'lib' },
];

const tag = (digest: string, reference = 'v1'): SeenReference => ({ kind: 'tag', reference, digest });
const version = (digest: string, reference = '1.0.0'): SeenReference => ({
  kind: 'version',
  reference,
  digest,
  files: { digest: `files of ${digest}`, subject: 'package', from: 'up' },
});

const see = (database: Database, owner: NameOwner, seen: readonly SeenReference[], now: number) =>
  database.transaction((tx) => record(tx, owner, seen, now));

async function movesOf(database: Database, owner: NameOwner): Promise<string[]> {
  const found: string[] = [];
  for await (const { digest } of tagMoves(database, owner, 'v1', {})) found.push(digest);
  return found;
}

/** A database in which `mine` has the digest `own`, and has seen it at 1000; those of the others are there before and after it. */
async function open(t: Parameters<typeof openUntilEnd>[0], dialect: Dialect): Promise<Database> {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  const all = (digest: string) => [tag(digest), version(digest)];
  // What is no version has files only in a damaged database; it still is no version.
  await see(database, mine, [{ ...version('no version'), kind: 'listed' }], 1);
  for (const owner of others) await see(database, owner, all('before'), 1);
  await see(database, mine, all('own'), 1000);
  for (const owner of others) await see(database, owner, all('after'), 2);
  await see(database, mine, [{ kind: 'manifest', reference: 'v1', digest: 'no tag' }], 3);
  return database;
}

for (const dialect of dialects) {
  test(`${dialect}: a history is that of one account, upstream, name and kind`, async (t) => {
    const database = await open(t, dialect);
    t.deepEqual(await latestDigests(database, mine, ['v1', 'v2']), new Map([['v1', 'own']]));
    t.deepEqual(await digestsOf(database, mine, ['v1', 'v2'], 9), new Map([['v1', ['own']]]));
    t.deepEqual(await firstSeen(database, mine, 'tag', ['v1']), new Map([['v1', 1000]]));
    const many = Array.from({ length: 501 }, (_, index) => `1.0.${index}`).with(0, '1.0.0');
    t.deepEqual(await firstSeen(database, mine, 'version', many), new Map([['1.0.0', 1000]]));
    t.is(await firstFiles(database, mine, '1.0.0'), 'files of own');
    t.is(await firstFiles(database, mine, '2.0.0'), undefined);
    t.deepEqual(await historyLines(database, mine, [tag('')]), [{ ...tag('own'), seenAt: 1000 }]);
    const shown = (await readHistory(database, [mine], { limit: 9 })).map(({ kind, digest }) => `${kind} ${digest}`);
    t.deepEqual(shown, ['manifest no tag', 'version own', 'tag own']);
    t.like(await tagAt(database, mine, 'v1', 1000), { digest: 'own', seenAt: 1000 });
    t.is(await tagAt(database, mine, 'v1', 999), undefined);
    t.deepEqual(
      (await tagsAt(database, mine, 1000, 9, '')).map((each) => ({ ...each })),
      [{ reference: 'v1', digest: 'own' }],
    );
    t.deepEqual(await movesOf(database, mine), ['own']);
  });

  test(`${dialect}: only what changed for its own name is recorded again`, async (t) => {
    const database = await open(t, dialect);
    t.deepEqual(await see(database, mine, [tag('own'), version('own')], 4000), []);
    t.deepEqual(await see(database, mine, [tag('new'), tag('first', 'v2')], 4000), [tag('new')]);
    t.deepEqual(await movesOf(database, mine), ['new', 'own']);
    for (const owner of others) t.deepEqual(await movesOf(database, owner), ['after', 'before']);
    t.deepEqual(await see(database, mine, [tag('')], 5000), [tag('')], 'a deletion');
    t.deepEqual(await latestDigests(database, mine, ['v1', 'v2']), new Map([['v2', 'first']]));
    t.deepEqual(
      await digestsOf(database, mine, ['v1', 'v2'], 2),
      new Map([
        ['v2', ['first']],
        ['v1', ['new']],
      ]),
    );
  });

  test(`${dialect}: a tag loses lines when it has more than 1,000 of its own`, async (t) => {
    const database = await open(t, dialect);
    const past = Array.from({ length: 998 }, (_, at) => ({ ...tag(`past ${at}`), seenAt: 1001 + at }));
    await database.transaction((tx) => recordPast(tx, mine, past));
    const has = async () => (await movesOf(database, mine)).includes('own');
    const longer = Array.from({ length: 1000 }, (_, at) => ({ ...tag(`past ${at}`, 'v2'), seenAt: 1001 + at }));
    await database.transaction((tx) => recordPast(tx, mine, longer));
    await see(database, mine, [tag('the 1001st', 'v2')], 5000);
    t.true(await has(), 'another tag loses its own lines');
    await see(database, mine, [tag('the 1000th')], 5000);
    t.true(await has());
    await see(database, mine, [tag('the 1001st')], 5001);
    t.false(await has());
    t.is((await movesOf(database, mine)).length, 1000);
    for (const owner of others) t.deepEqual(await movesOf(database, owner), ['after', 'before']);
  });

  test(`${dialect}: lines of another installation are compared with those of the same name`, async (t) => {
    const database = await open(t, dialect);
    const { files: _files, ...own } = version('own');
    await database.transaction((tx) =>
      recordPast(tx, mine, [
        { ...tag('early'), seenAt: 999 },
        { ...tag('same time'), seenAt: 1000 },
        { ...tag('own'), seenAt: 1001 },
        { ...tag('later'), content: { mediaType: 'text/plain', size: 5 }, seenAt: 1001 },
        { ...own, seenAt: 500 },
        { ...own, seenAt: 1000 },
      ]),
    );
    t.deepEqual(await historyLines(database, mine, [tag(''), version('')]), [
      { ...tag('own'), seenAt: 1000 },
      { ...tag('later'), content: { mediaType: 'text/plain', size: 5 }, seenAt: 1001 },
      { ...own, seenAt: 1000 },
      { ...own, seenAt: 500 },
    ]);
    t.is((await firstSeen(database, mine, 'version', ['1.0.0'])).get('1.0.0'), 500);
  });

  test(`${dialect}: the lines of accounts are counted by pages, without those of mirrored content`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    for (const [at, accountId] of [1, 0, 2, 1, 2].entries())
      await see(database, { ...mine, accountId, name: `app ${at}` }, [tag('x')], 1);
    const { last, sum } = lineSums(300);
    const sums = new Map<number, number>();
    let pages = 0;
    for (let after = 0; ; pages += 1) {
      const page = (await database.get<{ count: number; last: number | null }>(last, [after, 2]))!;
      if (page.last === null) break;
      const rows = await database.select<{ account_id: number; bytes: number }>(sum, [after, page.last]);
      for (const row of rows) sums.set(row.account_id, (sums.get(row.account_id) ?? 0) + row.bytes);
      after = page.last;
    }
    t.is(pages, 3);
    t.deepEqual(
      sums,
      new Map([
        [1, 600],
        [2, 600],
      ]),
    );
  });
}
