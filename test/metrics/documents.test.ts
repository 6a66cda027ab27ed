import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { schema } from '../../src/config/schema.ts';
import { TestFeed } from '../support/feed.ts';
import { applyPolicy, runJob } from '../support/inside.ts';
import { namesIn, parseMetrics, readDashboard, readRules, scrape, type Metrics } from '../support/metrics.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';
import { s3Storage, startS3 } from '../support/s3.ts';
import { startTestServer } from '../support/server.ts';
import { startTlsServer } from '../support/tls.ts';
import { eventually } from '../support/until.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Compares the documented metrics, the dashboard and the alerts with what a server shows.

/** All metrics of a server after some traffic, with each optional part. */
async function liveMetrics(t: ExecutionContext): Promise<Metrics> {
  const upstream = await startUpstreamRegistry(t);
  const { jobs } = schema.parse({});
  const off = Object.fromEntries(Object.keys(jobs).map((name) => [name, 'off']));
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test')],
    redis: { url: redisUrl() },
    limits: { accountStorage: '1MiB' },
    jobs: { ...off, gc: jobs.gc },
  });
  await applyPolicy(server, { knownBad: { lists: [{ name: 'osv', file: import.meta.dirname }] } });
  upstream.manifest('app', { schemaVersion: 2, config: {}, layers: [] }, 'v1', {
    'ratelimit-remaining': '7;w=3600',
    'ratelimit-limit': '100;w=3600',
  });
  await server.fetch('/v2/up.test/app/manifests/v1');
  await new TestFeed(server).publish({ id: 'A' });
  await runJob(server, 'sample');
  const adminPort = await freePort();
  await startTlsServer(t, { server: { adminPort }, storage: s3Storage(await startS3(t)) });
  const tls = await fetch(`http://127.0.0.1:${adminPort}/metrics`);
  // This metric has no series before the first garbage collection.
  const collected = 'entrepot_nodejs_gc_duration_seconds_count';
  const own = await eventually(
    () => {
      Array.from({ length: 1e6 }, () => ({}));
      return scrape(server);
    },
    (metrics) => metrics.value(collected) !== undefined,
  );
  return parseMetrics(`${own.text}\n${await tls.text()}`);
}

/** Labels with few values, all of which are there from the start: alerts and dashboards name them. */
const valuesOfLabels: [name: string, label: string, values: string[]][] = [
  ['entrepot_http_body_bytes_total', 'direction', ['in', 'out']],
  ['entrepot_degraded', 'part', ['database', 'storage', 'redis', 'certificate', 'webhooks']],
  ['entrepot_mirror_requests_total', 'kind', ['nuget', 'registry']],
  ['entrepot_mirror_bytes_total', 'kind', ['nuget', 'registry']],
  ['entrepot_mirror_bytes_total', 'source', ['store', 'upstream']],
  ['entrepot_storage_bytes', 'origin', ['hosted', 'mirrored']],
  ['entrepot_s3_bytes_total', 'direction', ['in', 'out']],
  ['entrepot_storage_cache_requests_total', 'outcome', ['hit', 'joined', 'miss']],
  ['entrepot_job_runs_total', 'outcome', ['done', 'failed', 'interrupted']],
  ['entrepot_database_seconds_count', 'operation', ['read', 'transaction']],
];

test('the documents, the dashboard and the alerts name exactly what a server shows', async (t) => {
  const live = await liveMetrics(t);
  const text = await readFile(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8');
  const rows = [...text.matchAll(/^\| `(entrepot_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$/gm)];
  const documented = rows.map(([, name, type, labels = '']) =>
    `${name} ${type} ${labels.replaceAll(/[`,]/g, '').trim()}`.trim(),
  );
  const shown = [...live.types].map(([name, type]) => {
    const parts = type === 'histogram' ? [`${name}_bucket`] : [name];
    const labels = new Set(
      live.series.filter((each) => parts.includes(each.name)).flatMap((each) => Object.keys(each.labels)),
    );
    labels.delete('le');
    return `${name} ${type} ${[...labels].join(' ')}`.trim();
  });
  t.deepEqual(documented.toSorted(), shown.toSorted());
  const series = new Set(live.series.map(({ name }) => name));
  const empty = [...live.types.keys()].filter((name) => !series.has(name) && !series.has(`${name}_count`));
  t.deepEqual(empty, [], 'each has a value');
  for (const [name, label, values] of valuesOfLabels) {
    const found = live.series.filter((each) => each.name === name).map(({ labels }) => labels[label]!);
    t.deepEqual([...new Set(found)].toSorted(), values.toSorted(), `${label} of ${name}`);
    const description = rows.find(([, each]) => name.startsWith(each!))![4]!;
    for (const value of values)
      t.true(label === 'kind' || description.includes(`\`${value}\``), `${value} in the documents of ${name}`);
  }

  const { panels, templating } = await readDashboard();
  const rules = await readRules();
  const targets = panels.flatMap((panel) => panel.targets ?? []);
  t.true(targets.length > 40 && rules.length > 15);
  for (const { expr, datasource } of targets) {
    // oxlint-disable-next-line no-template-curly-in-string -- a variable of Grafana
    t.is(datasource.uid, '${datasource}');
    t.true(namesIn(expr).length > 0 || expr.includes('up{'), expr);
    for (const name of namesIn(expr)) t.true(series.has(name), `${name} in ${expr}`);
  }
  for (const { alert, expr } of rules) {
    for (const name of namesIn(expr)) t.true(series.has(name), `${name} in ${alert}`);
  }
  t.deepEqual(
    templating.list.map(({ name, type }) => `${name} ${type}`),
    ['datasource datasource', 'instance query'],
  );
  await assertLabels(t, live);
});

/** Each label in the dashboard and the alerts is one of its metric. */
async function assertLabels(t: ExecutionContext, live: Metrics) {
  const labels = new Map<string, Set<string>>();
  for (const each of live.series) {
    const known = labels.get(each.name) ?? new Set(['instance']);
    for (const key of Object.keys(each.labels)) known.add(key === 'job' ? 'exported_job' : key);
    labels.set(each.name, known);
  }
  const { panels } = await readDashboard();
  const expressions = [
    ...panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...(await readRules()).map(({ expr }) => expr),
  ];
  for (const expression of expressions) {
    for (const [, name, selectors] of expression.matchAll(/\b(entrepot_\w+)\{([^}]*)\}/g)) {
      for (const [, label] of selectors!.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)) {
        t.true(labels.get(name!)?.has(label!), `${label} of ${name} in ${expression}`);
      }
    }
    const known = new Set(namesIn(expression).flatMap((name) => [...(labels.get(name) ?? [])]));
    for (const [, list] of expression.matchAll(/\bby \(([^)]*)\)/g)) {
      for (const label of list!.split(',')) t.true(known.has(label.trim()), `${label} in ${expression}`);
    }
  }
}
