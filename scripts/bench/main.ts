import { mkdir, rm, writeFile } from 'node:fs/promises';
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { makeNupkg } from '../../test/support/nupkg.ts';
import { temporaryFolder } from '../../test/support/clients.ts';
import { ensureCommands } from '../packages.ts';
import { bodyOf, drain, push, rate, rateOfHeads } from './load.ts';
import { startBareNode, startDockerRegistry, startEntrepot, startNginx } from './peers.ts';
import type { Peer } from './processes.ts';
import { compare, median, note, results } from './report.ts';

// This server and the peers that are on the machine, in one run, in turn, with the same client. `--quick` for a look.

const { values: flags } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, only: { type: 'string' } },
});
const rounds = flags.quick ? 1 : 3;
const seconds = flags.quick ? 2 : 5;
const mebibyte = 2 ** 20;

await ensureCommands({ 'docker-registry': 'docker-registry', nginx: 'nginx-light', wrk: 'wrk' });
const folder = await temporaryFolder();
const running: Peer[] = [];
const parts: Record<string, () => Promise<void>> = { manifests, blobs, pushes, packages, mirror };
try {
  for (const [name, part] of Object.entries(parts)) {
    if (flags.only === undefined || flags.only === name) await part();
    for (const peer of running.splice(0)) await peer.stop();
  }
  await mkdir('bench-results', { recursive: true });
  const file = join('bench-results', `${new Date().toISOString().replaceAll(':', '-')}.json`);
  await writeFile(file, JSON.stringify(results(), null, 1));
  process.stdout.write(`\nkept in ${file}\n`);
} finally {
  for (const peer of running) await peer.stop();
  await rm(folder.path, { recursive: true, force: true });
}

async function manifests(): Promise<void> {
  const ours = keep(await startEntrepot(join(folder.path, 'manifests-entrepot')));
  const registry = keep(await startDockerRegistry(join(folder.path, 'manifests-registry')));
  const image = { ...(await pushImage(ours, 'team/app', 1024)) };
  await pushImage(registry, 'team/app', 1024, image.layer);
  const bare = keep(
    await startBareNode(join(folder.path, 'manifests-bare'), image.manifest, { 'Content-Type': image.type }),
  );
  for (const [title, reference, method] of [
    ['manifest by tag, GET', 'v1', 'GET'],
    ['manifest by tag, HEAD', 'v1', 'HEAD'],
    ['manifest by digest, GET', image.digest, 'GET'],
  ] as const) {
    await rates(title, `/v2/team/app/manifests/${reference}`, [ours, registry, bare], method);
  }
}

async function blobs(): Promise<void> {
  const ours = keep(await startEntrepot(join(folder.path, 'blobs-entrepot')));
  const registry = keep(await startDockerRegistry(join(folder.path, 'blobs-registry')));
  const nginx = keep(await startNginx(join(folder.path, 'blobs-nginx')));
  for (const [size, connections, count] of [
    [32 * mebibyte, 1, 24],
    [32 * mebibyte, 8, 64],
    [32 * mebibyte, 64, 128],
    ...(flags.quick ? [] : [[1024 * mebibyte, 1, 3] as const, [1024 * mebibyte, 8, 8] as const]),
  ] as const) {
    const blob = randomBytes(size);
    const digest = `sha256:${createHash('sha256').update(blob).digest('hex')}`;
    for (const peer of [ours, registry]) await putBlob(peer, 'team/app', digest, blob);
    await writeFile(join(folder.path, 'blobs-nginx/files/blob'), blob);
    const paths = new Map([
      [ours, `/v2/team/app/blobs/${digest}`],
      [registry, `/v2/team/app/blobs/${digest}`],
      [nginx, '/blob'],
    ]);
    const cpu = new Map<Peer, number[]>();
    const title = `blob of ${size / mebibyte} MiB, ${connections} connections`;
    const read = (peer: Peer) => async () => {
      const before = peer.cpu();
      const perSecond = await drain(peer, paths.get(peer)!, connections, count);
      const used = (peer.cpu() - before) / ((size * count) / 2 ** 30);
      cpu.set(peer, [...(cpu.get(peer) ?? []), used]);
      return perSecond / 1e6;
    };
    await compare(title, 'MB/s', rounds, Object.fromEntries([...paths.keys()].map((peer) => [peer.name, read(peer)])));
    const samples = [...cpu].map(([peer, values]) => ({ subject: peer.name, values }));
    note({ title: `${title}: CPU`, unit: 's/GiB', samples });
  }
  note({ title: 'peak memory after these', unit: 'MiB', samples: [ours, registry].map(peakOf) });
}

async function pushes(): Promise<void> {
  const ours = keep(await startEntrepot(join(folder.path, 'pushes-entrepot')));
  const registry = keep(await startDockerRegistry(join(folder.path, 'pushes-registry')));
  for (const [megabytes, count] of flags.quick
    ? [
        [1, 50],
        [10, 10],
      ]
    : [
        [1, 200],
        [10, 40],
        [100, 8],
      ]) {
    for (const connections of [1, 8]) {
      const send = (peer: Peer) => async () =>
        (await push(peer, 'team/pushed', megabytes! * 1e6, connections, count!)) / 1e6;
      await compare(`push of ${megabytes} MB blobs, ${connections} connections`, 'MB/s', rounds, {
        [ours.name]: send(ours),
        [registry.name]: send(registry),
      });
    }
  }
}

async function packages(): Promise<void> {
  const ours = keep(await startEntrepot(join(folder.path, 'packages-entrepot')));
  for (let patch = 0; patch < 100; patch += 1) {
    const nupkg = await makeNupkg({ id: 'Bench.Package', version: `1.0.${patch}`, payloadBytes: 50_000 });
    const pushed = await fetch(`${ours.url}/v3/push`, { method: 'PUT', headers: ours.headers, body: multipart(nupkg) });
    if (pushed.status !== 201) throw new Error(`a push was answered with ${pushed.status}`);
  }
  for (const [title, path] of [
    ['flat index', '/v3/package/bench.package/index.json'],
    ['nupkg of 50 kB', '/v3/package/bench.package/1.0.0/bench.package.1.0.0.nupkg'],
    ['registration of 100 versions, gzip', '/v3/registration-gz-semver2/bench.package/index.json'],
  ] as const) {
    const bare = await startBareNode(join(folder.path, `bare-${title}`), await bodyOf(ours, path), {});
    await rates(title, path, [ours, bare], 'GET');
    await bare.stop();
  }
}

async function mirror(): Promise<void> {
  const upstream = keep(await startDockerRegistry(join(folder.path, 'mirror-upstream')));
  const size = (flags.quick ? 64 : 256) * mebibyte;
  let count = 0;
  /** A blob that no mirror has seen. */
  const fresh = async (): Promise<string> => {
    const blob = randomBytes(size);
    const digest = `sha256:${createHash('sha256').update(blob).digest('hex')}`;
    await putBlob(upstream, 'library/big', digest, blob);
    count += 1;
    return `/v2/library/big/blobs/${digest}`;
  };
  const source = {
    name: 'upstream.test',
    kind: 'registry',
    url: upstream.url,
    default: true,
    allowPrivateNetwork: true,
  };
  const ours = keep(
    await startEntrepot(join(folder.path, 'mirror-entrepot'), { ENTREPOT_UPSTREAMS: JSON.stringify([source]) }),
  );
  const proxy = keep(await startDockerRegistry(join(folder.path, 'mirror-proxy'), upstream.url));
  const pull = (peer: Peer, connections: number) => async () => {
    const path = await fresh();
    const start = performance.now();
    await drain(peer, path, connections, connections);
    return (performance.now() - start) / 1000;
  };
  const title = `of a missing blob of ${size / mebibyte} MiB`;
  await compare(`cold pull ${title}`, 's', rounds, {
    [ours.name]: pull(ours, 1),
    direct: pull(upstream, 1),
    [proxy.name]: pull(proxy, 1),
  });
  await compare(`100 clients, cold pull ${title}`, 's', rounds, {
    [ours.name]: pull(ours, 100),
    [proxy.name]: pull(proxy, 100),
  });
  note({ title: 'peak memory after these', unit: 'MiB', samples: [ours, proxy].map(peakOf) });
}

async function rates(title: string, path: string, peers: readonly Peer[], method: 'GET' | 'HEAD'): Promise<void> {
  const p99 = new Map<Peer, number[]>();
  const measure = (peer: Peer) => async () => {
    const found = await (method === 'HEAD' ? rateOfHeads(peer, path, seconds) : rate(peer, path, { seconds }));
    if (found.errors > 0) throw new Error(`${peer.name} refused ${found.errors} requests of ${path}`);
    p99.set(peer, [...(p99.get(peer) ?? []), found.p99]);
    return found.perSecond;
  };
  await compare(title, 'requests/s', rounds, Object.fromEntries(peers.map((peer) => [peer.name, measure(peer)])));
  note({
    title: `${title}: p99`,
    unit: 'ms',
    samples: [...p99].map(([peer, values]) => ({ subject: peer.name, values })),
  });
}

function keep(peer: Peer): Peer {
  running.push(peer);
  return peer;
}

function peakOf(peer: Peer): { subject: string; values: number[] } {
  return { subject: peer.name, values: [median([peer.peak()]) / mebibyte] };
}

async function putBlob(peer: Peer, repository: string, digest: string, blob: Buffer): Promise<void> {
  const opened = await fetch(`${peer.url}/v2/${repository}/blobs/uploads/`, { method: 'POST', headers: peer.headers });
  await opened.arrayBuffer();
  const location = new URL(opened.headers.get('location')!, peer.url);
  location.searchParams.set('digest', digest);
  const done = await fetch(location, { method: 'PUT', headers: peer.headers, body: new Uint8Array(blob) });
  if (done.status !== 201) throw new Error(`${peer.name} answered a push with ${done.status}: ${await done.text()}`);
  await done.arrayBuffer();
}

function describe(mediaType: string, blob: Buffer) {
  return { mediaType, digest: `sha256:${createHash('sha256').update(blob).digest('hex')}`, size: blob.length };
}

async function pushImage(peer: Peer, repository: string, bytes: number, layer = randomBytes(bytes)) {
  const config = Buffer.from('{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}');
  const type = 'application/vnd.oci.image.manifest.v1+json';
  const parts = [
    describe('application/vnd.oci.image.config.v1+json', config),
    describe('application/vnd.oci.image.layer.v1.tar+gzip', layer),
  ] as const;
  await putBlob(peer, repository, parts[0].digest, config);
  await putBlob(peer, repository, parts[1].digest, layer);
  const manifest = Buffer.from(
    JSON.stringify({ schemaVersion: 2, mediaType: type, config: parts[0], layers: [parts[1]] }),
  );
  const put = await fetch(`${peer.url}/v2/${repository}/manifests/v1`, {
    method: 'PUT',
    headers: { ...peer.headers, 'content-type': type },
    body: new Uint8Array(manifest),
  });
  if (put.status !== 201) throw new Error(`${peer.name} answered a manifest with ${put.status}`);
  return { manifest, type, layer, digest: describe(type, manifest).digest };
}

function multipart(nupkg: Buffer): FormData {
  const form = new FormData();
  form.append('package', new Blob([new Uint8Array(nupkg)]), 'package.nupkg');
  return form;
}
