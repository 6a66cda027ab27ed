import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { dotnet, type Dotnet } from '../../../test/support/clients/dotnet.ts';
import { findCommand } from '../../packages.ts';
import type { Bench } from '../bench.ts';
import { pushPackage } from '../content.ts';
import { startEntrepot, startNginx, type Entrepot } from '../peers.ts';
import type { Peer } from '../processes.ts';
import { compare, note } from '../report.ts';

const count = 110;
const version = '1.0.0';

/**
 * `dotnet restore` with empty caches of the client, through a mirror that has all packages, from a folder, and from nginx with the
 * same files, which is the least that any server can take. NuGet asks without credentials first: a mirror that everybody may
 * read answers at once.
 */
export async function restore(bench: Bench): Promise<void> {
  const heading = { title: `dotnet restore of ${count} packages`, unit: 's', bar: '≤ 1.2 ×' };
  if (findCommand('dotnet') === undefined) {
    note({ ...heading, title: `${heading.title}: the .NET SDK is not on this machine`, samples: [] });
    return;
  }
  const upstream = await anonymousServer(bench, 'restore-upstream');
  const local = join(bench.folder, 'restore-packages');
  await mkdir(local);
  const nginx = bench.keep(await startNginx(join(bench.folder, 'restore-nginx')));
  const files = join(bench.folder, 'restore-nginx/files');
  await writeFile(join(files, 'index.json'), JSON.stringify(staticIndex(nginx.url)));
  await pushRestored(upstream, async (id, nupkg) => {
    await writeFile(join(local, `${id}.${version}.nupkg`), nupkg);
    const own = join(files, id.toLowerCase());
    await mkdir(join(own, version), { recursive: true });
    await writeFile(join(own, 'index.json'), JSON.stringify({ versions: [version] }));
    await writeFile(join(own, version, `${id.toLowerCase()}.${version}.nupkg`), nupkg);
  });
  const upstreams = { ENTREPOT_UPSTREAMS: JSON.stringify([feedOf(upstream)]) };
  const mirror = await bench.ours('restore-mirror', upstreams);
  const open = await bench.ours('restore-open', { ...upstreams, ENTREPOT_ANONYMOUS_READ: 'mirrored' });
  const feed = loginOf(mirror);
  const through = await dotnet(join(bench.folder, 'restore-through'), feed);
  const throughOpen = await dotnet(join(bench.folder, 'restore-through-open'), loginOf(open));
  const from = await dotnet(join(bench.folder, 'restore-from'), feed);
  await writeFile(join(from.folder, 'nuget.config'), fromFolder(local));
  const fromNginx = await dotnet(join(bench.folder, 'restore-from-nginx'), { ...feed, url: `${nginx.url}/index.json` });
  const subjects = {
    'a warm mirror': await restoring(through),
    'one that all may read': await restoring(throughOpen),
    'a folder': await restoring(from),
    'nginx with the same files': await restoring(fromNginx),
  };
  for (const once of Object.values(subjects)) await once();
  await compare(heading, bench.quick ? 1 : 9, subjects);
}

/** A server that anybody can read, as an upstream. */
export async function anonymousServer(bench: Bench, name: string): Promise<Entrepot> {
  return bench.keep(await startEntrepot(join(bench.folder, name), { ENTREPOT_ANONYMOUS_READ: 'true' }));
}

/** Settings that make a server the upstream of a mirror. */
export function feedOf({ url }: Peer) {
  return { name: 'upstream.test', kind: 'nuget', url: `${url}/v3/index.json`, allowPrivateNetwork: true };
}

/** How dotnet logs in at a server. */
export function loginOf({ url, token }: Entrepot) {
  return { url: `${url}/v3/index.json`, username: 'api', password: token };
}

/** Pushes all packages that `restoring` restores. */
export async function pushRestored(
  upstream: Peer,
  pushed: (id: string, nupkg: Buffer) => Promise<void> = async () => undefined,
): Promise<void> {
  for (let index = 0; index < count; index += 1)
    await pushed(idOf(index), await pushPackage(upstream, { ...packageAt(index), payloadBytes: 50_000 }));
}

/** A project that needs all packages. Each call restores it again and measures the seconds. */
export async function restoring(client: Dotnet): Promise<() => Promise<number>> {
  const roots = Array.from({ length: count / 10 }, (_, index) => [idOf(index), version] as const);
  const project = await client.project('Restored', Object.fromEntries(roots));
  return async () => {
    for (const left of ['packages', 'http-cache', 'scratch', 'Restored/obj']) {
      await rm(join(client.folder, left), { recursive: true, force: true });
    }
    const startedAt = performance.now();
    await client.run('restore', project);
    const seconds = (performance.now() - startedAt) / 1000;
    const { length } = await readdir(join(client.folder, 'packages'));
    if (length !== count) throw new Error(`${length} packages were restored of ${count}`);
    return seconds;
  };
}

/** A service index for files of packages. */
function staticIndex(url: string) {
  return { version: '3.0.0', resources: [{ '@id': `${url}/`, '@type': 'PackageBaseAddress/3.0.0' }] };
}

function fromFolder(path: string): string {
  return `<configuration>
  <packageSources><clear /><add key="folder" value="${path}" /></packageSources>
  <fallbackPackageFolders><clear /></fallbackPackageFolders>
</configuration>`;
}

/** The project references a tenth of the packages. Each package depends on two later ones, if there are any. */
function packageAt(index: number) {
  const needed = [index + 11, index * 2 + 11].filter((other) => other < count);
  const dependencies = [...new Set(needed)].map((other) => ({ id: idOf(other), version }));
  return { id: idOf(index), version, dependencyGroups: [{ targetFramework: 'net8.0', dependencies }] };
}

function idOf(index: number): string {
  return `Bench.Restored.P${index}`;
}
