import { cpus } from 'node:os';
import { createConnection } from 'mysql2/promise';
import { execute } from '../../../test/support/clients/clients.ts';
import type { Place } from '../bench.ts';
import { openCounts } from '../counts.ts';
import { usedBy, type Peer } from '../processes.ts';

/** What a server and its database have used so far. */
export interface Used {
  /** Milliseconds, by `performance.now()`. */
  at: number;
  /** Seconds of processor time; `machine` is that of all programs. */
  cpu: { server: number; mariadb: number; redis: number; client: number; machine: number };
  /** Resident bytes. */
  resident: { server: number; mariadb: number; redis: number };
  /** Requests that were answered. */
  requests: number;
  bytesOut: number;
  reads: number;
  transactions: number;
  /** Seconds of all transactions, with their waits for others. */
  inTransactions: number;
  s3: number;
  /** Statements of MariaDB; 0 with SQLite, which does not count them. */
  statements: number;
  redisCommands: number;
}

/** Reads what is used, at the processes, the metrics, and MariaDB and Redis themselves. */
export interface Meter {
  read(): Promise<Used>;
  /** Bytes on the disk of the data folder and of MariaDB. */
  disk(): Promise<{ data: number; mariadb: number }>;
  close(): Promise<void>;
}

/** Opens a meter of a server in `place`; the engines are those that this process started. */
export async function openMeter(server: Peer, place: Place): Promise<Meter> {
  const redisUrl = place.settings['ENTREPOT_REDIS_URL'];
  const counts = redisUrl === undefined ? undefined : await openCounts(place.databaseUrl, redisUrl);
  const folder = redisUrl === undefined ? undefined : await folderOf(place.databaseUrl);
  return {
    read: async () => {
      const metrics = await metricsOf(server);
      const own = process.cpuUsage();
      const [mariadb, redis] = [usedBy('mariadbd'), usedBy('redis-server')];
      const engines = await counts?.read();
      return {
        at: performance.now(),
        cpu: {
          server: server.cpu(),
          mariadb: mariadb.cpu,
          redis: redis.cpu,
          client: (own.user + own.system) / 1e6,
          machine: cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0) / 1000,
        },
        resident: { server: server.resident(), mariadb: mariadb.resident, redis: redis.resident },
        requests: metrics('entrepot_http_requests_total'),
        bytesOut: metrics('entrepot_http_body_bytes_total', 'direction="out"'),
        reads: metrics('entrepot_database_seconds_count', 'operation="read"'),
        transactions: metrics('entrepot_database_seconds_count', 'operation="transaction"'),
        inTransactions: metrics('entrepot_database_seconds_sum', 'operation="transaction"'),
        s3: metrics('entrepot_s3_requests_total'),
        statements: engines?.statements ?? 0,
        redisCommands: engines?.commands ?? 0,
      };
    },
    disk: async () => ({ data: await sizeOf(place.data), mariadb: folder === undefined ? 0 : await sizeOf(folder) }),
    close: async () => counts?.close(),
  };
}

/** Sums of the values of a metric that have a label. */
async function metricsOf({ url, headers }: Peer): Promise<(name: string, label?: string) => number> {
  const response = await fetch(`${url}/metrics`, { headers });
  if (response.status !== 200) throw new Error(`/metrics: ${response.status}`);
  const lines = (await response.text()).split('\n');
  return (name, label = '') =>
    lines
      .filter((line) => new RegExp(`^${name}[ {]`).test(line) && line.includes(label))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
}

async function folderOf(databaseUrl: string): Promise<string> {
  const connection = await createConnection(databaseUrl);
  const [rows] = await connection.query('SELECT @@datadir AS folder');
  await connection.end();
  return (rows as { folder: string }[])[0]!.folder;
}

async function sizeOf(folder: string): Promise<number> {
  const { stdout, stderr } = await execute('du', ['--summarize', '--block-size=1', folder]);
  if (stdout === '') throw new Error(`du: ${stderr}`);
  return Number.parseInt(stdout, 10);
}
