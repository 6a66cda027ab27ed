import test from 'ava';
import { putPolicy, startMirrors, versionsOf } from '../support/policy.ts';
import { errorOf, ociManifest, TestRepository } from '../support/registry.ts';
import { Visitor } from '../support/visitor.ts';

// What is stored already, and is refused from now on.

const nupkg = (version: string) => `/v3/package/lib/${version}/lib.${version}.nupkg`;

test('the files of a stored version that a policy denies are refused by every route, and lists show it', async (t) => {
  const { feed, server } = await startMirrors(t);
  const icon = { icon: 'icon.png' };
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', ...icon },
      { version: '2.0.0', ...icon },
    ],
  });
  for (const version of ['1.0.0', '2.0.0']) await (await server.fetch(nupkg(version))).arrayBuffer();
  const visitor = await Visitor.signedIn(server);
  const statuses = async (version: string) => {
    const paths = [nupkg(version), `/v1/packages/Lib/${version}/file`, `/v1/packages/lib/${version}/icon`];
    const answers = await Promise.all(paths.map((path) => server.fetch(path)));
    const page = await visitor.fetch(`/console/packages/Lib/${version}/file`);
    return [...answers.slice(0, 2), page, answers[2]!].map(({ status }) => status);
  };
  const before = await statuses('1.0.0');
  t.deepEqual(before.slice(0, 3), [200, 200, 200]);
  const rules = [{ name: 'no-one', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'MAL-2026-1' }];
  t.is((await putPolicy(server, { rules })).status, 200);
  t.deepEqual(await statuses('1.0.0'), [403, 403, 403, 403]);
  t.regex(await (await server.fetch('/v1/packages/Lib/1.0.0/file')).text(), /MAL-2026-1/);
  t.deepEqual(await statuses('2.0.0'), before, 'another version');
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
  t.is((await server.fetch('/v1/packages/Lib/1.0.0')).status, 200, 'what is known of it');
});

test('a push takes over no stored blob of an image that a policy denies', async (t) => {
  const { registry, server } = await startMirrors(t);
  const { config, layer, manifest } = registry.image('team/app', 'v1');
  const app = new TestRepository(server, 'registry.test/team/app');
  for (const path of ['manifests/v1', `blobs/${config.digest}`, `blobs/${layer.digest}`])
    await (await app.fetch(path)).arrayBuffer();
  const rules = [{ name: 'bad', digests: [manifest.digest], verdict: 'deny' }];
  t.is((await putPolicy(server, { rules })).status, 200);
  t.is((await app.fetch(`blobs/${layer.digest}`)).status, 403);
  const own = { schemaVersion: 2, mediaType: ociManifest, config: await app.blob('{}') };
  const layers = [{ ...layer, bytes: undefined }];
  t.deepEqual(await errorOf(await app.put('v2', { ...own, layers })), [403, 'DENIED']);
  t.is((await app.fetch(`blobs/${layer.digest}`)).status, 403, 'as before');
  t.is((await app.fetch('manifests/v2')).status, 404);
});
