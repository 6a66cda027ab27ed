import { setTimeout as sleep } from 'node:timers/promises';
import { settings } from '../../test/faults/pushes.ts';
import { Teardown } from '../../test/faults/teardown.ts';
import { temporaryFolder } from '../../test/support/clients/clients.ts';
import { ownMariadb } from '../../test/support/processes/mariadb.ts';
import { startSentinelRedis } from '../../test/support/processes/redis-sentinel.ts';
import { createDatabase } from '../../test/support/processes/services.ts';
import { findCommand } from '../packages.ts';
import { seconds, table, startTraffic } from './traffic.ts';

// Two servers with MariaDB and with Redis behind three Sentinels, whose primary is killed under pushes.
// Debian packages: redis-server mariadb-server

/** Milliseconds of pushes before the fail-over, and after it. */
const [before, after] = [5000, 10_000];
/** Milliseconds without an answer after which a Redis is down for a Sentinel. */
const downAfter = 2000;

async function main(): Promise<void> {
  if (['redis-server', 'mariadbd', 'mariadb-install-db'].some((name) => findCommand(name) === undefined))
    throw new Error('install the Debian packages redis-server and mariadb-server');
  await using t = new Teardown();
  const folder = await temporaryFolder();
  t.teardown(() => folder.remove());
  const mariadb = await ownMariadb(`${folder.path}/mariadb`);
  t.teardown(() => mariadb.stop());
  const database = await createDatabase(mariadb.url);
  const redis = await startSentinelRedis(folder.path, { redis: 2, sentinels: 3, downAfter });
  t.teardown(() => redis.stop());
  console.error('MariaDB, Redis and the Sentinels are ready');

  const environment = { ...settings, ENTREPOT_DATABASE_URL: database.url, ENTREPOT_REDIS_URL: redis.url };
  const { servers, traffic } = await startTraffic(t, folder.path, environment);
  await sleep(before);
  const pushedBefore = traffic.pushes.acknowledged;
  const former = await redis.primary();
  await redis.kill(former);
  const killedAt = performance.now();
  while ((await redis.primary()) === former) await sleep(20);
  const movedAfter = performance.now() - killedAt;
  const ready = servers.map(async ({ url }) => {
    while ((await (await fetch(`${url}/readyz`)).text()).includes('redis')) await sleep(100);
    return performance.now() - killedAt;
  });
  const readyAfter = Math.max(...(await Promise.all(ready)));
  await sleep(after);
  const figures = await traffic.stop();
  console.log(
    table('Redis, three Sentinels, kill -9 of the primary', figures, [
      ['pushes before the fail-over', String(pushedBefore)],
      ['until the Sentinels named the replica', seconds(movedAfter)],
      ['until readiness of both servers reported no trouble with Redis', seconds(readyAfter)],
    ]),
  );
  for (const defect of figures.defects) console.error(defect);
  if (process.argv.includes('--log')) for (const server of servers) console.error(server.log());
}

await main();
