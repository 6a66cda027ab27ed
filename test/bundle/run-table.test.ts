import test from 'ava';
import { BundleRunTable } from '../../src/bundle/runs/run-table.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const settings = { files: [], platforms: [], frameworks: [], referrers: true };
const making = { ...settings, stored: true, policy: false, allowMissing: false };
const options = { unsigned: false, older: false };
const busy = { name: 'TooManyRequests' };

for (const dialect of dialects)
  test(`${dialect}: one making and one import run, and a run whose process died frees its place`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const table = new BundleRunTable(databaseOf(server), server.clock.time);
    const made = await table.make(making);
    await t.throwsAsync(table.make(making), busy);
    const [first, second] = [await table.beginImport(), await table.beginImport()];
    await table.startImport(first, options);
    await t.throwsAsync(table.startImport(second, options), busy);
    t.is((await table.get('imported', second)).state, 'receiving', 'it is still there');
    t.true(await table.rows.beat(first, { bytes: 1, of: 2 }));
    await table.rows.end(first, 'done', { bytes: 2, of: 2 });
    await t.throwsAsync(table.startImport(first, options), { name: 'Invalid' });
    await table.startImport(second, options);
    t.true(await table.cancel('imported', second));
    t.false(await table.rows.beat(second, {}));
    server.clock.now = Date.now() + 61_000;
    t.is((await table.get('made', made)).state, 'lost');
    await table.make(making);
  });

for (const dialect of dialects)
  test(`${dialect}: of starts of one import at the same time, one succeeds`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const table = new BundleRunTable(databaseOf(server), server.clock.time);
    for (let round = 0; round < 5; round += 1) {
      const id = await table.beginImport();
      const starts = await Promise.allSettled(Array.from({ length: 6 }, () => table.startImport(id, options)));
      t.is(starts.filter(({ status }) => status === 'fulfilled').length, 1);
      t.is((await table.get('imported', id)).state, 'running');
      await table.rows.end(id, 'done', {});
    }
  });
