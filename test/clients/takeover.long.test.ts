import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { runJob } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { readNames, startDoor } from '../support/takeover.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { startDebianRegistry } from '../support/upstreams/debian-registry.ts';

const portOf = (url: string) => Number(new URL(url).port);

/** An address that leads to one server, and later to another one. */
async function address(t: { teardown(end: () => Promise<void>): void }, port: number) {
  const target = { host: '127.0.0.1', port };
  const proxy = new TcpProxy(target);
  t.teardown(() => proxy.close());
  const own = await proxy.listen();
  return {
    host: `127.0.0.1:${own}`,
    lead: async (to: number) => {
      target.port = to;
      await proxy.close();
      await proxy.listen();
    },
  };
}

test('dotnet, skopeo and podman with unchanged settings and old passwords and keys, before, during and after a takeover', async (t) => {
  const folder = await folderUntilEnd(t);
  const old = await startTestServer(t);
  const door = await startDoor(t, old);
  door.keys.add('OLD-KEY');
  const registry = await startDebianRegistry(folder);
  t.teardown(() => registry.stop());
  const [feedAt, imagesAt] = [
    await address(t, portOf(door.url)),
    await address(t, Number(registry.host.split(':')[1])),
  ];
  // What clients have written down, for years.
  const url = `http://${feedAt.host}/v3/index.json`;
  const client = await dotnet(join(folder, 'dotnet'), { url, username: 'alice', password: 'guessable' });
  const short = await temporaryFolder();
  t.teardown(() => short.remove());
  const hosts = [imagesAt.host, registry.host];
  const skopeo = await containerClient('skopeo', join(folder, 'skopeo'), hosts);
  const podman = await containerClient('podman', short.path, hosts);
  const image = `docker://${imagesAt.host}/app`;
  const credentials = `${registry.username}:${registry.password}`;
  const push = (path: string) =>
    client.run('nuget', 'push', path, '--source', url, '--api-key', 'OLD-KEY', '--allow-insecure-connections');
  const packages = await Promise.all(
    ['1.0.0', '2.0.0', '3.0.0'].map((version) => client.pack({ id: 'Contoso.Core', version })),
  );
  await push(packages[0]!);
  await push(packages[1]!);
  const layout = await createLayout(join(folder, 'images'));
  const images = [await layout.image('one'), await layout.image('two')];
  const copy = (from: string, to: string, ...more: string[]) => skopeo.run('copy', ...more, from, to);
  for (const [at, { reference }] of images.entries())
    await copy(reference, `${image}:${at + 1}`, `--dest-creds=${credentials}`);

  const restore = async (when: string, version: string) => {
    const project = await client.project(`${when}-${version}`, { 'Contoso.Core': version });
    await client.run('restore', project, '--no-cache', '--force', '--packages', join(folder, `packages-${when}`));
  };
  const pull = async (at: number) => {
    const name = `${image}:${at + 1}`;
    await podman.run('pull', name);
    const digest = await skopeo.run('inspect', '--creds', credentials, '--format', '{{.Digest}}', name);
    t.is(digest.trim(), images[at]!.digest);
  };
  await podman.run('login', '--username', registry.username, '--password', registry.password, imagesAt.host);
  await restore('before', '1.0.0');
  await pull(0);

  const rightsFile = join(folder, 'rights');
  await writeFile(rightsFile, `user ${registry.username} read,write\nkey ci read,write OLD-KEY\n`);
  const adoptCredentials = { rightsFile };
  const here = await startTestServer(t, {
    predecessors: [
      {
        name: 'old-feed',
        kind: 'nuget',
        url: `${door.url}/v3/index.json`,
        auth: { username: 'alice', password: 'guessable' },
        adoptCredentials,
      },
      {
        name: 'old-images',
        kind: 'registry',
        url: `http://${registry.host}`,
        auth: { username: registry.username, password: registry.password },
        rename: ['*=team/*'],
        adoptCredentials,
      },
    ],
    aliases: [
      { host: imagesAt.host, to: 'registry', prefix: 'team' },
      { host: feedAt.host, to: 'feed' },
    ],
  });
  await readNames(here);
  await feedAt.lead(portOf(here.url));
  await imagesAt.lead(portOf(here.url));
  await restore('during', '1.0.0');
  await pull(0);
  await push(packages[2]!);
  await copy(images[1]!.reference, `${image}:3`, `--dest-creds=${credentials}`);
  await podman.run('push', `${imagesAt.host}/app:1`, `${image}:4`);
  // Clients ask for lists, which brought all of it already.
  t.like(await runJob(here, 'takeover'), { imported: 0, failed: 0, conflicts: 0 });

  await door.close();
  await old.close();
  await registry.stop();
  // The memory of the process is older than five minutes: what is stored of the passwords counts.
  here.clock.now = here.clock.time() + 10 * 60_000;
  await restore('after', '2.0.0');
  await restore('after', '3.0.0');
  await pull(1);
  t.is((await here.fetch('/v2/team/app/manifests/3')).headers.get('docker-content-digest'), images[1]!.digest);
  t.is((await here.fetch('/v2/team/app/manifests/4')).status, 200);
  await copy(images[1]!.reference, `${image}:5`, `--dest-creds=${credentials}`);
  const wrong = await fetch(`${here.url}/v2/`, { headers: { authorization: `Basic ${btoa('api:wrong')}` } });
  t.true([401, 429, 502].includes(wrong.status), `${wrong.status}`);
});
