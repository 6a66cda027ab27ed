import test from 'ava';
import { openDatabase } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { resultOf, type PrefetchSettings } from '../../src/jobs/prefetch-run.ts';
import { PrefetchTable } from '../../src/jobs/prefetch-table.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const settings: PrefetchSettings = { dryRun: true, platforms: [], frameworks: [], referrers: false, files: ['a.txt'] };
const progress = { known: 0, ended: 0, received: 0 };

for (const dialect of dialects) {
  test(`${dialect}: the latest runs are kept, those that run, and the files of the latest dry runs`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    let now = 1_000_000;
    const table = new PrefetchTable(database, () => now);
    const running = await table.begin(1, { ...settings, dryRun: false }, []);
    const ids: string[] = [];
    for (let each = 0; each < 53; each += 1) {
      now += 1;
      const id = await table.begin(1, { ...settings, dryRun: each !== 50 }, [{ file: 'a.txt', text: `${each}` }]);
      await table.rows.end(id, 'done', progress);
      ids.unshift(id);
    }
    const list = await table.list();
    t.deepEqual(
      list.map(({ id }) => id),
      ids.slice(0, 50),
    );
    t.deepEqual(
      list.map(({ canFetch }) => canFetch),
      list.map((_, index) => index < 6 && index !== 2),
      'the five latest dry runs',
    );
    t.deepEqual(list[0], {
      id: ids[0]!,
      state: 'done',
      createdAt: now,
      endedAt: now,
      settings,
      progress,
      canFetch: true,
    });
    t.deepEqual(await table.filesOf(ids[5]!), [{ file: 'a.txt', text: '47' }]);
    await t.throwsAsync(table.filesOf(ids[6]!), { name: 'NotFound', message: /Send them again/ });
    await t.throwsAsync(table.get(ids[50]!), { name: 'NotFound', message: /latest 50 are kept/ });
    t.like(await table.get(running), { state: 'running', canFetch: false, progress });
    await table.begin(1, settings, []);
    await t.throwsAsync(table.begin(1, settings, []), { name: 'TooManyRequests', message: /^2 prefetches run now/ });
    now = 1_060_000;
    t.like(await table.get(running), { state: 'running' }, 'a heartbeat may be a minute old');
    now += 1;
    t.like(await table.get(running), { state: 'lost', endedAt: now });
  });
}

test('mysql: prefetches are not announced', async (t) => {
  let announced = 0;
  const database = await openDatabase(await temporaryDatabase(t, 'mysql'), {
    versions: () => Promise.resolve({ of: () => '1' }),
    announce: () => Promise.resolve(void (announced += 1)),
  });
  t.teardown(() => database.close());
  await migrate(database);
  let now = 1_000_000;
  const table = new PrefetchTable(database, () => now);
  const before = announced;
  const id = await table.begin(1, settings, []);
  t.true(await table.rows.beat(id, progress));
  await table.cancel(1, id);
  t.true(await table.rows.isCancelled(id));
  t.false(await table.rows.beat(id, progress));
  await table.rows.end(id, 'cancelled', progress);
  await table.begin(1, settings, []);
  now += 60_001;
  t.deepEqual((await table.list()).map(({ state }) => state).toSorted(), ['cancelled', 'lost']);
  t.is(announced, before);
});

test('the kept result of a prefetch is bounded', (t) => {
  const tally = { count: 1, bytes: 2 };
  const tallies = { package: tally, manifest: { count: 3, bytes: 4 }, blob: { count: 5, bytes: 6 } };
  const long = 'x'.repeat(301);
  const missing = Array.from({ length: 501 }, (_, line) => ({
    what: long,
    reason: 'r'.repeat(300),
    location: { file: long, line },
  }));
  const skipped = new Map(Array.from({ length: 501 }, (_, index) => [`${index} ${long}`, long] as const));
  const report = { fetched: tallies, present: tallies, unmeasured: 5, approximate: true, skipped, missing };
  const result = resultOf(report as unknown as Parameters<typeof resultOf>[0]);
  t.deepEqual([result.fetched, result.present], [tallies, tallies]);
  t.like(result, { unmeasured: 5, approximate: true, skippedTotal: 501, missingTotal: 501 });
  t.deepEqual([result.skipped.length, result.missing.length], [500, 500]);
  const cut = `${'x'.repeat(300)}…`;
  t.deepEqual(result.skipped[0], { what: `0 ${'x'.repeat(298)}…`, reason: cut });
  t.deepEqual(result.missing[1], { file: cut, line: 1, what: cut, reason: 'r'.repeat(300) });
});
