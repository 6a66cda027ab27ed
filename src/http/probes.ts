import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from 'express';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import {
  familiesOf,
  metricsText,
  type Aggregator,
  type ReportExchange,
  type MetricsReport,
} from '../metrics/report.ts';
import { reportPause } from '../metrics/exchange.ts';
import { Samples } from '../metrics/samples.ts';
import type { Times } from '../metrics/times.ts';
import { mergeUpstreams, type UpstreamFigures } from '../metrics/upstreams.ts';
import { inTurnShared } from '../runtime/in-turn.ts';
import { cacheStatus } from './cache-status.ts';
import type { Health } from './health.ts';
import type { RequestContext } from './request-context.ts';
import { isUnavailable, parts, type ServerPart } from './unavailable.ts';
import { problem } from './problem.ts';
import { sendJson } from './send.ts';

type ReadValues = () => Iterable<[labels: Record<string, string>, value: number]>;
type ReadTimes = () => Iterable<[labels: Record<string, string>, times: Times]>;

/**
 * Whether the sender of a request may see the metrics about accounts. Throws `Unauthorized` for a credential that is not
 * valid.
 */
export type SeesAccounts = (request: IncomingMessage) => Promise<boolean>;

/** `/livez`, `/readyz` and `/metrics`. They need no token, except the metrics about accounts. */
export class Probes {
  readonly samples = new Samples();
  /** Bytes of mirrored content that were sent from the storage, by the kind of its name. */
  readonly sentFromStore = new Map<string, number>();
  readonly #metrics = new Registry();
  readonly #accountMetrics = new Registry();
  readonly #health: Health;
  readonly #exchange: ReportExchange | undefined;
  #troubles: ReadonlySet<ServerPart> = new Set();
  readonly #seconds: Histogram;
  /** By method and status. For each request, finding the labels of a counter would take longer than all of `count`. */
  readonly #requests = new Map<string, number>();
  #received = 0;
  #sent = 0;
  readonly #jobRuns: Counter<'job' | 'outcome'>;
  readonly #jobItems: Counter<'job' | 'item'>;
  #isShuttingDown = false;
  #readUpstreams: () => UpstreamFigures[] = () => [];
  /** `/metrics` needs no token, so all requests that come before a report begins share it. */
  readonly #answers = inTurnShared(() => this.#answer(), reportPause);

  /** With `exchange`, `/metrics` answers for all processes of the instance. */
  constructor(health: Health, exchange?: ReportExchange) {
    this.#health = health;
    this.#exchange = exchange;
    const registers = [this.#metrics];
    collectDefaultMetrics({ register: this.#metrics, prefix: 'entrepot_' });
    // Prometheus cannot see the increase to the first value of a series, so those with an alert begin at 0.
    for (const method of ['POST', 'PUT', 'PATCH']) this.#requests.set(`${method} 507`, 0);
    this.counter('entrepot_http_requests_total', 'Requests answered', ['method', 'status'], () =>
      [...this.#requests].map(([key, count]) => {
        const [method, status] = key.split(' ') as [string, string];
        return [{ method, status }, count];
      }),
    );
    this.counter('entrepot_http_body_bytes_total', 'Bytes of bodies received and sent', ['direction'], () => [
      [{ direction: 'in' }, this.#received],
      [{ direction: 'out' }, this.#sent],
    ]);
    this.#seconds = new Histogram({
      name: 'entrepot_http_request_seconds',
      help: 'Time from the first line of a request to the end of its answer',
      buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60],
      registers,
    });
    this.gauge('entrepot_degraded', '1 while this part is in trouble', ['part'], () =>
      parts.map((part) => [{ part }, this.#troubles.has(part) ? 1 : 0]),
    );
    // Without checks: those of the process that is asked are enough, because all processes use the same parts.
    exchange?.start(() => this.#report(new Set(health.recentlyMet())));
    this.#jobRuns = new Counter({
      name: 'entrepot_job_runs_total',
      help: 'Finished runs of scheduled jobs in this process',
      labelNames: ['job', 'outcome'],
      registers,
    });
    this.#jobItems = new Counter({
      name: 'entrepot_job_items_total',
      help: 'Results of scheduled jobs, such as collected bytes or damaged blobs',
      labelNames: ['job', 'item'],
      registers,
    });
  }

  /** The endpoints, with `seesAccounts` deciding about the metrics about accounts. */
  router(seesAccounts: SeesAccounts): Router {
    const router = Router({ caseSensitive: true, strict: true });
    router.get('/livez', (request, response) => sendJson(request, response, 200, { status: 'ok' }));
    router.get('/readyz', async (request, response) => {
      if (this.#isShuttingDown) {
        problem(request, response, 503, 'NotReady', 'The server is shutting down.');
        return;
      }
      const { failed, troubles } = await this.#health.look();
      if (failed.length > 0) {
        const parts = [...new Set(failed.map(({ part }) => part))];
        problem(request, response, 503, 'NotReady', failed.map(({ failure }) => failure).join(' '), { parts });
      } else if (troubles.size > 0) {
        const degraded = [...troubles].map(([part, detail]) => ({ part, detail }));
        sendJson(request, response, 200, { status: 'degraded', degraded });
      } else {
        sendJson(request, response, 200, { status: 'ready' });
      }
    });
    router.get('/metrics', (request, response) => this.#sendMetrics(request, response, seesAccounts));
    return router;
  }

  /** From now on the service is not ready. */
  shutDown(): void {
    this.#isShuttingDown = true;
  }

  get isShuttingDown(): boolean {
    return this.#isShuttingDown;
  }

  async #sendMetrics(request: IncomingMessage, response: ServerResponse, seesAccounts: SeesAccounts): Promise<void> {
    const all = await seesAccounts(request).catch(deniedIfUnavailable);
    const answer = await this.#answers();
    if (!answer) {
      // The counters of one process alone would look as if the others had started again.
      problem(request, response, 503, 'NotReady', 'The first process of this instance does not answer.');
      return;
    }
    const text = all ? `${answer.metrics}\n${await answer.accounts()}` : answer.metrics;
    response.writeHead(200, { 'Content-Type': this.#metrics.contentType }).end(text);
  }

  /** The metrics, and those about accounts, which few may see; undefined if the first process does not answer. */
  async #answer(): Promise<{ metrics: string; accounts: () => Promise<string> } | undefined> {
    const { troubles } = await this.#health.look();
    const reports = await this.#reports(new Set(troubles.keys()));
    if (!reports) return undefined;
    let accounts: Promise<string> | undefined;
    return {
      metrics: await metricsText(reports.map((each) => each.metrics)),
      accounts: () => (accounts ??= metricsText(reports.map((each) => each.accounts))),
    };
  }

  /**
   * What all processes of this instance know about the upstreams, since its start. If the first process does not answer,
   * what this process knows.
   */
  async upstreams(): Promise<UpstreamFigures[]> {
    const reports = await this.#reports(this.#troubles);
    return mergeUpstreams(reports?.map(({ upstreams }) => upstreams) ?? [this.#readUpstreams()]);
  }

  /** `read` returns what this process knows about the upstreams. */
  observeUpstreams(read: () => UpstreamFigures[]): void {
    this.#readUpstreams = read;
  }

  /** The metrics of all processes; undefined if the first process does not answer. */
  async #reports(troubles: ReadonlySet<ServerPart>): Promise<MetricsReport[] | undefined> {
    const [others, own] = await Promise.all([this.#exchange ? this.#exchange.others() : [], this.#report(troubles)]);
    return others && [own, ...others];
  }

  /** The metrics of this process. */
  async #report(troubles: ReadonlySet<ServerPart>): Promise<MetricsReport> {
    // The last report of a process must not wait for parts that are closed.
    if (!this.#isShuttingDown) await this.samples.refresh();
    // The gauges are read before anything else can run.
    this.#troubles = troubles;
    const [metrics, accounts] = await Promise.all([familiesOf(this.#metrics), familiesOf(this.#accountMetrics)]);
    return { metrics, accounts, upstreams: this.#readUpstreams() };
  }

  /** Adds a gauge, which is read for each request to `/metrics`. `aggregator` says how processes share one value. */
  gauge(
    name: string,
    help: string,
    labelNames: readonly string[],
    read: ReadValues,
    aggregator: Aggregator = 'max',
  ): void {
    this.#metrics.registerMetric(
      new Gauge({ name, help, labelNames, aggregator, registers: [], collect: collector(read) }),
    );
  }

  /** As `gauge`, for values that name accounts. Only clients that may see them get these. */
  accountGauge(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.#accountMetrics.registerMetric(
      new Gauge({ name, help, labelNames, aggregator: 'max', registers: [], collect: collector(read) }),
    );
  }

  /** As `gauge`, for a value that only grows. */
  counter(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.#metrics.registerMetric(new Counter({ name, help, labelNames, registers: [], collect: collector(read) }));
  }

  /** As `counter`, for durations. */
  histogram(name: string, help: string, labelNames: readonly string[], read: ReadTimes): void {
    const values = () => [...read()].flatMap(([labels, times]) => valuesOf(name, labels, times));
    const family = { name, help, labelNames, type: 'histogram', aggregator: 'sum' };
    // The one of prom-client counts by itself, and takes longer than a statement of the database.
    const metric = { name, get: () => Promise.resolve({ ...family, values: values() }) };
    this.#metrics.registerMetric(metric as unknown as Histogram);
  }

  /** Lets the series of the jobs with these names begin at 0. */
  expectJobs(names: readonly string[]): void {
    for (const job of names) for (const outcome of jobOutcomes) this.#jobRuns.inc({ job, outcome }, 0);
    for (const item of damages) this.#jobItems.inc({ job: 'scrub', item }, 0);
  }

  /** Counts one finished run of a job. */
  countJob(job: string, outcome: string, counts: Readonly<Record<string, number>>): void {
    this.#jobRuns.inc({ job, outcome });
    for (const [item, count] of Object.entries(counts)) this.#jobItems.inc({ job, item }, count);
  }

  /** Counts one finished request. */
  count(method: string, status: number, seconds: number, context: RequestContext): void {
    if (context.unavailable) this.#health.note(context.unavailable);
    const key = `${method} ${status}`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
    this.#received += context.received;
    this.#sent += context.sent;
    if (context.cache !== undefined && fromStore.has(context.cache) && context.kind !== 'other') {
      this.sentFromStore.set(context.kind, (this.sentFromStore.get(context.kind) ?? 0) + context.sent);
      if (context.source) context.source.sent += context.sent;
    }
    this.#seconds.observe(seconds);
  }
}

const jobOutcomes = ['done', 'failed', 'interrupted'];
/** The counts of the job `scrub` that alerts use. */
const damages = ['corrupt', 'missing', 'unreadable'];
/** The values of `Cache-Status` for mirrored content from the storage. */
const fromStore: ReadonlySet<string> = new Set(
  (['hit', 'stale', 'revalidated'] as const).map((served) => cacheStatus(served)['Cache-Status']),
);

/** The series of one histogram, as prom-client has them: each bucket includes the smaller ones. */
function valuesOf(name: string, labels: Record<string, string>, { bounds, counts, sum }: Times) {
  let count = 0;
  const buckets = counts.map((each, index) => {
    count += each;
    const le = bounds[index] ?? '+Inf';
    return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: count };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ];
}

/** While the database fails, no token can be verified. The metrics that need none are then the most useful. */
function deniedIfUnavailable(error: unknown): false {
  if (isUnavailable(error)) return false;
  throw error;
}

function collector(read: ReadValues) {
  return function (this: Counter | Gauge): void {
    this.reset();
    for (const [labels, value] of read()) this.inc(labels, value);
  };
}
