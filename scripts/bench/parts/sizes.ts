import { cpus } from 'node:os';
import type { Bench } from '../bench.ts';
import { mebibyte } from '../processes.ts';
import { record } from '../report.ts';
import { beginAll, Client, type Kind } from '../sizes/client.ts';
import { openMeter, type Used } from '../sizes/costs.ts';
import { workOf } from '../sizes/load.ts';
import { day, sizes as all, type Size } from '../sizes/mix.ts';
import { fillSize, startUpstream } from '../sizes/store.ts';
import { feedOf } from './restore.ts';

/** Bytes a second of a network of 1 Gbit/s. */
const network = 125e6;

/** The busy hour of the sizes of docs/scaling.md, or `minutes` of it: what their clients wait, and what they cost. */
export async function sizes(
  bench: Bench,
  { minutes = bench.quick ? 1 : 60, only }: { minutes?: number | undefined; only?: string | undefined },
): Promise<void> {
  const chosen = Object.values(all).filter(({ name }) => only === undefined || name === only);
  if (chosen.length === 0) throw new Error(`--size takes one of ${Object.keys(all).join(', ')}`);
  if (!(minutes > 0)) throw new Error('--minutes takes a number above 0');
  for (const size of chosen) {
    await measureSize(bench, bench.quick ? tenthOf(size) : size, minutes * 60);
    await bench.endPart();
  }
}

/** The same load for a tenth of the content. */
function tenthOf(size: Size): Size {
  const [packages, repositories, mirrored] = [size.packages / 10, size.repositories / 10, size.mirrored / 10];
  const withFiles = { packages: size.withFiles.packages / 10, repositories: size.withFiles.repositories / 10 };
  return { ...size, packages, repositories, mirrored, withFiles };
}

async function measureSize(bench: Bench, size: Size, seconds: number): Promise<void> {
  const { name } = size;
  const startedAt = performance.now();
  const place = name === 'small' ? await bench.place(name, 'sqlite') : await bench.shared(name);
  const filled = await fillSize(bench, place, size);
  const { upstream, content: mirrored } = await startUpstream(bench, `${name}-upstream`, size);
  const registry = { name: 'registry.test', kind: 'registry', url: upstream.url, default: true };
  const settings = {
    ENTREPOT_UPSTREAMS: JSON.stringify([feedOf(upstream), { ...registry, allowPrivateNetwork: true }]),
    ENTREPOT_WORKERS: String(size.workers),
  };
  const server = await bench.serve(place, { name, settings });
  const meter = await openMeter(server, place);
  const client = new Client(server.url);
  const work = await workOf(client, server, { ...filled, ...mirrored }, size);
  process.stdout.write(`${name}: filled in ${((performance.now() - startedAt) / 1000).toFixed(0)} s\n`);
  const diskBefore = await meter.disk();
  const before = await meter.read();
  const late = await beginAll(work, seconds);
  const after = await meter.read();
  const diskAfter = await meter.disk();
  client.close();
  await meter.close();

  reportKinds(size, client.kinds, seconds);
  reportCosts(size, { before, after, diskBefore, diskAfter, peak: server.peak(), late });
  reportLimits(size, { before, after, peak: server.peak() });
}

function recordOf({ name }: Size, title: string, unit: string, value: number): void {
  record({ title: `${name}: ${title}`, unit, samples: [{ subject: name, values: [value] }] });
}

/** What clients waited, by kind of request. */
function reportKinds(size: Size, kinds: ReadonlyMap<string, Kind>, seconds: number): void {
  const lines = [
    '',
    `| ${size.name}: request | number | an hour | p50 ms | p99 ms | failed |`,
    '|---|---|---|---|---|---|',
  ];
  for (const [kind, { times, failures }] of [...kinds].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const failed = [...failures].map(([reason, count]) => `${count} × ${reason}`).join(', ');
    const hourly = (times.length * 3600) / seconds;
    recordOf(size, `${kind}: rate`, 'an hour', hourly);
    recordOf(
      size,
      `${kind}: failed`,
      'requests',
      [...failures.values()].reduce((sum, count) => sum + count, 0),
    );
    if (times.length === 0) {
      lines.push(`| ${kind} | 0 | 0 | | | ${failed} |`);
      continue;
    }
    const [p50, p99] = [percentile(times, 0.5), percentile(times, 0.99)];
    recordOf(size, `${kind}: p50`, 'ms', p50);
    recordOf(size, `${kind}: p99`, 'ms', p99);
    lines.push(
      `| ${kind} | ${times.length} | ${hourly.toFixed(0)} | ${p50.toFixed(1)} | ${p99.toFixed(1)} | ${failed || '0'} |`,
    );
  }
  process.stdout.write(`${lines.join('\n')}\n\n`);
}

interface Measured {
  before: Used;
  after: Used;
  peak: number;
}

interface Disk {
  data: number;
  mariadb: number;
}

/** What a size costs. Rows are for the hour, whatever time was measured. */
function reportCosts(
  size: Size,
  {
    before,
    after,
    peak,
    diskBefore,
    diskAfter,
    late,
  }: Measured & { diskBefore: Disk; diskAfter: Disk; late: number[] },
): void {
  const seconds = (after.at - before.at) / 1000;
  const difference = (key: Exclude<keyof Used, 'cpu' | 'resident'>) => after[key] - before[key];
  const processors = (key: keyof Used['cpu']) => (after.cpu[key] - before.cpu[key]) / seconds;
  const hourly = (value: number) => (value * 3600) / seconds;
  const requests = difference('requests');
  const grown = { data: diskAfter.data - diskBefore.data, mariadb: diskAfter.mariadb - diskBefore.mariadb };
  const rows: [title: string, unit: string, value: number][] = [
    ['requests', 'an hour', hourly(requests)],
    ['memory at the start', 'MiB', before.resident.server / mebibyte],
    ['memory at the end', 'MiB', after.resident.server / mebibyte],
    ['memory at most', 'MiB', peak / mebibyte],
    ['processor time of the server', 'processors', processors('server')],
    ['reads of the database', 'an hour', hourly(difference('reads'))],
    ['reads of the database', 'per request', difference('reads') / requests],
    ['transactions of the database', 'an hour', hourly(difference('transactions'))],
    ['transactions of the database', 'per request', difference('transactions') / requests],
    ['requests to S3', 'an hour', hourly(difference('s3'))],
    ['bodies sent', 'MB/s', difference('bytesOut') / 1e6 / seconds],
    ['data folder at the start', 'MiB', diskBefore.data / mebibyte],
    ['growth of the data folder', 'MiB an hour', hourly(grown.data) / mebibyte],
    ['growth of the data folder in a working day', 'MiB', (hourly(grown.data) * day.hours) / day.peak / mebibyte],
  ];
  if (size.name !== 'small')
    rows.push(
      ['statements of MariaDB', 'an hour', hourly(difference('statements'))],
      ['statements of MariaDB', 'per request', difference('statements') / requests],
      ['commands of Redis', 'per request', difference('redisCommands') / requests],
      ['memory of MariaDB at the end', 'MiB', after.resident.mariadb / mebibyte],
      ['memory of Redis at the end', 'MiB', after.resident.redis / mebibyte],
      ['processor time of MariaDB', 'processors', processors('mariadb')],
      ['processor time of Redis', 'processors', processors('redis')],
      ['files of MariaDB at the start', 'MiB', diskBefore.mariadb / mebibyte],
      ['growth of the files of MariaDB', 'MiB an hour', hourly(grown.mariadb) / mebibyte],
    );
  rows.push(
    ['processor time of the client', 'processors', processors('client')],
    ['processor time of all programs', 'processors', processors('machine')],
    ['lateness of the client, p99', 'ms', percentile(late, 0.99)],
  );
  for (const [title, unit, value] of rows) recordOf(size, title, unit, value);
  const lines = rows.map(([title, unit, value]) => `| ${title} | ${short(value)} ${unit} |`);
  process.stdout.write(`\n| what ${size.name} costs | |\n|---|---|\n${lines.join('\n')}\n\n`);
}

/** What is used up first, for the whole load of the size, if the use of each grows as the load does. */
function reportLimits(size: Size, { before, after, peak }: Measured): void {
  const seconds = (after.at - before.at) / 1000;
  const cpu = (key: keyof Used['cpu']) => (after.cpu[key] - before.cpu[key]) / seconds;
  const machine = cpus().length;
  const whole = (used: number) => used / size.share;
  const limits: [title: string, unit: string, used: number, has: number][] = [
    ['processors of the server', 'processors', whole(cpu('server')), size.workers],
    ['network of 1 Gbit/s', 'MB/s', whole((after.bytesOut - before.bytesOut) / 1e6 / seconds), network / 1e6],
    ['memory that docs/scaling.md states', 'MiB', peak / mebibyte, size.memory],
    size.name === 'small'
      ? ['the one writer of SQLite', 's of each', (after.inTransactions - before.inTransactions) / seconds, 1]
      : ['processors for MariaDB', 'processors', whole(cpu('mariadb')), machine],
  ];
  const byShare = limits.toSorted((a, b) => b[2] / b[3] - a[2] / a[3]);
  for (const [title, , used, has] of byShare) recordOf(size, `use of ${title}`, 'of 1', used / has);
  const lines = byShare.map(
    ([title, unit, used, has]) =>
      `| ${title} | ${short(used)} of ${short(has)} ${unit} | ${((100 * used) / has).toFixed(0)} % |`,
  );
  process.stdout.write(`\n| the next limit of ${size.name} | used | |\n|---|---|---|\n${lines.join('\n')}\n\n`);
}

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

function short(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
