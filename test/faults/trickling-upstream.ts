import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf } from '../../src/runtime/digest.ts';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { until } from '../support/until.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { seconds } from './probes.ts';
import { authorization, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

/** Fetches of the slow upstream; an account has 128 places by default. */
const fetches = 140;
const most = 2;
const size = 300_000;

export const fault: Fault = { name: 'an upstream sends a byte a second', run: trickle };

/**
 * Clients begin many downloads from an upstream that sends a byte a second, and leave. Nothing is pushed: `lost` is cold
 * content of another upstream that a client does not get. The recovery is the longest time of such a pull.
 */
async function trickle({ tries: wanted, short }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const slow = await startUpstreamRegistry(t);
  const quick = await startUpstreamRegistry(t);
  const open = new Set<object>();
  const timeout = short ? '3s' : '10s';
  const upstreams = [slow.settings('slow.test', { timeout }), quick.settings('quick.test')];
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) }, inMemory);
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  let longest = 0;
  for (let each = 0; each < tries; each += 1) {
    const server = await line.serve();
    const stop = new AbortController();
    const blobs = Array.from({ length: fetches }, (_, index) => digestOf(`slow ${each} ${index}`));
    for (const digest of blobs) {
      slow.on(`/v2/team/app/blobs/${digest}`, (_request, response) => {
        response.writeHead(200, { 'content-length': size });
        open.add(response);
        const timer = setInterval(() => response.write('x'), 1000);
        response.once('close', () => {
          clearInterval(timer);
          open.delete(response);
        });
      });
    }
    for (const digest of blobs) void pull(server.url, 'slow.test', digest, stop.signal).catch(() => undefined);
    await until(() => open.size >= 60, 30_000);
    // A download whose body has not begun stops when its client leaves.
    await sleep(2500);
    const startedAt = performance.now();
    stop.abort();
    for (let other = 0; other < 5; other += 1) {
      const bytes = randomBytes(size);
      const beganAt = performance.now();
      const found = await pull(
        server.url,
        'quick.test',
        quick.blob('team/app', bytes).digest,
        AbortSignal.timeout(5000),
      );
      if (!found?.equals(bytes)) result.lost += 1;
      result.recoveryMs = Math.max(result.recoveryMs, performance.now() - beganAt);
    }
    await until(() => open.size === 0, 90_000);
    longest = Math.max(longest, performance.now() - startedAt);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    assert.match(metrics, /entrepot_upstream_slow_bodies_total\{upstream="slow\.test"\} [1-9]/);
    await server.stop();
  }
  return { ...result, notes: `the last slow fetch ended after ${seconds(longest)}` };
}

async function pull(url: string, upstream: string, digest: string, signal: AbortSignal): Promise<Buffer | undefined> {
  const response = await fetch(`${url}/v2/${upstream}/team/app/blobs/${digest}`, {
    headers: { authorization },
    signal,
  });
  const bytes = Buffer.from(await response.arrayBuffer());
  return response.status === 200 ? bytes : undefined;
}
