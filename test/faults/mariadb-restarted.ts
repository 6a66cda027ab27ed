import assert from 'node:assert/strict';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';
import { readiness, recovered, resultOf } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 4;
const most = 4;

export const fault: Fault = { name: 'MariaDB stopped or killed under pushes, and started again', run: restartMariadb };

/** The recovery is from the moment when MariaDB answers again. */
async function restartMariadb({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const { mariadb, databaseUrl } = await privateMariadb(t);
  const common = { ...settings, ENTREPOT_DATABASE_URL: databaseUrl, ENTREPOT_REDIS_URL: redisUrl() };
  const line = await CommandLine.create(t, common, inMemory);
  const server = await line.serve();
  const pushes = new Pushes();
  let recoveryMs = 0;
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run([server.url], clients, stop.signal);
    const before = pushes.acknowledged;
    await until(() => pushes.acknowledged >= before + clients, 60_000);
    await mariadb.stop(each % 2 === 0 ? 'SIGKILL' : 'SIGTERM');
    assert.equal((await pushes.attempt(server.url)).status, 503);
    assert.equal((await readiness(server.url)).status, 503);
    await mariadb.start();
    recoveryMs = Math.max(recoveryMs, await recovered(server.url, pushes, performance.now()));
    stop.abort();
    await pushing;
  }
  return await resultOf(server.url, pushes, { tries, recoveryMs });
}
