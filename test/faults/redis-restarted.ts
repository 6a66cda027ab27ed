import assert from 'node:assert/strict';
import { inMemory } from '../support/folder.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { until } from '../support/until.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';
import { readiness, recovered, resultOf, seconds } from './probes.ts';
import { Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const clients = 4;
const most = 3;
/** Readiness calls a failure that a request met `degraded` for 30 seconds. */
const longestDegraded = 45_000;

export const fault: Fault = { name: 'Redis killed under pushes, and started again, two instances', run: restartRedis };

/** The recovery is from the moment when Redis is killed, because nothing needs it. */
async function restartRedis({ tries: wanted, short }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const { databaseUrl } = await privateMariadb(t);
  const redis = await ownRedis(t);
  await redis.start();
  const common = { ...settings, ENTREPOT_DATABASE_URL: databaseUrl, ENTREPOT_REDIS_URL: redis.url };
  const line = await CommandLine.create(t, common, inMemory);
  const servers: Serving[] = [await line.serve(), await line.serve()];
  const urls = servers.map(({ url }) => url);
  const pushes = new Pushes();
  let recoveryMs = 0;
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run(urls, clients, stop.signal);
    const pushed = async () => {
      const before = pushes.acknowledged;
      await until(() => pushes.acknowledged >= before + clients, 60_000);
    };
    await pushed();
    const killedAt = performance.now();
    await redis.kill();
    for (const url of urls) {
      recoveryMs = Math.max(recoveryMs, await recovered(url, pushes, killedAt));
      assert.equal((await readiness(url)).state, 'degraded');
    }
    await redis.start();
    await pushed();
    stop.abort();
    await pushing;
  }
  let notes = 'degraded while Redis is away';
  if (!short) {
    const startedAt = performance.now();
    for (const url of urls) await until(async () => (await readiness(url)).state === 'ready', longestDegraded);
    notes += `, and ready ${seconds(performance.now() - startedAt)} after the last push`;
  }
  const results: FaultResult[] = [];
  for (const url of urls) results.push(await resultOf(url, pushes, { tries, recoveryMs, notes }));
  const worst = (of: (result: FaultResult) => number) => Math.max(...results.map(of));
  return { ...results[0]!, lost: worst(({ lost }) => lost), halfVisible: worst(({ halfVisible }) => halfVisible) };
}
