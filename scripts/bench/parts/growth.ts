import { packageKey } from '../../../src/nuget/hosted/packages.ts';
import type { Bench } from '../bench.ts';
import type { Peer } from '../processes.ts';
import { rate, rates } from '../requests.ts';
import { hot, storeOf } from '../store/store.ts';

/** The most frequent requests, to a server with many packages and tags and to one with few. */
export async function growth(bench: Bench): Promise<void> {
  const serve = async (count: number) =>
    bench.serve(await storeOf(bench, count), { name: `${count} packages and tags` });
  const peers = [await serve(bench.many), await serve(100)];
  for (const [title, path] of [
    ['manifest by tag', `/v2/${hot.repository}/manifests/${hot.tag}`],
    ['flat index', `/v3/package/${packageKey(hot.id)}/index.json`],
    ['registration, gzip', `/v3/registration-gz-semver2/${packageKey(hot.id)}/index.json`],
  ] as const) {
    const load = (peer: Peer) => rate(peer, [path], { seconds: bench.seconds });
    await rates(`${title} as the store grows`, bench.quick ? 1 : 7, peers, load, undefined, 'within 10 %');
  }
}
