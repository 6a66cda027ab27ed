import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench } from '../bench.ts';
import { pushImage } from '../content.ts';
import type { Peer } from '../processes.ts';
import { note } from '../report.ts';
import { rate } from '../requests.ts';

const pushesPerSecond = 20;

/**
 * Hot manifests from one instance of two with MariaDB and Redis, alone and while the other one receives images, and from one
 * process with SQLite. Also the processor time of each request.
 */
export async function cluster(bench: Bench): Promise<void> {
  const embedded = await bench.serve(await bench.place('cluster-embedded', 'sqlite'), { name: 'one process' });
  const place = await bench.shared('cluster-shared');
  const one = await bench.serve(place, { name: 'an instance' });
  const two = await bench.serve(place, { name: 'the other instance' });
  for (const each of [embedded, one]) await pushImage(each, 'team/app');

  const found = new Map<string, { perSecond: number[]; cpu: number[]; p99: number[] }>();
  const measure = async (name: string, peer: Peer) => {
    const cpu = peer.cpu();
    const { perSecond, p99, errors } = await rate(peer, ['/v2/team/app/manifests/v1'], { seconds: bench.seconds });
    if (errors > 0) throw new Error(`${name} refused ${errors} requests`);
    const used = ((peer.cpu() - cpu) * 1e6) / (perSecond * bench.seconds);
    const known = found.get(name) ?? { perSecond: [], cpu: [], p99: [] };
    known.perSecond.push(perSecond);
    known.cpu.push(used);
    known.p99.push(p99);
    found.set(name, known);
  };
  const pushed: number[] = [];
  for (let round = 0; round < bench.rounds; round += 1) {
    await measure('one process', embedded);
    await measure('an instance', one);
    const pushing = pushSteadily(two, round);
    await measure('an instance while another receives pushes', one);
    pushed.push(await pushing());
  }
  const samples = (key: 'perSecond' | 'cpu' | 'p99') =>
    [...found].map(([subject, values]) => ({ subject, values: values[key] }));
  note({ title: 'hot manifest, GET', unit: 'requests/s', bar: '≥ 0.8 × and ≥ 0.6 ×', samples: samples('perSecond') });
  note({ title: 'hot manifest: processor time', unit: 'µs per request', samples: samples('cpu') });
  note({ title: 'hot manifest: p99', unit: 'ms', samples: samples('p99') });
  note({ title: 'pushes of images meanwhile', unit: 'per second', samples: [{ subject: two.name, values: pushed }] });
}

/** Pushes an image to another repository each 50 ms, until the returned function is called. That resolves to the pushes per second. */
function pushSteadily(peer: Peer, round: number): () => Promise<number> {
  const start = performance.now();
  const over = new AbortController();
  let count = 0;
  const worker = async (number: number) => {
    for (let index = 0; !over.signal.aborted; index += 1) {
      await pushImage(peer, `pushed${round}/app${number}-${index}`);
      count += 1;
      const due = start + ((index + 1) * 4 * 1000) / pushesPerSecond;
      await sleep(Math.max(0, due - performance.now()));
    }
  };
  const workers = Promise.all([0, 1, 2, 3].map(worker));
  return async () => {
    over.abort();
    const perSecond = count / ((performance.now() - start) / 1000);
    await workers;
    return perSecond;
  };
}
