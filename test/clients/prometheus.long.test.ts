import { spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import { schema } from '../../src/config/schema.ts';
import { execute, noteUse, requiredCommand } from '../support/clients/clients.ts';
import { testWith } from '../support/clients/test-with.ts';
import { filesOf, flipBit } from '../support/damage.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { applyPolicy, databaseOf, eventsOf, failAccounts, runJob, tokenOf } from '../support/inside.ts';
import { linesOf } from '../support/known-bad.ts';
import { readDashboard, readRules, rulesFile } from '../support/metrics.ts';
import { endWithThisProcess } from '../support/processes/ending.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { answers, freePort } from '../support/processes/services.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { s3Storage, startS3 } from '../support/s3.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { askTls, startTlsServer } from '../support/tls.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';

// A real Prometheus scrapes a server, evaluates the dashboard's expressions, and fires each alert by its fault.

const root = join(import.meta.dirname, '../..');

interface Result {
  metric: Record<string, string>;
  value: [time: number, value: string];
}

interface Prometheus {
  query(expression: string): Promise<Result[]>;
  /** The names of the alerts that fire, with the instance if they have one. */
  firing(): Promise<string[]>;
}

interface Target {
  address: string;
  token?: string;
}

/** A Prometheus on loopback, with the alerts of the repository that fire at once and look at ten seconds. */
async function startPrometheus(t: ExecutionContext, targets: readonly Target[]): Promise<Prometheus> {
  const folder = await folderUntilEnd(t);
  const rules = (await readFile(rulesFile, 'utf8')).replace(/for: \w+/g, 'for: 0s').replace(/\[\d+[mhd]\]/g, '[10s]');
  await writeFile(join(folder, 'alerts.yml'), rules);
  const scrapes = targets.map(({ address, token }, index) => ({
    job_name: `target-${index}`,
    static_configs: [{ targets: [address], labels: { job: 'entrepot' } }],
    ...(token !== undefined && { authorization: { credentials: token } }),
  }));
  const global = { scrape_interval: '500ms', scrape_timeout: '500ms', evaluation_interval: '500ms' };
  const config = { global, rule_files: ['alerts.yml'], scrape_configs: scrapes };
  // JSON is YAML.
  await writeFile(join(folder, 'prometheus.yml'), JSON.stringify(config));
  const address = `127.0.0.1:${await freePort()}`;
  const args = [
    `--config.file=${join(folder, 'prometheus.yml')}`,
    `--storage.tsdb.path=${join(folder, 'data')}`,
    `--web.listen-address=${address}`,
  ];
  const child = spawn(requiredCommand('prometheus'), args, { stdio: 'ignore' });
  endWithThisProcess(child);
  t.teardown(async () => {
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  });
  noteUse('prometheus');
  await until(() => answers(`http://${address}/-/ready`), 30_000);
  const query = async (expression: string) => {
    const response = await fetch(`http://${address}/api/v1/query?query=${encodeURIComponent(expression)}`);
    const body = (await response.json()) as { status: string; error?: string; data: { result: Result[] } };
    if (body.status !== 'success') throw new Error(`${expression}: ${body.error}`);
    return body.data.result;
  };
  const firing = async () =>
    (await query('ALERTS{alertstate="firing"}')).map(({ metric }) =>
      `${metric['alertname']} ${metric['instance'] ?? ''}`.trim(),
    );
  return { query, firing };
}

async function startMonitored(t: ExecutionContext) {
  const disk = new TestDisk();
  const redis = await ownRedis(t);
  await redis.start();
  const [good, bad, cut] = [
    await startUpstreamRegistry(t),
    await startUpstreamRegistry(t),
    await startUpstreamRegistry(t),
  ];
  const { jobs } = schema.parse({});
  const off = Object.fromEntries(Object.keys(jobs).map((name) => [name, 'off']));
  const dropped = { lines: 0 };
  const settings = {
    upstreams: [good.settings('good.test'), bad.settings('bad.test'), cut.settings('cut.test')],
    redis: { url: redis.url },
    limits: { accountStorage: '1MiB' },
    jobs: { ...off, gc: jobs.gc },
  };
  const healthTimes = { limit: 20_000, writeEvery: 0, perSecond: 100, remember: 30_000 };
  const server = await startTestServer(t, settings, { disk, healthTimes, droppedLines: () => dropped.lines });
  const adminPort = await freePort();
  const inS3 = await startTlsServer(t, { server: { adminPort }, storage: s3Storage(await startS3(t)) });
  const pushToS3 = (body: Buffer) => {
    const options = { method: 'POST', headers: { 'content-type': 'application/octet-stream' }, body };
    return askTls(inS3.server, inS3.pair, `/v2/app/blobs/uploads/?digest=${digestOf(body)}`, options);
  };
  const address = new URL(server.url).host;
  const tls = `127.0.0.1:${adminPort}`;
  const down = `127.0.0.1:${await freePort()}`;
  // Measured at the first scrape, and then every ten seconds.
  await runJob(server, 'sample');
  const prometheus = await startPrometheus(t, [{ address, token: server.token }, { address: tls }, { address: down }]);
  return { disk, redis, good, bad, cut, dropped, server, pushToS3, address, tls, down, prometheus };
}

const blob = (index: number) => `blobs/sha256:${String(index).padStart(64, '0')}`;

/** Sends 30 requests within about three seconds, so that a rate sees them. */
async function repeat(request: (index: number) => Promise<unknown>): Promise<void> {
  for (let index = 0; index < 30; index += 1) {
    await request(index);
    await sleep(100);
  }
}

/** Requests of each kind, without a fault. */
async function traffic(server: TestServer, { good }: Pick<Awaited<ReturnType<typeof startMonitored>>, 'good'>) {
  const image = good.image('app', 'v1');
  good.manifest('limited', { schemaVersion: 2, config: {}, layers: [] }, 'v1', {
    'ratelimit-remaining': '90;w=3600',
    'ratelimit-limit': '100;w=3600',
  });
  for (const path of ['app/manifests/v1', 'limited/manifests/v1', `app/blobs/${image.layer.digest}`]) {
    for (let count = 0; count < 2; count += 1) {
      await (await server.fetch(`/v2/good.test/${path}`)).arrayBuffer();
    }
  }
  await server.fetch(`/v2/good.test/app/${blob(7)}`);
  await new TestFeed(server).publish({ id: 'Hosted' });
  await runJob(server, 'gc');
}

const test = testWith('prometheus', 'promtool', 'redis-server');

test('promtool accepts the alerts and the configuration, and the alerts fire when they should', async (t) => {
  const promtool = requiredCommand('promtool');
  const config = join(root, 'docker/prometheus/prometheus.yml');
  for (const args of [
    ['check', 'rules', rulesFile],
    ['check', 'config', '--syntax-only', config],
    ['test', 'rules', join(root, 'test/clients/alerts.yml')],
  ]) {
    const { code, stdout, stderr } = await execute(promtool, args);
    t.is(code, 0, `promtool ${args.join(' ')}: ${stdout}${stderr}`);
  }
});

test('every panel of the dashboard has data, and every alert fires by its fault and by no other', async (t) => {
  const parts = await startMonitored(t);
  const { server, prometheus, address, tls, down } = parts;
  // Prometheus has the counters from before the first request.
  await until(async () => (await prometheus.query(`entrepot_flights{instance="${address}"}`)).length === 1, 30_000);
  await traffic(server, parts);
  await sleep(2000);
  for (let count = 0; count < 5; count += 1) await server.fetch('/v1/packages');
  for (let count = 0; count < 5; count += 1) t.is((await parts.pushToS3(Buffer.from(`${count}`))).status, 201);
  await server.fetch('/v1/nothing');
  await sleep(1500);
  const lines: string[] = [];
  for (const { title, targets = [] } of (await readDashboard()).panels) {
    for (const { expr } of targets) {
      const expression = expr.replaceAll('$instance', '.*').replaceAll(/\$__(?:rate_interval|range)/g, '10s');
      const found = await prometheus.query(expression);
      const values = found.map(({ value }) => Number(value[1])).filter((value) => !Number.isNaN(value));
      t.true(values.length > 0, `${title}: ${expression}`);
      lines.push(`${title}: ${found.length} series, the first is ${JSON.stringify(found[0]?.metric)} ${values[0]}`);
    }
  }
  t.log(lines.join('\n'));
  t.deepEqual((await prometheus.firing()).toSorted(), [`EntrepotCertificateExpires ${tls}`, `EntrepotDown ${down}`]);

  const fired = new Set(await prometheus.firing());
  const wanted = (await readRules()).map(({ alert }) => alert);
  /** Causes a fault, and waits until its alert fires, which it has not done before. */
  const fire = async (alert: string, fault: () => unknown) => {
    t.false(
      [...fired].some((each) => each.split(' ')[0] === alert),
      `${alert} fires before its fault`,
    );
    await fault();
    await until(async () => {
      for (const each of await prometheus.firing()) fired.add(each);
      return [...fired].some((each) => each.split(' ')[0] === alert);
    }, 30_000).catch(() => t.fail(`${alert} does not fire`));
  };
  const repository = new TestRepository(server, 'team/app');
  const feed = new TestFeed(server);
  await fire('EntrepotUpstreamRateLimit', async () => {
    parts.good.manifest('last', { schemaVersion: 2, config: {}, layers: [] }, 'v1', {
      'ratelimit-remaining': '3;w=3600',
      'ratelimit-limit': '100;w=3600',
    });
    await server.fetch('/v2/good.test/last/manifests/v1');
  });
  await fire('EntrepotKnownBadInUse', async () => {
    const file = join(await folderUntilEnd(t), 'list.jsonl');
    await writeFile(file, linesOf([{ id: 'SEC-1', images: ['good.test/app'] }]));
    await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file }] } });
    await runJob(server, 'known-bad');
  });
  await fire('EntrepotLogLinesDropped', () => (parts.dropped.lines = 5));
  await fire('EntrepotUpstreamErrors', () =>
    repeat(async (index) => {
      const path = blob(index + 100);
      parts.bad.on(`/v2/app-${index % 3}/${path}`, answer(500));
      await server.fetch(`/v2/bad.test/app-${index % 3}/${path}`);
    }),
  );
  await fire('EntrepotUpstreamPaused', async () => {
    parts.cut.unplug();
    await server.fetch(`/v2/cut.test/app/${blob(1)}`);
  });
  await fire('EntrepotAccountNearLimit', async () => {
    await feed.publish({ id: 'Large', payloadBytes: 1_000_000 });
    // A push is measured before its bytes are stored.
    await feed.push({ id: 'Next' });
  });
  await fire('EntrepotDamageFound', async () => {
    const { digest } = await repository.blob('a small blob');
    await flipBit(filesOf(server, digest).stored);
    await runJob(server, 'scrub');
  });
  await fire('EntrepotJobFailed', async () => {
    const database = databaseOf(server);
    const select = database.select.bind(database);
    // Only that of the job, because readiness reads too.
    database.select = (sql, values) =>
      sql.includes('FROM blobs WHERE digest > ?') ? Promise.reject(new Error('a broken query')) : select(sql, values);
    await t.throwsAsync(runJob(server, 'scrub'));
    Reflect.deleteProperty(database, 'select');
  });
  await fire('EntrepotGcOverdue', async () => {
    // The last success is found by its time, so the one before has to be older, too.
    await databaseOf(server).transaction((tx) => tx.run('DELETE FROM job_runs'));
    server.clock.now = Date.now() - 3 * 86_400_000;
    await runJob(server, 'gc');
    server.clock.now = undefined;
  });
  await fire('EntrepotEventsWaiting', async () => {
    eventsOf(server).dispatch = () => Promise.resolve();
    for (let count = 0; count < 101; count += 1) await tokenOf(server, ['read']);
  });
  await fire('EntrepotDatabaseSlow', async () => {
    for (let count = 0; count < 6; count += 1) await databaseOf(server).transaction(() => sleep(700));
  });
  await fire('EntrepotErrors', async () => {
    failAccounts(server, () => {
      throw new Error('a defect');
    });
    await repeat(() => server.fetch('/v1/account'));
  });
  await fire('EntrepotDegraded', () => parts.redis.kill());
  // From here on the storage is degraded, too.
  await fire('EntrepotDiskNearlyFull', () => (parts.disk.reported = 500 * 2 ** 20));
  await fire('EntrepotUploadsRefused', async () => {
    parts.disk.reported = 1000;
    t.is((await feed.push({ id: 'New' })).status, 507);
  });
  await fire('EntrepotEventLoopBlocked', async () => {
    for (let count = 0; count < 3; count += 1) {
      for (const end = performance.now() + 2500; performance.now() < end;);
      await sleep(1200);
    }
  });
  t.deepEqual([...new Set([...fired].map((each) => each.split(' ')[0]!))].toSorted(), wanted.toSorted());
});
