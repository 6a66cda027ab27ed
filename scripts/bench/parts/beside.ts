import { randomBytes } from 'node:crypto';
import { glob, mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench } from '../bench.ts';
import { bodyOf, drain, preparedPushes } from '../bodies.ts';
import { pushImage, pushPackage, putBlob } from '../content.ts';
import { startBareNode, startDockerRegistry, startNginx } from '../peers.ts';
import { mebibyte, type Peer } from '../processes.ts';
import { rate, rates } from '../requests.ts';

const pushers = 4;
const pullers = 6;
/** Blobs for a round, more than a fast machine needs, and their bytes. */
const [pushed, pulled] = [
  { count: 16 * pushers, bytes: 1e8 },
  { count: 16 * pullers, bytes: 32 * mebibyte },
];

/** Who takes the large work: pushes, and pulls of blobs that only the upstream has. */
interface Bulk {
  pushes: Peer;
  pulls: Peer;
  /** Removes what the work has stored, so that the next round fetches the same blobs. */
  clear: () => Promise<void>;
}

/**
 * Small reads while the same server takes large pushes and fetches large blobs. nginx and a bare Node send the same bytes beside
 * the same load of this server. docker-registry takes the pushes itself, and a second one, as a proxy, the pulls.
 */
export async function beside(bench: Bench): Promise<void> {
  const { folder, rounds } = bench;
  const upstream = bench.keep(await startDockerRegistry(join(folder, 'beside-upstream')));
  const blobs: string[] = [];
  for (let index = 0; index < pulled.count; index += 1)
    blobs.push(`/v2/library/big/blobs/${await putBlob(upstream, 'library/big', randomBytes(pulled.bytes))}`);
  const of = { name: 'upstream.test', kind: 'registry', url: upstream.url, default: true, allowPrivateNetwork: true };
  const ours = await bench.ours('beside-entrepot', {
    ENTREPOT_UPSTREAMS: JSON.stringify([of]),
    ENTREPOT_GC_GRACE: '0s',
    ENTREPOT_MIRROR_MAX_SIZE: '1MiB',
  });
  const nginx = bench.keep(await startNginx(join(folder, 'beside-nginx')));
  const registry = bench.keep(await startDockerRegistry(join(folder, 'beside-registry')));
  const { layer, type } = await pushImage(ours, 'team/app');
  await pushImage(registry, 'team/app', layer);
  for (let patch = 0; patch < 100; patch += 1)
    await pushPackage(ours, { id: 'Bench.Package', version: `1.0.${patch}`, payloadBytes: 50_000 });

  const ofOurs = (): Promise<Bulk> => Promise.resolve({ pushes: ours, pulls: ours, clear: () => collect(ours) });
  const ofRegistry = async (): Promise<Bulk> => {
    const proxied = join(folder, 'beside-proxy');
    const proxy = await startDockerRegistry(proxied, { proxied: upstream.url });
    const clear = async () => {
      await proxy.stop();
      await rm(proxied, { recursive: true });
      await removeLarge(join(folder, 'beside-registry'));
    };
    return { pushes: registry, pulls: proxy, clear };
  };
  for (const [title, path, headers] of [
    ['manifest', '/v2/team/app/manifests/v1', { 'Content-Type': type }],
    ['flat index', '/v3/package/bench.package/index.json', {}],
    ['nupkg of 50 kB', '/v3/package/bench.package/1.0.0/bench.package.1.0.0.nupkg', {}],
  ] as const) {
    const bytes = await bodyOf(ours, path);
    const file = join(folder, 'beside-nginx/files', path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, bytes);
    const bare = bench.keep(await startBareNode(join(folder, `beside-bare-${title}`), bytes, headers));
    const peers = [ours, nginx, bare, ...(title === 'manifest' ? [registry] : [])];
    const read = (peer: Peer) => rate(peer, [path], { seconds: 2 * bench.seconds, connections: 4 });
    await rates(`${title}, alone`, rounds, peers, read);
    await rates(`${title}, beside ${pushers} pushes and ${pullers} cold pulls`, rounds, peers, async (peer) => {
      const bulk = await (peer === registry ? ofRegistry() : ofOurs());
      return besideBulk(bench, bulk, blobs, () => read(peer));
    });
  }
}

/** Does `work` while four clients push blobs of 100 MB, and six pull blobs that the mirror has not. */
async function besideBulk<T>(
  bench: Bench,
  { pushes, pulls, clear }: Bulk,
  blobs: readonly string[],
  work: () => Promise<T>,
): Promise<T> {
  const left = [...blobs];
  const push = preparedPushes(pushes, 'team/pushed', pushed.bytes, pushed.count);
  await bench.touchMemory(3e9);
  const state = { isDone: false, pushed: 0 };
  const startedAt = performance.now();
  const bulk = [
    ...Array.from({ length: pushers }, async () => {
      while (!state.isDone && (await push())) state.pushed += 1;
    }),
    ...Array.from({ length: pullers }, async () => {
      for (let path = left.pop(); path !== undefined && !state.isDone; path = left.pop())
        await drain(pulls, path, 1, 1);
    }),
  ];
  try {
    return await work();
  } finally {
    const ended = left.length === 0 || state.pushed >= pushed.count - pushers ? ', which ended before the reads' : '';
    const seconds = (performance.now() - startedAt) / 1000;
    const [up, down] = [state.pushed * pushed.bytes, (blobs.length - left.length) * pulled.bytes].map((each) =>
      (each / 1e6 / seconds).toFixed(0),
    );
    process.stdout.write(`beside pushes of ${up} MB/s and cold pulls of ${down} MB/s to ${pushes.name}${ended}\n`);
    state.isDone = true;
    await Promise.all(bulk).finally(clear);
  }
}

/** Deletes what the mirror has stored, and what was pushed and has no manifest. */
async function collect({ url, headers }: Peer): Promise<void> {
  for (const job of ['evict', 'gc']) {
    const address = `${url}/v1/jobs/${job}/runs`;
    const { status } = await fetch(address, { method: 'POST', headers });
    if (status !== 204) throw new Error(`the job ${job} was answered with ${status}`);
    for (let isRunning = true; isRunning; await sleep(50)) {
      const { items } = (await (await fetch(address, { headers })).json()) as { items: { ended_at: string | null }[] };
      isRunning = items.some((run) => run.ended_at === null);
    }
  }
}

/** Deletes files of more than a mebibyte. */
async function removeLarge(folder: string): Promise<void> {
  for await (const path of glob('**/data', { cwd: folder }))
    if ((await stat(join(folder, path))).size > mebibyte) await rm(join(folder, path));
}
