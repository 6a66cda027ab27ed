import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf } from '../../../src/runtime/digest.ts';
import { makeNupkg } from '../../../test/support/builders/nupkg.ts';
import type { Bench } from '../bench.ts';
import { pushImage } from '../content.ts';
import { mebibyte, type Peer } from '../processes.ts';
import { compare, note } from '../report.ts';

/** What both ways bring in at the same time, and milliseconds between two reads of another client. */
const atOnce = 8;
const readEvery = 20;
/** Of each package. */
const versions = 10;

const allowed = { ENTREPOT_IMPORTS_ALLOW: '["127.0.0.1"]' };

/**
 * Imports of packages of 50 kB from another server of this machine, and pushes of the same files, in turn; what clients that read
 * notice of both, the memory that an import needs, and a second import of unchanged versions. Then the same of images.
 */
export async function imports(bench: Bench): Promise<void> {
  const total = bench.quick ? 400 : 10_000;
  const source = await bench.ours('imports-source');
  // Made before, so that the time to make them does not count.
  const all: Buffer[] = [];
  for (let number = 0; number < total; number += 1) {
    const [id, version] = [`Lib${Math.floor(number / versions)}`, `1.0.${number % versions}`];
    all.push(await makeNupkg({ id, version, payloadBytes: 50_000 }));
  }
  await some(total, (number) => push(source, all[number]!));
  let round = 0;
  const idle: number[] = [];
  const busy: number[] = [];
  const pushed: number[] = [];
  const memory: number[] = [];
  const deltas: number[] = [];
  const ways = {
    import: async () => {
      round += 1;
      const peer = await bench.ours(`imports-${round}`, allowed);
      await push(peer, await makeNupkg({ id: 'Read', version: '1.0.0' }));
      idle.push(await p99(peer, sleep(2000)));
      const began = performance.now();
      const url = `${source.url}/v3/index.json`;
      const { id } = await asked(peer, 'POST', '', { ...from(source), kind: 'feed', url });
      const done = ended(peer, id, memory);
      busy.push(await p99(peer, done));
      const rate = total / ((performance.now() - began) / 1000);
      const again = performance.now();
      await asked(peer, 'POST', `/${id}/resume`, { secret: source.token });
      await ended(peer, id, memory);
      deltas.push(total / ((performance.now() - again) / 1000));
      return rate;
    },
    push: async () => {
      const peer = await bench.ours(`imports-push-${round}`);
      await push(peer, await makeNupkg({ id: 'Read', version: '1.0.0' }));
      const began = performance.now();
      pushed.push(
        await p99(
          peer,
          some(total, (number) => push(peer, all[number]!)),
        ),
      );
      return total / ((performance.now() - began) / 1000);
    },
  };
  await compare(
    { title: `${total} packages of 50 kB, import and push`, unit: 'packages/s', bar: '0.7×' },
    bench.rounds,
    ways,
  );
  const readers = samples({ 'during an import': busy, 'during the pushes': pushed, idle });
  note({ title: 'reads of another client, p99', unit: 'ms', samples: readers });
  note({ title: 'memory during imports', unit: 'MiB', bar: '300', samples: samples({ most: [Math.max(...memory)] }) });
  note({ title: 'import of unchanged versions', unit: 'versions/s', bar: '334', samples: samples({ again: deltas }) });
  await bench.endPart();
  await images(bench);
}

async function images(bench: Bench): Promise<void> {
  const total = bench.quick ? 10 : 200;
  const layers = Array.from({ length: total }, () => randomBytes(20 * mebibyte));
  const digests = layers.map((layer) => digestOf(layer));
  const pushAll = (peer: Peer) =>
    some(total, async (number) => void (await pushImage(peer, `image-${number}`, layers[number], digests[number])));
  const source = await bench.ours('imports-images');
  await pushAll(source);
  const memory: number[] = [];
  let round = 0;
  const ways = {
    import: async () => {
      round += 1;
      const peer = await bench.ours(`imports-images-${round}`, allowed);
      const began = performance.now();
      const { id } = await asked(peer, 'POST', '', { ...from(source), kind: 'registry', url: source.url });
      await ended(peer, id, memory);
      return total / ((performance.now() - began) / 1000);
    },
    push: async () => {
      const peer = await bench.ours(`imports-images-push-${round}`);
      const began = performance.now();
      await pushAll(peer);
      return total / ((performance.now() - began) / 1000);
    },
  };
  const title = `${total} images of 20 MiB, import and push`;
  await compare({ title, unit: 'images/s', bar: '0.7×' }, bench.rounds, ways);
  note({ title: 'memory during imports of images', unit: 'MiB', bar: '300', samples: samples({ most: memory }) });
}

/** Does `task` for each number below `total`, some at the same time. */
async function some(total: number, task: (number: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    for (let number = next++; number < total; number = next++) await task(number);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

const from = (source: Peer & { token: string }) => ({ secret: source.token, hosted: true, concurrency: atOnce });

function samples(values: Record<string, number[]>) {
  return Object.entries(values).map(([subject, some]) => ({ subject, values: some }));
}

async function push(peer: Peer, bytes: Buffer): Promise<void> {
  const form = new FormData();
  form.append('package', new Blob([new Uint8Array(bytes)]), 'package.nupkg');
  const response = await fetch(`${peer.url}/v3/push`, { method: 'PUT', headers: peer.headers, body: form });
  await response.arrayBuffer();
  if (response.status !== 201) throw new Error(`a push answered ${response.status}`);
}

async function read(peer: Peer): Promise<void> {
  const response = await fetch(`${peer.url}/v3/package/read/1.0.0/read.1.0.0.nupkg`, { headers: peer.headers });
  await response.arrayBuffer();
}

async function asked(peer: Peer, method: string, path: string, body?: object): Promise<{ id: string; state: string }> {
  const response = await fetch(`${peer.url}/v1/imports${path}`, {
    method,
    headers: { ...peer.headers, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return (await response.json()) as { id: string; state: string };
}

/** Waits for the end of a run; adds the most memory that the server has used until then. */
async function ended(peer: Peer, id: string, memory: number[]): Promise<void> {
  for (;;) {
    const { state, ...rest } = await asked(peer, 'GET', `/${id}`);
    if (state === 'done') return void memory.push(peer.peak() / mebibyte);
    if (state !== 'running') throw new Error(`the import is ${state}: ${JSON.stringify(rest)}`);
    await sleep(100);
  }
}

/** The 99th percentile of reads until `end`, in milliseconds. */
async function p99(peer: Peer, end: Promise<unknown>): Promise<number> {
  const times: number[] = [];
  const over = new AbortController();
  const whole = end.finally(() => over.abort());
  while (!over.signal.aborted) {
    const began = performance.now();
    await read(peer);
    times.push(performance.now() - began);
    await sleep(readEvery);
  }
  await whole;
  return times.toSorted((one, other) => one - other)[Math.floor(times.length * 0.99)]!;
}
