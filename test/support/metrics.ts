import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';

// Reads what `/metrics` shows, and the files that use it.

const root = join(import.meta.dirname, '../..');

export interface Metrics {
  text: string;
  /** The type of each metric by its name. */
  types: Map<string, string>;
  series: { name: string; labels: Record<string, string>; value: number }[];
  /** The sum of the series with this name and these labels; undefined if there is none. */
  value(name: string, labels?: Record<string, string>): number | undefined;
}

/** Parses the text format of Prometheus. Throws for a line that is not in it. */
export function parseMetrics(text: string): Metrics {
  const types = new Map<string, string>();
  const series: Metrics['series'] = [];
  for (const line of text.split('\n')) {
    const type = /^# TYPE (\w+) (\w+)$/.exec(line);
    if (type) types.set(type[1]!, type[2]!);
    if (line === '' || line.startsWith('# ')) continue;
    const match = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) throw new Error(`not a line of metrics: ${line}`);
    const labels = [...(match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
    const named = Object.fromEntries(labels.map(([, key, value]) => [key!, value!]));
    series.push({ name: match[1]!, labels: named, value: Number(match[3]) });
  }
  const value: Metrics['value'] = (name, labels = {}) => {
    const found = series.filter(
      (each) => each.name === name && Object.entries(labels).every(([key, wanted]) => each.labels[key] === wanted),
    );
    return found.length === 0 ? undefined : found.reduce((sum, each) => sum + each.value, 0);
  };
  return { text, types, series, value };
}

/** The metrics that the operator sees. */
export async function scrape(server: {
  fetch(path: string, init?: { token?: string | null }): Promise<Response>;
}): Promise<Metrics> {
  const response = await server.fetch('/metrics');
  if (response.status !== 200) throw new Error(`/metrics answered ${response.status}: ${await response.text()}`);
  return parseMetrics(await response.text());
}

export interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

export const rulesFile = join(root, 'docker/prometheus/alerts.yml');

export async function readRules(): Promise<Rule[]> {
  const { groups } = parse(await readFile(rulesFile, 'utf8')) as { groups: { rules: Rule[] }[] };
  return groups.flatMap(({ rules }) => rules);
}

export interface Panel {
  title: string;
  type: string;
  targets?: { expr: string; legendFormat: string; datasource: { uid: string } }[];
}

interface Dashboard {
  panels: Panel[];
  templating: { list: { name: string; type: string; query: string | { query: string } }[] };
}

export async function readDashboard(): Promise<Dashboard> {
  return JSON.parse(await readFile(join(root, 'docker/grafana/entrepot.json'), 'utf8')) as Dashboard;
}

/** The names of Entrepot's metrics in an expression. */
export function namesIn(expression: string): string[] {
  return expression.match(/\bentrepot_\w+/g) ?? [];
}
