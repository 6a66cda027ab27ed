import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { outcomes } from '../../src/mirror/store/counts.ts';
import { scrape } from '../support/metrics.ts';
import { startTestServer } from '../support/server.ts';
import { json, startMirrorOf, UpstreamFeed, validated } from '../support/upstreams/upstream-feed.ts';
import { answer, held } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';

// What the metrics say about the mirror and its upstreams.

async function mirrored(t: ExecutionContext) {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { id: 'up-team' })] });
  server.clock.now = Date.now();
  const get = async (path: string, init: RequestInit = {}) => {
    const response = await server.fetch(`/v2/up.test/${path}`, init);
    return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
  };
  const requests = async () => {
    const metrics = await scrape(server);
    const named = (name: string, label: string) =>
      Object.fromEntries(
        metrics.series
          .filter((each) => each.name === name && each.value > 0 && each.labels['kind'] !== 'nuget')
          .map(({ labels, value }) => [labels[label]!, value]),
      );
    return {
      metrics,
      outcomes: named('entrepot_mirror_requests_total', 'outcome'),
      bytes: named('entrepot_mirror_bytes_total', 'source'),
      statuses: named('entrepot_upstream_requests_total', 'status'),
    };
  };
  return { upstream, server, get, requests, later: (ms: number) => (server.clock.now! += ms) };
}

test('requests to the mirror are counted by outcome, and bytes by where they came from', async (t) => {
  const { upstream, get, requests } = await mirrored(t);
  const layer = randomBytes(300_000);
  const { digest } = upstream.blob('app', layer);
  const path = `app/blobs/${digest}`;
  t.like(await get(path), { status: 200, bytes: 300_000 });
  const missed = await requests();
  t.deepEqual(missed.outcomes, { miss: 1 });
  t.deepEqual(missed.bytes, { upstream: 300_000 });
  t.deepEqual(missed.statuses, { '200': 1 });

  t.like(await get(path), { status: 200, bytes: 300_000 });
  t.like(await get(path, { headers: { range: 'bytes=10-1009' } }), { status: 206, bytes: 1000 });
  t.like(await get(path, { method: 'HEAD' }), { status: 200, bytes: 0 });
  t.is((await get(`app/blobs/sha256:${'0'.repeat(64)}`)).status, 404);
  const hits = await requests();
  t.deepEqual(hits.outcomes, { miss: 1, hit: 3, absent: 1 });
  t.deepEqual(hits.bytes, { upstream: 300_000, store: 301_000 });
  t.deepEqual(hits.statuses, { '200': 1, '404': 1 });
  t.is(hits.metrics.value('entrepot_upstream_request_seconds_count', { upstream: 'up-team' }), 2);
  t.is(hits.metrics.value('entrepot_upstream_request_seconds_bucket', { le: '+Inf' }), 2);
  t.is(hits.metrics.value('entrepot_flights'), 0);
  // Prometheus cannot see the growth to a first value.
  for (const kind of ['nuget', 'registry'])
    for (const outcome of outcomes)
      t.is(
        missed.metrics.value('entrepot_mirror_requests_total', { kind, outcome }),
        kind === 'registry' && outcome === 'miss' ? 1 : 0,
      );
  for (const source of ['store', 'upstream'])
    t.is(hits.metrics.value('entrepot_mirror_bytes_total', { kind: 'nuget', source }), 0);
});

test('a tag that is confirmed saves its bytes, and one that is served while the upstream fails is stale', async (t) => {
  const { upstream, get, requests, later } = await mirrored(t);
  const { manifest } = upstream.image('app', 'v1');
  await get('app/manifests/v1');
  later(600_000);
  t.is((await get('app/manifests/v1')).bytes, manifest.size);
  const confirmed = await requests();
  t.deepEqual(confirmed.outcomes, { miss: 1, revalidated: 1 });
  t.is(confirmed.metrics.value('entrepot_mirror_revalidation_saved_bytes_total', { kind: 'registry' }), manifest.size);
  t.deepEqual(confirmed.bytes, { upstream: manifest.size, store: manifest.size });
  t.is(confirmed.metrics.value('entrepot_upstream_breaker_open', { upstream: 'up-team' }), 0);

  upstream.unplug();
  later(600_000);
  t.is((await get('app/manifests/v1')).status, 200);
  t.true((await get(`app/blobs/sha256:${'1'.repeat(64)}`)).status >= 500);
  const stale = await requests();
  t.deepEqual(stale.outcomes, { miss: 1, revalidated: 1, stale: 1, failed: 1 });
  t.true(stale.statuses['error']! > 0);
  t.is(stale.metrics.value('entrepot_upstream_breaker_open', { upstream: 'up-team' }), 1);
  t.is(stale.metrics.value('entrepot_mirror_revalidation_saved_bytes_total', { kind: 'registry' }), manifest.size);
});

test('each attempt at a failing upstream counts with its status, also a status that HTTP does not know', async (t) => {
  const { upstream, get, requests } = await mirrored(t);
  const failing = `sha256:${'2'.repeat(64)}`;
  upstream.on(`/v2/app/blobs/${failing}`, answer(500));
  t.is((await get(`app/blobs/${failing}`)).status, 502);
  t.deepEqual((await requests()).statuses, { '500': upstream.count(`/v2/app/blobs/${failing}`) });
  const strange = `sha256:${'3'.repeat(64)}`;
  upstream.on(`/v2/other/blobs/${strange}`, answer(999), answer(998));
  await get(`other/blobs/${strange}`);
  const { statuses, outcomes } = await requests();
  t.is(statuses['other'], upstream.count(`/v2/other/blobs/${strange}`));
  t.deepEqual(Object.keys(statuses).sort(), ['500', 'other']);
  t.deepEqual(outcomes, { failed: 2 });
});

test('a fetch in progress is shown, and so are the requests that join it', async (t) => {
  const { upstream, get, requests } = await mirrored(t);
  const bytes = randomBytes(1000);
  const { digest } = upstream.blob('app', bytes);
  const { behaviour, release } = held(answer(200, { 'docker-content-digest': digest }, bytes));
  upstream.on(`/v2/app/blobs/${digest}`, behaviour);
  const readers = [1, 2, 3].map(() => get(`app/blobs/${digest}`));
  await until(async () => (await requests()).metrics.value('entrepot_joined_flights_total') === 2);
  t.is((await requests()).metrics.value('entrepot_flights'), 1);
  release();
  for (const each of await Promise.all(readers)) t.is(each.bytes, 1000);
  const { metrics, bytes: counted } = await requests();
  t.is(metrics.value('entrepot_flights'), 0);
  t.deepEqual(counted, { upstream: 1000 });
});

test('the rate limit that an upstream announces is shown until its window is over', async (t) => {
  const { upstream, get, requests, later } = await mirrored(t);
  const name = 'entrepot_upstream_ratelimit_remaining';
  upstream.manifest('app', { schemaVersion: 2, config: {}, layers: [] }, 'v1', {
    'ratelimit-remaining': '7;w=3600',
    'ratelimit-limit': '100;w=3600',
  });
  t.is((await requests()).metrics.value(name), undefined);
  await get('app/manifests/v1');
  const { metrics } = await requests();
  t.is(metrics.value(name, { upstream: 'up-team' }), 7);
  t.is(metrics.value('entrepot_upstream_ratelimit_limit', { upstream: 'up-team' }), 100);
  later(3_601_000);
  t.is((await requests()).metrics.value(name), undefined);
});

test('a feed counts apart from registries, also under the same ID', async (t) => {
  const up = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const server = await startMirrorOf(t, [up.as('up.test'), registry.settings('up.test')]);
  server.clock.now = Date.now();
  const list = { versions: ['1.0.0'] };
  const size = JSON.stringify(list).length;
  up.upstream.on('/flat/known/index.json', validated(list, '"1"'));
  up.upstream.on('/flat/other/index.json', json(list));
  for (const id of ['known', 'other', 'known']) {
    t.is((await server.fetch(`/v3/package/${id}/index.json`)).status, 200);
    server.clock.now += 360_000;
  }
  registry.unplug();
  await server.fetch(`/v2/up.test/app/blobs/sha256:${'4'.repeat(64)}`);
  const metrics = await scrape(server);
  up.upstream.unplug();
  await server.fetch('/v3/package/third/index.json');
  const both = await scrape(server);
  t.is(metrics.value('entrepot_mirror_revalidation_saved_bytes_total', { kind: 'nuget' }), size);
  t.is(metrics.value('entrepot_mirror_revalidation_saved_bytes_total', { kind: 'registry' }), 0);
  t.is(metrics.value('entrepot_mirror_requests_total', { kind: 'nuget', outcome: 'failed' }), 0);
  t.is(metrics.value('entrepot_mirror_requests_total', { kind: 'registry', outcome: 'failed' }), 1);
  // One series for both: it is open if one of them is, or both are.
  for (const { series } of [metrics, both]) {
    const open = series.filter(({ name }) => name === 'entrepot_upstream_breaker_open').map(({ value }) => value);
    t.deepEqual(open, [1]);
  }
  const counted = metrics.series.filter(({ name }) => name === 'entrepot_upstream_request_seconds_count');
  t.is(counted.length, 1, 'a series must not occur twice');
  for (const [at, { counts }] of server.installation.core.upstreams.entries()) {
    Object.assign(counts, { slowBodies: 1 + at, auditsWithout: 3 + at });
    counts.noteLimit(`${7 - at};w=3600`, `${100 + at}`, server.clock.now);
  }
  const joined = await scrape(server);
  const valuesOf = (name: string) =>
    joined.series.filter((each) => each.name === `entrepot_upstream_${name}`).map(({ value }) => value);
  t.deepEqual(['slow_bodies_total', 'audits_without_data_total'].map(valuesOf), [[3], [7]], 'what both count');
  t.deepEqual(['ratelimit_remaining', 'ratelimit_limit'].map(valuesOf), [[6], [100]], 'the smaller one');
});
