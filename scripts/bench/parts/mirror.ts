import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bench } from '../bench.ts';
import { drain, firstByte } from '../bodies.ts';
import { putBlob } from '../content.ts';
import { startBareRelay, startDockerRegistry, startNginxProxy } from '../peers.ts';
import { mebibyte, peaks, type Peer } from '../processes.ts';
import { compare, note } from '../report.ts';

/** The first pull of a blob through a mirror, from an upstream on the same machine. */
export async function mirror(bench: Bench): Promise<void> {
  const log = join(bench.folder, 'mirror-upstream.log');
  const upstream = bench.keep(await startDockerRegistry(join(bench.folder, 'mirror-upstream'), { log }));
  /** Creates a blob that no mirror has; resolves to its path. */
  const fresh = async (size: number): Promise<string> =>
    `/v2/library/big/blobs/${await putBlob(upstream, 'library/big', randomBytes(size))}`;
  const mirrors = async (name: string): Promise<[ours: Peer, proxy: Peer]> => [
    await startOurs(bench, `${name}-entrepot`, upstream),
    bench.keep(await startDockerRegistry(join(bench.folder, `${name}-proxy`), { proxied: upstream.url })),
  ];
  const size = (bench.quick ? 64 : 256) * mebibyte;
  const missing = async (): Promise<string> => {
    const path = await fresh(size);
    await bench.touchMemory(size);
    return path;
  };
  const title = `of a missing blob of ${size / mebibyte} MiB`;

  const single = await mirrors('mirror');
  const nginx = bench.keep(await startNginxProxy(join(bench.folder, 'mirror-nginx'), upstream.url));
  const relays: Peer[] = [];
  for (const stored of [false, true])
    relays.push(bench.keep(await startBareRelay(join(bench.folder, `mirror-relay-${stored}`), upstream.url, stored)));
  await firstBytes([...single, nginx], upstream, () => fresh(mebibyte), bench.quick ? 5 : 20);
  await compare({ title: `cold pull ${title}`, unit: 's' }, 3 * bench.rounds, {
    [single[0].name]: async () => pull(single[0], await missing()),
    direct: async () => pull(upstream, await missing()),
    [single[1].name]: async () => pull(single[1], await missing()),
    ...Object.fromEntries([nginx, ...relays].map((peer) => [peer.name, async () => pull(peer, await missing())])),
  });
  note({ title: 'peak memory after single pulls', unit: 'MiB', bar: '≤ 300 MiB', samples: peaks(single) });

  const crowded = await mirrors('crowd');
  const paths = new Map<Peer, string[]>(crowded.map((peer) => [peer, []]));
  const crowd = (peer: Peer) => async () => {
    const path = await missing();
    paths.get(peer)!.push(path);
    return pull(peer, path, 100);
  };
  const subjects = Object.fromEntries(crowded.map((peer) => [peer.name, crowd(peer)]));
  await compare({ title: `100 clients, cold pull ${title}`, unit: 's' }, bench.rounds, subjects);
  note({ title: 'peak memory after 100 clients', unit: 'MiB', bar: '≤ 300 MiB', samples: peaks(crowded) });
  // The log is complete when the process has ended.
  await upstream.stop();
  const lines = (await readFile(log, 'utf8')).split('\n');
  const gets = (path: string) => lines.filter((line) => line.includes(`"GET ${path} `)).length;
  const samples = [...paths].map(([peer, pulled]) => ({ subject: peer.name, values: pulled.map(gets) }));
  note({ title: '100 clients: GETs of the blob upstream', unit: 'requests', samples });
}

async function startOurs(bench: Bench, name: string, upstream: Peer): Promise<Peer> {
  const of = { name: 'upstream.test', kind: 'registry', url: upstream.url, default: true, allowPrivateNetwork: true };
  return bench.ours(name, { ENTREPOT_UPSTREAMS: JSON.stringify([of]) });
}

/** Delay of the first byte of a missing blob through the mirror, compared with a direct request. */
async function firstBytes(
  peers: readonly Peer[],
  upstream: Peer,
  fresh: () => Promise<string>,
  rounds: number,
): Promise<void> {
  const title = 'first byte of a missing blob';
  const subjects = Object.fromEntries(
    peers.map((peer) => [peer.name, async () => firstByte(peer, await fresh())] as const),
  );
  const direct = async () => firstByte(upstream, await fresh());
  const { samples } = await compare({ title, unit: 'ms' }, rounds, { ...subjects, direct });
  const base = samples.at(-1)!.values;
  const later = samples
    .slice(0, -1)
    .map(({ subject, values }) => ({ subject, values: values.map((value, round) => value - base[round]!) }));
  note({ title: `${title}, after the direct one`, unit: 'ms', bar: '≤ 10 ms', samples: later });
}

/** Seconds until all concurrent clients have a whole blob. */
async function pull(peer: Peer, path: string, clients = 1): Promise<number> {
  const start = performance.now();
  await drain(peer, path, clients, clients);
  return (performance.now() - start) / 1000;
}
