import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { inMemory } from '../support/folder.ts';
import { until } from '../support/until.ts';
import { CommandLine, type Serving } from '../support/processes/command.ts';
import type { FaultResult } from './fault.ts';
import { Pushes, settings as usual } from './pushes.ts';
import { Teardown } from './teardown.ts';

/** Clients that push at the same time. */
const clients = 6;

/**
 * Kills one of `instances` servers `tries` times while clients push to all of them, starts it again, and reads everything
 * from each of them. With `ownFolders`, each has a data folder of its own.
 */
export async function killServers(
  tries: number,
  instances: number,
  settings: Record<string, string> = {},
  ownFolders = false,
): Promise<FaultResult> {
  await using t = new Teardown();
  // Not on the disk: what a process has written survives its death everywhere.
  const line = await CommandLine.create(t, { ...usual, ...settings }, inMemory);
  const servers: Serving[] = [];
  const serve = (index: number): Promise<Serving> =>
    line.serve(ownFolders ? { ENTREPOT_DATA: `${line.data}-${index}` } : {});
  for (let index = 0; index < instances; index += 1) servers.push(await serve(index));
  const pushes = new Pushes();
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  const defects: string[] = [];
  for (let each = 0; each < tries; each += 1) {
    const stop = new AbortController();
    const pushing = pushes.run(
      servers.map(({ url }) => url),
      clients,
      stop.signal,
    );
    const before = pushes.acknowledged;
    await until(() => pushes.acknowledged >= before + clients, 60_000);
    await sleep(randomInt(300));
    const victim = each % instances;
    const killedAt = performance.now();
    await servers[victim]!.stop('SIGKILL');
    servers[victim] = await serve(victim);
    result.recoveryMs = Math.max(result.recoveryMs, performance.now() - killedAt);
    stop.abort();
    await pushing;
    if (each < tries - 1 && each % 10 !== 0) continue;
    result.lost = 0;
    result.halfVisible = 0;
    for (const { url } of servers) {
      const checked = await pushes.check(url);
      result.lost = Math.max(result.lost, checked.lost);
      result.halfVisible = Math.max(result.halfVisible, checked.halfVisible);
      defects.push(...checked.defects);
    }
    if (defects.length > 0) break;
  }
  result.acknowledged = pushes.acknowledged;
  return defects.length === 0 ? result : { ...result, notes: defects.slice(0, 3).join('; ') };
}
