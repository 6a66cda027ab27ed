import { Router } from 'express';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { RequestContext } from './request-context.ts';
import { problem } from './problem.ts';
import { sendJson } from './send.ts';

type ReadValues = () => Iterable<[labels: Record<string, string>, value: number]>;

/** `/livez`, `/readyz` and `/metrics`. They need no token. */
export class Operations {
  readonly router = Router();
  readonly metrics = new Registry();
  readonly #seconds: Histogram;
  /** By method and status. For each request, finding the labels of a counter would take longer than all of `count`. */
  readonly #requests = new Map<string, number>();
  #received = 0;
  #sent = 0;
  readonly #jobRuns: Counter<'job' | 'outcome'>;
  readonly #jobItems: Counter<'job' | 'item'>;

  /** `ready` rejects with the reason while the service is not ready. */
  constructor(ready: () => Promise<void>) {
    const registers = [this.metrics];
    collectDefaultMetrics({ register: this.metrics, prefix: 'entrepot_' });
    this.#counter('entrepot_http_requests_total', 'Requests answered', ['method', 'status'], () =>
      [...this.#requests].map(([key, count]) => {
        const [method, status] = key.split(' ') as [string, string];
        return [{ method, status }, count];
      }),
    );
    this.#counter('entrepot_http_body_bytes_total', 'Bytes of bodies received and sent', ['direction'], () => [
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
    this.router.get('/livez', (request, response) => sendJson(request, response, 200, { status: 'ok' }));
    this.router.get('/readyz', async (request, response) => {
      try {
        await ready();
        sendJson(request, response, 200, { status: 'ready' });
      } catch (error) {
        problem(request, response, 503, 'NotReady', (error as Error).message);
      }
    });
    this.router.get('/metrics', async (_request, response) => {
      response.writeHead(200, { 'Content-Type': this.metrics.contentType }).end(await this.metrics.metrics());
    });
  }

  /** Adds a gauge, which is read for each request to `/metrics`. */
  gauge(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
    this.metrics.registerMetric(new Gauge({ name, help, labelNames, registers: [], collect: collector(read) }));
  }

  /** As `gauge`, for a value that only grows. */
  #counter(name: string, help: string, labelNames: readonly string[], read: ReadValues): void {
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
