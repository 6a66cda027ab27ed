import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { bundleForm, called, ended, madeBundle, ranImport, sentImport } from '../support/bundle-runs.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { holdSync } from '../support/disk.ts';
import { afterGet } from '../support/inside.ts';
import { held, serve } from '../support/upstreams/faulty-upstream.ts';
import { until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';

// A making or an import that somebody stops while it runs.

test.serial('an import that is stopped shows nothing, and runs again from what it has stored', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const server = await gap.far.serve();
  const visitor = await Visitor.signedIn(server);
  const at = await sentImport(server, segments);
  const barrier = await holdSync(t, (path) => path.startsWith(server.data) && !path.endsWith('.db-wal'));
  await called(server, 'POST', `${at}/run`, {});
  await barrier.reached;
  const page = `/console/bundles${at}`;
  t.regex(await visitor.page(page), /value="delete">Stop it</);
  const noticed = afterGet(server, 'SELECT state, cancelled FROM bundle_runs');
  await visitor.send(page, { act: 'delete' });
  t.is((await called(server, 'GET', at))['state'], 'running', 'it stops after what it is doing');
  await noticed;
  barrier.release();
  t.like(await ended(server, at), { state: 'cancelled', error: null, bundle: null });
  const status = async (path: string) => (await server.fetch(path)).status;
  const served = [
    '/v2/redis/manifests/7',
    '/v3/package/lib.one/index.json',
    '/v3/package/lib.one/1.0.0/lib.one.1.0.0.nupkg',
  ];
  t.deepEqual(await Promise.all(served.map(status)), [502, 504, 504]);
  t.deepEqual(
    (await called(server, 'GET', ''))['items'].map(({ state }: { state: string }) => state),
    ['incomplete'],
  );
  const other = await sentImport(server, segments);
  t.is((await ranImport(server, other))['state'], 'done', 'another import runs');
  t.deepEqual(await Promise.all(served.map(status)), [200, 200, 200]);
  t.is((await ranImport(server, at))['state'], 'done', 'and the stopped one');
});

test.serial('a making that is stopped leaves no files, and another one runs', async (t) => {
  const gap = await startAirGap(t);
  const { near, registry } = gap;
  const image = registry.image('library/redis', '7');
  const server = await near.serve();
  const path = `/v2/library/redis/blobs/${image.layer.digest}`;
  const layer = held(serve(image.layer.bytes, { headers: { 'docker-content-digest': image.layer.digest } }));
  registry.on(path, layer.behaviour);
  const { id } = await called(server, 'POST', '', bundleForm({ 'list.txt': 'redis:7\n' }));
  await until(() => registry.count(path) > 0);
  const noticed = afterGet(server, 'SELECT state, cancelled FROM bundle_runs');
  await called(server, 'DELETE', `/${id}`);
  await noticed;
  layer.release();
  t.like(await ended(server, `/${id}`), { state: 'cancelled', error: null, bundle: null, segments: [] });
  await until(
    async () => !(await readdir(join(server.data, 'bundles')).catch((): string[] => [])).includes(String(id)),
  );
  t.deepEqual((await called(server, 'GET', '?direction=made'))['items'], []);
  const again = await called(server, 'POST', '', bundleForm({ 'list.txt': 'redis:7\n' }));
  t.is((await ended(server, `/${again['id']}`))['state'], 'done');
});
