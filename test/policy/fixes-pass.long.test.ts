import test, { type ExecutionContext } from 'ava';
import { ago, now, putPolicy, versionsOf } from '../support/policy.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, UpstreamFeed, type FeedVersion } from '../support/upstreams/upstream-feed.ts';

// Versions that fix a known vulnerability are not held by the minimum age.

const age = { packages: '3d' };

const old = (version: string, entry = {}): FeedVersion => ({ version, published: ago(100), entry });
const young = (version: string, entry = {}): FeedVersion => ({ version, published: ago(1), entry });
const needs = (id: string, range: string) => ({ dependencyGroups: [{ dependencies: [{ id, range }] }] });
const advisory = (id: string, versions: string, severity = 2) => ({
  url: `https://advisories.test/${id}`,
  severity,
  versions,
});

type Advisories = Record<string, ReturnType<typeof advisory>[]>;

async function registered(server: TestServer, id: string): Promise<string[]> {
  const text = await (await server.fetch(`/v3/registration-gz-semver2/${id}/index.json`)).text();
  return [...new Set([...text.matchAll(/"version":"([^"]+)"/g)].map(([, version]) => version!))];
}

async function statusOf(server: TestServer, id: string, version: string): Promise<number> {
  return (await server.fetch(`/v3/package/${id}/${version}/${id}.${version}.nupkg`)).status;
}

const releasedIn = (server: TestServer) => auditOf(server, 'type=policy.released');

async function start(
  t: ExecutionContext,
  packages: Record<string, readonly FeedVersion[]>,
  advisories: Advisories,
  dialect: (typeof dialects)[number] = 'sqlite',
) {
  const feed = await UpstreamFeed.start(t);
  for (const [id, versions] of Object.entries(packages)) await feed.offer({ id, versions });
  const page = `${feed.url}/vulnerabilities/base.json`;
  const updated = '2026-05-01T00:00:00Z';
  feed.upstream.on('/vulnerabilities/index.json', json([{ '@name': 'base', '@id': page, '@updated': updated }]));
  feed.upstream.on('/vulnerabilities/base.json', json(advisories));
  const server = await startTestServer(t, {
    database: { url: await temporaryDatabase(t, dialect) },
    upstreams: [feed.as('feed.test')],
  });
  server.clock.now = now;
  return { feed, server };
}

for (const dialect of dialects) {
  test(`${dialect}: the version that fixes a known vulnerability is open at once, with one event`, async (t) => {
    const { server } = await start(
      t,
      { Lib: [old('1.0.0'), young('1.0.1'), young('1.0.2'), young('2.0.0')] },
      { lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')] },
      dialect,
    );
    await putPolicy(server, { minimumAge: { ...age, fixesPass: false } });
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
    t.is(await statusOf(server, 'lib', '1.0.1'), 404);
    await putPolicy(server, { minimumAge: age });
    const explain = async (version: string) =>
      (await server.fetch(`/v1/explain?kind=package&name=Lib&reference=${version}`)).json();
    t.like(await explain('1.0.1'), {
      verdict: 'allow',
      layer: 'all',
      rule: 'fixesPass',
      until: null,
      evidence: ['published 2026-11-24T12:00Z', 'fixes GHSA-aaaa'],
    });
    t.like(await explain('1.0.2'), { verdict: 'hold', rule: 'age' });
    t.deepEqual(await releasedIn(server), [], 'nobody got it yet');

    t.is(await statusOf(server, 'lib', '1.0.1'), 200);
    t.is(await statusOf(server, 'lib', '1.0.2'), 404);
    t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.0.1']);
    t.deepEqual(await registered(server, 'lib'), ['1.0.0', '1.0.1']);
    const [released, ...others] = await releasedIn(server);
    t.deepEqual(others, []);
    t.like(released, {
      subject: { kind: 'package', name: 'lib', version: '1.0.1' },
      details: { layer: 'all', upstream: 'feed.test', advisories: ['GHSA-aaaa'], with: [] },
    });
    const metrics = await (await server.fetch('/metrics')).text();
    t.regex(metrics, /entrepot_policy_releases_total\{layer="all"\} 1\n/);
    t.regex(metrics, /entrepot_policy_releases_total\{layer="account"\} 0\n/);
  });

  test(`${dialect}: what the fix needs of the same release is open with it`, async (t) => {
    const { server } = await start(
      t,
      {
        Foo: [old('1.0.0', needs('Foo.Core', '[1.0.0, )')), young('1.0.1', needs('Foo.Core', '[1.0.1, )'))],
        'Foo.Core': [old('1.0.0'), young('1.0.1'), young('1.0.2')],
        Bar: [
          old('1.0.0', needs('Bar.Old', '[1.0.0, )')),
          young('1.0.1', {
            dependencyGroups: [
              { dependencies: [{ id: 'Bar.New', range: '1.0.1' }] },
              { dependencies: [{ id: 'Bar.Old', range: '1.0.1' }] },
            ],
          }),
        ],
        'Bar.New': [old('1.0.0'), young('1.0.1')],
        'Bar.Old': [old('1.0.0'), { version: '1.0.1', published: ago(2.5) }],
      },
      { foo: [advisory('GHSA-foo', '(, 1.0.1)')], bar: [advisory('GHSA-bar', '(, 1.0.1)')] },
      dialect,
    );
    await putPolicy(server, { minimumAge: age });
    t.deepEqual(await versionsOf(server, 'foo.core'), ['1.0.0'], 'nobody asked for what needs it');
    t.deepEqual(await versionsOf(server, 'foo'), ['1.0.0', '1.0.1']);
    t.deepEqual(await versionsOf(server, 'foo.core'), ['1.0.0', '1.0.1']);
    const path = '/v1/explain?kind=package&name=Foo.Core&reference=1.0.1';
    t.like(await (await server.fetch(path)).json(), {
      rule: 'fixesPass',
      evidence: ['published 2026-11-24T12:00Z', 'foo 1.0.1 needs it, which fixes GHSA-foo'],
    });
    t.is(await statusOf(server, 'foo.core', '1.0.1'), 200);
    t.is(await statusOf(server, 'foo.core', '1.0.2'), 404);
    t.deepEqual(await versionsOf(server, 'bar'), ['1.0.0', '1.0.1']);
    t.deepEqual(await versionsOf(server, 'bar.new'), ['1.0.0'], 'version 1.0.0 did not need it');
    t.deepEqual(await versionsOf(server, 'bar.old'), ['1.0.0'], 'it is of another release');
    t.is((await releasedIn(server)).length, 2);
    await putPolicy(server, { minimumAge: { ...age, fixesPass: false } });
    t.deepEqual(await versionsOf(server, 'foo.core'), ['1.0.0']);
    t.deepEqual(await versionsOf(server, 'foo'), ['1.0.0']);
  });
}

const idOf = (at: number) => `p${at}`;

test('only the lowest version of the same major, at the exclusive end of a range, is a fix', async (t) => {
  const cases: [advisories: string[], versions: FeedVersion[], open: string[]][] = [
    [['[1.0.0, 1.0.0]'], [old('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, )'], [old('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, 1.0.1)'], [old('1.0.0'), young('1.0.2'), young('1.0.3')], ['1.0.2']],
    [['[1.0.0, 1.0.1)'], [old('1.0.0'), old('1.0.1'), young('1.0.2')], []],
    [['[1.0.0, 2.0.1)'], [old('1.0.0'), young('1.0.1'), young('2.0.1')], []],
    [['[1.0.0, 2.0.1)'], [old('1.0.0'), old('2.0.0'), young('2.0.1')], ['2.0.1']],
    [['[1.0.0, 1.0.1)'], [young('1.0.0'), young('1.0.1')], []],
    [['[1.0.0, 1.0.1)'], [old('0.9.0'), young('1.0.1')], []],
    [['(, 1.1.0)'], [old('1.0.0'), young('1.1.1-rc.1'), young('1.1.1')], ['1.1.1']],
    [['(, 1.1.0)'], [old('1.0.0-rc.1'), young('1.1.0-rc.1'), young('1.1.1-rc.1'), young('1.1.1')], ['1.1.1-rc.1']],
    [
      ['[1.0.0, 1.0.1)', '[3.0.0, 3.2.0)'],
      [old('1.0.0'), young('1.0.1'), old('3.1.0'), young('3.2.0')],
      ['1.0.1', '3.2.0'],
    ],
  ];
  const { server } = await start(
    t,
    Object.fromEntries(cases.map(([, versions], at) => [idOf(at), versions])),
    Object.fromEntries(cases.map(([ranges], at) => [idOf(at), ranges.map((each, n) => advisory(`GHSA-${n}`, each))])),
  );
  await putPolicy(server, { minimumAge: age });
  for (const [at, [ranges, versions, open]] of cases.entries()) {
    const expected = versions.filter(({ version, published }) => published === ago(100) || open.includes(version));
    t.deepEqual(
      await versionsOf(server, idOf(at)),
      expected.map(({ version }) => version),
      `${at} ${ranges.join()}`,
    );
  }
});

test('a fix is denied all the same, and each layer decides for itself', async (t) => {
  const { server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1')], Two: [old('1.0.0'), young('1.0.1')] },
    {
      lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')],
      two: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)'), advisory('GHSA-worse', '[1.0.1]', 3)],
    },
  );
  const rules = [{ name: 'no', packages: ['lib'], versions: '[1.0.1]', verdict: 'deny' }];
  await putPolicy(server, { minimumAge: age, rules, advisories: { severity: 'critical' } });
  t.is(await statusOf(server, 'lib', '1.0.1'), 403);
  t.is(await statusOf(server, 'two', '1.0.1'), 403);
  t.deepEqual(await releasedIn(server), []);

  await putPolicy(server, { minimumAge: age });
  const admin = (await createToken(server, ['read', 'admin'], 'team')).value;
  const { status } = await putPolicy(
    server,
    { minimumAge: { ...age, fixesPass: false } },
    { layer: 'account', token: admin },
  );
  t.is(status, 200);
  t.deepEqual(await versionsOf(server, 'lib', admin), ['1.0.0']);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.0.1']);
  await putPolicy(server, { minimumAge: { ...age, fixesPass: false } });
  await putPolicy(server, { minimumAge: age }, { layer: 'account', token: admin });
  t.deepEqual(await versionsOf(server, 'lib', admin), ['1.0.0'], 'the policy of all accounts holds it');
});

test('if vulnerabilities cannot be read, nothing is released and nothing fails', async (t) => {
  const { feed, server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1')] },
    { lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')] },
  );
  feed.upstream.on('/vulnerabilities/base.json', (_request, response) => void response.writeHead(503).end());
  await putPolicy(server, { minimumAge: age });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  t.is(await statusOf(server, 'lib', '1.0.1'), 404);
});

test('a mode that only counts releases nothing and counts no fix', async (t) => {
  const { server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1'), young('1.0.2')] },
    { lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')] },
  );
  await putPolicy(server, { mode: 'audit', minimumAge: age });
  for (const version of ['1.0.1', '1.0.2']) t.is(await statusOf(server, 'lib', version), 200);
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="hold",mode="audit"\} 1\n/);
  t.deepEqual(await releasedIn(server), []);
});
