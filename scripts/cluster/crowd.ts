import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { drain } from '../bench/bodies.ts';
import { putBlob } from '../bench/content.ts';
import type { Peer } from '../bench/processes.ts';
import type { Cluster, Instance } from './cluster.ts';

export interface CrowdRound {
  /** Seconds until the last of all clients had the whole blob. */
  alone: number;
  cluster: number;
  /** GETs of the blob that the upstream received from the cluster. */
  gets: number;
}

/**
 * Clients that read a blob that no instance has, all at the same time: first all at one instance, then another blob at all
 * instances in equal shares. `upstream` writes its requests to the file `log`; the instances know it as `name`.
 */
export async function crowd(
  { instances, token }: Cluster,
  { upstream, name, log }: { upstream: Peer; name: string; log: string },
  { clients, bytes, rounds }: { clients: number; bytes: number; rounds: number },
): Promise<CrowdRound[]> {
  const repository = 'library/big';
  const missing = async () => `/blobs/${await putBlob(upstream, repository, randomBytes(bytes))}`;
  const pull = async (from: readonly Instance[], blob: string): Promise<number> => {
    const start = performance.now();
    await Promise.all(
      from.map(({ name: of, url }, index) => {
        const share = Math.floor((clients + index) / from.length);
        const peer = { name: of, url, headers: { Authorization: `Bearer ${token}` } } as unknown as Peer;
        return drain(peer, `/v2/${name}/${repository}${blob}`, share, share);
      }),
    );
    return (performance.now() - start) / 1000;
  };
  const result: CrowdRound[] = [];
  const paths: string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const alone = await pull([instances[round % instances.length]!], await missing());
    const blob = await missing();
    paths.push(`/v2/${repository}${blob}`);
    result.push({ alone, cluster: await pull(instances, blob), gets: 0 });
  }
  // The log is complete when the process has ended.
  await upstream.stop();
  const lines = (await readFile(log, 'utf8')).split('\n');
  for (const [round, path] of paths.entries())
    result[round]!.gets = lines.filter((line) => line.includes(`"GET ${path} `)).length;
  return result;
}
