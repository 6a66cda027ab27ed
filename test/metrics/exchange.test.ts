import test from 'ava';
import { WorkerExchange, WorkerReports, type Channel, type Message } from '../../src/metrics/exchange.ts';
import { metricsText, type Family, type MetricsReport } from '../../src/metrics/report.ts';
import { Samples } from '../../src/metrics/samples.ts';
import { parseMetrics } from '../support/metrics.ts';
import { until, within } from '../support/until.ts';

// How workers answer for each other. test/cli/workers.long.test.ts does it with processes.

/** A channel between two processes, and whether messages to the second one wait. */
function channelPair() {
  const listeners: Record<'first' | 'worker', ((message: unknown) => void)[]> = { first: [], worker: [] };
  const state = { hangs: false, received: 0 };
  const end = (own: 'first' | 'worker', other: 'first' | 'worker'): Channel => ({
    send: (message: Message) => {
      const copy: unknown = structuredClone(message);
      setImmediate(() => {
        if (other === 'worker') state.received += 1;
        if (state.hangs && other === 'worker') return;
        for (const each of listeners[other]) each(copy);
      });
    },
    onMessage: (listener) => void listeners[own].push(listener),
  });
  return { first: end('first', 'worker'), worker: end('worker', 'first'), state };
}

function family(name: string, type: Family['type'], aggregator: Family['aggregator'], value: number): Family {
  return { name, help: name, type, aggregator, values: [{ labels: {}, value }] };
}

/** A worker with a counter and gauges. */
function addWorker(reports: WorkerReports, value: number, wait = 10_000) {
  const pair = channelPair();
  const end = reports.add(pair.first);
  const exchange = new WorkerExchange(pair.worker, 1e6, wait);
  const counted = { value, gauge: value };
  const own = (): MetricsReport => ({
    metrics: [
      family('requests_total', 'counter', 'sum', counted.value),
      family('running', 'gauge', 'sum', counted.gauge),
      family('stored', 'gauge', 'max', counted.gauge),
      family('free', 'gauge', 'min', counted.gauge),
    ],
    accounts: [family('limits', 'gauge', 'max', counted.gauge)],
    upstreams: [],
  });
  exchange.start(() => Promise.resolve(own()));
  const seen = async () => {
    const others = await within(exchange.others());
    const { series } = parseMetrics(await metricsText([own(), ...others!].map(({ metrics }) => metrics)));
    return Object.fromEntries(series.map(({ name, value: number }) => [name, number]));
  };
  return { ...pair, exchange, counted, end, seen };
}

test('each worker answers for all: counters add up, gauges as each of them says', async (t) => {
  const reports = new WorkerReports();
  const [one, two, three] = [addWorker(reports, 1), addWorker(reports, 10), addWorker(reports, 100)];
  const all = { requests_total: 111, running: 111, stored: 100, free: 1 };
  for (const worker of [one, two, three]) t.deepEqual(await worker.seen(), all);
});

test('the counters of workers that have ended stay in the sum, and their gauges do not', async (t) => {
  const reports = new WorkerReports();
  const [one, two, three] = [addWorker(reports, 1), addWorker(reports, 10), addWorker(reports, 100)];
  await one.seen();
  two.counted.value = 20;
  await two.exchange.report();
  await new Promise((resolve) => setImmediate(resolve));
  two.end();
  three.end();
  t.deepEqual(await addWorker(reports, 0).seen(), { requests_total: 121, running: 1, stored: 1, free: 0 });
});

test('a worker that hangs delays an answer once, and counts with its last report', async (t) => {
  const reports = new WorkerReports(500);
  const [one, two] = [addWorker(reports, 1), addWorker(reports, 10)];
  await two.seen();
  await one.seen();
  two.state.hangs = true;
  const received = two.state.received;
  two.counted.value = 50;
  for (let count = 0; count < 3; count += 1) {
    t.is((await one.seen())['requests_total'], 11);
  }
  t.is(two.state.received - received, 1, 'it is not asked again, so that no messages pile up');
});

test('without the first process there is no answer, instead of one that is too low', async (t) => {
  const reports = new WorkerReports();
  const one = addWorker(reports, 1, 300);
  one.state.hangs = true;
  t.is(await within(one.exchange.others()), undefined);
});

test('requests at the same time share one exchange', async (t) => {
  const reports = new WorkerReports();
  const [one, two] = [addWorker(reports, 1), addWorker(reports, 10)];
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: 50 }, () => one.seen()));
  t.is(two.state.received, 1);
  two.counted.value = 30;
  t.is((await one.seen())['requests_total'], 31, 'a later request sees what was counted before it');
  t.is(two.state.received, 2);
  t.true(performance.now() - startedAt >= 99, 'but not more often than ten times in a second');
});

test('a value that takes a query is measured once at a time, and no reader waits for it longer than a second', async (t) => {
  const samples = new Samples();
  let [hanging, failing, quick] = [0, 0, 0];
  samples.add(0, () => {
    hanging += 1;
    return new Promise(() => undefined);
  });
  samples.add(0, () => {
    failing += 1;
    return Promise.reject(new Error('no database'));
  });
  samples.add(60_000, () => {
    quick += 1;
    return Promise.resolve();
  });
  await within(Promise.all([samples.refresh(), samples.refresh()]));
  t.deepEqual([hanging, quick], [1, 1]);
  const again = samples.refresh();
  await until(() => failing === 2);
  t.deepEqual([hanging, quick], [1, 1]);
  await within(again);
});
