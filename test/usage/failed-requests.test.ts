import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { FailedRequests } from '../../src/usage/failed-requests.ts';
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
