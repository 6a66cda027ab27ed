import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { commandLine, requiredCommand, type CommandLine } from './clients.ts';

// skopeo, podman and buildah share a library and its files. Each folder has the whole state of one user.

export type ContainerClient = 'skopeo' | 'podman' | 'buildah';

/** The clients use plain HTTP for `hosts`, by their registries.conf. */
export async function containerClient(
  name: ContainerClient,
  folder: string,
  hosts: readonly string[],
): Promise<CommandLine> {
  const at = (file: string): string => join(folder, file);
  await mkdir(at('network'), { recursive: true });
  await mkdir(at('runtime'), { recursive: true, mode: 0o700 });
  const registries = hosts.map((host) => `[[registry]]\nlocation = "${host}"\ninsecure = true\n`).join('');
  await writeFile(at('registries.conf'), `unqualified-search-registries = []\n${registries}`);
  await writeFile(at('policy.json'), '{"default":[{"type":"insecureAcceptAnything"}]}');
  await writeFile(at('containers.conf'), `[network]\nnetwork_config_dir = "${at('network')}"\n`);

  const env: NodeJS.ProcessEnv = {
    PATH: process.env.PATH,
    HOME: folder,
    TMPDIR: folder,
    XDG_RUNTIME_DIR: at('runtime'),
    XDG_DATA_HOME: at('share'),
    REGISTRY_AUTH_FILE: at('auth.json'),
    CONTAINERS_CONF: at('containers.conf'),
    // podman reads it from the environment; skopeo and buildah get it as an argument.
    CONTAINERS_REGISTRIES_CONF: at('registries.conf'),
  };
  const storage = ['--root', at('storage'), '--runroot', at('run'), '--storage-driver', 'vfs'];
  const leading: Record<ContainerClient, string[]> = {
    skopeo: ['--registries-conf', at('registries.conf'), '--policy', at('policy.json')],
    buildah: [...storage, '--registries-conf', at('registries.conf')],
    podman: [...storage, '--cgroup-manager', 'cgroupfs', '--events-backend', 'file', '--tmpdir', at('tmp')],
  };
  return commandLine(name, requiredCommand(name), leading[name], { env, cwd: folder });
}
