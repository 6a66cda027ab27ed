import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import { push } from '../bodies.ts';
import { startDockerRegistry } from '../peers.ts';
import type { Peer } from '../processes.ts';
import { compare } from '../report.ts';

/** Pushes of blobs. */
export async function pushes(bench: Bench): Promise<void> {
  const ours = await bench.ours('pushes-entrepot');
  const registry = bench.keep(await startDockerRegistry(join(bench.folder, 'pushes-registry')));
  for (const [megabytes, count] of bench.quick
    ? [
        [1, 50],
        [10, 10],
      ]
    : [
        [1, 200],
        [10, 40],
        [100, 8],
      ]) {
    for (const connections of [1, 8]) {
      const send = (peer: Peer) => async () => {
        await bench.touchMemory(megabytes! * 1e6 * count!);
        return (await push(peer, 'team/pushed', megabytes! * 1e6, connections, count!)) / 1e6;
      };
      const title = `push of ${megabytes} MB blobs, ${connections} connections`;
      const subjects = { [ours.name]: send(ours), [registry.name]: send(registry) };
      await compare({ title, unit: 'MB/s' }, bench.rounds, subjects);
    }
  }
}
