import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import { bodyOf } from '../bodies.ts';
import { pushPackage } from '../content.ts';
import { startBareNode } from '../peers.ts';
import { rate, rates } from '../requests.ts';

/** Documents and files of packages, with warm caches. */
export async function packages(bench: Bench): Promise<void> {
  const { rounds, seconds, folder } = bench;
  const ours = await bench.ours('packages-entrepot');
  for (let patch = 0; patch < 100; patch += 1) {
    await pushPackage(ours, { id: 'Bench.Package', version: `1.0.${patch}`, payloadBytes: 50_000 });
  }
  for (const [title, path] of [
    ['flat index', '/v3/package/bench.package/index.json'],
    ['nupkg of 50 kB', '/v3/package/bench.package/1.0.0/bench.package.1.0.0.nupkg'],
    ['registration of 100 versions, gzip', '/v3/registration-gz-semver2/bench.package/index.json'],
  ] as const) {
    const bare = await startBareNode(join(folder, `bare-${title}`), await bodyOf(ours, path), {});
    await rates(title, rounds, [ours, bare], (peer) => rate(peer, [path], { seconds }));
    await bare.stop();
  }
}
