import assert from 'node:assert/strict';
import { inMemory } from '../support/folder.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';
import { resultOf } from './probes.ts';
import { authorization, Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 2;
const most = 3;
const searches = 20;

export const fault: Fault = { name: 'limits with Redis gone, two instances', run: limitWithoutRedis };

/**
 * The recovery is the time from the death of Redis until each instance has refused a search by its own count. Pushes and
 * reads continue meanwhile.
 */
async function limitWithoutRedis({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const { databaseUrl } = await privateMariadb(t);
  const redis = await ownRedis(t);
  await redis.start();
  const common = {
    ...settings,
    ENTREPOT_DATABASE_URL: databaseUrl,
    ENTREPOT_REDIS_URL: redis.url,
    ENTREPOT_LIMITS_SEARCHES_PER_MINUTE: String(searches),
    ENTREPOT_LIMITS_DELAY: '0s',
  };
  const line = await CommandLine.create(t, common, inMemory);
  const servers: Serving[] = [await line.serve(), await line.serve()];
  const urls = servers.map(({ url }) => url);
  const pushes = new Pushes();
  let recoveryMs = 0;
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run(urls, clients, stop.signal);
    await until(() => pushes.acknowledged >= clients, 60_000);
    const killedAt = performance.now();
    await redis.kill();
    const { acknowledged } = pushes;
    for (const url of urls) await exhaust(url);
    recoveryMs = Math.max(recoveryMs, performance.now() - killedAt);
    for (const url of urls) assert.equal(await statusOf(url, '/v3/index.json'), 200);
    await until(() => pushes.acknowledged > acknowledged, 60_000);
    await redis.start();
    stop.abort();
    await pushing;
  }
  return await resultOf(urls[0]!, pushes, { tries, recoveryMs, notes: 'each instance counts for itself' });
}

/** Searches until the limit; fails for any answer but success and 429. */
async function exhaust(url: string): Promise<void> {
  for (let each = 0; each <= 2 * searches; each += 1) {
    const status = await statusOf(url, '/v3/search?q=a');
    if (status === 429) return;
    assert.equal(status, 200);
  }
  assert.fail(`${url} refused none of ${2 * searches} searches`);
}

async function statusOf(url: string, path: string): Promise<number> {
  const response = await fetch(url + path, { headers: { authorization } });
  await response.arrayBuffer();
  return response.status;
}
