import test from 'ava';
import { applyPolicy, tokenOf } from '../support/inside.ts';
import { signedIn, startProvider } from '../support/provider.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

test('a waiver is requested from the explanation of a name, decided by somebody else, and ended, without JavaScript', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: new Date().toISOString() }] });
  const server = await startMirrorOf(t, [feed.as('feed.test')]);
  await applyPolicy(server, { minimumAge: { packages: '9d' } });
  const status = async () => (await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg')).status;
  const operator = await Visitor.signedIn(server);
  t.regex(await operator.page('/console/policy'), /href="\/console\/waivers"/);
  const explained = await operator.page('/console/explain?kind=package&name=Lib&reference=1.0.0');
  const address = /href="(\/console\/waivers\/new\?[^"]+)"/.exec(explained)![1]!.replaceAll('&amp;', '&');
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  const form = await reader.page(address);
  t.regex(form, /name="name"[^>]*value="Lib"[^]*>1\.0\.0<\/textarea>[^]*name="lifts"[^>]*value="age"/);
  t.regex(await reader.page('/console/waivers'), /There are no waivers/);

  const fields = {
    kind: 'package',
    name: 'Lib',
    references: '1.0.0\r\n[2.0, 3.0)',
    lifts: 'age',
    reason: '<b>',
    days: '14',
  };
  const wrong = await reader.refused('/console/waivers/new', { ...fields, references: '[1.0, )' });
  t.regex(wrong, /id="references-error"[^>]*>\[1\.0, \): a range needs a first and a last version/);
  for (const days of ['x', '1e20', ''])
    t.regex(await reader.refused('/console/waivers/new', { ...fields, days }), /id="expires_at-error"/, `${days} days`);
  t.is(leadsTo(await reader.send('/console/waivers/new', fields)), '/console/waivers/1 (waiver-requested)');
  const own = await reader.page('/console/waivers/1');
  t.regex(own, /Somebody else approves[^]*&lt;b&gt;|&lt;b&gt;[^]*Somebody else approves/);
  t.notRegex(own, /value="approve"/);
  t.is((await reader.send('/console/waivers/1', { act: 'approve', layer: 'account' })).status, 403);
  t.is(await status(), 404);

  t.regex(
    await operator.page('/console/waivers?state=requested'),
    /href="\/console\/waivers\/1"[^]*1\.0\.0, \[2\.0, 3\.0\)/,
  );
  t.regex(await operator.page('/console/waivers?layer=all'), /href="\/console\/waivers\/1\?layer=all"/);
  t.regex(await operator.page('/console/waivers?state=ended'), /Nothing matches/);
  const shown = await operator.page('/console/waivers/1?layer=all');
  t.regex(shown, /value="approve"[^]*policy of all accounts[^]*value="reject"/);
  const approved = await operator.send('/console/waivers/1?layer=all', { act: 'approve', layer: 'all' });
  t.is(leadsTo(approved), '/console/waivers/1?layer=all (waiver-approved)');
  t.is(await status(), 200);
  t.regex(await operator.page('/console/waivers/1'), /approved[^]*of all accounts/);
  t.regex(
    await operator.refused('/console/waivers/1', { act: 'reject', layer: 'account' }),
    /role="alert">The waiver 1 is approved/,
  );
  t.is(leadsTo(await reader.send('/console/waivers/1', { act: 'end' })), '/console/waivers/1 (waiver-ended)');
  t.is(await status(), 404);

  await operator.send('/console/waivers/new', fields);
  const self = { act: 'approve', layer: 'all' };
  t.regex(await operator.refused('/console/waivers/2', self), /role="alert">You requested the waiver 2 yourself/);
  t.regex(await operator.page('/console/waivers?q=none'), /Nothing matches/);
  t.regex(await operator.page('/console/waivers'), /2 waivers[^]*waivers\/2"[^]*waivers\/1"/);
  t.regex(await operator.page('/console/waivers?sort=oldest'), /waivers\/1"[^]*waivers\/2"/);
  const admin = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin']));
  t.notRegex(await admin.page('/console/waivers/2'), /value="all"/);
  t.is(leadsTo(await admin.send('/console/waivers/2', { act: 'reject' })), '/console/waivers/2 (waiver-rejected)');
  t.is((await admin.fetch('/console/waivers/3')).status, 404);
});

test('a person ends a waiver that it requested in another account on the page of all accounts', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const scopes = ['read', 'operate'];
  const rules = ['default', 'other'].map((account) => ({ claim: 'sub', value: 'ann', account, scopes }));
  const upstreams = [feed.as('feed.test')];
  const { server } = await startProvider(t, { ann: { name: 'Ann' } }, rules, { upstreams });
  await tokenOf(server, ['read'], 'other');
  const browser = await signedIn(server);
  const send = (path: string, fields: Record<string, string>) => browser.send(`${server.url}/console${path}`, fields);
  const fields = { kind: 'package', name: 'Lib', references: '1.0.0', lifts: 'age', reason: 'a test', days: '14' };
  t.is(leadsTo(await send('/waivers/new', fields)), '/console/waivers/1 (waiver-requested)');
  t.is(leadsTo(await send('/account', { account: 'other' })), '/console/ (account-changed)');
  const page = await (await browser.fetch(`${server.url}/console/waivers/1?layer=all`)).text();
  const layer = /name="layer" value="(\w+)" \/>\s*<button[^>]*value="end"/.exec(page)![1]!;
  const ended = await send('/waivers/1?layer=all', { layer, act: 'end' });
  t.is(leadsTo(ended), '/console/waivers/1?layer=all (waiver-ended)');
});
