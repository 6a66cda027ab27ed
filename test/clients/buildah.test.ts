import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

const folder = await temporaryFolder();
const withBuildah = testWith('buildah');
const content = randomBytes(500_000);
let entrepot: Entrepot;
let buildah: CommandLine;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

withBuildah('buildah logs in, builds an image, pushes it and builds on it after a pull', async (t) => {
  buildah = await containerClient('buildah', join(folder.path, 'buildah'), [entrepot.host]);
  await buildah.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host);
  const base = `${entrepot.host}/team/base:1`;
  await build('scratch', 'file', base);
  await buildah.run('push', base);
  await buildah.run('rmi', '--all', '--force');

  await build(base, 'more', `${entrepot.host}/team/more:1`);
  await buildah.run('push', `${entrepot.host}/team/more:1`);
  await buildah.run('rmi', '--all', '--force');
  const container = (await buildah.run('from', `${entrepot.host}/team/more:1`)).trim();
  const mounted = (await buildah.run('mount', container)).trim();
  for (const name of ['file', 'more']) t.deepEqual(await readFile(join(mounted, name)), content);
  await buildah.run('rm', container);
});

withBuildah('buildah pushes a manifest list of existing images', async (t) => {
  const list = `${entrepot.host}/team/list:1`;
  await buildah.run('manifest', 'create', 'list');
  for (const name of ['team/base:1', 'team/more:1'])
    await buildah.run('manifest', 'add', 'list', `docker://${entrepot.host}/${name}`);
  await buildah.run('manifest', 'push', '--all', 'list', `docker://${list}`);

  const credentials = Buffer.from(`api:${entrepot.token}`).toString('base64');
  const response = await fetch(`${entrepot.url}/v2/team/list/manifests/1`, {
    headers: {
      Authorization: `Basic ${credentials}`,
      Accept: 'application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json',
    },
  });
  t.is(((await response.json()) as { manifests: unknown[] }).manifests.length, 2);
});

async function build(base: string, file: string, name: string): Promise<void> {
  const source = join(folder.path, file);
  await writeFile(source, content);
  const container = (await buildah.run('from', base)).trim();
  await buildah.run('add', container, source, `/${file}`);
  await buildah.run('config', '--label', `made=${file}`, container);
  await buildah.run('commit', '--rm', container, name);
}
