import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { flushUsage, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

type Item = Record<string, unknown> & { tags?: Item[]; versions?: Item[] };

for (const dialect of dialects) {
  test(`${dialect}: each account sees its own pulls of mirrored content alone`, async (t) => {
    const registry = await startUpstreamRegistry(t);
    const { manifest } = registry.image('library/app', 'v1');
    const feed = await UpstreamFeed.start(t);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [registry.settings('docker.io', { default: true }), feed.as('feed.test')],
    });
    const tokens = {
      own: server.token,
      other: await tokenOf(server, ['read'], 'other'),
      none: await tokenOf(server, ['read'], 'none'),
    };
    const image = '/v2/docker.io/library/app/manifests/v1';
    const nupkg = '/v3/package/lib/1.0.0/lib.1.0.0.nupkg';
    const pulls = [...Array.from({ length: 3 }, () => tokens.own), tokens.other];
    for (const token of pulls) {
      for (const path of [image, nupkg, nupkg]) {
        const response = await server.fetch(path, { token });
        t.is(response.status, 200, path);
        await response.arrayBuffer();
      }
    }
    await flushUsage(server);
    const read = async (path: string, token: string): Promise<Item> => {
      const response = await server.fetch(path, { token });
      t.is(response.status, 200, path);
      return (await response.json()) as Item;
    };
    const first = async (path: string, token: string) => ((await read(path, token))['items'] as Item[])[0]!;
    const container = '/v1/containers/docker.io/library/app';
    for (const [token, count] of [
      [tokens.own, 3],
      [tokens.other, 1],
      [tokens.none, 0],
    ] as const) {
      const counts = {
        images: (await first('/v1/containers', token))['pull_count'],
        image: (await read(container, token))['pull_count'],
        tag: (await first(`${container}/tags`, token))['pull_count'],
        manifest: (await read(`${container}/manifests/${manifest.digest}`, token))['pull_count'],
        packages: (await first('/v1/packages', token))['download_count'],
        package: (await read('/v1/packages/lib', token))['download_count'],
        version: (await first('/v1/packages/lib/versions', token))['download_count'],
      };
      const [pulled, downloaded] = [count, 2 * count];
      t.deepEqual(counts, {
        images: pulled,
        image: pulled,
        tag: pulled,
        manifest: pulled,
        packages: downloaded,
        package: downloaded,
        version: downloaded,
      });
    }
  });
}
