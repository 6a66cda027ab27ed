import test from 'ava';
import { ImportRunTable } from '../../src/import/runs/run-table.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, defaultAccountOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const lists = { only: [], names: [], rename: [] };
const flags = { concurrency: 4, needsSecret: false, dryRun: false, moveTags: false, hosted: false };
const settings = { kind: 'feed', url: 'https://feed.test/index.json', ...lists, ...flags };

for (const dialect of dialects)
  test(`${dialect}: of resumptions of one run at the same time, one succeeds`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const table = new ImportRunTable(databaseOf(server), server.clock.time);
    const account = defaultAccountOf(server);
    const id = await table.begin(account, settings);
    for (let round = 0; round < 5; round += 1) {
      await table.rows.end(id, 'failed', {});
      const resumed = await Promise.allSettled(Array.from({ length: 6 }, () => table.resume(account, id)));
      t.is(resumed.filter(({ status }) => status === 'fulfilled').length, 1);
    }
  });

for (const dialect of dialects)
  test(`${dialect}: after the clock was set back, the run of a killed process holds no place`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const now = Date.now();
    const at = (time: number) => new ImportRunTable(databaseOf(server), () => time);
    const account = defaultAccountOf(server);
    const id = await at(now).begin(account, settings);
    await t.throwsAsync(at(now - 59_000).begin(account, settings), { message: /runs now/ });
    await at(now - 86_400_000).begin(account, settings);
    const [row] = await databaseOf(server).select('SELECT state FROM import_runs WHERE id = ?', [id]);
    t.like(row, { state: 'lost' });
  });
