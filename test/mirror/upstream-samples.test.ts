import test from 'ava';
import { UpstreamSamples } from '../../src/mirror/upstream-samples.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';
import { figuresOf } from '../support/upstreams/figures.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

const hour = 3_600_000;
const day = 24 * hour;

for (const dialect of dialects) {
  test(`${dialect}: what all processes asked of an upstream is kept by the hour, and shown by hours and days`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      upstreams: [upstream.settings('up.test')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const start = Date.UTC(2040, 5, 15, 10);
    server.clock.now = start + 1000;
    const now = () => server.clock.now!;
    const processes = [1, 2].map(() => new UpstreamSamples(databaseOf(server), now));
    const first = figuresOf({
      statuses: { 200: 5, 404: 1, 503: 2, timeout: 1, cancelled: 7 },
      outcomes: { hit: 10, stale: 1, miss: 4 },
      times: { bounds: [], counts: [], sum: 0.9 },
      received: 1000,
    });
    await processes[0]!.add([first]);
    await processes[0]!.add([first]);
    await processes[1]!.add([figuresOf({ statuses: { 401: 1 }, times: { bounds: [], counts: [], sum: 0.1 } })]);
    server.clock.now += hour;
    await processes[0]!.add([{ ...first, statuses: { ...first.statuses, 200: 8 }, received: 1500 }]);

    const document = await OpenDocument.of(server);
    const read = async (period: string) => {
      const response = await server.fetch(`/v1/upstreams/up.test/history?period=${period}`);
      return (await document.read('GET /upstreams/{id}/history', response)) as {
        step_seconds: number;
        items: object[];
      };
    };
    t.deepEqual(await read('day'), {
      step_seconds: 3600,
      items: [
        {
          start: new Date(start).toISOString(),
          requests: 10,
          failures: 4,
          mean_ms: 100,
          needed: 15,
          hits: 11,
          received_bytes: 1000,
        },
        {
          start: new Date(start + hour).toISOString(),
          requests: 3,
          failures: 0,
          mean_ms: 0,
          needed: 0,
          hits: 0,
          received_bytes: 500,
        },
      ],
    });
    const [month] = (await read('month')).items;
    t.like(month, { start: '2040-06-15T00:00:00.000Z', requests: 13, received_bytes: 1500 });
    server.clock.now += 2 * day;
    t.deepEqual((await read('day')).items, []);
    t.is((await read('year')).items.length, 1);
    t.is((await server.fetch('/v1/upstreams/up.test/history?period=week')).status, 400);

    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/mirror/up.test?kind=registry&period=month');
    t.regex(page, /<title>06-15: 13, 4 failed<\/title>/);
    t.regex(page, /2040-06-15 00:00 UTC/);
    t.regex(await visitor.page('/console/mirror/up.test'), /Nothing was asked of it in this time/);
    server.clock.now += 400 * day;
    await processes[0]!.deleteOld();
    t.deepEqual(await processes[0]!.list({ kind: 'registry', id: 'up.test' }, 0, hour), []);
  });
}
