import { execFileSync } from 'node:child_process';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { recovered, resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const workers = 2;
const clients = 4;
const most = 3;

export const fault: Fault = {
  name: 'kill -9 of all workers at once, SQLite and Redis',
  run: async (options) => {
    await using t = new Teardown();
    return await killWorkers(t, options, settings);
  },
};

/** `environment` has the database. The first start is that of all workers. */
export async function killWorkers(
  t: Teardown,
  { tries: wanted }: FaultOptions,
  environment: Record<string, string>,
): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  const line = await CommandLine.create(t, environment, inMemory);
  const server = await line.serve({
    ENTREPOT_WORKERS: `${workers}`,
    ENTREPOT_REDIS_URL: redisUrl(),
    ENTREPOT_PORT: `${await freePort()}`,
  });
  const pushes = new Pushes();
  let recoveryMs = 0;
  for (let each = 0; each < tries; each += 1) {
    await until(() => workersOf(server.child.pid!).length === workers, 60_000);
    const stop = new AbortController();
    const pushing = pushes.run([server.url], clients, stop.signal);
    const before = pushes.acknowledged;
    await until(() => pushes.acknowledged >= before + clients, 60_000);
    const killedAt = performance.now();
    for (const pid of workersOf(server.child.pid!)) process.kill(pid, 'SIGKILL');
    recoveryMs = Math.max(recoveryMs, await recovered(server.url, pushes, killedAt));
    stop.abort();
    await pushing;
  }
  return await resultOf(server.url, pushes, { tries, recoveryMs });
}

/** Process IDs of the children of `pid`. */
function workersOf(pid: number): number[] {
  const found = execFileSync('ps', ['-o', 'pid=', '--ppid', `${pid}`]).toString();
  return found
    .trim()
    .split(/\s+/)
    .filter((each) => each !== '')
    .map(Number);
}
