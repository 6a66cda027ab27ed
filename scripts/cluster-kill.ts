import { mkdir } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Teardown } from '../test/faults/teardown.ts';
import { clientCommands, temporaryFolder, toolCommands } from '../test/support/clients/clients.ts';
import { serviceCommands } from '../test/support/processes/services.ts';
import { startNginx } from '../test/support/processes/nginx.ts';
import { swiftCommands } from '../test/support/processes/swift.ts';
import { UpstreamFeed } from '../test/support/upstreams/upstream-feed.ts';
import { startDockerRegistry } from './bench/peers.ts';
import { mebibyte, type Peer } from './bench/processes.ts';
import { check, logsOf, startClients, type Pushed } from './cluster/clients.ts';
import { startCluster, type Cluster, type Instance } from './cluster/cluster.ts';
import { Commands } from './cluster/commands.ts';
import { crowd } from './cluster/crowd.ts';
import { describeMissing, ensureCommands } from './packages.ts';

// `npm run demo:cluster`: starts three instances on MariaDB, Redis and Swift behind nginx, and kills one of them every ten seconds
// while real clients push and pull through nginx. Then 100 clients read a missing blob. Prints tables, and fails if a command
// failed four times, if acknowledged content is missing, or if a bound is exceeded. It contacts no other host.
//
//   --seconds N   how long instances are killed, 300 by default; 0 leaves this part out
//   --short       60 seconds, and a smaller blob for fewer rounds
//   --log         also prints the last log lines of the instances

const { values: options } = parseArgs({
  options: {
    seconds: { type: 'string' },
    short: { type: 'boolean', default: false },
    log: { type: 'boolean', default: false },
  },
});
const seconds = Number(options.seconds ?? (options.short ? 60 : 300));
const killEvery = 10_000;
const sampleEvery = 500;
const bounds = { residentMebibytes: 400, ratio: 1.5, gets: 3 };
const crowdSize = options.short
  ? { clients: 100, bytes: 64 * mebibyte, rounds: 1 }
  : { clients: 100, bytes: 256 * mebibyte, rounds: 3 };

// Each child process ends with this one, by a listener.
process.setMaxListeners(50);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(130));

const defects: string[] = [];
await main();
for (const each of defects) console.error(`FAILED: ${each}`);
process.exitCode = defects.length === 0 ? 0 : 1;

async function main(): Promise<void> {
  const programs = await ensureCommands({ ...serviceCommands, ...swiftCommands, ...toolCommands, ...clientCommands });
  if (programs.missing.length > 0) console.log(describeMissing(programs));
  await using closing = new Teardown();
  const folder = await temporaryFolder();
  closing.teardown(() => folder.remove());
  const at = (name: string) => join(folder.path, name);
  const feed = await UpstreamFeed.start(closing);
  const log = at('upstream.log');
  const registry = await startDockerRegistry(at('upstream'), { log });
  closing.teardown(() => registry.stop());
  const images = { name: 'images.test', kind: 'registry', url: registry.url, allowPrivateNetwork: true };
  const cluster = await startCluster(closing, folder.path, {
    ENTREPOT_UPSTREAMS: JSON.stringify([feed.as('feed.test'), images]),
  });
  console.log(`three instances behind ${cluster.nginx.url}; ${load()}`);

  const memory = watchMemory(cluster);
  closing.teardown(() => memory.stop());
  if (seconds > 0) await killInstances(cluster, feed, folder.path, closing);
  console.log(load());

  await measureCrowd(cluster, { upstream: registry, name: 'images.test', log }, at('nginx-of-one'), closing);
  console.log(load());

  console.log('\nlargest resident memory:');
  const peaks = [...memory.peaks].map(([name, peak]) => ({ instance: name, MiB: Math.round(peak / mebibyte) }));
  console.table(peaks);
  for (const { instance, MiB } of peaks)
    if (MiB > bounds.residentMebibytes) defects.push(`${instance} used ${MiB} MiB`);
  if (options.log) console.log(await logsOf(cluster, 40));
}

/** Prints the times of clients that read a missing blob from one instance and from three, directly and through nginx. */
async function measureCrowd(
  cluster: Cluster,
  source: { upstream: Peer; name: string; log: string },
  folder: string,
  closing: Teardown,
): Promise<void> {
  const { port } = cluster.instances[0]!;
  const nginxOfOne = await startNginx(folder, [port, port, port], 'nginx.cluster.conf');
  closing.teardown(() => nginxOfOne.stop());
  const results = await crowd(cluster, nginxOfOne.url, source, crowdSize);
  const { clients, bytes } = crowdSize;
  console.log(`\n${clients} clients read a missing blob of ${bytes / mebibyte} MiB, seconds of each round:`);
  const rows = [...results].map(([setup, rounds]) => {
    const times = rounds.map((each) => each.seconds);
    const gets = Math.max(...rounds.map((each) => each.gets));
    if (gets > bounds.gets) defects.push(`${setup}: ${gets} GETs upstream`);
    return { setup, times: times.map(round).join(', '), median: round(median(times)), 'most GETs upstream': gets };
  });
  console.table(rows);
  const [one, three, nginxOne, nginxThree] = rows.map((each) => each.median);
  console.log(`in equal shares, three instances took ${round(three! / one!)} times as long as one`);
  const ratio = nginxThree! / nginxOne!;
  console.log(`through nginx, three instances took ${round(ratio)} times as long as one`);
  if (ratio > bounds.ratio) defects.push(`through nginx, three instances took ${round(ratio)} times as long as one`);
}

async function killInstances(cluster: Cluster, feed: UpstreamFeed, folder: string, closing: Teardown): Promise<void> {
  const { instances } = cluster;
  const commands = new Commands();
  const pushed: Pushed = { images: [], packages: [] };
  await mkdir(join(folder, 'clients'));
  const surroundings = { cluster, commands, folder: join(folder, 'clients'), feed, pushed, closing };
  const stopClients = await startClients(surroundings);
  const startedAt = performance.now();
  const elapsed = () => performance.now() - startedAt;
  const restarts: number[] = [];
  const starting = new Map<Instance, Promise<void>>();
  const end = seconds * 1000;
  for (let kills = 1; kills * killEvery <= end && elapsed() < end; kills += 1) {
    await sleep(Math.max(0, kills * killEvery - elapsed()));
    // On a busy machine a start takes longer than the interval. One other instance is always ready.
    while (starting.size > 1) await Promise.race(starting.values());
    const victim = instances[kills % instances.length]!;
    await starting.get(victim);
    await victim.kill();
    const restart = async () => {
      restarts.push(await victim.start());
      starting.delete(victim);
    };
    starting.set(victim, restart());
  }
  const took = elapsed();
  await Promise.all(starting.values());
  await stopClients();
  console.log(
    `${restarts.length} kills in ${round(took / 1000)} s; an instance was ready again after` +
      ` ${round(median(restarts) / 1000)} s (median), ${round(Math.max(...restarts) / 1000)} s (longest)`,
  );
  console.table(Object.fromEntries(commands.counts));
  for (const each of commands.failures) console.log(each);
  for (const [kind, { failed }] of commands.counts)
    if (failed > 0) defects.push(`${kind}: ${failed} failed four times`);

  const requests = (await cluster.nginx.requests()).map((line) => line.split(' '));
  const retried = requests.filter((fields) => fields.slice(3).join(' ').includes(',')).length;
  const refused = requests.filter(([status]) => status!.startsWith('5'));
  console.log(
    `nginx: ${requests.length} requests, ${retried} sent to another instance, ${refused.length} answered with 5xx`,
  );
  for (const each of refused) console.log(`  ${each.join(' ')}`);
  const { images, packages, lost } = await check(cluster, pushed);
  console.log(`read again: ${images} images, ${packages} packages; ${lost.length} parts are missing`);
  for (const each of lost) defects.push(each);
}

/** Samples the resident memory of each instance. */
function watchMemory({ instances }: Cluster): { peaks: ReadonlyMap<string, number>; stop(): void } {
  const peaks = new Map<string, number>(instances.map(({ name }) => [name, 0]));
  const sample = async () => {
    for (const each of instances) peaks.set(each.name, Math.max(peaks.get(each.name)!, await each.resident()));
  };
  const timer = setInterval(() => void sample(), sampleEvery);
  return { peaks, stop: () => clearInterval(timer) };
}

function load(): string {
  return `load of the machine: ${loadavg().map(round).join(' ')}`;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
