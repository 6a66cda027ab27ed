import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder, type CommandLine } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { createLayout, type Image } from '../support/builders/images.ts';
import { testWith } from '../support/clients/test-with.ts';

const folder = await temporaryFolder();
const withPodman = testWith('podman', 'umoci');
let entrepot: Entrepot;
let podman: CommandLine;
let image: Image;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

withPodman('podman logs in with a token and refuses a wrong one', async (t) => {
  podman = await containerClient('podman', join(folder.path, 'podman'), [entrepot.host]);
  image = await (await createLayout(join(folder.path, 'images'))).image('app', { layers: 4, bytes: 1_000_000 });
  t.regex(await podman.fails('login', '-u', 'api', '-p', 'ent_wrong', entrepot.host), /invalid username\/password/);
  t.regex(await podman.run('login', '-u', 'api', '-p', entrepot.token, entrepot.host), /Login Succeeded/);
});

withPodman('podman pushes, removes and pulls an image with its content unchanged', async (t) => {
  const name = `${entrepot.host}/team/podman:1`;
  const id = (await podman.run('pull', '--quiet', image.reference)).trim();
  await podman.run('push', '--digestfile', join(folder.path, 'digest'), id, name);
  await podman.run('rmi', '--all', '--force');

  await podman.run('pull', '--quiet', name);
  const digest = (await podman.run('image', 'inspect', '--format', '{{.Digest}}', name)).trim();
  t.is(digest, await readFile(join(folder.path, 'digest'), 'utf8'));
  const mounted = (await podman.run('image', 'mount', name)).trim();
  for (const [path, content] of image.files) t.deepEqual(await readFile(join(mounted, path)), content);
  await podman.run('image', 'unmount', name);

  await podman.run('rmi', '--all', '--force');
  await podman.run('pull', '--quiet', `${entrepot.host}/team/podman@${digest}`);
});

withPodman('podman gets "not found" for a missing image, and "unauthorized" after logout', async (t) => {
  t.regex(await podman.fails('pull', `${entrepot.host}/team/podman:none`), /manifest unknown|not found/i);
  await podman.run('logout', entrepot.host);
  t.regex(await podman.fails('pull', `${entrepot.host}/team/podman:1`), /unauthorized|authentication required/i);
});
