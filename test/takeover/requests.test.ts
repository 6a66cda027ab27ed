import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { applyPolicy, createToken, databaseOf, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { readNames, startMoving } from '../support/takeover.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { nupkg, requestsOn } from './requests-suite.ts';

const content = (id: string, byte: number, version = '1.0.0') =>
  makeNupkg({ id, version, payloadBytes: 0, files: { 'lib/a.dll': Buffer.alloc(5000, byte) } });

/** Runs `entrepot takeover` on the data of a server. */
const takeover = ({ data, installation }: TestServer, upstreams: readonly object[], ...words: string[]) =>
  entrepot(
    {
      ENTREPOT_DATA: data,
      ENTREPOT_PREDECESSORS: JSON.stringify(installation.core.config.predecessors),
      ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    },
    'takeover',
    ...words,
  );

requestsOn('sqlite');

test('images of a predecessor come by tag and by digest, with their names mapped', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { old, here } = await startMoving(
    t,
    { upstreams: [upstream.settings('docker.io', { default: true })] },
    { rename: ['apps/*=team/*'] },
  );
  const app = new TestRepository(old, 'apps/app');
  const [one, two, three] = [await app.image('1.0'), await app.image('2.0'), await app.image('3.0')];
  await new TestRepository(old, 'apps/other').image('1.0');
  await readNames(here);
  const at = (reference: string, name = 'team/app', token = here.token) =>
    here.fetch(`/v2/${name}/manifests/${reference}`, { token });
  t.is(await (await at('1.0')).text(), one.bytes);
  const [layer] = JSON.parse(one.bytes).layers;
  t.is((await here.fetch(`/v2/team/app/blobs/${layer.digest}`)).status, 200);
  t.is(await (await at(two.digest)).text(), two.bytes);
  t.is((await at('absent')).status, 404);
  t.is((await at(one.digest.replace(/.{6}$/, '000000'))).status, 404);
  // What the predecessor does not have leaves no row.
  const rows = await rowsOf<{ reference: string }>(
    here,
    'SELECT reference FROM takeover_references ORDER BY reference',
  );
  t.deepEqual(
    rows.map(({ reference }) => reference),
    ['1.0', two.digest],
  );
  t.deepEqual(((await (await here.fetch('/v2/team/app/tags/list')).json()) as any).tags, ['1.0', '2.0', '3.0']);
  t.is(await (await at('3.0')).text(), three.bytes);
  t.false(upstream.requests().some((each) => each.includes('absent')));
  // A token that may not read a name learns nothing of it, and causes no request.
  const narrow = (await createToken(here, ['read'], 'default', { containers: ['team/app'] })).value;
  t.is((await at('1.0', 'team/app', narrow)).status, 200);
  t.is((await at('1.0', 'team/other', narrow)).status, 403);
  // Another account has no predecessor.
  const stranger = await tokenOf(here, ['read', 'write'], 'stranger');
  t.is((await at('1.0', 'team/other', stranger)).status, 404);
  await old.close();
  t.is((await at('1.0', 'team/other')).status, 502);
  t.is((await at('1.0')).status, 200);
  t.is((await at('1.0', 'team/other', stranger)).status, 404);
});

test('what an upstream has, too, stays mirrored, and other content waits for a person', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  for (const [id, byte] of [
    ['Public', 1],
    ['Forked', 2],
  ] as const)
    await upstream.offer({ id, versions: [{ version: '1.0.0', nupkg: await content(id, byte) }] });
  const { old, here } = await startMoving(t, { upstreams: [upstream.as('feed.test')] });
  const from = new TestFeed(old);
  await from.push(await content('Public', 1));
  await from.push(await content('Forked', 1));
  await readNames(here);
  t.is((await here.fetch(nupkg('public', '1.0.0'))).status, 200);
  t.is(((await (await here.fetch('/v1/packages/Public')).json()) as any).origin, 'mirrored');
  for (let time = 0; time < 2; time += 1) {
    const refused = await here.fetch(nupkg('forked', '1.0.0'));
    t.is(refused.status, 502);
    t.regex(((await refused.json()) as any).detail, /feed\.test has other content under this name/);
  }
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 1, conflicts: 1 });
  const { inventory } = here.installation.takeover;
  t.deepEqual(
    [await inventory.leave('old-feed', 'Public'), await inventory.leave('old-feed', 'Forked')],
    [false, true],
  );
  t.is((await here.fetch(nupkg('forked', '1.0.0'))).status, 200, 'that of the upstream');
  const events = "SELECT subject_name, details FROM events WHERE type = 'takeover.left'";
  t.deepEqual(await rowsOf(here, events), [{ subject_name: 'old-feed', details: '{"name":"forked"}' }]);
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 1, conflicts: 0 }, 'it is left for good');
  t.is((await here.fetch(nupkg('forked', '1.0.0'))).status, 200);
});

test('a name that the settings leave out after it was read is that of the upstreams, and keeps no takeover from its end', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  const bytes = await content('Forked', 2);
  await upstream.offer({ id: 'Forked', versions: [{ version: '1.0.0', nupkg: bytes }] });
  const upstreams = [upstream.as('feed.test')];
  const { old, here } = await startMoving(t, { upstreams });
  const from = new TestFeed(old);
  await from.push(await content('Forked', 1));
  await from.push(await content('Own', 1));
  t.like(await runJob(here, 'takeover'), { names: 2, imported: 1, conflicts: 1 });
  const { data } = here;
  const [feed] = here.installation.core.config.predecessors;
  await here.close();
  const again = await startTestServer(t, { data, upstreams, predecessors: [{ ...feed, exclude: ['Forked'] }] });
  const served = await again.fetch(nupkg('forked', '1.0.0'));
  t.deepEqual(Buffer.from(await served.arrayBuffer()), bytes, 'that of the upstream');
  t.like(await runJob(again, 'takeover'), { names: 1, imported: 0, conflicts: 0, failed: 0 });
  t.is((await takeover(again, upstreams, 'status')).stdout.split('\n').slice(1).join('\n'), 'old-feed\there\t1\n');
  t.is((await takeover(again, upstreams, 'report', 'old-feed')).code, 0);
  t.is((await takeover(again, upstreams, 'finish', 'old-feed')).code, 0);
});

test('a name that upstreams serve is looked at again: what they lack comes, and until then the report says so', async (t) => {
  const [feed, registry] = [await UpstreamFeed.start(t), await startUpstreamRegistry(t)];
  const upstreams = [feed.as('feed.test'), registry.settings('docker.io', { default: true })];
  const { old, here } = await startMoving(t, { upstreams });
  const [from, redis] = [new TestFeed(old), new TestRepository(old, 'library/redis')];
  await feed.offer({ id: 'Public', versions: [{ version: '1.0.0', nupkg: await content('Public', 1) }] });
  await from.push(await content('Public', 1));
  const seven = await redis.image('7');
  registry.manifest('library/redis', seven.bytes, '7');
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 2, failed: 0 });
  const reported = async () => {
    const found = [];
    for (const name of ['old-feed', 'old-images']) found.push(await takeover(here, upstreams, 'report', name));
    return found;
  };
  for (const { code, stdout } of await reported()) {
    t.is(code, 0);
    t.regex(stdout, /^mirrored\t1$/m);
  }
  await from.push(await content('Public', 2, '2.0.0'));
  const own = await redis.image('7-hardened');
  const [packages, images] = await reported();
  t.regex(packages!.stderr, /^missing\tpublic\t2\.0\.0$/m);
  t.regex(images!.stderr, /^missing\tlibrary\/redis\t7-hardened$/m);
  t.like(await runJob(here, 'takeover'), { imported: 4, mirrored: 0, failed: 0 });
  for (const version of ['1.0.0', '2.0.0']) t.is((await here.fetch(nupkg('public', version))).status, 200, version);
  for (const [tag, { bytes }] of [
    ['7', seven],
    ['7-hardened', own],
  ] as const)
    t.is(await (await here.fetch(`/v2/library/redis/manifests/${tag}`)).text(), bytes);
  for (const { code, stdout } of await reported()) {
    t.is(code, 0);
    t.regex(stdout, /^same\t1$/m);
  }
  const unknown = await takeover(here, upstreams, 'report', 'nobody');
  t.deepEqual(
    [unknown.code, unknown.stderr],
    [1, 'entrepot: The settings have no predecessor nobody; there are old-feed, old-images.\n'],
  );
  const none = await takeover(old, [], 'report', 'nobody');
  t.deepEqual([none.code, none.stderr], [1, 'entrepot: The settings have no predecessor nobody.\n']);
});

test('a tag that moved at the old server stays as it came, and is shown as incomplete; what changed here is not', async (t) => {
  const { old, here } = await startMoving(t);
  const [app, ours] = [new TestRepository(old, 'team/app'), new TestRepository(here, 'team/app')];
  const latest = await app.image('latest');
  for (const tag of ['pushed', 'deleted']) await app.image(tag);
  t.like(await runJob(here, 'takeover'), { imported: 3, conflicts: 0 });
  await ours.image('pushed');
  t.is((await ours.fetch('manifests/deleted', { method: 'DELETE' })).status, 202);
  t.like(await runJob(here, 'takeover'), { imported: 0, conflicts: 0, failed: 0 });
  await app.image('latest');
  t.like(await runJob(here, 'takeover'), { imported: 0, conflicts: 1, failed: 0 });
  t.is(await (await ours.fetch('manifests/latest')).text(), latest.bytes);
  t.is((await ours.fetch('manifests/deleted')).status, 404);
  const { stdout } = await takeover(here, [], 'status');
  t.regex(stdout, /^old-images\tincomplete\tteam\/app\tthe tag latest was moved at the source after it came$/m);
});

test('a report compares each tag: as it is at the old server, moved, missing, deleted, and only here', async (t) => {
  const { old, here } = await startMoving(t);
  const [app, ours] = [new TestRepository(old, 'team/app'), new TestRepository(here, 'team/app')];
  for (const tag of ['deleted', 'moved', 'same']) await app.image(tag);
  t.like(await runJob(here, 'takeover'), { imported: 3 });
  await app.image('moved');
  await app.image('missing');
  await new TestRepository(old, 'team/new').image('1.0');
  await readNames(here);
  t.is((await ours.fetch('manifests/deleted', { method: 'DELETE' })).status, 202);
  const { bytes } = await ours.image('only-here');
  // More tags than are read at a time.
  const [row] = await rowsOf<{ repository_id: number; digest: string }>(
    here,
    "SELECT repository_id, digest FROM tags WHERE name = 'only-here'",
  );
  const more = Array.from({ length: 1000 }, (_, at) => `x${at}`);
  await databaseOf(here).transaction(async (tx) => {
    for (const name of more) await tx.insert('tags', { ...row!, name, updated_at: 0 });
  });
  const reportOf = async (name: string) => {
    const file = join(here.data, name);
    const { code } = await takeover(here, [], 'report', 'old-images', '--report', file);
    t.is(code, 1);
    return (await readFile(file, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  };
  const none = { both: 0, missing: [], deleted: [], extra: [], different: {} };
  t.deepEqual(await reportOf('report'), [
    {
      ...none,
      name: 'team/app',
      result: 'different',
      both: 2,
      missing: ['missing'],
      deleted: ['deleted'],
      extra: ['only-here', ...more.toSorted().slice(0, 999)],
      different: { moved: ['hash'] },
    },
    { ...none, name: 'team/new', result: 'different', missing: ['1.0'] },
  ]);
  t.is(await (await ours.fetch('manifests/x7')).text(), bytes);
});

test('an image that upstreams serve is never "not found" while all of it comes, nor after a failure', async (t) => {
  const [old, registry] = [await startUpstreamRegistry(t), await startUpstreamRegistry(t)];
  const name = 'library/redis';
  const list = (...tags: string[]) => old.on(`/v2/${name}/tags/list`, answer(200, {}, JSON.stringify({ name, tags })));
  old.on('/v2/_catalog', answer(200, {}, JSON.stringify({ repositories: [name] })));
  const here = await startTestServer(t, {
    upstreams: [registry.settings('docker.io', { default: true })],
    predecessors: [{ name: 'old-images', kind: 'registry', url: old.url.href }],
  });
  const seven = old.image(name, '7');
  registry.manifest(name, seven.manifest.bytes, '7');
  registry.on(`/v2/${name}/tags/list`, answer(200, {}, JSON.stringify({ name, tags: ['7'] })));
  list('7');
  t.like(await runJob(here, 'takeover'), { mirrored: 1, failed: 0 });
  const statuses = async () => {
    const paths = [`/v2/${name}/manifests/7`, `/v2/${name}/tags/list`];
    return Promise.all(paths.map(async (path) => (await here.fetch(path)).status));
  };
  t.deepEqual(await statuses(), [200, 200]);

  // The old server lacks layers of both tags: the first platform of the new one comes, and nothing else.
  const platforms = [old.image(name), old.image(name)];
  const pathOf = ({ layer }: typeof seven) => `/v2/${name}/blobs/${layer.digest}`;
  old.on(pathOf(seven), answer(404));
  const meanwhile: number[] = [];
  old.on(pathOf(platforms[1]!), async (request, response) => {
    meanwhile.push((await here.fetch(`/v2/${name}/manifests/7`)).status);
    answer(404)(request, response);
  });
  const manifests = platforms.map(({ manifest: { mediaType, digest, size } }) => ({ mediaType, digest, size }));
  old.manifest(name, { schemaVersion: 2, mediaType: ociIndex, manifests }, '7-own');
  list('7', '7-own');
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 0, failed: 2 });
  t.deepEqual(new Set(meanwhile), new Set([502]));
  for (let time = 0; time < 2; time += 1) t.deepEqual(await statuses(), [502, 200]);
  t.regex((await takeover(here, [], 'status')).stdout, /^old-images\tto come\tlibrary\/redis\t./m);

  for (const { layer } of [seven, ...platforms]) old.blob(name, layer.bytes);
  t.deepEqual(await statuses(), [200, 200]);
  t.like(await runJob(here, 'takeover'), { failed: 0 });
  t.deepEqual(await statuses(), [200, 200]);
});

test('an upstream that refuses access for a time keeps the images that it serves', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { old, here } = await startMoving(t, { upstreams: [registry.settings('docker.io', { default: true })] });
  const redis = new TestRepository(old, 'library/redis');
  const push = async (tag: string) => {
    const image = await redis.image(tag);
    registry.manifest('library/redis', image.bytes, tag);
    return image;
  };
  await push('7');
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 1, failed: 0 });
  const { digest } = await push('8');
  const path = `/v2/library/redis/manifests/${digest}`;
  for (const refusal of [401, 403]) {
    registry.on(path, answer(refusal));
    t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 0, failed: 1 }, String(refusal));
  }
  // What only the upstream has is served, too.
  registry.manifest('library/redis', await redis.manifest({ annotations: { only: 'there' } }), '9');
  t.is((await here.fetch('/v2/library/redis/manifests/9')).status, 200);
});

test('what a policy holds or denies stays mirrored, too, and other content of it waits for a person', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  const published = new Date().toISOString();
  const young = async (id: string, byte: number) => ({
    version: '1.1.0',
    published,
    nupkg: await content(id, byte, '1.1.0'),
  });
  for (const [id, byte] of [
    ['Public', 1],
    ['Forked', 2],
    ['Denied', 1],
  ] as const)
    await upstream.offer({
      id,
      versions: [{ version: '1.0.0', nupkg: await content(id, 1) }, await young(id, byte)],
    });
  const { old, here } = await startMoving(t, { upstreams: [upstream.as('feed.test')] });
  await applyPolicy(here, {
    mode: 'enforce',
    minimumAge: { packages: '3d' },
    rules: [{ name: 'no-denied', packages: ['denied'], verdict: 'deny' }],
  });
  const from = new TestFeed(old);
  for (const id of ['Public', 'Forked', 'Denied'])
    for (const version of ['1.0.0', '1.1.0']) await from.push(await content(id, 1, version));
  t.like(await runJob(here, 'takeover'), { imported: 0, mirrored: 5, conflicts: 1, failed: 0 });
  const list = (await (await here.fetch('/v3/package/public/index.json')).json()) as any;
  t.deepEqual(list.versions, ['1.0.0']);
  const status = async (path: string) => (await here.fetch(path)).status;
  t.is(await status(nupkg('public', '1.0.0')), 200);
  t.is(await status(nupkg('public', '1.1.0')), 404, 'it is held');
  t.is(await status(nupkg('denied', '1.0.0')), 403);
  t.is(await status(nupkg('forked', '1.0.0')), 502);
});

test('a predecessor that leads to a private address of another host is not followed', async (t) => {
  const front = await startFaultyUpstream(t);
  const secret = await startFaultyUpstream(t);
  secret.on('/', answer(200, {}, '{"version":"3.0.0","resources":[]}'));
  front.on('/v3/index.json', answer(302, { location: `http://localhost:${secret.url.port}/` }));
  const predecessors = [{ name: 'old', kind: 'nuget', url: `${front.url.origin}/v3/index.json` }];
  const here = await startTestServer(t, { predecessors });
  await t.throwsAsync(readNames(here), { message: /an address that is refused/ });
  t.is(secret.asked.length, 0);
  t.is((await here.fetch(nupkg('contoso.core', '1.0.0'))).status, 502);
  // Only for its account.
  const stranger = await tokenOf(here, ['read'], 'stranger');
  t.is((await here.fetch(nupkg('contoso.core', '1.0.0'), { token: stranger })).status, 404);
});
