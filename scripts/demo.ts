import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../test/support/clients/clients.ts';
import { containerClient } from '../test/support/clients/container-clients.ts';
import { dotnet, sourceName } from '../test/support/clients/dotnet.ts';
import { startEntrepot, type Entrepot } from '../test/support/processes/entrepot.ts';
import { findCommand } from './packages.ts';
import { createLayout } from '../test/support/builders/images.ts';

// Demonstrates a mirror (`npm run demo`): starts an upstream and its mirror on this machine, restores packages and
// pulls an image through the mirror, and repeats both with empty client caches after the upstream has stopped. It
// contacts no other host. Needs the .NET SDK, skopeo and umoci.

const missing = ['dotnet', 'skopeo', 'umoci'].filter((each) => findCommand(each) === undefined);
if (missing.length > 0) {
  process.stderr.write(
    `This demonstration needs ${missing.join(' and ')}, which this machine lacks: install them, then run it again.\n`,
  );
  process.exit(1);
}
const folder = await temporaryFolder();
const running: Entrepot[] = [];
try {
  await demonstrate();
} finally {
  for (const each of running) await each.stop();
  await folder.remove();
}

async function demonstrate(): Promise<void> {
  const upstream = await start('upstream', {});
  say(`the upstream serves at ${upstream.url}`);
  const publisher = await dotnet(join(folder.path, 'publisher'), { ...upstream, url: `${upstream.url}/v3/index.json` });
  for (const [id, dependencies] of [
    ['Demo.Base', {}],
    ['Demo.Middle', { 'Demo.Base': '1.0.0' }],
    ['Demo.Top', { 'Demo.Middle': '1.0.0' }],
  ] as const) {
    const path = await publisher.pack({ id, version: '1.0.0', dependencies });
    await publisher.run('nuget', 'push', path, '--source', sourceName, '--api-key', upstream.token);
  }
  const layout = await createLayout(join(folder.path, 'images'));
  const image = await layout.image('demo', { layers: 3, bytes: 4_000_000 });
  const copier = await containerClient('skopeo', join(folder.path, 'copier'), [upstream.host]);
  await copier.run('login', '-u', upstream.username, '-p', upstream.password, upstream.host);
  await copier.run('copy', image.reference, `docker://${upstream.host}/team/demo:1`);
  say('it hosts three packages that depend on each other, and one image');

  const common = { auth: { username: upstream.username, password: upstream.password }, allowPrivateNetwork: true };
  const mirror = await start('mirror', {
    ENTREPOT_UPSTREAMS: JSON.stringify([
      { name: 'packages.demo', kind: 'nuget', url: `${upstream.url}/v3/index.json`, ...common },
      { name: 'images.demo', kind: 'registry', url: upstream.url, ...common },
    ]),
  });
  say(`the mirror serves at ${mirror.url}\n`);

  await use('cold', mirror);
  await use('warm', mirror);
  await running.shift()!.stop();
  say('the upstream has stopped\n');
  await use('without the upstream', mirror);
}

/** Restores and pulls with empty client caches. */
async function use(how: string, mirror: Entrepot): Promise<void> {
  const home = join(folder.path, 'client');
  await rm(home, { recursive: true, force: true });
  await mkdir(home);
  const consumer = await dotnet(join(home, 'dotnet'), { ...mirror, url: `${mirror.url}/v3/index.json` });
  const project = await consumer.project('Program', { 'Demo.Top': '1.0.0' });
  await timed(`${how}: dotnet restore`, () => consumer.run('restore', project));
  const skopeo = await containerClient('skopeo', join(home, 'skopeo'), [mirror.host]);
  await skopeo.run('login', '-u', mirror.username, '-p', mirror.password, mirror.host);
  const target = `oci:${join(home, 'image')}:1`;
  await timed(`${how}: skopeo copy`, () =>
    skopeo.run('copy', `docker://${mirror.host}/images.demo/team/demo:1`, target),
  );
  say('');
}

async function start(name: string, settings: Record<string, string>): Promise<Entrepot> {
  await mkdir(join(folder.path, name));
  const server = await startEntrepot(join(folder.path, name), settings);
  running.push(server);
  return server;
}

async function timed(what: string, work: () => Promise<unknown>): Promise<void> {
  const start = performance.now();
  await work();
  say(`${what}: done in ${((performance.now() - start) / 1000).toFixed(1)} s`);
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
