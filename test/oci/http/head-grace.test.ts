import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { rowsOf, runJob, tokenOf } from '../../support/inside.ts';
import { ociManifest, TestRepository, type Descriptor } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';

const minute = 60_000;
const hour = 60 * minute;

for (const dialect of dialects) {
  const setUp = async (t: ExecutionContext, grace = '24h') => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startTestServer(t, { database, gc: { grace } });
    const start = Date.now();
    server.clock.now = start;
    const app = new TestRepository(server, 'team/app');
    const head = async ({ digest }: Descriptor, repository = app) =>
      (await repository.fetch(`blobs/${digest}`, { method: 'HEAD' })).status;
    const linkedAt = async ({ digest }: Descriptor) => {
      const sql = `SELECT linked_at FROM repository_blobs WHERE digest = '${digest}'`;
      return (await rowsOf<{ linked_at: number }>(server, sql))[0]!.linked_at - start;
    };
    const at = (time: number) => (server.clock.now = start + time);
    const tag = (layer: Descriptor) =>
      app.put('v1', { schemaVersion: 2, mediaType: ociManifest, config: layer, layers: [layer] });
    return { server, app, head, linkedAt, at, tag };
  };

  test(`${dialect}: a blob that a pusher was told of is kept for its manifest`, async (t) => {
    const { server, app, head, at, tag } = await setUp(t);
    const layer = await app.blob('layer');
    at(23 * hour);
    t.is(await head(layer), 200);
    at(46 * hour);
    t.like(await runJob(server, 'gc'), { layers: 0, blobs: 0 });
    t.is((await tag(layer)).status, 201);
  });

  test(`${dialect}: without a HEAD, the grace ends as before`, async (t) => {
    const { server, app, head, at } = await setUp(t);
    const layer = await app.blob('layer');
    at(25 * hour);
    t.like(await runJob(server, 'gc'), { layers: 1, blobs: 1 });
    t.is(await head(layer), 404);
  });

  test(`${dialect}: the time is written at most every 5 minutes, and only for an unreferenced blob`, async (t) => {
    const { app, head, linkedAt, at, tag } = await setUp(t);
    const layer = await app.blob('layer');
    for (const [time, expected] of [
      [4 * minute, 0],
      [6 * minute, 0],
      [10 * minute, 10 * minute],
      [14 * minute, 10 * minute],
      [16 * minute, 16 * minute],
    ] as const) {
      at(time);
      t.is(await head(layer), 200);
      t.is(await linkedAt(layer), expected, `at minute ${time / minute}`);
    }
    t.is((await tag(layer)).status, 201);
    at(10 * hour);
    t.is(await head(layer), 200);
    t.is(await linkedAt(layer), 16 * minute, 'a manifest refers to it');
  });

  test(`${dialect}: a GET, and a HEAD without the right to push, renew nothing`, async (t) => {
    const { server, app, head, linkedAt, at } = await setUp(t);
    const layer = await app.blob('layer');
    at(20 * hour);
    const reader = new TestRepository(server, 'team/app', await tokenOf(server, ['read']));
    t.is(await head(layer, reader), 200);
    t.is((await app.fetch(`blobs/${layer.digest}`)).status, 200);
    t.is(await linkedAt(layer), 0);
  });

  test(`${dialect}: a time from before the clock was set back is renewed`, async (t) => {
    const { head, linkedAt, at, app } = await setUp(t);
    at(10 * hour);
    const layer = await app.blob('layer');
    at(0);
    t.is(await head(layer), 200);
    t.is(await linkedAt(layer), 0);
  });

  test(`${dialect}: a short grace is renewed more often`, async (t) => {
    const { server, app, head, at } = await setUp(t, '10m');
    const layer = await app.blob('layer');
    for (const minutes of [9, 11]) {
      at(minutes * minute);
      t.is(await head(layer), 200);
    }
    at(20 * minute);
    t.like(await runJob(server, 'gc'), { layers: 0 });
    at(22 * minute);
    t.like(await runJob(server, 'gc'), { layers: 1 });
  });
}
