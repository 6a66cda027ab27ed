import { AggregatorRegistry, type PrometheusContentType, type Registry } from 'prom-client';
import { lastingFigures, type UpstreamFigures } from './upstreams.ts';

/** A metric of one process with all its values, and how the values of several processes become one. */
export interface Family {
  name: string;
  help: string;
  type: MetricType;
  aggregator: Aggregator;
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[];
}

type MetricType = 'counter' | 'gauge' | 'histogram';

/** `sum` for what each process counts by itself; `max` or `min` for what all processes see. */
export type Aggregator = 'sum' | 'max' | 'min' | 'first';

/** The metrics of one process at one time. */
export interface MetricsReport {
  metrics: Family[];
  /** Those that name accounts. Only clients that may see them get these. */
  accounts: Family[];
  upstreams: UpstreamFigures[];
}

/** Gives a process the metrics of the other processes of its instance. */
export interface ReportExchange {
  /** From now on, `own` answers for this process. */
  start(own: () => Promise<MetricsReport>): void;
  /**
   * The reports of all other processes, and the counters of those that have ended. A process that does not answer within a
   * second counts with its last report. Undefined if the first process does not answer within two seconds.
   */
  others(): Promise<readonly MetricsReport[] | undefined>;
}

/** Default metrics of prom-client of which the sum, or the mean, over processes says nothing. */
const defaults: readonly [pattern: RegExp, Aggregator][] = [
  [/_eventloop_lag_|_process_start_time_seconds$|_process_max_fds$/, 'max'],
  [/_version_info$/, 'first'],
];

/** The families of a registry, with an aggregator for each. */
export async function familiesOf(registry: Registry): Promise<Family[]> {
  const metrics = (await registry.getMetricsAsJSON()) as unknown as Family[];
  return metrics.map(({ name, help, type, aggregator, values }) => {
    const own = defaults.find(([pattern]) => pattern.test(name))?.[1] ?? aggregator;
    return { name, help, type, aggregator: own, values };
  });
}

/** One list for all processes. */
export async function mergeFamilies(lists: readonly (readonly Family[])[]): Promise<Family[]> {
  return familiesOf(aggregate(lists));
}

/** The text format of Prometheus, version 0.0.4. */
export function metricsText(lists: readonly (readonly Family[])[]): Promise<string> {
  return aggregate(lists).metrics();
}

/** What stays of a process that has ended: its counters. Gauges describe a process that runs. */
export function countersOf({ metrics, accounts, upstreams }: MetricsReport): MetricsReport {
  return { metrics: lasting(metrics), accounts: lasting(accounts), upstreams: upstreams.map(lastingFigures) };
}

function lasting(families: readonly Family[]): Family[] {
  return families.filter(({ type }) => type !== 'gauge');
}

function aggregate(lists: readonly (readonly Family[])[]): Registry {
  return AggregatorRegistry.aggregate<PrometheusContentType>(lists as object[]);
}
