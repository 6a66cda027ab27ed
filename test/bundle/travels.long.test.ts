import test from 'ava';
import { startAirGap, siteAt, trustedKey } from '../support/bundles.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { putPolicy } from '../support/policy.ts';
import { json } from '../support/upstreams/upstream-feed.ts';
import { ociManifest } from '../support/registry.ts';

// What travels with the content: dates, history, advisories, deprecations, referrers, marks, a policy.

test('publish dates and first-seen dates travel, so that a minimum age at the far side counts them', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: '2020-01-01T00:00:00Z' },
      { version: '2.0.0', published: new Date().toISOString() },
    ],
  });
  registry.image('library/app', '1');
  const list = await file('list.txt', 'Lib@1.0.0\nLib@2.0.0\napp:1\n');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key);
  const { far } = gap;
  const server = await far.serve();
  // What was open before a policy stays open.
  server.clock.now = Date.now() - 10 * 86_400_000;
  t.is((await putPolicy(server, { minimumAge: { packages: '3d', images: '1h' } }, { layer: 'all' })).status, 200);
  server.clock.now = undefined;
  await far.ok('bundle', 'import', path('bundle'));
  t.deepEqual(await (await server.fetch('/v3/package/lib/index.json')).json(), { versions: ['1.0.0'] });
  t.is((await server.fetch('/v2/app/manifests/1')).status, 403, 'seen less than an hour ago');
  server.clock.now = Date.now() + 2 * 3_600_000;
  t.is((await server.fetch('/v2/app/manifests/1')).status, 200, 'its age counts from the near side');
  await server.close();
});

test('advisories, deprecations, referrers and the history of a tag are at the far side', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms' });
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({
    id: 'Lib',
    versions: [{ version: '1.0.0', entry: { deprecation: { reasons: ['Legacy'], message: 'use Other' } } }],
  });
  const page = `${feed.url}/vulnerabilities/base.json`;
  feed.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'base', '@id': page, '@updated': '2026-01-01T00:00:00Z' }]),
  );
  feed.upstream.on(
    '/vulnerabilities/base.json',
    json({ lib: [{ severity: 2, url: 'https://advisory.test/7', versions: '[1.0.0]' }] }),
  );
  const first = registry.image('library/app', 'latest');
  const list = await file('list.txt', 'Lib@1.0.0\napp:latest\n');
  await near.ok('bundle', 'create', list, '--to', path('first'), '--key', key);
  const second = registry.image('library/app', 'latest');
  const config = registry.blob('library/app', '{}', 'application/vnd.oci.empty.v1+json');
  const signature = registry.manifest('library/app', {
    schemaVersion: 2,
    mediaType: ociManifest,
    artifactType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    config,
    layers: [registry.blob('library/app', '{"signature":1}', 'application/vnd.dev.sigstore.bundle.v0.3+json')],
    subject: { mediaType: ociManifest, digest: second.manifest.digest, size: second.manifest.size },
  });
  const index = { schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests: [signature] };
  registry.on(`/v2/library/app/referrers/${second.manifest.digest}`, json(index));
  await near.ok('bundle', 'create', list, '--to', path('second'), '--key', key);
  await far.ok('bundle', 'import', path('first'));
  await far.ok('bundle', 'import', path('second'));

  const server = await far.serve();
  const vulnerabilities = (await (await server.fetch('/v3/vulnerabilities/index.json')).json()) as { '@id': string }[];
  const pages = await Promise.all(
    vulnerabilities.map(async (each) => (await server.fetch(new URL(each['@id']).pathname)).text()),
  );
  t.true(pages.some((each) => each.includes('https://advisory.test/7')));
  const registration = await (await server.fetch('/v3/registration-gz-semver2/lib/index.json')).text();
  t.true(registration.includes('use Other'));
  const referrers = (await (await server.fetch(`/v2/app/referrers/${second.manifest.digest}`)).json()) as {
    manifests: { digest: string }[];
  };
  t.deepEqual(
    referrers.manifests.map(({ digest }) => digest),
    [signature.digest],
  );
  t.is((await server.fetch(`/v2/app/manifests/${signature.digest}`)).status, 200);
  const history = (await (await server.fetch('/v2/app/_oci/tag-history/latest')).json()) as object;
  t.true(JSON.stringify(history).includes(first.manifest.digest));
  t.true(JSON.stringify(history).includes(second.manifest.digest));
  await server.close();
});

test('a bundle has what the policy of its source gives: of a tag that moved, the earlier digest', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms' });
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: '2020-01-01T00:00:00Z' },
      { version: '2.0.0', published: new Date().toISOString() },
    ],
  });
  const first = registry.image('library/app', '1');
  const from = await near.serve();
  const digestOf = async (server: typeof from) =>
    (await server.fetch('/v2/app/manifests/1')).headers.get('docker-content-digest');
  from.clock.now = Date.now() - 10 * 86_400_000;
  t.is(await digestOf(from), first.manifest.digest);
  t.is((await putPolicy(from, { minimumAge: { packages: '3d', images: '3d' } }, { layer: 'all' })).status, 200);
  from.clock.now = undefined;
  const second = registry.image('library/app', '1');
  t.is(await digestOf(from), first.manifest.digest, 'the new one is too young');
  await from.close();
  const list = await file('list.txt', 'app:1\nLib@1.0.0\n');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key);
  const young = await file('young.txt', `app@${second.manifest.digest}\nLib@2.0.0\n`);
  const refused = await near.run('bundle', 'create', young, '--to', path('young'), '--key', key);
  t.is(refused.code, 1);
  t.regex(refused.stderr, /2 missing, so no bundle was written/);

  await far.ok('bundle', 'import', path('bundle'));
  const to = await far.serve();
  t.is(await digestOf(to), first.manifest.digest);
  t.is((await to.fetch(`/v2/app/manifests/${first.manifest.digest}`)).status, 200);
  t.is((await to.fetch(`/v2/app/manifests/${second.manifest.digest}`)).status, 502, 'it is not in the bundle');
  t.is((await to.fetch('/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 504);
  await to.close();
});

test('a policy travels if it is asked for, and is applied by hand', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  await near.ok('token', 'create', '--name', 'x');
  await near.ok('policy', 'apply', await file('policy.yaml', 'minimumAge: { packages: 3d }\n'));
  await near.ok(
    'bundle',
    'create',
    await file('list.txt', 'Lib@1.0.0'),
    '--to',
    path('bundle'),
    '--key',
    key,
    '--policy',
  );
  t.regex(
    await far.ok('bundle', 'import', path('bundle')),
    /the bundle has a policy: ".*bundle inspect --policy" prints it/,
  );
  t.notRegex(await far.ok('policy', 'show'), /3d/);
  const policy = await far.ok('bundle', 'inspect', path('bundle'), '--policy');
  await far.ok('policy', 'apply', await file('far.yaml', policy));
  t.regex(await far.ok('policy', 'show'), /3d/);
});

test('lists of known bad content travel if it is asked for, and deny nothing before a policy names them', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const versions = ['1.0.0', '2.0.0', '3.0.0'].map((version) => ({ version }));
  for (const id of ['Lib', 'Own', 'Good']) await feed.offer({ id, versions });
  const image = registry.image('library/app', '1');
  registry.image('library/evil', '1');
  const list = await file('list.txt', 'Lib@1.0.0\nLib@2.0.0\nOwn@1.0.0\nOwn@3.0.0\nGood@1.0.0\napp:1\nevil:1\n');
  const bundled = (name: string, ...more: string[]) =>
    near.run('bundle', 'create', list, '--to', path(name), '--key', key, ...more);
  await near.ok('token', 'create', '--name', 'x');
  t.regex((await bundled('none', '--known-bad')).stderr, /names no list of known bad content/);
  const events = [{ introduced: '0' }, { fixed: '2.0.0' }];
  const records = [
    osv('MAL-2', 'Lib', {
      affected: [{ package: { ecosystem: 'NuGet', name: 'Lib' }, ranges: [{ type: 'SEMVER', events }] }],
    }),
    osv('MAL-1', 'Other', { affected: [{ package: { ecosystem: 'NuGet', name: 'Other' }, versions: ['7.0.0'] }] }),
    osv('GHSA-1', 'Good'),
    osv('MAL-3', 'Good', { withdrawn: '2026-01-01T00:00:00Z' }),
  ];
  const own = {
    id: 'SEC-1',
    reason: 'it <sends> keys',
    packages: [{ id: 'Own', versions: '[2.0, 4.0)' }],
    images: ['docker.io/library/ev*'],
  };
  const digests = { id: 'SEC-2', digests: [image.manifest.digest] };
  await near.ok('bundle', 'create', list, '--to', path('before'), '--key', key);
  // Read after the content was fetched, so that all of it can travel.
  const osvFile = await file('osv.jsonl', linesOf(records));
  const ownFile = await file('own.jsonl', linesOf([own, digests]));
  await near.ok(
    'policy',
    'apply',
    await file(
      'near.yaml',
      named([
        { name: 'osv', file: osvFile, mode: 'audit' },
        { name: 'own', file: ownFile, mode: 'audit' },
      ]),
    ),
  );
  t.regex((await bundled('unread', '--known-bad')).stderr, /The list osv of known bad content was never read/);
  await near.ok('jobs', 'run', 'known-bad');
  const made = await bundled('bundle', '--known-bad');
  t.is(made.code, 0, made.stderr);

  const told = /osv \(2 records\), own \(2 records\)/;
  t.regex(await far.ok('bundle', 'import', path('bundle')), told);
  t.regex(await far.ok('bundle', 'inspect', path('bundle')), told);
  t.notRegex(await far.ok('bundle', 'inspect', path('before')), /known bad/);
  t.regex(
    await far.fails('bundle', 'inspect', path('before'), '--known-bad', 'osv'),
    /no list of known bad content with the name osv/,
  );
  const carried = (name: string) => far.ok('bundle', 'inspect', path('bundle'), '--known-bad', name);
  t.regex(await carried('osv'), /^\{"id":"MAL-1".*\n\{"id":"MAL-2".*\n$/);
  const server = await far.serve();
  const status = async (at: string) => (await server.fetch(at)).status;
  const [lib, own1, own3] = ['lib/1.0.0/lib.1.0.0', 'own/1.0.0/own.1.0.0', 'own/3.0.0/own.3.0.0'];
  const all = [lib, own1, own3, 'lib/2.0.0/lib.2.0.0', 'good/1.0.0/good.1.0.0'].map(
    (each) => `/v3/package/${each}.nupkg`,
  );
  const images = ['/v2/app/manifests/1', '/v2/evil/manifests/1'];
  const statuses = () => Promise.all([...all, ...images].map(status));
  t.deepEqual(await statuses(), [200, 200, 200, 200, 200, 200, 200], 'an import denies nothing');
  await server.close();

  const files = {
    osv: await file('far-osv.jsonl', await carried('osv')),
    own: await file('far-own.jsonl', await carried('own')),
  };
  const lists = Object.entries(files).map(([name, each]) => ({ name, file: each }));
  await far.ok('policy', 'apply', await file('far.yaml', named(lists)));
  await far.ok('jobs', 'run', 'known-bad');
  const denying = await far.serve();
  const after = await Promise.all([...all, ...images].map(async (at) => (await denying.fetch(at)).status));
  t.deepEqual(after, [403, 200, 403, 200, 200, 403, 403]);
  t.regex((await denying.fetch(all[2]!)).statusText, /SEC-1/);
  const [shown] = ((await (await denying.fetch('/v1/bundles')).json()) as { items: { known_bad: object[] }[] }).items;
  t.deepEqual(shown!.known_bad, [
    { name: 'osv', records: 2 },
    { name: 'own', records: 2 },
  ]);
  // A bundle that has no list, or others, changes nothing of what is denied.
  await far.ok('bundle', 'import', path('before'), '--older');
  t.is((await denying.fetch(all[0]!)).status, 403);
  await denying.close();
});

test('an upstream that the far side lacks is named', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  await near.ok('bundle', 'create', await file('list.txt', 'Lib@1.0.0'), '--to', path('bundle'), '--key', key);
  const bare = siteAt(t, path('bare'), []);
  await bare.ok('bundle', 'trust', 'add', `${key}.pub`);
  t.regex(
    await bare.fails('bundle', 'import', path('bundle')),
    /the upstream feed\.test \(nuget\), which the settings lack here.*mode: offline/,
  );
});

/** A policy that names lists. */
function named(lists: object[]): string {
  return JSON.stringify({ knownBad: { lists } });
}
