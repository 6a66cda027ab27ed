import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import { pushImage } from '../content.ts';
import { startBareNode, startDockerRegistry } from '../peers.ts';
import { rate, rateOfHeads, rates } from '../requests.ts';

/** Manifests of images, with warm caches. */
export async function manifests(bench: Bench): Promise<void> {
  const { rounds, seconds, folder } = bench;
  const ours = await bench.ours('manifests-entrepot');
  const registry = bench.keep(await startDockerRegistry(join(folder, 'manifests-registry')));
  const { bytes, type, layer, manifest } = await pushImage(ours, 'team/app');
  await pushImage(registry, 'team/app', layer);
  const bare = bench.keep(await startBareNode(join(folder, 'manifests-bare'), bytes, { 'Content-Type': type }));
  const peers = [ours, registry, bare];
  const [byTag, byDigest] = ['v1', manifest.digest].map((reference) => `/v2/team/app/manifests/${reference}`);
  await rates('manifest by tag, GET', rounds, peers, (peer) => rate(peer, [byTag!], { seconds }));
  await rates('manifest by tag, HEAD', rounds, peers, (peer) => rateOfHeads(peer, byTag!, { seconds }));
  await rates('manifest by digest, GET', rounds, peers, (peer) => rate(peer, [byDigest!], { seconds }));
}
