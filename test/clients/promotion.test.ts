import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { startDockerEngine } from '../support/clients/docker-engine.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

// What real clients get after a promotion, and what they print where an account takes no pushes (docs/promotion.md).

const folder = await temporaryFolder();
const scopes = ['read', 'write', 'promote', 'admin'];
const refusal = /The account prod takes no pushes, only promotions/;

/** The account `dev` promotes to `prod`, which takes no pushes. */
async function start(t: ExecutionContext) {
  const server = await startTestServer(t);
  const [dev, prod] = [await tokenOf(server, scopes, 'dev'), await tokenOf(server, scopes, 'prod')];
  const call = async (token: string, method: string, path: string, body?: object) => {
    const headers = { 'content-type': 'application/json' };
    const init = { method, token, ...(body && { headers, body: JSON.stringify(body) }) };
    const response = await server.fetch(`/v1${path}`, init);
    if (!response.ok) throw new Error(await response.text());
    return (await response.json()) as { id: number };
  };
  await call(prod, 'PUT', '/account/promotion', { promote_only: true, approval: 'another', from: ['dev'] });
  const promote = async (body: object) => {
    const { id } = await call(dev, 'POST', '/promotions', { to_account: 'prod', ...body });
    await call(prod, 'POST', `/promotions/${id}/approve`);
  };
  return { dev, prod, promote, host: new URL(server.url).host };
}

test.after.always(() => folder.remove());

testWith('dotnet')('dotnet restores a promoted version from the other account, which takes no push', async (t) => {
  const { dev, prod, promote, host } = await start(t);
  const url = `http://${host}/v3/index.json`;
  const user = (name: string, password: string) => dotnet(join(folder.path, name), { url, username: 'api', password });
  const publisher = await user('publisher', dev);
  const library = await publisher.pack({ id: 'Contoso.Library', version: '1.0.0' });
  const push = (key: string) => ['nuget', 'push', library, '--source', sourceName, '--api-key', key];
  await publisher.run(...push(dev));
  const released = await user('released', prod);
  t.regex(await released.fails(...push(prod)), new RegExp(`403 \\(${refusal.source}`));
  const project = await released.project('Program', { 'Contoso.Library': '1.0.0' });
  t.regex(await released.fails('restore', project), /NU1101: Unable to find package Contoso\.Library/);
  await promote({ kind: 'package', name: 'Contoso.Library', reference: '1.0.0' });
  const consumer = await user('consumer', prod);
  t.is(
    await consumer.run('run', '--project', await consumer.project('Again', { 'Contoso.Library': '1.0.0' })),
    '1.0.0\n',
  );
});

testWith('skopeo', 'umoci')(
  'skopeo gets a promoted index by the same digest, and is told why a push is refused',
  async (t) => {
    const { dev, prod, promote, host } = await start(t);
    const layout = await createLayout(join(folder.path, 'images'));
    const platforms = [
      await layout.image('amd64', { architecture: 'amd64' }),
      await layout.image('arm64', { architecture: 'arm64' }),
    ];
    const index = await layout.index('multi', platforms);
    const user = async (token: string) => {
      const skopeo = await containerClient('skopeo', join(folder.path, token.slice(-8)), [host]);
      await skopeo.run('login', '-u', 'api', '-p', token, host);
      return skopeo;
    };
    const developer = await user(dev);
    const releaser = await user(prod);
    const remote = (name: string) => `docker://${host}/${name}`;
    await developer.run('copy', '--all', index.reference, remote('team/app:v1'));
    t.regex(await releaser.fails('copy', '--all', index.reference, remote('app:v1')), refusal);
    await promote({ kind: 'image', name: 'team/app', reference: 'v1', to_name: 'app' });
    const digest = await releaser.run('inspect', '--raw', remote(`app@${index.digest}`));
    t.is(JSON.parse(digest).manifests.length, 2);
    // It verifies the digest of every layer.
    await releaser.run('copy', '--all', '--preserve-digests', remote('app:v1'), `dir:${join(folder.path, 'copy')}`);
    t.regex(await releaser.fails('inspect', remote('team/app:v1')), /unknown|not found/i);
  },
);

testWith('dockerd')('docker prints why an account takes no push', async (t) => {
  const { dev, prod, promote, host } = await start(t);
  const engine = await startDockerEngine(join(folder.path, 'engine'));
  try {
    const { docker } = engine;
    await docker.run('login', '-u', 'api', '-p', prod, host);
    const promoted = await createLayout(join(folder.path, 'docker-images'));
    const image = await promoted.image('one');
    const skopeo = await containerClient('skopeo', join(folder.path, 'docker-skopeo'), [host]);
    await skopeo.run('login', '-u', 'api', '-p', dev, host);
    await skopeo.run('copy', image.reference, `docker://${host}/team/one:v1`);
    await promote({ kind: 'image', name: 'team/one', reference: 'v1', to_name: 'one' });
    await docker.run('pull', `${host}/one:v1`);
    await docker.run('tag', `${host}/one:v1`, `${host}/other:v1`);
    t.regex(await docker.fails('push', `${host}/other:v1`), new RegExp(`denied: ${refusal.source}`));
  } finally {
    await engine.stop();
  }
});
