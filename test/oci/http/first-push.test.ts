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
  ['failing', 502],
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
      anonymousRead: true,
      reserved: { containers: ['reserved/*'] },
    });
    if (away === 'unplugged') upstream.unplug();
    const status = away === 'denying' ? 403 : 500;
    for (const path of ['team/new', 'library/new', 'new', 'team/mirrored']) {
      for (const reference of ['v1', 'v2', `sha256:${'a'.repeat(64)}`]) {
        upstream.on(`/v2/${path}/manifests/${reference}`, answer(status));
      }
    }
    upstream.on('/v2/library/new/manifests/v1', answer(status));
    const writer = await tokenOf(server, ['read', 'write']);
    const reader = await tokenOf(server, ['read', 'delete', 'admin']);

    t.is(await head(server, 'team/new/manifests/v1', writer), 404);
    t.is(await head(server, `team/new/manifests/sha256:${'a'.repeat(64)}`, writer), 404, 'by its digest');
    if (away !== 'failing' && away !== 'denying') t.is(await head(server, 'team/deeper/new/manifests/v1', writer), 404);
    for (const [path, token] of [
      ['team/new/manifests/v1', reader],
      ['team/new/manifests/v1', null],
      [`team/new/manifests/sha256:${'a'.repeat(64)}`, reader],
      ['new/manifests/v1', writer],
      ['library/new/manifests/v1', writer],
      ['up.test/team/new/manifests/v1', writer],
      ['team/new/manifests/v1?ns=up.test', writer],
      ['team/mirrored/manifests/v2', writer],
    ] as const) {
      t.is(await head(server, path, token), failure, `${path} ${token === writer ? 'writer' : 'reader'}`);
    }
    t.is((await server.fetch('/v2/team/new/manifests/v1', { token: writer })).status, failure, 'GET');
    t.is(await head(server, 'reserved/new/manifests/v1', writer), 404);

    const repository = new TestRepository(server, 'team/new', writer);
    const { digest } = await repository.image('v1');
    t.is((await repository.fetch('manifests/v1', { method: 'HEAD' })).headers.get('docker-content-digest'), digest);
  });
}
