import { execFile } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { findCommand } from '../../scripts/packages.ts';

// The real clients, each with a configuration, a cache and a credential file of its own under a test's folder, so that
// nothing of the machine's user is read or written.

/** Client's command → Debian package. */
export const clientCommands = {
  skopeo: 'skopeo',
  podman: 'podman',
  buildah: 'buildah',
  dockerd: 'docker.io',
};

/** Not clients of ours: they make images, and are another registry to stand upstream. */
export const toolCommands = {
  umoci: 'umoci',
  'docker-registry': 'docker-registry',
};

const versionArguments: Record<string, string[]> = {
  skopeo: ['--version'],
  podman: ['--version'],
  buildah: ['--version'],
  dockerd: ['--version'],
  dotnet: ['--version'],
};

const run = promisify(execFile);

/** Every client the tests know, with its version, or undefined when the machine has none. */
export async function clientVersions(): Promise<Map<string, string | undefined>> {
  const versions = new Map<string, string | undefined>();
  for (const [name, args] of Object.entries(versionArguments)) {
    const path = findCommand(name);
    if (path === undefined) {
      versions.set(name, undefined);
      continue;
    }
    const { stdout } = await run(path, args);
    versions.set(name, /\d+(?:\.\d+)+[^\s,]*/.exec(stdout)?.[0] ?? stdout.trim());
  }
  return versions;
}

/** Tells scripts/test.ts that this client took part in the run. */
export function noteUse(client: string): void {
  const file = process.env.ENTREPOT_TEST_CLIENTS_USED;
  if (file !== undefined) appendFileSync(file, `${client}\n`);
}
