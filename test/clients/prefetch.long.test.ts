import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { execute, temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startDebianRegistry, type DebianRegistry } from '../support/upstreams/debian-registry.ts';
import { dotnet, sourceName, type Dotnet } from '../support/clients/dotnet.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { createLayout, sha256, type Image } from '../support/builders/images.ts';
import { testWith } from '../support/clients/test-with.ts';

// Content that was prefetched while a server runs is available to real clients when the upstreams are down.

const main = join(import.meta.dirname, '../../bin/entrepot.js');
const folder = await temporaryFolder();
const at = (...parts: string[]): string => join(folder.path, ...parts);
const containers = ['docker-registry', 'umoci', 'skopeo'];
let feed: Entrepot | undefined;
let registry: DebianRegistry | undefined;
let mirror: Entrepot;
let upstreams: string;

test.before(async () => {
  for (const name of ['feed', 'mirror', 'registry']) await mkdir(at(name));
  feed = await startEntrepot(at('feed'));
  const auth = { username: feed.username, password: feed.password };
  const common = { allowPrivateNetwork: true, freshFor: '1ms' };
  const list: Record<string, unknown>[] = [
    { ...common, name: 'feed', kind: 'nuget', url: `${feed.url}/v3/index.json`, auth },
  ];
  if (testWith(...containers) === test.serial) {
    registry = await startDebianRegistry(at('registry'));
    const login = { username: registry.username, password: registry.password };
    list.push({
      ...common,
      name: 'registry',
      kind: 'registry',
      url: `http://${registry.host}`,
      default: true,
      auth: login,
    });
  }
  upstreams = JSON.stringify(list);
  mirror = await startEntrepot(at('mirror'), { ENTREPOT_UPSTREAMS: upstreams });
});

test.after.always(async () => {
  await mirror?.stop();
  await feed?.stop();
  await registry?.stop();
  await folder.remove();
});

testWith('dotnet')('packages of a lock file, and of a project, are restored with the feed stopped', async (t) => {
  const direct = { url: `${feed!.url}/v3/index.json`, username: feed!.username, password: feed!.password };
  const author = await dotnet(at('author'), direct);
  const publish = async (...made: Parameters<Dotnet['pack']>): Promise<void> => {
    const path = await author.pack(...made);
    await author.run('nuget', 'push', path, '--source', sourceName, '--api-key', feed!.token);
  };
  await publish({ id: 'Contoso.Base', version: '1.0.0' });
  await publish({ id: 'Contoso.Base', version: '1.5.0' });
  await publish({ id: 'Contoso.Middle', version: '2.0.0', dependencies: { 'Contoso.Base': '1.0.0' } });
  await publish({ id: 'Contoso.Locked', version: '3.0.0', dependencies: { 'Contoso.Middle': '2.0.0' } });
  await publish({ id: 'Contoso.Loose', version: '4.0.0', dependencies: { 'Contoso.Base': '[1.1.0,2.0.0)' } });

  const locked = await author.project('Locked', { 'Contoso.Locked': '3.0.0' });
  await author.run('restore', locked, '--use-lock-file');
  const loose = await author.project('Loose', { 'Contoso.Loose': '4.*' });
  const output = await prefetch(join(locked, 'packages.lock.json'), join(loose, 'Loose.csproj'));
  t.regex(output, /^packages: 5 \(/m);
  t.regex(output, /^approximate: /m);
  await feed!.stop();
  feed = undefined;

  const user = await dotnet(at('user'), {
    url: `${mirror.url}/v3/index.json`,
    username: mirror.username,
    password: mirror.password,
  });
  const program = await user.project('Program', { 'Contoso.Locked': '3.0.0' });
  const lock = await readFile(join(locked, 'packages.lock.json'), 'utf8');
  await writeFile(join(program, 'packages.lock.json'), lock);
  await user.run('restore', program, '--locked-mode');
  t.is(await user.run('run', '--no-restore', '--project', program), '3.0.0\n');
  const other = await user.project('Other', { 'Contoso.Loose': '4.*', 'Contoso.Base': '1.5.0' });
  t.is(await user.run('run', '--project', other), '4.0.0\n1.5.0\n');
});

testWith(...containers)('images of a Compose file and a list are pulled with the registry stopped', async (t) => {
  const hosts = [registry!.host, mirror.host];
  const skopeo = await containerClient('skopeo', at('skopeo'), hosts);
  await skopeo.run('login', '-u', registry!.username, '-p', registry!.password, registry!.host);
  await skopeo.run('login', '-u', mirror.username, '-p', mirror.password, mirror.host);
  const layout = await createLayout(at('images'));
  const single: Image = await layout.image('single', { layers: 4, bytes: 1_000_000 });
  const arm64 = await layout.image('arm64', { architecture: 'arm64' });
  const index = await layout.index('multi', [single, arm64]);
  await skopeo.run('copy', single.reference, `docker://${registry!.host}/library/single:1`);
  await skopeo.run('copy', '--all', index.reference, `docker://${registry!.host}/team/multi:1`);

  await writeFile(at('compose.yaml'), 'services:\n  app:\n    image: team/multi:1\n');
  await writeFile(at('images.txt'), `${mirror.host}/registry/library/single:1\n`);
  const words = [at('compose.yaml'), at('images.txt'), '--platform', 'linux/amd64', '--rate', '50MiB/s'];
  t.regex(await prefetch(...words, '--dry-run'), /^layers: 10 \([\d.]+ MiB\) to fetch, 0 here already$/m);
  t.regex(await prefetch(...words), /^layers: 10 \([\d.]+ MiB\) fetched, 0 here already$/m);
  await registry!.stop();
  registry = undefined;
  t.regex(
    await prefetch(at('images.txt'), '--no-referrers').catch(String),
    /layers: 0 fetched, 5 .*the upstream failed; the stored manifest may be out of date/s,
  );

  const pull = (name: string, ...options: string[]): Promise<string> =>
    skopeo.run(
      ...options,
      'copy',
      '--preserve-digests',
      `docker://${mirror.host}/${name}`,
      `oci:${at(name.replaceAll(/\W/g, '-'))}:1`,
    );
  await pull('registry/library/single:1');
  await pull('team/multi:1', '--override-arch', 'amd64', '--override-os', 'linux');
  t.is(sha256(await skopeo.run('inspect', '--raw', `docker://${mirror.host}/team/multi:1`)), index.digest);
  // The other platform was not fetched.
  await t.throwsAsync(pull('team/multi:1', '--override-arch', 'arm64', '--override-os', 'linux'));
});

testWith(...containers, 'podman')('podman pulls it too', async (t) => {
  const podman = await containerClient('podman', at('podman'), [mirror.host]);
  await podman.run('login', '-u', mirror.username, '-p', mirror.password, mirror.host);
  await podman.run('pull', '--quiet', `${mirror.host}/library/single:1`);
  const images = await podman.run('images', '--format', '{{.Repository}}:{{.Tag}}');
  t.is(images.trim(), `${mirror.host}/library/single:1`);
});

/** Resolves to its output; rejects with its errors. */
async function prefetch(...words: string[]): Promise<string> {
  const env: NodeJS.ProcessEnv = {
    PATH: process.env.PATH,
    ENTREPOT_DATA: at('mirror', 'data'),
    ENTREPOT_UPSTREAMS: upstreams,
    ENTREPOT_HOST: '127.0.0.1',
    ENTREPOT_PORT: mirror.host.split(':')[1],
  };
  const { code, stdout, stderr } = await execute(process.execPath, [main, 'prefetch', ...words], { env });
  if (code !== 0) throw new Error(`prefetch ended with ${code}: ${stdout}${stderr}`);
  return stdout;
}
