import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { TestServer } from '../server.ts';
import { containerClient } from './container-clients.ts';
import { startContainerd } from './containerd.ts';
import { startDockerEngine } from './docker-engine.ts';

/** A client of images: how it pulls, how it fails, and the digest that a reference has then. */
export interface Puller {
  pull: (reference: string) => Promise<string>;
  fails: (reference: string) => Promise<string>;
  digest: (reference: string) => Promise<string>;
}

/** The clients that pull, with the program that each needs. */
export const pullers = { docker: 'dockerd', podman: 'podman', containerd: 'ctr' };

let started = 0;

/** Starts a client with its files in `folder`, signed in to a server. */
export async function startPuller(
  t: ExecutionContext,
  client: keyof typeof pullers,
  folder: string,
  { url, token }: Pick<TestServer, 'url' | 'token'>,
): Promise<Puller> {
  // Podman takes at most 50 characters.
  const home = join(folder, `${client}${(started += 1)}`);
  const { host } = new URL(url);
  if (client === 'docker') {
    const engine = await startDockerEngine(home);
    const { docker } = engine;
    t.teardown(() => engine.stop());
    await docker.run('login', '-u', 'api', '-p', token, host);
    return {
      pull: (reference) => docker.run('pull', reference),
      fails: (reference) => docker.fails('pull', reference),
      digest: (reference) => docker.run('image', 'inspect', '--format', '{{json .RepoDigests}}', reference),
    };
  }
  if (client === 'podman') {
    const podman = await containerClient('podman', home, [host]);
    await podman.run('login', '-u', 'api', '-p', token, host);
    return {
      pull: (reference) => podman.run('pull', reference),
      fails: (reference) => podman.fails('pull', reference),
      digest: (reference) => podman.run('image', 'inspect', '--format', '{{.Digest}}', reference),
    };
  }
  const ctr = await startContainerd(t, home);
  const pull = ['images', 'pull', '--snapshotter', 'native', '--plain-http', '--user', `api:${token}`];
  return {
    pull: (reference) => ctr.run(...pull, reference),
    fails: (reference) => ctr.fails(...pull, reference),
    digest: (reference) => ctr.run('images', 'list', `name==${reference}`),
  };
}
