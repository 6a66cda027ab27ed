import type { Bench } from '../bench.ts';
import { bodyOf } from '../bodies.ts';
import type { Peer } from '../processes.ts';
import { rate, rates, type Rate } from '../requests.ts';
import { mixed, queries } from '../store/queries.ts';
import { storeOf } from '../store/store.ts';

const names = { sqlite: 'SQLite', mysql: 'MariaDB' };

/** With one client, a search waits for no other. */
const clients = [1, 4, 16];

/** Search in many packages, on each database: all kinds of queries in turn, and each kind separately. */
export async function search(bench: Bench): Promise<void> {
  const peers: Peer[] = [];
  for (const dialect of bench.setting === 'embedded' ? (['sqlite', 'mysql'] as const) : (['mysql'] as const)) {
    peers.push(await bench.serve(await storeOf(bench, bench.many, dialect), { name: names[dialect] }));
  }
  const kinds = queries();
  for (const peer of peers) for (const path of mixed(kinds)) await expectHits(peer, path);

  const { rounds, seconds } = bench;
  const percentiles = { p50: {}, p95: { bar: '≤ 10 ms, MariaDB 20 ms' } };
  for (const connections of clients) {
    const title = `search among ${bench.many} packages, ${connections} connection${connections === 1 ? '' : 's'}`;
    await rates(title, rounds, peers, load(mixed(kinds), seconds, connections), percentiles);
  }
  if (bench.quick) return;
  for (const [kind, paths] of Object.entries(kinds)) {
    const title = `search among ${bench.many} packages, 4 connections: ${kind}`;
    await rates(title, rounds, peers, load(paths, 2, 4), { p95: percentiles.p95 });
  }
}

function load(paths: readonly string[], seconds: number, connections: number): (peer: Peer) => Promise<Rate> {
  return (peer) => rate(peer, paths, { seconds, connections });
}

async function expectHits(peer: Peer, path: string): Promise<void> {
  const { totalHits } = JSON.parse((await bodyOf(peer, path)).toString()) as { totalHits: number };
  if (totalHits === 0) throw new Error(`${peer.name} finds nothing at ${path}`);
}
