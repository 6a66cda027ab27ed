import test from 'ava';
import { folderUntilEnd } from '../../support/folder.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { tokenOf } from '../../support/inside.ts';

// oras and helm send HEAD for the manifest that they push, by its tag or its digest, and stop at every status but 200 and 404.

async function head(server: TestServer, path: string, token?: string | null): Promise<number> {
  return (await server.fetch(`/v2/${path}`, { method: 'HEAD', ...(token !== undefined && { token }) })).status;
}

for (const [away, failure] of [
  ['unplugged', 502],
  ['offline', 502],
  ['all offline', 502],
  ['failing', 502],
  ['refusing', 502],
  ['denying', 403],
] as const) {
  test(`the HEAD before a first push is 404 while the default upstream is ${away}, and no other request is`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    upstream.image('team/mirrored', 'v1');
    const settings = upstream.settings('up.test', { default: true, timeout: '30s' });
    const data = await folderUntilEnd(t);
    const first = await startTestServer(t, { data, upstreams: [settings] });
    t.is(await head(first, 'team/mirrored/manifests/v1'), 200);
    await first.close();
    const server = await startTestServer(t, {
      data,
      upstreams: [{ ...settings, freshFor: '0s', staleFor: '0s', mode: away === 'offline' ? 'offline' : 'online' }],
      offline: away === 'all offline',
      anonymousRead: true,
      reserved: { containers: ['reserved/*'] },
    });
    if (away === 'unplugged') upstream.unplug();
    const status = away === 'denying' ? 403 : away === 'refusing' ? 401 : 500;
    for (const path of ['team/new', 'library/new', 'new', 'team/mirrored']) {
      for (const reference of ['v1', 'v2', `sha256:${'a'.repeat(64)}`]) {
        upstream.on(`/v2/${path}/manifests/${reference}`, answer(status));
      }
    }
    upstream.on('/v2/team/deeper/new/manifests/v1', answer(status));
    const writer = await tokenOf(server, ['read', 'write']);
    const reader = await tokenOf(server, ['read', 'delete', 'admin']);

    t.is(await head(server, 'team/new/manifests/v1', writer), 404);
    t.is(await head(server, `team/new/manifests/sha256:${'a'.repeat(64)}`, writer), 404, 'by its digest');
    t.is(await head(server, 'team/deeper/new/manifests/v1', writer), 404);
    // It may be an official image of Docker Hub, which is there again in a moment, unless the upstream has answered or is never asked.
    const isLasting = away !== 'unplugged' && away !== 'failing';
    for (const name of ['new', 'library/new']) {
      t.is(await head(server, `${name}/manifests/v1`, writer), isLasting ? 404 : failure, name);
    }
    for (const [path, token] of [
      ['team/new/manifests/v1', reader],
      ['team/new/manifests/v1', null],
      [`team/new/manifests/sha256:${'a'.repeat(64)}`, reader],
      ['new/manifests/v1', reader],
      ['new/manifests/v1', null],
      ['up.test/new/manifests/v1', writer],
      ['new/manifests/v1?ns=up.test', writer],
      ['up.test/team/new/manifests/v1', writer],
      ['team/new/manifests/v1?ns=up.test', writer],
      ['team/mirrored/manifests/v2', writer],
    ] as const) {
      t.is(await head(server, path, token), failure, `${path} ${token === writer ? 'writer' : 'reader'}`);
    }
    for (const name of ['team/new', 'new']) {
      t.is((await server.fetch(`/v2/${name}/manifests/v1`, { token: writer })).status, failure, `GET ${name}`);
    }
    t.is(await head(server, 'reserved/new/manifests/v1', writer), 404);

    const repository = new TestRepository(server, 'team/new', writer);
    const { digest } = await repository.image('v1');
    t.is((await repository.fetch('manifests/v1', { method: 'HEAD' })).headers.get('docker-content-digest'), digest);
  });
}

test('the first push of a name of one segment goes on while Docker Hub denies the official image of that name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  const challenge = { 'www-authenticate': `Bearer realm="${upstream.url.href}token",service="hub"` };
  upstream.on('/token', answer(200, {}, JSON.stringify({ token: 'anonymous' })));
  const denial = { 'www-authenticate': `${challenge['www-authenticate']},error="insufficient_scope"` };
  upstream.on('/v2/library/mychart/manifests/0.1.0', answer(401, challenge), answer(401, denial));
  upstream.image('library/alpine', '3.22');
  const writer = await tokenOf(server, ['read', 'write']);

  t.is(await head(server, 'mychart/manifests/0.1.0', writer), 404);
  t.is((await server.fetch('/v2/mychart/manifests/0.1.0', { token: writer })).status, 403, 'GET');
  t.is(await head(server, 'docker.io/mychart/manifests/0.1.0', writer), 403);
  t.is(await head(server, 'mychart/manifests/0.1.0', await tokenOf(server, ['read'])), 403);
  t.is(await head(server, 'alpine/manifests/3.22', writer), 200);
  upstream.on('/v2/library/alpine/manifests/3.23', answer(403));
  t.is(await head(server, 'alpine/manifests/3.23', writer), 403, 'a tag of an image that is mirrored');

  const { digest } = await new TestRepository(server, 'mychart', writer).image('0.1.0');
  const pushed = await server.fetch('/v2/mychart/manifests/0.1.0', { token: writer });
  t.is(pushed.headers.get('docker-content-digest'), digest);
});
