import test from 'ava';
import { indexVersion } from '../../../src/nuget/hosted/term-index.ts';
import { Reindexing } from '../../../src/nuget/search/reindex.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { hostRows } from '../../support/hosted-rows.ts';

test('a run indexes 200 packages of older rules, the oldest rules first, and a later run the others', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await hostRows(database, 1, 'First', ['1.0.0'], { index_version: indexVersion - 1 });
  await hostRows(database, 1, 'New', ['1.0.0'], { index_version: indexVersion });
  await database.transaction(async (tx) => {
    const rows = Array.from({ length: 200 }, (_, at) => ({
      account_id: 2,
      package_key: `p${at}`,
      package_id: `P${at}`,
      standing: 0,
      created_at: 1,
      updated_at: 1,
      index_version: 0,
    }));
    for (let at = 0; at < rows.length; at += 50) await tx.insertNew('packages', rows.slice(at, at + 50));
  });
  let writes = 0;
  const counting = changedDatabase(database, {
    transaction: (work, options) => {
      writes += 1;
      t.deepEqual(options, { fleeting: true });
      return database.transaction(work, options);
    },
  });
  const old = async () =>
    (
      await database.select<{ package_id: string }>('SELECT package_id FROM packages WHERE index_version < ?', [
        indexVersion,
      ])
    ).map(({ package_id: id }) => id);
  const reindexing = new Reindexing(counting);
  const [one, other] = [reindexing.run(), reindexing.run()];
  t.is(one, other, 'a run that has not ended is joined');
  await one;
  t.is(writes, 200);
  t.deepEqual(await old(), ['First']);
  await reindexing.run();
  t.deepEqual(await old(), []);
  const terms = await database.select<{ term: string }>('SELECT term FROM package_terms ORDER BY term');
  t.deepEqual(
    terms.map(({ term }) => term),
    ['.first', 'first'],
  );
  await reindexing.run();
  t.is(writes, 201);
});

test('a run ends after its current package when it is closed, and an error does not end later ones', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  for (const id of ['A', 'B', 'C']) await hostRows(database, 1, id, ['1.0.0'], { index_version: 0 });
  const [began, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const broken = new Error('it broke');
  let writes = 0;
  const held = changedDatabase(database, {
    transaction: async (work, options) => {
      writes += 1;
      if (writes === 1) throw broken;
      began.resolve();
      await go.promise;
      return database.transaction(work, options);
    },
  });
  const reindexing = new Reindexing(held);
  await t.throwsAsync(reindexing.run(), { is: broken });
  const running = reindexing.run();
  await began.promise;
  let isClosed = false;
  const closing = reindexing.close().then(() => (isClosed = true));
  await Promise.resolve();
  t.false(isClosed, 'it waits for the package');
  go.resolve();
  await Promise.all([running, closing]);
  t.is(writes, 2);
  await reindexing.run();
  t.is(writes, 2);
  await new Reindexing(database).close();
});
