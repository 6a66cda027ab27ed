import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Bench } from '../bench.ts';
import { bodyOf, drain, preparedPushes } from '../bodies.ts';
import { pushImage, pushPackage, putBlob } from '../content.ts';
import { startDockerRegistry, startNginx } from '../peers.ts';
import { mebibyte, type Peer } from '../processes.ts';
import { rate, rates } from '../requests.ts';

const pushers = 4;
const pullers = 6;

/** Small reads while the same server takes large pushes and fetches large blobs; nginx sends the same bytes beside the same load. */
export async function beside(bench: Bench): Promise<void> {
  const upstream = bench.keep(await startDockerRegistry(join(bench.folder, 'beside-upstream')));
  const of = { name: 'upstream.test', kind: 'registry', url: upstream.url, default: true, allowPrivateNetwork: true };
  const ours = await bench.ours('beside-entrepot', { ENTREPOT_UPSTREAMS: JSON.stringify([of]) });
  const nginx = bench.keep(await startNginx(join(bench.folder, 'beside-nginx')));
  await pushImage(ours, 'team/app');
  for (let patch = 0; patch < 100; patch += 1)
    await pushPackage(ours, { id: 'Bench.Package', version: `1.0.${patch}`, payloadBytes: 50_000 });
  const seconds = 2 * bench.seconds;
  for (const [title, path] of [
    ['manifest', '/v2/team/app/manifests/v1'],
    ['flat index', '/v3/package/bench.package/index.json'],
    ['nupkg of 50 kB', '/v3/package/bench.package/1.0.0/bench.package.1.0.0.nupkg'],
  ] as const) {
    const file = join(bench.folder, 'beside-nginx/files', path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, await bodyOf(ours, path));
    const read = (peer: Peer) => rate(peer, [path], { seconds, connections: 4 });
    await rates(`${title}, alone`, bench.rounds, [ours, nginx], read);
    await rates(`${title}, beside ${pushers} pushes and ${pullers} cold pulls`, bench.rounds, [ours, nginx], (peer) =>
      besideBulk(bench, ours, upstream, () => read(peer)),
    );
  }
}

/** Does `work` while four clients push blobs of 100 MB, and six pull blobs that the mirror has not. */
async function besideBulk<T>(bench: Bench, ours: Peer, upstream: Peer, work: () => Promise<T>): Promise<T> {
  const pulls: string[] = [];
  for (let index = 0; index < 8 * pullers; index += 1)
    pulls.push(`/v2/library/big/blobs/${await putBlob(upstream, 'library/big', randomBytes(32 * mebibyte))}`);
  const push = preparedPushes(ours, 'team/pushed', 1e8, 8 * pushers);
  await bench.touchMemory(3e9);
  const state = { isDone: false };
  const bulk = [
    ...Array.from({ length: pushers }, async () => {
      while (!state.isDone && (await push()));
    }),
    ...Array.from({ length: pullers }, async () => {
      for (let path = pulls.pop(); path !== undefined && !state.isDone; path = pulls.pop())
        await drain(ours, path, 1, 1);
    }),
  ];
  try {
    return await work();
  } finally {
    const wasEnough = pulls.length > 0;
    state.isDone = true;
    await Promise.all(bulk);
    if (!wasEnough) process.stdout.write('the cold pulls ended before the reads\n');
  }
}
