import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from 'express';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { isDomainError } from '../errors.ts';
import type { Health, State } from './health.ts';
import type { RequestContext } from './request-context.ts';
import { isUnavailable, parts } from './unavailable.ts';
import { problem } from './problem.ts';
import { sendJson } from './send.ts';

type ReadValues = () => Iterable<[labels: Record<string, string>, value: number]>;

/**
 * Whether the sender of a request may see the metrics about accounts. Throws `Unauthorized` for a credential that is not
 * valid.
 */
export type SeesAccounts = (request: IncomingMessage) => Promise<boolean>;

/** `/livez`, `/readyz` and `/metrics`. They need no token, except the metrics about accounts. */
export class Operations {
  readonly metrics = new Registry();
  readonly #accountMetrics = new Registry();
  readonly #health: Health;
  #troubles: State['troubles'] = new Map();
  readonly #seconds: Histogram;
  /** By method and status. For each request, finding the labels of a counter would take longer than all of `count`. */
  readonly #requests = new Map<string, number>();
  #received = 0;
  #sent = 0;
  readonly #jobRuns: Counter<'job' | 'outcome'>;
  readonly #jobItems: Counter<'job' | 'item'>;
  #isShuttingDown = false;

  constructor(health: Health) {
    this.#health = health;
    const registers = [this.metrics];
    collectDefaultMetrics({ register: this.metrics, prefix: 'entrepot_' });
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
    let all: boolean;
    try {
      const [sees, { troubles }] = await Promise.all([
        seesAccounts(request).catch(deniedIfUnavailable),
        this.#health.look(),
      ]);
      all = sees;
      this.#troubles = troubles;
    } catch (error) {
      if (!isDomainError(error, 'Unauthorized')) throw error;
      response.setHeader('WWW-Authenticate', 'Basic realm="Entrepot"');
      problem(request, response, 401, error.name, error.message);
      return;
    }
    const texts = [await this.metrics.metrics(), ...(all ? [await this.#accountMetrics.metrics()] : [])];
    response.writeHead(200, { 'Content-Type': this.metrics.contentType }).end(texts.join('\n'));
  }

  /** Adds a gauge, which is read for each request to `/metrics`. */
  gauge(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.metrics.registerMetric(new Gauge({ name, help, labelNames, registers: [], collect: collector(read) }));
  }

  /** As `gauge`, for values that name accounts. Only clients that may see them get these. */
  accountGauge(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.#accountMetrics.registerMetric(new Gauge({ name, help, labelNames, registers: [], collect: collector(read) }));
  }

  /** As `gauge`, for a value that only grows. */
  counter(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.metrics.registerMetric(new Counter({ name, help, labelNames, registers: [], collect: collector(read) }));
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
    this.#seconds.observe(seconds);
  }
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
