import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { ago, putPolicy, startMirrors } from '../support/policy.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const path = '/console/policy?layer=account';
const denied = 'rules:\n  - { name: two, packages: [Lib], versions: "[2.0.0, )", verdict: deny }\n';

test('a policy is checked and changed on its page, which shows the one that holds', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  const server = await startMirrorOf(t, [feed.as('feed.test')]);
  const statusOf = async (version: string, token = server.token) =>
    (await server.fetch(`/v3/package/lib/${version}/lib.${version}.nupkg`, { token })).status;
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/policy'), /There is no policy: clients get all that the upstreams have/);

  const checked = await visitor.send(path, { act: 'check', text: denied });
  t.regex(await checked.text(), /This text is valid\. Nothing was changed\.[^]*name: two/);
  t.is(await statusOf('2.0.0'), 200);
  t.is(leadsTo(await visitor.send(path, { act: 'apply', text: denied })), `${path} (policy-changed)`);
  t.deepEqual([await statusOf('1.0.0'), await statusOf('2.0.0')], [200, 403]);
  const page = await visitor.page('/console/policy');
  t.regex(page, /In force, changed[^]*- name: two\n {4}packages:\n {6}- Lib\n/);
  t.regex(page, /layer=all"\s*>Of all accounts/);

  const wrong = await visitor.send(path, { act: 'apply', text: 'mode: on\nrules: []\n' });
  t.is(wrong.status, 303);
  const address = wrong.headers.get('location')!;
  t.regex(address, /^\/console\/policy\?layer=account&refused=[\w-]{22}$/);
  t.regex(
    await visitor.page(address),
    />mode: on\nrules: \[\]\n<\/textarea>[^]*role="alert">line 1: mode: expected enforce or audit</,
  );
  const all = 'rules:\n  - { name: rest, packages: ["*"], verdict: deny }\n';
  t.regex(
    await (await visitor.send(path, { act: 'apply', text: all })).text(),
    /refuses packages or images that no rule mentions/,
  );
  t.is(await statusOf('1.0.0'), 200, 'not without the box');
  t.is(leadsTo(await visitor.send(path, { act: 'apply', text: all, confirmed: 'yes' })), `${path} (policy-changed)`);
  t.is(await statusOf('1.0.0'), 403);
  t.is(leadsTo(await visitor.send(path, { act: 'apply', text: '' })), `${path} (policy-changed)`);
  t.is(await statusOf('2.0.0'), 200);

  const long = {
    rules: [
      { name: 'long', packages: Array.from({ length: 100 }, (_, each) => 'x'.repeat(100) + each), verdict: 'deny' },
    ],
  };
  const put = await server.fetch('/v1/policy', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(long),
  });
  t.is(((await put.json()) as { text: null }).text, null);
  const tooLong = await visitor.page('/console/policy');
  t.regex(tooLong, /It is too long for this page/);
  t.notRegex(tooLong, /<textarea/, 'no form that would replace it by nothing');
});

test('without the rights for it, a policy is read and not changed, and another account has its own', async (t) => {
  const server = await startMirrorOf(t, []);
  const admin = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin']));
  const all = '/console/policy?layer=all';
  t.notRegex(await admin.page(all), /Of all accounts/);
  t.is(leadsTo(await admin.send(all, { act: 'apply', text: denied })), `${path} (policy-changed)`);
  const policyOf = async (layer: string) =>
    ((await (await server.fetch(`/v1/policy?layer=${layer}`)).json()) as { policy: unknown }).policy;
  t.is(await policyOf('all'), null, 'only the one of the own account was changed');
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.regex(await reader.page('/console/policy'), /readonly[^]*name: two/);
  t.notRegex(await reader.page('/console/policy'), /value="apply"/);
  t.is((await reader.send(path, { act: 'apply', text: '' })).status, 403);
  const limited = await createToken(server, ['read', 'admin'], 'default', { packages: ['Lib'] });
  t.is((await (await Visitor.signedIn(server, limited.value)).send(path, { act: 'apply', text: '' })).status, 403);
  t.not(await policyOf('account'), null);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin'], 'other'));
  t.regex(await other.page('/console/policy'), /There is no policy/);

  const check = (text: string, token = server.token) =>
    server.fetch('/v1/policy/check', {
      method: 'POST',
      token,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ text }),
    });
  t.deepEqual(await (await check('')).json(), { policy: null, warning: null });
  t.deepEqual(await (await check('{"mode":"audit"}')).json(), { policy: { mode: 'audit' }, warning: null });
  t.is((await check(`# ${'x'.repeat(8192)}`)).status, 400);
  t.is((await check('', await tokenOf(server, ['read', 'write', 'delete']))).status, 403);
  t.is((await check('', await tokenOf(server, ['read', 'operate']))).status, 200);
  t.regex(await (await check('mode: enforce\nrule: []\n')).text(), /line 2: rule: there is no such key/);
  const range = 'rules:\n  - name: two\n    packages: [Lib]\n    versions: two\n    verdict: deny\n';
  t.regex(await (await check(range)).text(), /"line 4: rules\.0\.versions: expected a range/);
});

test('the page of the policy lists what waits, for those who may explain names', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }, { version: '3.0.0' }] });
  const server = await startMirrorOf(t, [feed.as('feed.test')]);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/policy'), /What waits[^]*Nothing waits\./);
  const rules = 'rules:\n  - { name: two, packages: [Lib], versions: "[2.0.0]", verdict: deny }\n';
  await visitor.send('/console/policy?layer=all', { act: 'apply', text: rules });
  t.is((await server.fetch('/v3/package/lib/index.json')).status, 200);
  const page = await visitor.page('/console/policy');
  t.regex(
    page,
    /kind=package&amp;name=lib&amp;reference=2\.0\.0"\s*>lib<[^]*>denied<[^]*no end is known[^]*>two, in the policy of all accounts<[^]*>yes</,
  );
  t.notRegex(page, /reference=3\.0\.0/);
  t.regex(await visitor.page('/console/policy?q=other'), /Nothing matches/);
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin']));
  t.notRegex(await reader.page('/console/policy'), /What waits/);
});

test('the page of a mirrored version or digest says what the policy decides of it, to those who may see that', async (t) => {
  const { feed, registry, server } = await startMirrors(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: ago(100) }] });
  const { manifest } = registry.image('team/app', 'v1');
  const [version, digest] = [
    '/console/packages/Lib/1.0.0',
    `/console/images/registry.test%2Fteam%2Fapp/${manifest.digest}`,
  ];
  for (const path of ['/v3/package/lib/1.0.0/lib.1.0.0.nupkg', '/v2/registry.test/team/app/manifests/v1'])
    t.is((await server.fetch(path)).status, 200);
  server.clock.now! += 1000;
  const rules = [
    { name: 'no-lib', packages: ['Lib'], verdict: 'deny', reason: 'see SEC-12' },
    { name: 'our-team', images: ['registry.test/team/*'], verdict: 'allow' },
  ];
  await putPolicy(server, { minimumAge: { packages: '3d', images: '3d' }, rules });
  const visitor = await Visitor.signedIn(server);
  const refused = await visitor.page(version);
  t.regex(refused, /<h2>Policy<\/h2>[^]*It is denied: see SEC-12\.[^]*no-lib, in the policy of all accounts/);
  t.regex(refused, /href="\/console\/waivers\/new\?kind=package&amp;name=Lib&amp;references=1\.0\.0&amp;lifts=no-lib"/);
  const open = await visitor.page(digest);
  t.regex(open, /<h2>Policy<\/h2>[^]*Clients get it\.[^]*our-team, in the policy of all accounts/);
  t.regex(open, /href="\/console\/explain\?kind=container&amp;name=registry\.test%2Fteam%2Fapp&amp;reference=v1">v1</);
  t.notRegex(open, /Request a waiver/);

  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  for (const path of [version, digest]) t.notRegex(await reader.page(path), /<h2>Policy/);
  await new TestFeed(server).publish({ id: 'Own' });
  t.notRegex(await visitor.page('/console/packages/Own/1.0.0'), /<h2>Policy/, 'hosted content has none');
});
