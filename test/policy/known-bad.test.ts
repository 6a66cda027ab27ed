import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { applyPolicy, createToken, flushUsage, runJob } from '../support/inside.ts';
import { hour, linesOf, osv } from '../support/known-bad.ts';
import { parseMetrics } from '../support/metrics.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What clients of both protocols get of mirrored content that a list of known bad content names.

/** A server with two upstreams and a list in a file, which `replace` writes and the server then reads. */
async function start(
  t: ExecutionContext,
  records: readonly unknown[],
  { dialect = 'sqlite', ...list }: { dialect?: (typeof dialects)[number]; mode?: string; except?: string[] } = {},
) {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const file = join(await folderUntilEnd(t), 'list.jsonl');
  const server = await startTestServer(t, {
    database: { url: await temporaryDatabase(t, dialect) },
    upstreams: [feed.as('feed.test'), registry.settings('registry.test', { freshFor: '1s' })],
  });
  server.clock.now = Date.UTC(2026, 10, 25);
  const knownBad = { lists: [{ name: 'osv', file, ...list }] };
  await applyPolicy(server, { knownBad });
  const replace = async (next: readonly unknown[]) => {
    await writeFile(file, next.length === 0 ? '[]' : linesOf(next));
    server.clock.now! += 6 * hour;
    await runJob(server, 'known-bad');
  };
  await replace(records);
  return { feed, registry, server, replace, knownBad };
}

const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;
const path = (name: string, reference: string, kind = 'manifests') => `/v2/registry.test/${name}/${kind}/${reference}`;
/** Reads the whole answer: only then is what was fetched stored. */
async function statusOf(server: TestServer, path: string, method = 'GET'): Promise<number> {
  const response = await server.fetch(path, { method });
  await response.arrayBuffer();
  return response.status;
}

async function putPolicy(server: TestServer, policy: object, layer = 'all'): Promise<[number, string | undefined]> {
  const init = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: JSON.stringify(policy) };
  const response = await server.fetch(`/v1/policy?layer=${layer}`, init);
  return [response.status, ((await response.json()) as { detail?: string }).detail];
}

const since2 = {
  affected: [
    { package: { ecosystem: 'NuGet', name: 'Lib' }, ranges: [{ type: 'SEMVER', events: [{ introduced: '2.0' }] }] },
  ],
};

for (const dialect of dialects) {
  test(`${dialect}: versions that a list names are refused with its ID, also stored ones, until it takes them back`, async (t) => {
    const { feed, server, replace } = await start(t, [], { dialect });
    await feed.offer({ id: 'Lib', versions: ['1.0.0', '2.0.0', '2.1.0'].map((version) => ({ version })) });
    await feed.offer({ id: 'Other', versions: [{ version: '2.0.0' }] });
    t.is(await statusOf(server, nupkg('lib', '2.0.0')), 200);
    await replace([osv('MAL-2026-1', 'LIB', { ...since2, summary: 'Malicious code in Lib (NuGet).\nKeys.' })]);
    for (const version of ['2.0.0', '2.1.0']) {
      const refused = await server.fetch(nupkg('lib', version));
      t.is(refused.status, 403);
      t.is(
        refused.statusText,
        'The policy refuses lib: it is known to be bad (MAL-2026-1): Malicious code in Lib (NuGet). Keys.',
      );
      t.is(await statusOf(server, nupkg('lib', version), 'HEAD'), 403);
      t.is(await statusOf(server, `/v3/package/lib/${version}/lib.nuspec`), 403);
    }
    t.is(await statusOf(server, nupkg('lib', '1.0.0')), 200);
    t.is(await statusOf(server, nupkg('other', '2.0.0')), 200);
    const { value: token } = await createToken(server, ['read'], 'team');
    t.is((await server.fetch(nupkg('lib', '2.0.0'), { token })).status, 403, 'in every account');
    const { versions } = (await (await server.fetch('/v3/package/lib/index.json')).json()) as { versions: string[] };
    t.deepEqual(versions, ['1.0.0', '2.0.0', '2.1.0'], 'lists show it, so that no client takes another version');

    await replace([osv('MAL-2026-1', 'Lib', { ...since2, withdrawn: '2026-05-02T00:00:00Z' })]);
    for (const version of ['2.0.0', '2.1.0']) t.is(await statusOf(server, nupkg('lib', version)), 200);
  });

  test(`${dialect}: images that a list names by digest, name or pattern are refused with all their layers`, async (t) => {
    const { registry, server, replace } = await start(t, [], { dialect });
    const [bad, good] = [registry.image('team/app', 'latest'), registry.image('team/app', 'v1')];
    registry.image('evil/one', 'latest');
    registry.image('named', 'latest');
    const everything = [
      path('team/app', 'latest'),
      path('team/app', bad.manifest.digest),
      path('team/app', bad.layer.digest, 'blobs'),
      path('evil/one', 'latest'),
      path('named', 'latest'),
    ];
    for (const each of everything) t.is(await statusOf(server, each), 200, 'all of it is stored');
    t.is(await statusOf(server, path('team/app', 'v1')), 200);
    await replace([
      { id: 'SEC-1', reason: 'a miner', digests: [bad.manifest.digest] },
      { id: 'SEC-2', images: ['registry.test/evil/*', 'registry.test/NAMED'] },
    ]);
    for (const each of everything) {
      t.is(await statusOf(server, each), 403, each);
      t.is(await statusOf(server, each, 'HEAD'), 403, each);
    }
    const refused = await server.fetch(everything[0]!);
    const { errors } = (await refused.json()) as { errors: { code: string; message: string }[] };
    const message = 'The policy refuses registry.test/team/app: it is known to be bad (SEC-1): a miner.';
    t.like(errors[0], { code: 'DENIED', message });
    t.is(refused.statusText, message);
    t.is(await statusOf(server, path('team/app', 'v1')), 200, 'another digest');
    t.is(await statusOf(server, path('team/app', good.layer.digest, 'blobs')), 200);
    const list = JSON.stringify({ name: 'team/app', tags: ['latest', 'v1'] });
    registry.on('/v2/team/app/tags/list', (_, response) => void response.end(list));
    const { tags } = (await (await server.fetch('/v2/registry.test/team/app/tags/list')).json()) as { tags: string[] };
    t.deepEqual(tags, ['latest', 'v1']);

    const next = registry.image('team/app', 'latest');
    server.clock.now! += 2000;
    const moved = await server.fetch(path('team/app', 'latest'));
    t.deepEqual([moved.status, moved.headers.get('docker-content-digest')], [200, next.manifest.digest]);
    t.is(await statusOf(server, path('team/app', bad.manifest.digest)), 403);

    await replace([{ id: 'SEC-3', digests: [good.layer.digest] }]);
    t.is(await statusOf(server, path('team/app', good.layer.digest, 'blobs')), 403, 'a layer by its own digest');
    for (const each of everything) t.is(await statusOf(server, each), 200, each);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: an event names the content in use that a list denies from now on, once`, async (t) => {
    const { feed, registry, server, replace } = await start(t, [osv('MAL-0', 'other')], { dialect });
    await feed.offer({ id: 'Lib', versions: ['1.0.0', '2.0.0', '2.1.0'].map((version) => ({ version })) });
    for (const version of ['1.0.0', '2.1.0']) await statusOf(server, nupkg('lib', version));
    const image = registry.image('team/app', 'latest');
    const evil = registry.image('evil/one', 'v1');
    registry.image('team/unused', 'v1');
    const pulled = [path('team/app', 'latest'), path('evil/one', 'v1'), path('evil/one', evil.layer.digest, 'blobs')];
    for (const each of pulled) t.is(await statusOf(server, each), 200);
    const records = [
      osv('MAL-1', 'lib', since2),
      { id: 'SEC-1', digests: [image.manifest.digest] },
      { id: 'SEC-2', images: ['registry.test/evil/*', 'registry.test/team/unused'] },
      { id: 'SEC-3', digests: [evil.layer.digest, image.layer.digest] },
    ];
    await replace(records);
    const found = async () => {
      const events = await auditOf(server, 'type=known_bad.in_use');
      return events.map(({ subject, details }) => {
        const { id, references } = details as { id: string; references: string[] };
        return `${id} ${subject.kind} ${subject.name} ${references.toSorted().join(' ')}`;
      });
    };
    const told = (await eventually(found, (all) => all.length >= 4)).toSorted();
    t.deepEqual(told, [
      'MAL-1 package lib 2.1.0',
      `SEC-1 container registry.test/team/app latest ${image.manifest.digest}`,
      `SEC-2 container registry.test/evil/one ${[evil.manifest.digest, evil.layer.digest].toSorted().join(' ')} v1`,
      `SEC-3 container registry.test/evil/one ${evil.layer.digest}`,
    ]);
    const inUse = await auditOf(server, 'type=known_bad.in_use');
    const running = inUse.find(({ details }) => details['id'] === 'SEC-1');
    t.deepEqual(running!.details['digests'], [image.manifest.digest]);
    const doctor = await examine(server.installation, server.clock.time);
    const { isNote, text } = doctor.find(({ subject }) => subject === 'list osv')!;
    t.true(isNote);
    t.regex(text, /It names content that clients used in the last 30 days: /);
    for (const each of ['lib 2.1.0 (MAL-1)', `registry.test/team/app ${image.manifest.digest} (SEC-1)`])
      t.true(text.includes(each), text);
    const metrics = async () => parseMetrics(await (await server.fetch('/metrics')).text());
    const gauge = 'entrepot_known_bad_list_in_use';
    const shown = await eventually(metrics, (each) => (each.value(gauge, { list: 'osv' }) ?? 0) > 0);
    t.is(shown.value(gauge, { list: 'osv' }), 3);
    await replace([...records, osv('MAL-2', 'unused')]);
    t.is((await found()).length, 4, 'not again');
    const refreshed = await auditOf(server, 'type=known_bad.refreshed');
    t.deepEqual(
      refreshed.map(({ details }) => details['in_use']),
      [0, 4, 0],
    );
  });
}

test('an entry that has an official image of Docker Hub without library/ denies it, and tells who has it', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { digest } = registry.image('library/alpine', 'v1').manifest;
  const file = join(await folderUntilEnd(t), 'list.jsonl');
  const server = await startTestServer(t, { upstreams: [registry.settings('docker.io')] });
  server.clock.now = Date.UTC(2026, 10, 25);
  await writeFile(file, '[]');
  await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file }] } });
  const image = '/v2/docker.io/alpine/manifests/v1';
  t.is(await statusOf(server, image), 200);
  await runJob(server, 'known-bad');
  await flushUsage(server);
  await runJob(server, 'exposure');
  await writeFile(
    file,
    linesOf([
      { id: 'SEC-1', images: ['docker.io/alpine'] },
      { id: 'SEC-2', images: ['docker.io/alp*'] },
      { id: 'SEC-3', images: ['docker.io/library/alpine', 'docker.io/*/alpine'] },
      { id: 'SEC-4', images: ['alpine', 'docker.io/library/busybox', 'quay.io/alpine'] },
    ]),
  );
  server.clock.now += 6 * hour;
  await runJob(server, 'known-bad');
  t.is(await statusOf(server, image), 403);
  await runJob(server, 'exposure');
  const told = async (type: string) => {
    const events = await auditOf(server, `type=${type}`);
    return events.map(({ subject, details }) => `${String(details['id'])} ${subject.name}`).toSorted();
  };
  const three = ['SEC-1', 'SEC-2', 'SEC-3'].map((id) => `${id} docker.io/library/alpine`);
  t.deepEqual(await told('known_bad.in_use'), three);
  t.deepEqual(await told('exposure.found'), three);
  for (const id of ['SEC-1', 'SEC-2', 'SEC-3', 'SEC-4']) {
    const { items } = (await (await server.fetch(`/v1/exposed?what=${id}`)).json()) as {
      items: { reference: string }[];
    };
    t.deepEqual(
      items.map(({ reference }) => reference),
      id === 'SEC-4' ? [] : [digest],
      id,
    );
  }
});

const refusedPush = (id: string) => [403, `The policy refuses team/good: it is known to be bad (${id}).`];

test('nobody can push, mount or upload content that a list names by its digest', async (t) => {
  const { server, replace, knownBad } = await start(t, []);
  const [bad, good] = [new TestRepository(server, 'team/bad'), new TestRepository(server, 'team/good')];
  const image = await bad.image('v1');
  const manifest = await (await bad.fetch('manifests/v1')).text();
  const { layers } = JSON.parse(manifest) as { layers: { digest: string }[] };
  const headers = { 'content-type': ociManifest };
  const push = async () => {
    const response = await good.fetch('manifests/v1', { method: 'PUT', headers, body: manifest });
    return [response.status, response.statusText];
  };
  const layer = layers[0]!.digest;
  await replace([{ id: 'SEC-1', digests: [image.digest] }]);
  t.deepEqual(await push(), refusedPush('SEC-1'), 'by its own digest, and not for the layers that are missing');
  t.is(await statusOf(server, '/v2/team/bad/manifests/v1'), 200, 'what is hosted already stays');
  await replace([{ id: 'SEC-2', digests: [layer] }]);
  t.deepEqual(await push(), refusedPush('SEC-2'), 'by a layer');
  for (const query of [`mount=${layer}&from=team/bad`, `digest=${layer}`])
    t.is((await good.fetch(`blobs/uploads/?${query}`, { method: 'POST' })).status, 403, query);
  const { headers: started } = await good.fetch('blobs/uploads/', { method: 'POST' });
  const finish = await server.fetch(`${started.get('location')}?digest=${layer}`, { method: 'PUT', body: 'x' });
  t.is(finish.status, 403);
  await putPolicy(server, { mode: 'audit', knownBad });
  t.is((await good.fetch(`blobs/uploads/?mount=${layer}&from=team/bad`, { method: 'POST' })).status, 201);
});

test('an image of an index that a list names is refused, and the index is not', async (t) => {
  const { registry, server, replace } = await start(t, []);
  const child = registry.image('team/app', 'child');
  const manifests = [{ mediaType: ociManifest, digest: child.manifest.digest, size: child.manifest.size }];
  registry.manifest('team/app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'multi');
  await replace([{ id: 'SEC-1', digests: [child.manifest.digest] }]);
  t.is(await statusOf(server, '/v2/registry.test/team/app/manifests/multi'), 200);
  t.is(await statusOf(server, `/v2/registry.test/team/app/manifests/${child.manifest.digest}`), 403);
});

test('a list in audit mode refuses nothing, and what it would refuse is counted', async (t) => {
  const { feed, server } = await start(t, [osv('MAL-1', 'lib')], { mode: 'audit' });
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  t.is(await statusOf(server, nupkg('lib', '1.0.0')), 200);
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="deny",mode="audit"\} 1/);
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="deny",mode="enforce"\} 0/);
});

test('a policy in audit mode refuses nothing by its lists either, and one without the list takes it back', async (t) => {
  const { feed, server, knownBad } = await start(t, [osv('MAL-1', 'lib')]);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const status = () => statusOf(server, nupkg('lib', '1.0.0'));
  t.is(await status(), 403);
  t.deepEqual(await putPolicy(server, { mode: 'audit', knownBad }), [200, undefined]);
  t.is(await status(), 200);
  await putPolicy(server, { knownBad });
  t.is(await status(), 403);
  await putPolicy(server, { knownBad: { lists: [{ ...knownBad.lists[0]!, except: ['MAL-1'] }] } });
  t.is(await status(), 200, 'an exception acts at once');
  await putPolicy(server, {});
  t.is(await status(), 200);
});

const listWith = (more: object) => ({ knownBad: { lists: [{ name: 'own', ...more }] } });
const onlyCommand = (key: string) => new RegExp(`^knownBad\\.lists\\.0\\.${key}: only ".*policy apply" can set this$`);

test('a client cannot make the server read a file or a private address by a list', async (t) => {
  const { server, knownBad } = await start(t, []);
  const [status, reason] = await putPolicy(server, listWith({ file: '/etc/passwd' }));
  t.is(status, 400);
  t.regex(reason!, onlyCommand('file'));
  const url = 'http://127.0.0.1:1/';
  t.regex(
    (await putPolicy(server, listWith({ url, allowPrivateNetwork: true })))[1]!,
    onlyCommand('allowPrivateNetwork'),
  );
  t.is((await putPolicy(server, listWith({ url })))[0], 200, 'the address is checked when it is requested');
  await applyPolicy(server, { knownBad });
  const next = { ...knownBad.lists[0]!, ids: ['*'] };
  t.is((await putPolicy(server, { knownBad: { lists: [next] } }))[0], 200, 'one that a command has set can stay');
  const [ofAccount, why] = await putPolicy(server, listWith({ url }), 'account');
  t.deepEqual([ofAccount, why], [400, 'knownBad.lists: only the policy of all accounts can name lists']);
});

test('an excepted ID refuses nothing, and another one of the same package does', async (t) => {
  const { feed, server, replace } = await start(t, [osv('MAL-1', 'lib')], { except: ['MAL-1'] });
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  t.is(await statusOf(server, nupkg('lib', '1.0.0')), 200);
  await replace([osv('MAL-1', 'lib'), osv('MAL-2', 'lib')]);
  const refused = await server.fetch(nupkg('lib', '1.0.0'));
  t.is(refused.status, 403);
  t.regex(refused.statusText, /\(MAL-2\)/);
});

test('no policy lifts what a list names, and a list does not lift a minimum age', async (t) => {
  const { feed, server, knownBad } = await start(t, [osv('MAL-1', 'lib', since2)]);
  const published = new Date(server.clock.now!).toISOString();
  await feed.offer({ id: 'Lib', versions: ['1.0.0', '2.0.0'].map((version) => ({ version, published })) });
  const rules = [{ name: 'all', packages: ['*'], verdict: 'allow' }];
  await putPolicy(server, { knownBad, rules });
  t.is((await putPolicy(server, { rules }, 'account'))[0], 200);
  t.is(await statusOf(server, nupkg('lib', '2.0.0')), 403);
  t.is(await statusOf(server, nupkg('lib', '1.0.0')), 200);
  await putPolicy(server, { knownBad, minimumAge: { packages: '3d' } });
  t.is(await statusOf(server, nupkg('lib', '2.0.0')), 403);
  await feed.offer({ id: 'Fresh', versions: [{ version: '2.0.0', published }] });
  t.is(await statusOf(server, nupkg('fresh', '2.0.0')), 404);
});

test('an explanation names the entry and its list, of a tag by its digest', async (t) => {
  const { feed, registry, server, replace } = await start(t, []);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  const { manifest } = registry.image('team/app', 'latest');
  await server.fetch('/v2/registry.test/team/app/manifests/latest');
  await replace([osv('MAL-1', 'lib', since2), { id: 'SEC-1', digests: [manifest.digest] }]);
  const document = await OpenDocument.of(server);
  const explain = async (kind: string, name: string, reference: string) => {
    const path = `/v1/explain?kind=${kind}&name=${name}&reference=${encodeURIComponent(reference)}`;
    return document.read('GET /explain', await server.fetch(path));
  };
  const entry = { verdict: 'deny', layer: 'all', list: 'osv' };
  t.like(await explain('package', 'Lib', '2.0.0'), {
    ...entry,
    rule: 'MAL-1',
    reason: 'it is known to be bad (MAL-1): lib is malware',
  });
  t.like(await explain('package', 'Lib', '1.0.0'), { verdict: 'allow', list: null });
  for (const reference of ['latest', manifest.digest]) {
    t.like(await explain('container', 'registry.test/team/app', reference), {
      ...entry,
      rule: 'SEC-1',
      reason: 'it is known to be bad (SEC-1)',
    });
  }
});
