import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from 'express';
import type { Logger } from 'pino';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { isDomainError } from '../errors.ts';
import type { RequestContext } from './request-context.ts';
import { problem } from './problem.ts';
import { sendJson } from './send.ts';

type ReadValues = () => Iterable<[labels: Record<string, string>, value: number]>;

/** One part that the service needs. */
export interface ReadyCheck {
  /** What clients are told when it fails. The reason is only in the log: it may contain paths and addresses. */
  readonly failure: string;
  /** Rejects with the reason. */
  readonly check: () => Promise<unknown>;
}

/**
 * Whether the sender of a request may see the metrics about accounts. Throws `Unauthorized` for a credential that is not
 * valid.
 */
export type SeesAccounts = (request: IncomingMessage) => Promise<boolean>;

/** `/livez`, `/readyz` and `/metrics`. They need no token, except the metrics about accounts. */
export class Operations {
  readonly metrics = new Registry();
  readonly #accountMetrics = new Registry();
  readonly #checks: readonly ReadyCheck[];
  readonly #log: Logger;
  /** The last failure of a check, so that each is logged once. */
  #failure: string | undefined;
  readonly #seconds: Histogram;
  /** By method and status. For each request, finding the labels of a counter would take longer than all of `count`. */
  readonly #requests = new Map<string, number>();
  #received = 0;
  #sent = 0;
  readonly #jobRuns: Counter<'job' | 'outcome'>;
  readonly #jobItems: Counter<'job' | 'item'>;
  #isShuttingDown = false;

  constructor(checks: readonly ReadyCheck[], log: Logger) {
    this.#checks = checks;
    this.#log = log;
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
      const failure = this.#isShuttingDown ? 'The server is shutting down.' : await this.#failedCheck();
      if (failure === undefined) sendJson(request, response, 200, { status: 'ready' });
      else problem(request, response, 503, 'NotReady', failure);
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
      all = await seesAccounts(request);
    } catch (error) {
      if (!isDomainError(error, 'Unauthorized')) throw error;
      response.setHeader('WWW-Authenticate', 'Basic realm="Entrepot"');
      problem(request, response, 401, error.name, error.message);
      return;
    }
    const texts = [await this.metrics.metrics(), ...(all ? [await this.#accountMetrics.metrics()] : [])];
    response.writeHead(200, { 'Content-Type': this.metrics.contentType }).end(texts.join('\n'));
  }

  async #failedCheck(): Promise<string | undefined> {
    for (const { failure, check } of this.#checks) {
      try {
        await check();
      } catch (error) {
        if (this.#failure !== failure) this.#log.error({ err: error }, `the service is not ready: ${failure}`);
        this.#failure = failure;
        return failure;
      }
    }
    this.#failure = undefined;
    return undefined;
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
    const key = `${method} ${status}`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
    this.#received += context.received;
    this.#sent += context.sent;
    this.#seconds.observe(seconds);
  }
}

function collector(read: ReadValues) {
  return function (this: Counter | Gauge): void {
    this.reset();
    for (const [labels, value] of read()) this.inc(labels, value);
  };
}
