import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import { drain } from '../bodies.ts';
import { putBlob } from '../content.ts';
import { startDockerRegistry, startNginx } from '../peers.ts';
import { mebibyte, peaks, type Peer } from '../processes.ts';
import { compare, note } from '../report.ts';

/** Reads of image blobs, and their use of CPU and memory. */
export async function blobs(bench: Bench): Promise<void> {
  const ours = await bench.ours('blobs-entrepot');
  const registry = bench.keep(await startDockerRegistry(join(bench.folder, 'blobs-registry')));
  const nginx = bench.keep(await startNginx(join(bench.folder, 'blobs-nginx')));
  for (const [size, connections, count] of [
    [32 * mebibyte, 1, 24],
    [32 * mebibyte, 8, 64],
    [32 * mebibyte, 64, 128],
    ...(bench.quick ? [] : [[1024 * mebibyte, 1, 3] as const, [1024 * mebibyte, 8, 8] as const]),
  ] as const) {
    const blob = randomBytes(size);
    const digest = await putBlob(ours, 'team/app', blob);
    await putBlob(registry, 'team/app', blob);
    await writeFile(join(bench.folder, 'blobs-nginx/files/blob'), blob);
    const paths = new Map([
      [ours, `/v2/team/app/blobs/${digest}`],
      [registry, `/v2/team/app/blobs/${digest}`],
      [nginx, '/blob'],
    ]);
    const cpu = new Map<Peer, number[]>();
    const title = `blob of ${size / mebibyte} MiB, ${connections} connections`;
    const read = (peer: Peer) => async () => {
      const before = peer.cpu();
      const perSecond = await drain(peer, paths.get(peer)!, connections, count);
      const used = (peer.cpu() - before) / ((size * count) / 2 ** 30);
      cpu.set(peer, [...(cpu.get(peer) ?? []), used]);
      return perSecond / 1e6;
    };
    const subjects = Object.fromEntries([...paths.keys()].map((peer) => [peer.name, read(peer)]));
    await compare({ title, unit: 'MB/s' }, bench.rounds, subjects);
    const samples = [...cpu].map(([peer, values]) => ({ subject: peer.name, values }));
    note({ title: `${title}: CPU`, unit: 's/GiB', samples });
  }
  note({ title: 'peak memory after these', unit: 'MiB', samples: peaks([ours, registry]) });
}
