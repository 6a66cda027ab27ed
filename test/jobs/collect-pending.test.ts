import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { MemoryDriver } from '../support/memory-driver.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { runJob } from '../support/inside.ts';

const hour = 3_600_000;

for (const dialect of dialects) {
  test(`${dialect}: without a grace, pending bytes are still kept for an hour`, async (t) => {
    const driver = new MemoryDriver();
    const settings = { gc: { grace: '0s' }, database: { url: await temporaryDatabase(t, dialect) } };
    const server = await startTestServer(t, settings, { driver });
    const startedAt = Date.now();
    server.clock.now = startedAt;
    const [stored, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    driver.faults.after = async (operation) => {
      if (operation !== 'put') return;
      driver.faults.after = undefined;
      stored.resolve();
      await mayEnd.promise;
    };
    const app = new TestRepository(server, 'team/app');
    const pushing = app.blob('slow');
    await stored.promise;
    server.clock.now = startedAt + hour;
    t.like(await runJob(server, 'gc'), { blobs: 0 });
    server.clock.now = startedAt + hour + 1;
    t.like(await runJob(server, 'gc'), { blobs: 1 });
    mayEnd.resolve();
    const { digest } = await pushing;
    t.is(await (await app.fetch(`blobs/${digest}`)).text(), 'slow', 'collected bytes are put again');
  });
}
