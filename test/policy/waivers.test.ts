import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { ago, day, now, putPolicy, startMirrors } from '../support/policy.ts';
import { auditOf, said } from '../support/audit.ts';
import type { Dialect } from '../../src/database/database.ts';
import { dialects } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { applyPolicy, createToken, runJob, tokenOf } from '../support/inside.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, ociManifest } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';
import { json } from '../support/upstreams/upstream-feed.ts';
import { waivers, wish } from '../support/waivers.ts';

// What waivers let through although a policy refuses it, and who requests and decides them.

async function start(t: ExecutionContext, dialect: Dialect = 'sqlite') {
  const started = await startMirrors(t, dialect);
  return { ...started, reader: await tokenOf(started.server, ['read']) };
}

async function put(server: TestServer, policy: object, layer = 'account', token = server.token) {
  const response = await putPolicy(server, policy, { layer, token });
  if (response.status !== 200) throw new Error(await response.text());
}

const until = (time: number) => ({ expires_at: new Date(time).toISOString() });

/** Requests a waiver with one token and approves it with another; resolves to its ID. */
async function waive(server: TestServer, token: string, body: object, layer = 'account'): Promise<number> {
  const { id, status, detail } = await waivers(server, 'POST', '', { token, body });
  if (status !== 201) throw new Error(detail);
  const approved = await waivers(server, 'POST', `/${id}/approve?layer=${layer}`);
  if (approved.status !== 200) throw new Error(approved.detail);
  return id;
}

const nupkg = (id: string, version: string) => `/v3/package/${id}/${version}/${id}.${version}.nupkg`;
const image = (name: string, reference: string, kind = 'manifests') => `/v2/registry.test/${name}/${kind}/${reference}`;
const statusOf = async (server: TestServer, path: string, token = server.token) =>
  (await server.fetch(path, { token })).status;

for (const dialect of dialects) {
  test(`${dialect}: an approved waiver opens a held version with the next request, until its end`, async (t) => {
    const { feed, server, reader } = await start(t, dialect);
    const published = ago(1);
    await feed.offer({ id: 'Lib', versions: ['1.1.0', '1.2.0', '2.0.0'].map((version) => ({ version, published })) });
    await put(server, { minimumAge: { packages: '99d' } });
    const versions = async () => {
      const response = await server.fetch('/v3/package/lib/index.json');
      return response.status === 404 ? [] : ((await response.json()) as { versions: string[] }).versions;
    };
    const registration = async () => (await server.fetch('/v3/registration-gz-semver2/lib/index.json')).text();
    t.deepEqual(await versions(), []);
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 404);
    t.false((await registration()).includes('1.1.0'));

    const body = wish(server, 'Lib', ['1.1'], 'age');
    const asked = await waivers(server, 'POST', '', { token: reader, body });
    t.like(asked, { status: 201, state: 'requested', references: ['1.1.0'] });
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 404, 'a request opens nothing');
    t.is((await waivers(server, 'POST', `/${asked.id}/approve`, { token: reader })).status, 403);
    t.like(await waivers(server, 'POST', `/${asked.id}/approve`), { status: 200, state: 'approved' });
    t.deepEqual(await versions(), ['1.1.0']);
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 200);
    t.true((await registration()).includes('1.1.0'));
    t.is(await statusOf(server, nupkg('lib', '1.2.0')), 404, 'only what it names');

    server.clock.now = now + 23 * day - 1;
    t.like(await runJob(server, 'waivers'), { announced: 0, ended: 0 });
    server.clock.now = now + 23 * day;
    t.like(await runJob(server, 'waivers'), { announced: 1, ended: 0 });
    t.like(await runJob(server, 'waivers'), { announced: 0, ended: 0 }, 'once');
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 200);
    server.clock.now = now + 30 * day - 1;
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 200);
    server.clock.now = now + 30 * day;
    t.is(await statusOf(server, nupkg('lib', '1.1.0')), 404, 'its end needs no job');
    t.is((await waivers(server, 'GET', `/${asked.id}`)).state, 'ended');
    t.like(await runJob(server, 'waivers'), { ended: 1 });
    t.deepEqual(
      (await auditOf(server, 'type=waiver.*')).map(said),
      ['requested', 'approved', 'expiring', 'ended'].map((each) => `waiver.${each} Lib 1.1.0`),
    );
    server.clock.now = now + 130 * day;
    t.like(await runJob(server, 'waivers'), { deleted: 1 });
    t.is((await waivers(server, 'GET', `/${asked.id}`)).status, 404);
  });

  test(`${dialect}: a waiver of a tag opens its image with all that it names, and does not follow the tag`, async (t) => {
    const { registry, server, reader } = await start(t, dialect);
    const child = registry.image('team/app', 'child');
    const manifests = [{ mediaType: ociManifest, digest: child.manifest.digest, size: child.manifest.size }];
    const index = registry.manifest('team/app', { schemaVersion: 2, mediaType: ociIndex, manifests }, 'multi');
    const other = registry.image('team/app', 'other');
    const opened = [
      image('team/app', 'multi'),
      image('team/app', index.digest),
      image('team/app', child.manifest.digest),
      image('team/app', child.layer.digest, 'blobs'),
    ];
    const closed = [image('team/app', 'other'), image('team/app', other.layer.digest, 'blobs')];
    const check = async (status: number, why: string) => {
      for (const each of opened) t.is(await statusOf(server, each), status, `${why}: ${each}`);
      for (const each of closed) t.is(await statusOf(server, each), 403, `${why}: ${each}`);
    };
    for (const [lifts, policy] of [
      ['age', { minimumAge: { images: '99d' } }],
      ['no-app', { rules: [{ name: 'no-app', images: ['registry.test/team/*'], verdict: 'deny' }] }],
    ] as const) {
      await put(server, policy);
      await check(403, lifts);
      const id = await waive(server, reader, wish(server, 'registry.test/team/app', ['multi'], lifts));
      const { references } = await waivers(server, 'GET', `/${id}`);
      t.deepEqual(references, ['multi', index.digest]);
      await check(200, lifts);
      t.is((await waivers(server, 'DELETE', `/${id}`)).status, 204);
      await check(403, `${lifts} ended`);
    }
    await put(server, { minimumAge: { images: '99d' } });
    await waive(server, reader, wish(server, 'registry.test/team/app', ['multi'], 'age'));
    const moved = registry.image('team/app', 'multi');
    server.clock.now = now + 60_000;
    const pulled = await server.fetch(image('team/app', 'multi'));
    t.deepEqual([pulled.status, pulled.headers.get('docker-content-digest')], [200, index.digest]);
    t.is(await statusOf(server, image('team/app', moved.manifest.digest)), 403);
    await waive(server, reader, wish(server, 'registry.test/team/app', [moved.manifest.digest], 'age'));
    t.is(await statusOf(server, image('team/app', moved.manifest.digest)), 200);
    t.is(await statusOf(server, image('team/app', moved.layer.digest, 'blobs')), 200);
  });
}

test('a waiver lifts the rule, the advisory or the entry that it names, and nothing else', async (t) => {
  const { feed, registry, server, reader } = await start(t);
  const published = ago(1);
  for (const id of ['Lib', 'Bad']) await feed.offer({ id, versions: [{ version: '1.0.0', published }] });
  const updated = '2026-05-01T00:00:00Z';
  const page = `${feed.url}/vulnerabilities/base.json`;
  feed.upstream.on('/vulnerabilities/index.json', json([{ '@name': 'base', '@id': page, '@updated': updated }]));
  const url = 'https://advisories.test/GHSA-one';
  feed.upstream.on('/vulnerabilities/base.json', json({ lib: [{ url, severity: 3, versions: '[1.0.0]' }] }));
  const file = join(await folderUntilEnd(t), 'list.jsonl');
  const named = registry.image('evil/app', 'v1');
  await writeFile(
    file,
    linesOf([osv('MAL-1', 'Bad'), osv('MAL-2', 'Bad'), { id: 'SEC-1', images: ['registry.test/evil/*'] }]),
  );
  const knownBad = { lists: [{ name: 'osv', file }] };
  await applyPolicy(server, { knownBad });
  await runJob(server, 'known-bad');
  await put(server, {
    minimumAge: { packages: '9d' },
    advisories: { severity: 'high' },
    rules: [
      { name: 'age', packages: ['Lib'], verdict: 'deny', reason: 'a rule called age' },
      { name: 'no-lib', packages: ['Lib'], verdict: 'deny', reason: 'see SEC-9' },
    ],
  });
  const said = async (id: string) => {
    const response = await server.fetch(nupkg(id, '1.0.0'));
    return response.status === 403 ? response.statusText : String(response.status);
  };
  const lift = (id: string, lifts: string, layer?: string) =>
    waive(server, reader, wish(server, id, ['1.0.0'], lifts), layer);
  t.regex(await said('lib'), /a rule called age/);
  await lift('Lib', 'no-lib');
  t.regex(await said('lib'), /a rule called age/);
  await lift('Lib', 'age');
  t.regex(await said('lib'), /a rule called age/, 'the word lifts only the age');
  await put(server, {
    minimumAge: { packages: '9d' },
    advisories: { severity: 'high' },
    rules: [{ name: 'no-lib', packages: ['Lib'], verdict: 'deny', reason: 'see SEC-9' }],
  });
  t.regex(await said('lib'), /GHSA-one/);
  await lift('Lib', 'ghsa-ONE');
  t.is(await said('lib'), '200');

  await put(server, {});
  t.regex(await said('bad'), /MAL-1/);
  await lift('Bad', 'MAL-1');
  t.regex(await said('bad'), /MAL-1/, 'the lists belong to the policy of all accounts');
  await lift('Bad', 'MAL-1', 'all');
  t.regex(await said('bad'), /MAL-2/);
  const second = await lift('Bad', 'MAL-2', 'all');
  t.is(await said('bad'), '200');
  await waivers(server, 'DELETE', `/${second}`);
  t.regex(await said('bad'), /MAL-2/, 'an ended one lifts nothing while another one is approved');

  const evil = [
    image('evil/app', 'v1'),
    image('evil/app', named.manifest.digest),
    image('evil/app', named.layer.digest, 'blobs'),
  ];
  for (const each of evil) t.is(await statusOf(server, each), 403);
  await waive(server, reader, wish(server, 'registry.test/evil/app', ['v1'], 'SEC-1'), 'all');
  for (const each of evil) t.is(await statusOf(server, each), 200, each);
});

test('a waiver of one policy opens nothing that the other one refuses, and none of another account', async (t) => {
  const { feed, server } = await start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(1) }] });
  const [reader, admin] = [await tokenOf(server, ['read'], 'team'), await tokenOf(server, ['read', 'admin'], 'team')];
  const age = { minimumAge: { packages: '9d' } };
  await put(server, age, 'all');
  await put(server, age, 'account', admin);
  const ask = async () =>
    (await waivers(server, 'POST', '', { token: reader, body: wish(server, 'Lib', ['1.0.0'], 'age') })).id;
  const status = () => statusOf(server, nupkg('lib', '1.0.0'), reader);
  const own = await ask();
  t.is((await waivers(server, 'POST', `/${own}/approve?layer=all`, { token: admin })).status, 403);
  t.is((await waivers(server, 'POST', `/${own}/approve`)).status, 404, 'the token has another account');
  t.is((await waivers(server, 'POST', `/${own}/approve`, { token: admin })).status, 200);
  t.is(await status(), 404, 'the policy of all accounts holds it');
  const document = await OpenDocument.of(server);
  const operator = await tokenOf(server, ['read', 'operate'], 'team');
  const explain = async () =>
    document.read(
      'GET /explain',
      await server.fetch('/v1/explain?kind=package&name=Lib&reference=1.0.0', { token: operator }),
    );
  t.like(await explain(), {
    verdict: 'hold',
    layer: 'all',
    evidence: [
      'published 2026-11-24T12:00Z',
      `waiver ${own} in the policy of the account, until 2026-12-25T12:00Z, by a test`,
    ],
  });
  const all = await ask();
  t.deepEqual(
    (await waivers(server, 'GET', '?layer=all&state=requested')).items.map(({ id }) => id),
    [all],
    'operators see the requests of all accounts',
  );
  t.deepEqual((await waivers(server, 'GET')).items, [], 'and with their account only those of the account');
  t.is((await waivers(server, 'POST', `/${all}/approve?layer=all`)).status, 200);
  t.is(await status(), 200);
  t.like(await explain(), { verdict: 'allow' });
  t.is(await statusOf(server, nupkg('lib', '1.0.0')), 404, 'another account');
});

test('who may read a name requests a waiver, and somebody else with rights for the name decides it', async (t) => {
  const { feed, server, reader } = await start(t);
  for (const id of ['Lib', 'Other']) await feed.offer({ id, versions: [{ version: '1.0.0', published: ago(1) }] });
  await put(server, { minimumAge: { packages: '9d' } });
  const body = (name: string) => wish(server, name, ['1.0.0'], 'age');
  const limited = (await createToken(server, ['read', 'admin'], 'default', { packages: ['Lib'] })).value;
  const ofTeam = await tokenOf(server, ['read', 'admin'], 'team');
  t.is((await waivers(server, 'POST', '', { token: limited, body: body('Other') })).status, 403);
  t.is((await waivers(server, 'POST', '', { token: null, body: body('Lib') })).status, 401);
  const lib = (await waivers(server, 'POST', '', { token: reader, body: body('Lib') })).id;
  const other = (await waivers(server, 'POST', '', { token: reader, body: body('Other') })).id;
  const listed = async (token: string, query = '') =>
    (await waivers(server, 'GET', query, { token })).items.map(({ id }) => id);
  t.deepEqual(await listed(reader), [other, lib]);
  t.deepEqual(await listed(limited), [lib]);
  t.deepEqual(await listed(ofTeam), []);
  t.deepEqual(await listed(reader, '?limit=1&state=requested'), [other]);
  t.is((await waivers(server, 'GET', '?layer=all', { token: reader })).status, 403);
  for (const [token, id, status] of [
    [limited, other, 404],
    [ofTeam, lib, 404],
    [reader, lib, 403],
  ] as const)
    for (const [method, path] of [
      ['POST', `/${id}/approve`],
      ['POST', `/${id}/reject`],
    ] as const)
      t.is((await waivers(server, method, path, { token })).status, status, path);
  t.is((await waivers(server, 'DELETE', `/${other}`, { token: limited })).status, 404);
  const second = await tokenOf(server, ['read']);
  t.is((await waivers(server, 'DELETE', `/${lib}`, { token: second })).status, 403, 'neither its own nor with admin');
  t.like(await waivers(server, 'GET', `/${lib}`, { token: second }), { is_own: false, requested_by: null });

  const own = (await waivers(server, 'POST', '', { body: body('Lib') })).id;
  for (const path of ['approve', 'reject', 'approve?layer=all'])
    t.like(await waivers(server, 'POST', `/${own}/${path}`), { status: 403, code: 'Denied' });
  t.is((await waivers(server, 'POST', `/${own}/approve`, { token: limited })).status, 200);
  t.is((await waivers(server, 'POST', `/${own}/reject`, { token: limited })).status, 400, 'it is decided');
  t.like(await waivers(server, 'POST', `/${lib}/reject`), { status: 200, state: 'rejected' });
  t.is((await waivers(server, 'POST', `/${lib}/approve`)).status, 400);
  t.is((await waivers(server, 'DELETE', `/${other}`, { token: reader })).status, 204, 'who requested it takes it back');
  t.is((await waivers(server, 'DELETE', `/${other}`, { token: reader })).status, 400);
});

test('who may decide for a name does so without the right to read it', async (t) => {
  const { feed, server, reader } = await start(t);
  for (const id of ['Lib', 'Other']) await feed.offer({ id, versions: [{ version: '1.0.0', published: ago(1) }] });
  await put(server, { minimumAge: { packages: '9d' } });
  const withGrant = async (scopes: string[], patterns: Record<string, string[]> | undefined, given: object) => {
    const { token, value } = await createToken(server, scopes, 'default', patterns);
    const body = JSON.stringify({ subject: { kind: 'token', id: token.id }, ...given });
    const headers = { 'content-type': 'application/json' };
    t.is((await server.fetch('/v1/grants', { method: 'POST', headers, body })).status, 201);
    return value;
  };
  const other = { packages: ['Other'] };
  const admin = await withGrant(['write'], other, { verbs: ['admin'] });
  const reads = await withGrant(['read'], other, { verbs: ['admin'] });
  const operator = await withGrant(['operate'], undefined, { verbs: ['read'], ...other });
  const ask = async () =>
    (await waivers(server, 'POST', '', { token: reader, body: wish(server, 'Lib', ['1.0.0'], 'age') })).id;
  const [first, second, third] = [await ask(), await ask(), await ask()];
  t.deepEqual((await waivers(server, 'GET', '', { token: operator })).items, [], 'it does not read this name');
  const all = await waivers(server, 'GET', '?layer=all', { token: operator });
  t.deepEqual(
    all.items.map(({ id }) => id),
    [third, second, first],
  );
  t.like(await waivers(server, 'POST', `/${first}/approve`, { token: admin }), { status: 200, state: 'approved' });
  const path = `/${second}/approve?layer=all`;
  t.is((await waivers(server, 'POST', path, { token: admin })).status, 403);
  t.like(await waivers(server, 'POST', path, { token: operator }), { status: 200, state: 'approved' });
  t.is((await waivers(server, 'DELETE', `/${first}`, { token: reads })).status, 204);
  t.is((await waivers(server, 'DELETE', `/${second}?layer=all`, { token: operator })).status, 204);
});

test('a request that is not bounded, or that can have no effect, is refused', async (t) => {
  const { feed, registry, server, reader } = await start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  registry.image('team/app', 'v1');
  const ask = (more: object, name = 'Lib') =>
    waivers(server, 'POST', '', { token: reader, body: { ...wish(server, name, ['1.0.0'], 'age'), ...more } });
  for (const [more, why] of [
    [{ references: ['[2.0.0, )'] }, /first and a last version/],
    [{ references: ['(, 2.0.0)'] }, /first and a last version/],
    [{ references: ['(,)'] }, /first and a last version/],
    [{ references: ['[2.0.0, 1'] }, /expected a range/],
    [{ references: ['x'] }, /expected a version/],
    [{ references: [] }, /references/],
    [{ references: Array.from({ length: 51 }, (_, each) => `1.0.${each}`) }, /references/],
    [{ lifts: 'a b' }, /lifts/],
    [{ reason: ' ' }, /reason/],
    [{ reason: 'x'.repeat(501) }, /reason/],
    [until(now), /future/],
    [until(now + 90 * day + 1), /waivers\.longest/],
    [{ expires_at: 'tomorrow' }, /expires_at/],
    [{ kind: 'container' }, /kind/],
    [{ kind: 'image', name: 'registry.test/team/app', references: ['none'] }, /no such tag/],
    [{ kind: 'image', name: 'unknown.test/team/app', references: ['v1'] }, /no upstream/],
    [{ kind: 'image', name: 'registry.test/team/app', references: ['[1.0, 2.0)'] }, /expected a version/],
  ] as const) {
    const { status, detail } = await ask(more);
    t.is(status, 400, JSON.stringify(more).slice(0, 100));
    t.regex(detail, why);
  }
  t.is((await ask({ references: ['[2.0.0, 2.1.0)', '[3.0.0]', '1.0'], ...until(now + 90 * day) })).status, 201);
  for (let each = 1; each < 100; each += 1) t.is((await ask({})).status, 201);
  t.like(await ask({}), { status: 403, code: 'QuotaExceeded' });
  t.is((await waivers(server, 'POST', '', { body: wish(server, 'Lib', ['1.0.0'], 'age') })).status, 201, 'others can');
  t.is((await waivers(server, 'GET', '?limit=50', { token: reader })).items.length, 50);
});

for (const dialect of dialects) {
  test(`${dialect}: a waiver whose time has passed is listed as ended before the job notes it`, async (t) => {
    const { feed, server, reader } = await start(t, dialect);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(1) }] });
    const request = async (days: number) =>
      (await waivers(server, 'POST', '', { token: reader, body: wish(server, 'Lib', ['1.0.0'], 'age', days) })).id;
    const [short, approved, rejected, long] = [await request(1), await request(2), await request(2), await request(9)];
    await waivers(server, 'POST', `/${approved}/approve`);
    await waivers(server, 'POST', `/${rejected}/reject`);
    server.clock.now! += 3 * day;
    const listed = async (state: string) =>
      (await waivers(server, 'GET', `?state=${state}`)).items.map((each) => [each.id, each.state]);
    t.deepEqual(await listed('ended'), [
      [approved, 'ended'],
      [short, 'ended'],
    ]);
    t.deepEqual(await listed('requested'), [[long, 'requested']]);
    t.deepEqual(await listed('approved'), []);
    t.deepEqual(await listed('rejected'), [[rejected, 'rejected']]);
  });
}
