import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

// What clients print of a frozen tag, of kept content, and of a version that was deleted and restored.

const folder = await temporaryFolder();
let entrepot: Entrepot;

async function call(method: string, path: string, body?: unknown): Promise<any> {
  const headers = { authorization: `Bearer ${entrepot.token}`, 'content-type': 'application/json' };
  const response = await fetch(`${entrepot.url}/v1${path}`, { method, headers, body: JSON.stringify(body) ?? null });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.status === 204 ? undefined : response.json();
}

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
  await call('PUT', '/account/permanence', {
    freeze: { images: ['team/*:v*'] },
    keep: { packages: ['Contoso.Kept'], images: ['team/kept'] },
  });
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

const frozen =
  /denied: The image tag 'v1' already exists in the 'team\/\w+' repository and cannot be overwritten because it is frozen/;

testWith('dockerd')('docker prints that a frozen tag exists', async (t) => {
  const engine = await startDockerEngine(join(folder.path, 'engine'));
  t.teardown(() => engine.stop());
  const { docker } = engine;
  await docker.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host);
  const name = `${entrepot.host}/team/docker:v1`;
  await engine.build(name, 'first');
  await docker.run('push', name);
  await docker.run('push', name);
  await engine.build(name, 'second');
  t.regex(await docker.fails('push', name), frozen);
});

testWith(
  'podman',
  'skopeo',
  'umoci',
)('podman and skopeo print what is frozen and kept', async (t) => {
  const layout = await createLayout(join(folder.path, 'images'));
  const images = [await layout.image('first', { layers: 1 }), await layout.image('second', { layers: 1 })] as const;
  const podman = await containerClient('podman', join(folder.path, 'podman'), [entrepot.host]);
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [entrepot.host]);
  for (const client of [podman, skopeo]) await client.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host);
  const name = `${entrepot.host}/team/podman:v1`;
  const [one, two] = [
    (await podman.run('pull', '--quiet', images[0].reference)).trim(),
    (await podman.run('pull', '--quiet', images[1].reference)).trim(),
  ];
  await podman.run('push', one, name);
  await podman.run('push', one, name);
  t.regex(await podman.fails('push', two, name), frozen);

  const remote = (of: string) => `docker://${entrepot.host}/${of}`;
  await skopeo.run('copy', images[0].reference, remote('team/skopeo:v1'));
  t.regex(await skopeo.fails('copy', images[1].reference, remote('team/skopeo:v1')), frozen);
  await skopeo.run('copy', images[0].reference, remote('team/kept:latest'));
  t.regex(
    await skopeo.fails('delete', remote('team/kept:latest')),
    /409[^]*which team\/kept\S* needs, cannot be deleted/,
  );
  await skopeo.run('copy', images[1].reference, remote('team/kept:latest'));

  await skopeo.run('copy', images[0].reference, remote('other/app:1'));
  await skopeo.run('delete', remote('other/app:1'));
  t.regex(await skopeo.fails('inspect', remote('other/app:1')), /manifest unknown/i);
  await restored(t, 'other/app', images[0].digest);
  const copy = join(folder.path, 'restored');
  await skopeo.run('copy', '--preserve-digests', remote('other/app:1'), `dir:${copy}`);
});

testWith('dotnet')('dotnet prints that a version is kept, and gets one that was restored', async (t) => {
  const feed = { url: `${entrepot.url}/v3/index.json`, username: 'api', password: entrepot.token };
  const client = await dotnet(join(folder.path, 'dotnet'), feed);
  const options = ['--source', sourceName, '--api-key', entrepot.token];
  const library = await client.pack({ id: 'Contoso.Library', version: '1.0.0' });
  await client.run('nuget', 'push', await client.pack({ id: 'Contoso.Kept', version: '1.0.0' }), ...options);
  await client.run('nuget', 'push', library, ...options);
  const remove = ['nuget', 'delete', 'Contoso.Kept', '1.0.0', '--non-interactive', ...options];
  t.regex(
    await client.fails(...remove),
    /409 \(.*Contoso\.Kept 1\.0\.0 cannot be deleted: a rule of this account keeps it/,
  );

  await call('DELETE', '/packages/Contoso.Library/1.0.0');
  const late = await dotnet(join(folder.path, 'late'), feed);
  const other = await late.pack({ id: 'Contoso.Library', version: '1.0.0' });
  t.regex(
    await late.fails('nuget', 'push', other, ...options),
    /409 \(.*was deleted with other bytes, and can be restored until/,
  );
  const project = await late.project('Late', { 'Contoso.Library': '1.0.0' });
  t.regex(await late.fails('restore', project), /NU110[12]/);
  await restored(t, 'Contoso.Library', '1.0.0');
  await late.run('restore', '--no-http-cache', project);
  t.is(await late.run('run', '--project', project), '1.0.0\n');

  await call('DELETE', '/packages/Contoso.Library/1.0.0');
  await client.run('nuget', 'push', library, ...options);
  t.deepEqual(
    (await call('GET', '/deleted')).items.filter(({ kind }: { kind: string }) => kind === 'package'),
    [],
  );
});

async function restored(t: ExecutionContext, name: string, reference: string): Promise<void> {
  const { items } = (await call('GET', '/deleted')) as { items: { id: string; name: string; reference: string }[] };
  const item = items.find((each) => each.name === name && each.reference === reference);
  t.deepEqual(await call('POST', `/deleted/${item!.id}/restore`), { id: item!.id, left_tags: [] });
}
