import test, { type ExecutionContext } from 'ava';
import type { Principal, TokenPrincipal } from '../../src/accounts/principal.ts';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { ObservedPushes } from '../../src/usage/observed-pushes.ts';
import { noteContent, Pulls, type UsedContents } from '../../src/usage/pulls.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What is written of who used which content on which day. test/usage/exposed.test.ts asks a server.

const day = 86_400_000;
/** The day of the first uses. */
const first = 100 * day;
const { signal } = new AbortController();

const token = {
  kind: 'token',
  accountId: 1,
  tokenId: 'ann',
  tokenName: 'build',
  publisherId: null,
  personName: 'Ann',
  job: null,
} as unknown as TokenPrincipal;
const job = { id: 'job-1', issuer: 'ci', repository: 'team/app', ref: 'main', run: '7', subject: 'x' };
const ofJob: TokenPrincipal = { ...token, publisherId: 'rule', personName: null, job };
const anonymous: Principal = { kind: 'anonymous', accountId: 1 } as never;

const noUser = { name: null, ruleId: null, person: null, job: null };
const download = { act: 'download', status: 200, complete: true } as const;
const upload = { act: 'upload', status: 201, complete: true } as const;

type NotedUse = Parameters<typeof noteContent>[2];

/** What one principal did with one reference. */
function used(principal: Principal, reference: string, ...uses: NotedUse[]): UsedContents[] {
  const contents: UsedContents[] = [];
  for (const use of uses) noteContent(contents, principal, use, reference);
  return contents;
}

const entry = (
  at: number,
  contents: UsedContents[],
  more: { accountId?: number; kind?: string; name?: string } = {},
) => ({
  accountId: 1,
  kind: 'package',
  name: 'lib',
  day: at,
  contents,
  ...more,
});

/** A download of `name`. */
const pull = (principal: Principal, at: number, name: string) =>
  entry(at, used(principal, '1', { ...download, at }), { name });
const two = (at: number) => [pull(token, at, 'a'), pull(token, at, 'b')];

async function open(t: ExecutionContext, dialect: Dialect, keep = 10 * day, max?: number) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const pulls = new Pulls(database, keep, max);
  const write = async (...entries: ReturnType<typeof entry>[]) => {
    const written = await database.transaction((tx) => pulls.write(tx, entries));
    pulls.remember(written);
    return [...written].map(([key, at]) => `${key.split(' ')[0]} ${at / day}`).toSorted();
  };
  const rows = () =>
    database.select<Record<string, unknown>>(
      `SELECT name, reference, act, user_id AS who, day, count, first_at, last_at FROM pulls
       JOIN pull_contents ON pull_contents.id = pulls.content_id ORDER BY name, reference, act, user_id, day`,
    );
  const dropped: string[][] = [];
  const deleteOld = (now: number) =>
    pulls.deleteOld(now, signal, async (_tx, ids) => {
      dropped.push([...ids]);
    });
  /** Of each kind of row, how many there are. */
  const counts = () =>
    Promise.all(
      ['pulls', 'pull_contents', 'pull_users'].map(
        async (table) => (await database.get<{ n: number }>(`SELECT COUNT(*) AS n FROM ${table}`))!.n,
      ),
    );
  return { database, pulls, write, rows, dropped, deleteOld, counts };
}

test('complete downloads and accepted uploads are noted, by their sender', (t) => {
  const contents: UsedContents[] = [];
  const note = (principal: Principal, use: Partial<NotedUse>, reference = '1.0.0') =>
    noteContent(contents, principal, { ...download, at: 1, ...use }, reference);
  for (const use of [
    { status: 404 },
    { complete: false },
    { ...upload, status: 202 },
    { ...upload, status: 409 },
  ] as const)
    note(token, use);
  t.deepEqual(contents, []);
  note(token, { at: 5 });
  note(token, { at: 7 });
  note(token, { at: 8 }, '2.0.0');
  note(token, { ...upload, at: 9 });
  note(token, { ...upload, status: 303, at: 10 });
  note(anonymous, { at: 11 });
  note({ kind: 'person', accountId: 2 } as Principal, { at: 12 });
  // An index of an image is no download, and is content.
  note(token, { act: undefined, at: 13 }, '3.0.0');
  t.deepEqual(contents, [
    {
      by: 'token',
      user: { ...noUser, id: 'ann', kind: 'token', name: 'build', person: 'Ann' },
      pulled: new Map([
        ['1.0.0', { count: 2, firstAt: 5, lastAt: 7 }],
        ['2.0.0', { count: 1, firstAt: 8, lastAt: 8 }],
        ['3.0.0', { count: 1, firstAt: 13, lastAt: 13 }],
      ]),
      pushed: new Map([['1.0.0', { count: 2, firstAt: 9, lastAt: 10 }]]),
    },
    {
      by: 'anonymous',
      user: { ...noUser, id: 'anonymous-1', kind: 'anonymous' },
      pulled: new Map([['1.0.0', { count: 1, firstAt: 11, lastAt: 11 }]]),
      pushed: new Map(),
    },
    {
      by: 'person',
      user: { ...noUser, id: 'console-2', kind: 'console' },
      pulled: new Map([['1.0.0', { count: 1, firstAt: 12, lastAt: 12 }]]),
      pushed: new Map(),
    },
  ]);
  t.deepEqual(used(ofJob, '1', { ...download, at: 1 })[0]!.user, {
    id: 'job-1',
    kind: 'job',
    name: 'build',
    ruleId: 'rule',
    person: null,
    job,
  });
});

for (const dialect of dialects) {
  test(`${dialect}: uses of a day are added up, and content and users are written once a day`, async (t) => {
    const { database, write, rows, counts } = await open(t, dialect);
    const [noon, eve] = [first + 12, first + 20];
    t.deepEqual(
      await write(
        entry(first, used(token, '1.0.0', { ...download, at: noon })),
        entry(first, used(token, '1.0.0', { ...download, at: noon }), { kind: 'other' }),
        entry(first, used(token, '1.0.0', { ...download, at: noon }), { name: '' }),
      ),
      ['content 100', 'user 100'],
    );
    const row = { name: 'lib', reference: '1.0.0', act: 'pull', who: 'ann', day: first };
    t.deepEqual(await rows(), [{ ...row, count: 1, first_at: noon, last_at: noon }]);
    t.deepEqual(await write(entry(first, used(token, '1.0.0', { ...download, at: eve }))), [], 'both are written');
    t.deepEqual(await rows(), [{ ...row, count: 2, first_at: noon, last_at: eve }]);
    // Another instance can write its earlier uses later.
    await write(entry(first, used(token, '1.0.0', { ...download, at: first + 2 }, { ...download, at: first + 3 })));
    t.deepEqual(await rows(), [{ ...row, count: 4, first_at: first + 2, last_at: eve }]);

    const next = first + day;
    t.deepEqual(await write(entry(next, used(token, '1.0.0', { ...upload, at: next }))), ['content 101', 'user 101']);
    t.deepEqual(await write(entry(first, used(token, '1.0.0', { ...upload, at: eve }))), [], 'of a day before');
    t.deepEqual(
      (await rows()).map(({ act, day: on, count }) => [act, Number(on) / day, count]),
      [
        ['pull', 100, 4],
        ['push', 100, 1],
        ['push', 101, 1],
      ],
    );
    t.deepEqual(await database.select('SELECT account_id, kind, name, last_day, is_compared FROM pull_contents'), [
      { account_id: 1, kind: 'package', name: 'lib', last_day: next, is_compared: 0 },
    ]);
    const facts = JSON.stringify({ kind: 'token', name: 'build', ruleId: null, person: 'Ann', job: null });
    const user = await database.select<{ facts: string }>('SELECT id, account_id, facts, last_day FROM pull_users');
    t.deepEqual(
      user.map((each) => ({ ...each, facts: JSON.parse(each.facts) as unknown })),
      [{ id: 'ann', account_id: 1, facts: JSON.parse(facts) as unknown, last_day: next }] as never,
    );

    // Each account, kind, name and version is content of its own.
    const again = () => used(token, '1.0.0', { ...download, at: next });
    const others = [{ accountId: 2 }, { kind: 'container' }, { name: 'other' }].map((more) =>
      entry(next, again(), more),
    );
    await write(...others, entry(next, used(token, '2.0.0', { ...download, at: next })));
    t.deepEqual(await counts(), [7, 5, 1]);
    await write(entry(next, used(token, 'x'.repeat(300), { ...download, at: next })));
    t.is((await rows()).filter(({ reference }) => reference === 'x'.repeat(255)).length, 1);
  });

  test(`${dialect}: what is known to be written is forgotten when it is too much, and written again`, async (t) => {
    const { pulls, write } = await open(t, dialect);
    const old = pull(token, first, 'old');
    const both = ['content 100', 'user 100'];
    pulls.remember(new Map(Array.from({ length: 99_998 }, (_, at) => [`content ${at}`, first])));
    t.deepEqual(await write(old), both);
    for (let time = 0; time < 2; time += 1) t.deepEqual(await write(old), [], 'there is room for both');
    t.deepEqual(await write(pull(token, first, 'new')), ['content 100']);
    t.deepEqual(await write(old), both, 'all that was known before is forgotten');
    t.deepEqual(await write(pull(token, first, 'new')), [], 'the latest is known');
  });

  test(`${dialect}: days that are too old are deleted, with content and users of no other day`, async (t) => {
    const { write, dropped, deleteOld, counts, database } = await open(t, dialect);
    const later = first + 5 * day;
    await write(pull(token, first, 'gone'), pull(anonymous, first, 'both'), pull(token, first, 'both'));
    await write(pull(anonymous, later, 'both'));
    t.deepEqual(await counts(), [4, 2, 2]);
    t.is(await deleteOld(first + 10 * day + 7), 0, 'the first day is kept until its end');
    t.is(await deleteOld(first + 11 * day), 3);
    t.deepEqual(await counts(), [1, 1, 1]);
    t.deepEqual(
      dropped.map((each) => each.length),
      [1],
    );
    t.deepEqual(await database.select('SELECT name, last_day FROM pull_contents'), [{ name: 'both', last_day: later }]);
    t.deepEqual(await database.select('SELECT id FROM pull_users'), [{ id: 'anonymous-1' }]);
  });

  test(`${dialect}: of too many rows the oldest days are deleted, but never today`, async (t) => {
    const { database, write, deleteOld, rows } = await open(t, dialect, 100 * day, 4);
    const daysOf = async () =>
      [...new Set((await rows()).map((each) => Number(each['day']) / day - 100))].toSorted((one, other) => one - other);
    for (const each of [0, 1, 2]) await write(...two(first + each * day));
    const shorter = new Pulls(database, 2 * day, 5);
    t.is(await shorter.deleteOld(first + 2 * day, signal, async () => {}), 2, 'the oldest day that is kept counts');
    t.is(await deleteOld(first + 2 * day), 0, 'four rows are kept');
    t.deepEqual(await daysOf(), [1, 2]);
    await write(...two(first + 4 * day), ...two(first + 5 * day));
    t.is(await deleteOld(first + 5 * day), 4);
    t.deepEqual(await daysOf(), [4, 5]);
    const some = (...names: string[]) => names.map((name) => pull(token, first + 8 * day, name));
    await write(...some('a', 'b', 'c'));
    t.is(await deleteOld(first + 8 * day), 4);
    await write(...some('d'));
    t.is(await deleteOld(first + 9 * day), 0);
    t.deepEqual(await daysOf(), [8]);
    // The day has ended, and its last uses are written now.
    await write(...some('e', 'f'));
    t.is(await deleteOld(first + 9 * day), 6, 'it has ended');
  });

  test(`${dialect}: more rows of a day than are written or deleted at a time`, async (t) => {
    const { write, deleteOld, counts, dropped } = await open(t, dialect);
    const contents = Array.from({ length: 1001 }, (_, at) =>
      used(token, `1.${at}`, { ...download, at: first }).map((each) => entry(first, [each])),
    ).flat();
    t.is((await write(...contents)).length, 1002);
    t.deepEqual(await counts(), [1001, 1001, 1]);
    t.is(await deleteOld(first + 20 * day), 1001);
    t.deepEqual(await counts(), [0, 0, 0]);
    t.deepEqual(
      dropped.map((each) => each.length),
      [500, 500, 1],
    );
  });

  test(`${dialect}: nothing is written if nothing is to be kept, and what was written goes`, async (t) => {
    const { database, write, counts } = await open(t, dialect);
    await write(entry(first, used(token, '1', { ...download, at: first })));
    const none = new Pulls(database, 0);
    const next = entry(first, used(token, '2', { ...download, at: first }));
    t.is((await database.transaction((tx) => none.write(tx, [next]))).size, 0);
    t.deepEqual(await counts(), [1, 1, 1]);
    t.is(await none.deleteOld(first + 5, signal, async () => {}), 1);
    t.deepEqual(await counts(), [0, 0, 0]);
    const ended = AbortSignal.abort();
    await t.throwsAsync(
      none.deleteOld(first, ended, async () => {}),
      { name: 'AbortError' },
    );
  });

  test(`${dialect}: pushes of jobs wait for a bill where their account wants bills`, async (t) => {
    const { database, write, deleteOld } = await open(t, dialect);
    await database.transaction(async (tx) => {
      await tx.insert('accounts', { name: 'wants', created_at: 1, observed_bills: 1 });
      await tx.insert('accounts', { name: 'none', created_at: 1 });
    });
    const ids = await database.select<{ id: number }>('SELECT id FROM accounts ORDER BY observed_bills DESC, id');
    const [wants, none] = [ids[0]!.id, ids.at(-1)!.id];
    const pushed = (principal: Principal, at: number, more: object) =>
      entry(first, used(principal, 'sha256:1', { ...upload, at }), { kind: 'container', ...more });
    await write(
      pushed(ofJob, first + 3, { accountId: wants }),
      pushed(token, first + 3, { accountId: wants }),
      pushed(ofJob, first + 3, { accountId: none }),
      entry(first, used(ofJob, 'sha256:2', { ...download, at: first }), { accountId: wants }),
    );
    await write(pushed(ofJob, first + 1, { accountId: wants, name: 'app' }));
    await write(pushed(ofJob, first + 9, { accountId: wants }));
    const pushes = new ObservedPushes(database);
    const times = (waiting: { pushedAt: number }[]) => waiting.map(({ pushedAt }) => pushedAt - first);
    const all = await pushes.waiting(first + 3, 10);
    t.deepEqual(times(all), [1, 3], 'the second push of the same is not noted');
    t.deepEqual(
      all.map(({ userId }) => userId),
      ['job-1', 'job-1'],
    );
    t.deepEqual(times(await pushes.waiting(first + 2, 10)), [1]);
    t.deepEqual(times(await pushes.waiting(first + 3, 1)), [1]);
    t.deepEqual(times(await pushes.waiting(first + 3, 10, all[0])), [3]);
    const end = () => database.transaction((tx) => pushes.end(tx, all[0]!));
    t.deepEqual([await end(), await end()], [true, false], 'it ends once');
    t.deepEqual(times(await pushes.waiting(first + 3, 10)), [3]);
    await deleteOld(first + 20 * day);
    t.deepEqual(await database.select('SELECT * FROM observed_pushes'), []);
  });
}
