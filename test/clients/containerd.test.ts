import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { findCommand } from '../../scripts/packages.ts';
import { createLayout, type Image } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startContainerd } from '../support/clients/containerd.ts';
import { pullAsKubelet } from '../support/clients/cri.ts';
import { testWith } from '../support/clients/test-with.ts';
import { tokenOf } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// The lines for containerd on the page Connect, with a token in the place of TOKEN. The server mirrors another one as docker.io.

const folder = await temporaryFolder();
const needed = ['containerd', 'ctr', 'skopeo', 'umoci'];
const withContainerd = testWith(...needed);
let image: Image;

test.before(async () => {
  if (needed.some((name) => findCommand(name) === undefined)) return;
  image = await (await createLayout(join(folder.path, 'images'))).image('app', { layers: 2 });
});

test.after.always(() => folder.remove());

/** A pull with the one snapshotter that works on every disk. */
const pull = (...args: string[]) => ['images', 'pull', '--snapshotter', 'native', ...args];

/** The label of the file for a registry. */
const label = (name: string) => `the file /etc/containerd/certs.d/${name}/hosts.toml`;

/** The text of a box of lines, as the button Copy gives it. */
function linesOf(page: string, label: string): string {
  const [, text] = new RegExp(`aria-label="${label}"><code>([^<]*)</code>`).exec(page)!;
  return text!.replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&');
}

async function push(server: TestServer, name: string): Promise<void> {
  const { host } = new URL(server.url);
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
  await skopeo.run('copy', '--dest-creds', `api:${server.token}`, image.reference, `docker://${host}/${name}`);
}

withContainerd('containerd pulls with a token by the lines of the page Connect', async (t) => {
  const hub = await startTestServer(t);
  await push(hub, 'library/tool:1');
  const auth = { username: 'api', password: hub.token };
  const upstream = {
    name: 'docker.io',
    kind: 'registry',
    url: hub.url,
    default: true,
    allowPrivateNetwork: true,
    auth,
  };
  const server = await startTestServer(t, { upstreams: [upstream] });
  await push(server, 'team/app:1.0');
  const { host } = new URL(server.url);
  const token = await tokenOf(server, ['read']);
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/connect');
  const prefixes = await visitor.page('/console/connect?form=prefix');
  const hosts = join(folder.path, 'certs.d');
  const home = join(folder.path, 'containerd');
  const ctr = await startContainerd(t, home, hosts);
  const has = async (name: string, namespace = 'default') =>
    t.regex(await ctr.run('--namespace', namespace, 'images', 'list'), new RegExp(`${name} .*${image.digest}`));

  const file = linesOf(page, label('docker.io'));
  t.is(linesOf(prefixes, label(host)), file);
  for (const name of ['docker.io', host]) {
    await mkdir(join(hosts, name), { recursive: true });
    await writeFile(join(hosts, name, 'hosts.toml'), file);
  }
  const socket = join(home, 'socket');
  t.regex(await ctr.fails(...pull('--hosts-dir', hosts, 'docker.io/library/tool:1')), /401/, 'TOKEN is no token');
  for (const name of ['docker.io', host]) {
    await writeFile(join(hosts, name, 'hosts.toml'), file.replaceAll('TOKEN', token));
  }
  const [mirrored, hosted] = ['docker.io/library/tool:1', `${host}/team/app:1.0`];
  for (const name of [mirrored, hosted]) {
    await ctr.run(...pull('--hosts-dir', hosts, name));
    await has(name);
    await pullAsKubelet(socket, name);
    await has(name, 'k8s.io');
    await ctr.run('images', 'remove', name);
    await ctr.run('--namespace', 'k8s.io', 'images', 'remove', name);
  }
  const missing = await ctr.fails(...pull('--hosts-dir', hosts, `${host}/team/none:1.0`));
  t.regex(missing, /not found/);
  t.notRegex(missing, /401/);
  await t.throwsAsync(pullAsKubelet(socket, `${host}/team/none:1.0`), { message: /not found/ });

  const line = linesOf(page, 'the line that pulls an image').replace('TOKEN', token).split(' ');
  t.deepEqual(line.slice(0, 3), ['ctr', 'images', 'pull']);
  await ctr.run(...pull(...line.slice(3)));
  await has(hosted);
});

withContainerd('containerd pulls a hosted image with a pull secret of Kubernetes', async (t) => {
  const server = await startTestServer(t);
  await push(server, 'team/app:1.0');
  const { host } = new URL(server.url);
  const hosts = join(folder.path, 'none.d');
  await mkdir(hosts);
  const home = join(folder.path, 'for-secrets');
  const ctr = await startContainerd(t, home, hosts);
  const name = `${host}/team/app:1.0`;
  await t.throwsAsync(pullAsKubelet(join(home, 'socket'), name), { message: /401|authoriz/i });
  const page = await (await Visitor.signedIn(server)).page('/console/connect');
  const secret = linesOf(page, 'the line that creates a pull secret');
  t.regex(secret, new RegExp(`--docker-server=${host} `));
  const [, username] = /--docker-username=(\S+)/.exec(secret)!;
  await pullAsKubelet(join(home, 'socket'), name, { username: username!, password: await tokenOf(server, ['read']) });
  t.regex(await ctr.run('--namespace', 'k8s.io', 'images', 'list'), new RegExp(`${name} .*${image.digest}`));
});
