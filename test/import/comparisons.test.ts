import test from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import { comparisonsOf, noteComparison } from '../../src/nuget/hosted/comparisons.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const day = 86_400_000;

for (const dialect of dialects) {
  test(`${dialect}: a comparison with an upstream counts for 90 days, and old ones are forgotten when there are many`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const now = 1000 * day;
    const found = { upstream: 'up', sha512: 'hash', digest: digestOf('a'), size: 5 };
    const key = { accountId: 1, id: 'lib', version: '1.0.0' };
    await noteComparison(database, key, { ...found, upstream: 'before', size: 4 }, now - day);
    await noteComparison(database, key, found, now);
    await noteComparison(database, { ...key, version: '2.0.0' }, found, now - 1);
    await noteComparison(database, { ...key, accountId: 2 }, { ...found, size: 6 }, now);
    await noteComparison(database, { ...key, id: 'other' }, { ...found, size: 7 }, now);
    const both = new Map([
      ['1.0.0', found],
      ['2.0.0', found],
    ]);
    t.deepEqual(await comparisonsOf(database, 1, 'lib', now), both);
    t.deepEqual(await comparisonsOf(database, 1, 'lib', now + 90 * day - 1), new Map([['1.0.0', found]]));
    t.deepEqual(await comparisonsOf(database, 1, 'lib', now + 90 * day), new Map());

    const row = (index: number) => ({
      account_id: 3,
      package_key: 'old',
      version_key: String(index),
      upstream: 'up',
      sha512: 'hash',
      digest: found.digest,
      size_bytes: 5,
      compared_at: now + index,
    });
    const later = now + 90 * day + 2000;
    const count = async () => (await database.select('SELECT * FROM package_comparisons')).length;
    await database.transaction(async (tx) => {
      for (let from = 0; from < 996; from += 332)
        await tx.insertNew(
          'package_comparisons',
          Array.from({ length: 332 }, (_, index) => row(1000 + from + index)),
        );
    });
    await noteComparison(database, { ...key, id: 'new' }, found, later);
    t.is(await count(), 1001, '1,000 old ones stay');
    await database.transaction((tx) => tx.insertNew('package_comparisons', [row(1999), row(2001)]));
    await noteComparison(database, { ...key, id: 'newer' }, found, later);
    t.is(await count(), 3, 'more of them go');
  });
}
