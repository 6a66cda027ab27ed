import { join } from 'node:path';
import test from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { createToken, runJob } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { readNames } from '../support/takeover.ts';
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

test('dotnet, skopeo and podman with unchanged settings, before, during and after a takeover', async (t) => {
  const folder = await folderUntilEnd(t);
  const old = await startTestServer(t);
  const registry = await startDebianRegistry(folder);
  t.teardown(() => registry.stop());
  const [feedAt, imagesAt] = [await address(t, portOf(old.url)), await address(t, Number(registry.host.split(':')[1]))];
  // What clients have written down, for years.
  const url = `http://${feedAt.host}/v3/index.json`;
  const client = await dotnet(join(folder, 'dotnet'), { url, username: 'api', password: old.token });
  const short = await temporaryFolder();
  t.teardown(() => short.remove());
  const hosts = [imagesAt.host, registry.host];
  const skopeo = await containerClient('skopeo', join(folder, 'skopeo'), hosts);
  const podman = await containerClient('podman', short.path, hosts);
  const image = `docker://${imagesAt.host}/app`;
  const credentials = `${registry.username}:${registry.password}`;
  const push = (path: string, source = url) =>
    client.run('nuget', 'push', path, '--source', source, '--api-key', old.token, '--allow-insecure-connections');
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

  const here = await startTestServer(t, {
    predecessors: [
      { name: 'old-feed', kind: 'nuget', url: `${old.url}/v3/index.json`, auth: { bearer: old.token } },
      {
        name: 'old-images',
        kind: 'registry',
        url: `http://${registry.host}`,
        auth: { username: registry.username, password: registry.password },
        rename: ['*=team/*'],
      },
    ],
    aliases: [
      { host: imagesAt.host, to: 'registry', prefix: 'team' },
      { path: '/old/api/v2/package', to: 'feed' },
    ],
  });
  // The operator gives the old password of the registry to a token.
  await createToken(here, ['read', 'write'], 'default', undefined, registry.password);
  await readNames(here);
  await feedAt.lead(portOf(here.url));
  await imagesAt.lead(portOf(here.url));
  await restore('during', '1.0.0');
  await pull(0);
  await push(packages[2]!, `http://${feedAt.host}/old/api/v2/package`);
  await copy(images[1]!.reference, `${image}:3`, `--dest-creds=${credentials}`);
  // Clients ask for lists, which brought all of it already.
  t.like(await runJob(here, 'takeover'), { imported: 0, failed: 0, conflicts: 0 });

  await old.close();
  await registry.stop();
  await restore('after', '2.0.0');
  await restore('after', '3.0.0');
  await pull(1);
  t.is((await here.fetch('/v2/team/app/manifests/3')).headers.get('docker-content-digest'), images[1]!.digest);
});
