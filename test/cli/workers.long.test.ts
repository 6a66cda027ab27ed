import { execFileSync } from 'node:child_process';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { parseMetrics } from '../support/metrics.ts';
import { startEntrepot } from '../support/processes/entrepot.ts';
import { answers, redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';

// Several processes on one port, as `ENTREPOT_WORKERS` starts them.

test('two workers serve one port: each sees the changes of the other, and a killed one is replaced', async (t) => {
  const folder = await temporaryFolder();
  const server = await startEntrepot(folder.path, {
    ENTREPOT_WORKERS: '2',
    ENTREPOT_REDIS_URL: redisUrl(),
    ENTREPOT_LOG_LEVEL: 'info',
  });
  t.teardown(async () => {
    await server.stop();
    await folder.remove();
  });
  const request = (token: string, path: string, init: RequestInit = {}): Promise<Response> =>
    // A new connection for each request, so that both workers get requests.
    fetch(server.url + path, { ...init, headers: { authorization: `Bearer ${token}`, connection: 'close' } });
  const servedBy = (): Set<unknown> => {
    const lines = server
      .log()
      .split('\n')
      .filter((line) => line.startsWith('{'));
    return new Set(
      lines
        .map((line) => JSON.parse(line) as { pid: number; msg: string })
        .filter(({ msg }) => msg === 'request')
        .map(({ pid }) => pid),
    );
  };

  const made = await fetch(`${server.url}/v1/tokens`, {
    method: 'POST',
    headers: { authorization: `Bearer ${server.token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'short-lived', scopes: ['read'] }),
  });
  const { id, token } = (await made.json()) as { id: string; token: string };
  // The second worker may be ready later than the first, and log lines arrive shortly after the responses.
  await until(async () => {
    t.is((await request(token, '/v1/packages')).status, 200);
    return servedBy().size === 2;
  });

  t.is((await request(server.token, `/v1/tokens/${id}`, { method: 'DELETE' })).status, 204);
  for (let count = 0; count < 10; count += 1) t.is((await request(token, '/v1/packages')).status, 401, 'at once');

  const [killed] = [...servedBy()] as number[];
  execFileSync('kill', ['-9', String(killed)]);
  await until(async () => {
    await request(server.token, '/v1/packages').catch(() => undefined);
    return servedBy().size === 3;
  });
});

test('each worker answers /metrics for all, with the counters of killed ones, and while another hangs', async (t) => {
  const folder = await temporaryFolder();
  const server = await startEntrepot(folder.path, { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: redisUrl() });
  t.teardown(async () => {
    await server.stop();
    await folder.remove();
  });
  const workers = () =>
    execFileSync('ps', ['-o', 'pid=', '--ppid', `${server.pid}`])
      .toString()
      .trim()
      .split(/\s+/);
  const headers = { authorization: `Bearer ${server.token}`, connection: 'close' };
  const scrape = async () => {
    const startedAt = performance.now();
    const response = await fetch(`${server.url}/metrics`, { headers, signal: AbortSignal.timeout(30_000) });
    const metrics = parseMetrics(await response.text());
    const answered = metrics.value('entrepot_http_requests_total', { status: '404' }) ?? 0;
    return { metrics, answered, seconds: (performance.now() - startedAt) / 1000 };
  };
  await until(
    async () => (await scrape()).metrics.value('entrepot_nodejs_version_info') === 1 && workers().length === 2,
  );
  for (let count = 0; count < 40; count += 1) await fetch(`${server.url}/v1/nothing`, { headers });
  // A request counts when its connection has closed.
  await until(async () => (await scrape()).answered === 40);
  // Several connections, of which each worker gets some.
  for (let count = 0; count < 8; count += 1) t.is((await scrape()).answered, 40);

  // A worker that hangs still gets connections, so only some of these are answered.
  const [hanging, killed] = workers() as [string, string];
  execFileSync('kill', ['-STOP', hanging]);
  t.teardown(() => execFileSync('sh', ['-c', `kill -CONT ${hanging} 2>/dev/null || true`]));
  const answer = await Promise.any(Array.from({ length: 10 }, scrape));
  t.is(answer.answered, 40);
  t.true(answer.seconds < 5, `${answer.seconds}`);
  execFileSync('kill', ['-CONT', hanging]);

  execFileSync('kill', ['-9', killed]);
  await until(() => workers().length === 2 && !workers().includes(killed));
  await until(async () => (await scrape().catch(() => undefined)) !== undefined);
  for (let count = 0; count < 4; count += 1) t.is((await scrape()).answered, 40);
});

test('workers that are all killed at once are replaced', async (t) => {
  const folder = await temporaryFolder();
  const server = await startEntrepot(folder.path, { ENTREPOT_WORKERS: '2', ENTREPOT_REDIS_URL: redisUrl() });
  t.teardown(async () => {
    await server.stop();
    await folder.remove();
  });
  const workers = () =>
    execFileSync('ps', ['-o', 'pid=', '--ppid', `${server.pid}`])
      .toString()
      .trim()
      .split(/\s+/);
  await until(() => workers().length >= 2);
  const first = workers();
  execFileSync('kill', ['-9', ...first]);
  await until(() => server.log().split('a worker exited unexpectedly').length > 2);
  await until(() => answers(`${server.url}/readyz`), 60_000);
  t.false(workers().some((each) => first.includes(each)));
});
