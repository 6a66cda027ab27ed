import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { drain } from '../bench/bodies.ts';
import { putBlob } from '../bench/content.ts';
import type { Peer } from '../bench/processes.ts';
import type { Cluster } from './cluster.ts';

/** Who answers the clients. */
export type Setup = 'one instance' | 'three instances' | 'nginx, one instance' | 'nginx, three instances';

export interface CrowdResult {
  /** Seconds until the last of all clients had the whole blob. */
  seconds: number;
  /** GETs of the blob that the upstream received. */
  gets: number;
}

/**
 * Clients that read a blob that no instance has, all at the same time: all at one instance, at all instances in equal shares,
 * and through nginx in front of one and of all. Each setup and round has another blob. `upstream` writes its requests to the file
 * `log`; the instances know it as `name`.
 */
export async function crowd(
  { instances, nginx, token }: Cluster,
  nginxOfOne: string,
  { upstream, name, log }: { upstream: Peer; name: string; log: string },
  { clients, bytes, rounds }: { clients: number; bytes: number; rounds: number },
): Promise<Map<Setup, CrowdResult[]>> {
  const repository = 'library/big';
  const pull = async (urls: readonly string[], path: string): Promise<number> => {
    const start = performance.now();
    await Promise.all(
      urls.map((url, index) => {
        const share = Math.floor((clients + index) / urls.length);
        const peer = { name: url, url, headers: { Authorization: `Bearer ${token}` } } as unknown as Peer;
        return drain(peer, `/v2/${name}${path}`, share, share);
      }),
    );
    return (performance.now() - start) / 1000;
  };
  const setups: Record<Setup, readonly string[]> = {
    'one instance': [instances[0]!.url],
    'three instances': instances.map(({ url }) => url),
    'nginx, one instance': [nginxOfOne],
    'nginx, three instances': [nginx.url],
  };
  const measured: { setup: Setup; seconds: number; path: string }[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const [setup, urls] of Object.entries(setups) as [Setup, string[]][]) {
      const path = `/${repository}/blobs/${await putBlob(upstream, repository, randomBytes(bytes))}`;
      measured.push({ setup, seconds: await pull(urls, path), path });
    }
  }
  // The log is complete when the process has ended.
  await upstream.stop();
  const lines = (await readFile(log, 'utf8')).split('\n');
  return Map.groupBy(
    measured.map(({ setup, seconds, path }) => ({
      setup,
      seconds,
      gets: lines.filter((line) => line.includes(`"GET /v2${path} `)).length,
    })),
    ({ setup }) => setup,
  );
}
