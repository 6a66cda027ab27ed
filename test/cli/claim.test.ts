import test from 'ava';
import { entrepot } from '../support/in-process.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { tokenOf } from '../support/inside.ts';

for (const dialect of dialects) {
  test(`${dialect}: a name without content stays claimed until it is released`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const upstream = await startUpstreamRegistry(t);
    const { manifest } = upstream.image('team/app', 'v1');
    const server = await startTestServer(t, {
      data,
      database: { url },
      upstreams: [upstream.settings('up.test', { default: true })],
    });
    const claim = (...words: string[]) =>
      entrepot({ ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url }, 'claim', ...words);
    const refused = async (message: RegExp, ...words: string[]) => {
      const { code, stdout, stderr } = await claim('release', ...words);
      t.deepEqual([code, stdout], [1, '']);
      t.regex(stderr, message);
      t.is(stderr.trimEnd().split('\n').length, 1);
    };
    const app = new TestRepository(server, 'team/app');
    const { digest } = await app.image('mine');
    await new TestRepository(server, 'team/kept').image('v1');
    const body = new FormData();
    body.append(
      'package',
      new Blob([new Uint8Array(await makeNupkg({ id: 'Contoso.One', version: '1.0.0' }))]),
      'x.nupkg',
    );
    t.is((await server.fetch('/v3/push', { method: 'PUT', body })).status, 201);

    t.deepEqual(await claim('list'), { code: 0, stdout: '', stderr: '' });
    await refused(/"team\/app" still has manifests/, 'team/app', '--kind', 'container');
    await refused(/"contoso.one" still has versions/, 'contoso.one', '--kind', 'package');
    await refused(/claims no container "contoso.one"/, 'contoso.one', '--kind', 'container');
    await refused(/claims no package "team\/app"/, 'team/app', '--kind', 'package');

    await app.fetch(`manifests/${digest}`, { method: 'DELETE' });
    t.is((await server.fetch('/v1/packages/Contoso.One/1.0.0', { method: 'DELETE' })).status, 204);
    const listed = await claim('list');
    t.regex(listed.stdout, /^package\tContoso\.One\t\S+Z\ncontainer\tteam\/app\t\S+Z\n$/);
    t.is((await app.fetch('manifests/v1')).status, 404, 'still no upstream is used');
    t.deepEqual(upstream.asked, []);
    await tokenOf(server, ['read'], 'other');
    await refused(/claims no container/, 'team/app', '--kind', 'container', '--account', 'other');

    t.deepEqual(await claim('release', 'team/app', '--kind', 'container'), { code: 0, stdout: '', stderr: '' });
    t.deepEqual(await claim('release', 'CONTOSO.one', '--kind', 'package'), { code: 0, stdout: '', stderr: '' });
    t.is((await claim('list')).stdout, '');
    t.is(
      (await app.fetch('manifests/v1')).headers.get('docker-content-digest'),
      manifest.digest,
      'beside a running server',
    );
    await refused(/claims no container/, 'team/app', '--kind', 'container');
    // The next push claims the name again.
    await app.image('mine');
    t.is((await app.fetch('manifests/v1')).status, 404);
  });
}

test('a claim is released by kind and name', async (t) => {
  for (const [words, message] of [
    [['release', 'x'], /--kind/],
    [['release', 'x', '--kind', 'image'], /Allowed choices are package, container/],
    [['release', '--kind', 'package'], /missing required argument/],
  ] as const) {
    const { code, stderr } = await entrepot({}, 'claim', ...words);
    t.is(code, 1);
    t.regex(stderr, message);
  }
});
