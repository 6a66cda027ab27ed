import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { FailedRequests } from '../../src/usage/failed-requests.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const day = 86_400_000;
const now = 100 * day;

/** A failure for a name, `age` milliseconds ago. */
function failure(name: string, age: number, more: Row = {}): Row {
  const key = { account_id: 1, kind: 'package', name, reference: '1.0.0', token_id: null, upstream: 'off.test' };
  const answer = { status: 504, code: 'UpstreamUnavailable', reason: 'offline', request_id: 'r', count: 1 };
  return { id: `${name} ${age}`, ...key, ...answer, first_at: now - age, last_at: now - age, ...more };
}

for (const dialect of dialects) {
  test(`${dialect}: what is wanted of an upstream that is offline is kept, however much else fails`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const write = (rows: readonly Row[]) =>
      database.transaction(async (tx) => {
        for (const some of batches(rows)) await tx.insertNew('failed_requests', some);
      });
    const numbers = Array.from({ length: 5200 }, (_, at) => at);
    const others = { code: 'NotFound', upstream: null, status: 404 };
    await write([
      failure('wanted', 50 * day),
      failure('too-old', 61 * day),
      failure('other-old', 3 * day, others),
      failure('unknown-upstream', 3 * day, { upstream: null }),
      ...numbers.map((at) => failure(`other-${at}`, at, others)),
      ...numbers.map((at) => failure(`theirs-${at}`, at, { ...others, account_id: 2 })).slice(0, 5000),
    ]);
    const failures = new FailedRequests(database, () => now, ['off.test']);
    const names = async () => (await failures.wanted(0)).map(({ name }) => name);
    const kept = async (accountId: number) => {
      const sql = "SELECT COUNT(*) AS kept FROM failed_requests WHERE account_id = ? AND code = 'NotFound'";
      return (await database.get<{ kept: number }>(sql, [accountId]))!.kept;
    };
    await failures.deleteOld();
    t.deepEqual(await names(), ['wanted']);
    t.deepEqual([await kept(1), await kept(2)], [5000, 5000]);
    const left = await database.select(
      "SELECT id FROM failed_requests WHERE name IN ('other-old', 'unknown-upstream')",
    );
    t.deepEqual(left, []);

    const many = Array.from({ length: 20_001 }, (_, at) => failure(`many-${at}`, 10 + at));
    await write(many);
    await failures.deleteOld();
    t.is((await names()).length, 20_000);
    t.false((await names()).includes('wanted'), 'the latest ones are kept');
    t.is(await kept(1), 5000);

    const online = new FailedRequests(database, () => now);
    await online.deleteOld();
    t.is(
      await kept(1),
      5000 - (await database.select("SELECT id FROM failed_requests WHERE code <> 'NotFound'")).length,
    );
  });
}

for (const dialect of dialects) {
  test(`${dialect}: failures that have all in common are one, and are listed with filters, in pages and by frequency`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const clock = testClock(now);
    const failures = new FailedRequests(database, clock.time, ['off.test']);
    const key = {
      accountId: 1,
      kind: 'package' as const,
      name: 'lib',
      reference: '1.0.0',
      tokenId: 'ann',
      upstream: null,
      status: 404,
      code: 'NotFound',
      reason: 'there is none',
    };
    type Key = Omit<typeof key, 'kind' | 'tokenId' | 'upstream'> & {
      kind: 'package' | 'container' | 'other';
      tokenId: string | null;
      upstream: string | null;
    };
    let requests = 0;
    const note = (changes: Partial<Key> = {}) => {
      clock.now! += 1000;
      requests += 1;
      failures.note({ ...key, ...changes, requestId: `r${requests}` });
      return clock.now!;
    };
    const first = note();
    const again = note();
    await failures.flush();
    const last = note();
    note({ accountId: 2, tokenId: 'eve' });
    note({ kind: 'container', name: 'team/app', reference: 'v1', status: 403, code: 'Denied' });
    note({ tokenId: null, name: 'x'.repeat(300), reference: 'y'.repeat(300), reason: 'z'.repeat(600) });
    const wanted = { upstream: 'off.test', status: 504, code: 'UpstreamUnavailable' };
    note({ ...wanted, tokenId: null });
    note({ ...wanted, name: 'other', reference: '' });
    note({ ...wanted, accountId: 2, tokenId: 'eve', reason: 'another reason' });
    const list = (filter: Parameters<typeof failures.list>[0], limit = 50) => failures.list(filter, limit);
    const shown = async (filter: Parameters<typeof failures.list>[0]) =>
      (await list(filter)).map(({ name, code, count }) => `${name.slice(0, 8)} ${code} ${count}`);
    const [ofLib, ...rest] = await list({ accountId: 1, kind: 'package', names: ['lib'], code: 'NotFound' });
    const { id, ...known } = ofLib!;
    t.regex(id, /^[\da-f]{64}$/);
    t.deepEqual([known, rest], [{ ...key, requestId: 'r3', count: 3, firstAt: first, lastAt: last }, []]);
    t.true(again < last);
    const own = ['other UpstreamUnavailable 1', 'lib UpstreamUnavailable 1', 'xxxxxxxx NotFound 1'];
    const lib = 'lib NotFound 3';
    t.deepEqual(await shown({ accountId: 1 }), [...own, 'team/app Denied 1', lib]);
    t.deepEqual(await shown({}), ['lib UpstreamUnavailable 1', ...own, 'team/app Denied 1', 'lib NotFound 1', lib]);
    t.deepEqual(await shown({ accountId: 1, kind: 'container' }), ['team/app Denied 1']);
    t.deepEqual(await shown({ accountId: 1, tokenId: 'ann' }), [own[0]!, 'team/app Denied 1', lib]);
    t.deepEqual(await shown({ accountId: 1, upstream: 'off.test' }), own.slice(0, 2));
    t.deepEqual(await shown({ accountId: 1, code: 'Denied' }), ['team/app Denied 1']);
    t.deepEqual(await shown({ accountId: 1, names: ['team/app', 'other'] }), [own[0]!, 'team/app Denied 1']);
    const [cut] = await list({ accountId: 1, names: ['x'.repeat(255)] });
    t.like(cut, { tokenId: null, reference: 'y'.repeat(255), reason: 'z'.repeat(500) });

    // The next page begins behind the last one, also among failures of the same time.
    const all = await list({});
    await database.transaction((tx) => tx.run('UPDATE failed_requests SET last_at = ?', [last]));
    const pages: string[] = [];
    for (let after: [number, string] | undefined; pages.length < all.length;) {
      const [each, ...more] = await failures.list({}, 1, after);
      t.deepEqual(more, []);
      pages.push(each!.id);
      after = [each!.lastAt, each!.id];
    }
    t.deepEqual(
      pages,
      all
        .map((each) => each.id)
        .sort()
        .toReversed(),
    );
    t.deepEqual(await failures.list({}, 50, [last, pages.at(-1)!]), []);
    t.is((await failures.list({}, 50, [last + 1, pages.at(-1)!])).length, all.length);

    const ranked = await failures.ranked({ accountId: 1 }, 2, undefined);
    t.deepEqual(
      ranked.map(({ item }) => item.count),
      [3, 1],
    );
    note({ tokenId: null, code: 'Denied', name: 'lib' });
    note({ tokenId: null, code: 'Denied', name: 'other' });
    const lastOther = note({ tokenId: null, code: 'Denied', name: 'other' });
    const byToken = await failures.byToken({ accountId: 1, code: 'Denied' }, 10, undefined);
    t.deepEqual(
      byToken.map(({ item: { tokenId, count, names, lastAt } }) => [tokenId, count, names, lastAt]),
      [
        [null, 3, 2, lastOther],
        ['ann', 1, 1, last],
      ],
    );
    t.is((await failures.byToken({ accountId: 1, code: 'Denied' }, 1, undefined)).length, 1);

    t.deepEqual(await failures.wanted(0), [
      { kind: 'package', name: 'lib', reference: '1.0.0', accountId: 1, count: 2, lastAt: last },
      { kind: 'package', name: 'other', reference: '', accountId: 1, count: 1, lastAt: last },
    ]);
    t.deepEqual(await failures.wanted(last), []);
    t.deepEqual(await new FailedRequests(database, clock.time).wanted(0), [], 'no upstream is offline');

    clock.now = last + 2 * day - 1;
    t.is((await list({ accountId: 2 })).length, 2);
    clock.now += 1;
    t.deepEqual(await list({ accountId: 2 }), []);
    const online = new FailedRequests(database, () => last + 2 * day - 1);
    await online.deleteOld();
    const rows = () => database.select("SELECT id FROM failed_requests WHERE code = 'NotFound'");
    t.is((await rows()).length, 3);
    await failures.deleteOld();
    t.is((await rows()).length, 0);
  });
}

test('at most 500 different failures wait in memory, known ones are counted on, and without any nothing is written', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  const failures = new FailedRequests(database, () => now);
  const key = { accountId: 1, kind: 'package', reference: '', tokenId: null, upstream: null, status: 404 } as const;
  const note = (name: string) => failures.note({ ...key, name, code: 'NotFound', reason: '', requestId: 'r' });
  for (let each = 1; each <= 501; each += 1) note(`lib-${each}`);
  note('lib-1');
  const transaction = database.transaction.bind(database);
  let writes = 0;
  database.transaction = (work, options) => {
    writes += 1;
    return transaction(work, options);
  };
  t.is((await failures.list({}, 1000)).length, 500);
  t.is(writes, 1);
  t.deepEqual(
    (await failures.list({ names: ['lib-1', 'lib-501'] }, 10)).map(({ name, count }) => [name, count]),
    [['lib-1', 2]],
  );
  t.is(writes, 1);
  database.transaction = () => Promise.reject(new Error('no database'));
  note('lost');
  await t.throwsAsync(failures.flush(), { message: 'no database' });
  note('unread');
  t.is((await failures.list({}, 1000)).length, 500, 'a list is told of what is written');
  database.transaction = transaction;
  note('lib-502');
  t.deepEqual(
    (await failures.list({ names: ['lost', 'unread', 'lib-502'] }, 10)).map(({ name }) => name),
    ['lib-502'],
  );
});
