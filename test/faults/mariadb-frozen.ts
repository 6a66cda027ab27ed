import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { redisUrl } from '../support/processes/services.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { privateMariadb } from './private-mariadb.ts';
import { readiness, recovered, resultOf, seconds } from './probes.ts';
import { authorization, Pushes, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const waiting = 25;
/** The time limits of the server in milliseconds, and room for a slow machine: a connection and a read, … */
const pullBound = 5000 + 8000 + 3000;
/** … a connection, a transaction and its rollback. */
const pushBound = 5000 + 30_000 + 10_000;
const most = 2;
const shortFreeze = 5000;

export const fault: Fault = { name: `MariaDB frozen while ${waiting} pushes wait`, run: freezeMariadb };

async function freezeMariadb({ tries: wanted, short }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const { mariadb, databaseUrl } = await privateMariadb(t);
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_DATABASE_URL: databaseUrl }, inMemory);
  const pushes = new Pushes();
  const statuses = new Map<string, number>();
  let [longestPull, longestPush, longestReadiness, recoveryMs] = [0, 0, 0, 0];
  const count = (what: string) => statuses.set(what, (statuses.get(what) ?? 0) + 1);
  let url = '';
  for (let each = 0; each < tries; each += 1) {
    // The second try is with Redis, which says which rows in memory are valid.
    const server = await line.serve(each === 1 ? { ENTREPOT_REDIS_URL: redisUrl() } : {});
    url = server.url;
    await pushes.push(url, 2);
    const addresses = pushes.addresses();
    for (const address of addresses) await pull(url + address);
    mariadb.freeze();
    const frozenAt = performance.now();
    const thawed = new AbortController();
    const stuck = Promise.all(Array.from({ length: waiting }, () => pushes.attempt(url)));
    const readers = Array.from({ length: 4 }, async (_, reader) => {
      for (let turn = reader; !thawed.signal.aborted; turn += 1) {
        const { status, took } = await pull(url + addresses[turn % addresses.length]!);
        assert.ok(took < pullBound, `a pull took ${seconds(took)}`);
        assert.ok(status === 200 || status === 503, `a pull answered ${status}`);
        longestPull = Math.max(longestPull, took);
        count(`pulls ${status}`);
        if (status === 200) await sleep(100);
      }
    });
    const probe = (async () => {
      while (!thawed.signal.aborted) {
        const startedAt = performance.now();
        const { status, took } = await readiness(url);
        // A probe can get a result from up to a second before.
        if (!thawed.signal.aborted && startedAt - frozenAt > 1000) {
          assert.equal(status, 503);
          count('probes 503');
        }
        longestReadiness = Math.max(longestReadiness, took);
        await sleep(200);
      }
    })();
    const working = Promise.all([...readers, probe]);
    // After a failure, the end of the server must not hide it.
    for (const each of [stuck, working]) each.catch(() => undefined);
    await Promise.race([working, short ? sleep(shortFreeze) : stuck]);
    thawed.abort();
    mariadb.thaw();
    recoveryMs = Math.max(recoveryMs, await recovered(url, pushes, performance.now()));
    await working;
    for (const { status, took } of await stuck) {
      assert.ok(status === 201 || status === 503, `a push answered ${status}`);
      assert.ok(took < pushBound, `a push took ${seconds(took)}`);
      longestPush = Math.max(longestPush, took);
      count(`pushes ${status}`);
    }
    if (each < tries - 1) await server.stop();
  }
  const counts = [...statuses].map(([what, times]) => `${times} ${what}`).join(', ');
  const longest = `longest pull ${seconds(longestPull)}, push ${seconds(longestPush)}, readiness ${seconds(longestReadiness)}`;
  return await resultOf(url, pushes, { tries, recoveryMs, notes: `${counts}; ${longest}` });
}

async function pull(url: string): Promise<{ status: number; took: number }> {
  const startedAt = performance.now();
  const response = await fetch(url, { headers: { authorization }, signal: AbortSignal.timeout(60_000) });
  await response.arrayBuffer();
  return { status: response.status, took: performance.now() - startedAt };
}
