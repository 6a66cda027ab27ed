import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { createLayout } from '../../test/support/builders/images.ts';
import { makeNupkg } from '../../test/support/builders/nupkg.ts';
import { containerClient } from '../../test/support/clients/container-clients.ts';
import { startDockerEngine } from '../../test/support/clients/docker-engine.ts';
import { dotnet, sourceName } from '../../test/support/clients/dotnet.ts';
import type { UpstreamFeed } from '../../test/support/upstreams/upstream-feed.ts';
import { findCommand } from '../packages.ts';
import type { Cluster } from './cluster.ts';
import type { Commands } from './commands.ts';

// Real clients that push and pull through nginx, one command after another, until they are stopped.

/** What was pushed with success. */
export interface Pushed {
  images: { name: string; digest: Digest }[];
  packages: { id: string; digest: Digest }[];
}

export interface Surroundings {
  cluster: Cluster;
  commands: Commands;
  folder: string;
  feed: UpstreamFeed;
  pushed: Pushed;
  closing: { teardown(step: () => unknown): void };
}

const layers = 4;
const layerBytes = 2 ** 20;
const packageBytes = 300_000;
/** Milliseconds after each round of a client, which leave processor time to the others. */
const pause = 200;

/** Each kind with the programs that it needs, and its preparation, which resolves to one round. */
const kinds: { needs: string[]; prepare: (all: Surroundings) => Promise<(index: number) => Promise<void>> }[] = [
  { needs: ['dockerd'], prepare: docker },
  { needs: ['skopeo', 'umoci'], prepare: skopeo },
  { needs: ['dotnet'], prepare: publisher },
  { needs: ['dotnet'], prepare: consumer },
];

/** Starts all clients whose programs are installed. The result stops them, and resolves when their last commands have ended. */
export async function startClients(all: Surroundings): Promise<() => Promise<void>> {
  const stop = new AbortController();
  all.closing.teardown(() => stop.abort());
  const rounds = [];
  for (const { needs, prepare } of kinds) {
    const missing = needs.filter((name) => findCommand(name) === undefined);
    if (missing.length > 0 || (prepare === docker && process.getuid?.() !== 0)) {
      console.log(`no ${prepare.name}: ${missing.length > 0 ? `${missing.join(', ')} not installed` : 'not root'}`);
      continue;
    }
    rounds.push(await prepare(all));
  }
  const loops = rounds.map(async (round) => {
    for (let index = 0; !stop.signal.aborted; index += 1) {
      await round(index);
      await sleep(pause);
    }
  });
  return async () => {
    stop.abort();
    await Promise.all(loops);
  };
}

async function docker({ cluster, commands, folder, pushed, closing }: Surroundings) {
  const engine = await startDockerEngine(join(folder, 'engine'));
  closing.teardown(() => engine.stop());
  const { host } = new URL(cluster.nginx.url);
  await engine.docker.run('login', '-u', 'api', '-p', cluster.token, host);
  return async (index: number) => {
    const build = join(folder, 'build');
    await mkdir(build, { recursive: true });
    const files = Array.from({ length: layers }, (_, layer) => `layer${layer}`);
    for (const file of files) await writeFile(join(build, file), randomBytes(layerBytes));
    const steps = files.map((file) => `COPY ${file} /${file}`);
    await writeFile(join(build, 'Dockerfile'), ['FROM scratch', ...steps, 'CMD ["/none"]', ''].join('\n'));
    const name = `team/docker${index}`;
    const image = `${host}/${name}:1`;
    await engine.docker.run('build', '--network', 'none', '--tag', image, build);
    let digest: string | undefined;
    const done = await commands.run('docker push', async () => {
      digest = /digest: (sha256:[0-9a-f]{64})/.exec(await engine.docker.run('push', image))?.[1];
    });
    await engine.docker.run('image', 'prune', '--all', '--force');
    if (!done) return;
    pushed.images.push({ name, digest: digest as Digest });
    await commands.run('docker pull', () => engine.docker.run('pull', `${host}/${name}@${digest}`));
    await engine.docker.run('image', 'prune', '--all', '--force');
  };
}

async function skopeo({ cluster, commands, folder, pushed }: Surroundings) {
  const { host } = new URL(cluster.nginx.url);
  const client = await containerClient('skopeo', join(folder, 'skopeo'), [host]);
  const credentials = `api:${cluster.token}`;
  return async (index: number) => {
    const images = join(folder, 'images');
    const layout = await createLayout(images);
    const image = await layout.image(`image${index}`, { layers, bytes: layerBytes });
    const name = `team/skopeo${index}`;
    const target = `docker://${host}/${name}:1`;
    const done = await commands.run('skopeo push', () =>
      client.run('copy', '--preserve-digests', '--dest-creds', credentials, image.reference, target),
    );
    await rm(images, { recursive: true });
    if (!done) return;
    pushed.images.push({ name, digest: image.digest as Digest });
    const copy = join(folder, 'copy');
    await commands.run('skopeo pull', async () => {
      await rm(copy, { recursive: true, force: true });
      await client.run('copy', '--src-creds', credentials, target, `dir:${copy}`);
    });
  };
}

function feedOf({ nginx, token }: Cluster) {
  return { url: `${nginx.url}/v3/index.json`, username: 'api', password: token };
}

async function publisher({ cluster, commands, folder, pushed }: Surroundings) {
  const client = await dotnet(join(folder, 'publisher'), feedOf(cluster));
  return async (index: number) => {
    const id = `Cluster.Pushed${index}`;
    const nupkg = await makeNupkg({ id, payloadBytes: packageBytes });
    const path = join(folder, 'pushed.nupkg');
    await writeFile(path, nupkg);
    const push = ['nuget', 'push', path, '--source', sourceName, '--api-key', cluster.token];
    const first = () => client.run(...push);
    const done = await commands.run('dotnet nuget push', first, () => client.run(...push, '--skip-duplicate'));
    if (done) pushed.packages.push({ id, digest: digestOf(nupkg) });
  };
}

/** Restores a pushed package, and five that no instance has fetched from the upstream before. */
async function consumer({ cluster, commands, folder, feed, pushed }: Surroundings) {
  const client = await dotnet(join(folder, 'consumer'), feedOf(cluster));
  return async (index: number) => {
    const references: Record<string, string> = {};
    const last = pushed.packages.at(-1);
    if (last) references[last.id] = '1.0.0';
    for (let each = 0; each < 5; each += 1) {
      const id = `Mirrored.Package${index}.${each}`;
      await feed.offer({
        id,
        versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id, payloadBytes: packageBytes }) }],
      });
      references[id] = '1.0.0';
    }
    const project = await client.project(`Program${index}`, references);
    await commands.run('dotnet restore', async () => {
      for (const cache of ['packages', 'http-cache']) {
        await rm(join(client.folder, cache), { recursive: true, force: true });
        await mkdir(join(client.folder, cache));
      }
      await client.run('restore', project, '--force');
    });
    await rm(project, { recursive: true });
  };
}

export interface Checked {
  images: number;
  packages: number;
  /** What is missing or has other bytes, one line each. */
  lost: string[];
}

/** Reads all that was pushed: whole from one instance, in turn, and its existence from the others. */
export async function check({ instances, token }: Cluster, pushed: Pushed): Promise<Checked> {
  const lost: string[] = [];
  const headers = { authorization: `Bearer ${token}` };
  let turn = 0;
  const read = async (path: string, digest: Digest): Promise<Buffer | undefined> => {
    turn += 1;
    let bytes: Buffer | undefined;
    for (const [index, { name, url }] of instances.entries()) {
      const isWhole = index === turn % instances.length;
      const answer = await fetch(`${url}${path}`, { method: isWhole ? 'GET' : 'HEAD', headers });
      const body = Buffer.from(await answer.arrayBuffer());
      if (!answer.ok) lost.push(`${name}: ${path}: ${answer.status}`);
      else if (isWhole && digestOf(body) !== digest) lost.push(`${name}: ${path}: other bytes`);
      else if (isWhole) bytes = body;
    }
    return bytes;
  };
  for (const { name, digest } of pushed.images) {
    const manifest = await read(`/v2/${name}/manifests/${digest}`, digest);
    if (!manifest) continue;
    const { config, layers } = JSON.parse(manifest.toString()) as Record<string, { digest: Digest }[]> & {
      config: { digest: Digest };
    };
    for (const each of [config, ...layers!]) await read(`/v2/${name}/blobs/${each.digest}`, each.digest);
  }
  for (const { id, digest } of pushed.packages) {
    const key = id.toLowerCase();
    await read(`/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`, digest);
  }
  return { images: pushed.images.length, packages: pushed.packages.length, lost };
}

/** For messages: the last lines of the logs of all instances. */
export async function logsOf({ instances }: Cluster, lines: number): Promise<string> {
  const logs = await Promise.all(
    instances.map(async ({ name, logFile }) => {
      const text = (await readFile(logFile, 'utf8')).trim().split('\n').slice(-lines);
      return text.map((line) => `${name}: ${line}`).join('\n');
    }),
  );
  return logs.join('\n');
}
