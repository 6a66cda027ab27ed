import test, { type ExecutionContext } from 'ava';
import { ago, now, putPolicy, versionsOf } from '../support/policy.ts';
import type { Dialect } from '../../src/database/database.ts';
import { auditOf } from '../support/audit.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, UpstreamFeed, type FeedVersion } from '../support/upstreams/upstream-feed.ts';

// Versions that fix a known vulnerability are not held by the minimum age.

export const age = { packages: '3d' };

export const old = (version: string, entry = {}): FeedVersion => ({ version, published: ago(100), entry });
export const young = (version: string, entry = {}): FeedVersion => ({ version, published: ago(1), entry });
const needs = (id: string, range: string) => ({ dependencyGroups: [{ dependencies: [{ id, range }] }] });
export const advisory = (id: string, versions: string, severity = 2) => ({
  url: `https://advisories.test/${id}`,
  severity,
  versions,
});

type Advisories = Record<string, ReturnType<typeof advisory>[]>;

async function registered(server: TestServer, id: string): Promise<string[]> {
  const text = await (await server.fetch(`/v3/registration-gz-semver2/${id}/index.json`)).text();
  return [...new Set([...text.matchAll(/"version":"([^"]+)"/g)].map(([, version]) => version!))];
}

export async function statusOf(server: TestServer, id: string, version: string): Promise<number> {
  return (await server.fetch(`/v3/package/${id}/${version}/${id}.${version}.nupkg`)).status;
}

export const releasedIn = (server: TestServer) => auditOf(server, 'type=policy.released');

export async function start(
  t: ExecutionContext,
  packages: Record<string, readonly FeedVersion[]>,
  advisories: Advisories,
  dialect: Dialect = 'sqlite',
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

/** What a fix opens, on one database. */
export function fixesOn(dialect: Dialect): void {
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
