import test from 'ava';
import { createToken, tokenOf } from '../support/inside.ts';
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
  t.is(wrong.status, 422);
  t.regex(
    await wrong.text(),
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
});
