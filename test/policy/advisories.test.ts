import test, { type ExecutionContext } from 'ava';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// A policy that denies versions with known vulnerabilities, by their severity.

async function setPolicy(server: TestServer, policy: object): Promise<number> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify(policy);
  return (await server.fetch('/v1/policy?layer=all', { method: 'PUT', headers, body })).status;
}

const of = (id: string, severity: number, versions: string) => ({
  url: `https://advisories.test/${id}`,
  severity,
  versions,
});
const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;

async function start(t: ExecutionContext) {
  const feed = await UpstreamFeed.start(t);
  for (const id of ['High', 'Low', 'None'])
    await feed.offer({ id, versions: ['1.0.0', '1.5.0', '2.0.0'].map((version) => ({ version })) });
  const page = `${feed.url}/vulnerabilities/base.json`;
  const updated = '2026-05-01T00:00:00Z';
  feed.upstream.on('/vulnerabilities/index.json', json([{ '@name': 'base', '@id': page, '@updated': updated }]));
  feed.upstream.on(
    '/vulnerabilities/base.json',
    json({
      HIGH: [of('GHSA-high', 2, '[1.5.0, 2.0.0)'), of('GHSA-critical', 3, '[1.5.0, 2.0.0)'), of('GHSA-low', 0, '(, )')],
      low: [of('GHSA-moderate', 1, '[1.5.0]')],
    }),
  );
  const server = await startTestServer(t, { upstreams: [feed.as('feed.test')] });
  const statusOf = async (id: string, version: string) => (await server.fetch(nupkg(id, version))).status;
  const all = async () => {
    const found: number[] = [];
    for (const id of ['high', 'low', 'none'])
      for (const version of ['1.0.0', '1.5.0', '2.0.0']) found.push(await statusOf(id, version));
    return found;
  };
  return { feed, server, all };
}

test('versions with a vulnerability from a severity on are denied, with its ID', async (t) => {
  const { server, all } = await start(t);
  t.deepEqual(await all(), Array(9).fill(200), 'all of it is stored');
  t.is(await setPolicy(server, { advisories: { severity: 'high' } }), 200);
  t.deepEqual(await all(), [200, 403, 200, 200, 200, 200, 200, 200, 200]);
  t.is(
    (await server.fetch(nupkg('high', '1.5.0'))).statusText,
    'The policy refuses high: it has a known vulnerability of the severity critical (GHSA-critical).',
  );
  const { versions } = (await (await server.fetch('/v3/package/high/index.json')).json()) as { versions: string[] };
  t.deepEqual(versions, ['1.0.0', '1.5.0', '2.0.0']);
  await setPolicy(server, { advisories: { severity: 'moderate' } });
  t.deepEqual(await all(), [200, 403, 200, 200, 403, 200, 200, 200, 200]);
  await setPolicy(server, {
    advisories: { severity: 'low' },
    rules: [{ name: 'x', packages: ['*'], verdict: 'allow' }],
  });
  t.deepEqual(await all(), [403, 403, 403, 200, 403, 200, 200, 200, 200], 'an allow lifts the age only');
  await setPolicy(server, {});
  t.deepEqual(await all(), Array(9).fill(200));
});

test('an advisory that is excepted denies nothing, the others of the version do', async (t) => {
  const { server } = await start(t);
  const denial = async () => (await server.fetch(nupkg('high', '1.5.0'))).statusText;
  await setPolicy(server, { advisories: { severity: 'high', except: ['ghsa-CRITICAL'] } });
  t.regex(await denial(), /severity high \(GHSA-high\)/);
  await setPolicy(server, { advisories: { severity: 'high', except: ['GHSA-critical', 'GHSA-high'] } });
  t.is(await denial(), 'OK');
});

test('data of a package that is too long is a failure of its upstream, and other packages are served', async (t) => {
  const { feed, server } = await start(t);
  const advisory = { url: `https://advisories.test/${'x'.repeat(500)}`, severity: 0, versions: '[9.0.0]' };
  feed.upstream.on('/vulnerabilities/base.json', json({ high: Array.from({ length: 500 }, () => advisory) }));
  await setPolicy(server, { advisories: { severity: 'high' } });
  t.is((await server.fetch(nupkg('high', '2.0.0'))).status, 502);
  t.is((await server.fetch(nupkg('low', '2.0.0'))).status, 200);
});

test('audit mode only counts them, and an explanation names the advisory', async (t) => {
  const { server, all } = await start(t);
  await setPolicy(server, { mode: 'audit', advisories: { severity: 'high' } });
  t.deepEqual(await all(), Array(9).fill(200));
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="deny",mode="audit"\} 1/);
  const path = '/v1/explain?kind=package&name=High&reference=1.5.0';
  t.like(await (await server.fetch(path)).json(), {
    verdict: 'allow',
    audited: { verdict: 'deny', rule: 'advisories', list: null },
  });
});

test('if the vulnerability data cannot be read, packages fail as their upstream does, and in audit mode they do not', async (t) => {
  const { feed, server } = await start(t);
  feed.upstream.on('/vulnerabilities/base.json', (_request, response) => void response.writeHead(503).end());
  await setPolicy(server, { mode: 'audit', advisories: { severity: 'high' } });
  t.is((await server.fetch(nupkg('none', '1.0.0'))).status, 200);
  await setPolicy(server, { advisories: { severity: 'high' } });
  for (const path of [nupkg('none', '1.0.0'), nupkg('high', '2.0.0'), '/v3/package/none/index.json'])
    t.is((await server.fetch(path)).status, 502, path);
});
