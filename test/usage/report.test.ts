import test, { type ExecutionContext } from 'ava';
import type { Dialect, Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { noCounts, type Counters } from '../../src/usage/counters.ts';
import { dailyDownloads, lastDays } from '../../src/usage/daily.ts';
import { dayOf, dayToWrite, hourOf, isClosed, parsePeriod, periodAt } from '../../src/usage/period.ts';
import { itemsOf, storageOf, sumsOf, totalsOf } from '../../src/usage/report.ts';
import type { StorageMeter } from '../../src/usage/stored.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Reports from rows. test/api/usage.test.ts has the requests that they count.

const day = 86_400_000;
const may = parsePeriod('2027-05')!;
const first = may.start;

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  return database;
}

const row = (dimension: string, name: string, more: Partial<Counters> & Row): Row => ({
  account_id: 1,
  dimension,
  period_start: first,
  name,
  day: first,
  ...noCounts(),
  ...more,
});

const hour = 3_600_000;
const sample = (at: number, hosted: number, mirrored: number, account = 1): Row => ({
  account_id: account,
  hour: at,
  hosted_bytes: hosted,
  mirrored_bytes: mirrored,
});

const measured = (found: object | undefined) => ({ of: () => Promise.resolve(found) }) as unknown as StorageMeter;

for (const dialect of dialects) {
  test(`${dialect}: lines of a report are of one account, group and month, in pages by name and day`, async (t) => {
    const database = await open(t, dialect);
    await database.transaction((tx) =>
      tx.insertNew('usage_counts', [
        row('account', '', { requests: 5, egress_bytes: 50 }),
        row('account', '', { requests: 7, day: first + day }),
        row('account', '', { requests: 100, period_start: 1 }),
        row('account', '', { requests: 1000, account_id: 2 }),
        row('package', 'a', { requests: 1, downloads: 1 }),
        row('package', 'a', { requests: 2, downloads: 2, day: first + day }),
        row('package', 'b', { requests: 4 }),
        row('package', 'c', { requests: 8, account_id: 2 }),
        row('package', 'd', { requests: 8, period_start: 1 }),
        row('container', 'e', { requests: 16 }),
        row('token', '', { requests: 32 }),
        row('token', 'id', { requests: 64 }),
      ]),
    );
    const whole = { ...noCounts(), requests: 12, egress_bytes: 50 };
    t.deepEqual(await totalsOf(database, 1, may), whole);
    t.deepEqual(await totalsOf(database, 3, may), noCounts(), 'nothing was counted');

    const items = async (division: Parameters<typeof itemsOf>[3], limit = 50, after?: readonly [string, number]) =>
      (await itemsOf(database, 1, may, division, limit, after)).map((each) => [
        each.name,
        each.day === null ? null : (each.day - first) / day,
        each.counters.requests,
      ]);
    t.deepEqual(await items({ byDay: false, groupBy: undefined }), []);
    t.deepEqual(await items({ byDay: true, groupBy: undefined }), [
      [null, 0, 5],
      [null, 1, 7],
    ]);
    const names = { byDay: false, groupBy: 'package' };
    t.deepEqual(await items(names), [
      ['a', null, 3],
      ['b', null, 4],
    ]);
    t.deepEqual(await items(names, 1), [['a', null, 3]]);
    t.deepEqual(await items(names, 1, ['a', 0]), [['b', null, 4]]);
    const days = { byDay: true, groupBy: 'package' };
    t.deepEqual(await items(days), [
      ['a', 0, 1],
      ['a', 1, 2],
      ['b', 0, 4],
    ]);
    t.deepEqual(await items(days, 2, ['a', first]), [
      ['a', 1, 2],
      ['b', 0, 4],
    ]);
    t.deepEqual(await items(days, 50, ['a', first + day]), [['b', 0, 4]]);
    // Requests without a token have an empty one.
    const tokens = { byDay: false, groupBy: 'token' };
    t.deepEqual(await items(tokens), [
      ['', null, 32],
      ['id', null, 64],
    ]);
    t.deepEqual(await items(tokens, 50, ['', 0]), [['id', null, 64]]);
    const sums = await sumsOf(database, 1, may, 'package');
    t.deepEqual(
      sums.names.map(({ name, counters: { downloads } }) => [name, downloads]),
      [
        ['a', 3],
        ['b', 0],
      ],
    );
  });

  test(`${dialect}: stored bytes of a month are those of its hours, and of the measurement while it is open`, async (t) => {
    const database = await open(t, dialect);
    await database.transaction((tx) =>
      tx.insertNew('storage_samples', [
        sample(first - hour, 900, 900),
        sample(first, 10, 5),
        sample(first + hour, 20, 10),
        sample(may.end - hour, 7, 3),
        sample(may.end, 900, 900),
        sample(first, 900, 900, 2),
      ]),
    );
    const meter = measured({ hosted: 50, mirrored: 4, asOf: 77 });
    const months = { peak: 30, average: Math.round(55 / 3), byteHours: 55 };
    t.deepEqual(await storageOf(database, meter, 1, may, may.end), {
      current: { hosted: 7, mirrored: 3 },
      ...months,
      asOf: may.end,
    });
    t.deepEqual(await storageOf(database, meter, 1, may, may.end - 1), {
      current: { hosted: 50, mirrored: 4 },
      ...months,
      peak: 54,
      asOf: 77,
    });
    const nothing = { hosted: 0, mirrored: 0 };
    t.deepEqual(await storageOf(database, measured(undefined), 3, may, first), {
      current: nothing,
      peak: 0,
      average: 0,
      byteHours: 0,
      asOf: undefined,
    });
    const june = parsePeriod('2027-06')!;
    t.deepEqual(await storageOf(database, measured({ hosted: 2, mirrored: 1, asOf: 5 }), 3, june, june.start), {
      current: { hosted: 2, mirrored: 1 },
      peak: 3,
      average: 3,
      byteHours: 0,
      asOf: 5,
    });
    t.like(await storageOf(database, meter, 3, may, may.end), { current: nothing, average: 0 });
  });

  test(`${dialect}: downloads of the last 30 days are of one account and kind, today last`, async (t) => {
    const database = await open(t, dialect);
    const now = Date.UTC(2027, 4, 15, 13);
    const days = lastDays(now);
    t.deepEqual([days.length, days[0], days.at(-1)], [30, Date.UTC(2027, 3, 16), Date.UTC(2027, 4, 15)]);
    const on = (index: number, downloads: number, more: Row = {}) => {
      const at = days[index]!;
      return row('package', 'a', { day: at, period_start: periodAt(at).start, downloads, ...more });
    };
    await database.transaction((tx) =>
      tx.insertNew('usage_counts', [
        on(0, 1),
        on(29, 2),
        { ...on(0, 4), day: days[0]! - day },
        on(5, 8, { account_id: 2 }),
        on(6, 16, { dimension: 'container' }),
        on(7, 32, { name: 'b' }),
        on(8, 64, { name: 'c' }),
      ]),
    );
    const downloadsOf = await dailyDownloads(database, 1, 'package', ['a', 'b', 'none'], now);
    const zeros = Array<number>(28).fill(0);
    t.deepEqual(downloadsOf('a'), [1, ...zeros, 2]);
    t.is(downloadsOf('b')[7], 32);
    t.deepEqual(downloadsOf('none'), [0, ...zeros, 0]);
    t.deepEqual(downloadsOf('c'), [0, ...zeros, 0], 'it was not asked for');
    t.deepEqual((await dailyDownloads(database, 1, 'package', [], now))('a'), [0, ...zeros, 0]);
  });
}

test('months, days and hours are of UTC, and a month is open for a while after its end', (t) => {
  t.deepEqual(periodAt(Date.UTC(2027, 11, 31, 23, 59, 59, 999)), {
    start: Date.UTC(2027, 11, 1),
    end: Date.UTC(2028, 0, 1),
  });
  t.deepEqual(parsePeriod('2028-02'), { start: Date.UTC(2028, 1, 1), end: Date.UTC(2028, 2, 1) });
  t.deepEqual(parsePeriod('2027-10'), periodAt(Date.UTC(2027, 9, 5)));
  for (const text of ['', '2027', '2027-5', '2027-13', '2027-00', '12027-05', '2027-051', '2027-05-01', ' 2027-05'])
    t.is(parsePeriod(text), undefined, text);
  const at = Date.UTC(2027, 4, 6, 7, 8, 9, 10);
  t.deepEqual([dayOf(at), hourOf(at)], [Date.UTC(2027, 4, 6), Date.UTC(2027, 4, 6, 7)]);
  const minute = 60_000;
  t.deepEqual(
    [may.end - 1, may.end, may.end + 10 * minute - 1, may.end + 10 * minute].map((now) => isClosed(may, now)),
    [false, false, false, true],
  );
  const last = may.end - day;
  t.is(dayToWrite(last, may.end + 5 * minute - 1), last);
  t.is(dayToWrite(last, may.end + 5 * minute), may.end);
  t.is(dayToWrite(first, last + minute), first, 'an earlier day of the same month');
});
