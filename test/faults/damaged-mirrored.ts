import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { damages, filesOf } from '../support/damage.ts';
import { inMemory } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import type { Fault, FaultOptions, FaultResult } from './fault.ts';
import { authorization, settings } from './pushes.ts';
import { Teardown } from './teardown.ts';

const sizes = { small: 1000, large: 600_000 };
const most = 3;

export const fault: Fault = {
  name: 'stored files truncated, extended, removed or flipped: mirrored',
  run: damageMirrored,
};

/** Nothing is pushed: `lost` is content that is not fetched again, `halfVisible` what is answered with wrong bytes. */
async function damageMirrored({ tries: wanted }: FaultOptions): Promise<FaultResult> {
  const tries = Math.min(wanted, most);
  await using t = new Teardown();
  const upstream = await startUpstreamRegistry(t);
  const ENTREPOT_UPSTREAMS = JSON.stringify([upstream.settings('up.test', { timeout: '30s' })]);
  const line = await CommandLine.create(t, { ...settings, ENTREPOT_UPSTREAMS }, inMemory);
  const result: FaultResult = { tries, acknowledged: 0, lost: 0, halfVisible: 0, recoveryMs: 0 };
  let fetches = 0;
  for (let each = 0; each < tries; each += 1) {
    const blobs = Object.entries(sizes).flatMap(([size, length]) =>
      Object.entries(damages).map(([kind, damage]) => {
        const bytes = randomBytes(length);
        return { what: `${size} ${kind}`, bytes, damage, ...upstream.blob('team/app', bytes) };
      }),
    );
    const first = await line.serve();
    for (const { digest, bytes } of blobs) assert.ok((await pull(first.url, digest))?.equals(bytes));
    // The next server has nothing in memory.
    await first.stop();
    const damageAll = async (some: typeof blobs) => {
      for (const { digest, damage } of some) await damage(filesOf(line, digest).stored);
    };
    // Only the scrub finds a flipped bit of a large file, and only requests should find the others.
    await damageAll(blobs.filter(isFlipped));
    assert.equal((await line.run('jobs', 'run', 'scrub')).code, 0);
    await damageAll(blobs.filter((blob) => !isFlipped(blob)));
    const second = await line.serve();
    const earlier = upstream.requests().length;
    for (const { digest, bytes } of blobs) {
      const startedAt = performance.now();
      const found = await pull(second.url, digest);
      result.recoveryMs = Math.max(result.recoveryMs, performance.now() - startedAt);
      if (found === undefined) result.lost += 1;
      else if (!found.equals(bytes)) result.halfVisible += 1;
    }
    fetches += upstream.requests().length - earlier;
    await second.stop();
    assert.equal(upstream.requests().length - earlier, blobs.length, 'each is fetched again, once');
  }
  return { ...result, notes: `${fetches} blobs fetched again by the first request` };
}

function isFlipped({ what }: { what: string }): boolean {
  return what === 'large flipped';
}

async function pull(url: string, digest: string): Promise<Buffer | undefined> {
  const response = await fetch(`${url}/v2/up.test/team/app/blobs/${digest}`, { headers: { authorization } });
  const bytes = Buffer.from(await response.arrayBuffer());
  return response.status === 200 ? bytes : undefined;
}
