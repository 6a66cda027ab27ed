import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { cacheStatus } from '../../src/http/cache-status.ts';
import type { Check, Health, State } from '../../src/http/health.ts';
import { Probes } from '../../src/http/probes.ts';
import { AppResponse, type RequestContext } from '../../src/http/request-context.ts';
import type { MetricsReport, ReportExchange } from '../../src/metrics/report.ts';
import { answerRequests } from '../support/answers.ts';

// The operations endpoints without a server of this project.

/** Endpoints whose checks have the result `found`, and what was noted for the checks. */
async function startProbes(t: ExecutionContext, exchange?: ReportExchange) {
  const found = { failed: [] as Check[], troubles: new Map() as Map<string, string> };
  const noted: string[] = [];
  const health = {
    look: () => Promise.resolve(found as unknown as State),
    note: (part: string) => void noted.push(part),
    recentlyMet: () => ['redis'],
  } as unknown as Health;
  const probes = new Probes(health, exchange);
  const router = probes.router(() => Promise.resolve(false));
  const port = await answerRequests(t, (request, response) =>
    router(request as never, response as never, () => response.writeHead(404).end()),
  );
  const ask = async (path: string) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`);
    return { status: response.status, text: await response.text(), type: response.headers.get('content-type') };
  };
  return { probes, found, noted, ask };
}

/** The record of a request. */
function contextWith(fields: Partial<RequestContext>): RequestContext {
  return Object.assign(new AppResponse(new IncomingMessage(new Socket())).context, fields);
}

const check = (part: string, failure: string) => ({ part, failure }) as Check;

test('a server is alive, and ready, degraded or not ready with the parts and what clients are told', async (t) => {
  const { probes, found, ask } = await startProbes(t);
  const answer = async (path: string) => {
    const { status, text } = await ask(path);
    return [status, JSON.parse(text)];
  };
  t.deepEqual(await answer('/livez'), [200, { status: 'ok' }]);
  t.deepEqual(await answer('/readyz'), [200, { status: 'ready' }]);
  found.troubles.set('redis', 'Redis is away.');
  const degraded = [{ part: 'redis', detail: 'Redis is away.' }];
  t.deepEqual(await answer('/readyz'), [200, { status: 'degraded', degraded }]);
  found.failed = [check('storage', 'No reads.'), check('storage', 'No writes.'), check('database', 'No database.')];
  const problem = { type: 'about:blank', title: 'Service Unavailable', status: 503, code: 'NotReady' };
  t.deepEqual(await answer('/readyz'), [
    503,
    { ...problem, detail: 'No reads. No writes. No database.', parts: ['storage', 'database'] },
  ]);
  t.false(probes.isShuttingDown);
  probes.shutDown();
  t.true(probes.isShuttingDown);
  t.deepEqual(await answer('/readyz'), [503, { ...problem, detail: 'The server is shutting down.' }]);
  t.deepEqual(await answer('/livez'), [200, { status: 'ok' }]);
});

const lineOf = (text: string, start: string) => text.split('\n').find((line) => line.startsWith(`${start} `));

test('the metrics have what was counted, and the series of alerts from the beginning', async (t) => {
  const { probes, found, noted, ask } = await startProbes(t);
  found.troubles.set('storage', 'No storage.');
  probes.expectJobs(['gc']);
  probes.countJob('gc', 'done', { bytes: 3, blobs: 1 });
  probes.countJob('gc', 'done', { bytes: 4 });
  const source = { sent: 0 };
  const cache = cacheStatus('hit')['Cache-Status'];
  probes.count('GET', 200, 0.3, contextWith({ kind: 'package', cache, source, received: 5, sent: 7 }));
  probes.count('GET', 200, 70, contextWith({ kind: 'package', cache, source, received: 1, sent: 2 }));
  const miss = cacheStatus('miss')['Cache-Status'];
  probes.count('GET', 404, 0.001, contextWith({ kind: 'package', cache: miss, source, sent: 4 }));
  probes.count('GET', 404, 0.001, contextWith({ kind: 'other', cache, source, sent: 8 }));
  probes.count('GET', 503, 0.001, contextWith({ kind: 'container', cache, unavailable: 'database' }));
  t.deepEqual(noted, ['database']);
  t.is(source.sent, 9);
  t.deepEqual(
    [...probes.sentFromStore],
    [
      ['package', 9],
      ['container', 0],
    ],
  );
  const { status, text, type } = await ask('/metrics');
  t.is(status, 200);
  t.is(type, 'text/plain; version=0.0.4; charset=utf-8');
  const degraded = Object.entries({ database: 0, storage: 1, redis: 0, certificate: 0, webhooks: 0 });
  for (const [series, value] of [
    ...['POST', 'PUT', 'PATCH'].map((method) => [`http_requests_total{method="${method}",status="507"}`, 0] as const),
    ['http_requests_total{method="GET",status="200"}', 2],
    ['http_requests_total{method="GET",status="404"}', 2],
    ['http_body_bytes_total{direction="in"}', 6],
    ['http_body_bytes_total{direction="out"}', 21],
    ...degraded.map(([part, value]) => [`degraded{part="${part}"}`, value] as const),
    ['job_runs_total{job="gc",outcome="done"}', 2],
    ['job_runs_total{job="gc",outcome="failed"}', 0],
    ['job_runs_total{job="gc",outcome="interrupted"}', 0],
    ['job_items_total{job="gc",item="bytes"}', 7],
    ['job_items_total{job="gc",item="blobs"}', 1],
    ...['corrupt', 'missing', 'unreadable'].map((item) => [`job_items_total{job="scrub",item="${item}"}`, 0] as const),
    ...[0.001, 0.005, 0.02, 0.1].map((le) => [`http_request_seconds_bucket{le="${le}"}`, 3] as const),
    ...[0.5, 2, 10, 60].map((le) => [`http_request_seconds_bucket{le="${le}"}`, 4] as const),
    ['http_request_seconds_bucket{le="+Inf"}', 5],
  ] as const)
    t.is(lineOf(text, `entrepot_${series}`), `entrepot_${series} ${value}`);
  t.truthy(lineOf(text, 'entrepot_process_resident_memory_bytes'));
});

test('each reads values when it is asked, and another process gets them with what requests have met', async (t) => {
  let own: (() => Promise<MetricsReport>) | undefined;
  const start = (report: () => Promise<MetricsReport>) => void (own = report);
  const { probes, ask } = await startProbes(t, { start, others: () => Promise.resolve([]) });
  let value = 1;
  probes.gauge('of_all', 'For all', ['name'], () => [[{ name: 'a' }, value]], 'sum');
  probes.counter('of_growth', 'Grows', [], () => [[{}, value]]);
  probes.histogram('of_times', 'Times', ['name'], () => [
    [{ name: 'a' }, { bounds: [1, 2], counts: [1, 2, 3], sum: 9 } as never],
  ]);
  for (value of [2, 3]) {
    const { text } = await ask('/metrics');
    t.is(lineOf(text, 'of_all{name="a"}'), `of_all{name="a"} ${value}`);
    t.is(lineOf(text, 'of_growth'), `of_growth ${value}`);
    for (const [series, count] of Object.entries({ 'le="1",': 1, 'le="2",': 3, 'le="+Inf",': 6 }))
      t.is(lineOf(text, `of_times_bucket{${series}name="a"}`)?.split(' ')[1], String(count), series);
    t.is(lineOf(text, 'of_times_sum{name="a"}'), 'of_times_sum{name="a"} 9');
    t.is(lineOf(text, 'of_times_count{name="a"}'), 'of_times_count{name="a"} 6');
  }
  const { metrics } = await own!();
  const family = (name: string) => metrics.find((each) => each.name === name)!;
  t.is(family('of_all').aggregator, 'sum');
  t.is(family('of_times').aggregator, 'sum');
  const met = family('entrepot_degraded').values.filter((each) => each.value === 1);
  t.deepEqual(
    met.map(({ labels }) => labels),
    [{ part: 'redis' }],
  );
});
