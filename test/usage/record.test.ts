import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import type { Use } from '../../src/usage/counters.ts';
import { isClosed, parsePeriod, periodAt } from '../../src/usage/period.ts';
import { UsageRecord } from '../../src/usage/record.ts';
import { itemsOf, totalsOf } from '../../src/usage/report.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const lastMoment = Date.UTC(2027, 0, 31, 23, 59, 59, 999);
const january = parsePeriod('2027-01')!;
const february = parsePeriod('2027-02')!;

function use(changes: Partial<Use> = {}): Use {
  return {
    at: lastMoment,
    token: 'token-a',
    kind: 'package',
    subject: 'made.package',
    act: undefined,
    status: 200,
    complete: true,
    cache: undefined,
    sent: 0,
    received: 0,
    fetched: 0,
    ...changes,
  };
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, database: Database, url: string) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => {
      const url = await temporaryDatabase(t, dialect);
      const database = await openUntilEnd(t, url);
      await migrate(database);
      await run(t, database, url);
    });
  const names = async (database: Database, groupBy: 'token' | 'package' | 'container') =>
    (await itemsOf(database, 1, january, { byDay: false, groupBy }, 50, undefined)).map(
      ({ name, counters: { requests, egress_bytes: bytes } }) => [name, requests, bytes],
    );

  suite('uses of one package by two accounts and tokens on two days are counted apart', async (t, database) => {
    const record = new UsageRecord(database, () => lastMoment);
    const days = [january.start, Date.UTC(2027, 0, 31)];
    // In this order each use differs from the one before in one respect only.
    for (const account of [1, 2]) {
      for (const token of ['token-a', 'token-b']) {
        // Twice: the second use makes it the last one, which the next use is compared with.
        for (const at of days) for (let each = 0; each < 2; each += 1) record.count(account, use({ token, at }));
      }
    }
    record.count(1, use({ at: days[0]! }));
    await record.flush();
    for (const account of [1, 2]) {
      const items = await itemsOf(database, account, january, { byDay: true, groupBy: 'token' }, 50, undefined);
      t.deepEqual(
        items.map(({ name, day, counters }) => [name, day, counters.requests]),
        [
          ['token-a', days[0], account === 1 ? 3 : 2],
          ['token-a', days[1], 2],
          ['token-b', days[0], 2],
          ['token-b', days[1], 2],
        ],
      );
    }
  });

  suite('each request counts for its account, token, subject and day, over several flushes', async (t, database) => {
    const record = new UsageRecord(database, () => lastMoment);
    for (let round = 0; round < 3; round += 1) {
      record.count(1, use({ act: 'download', sent: 100, cache: 'entrepot; hit' }), '1.0.0');
      record.count(
        1,
        use({ token: 'token-b', kind: 'container', subject: 'team/app', sent: 10, act: 'version-check' }),
      );
      record.count(1, use({ kind: 'other', subject: '', act: 'upload', status: 201, received: 7, at: january.start }));
      record.count(1, use({ token: undefined, cache: 'entrepot; fwd=miss; stored', fetched: 1000, status: 206 }));
      record.count(1, use({ status: 416, subject: 'not.there', sent: 1 }));
      for (const status of [401, 403, 404, 429, 500, 502, 504]) record.count(1, use({ status, sent: 9, received: 9 }));
      await record.flush();
    }
    t.deepEqual(await totalsOf(database, 1, january), {
      requests: 15,
      downloads: 3,
      uploads: 3,
      version_checks: 3,
      cache_hits: 3,
      cache_misses: 3,
      egress_bytes: 333,
      ingress_bytes: 21,
      upstream_bytes: 3000,
    });
    t.is((await totalsOf(database, 1, february)).requests, 0);
    t.is((await totalsOf(database, 2, january)).requests, 0);
    t.deepEqual(await names(database, 'token'), [
      ['', 3, 0],
      ['token-a', 9, 303],
      ['token-b', 3, 30],
    ]);
    t.deepEqual(await names(database, 'package'), [
      ['', 3, 3],
      ['made.package', 6, 300],
    ]);
    t.deepEqual(await names(database, 'container'), [['team/app', 3, 30]]);
    const days = await itemsOf(database, 1, january, { byDay: true, groupBy: undefined }, 50, undefined);
    t.deepEqual(
      days.map(({ day, counters }) => [day, counters.requests]),
      [
        [january.start, 3],
        [Date.UTC(2027, 0, 31), 12],
      ],
    );
    await record.close();
    t.deepEqual(await database.select('SELECT id FROM usage_writers'), []);
  });

  suite('a failed flush is kept, and one with an unknown commit is not counted twice', async (t, database) => {
    let fault: 'before' | 'after' | undefined;
    const faulty: Database = Object.create(database, {
      transaction: {
        value: async (work: Parameters<Database['transaction']>[0]) => {
          const failing = fault;
          if (failing === 'before') throw new Error('the database is gone');
          const result = await database.transaction(work);
          if (failing === 'after') throw new Error('the connection broke after COMMIT');
          return result;
        },
      },
    });
    const record = new UsageRecord(faulty, () => lastMoment);
    const count = (number: number, name: string) => {
      for (let index = 0; index < number; index += 1) record.count(1, use({ subject: `${name}${index}`, sent: 1 }));
    };
    for (fault of ['before', 'after', 'after', 'before'] as const) {
      count(250, 'some.');
      await t.throwsAsync(record.flush());
      t.true(record.asOf <= lastMoment);
    }
    fault = undefined;
    await record.flush();
    t.is((await totalsOf(database, 1, january)).requests, 1000);
    t.is((await totalsOf(database, 1, january)).egress_bytes, 1000);
    await record.flush();
    t.is((await totalsOf(database, 1, january)).requests, 1000);
  });

  suite('the counts of two concurrent writers add up', async (t, database, url) => {
    const other = await openUntilEnd(t, url);
    const records = [database, other].map((each) => new UsageRecord(each, () => lastMoment));
    for (let round = 0; round < 5; round += 1) {
      for (const record of records)
        for (let n = 0; n < 120; n += 1) record.count(1, use({ subject: `p${n}`, sent: n }));
      await Promise.all(records.map((record) => record.flush()));
    }
    t.is((await totalsOf(database, 1, january)).requests, 1200);
    const [first] = await itemsOf(database, 1, january, { byDay: false, groupBy: 'package' }, 1, ['p118', 0]);
    t.like(first, { name: 'p119', counters: { requests: 10, egress_bytes: 1190 } });
  });

  suite('a closed month does not change: late counts go to the day when they are written', async (t, database) => {
    let now = lastMoment;
    const record = new UsageRecord(database, () => now);
    record.count(1, use());
    now += 1;
    record.count(1, use({ at: now }));
    now += 60_000;
    t.false(isClosed(january, now));
    await record.flush();
    t.is((await totalsOf(database, 1, january)).requests, 1, '23:59:59.999 is the old month');
    t.is((await totalsOf(database, 1, february)).requests, 1, '00:00:00.000 is the new one');
    record.count(1, use());
    now += 3_600_000;
    t.true(isClosed(january, now));
    t.deepEqual(periodAt(now), february);
    await record.flush();
    t.is((await totalsOf(database, 1, january)).requests, 1);
    t.is((await totalsOf(database, 1, february)).requests, 2);
  });

  suite('the callback gets the downloads of each version in the transaction that writes them', async (t, database) => {
    const received: unknown[] = [];
    const record = new UsageRecord(database, () => lastMoment, {
      package: (_tx, { versions, ...rest }) => {
        received.push({ ...rest, versions: Object.fromEntries(versions) });
        if (received.length === 1) return Promise.reject(new Error('on purpose'));
        return Promise.resolve();
      },
    });
    for (const version of ['1.0.0', '2.0.0', '1.0.0']) record.count(1, use({ act: 'download' }), version);
    record.count(1, use({ act: 'download', complete: false }), '3.0.0');
    record.count(1, use({ act: 'download', status: 206 }), '3.0.0');
    await t.throwsAsync(record.flush(), { message: 'on purpose' });
    t.is((await totalsOf(database, 1, january)).requests, 0, 'the counts are rolled back with the callback');
    await record.flush();
    t.is((await totalsOf(database, 1, january)).requests, 5);
    const downloads = { accountId: 1, name: 'made.package', last: lastMoment, versions: { '1.0.0': 2, '2.0.0': 1 } };
    t.deepEqual(received, [downloads, downloads]);
  });
}

test('while the database is down, memory stays bounded and only names are lost', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  let down = true;
  const faulty: Database = Object.create(database, {
    transaction: {
      value: (work: Parameters<Database['transaction']>[0]) =>
        down ? Promise.reject(new Error('down')) : database.transaction(work),
    },
  });
  const record = new UsageRecord(faulty, () => lastMoment);
  const many = 60_000;
  for (let index = 0; index < many; index += 1) record.count(1, use({ subject: `p${index}` }));
  await t.throwsAsync(record.flush());
  for (let index = 0; index < many; index += 1) record.count(1, use({ subject: `q${index}` }));
  await t.throwsAsync(record.flush());
  down = false;
  await record.flush();
  t.is((await totalsOf(database, 1, january)).requests, 2 * many);
  const rows = await database.get<{ rows: number }>('SELECT COUNT(*) AS "rows" FROM usage_counts');
  t.true(rows!.rows < 101_000, String(rows!.rows));
});
