import test from 'ava';
import { siteAt } from '../support/bundles.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { tokenOf } from '../support/inside.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

test('what an upstream has for one account does not come to another account, whose upstream has the same name', async (t) => {
  const folder = await folderUntilEnd(t);
  const path = (name: string) => `${folder}/${name}`;
  const registry = await startUpstreamRegistry(t);
  const secret = registry.image('team/secret', '1');
  const upstreams = ['default', 'other', 'third'].map((account) =>
    registry.settings('ghcr.test', { id: `for-${account}`, accounts: [account] }),
  );
  const nowhere = { url: 'http://127.0.0.1:9/', mode: 'offline' };
  const near = siteAt(t, path('near'), upstreams);
  const offline = upstreams.map((each) => ({ ...each, ...nowhere }));
  const far = siteAt(t, path('far'), offline);
  for (const site of [near, far]) await site.ok('account', 'create', 'other');
  const source = await near.serve();
  const token = await tokenOf(source, ['read'], 'other');
  const at = '/v2/ghcr.test/team/secret/manifests/1';
  t.is((await source.fetch(at, { token })).status, 200);
  await source.close();
  const create = (to: string) => near.ok('bundle', 'create', '--stored', '--account', 'other', '--to', path(to));
  await create('bundle');
  await far.ok('bundle', 'import', path('bundle'), '--unsigned');
  const server = await far.serve();
  t.not((await server.fetch(at)).status, 200, 'the account default');
  const found = await server.fetch(at, { token: await tokenOf(server, ['read'], 'other') });
  t.is(await found.text(), secret.manifest.bytes);
  await server.close();

  // Only one of them is at the far side, or others.
  const lacking = siteAt(t, path('lacking'), offline.slice(0, 1));
  await lacking.ok('account', 'create', 'other');
  t.regex(await lacking.fails('bundle', 'import', path('bundle'), '--unsigned'), /upstream for-other \(registry\)/);
  const single = siteAt(t, path('near'), [{ ...upstreams[1], accounts: ['default', 'other'] }]);
  await single.ok('bundle', 'create', '--stored', '--account', 'other', '--to', path('named'));
  t.regex(
    await far.fails('bundle', 'import', path('named'), '--unsigned'),
    /the settings have 3 of this name here: for-default, for-other, for-third\. Give the one that it belongs to the "id" ghcr\.test/,
  );
});
