import { join } from 'node:path';
import test from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { execute } from '../support/clients/clients.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startImporting } from '../support/imports.ts';
import { startDebianRegistry } from '../support/upstreams/debian-registry.ts';

test("Debian's registry, by its protocol and from its folder", async (t) => {
  const folder = await folderUntilEnd(t);
  const registry = await startDebianRegistry(folder);
  t.teardown(() => registry.stop());
  const layout = await createLayout(join(folder, 'images'));
  const [amd, arm] = [await layout.image('amd'), await layout.image('arm', { architecture: 'arm64' })];
  const both = await layout.index('both', [amd, arm]);
  const push = (reference: string, name: string) =>
    execute('skopeo', [
      'copy',
      '--all',
      '--dest-tls-verify=false',
      `--dest-creds=${registry.username}:${registry.password}`,
      reference,
      `docker://${registry.host}/${name}`,
    ]);
  await push(both.reference, 'team/both:1.0');
  await push(amd.reference, 'team/one:latest');
  const importing = await startImporting(t, [], { OLD: registry.password });
  const { bring, target } = importing;
  const login = ['--user', registry.username, '--token-env', 'OLD'];
  const refused = await bring(`http://${registry.host}`);
  t.is(refused.code, 1);
  t.regex(refused.stderr, /refused access; check its credentials/);
  const done = await bring(`http://${registry.host}`, ...login, '--map', 'team/*=moved/*');
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^imported: 2 \(/);
  const digestOf = async (name: string, tag: string) =>
    (await target.fetch(`/v2/${name}/manifests/${tag}`, { method: 'HEAD' })).headers.get('docker-content-digest');
  t.is(await digestOf('moved/both', '1.0'), both.digest);
  t.is(await digestOf('moved/both', arm.digest), arm.digest);
  t.is(await digestOf('moved/one', 'latest'), amd.digest);
  const again = await bring(`http://${registry.host}`, ...login, '--map', 'team/*=moved/*');
  t.regex(again.stdout, /^imported: 0\nhere already: 2\n/);
  // The same content from the files, without a network.
  await registry.stop();
  const files = await bring(join(folder, 'blobs'));
  t.deepEqual([files.code, files.stderr], [0, '']);
  t.regex(files.stdout, /^imported: 2 \(/);
  t.is(await digestOf('team/both', '1.0'), both.digest);
  const here = new URL(target.url).host;
  const copied = await execute('skopeo', [
    'copy',
    '--src-tls-verify=false',
    `--src-creds=api:${target.token}`,
    `docker://${here}/team/one:latest`,
    `dir:${join(folder, 'copied')}`,
  ]);
  t.is(copied.code, 0, copied.stderr);
});
