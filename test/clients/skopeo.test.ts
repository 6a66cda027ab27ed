import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { createLayout, sha256, type Layout } from '../support/builders/images.ts';
import { testWith } from '../support/clients/test-with.ts';

const folder = await temporaryFolder();
const withSkopeo = testWith('skopeo', 'umoci');
let entrepot: Entrepot;
let skopeo: CommandLine;
let layout: Layout;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

withSkopeo('skopeo can log in only with a token', async (t) => {
  skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [entrepot.host]);
  layout = await createLayout(join(folder.path, 'images'));
  t.regex(await skopeo.fails('login', '-u', 'api', '-p', 'ent_wrong', entrepot.host), /invalid username\/password/);
  t.regex(await skopeo.fails('list-tags', remote('team/app')), /unauthorized|authentication required/i);
  t.regex(await skopeo.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host), /Login Succeeded/);
});

withSkopeo('skopeo pushes an image of several layers and reads back the same content', async (t) => {
  const image = await layout.image('several', { layers: 5, bytes: 1_000_000 });
  await skopeo.run('copy', image.reference, remote('team/app:1'));
  t.is(await remoteDigest('team/app:1'), image.digest);
  t.is(await remoteDigest(`team/app@${image.digest}`), image.digest);
  // `dir:` verifies the digest of every layer.
  const copy = join(folder.path, 'several-copy');
  await skopeo.run('copy', '--preserve-digests', remote('team/app:1'), `dir:${copy}`);
  t.deepEqual(await tags('team/app'), ['1']);
});

withSkopeo('skopeo pushes a Docker schema 2 image and gets schema 2 back', async (t) => {
  const image = await layout.image('schema2');
  await skopeo.run('copy', '--format', 'v2s2', image.reference, remote('team/schema2:1'));
  const raw = JSON.parse(await skopeo.run('inspect', '--raw', remote('team/schema2:1'))) as { mediaType: string };
  t.is(raw.mediaType, 'application/vnd.docker.distribution.manifest.v2+json');
});

withSkopeo('skopeo pushes a multi-platform index with all its images', async (t) => {
  const amd64 = await layout.image('amd64', { architecture: 'amd64' });
  const arm64 = await layout.image('arm64', { architecture: 'arm64' });
  const index = await layout.index('multi', [amd64, arm64]);
  await skopeo.run('copy', '--all', index.reference, remote('team/multi:1'));
  t.is(await remoteDigest('team/multi:1'), index.digest);
  for (const one of [amd64, arm64]) t.is(await remoteDigest(`team/multi@${one.digest}`), one.digest);
  const back = join(folder.path, 'multi-back');
  await skopeo.run('copy', '--all', '--preserve-digests', remote('team/multi:1'), `oci:${back}:multi`);
  const one = await skopeo.run(
    '--override-arch',
    'arm64',
    'inspect',
    '--format',
    '{{.Architecture}}',
    remote('team/multi:1'),
  );
  t.is(one.trim(), 'arm64');
});

withSkopeo('skopeo copies from one repository to another without moving the layers again', async (t) => {
  await skopeo.run('copy', '--preserve-digests', remote('team/app:1'), remote('other/app:2'));
  t.is(await remoteDigest('other/app:2'), await remoteDigest('team/app:1'));
});

withSkopeo('a read-only token cannot push', async (t) => {
  const token = await entrepot.createToken('read');
  const reader = await containerClient('skopeo', join(folder.path, 'reader'), [entrepot.host]);
  await reader.run('login', '-u', 'api', '-p', token, entrepot.host);
  await reader.run('inspect', '--raw', remote('team/app:1'));
  const image = await layout.image('denied');
  t.regex(await reader.fails('copy', image.reference, remote('team/denied:1')), /denied/i);
});

withSkopeo('skopeo deletes an image with all its tags', async (t) => {
  await skopeo.run('copy', '--preserve-digests', remote('team/app:1'), remote('team/app:1.0'));
  t.deepEqual(await tags('team/app'), ['1', '1.0']);
  await skopeo.run('delete', remote('team/app:1'));
  t.regex(await skopeo.fails('inspect', '--raw', remote('team/app:1')), /manifest unknown/i);
  t.regex(await skopeo.fails('inspect', '--raw', remote('team/app:1.0')), /manifest unknown/i);
  await skopeo.run('inspect', '--raw', remote('other/app:2'));
});

function remote(name: string): string {
  return `docker://${entrepot.host}/${name}`;
}

async function remoteDigest(name: string): Promise<string> {
  return sha256(await skopeo.run('inspect', '--raw', remote(name)));
}

async function tags(name: string): Promise<string[]> {
  return (JSON.parse(await skopeo.run('list-tags', remote(name))) as { Tags: string[] }).Tags;
}
