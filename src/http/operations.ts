import { Router } from 'express';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { RequestContext } from './request-context.ts';
import { problem } from './problem.ts';
import { sendJson } from './send.ts';

type Reading = () => Iterable<[labels: Record<string, string>, value: number]>;

/** `/livez`, `/readyz` and `/metrics`: for whoever runs the service, none needing a token. */
export class Operations {
  readonly router = Router();
  readonly metrics = new Registry();
  readonly #seconds: Histogram;
  /** By method and status. A counter's labels take longer to find, for each request, than all that is counted here. */
  readonly #requests = new Map<string, number>();
  #received = 0;
  #sent = 0;
  readonly #jobRuns: Counter<'job' | 'outcome'>;
  readonly #jobItems: Counter<'job' | 'item'>;

  /** `ready` rejects with the reason while the service cannot do its work. */
  constructor(ready: () => Promise<void>) {
    const registers = [this.metrics];
    collectDefaultMetrics({ register: this.metrics, prefix: 'entrepot_' });
    this.#counter('entrepot_http_requests_total', 'Requests answered', ['method', 'status'], () =>
      [...this.#requests].map(([key, count]) => {
        const [method, status] = key.split(' ') as [string, string];
        return [{ method, status }, count];
      }),
    );
    this.#counter('entrepot_http_body_bytes_total', 'Bytes of bodies taken in and sent', ['direction'], () => [
      [{ direction: 'in' }, this.#received],
      [{ direction: 'out' }, this.#sent],
    ]);
    this.#seconds = new Histogram({
      name: 'entrepot_http_request_seconds',
      help: 'Time from a request’s first line to the end of its answer',
      buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60],
      registers,
    });
    this.#jobRuns = new Counter({
      name: 'entrepot_job_runs_total',
      help: 'Runs of scheduled jobs that ended here',
      labelNames: ['job', 'outcome'],
      registers,
    });
    this.#jobItems = new Counter({
      name: 'entrepot_job_items_total',
      help: 'What scheduled jobs did, such as bytes collected or damaged blobs found',
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

  /** A metric that is read when somebody asks. */
  gauge(name: string, help: string, labelNames: readonly string[], read: Reading): void {
    this.metrics.registerMetric(new Gauge({ name, help, labelNames, registers: [], collect: collecting(read) }));
  }

  /** Another one, of what only grows. */
  #counter(name: string, help: string, labelNames: readonly string[], read: Reading): void {
    this.metrics.registerMetric(new Counter({ name, help, labelNames, registers: [], collect: collecting(read) }));
  }

  /** Counts one run of a job that is over. */
  countJob(job: string, outcome: string, counts: Readonly<Record<string, number>>): void {
    this.#jobRuns.inc({ job, outcome });
    for (const [item, count] of Object.entries(counts)) this.#jobItems.inc({ job, item }, count);
  }

  /** Counts one request that is over. */
  count(method: string, status: number, seconds: number, context: RequestContext): void {
    const key = `${method} ${status}`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
    this.#received += context.received;
    this.#sent += context.sent;
    this.#seconds.observe(seconds);
  }
}

function collecting(read: Reading) {
  return function (this: Counter | Gauge): void {
    this.reset();
    for (const [labels, value] of read()) this.inc(labels, value);
  };
}
