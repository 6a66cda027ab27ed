import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

test('a version is promoted from its page, and approved by the other account, without JavaScript', async (t) => {
  const server = await startTestServer(t);
  const dev = await tokenOf(server, ['read', 'write', 'promote'], 'dev');
  await new TestFeed(server, dev).publish({ id: 'Lib', version: '1.0.0' });
  const { digest } = await new TestRepository(server, 'team/app', dev).image('v1');
  const developer = await Visitor.signedIn(server, dev);
  const releaser = await Visitor.signedIn(server, await tokenOf(server, ['read', 'promote', 'admin'], 'prod'));
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'prod'));

  const rules = '/console/promotions/rules';
  t.regex(await releaser.page('/console/promotions'), /href="\/console\/promotions\/rules"[^]*There are no promotions/);
  t.notRegex(await reader.page('/console/promotions'), /promotions\/(?:new|rules)"/);
  t.is((await reader.fetch(rules)).status, 403);
  const saved = await releaser.send(rules, { from: 'dev\r\nother', promote_only: 'yes', approval: 'another' });
  t.is(leadsTo(saved), '/console/promotions (promotion-rules)');
  t.regex(await releaser.page(rules), />dev\nother<\/textarea>[^]*value="another" checked[^]*value="yes" checked/);

  const image = await developer.page(`/console/images/team%2Fapp/${digest}`);
  t.regex(image, /href="\/console\/promotions\/new\?kind=image&amp;name=team%2Fapp&amp;reference=v1"/);
  const page = await developer.page('/console/packages/Lib/1.0.0');
  const address = /href="(\/console\/promotions\/new\?[^"]+)"/.exec(page)![1]!.replaceAll('&amp;', '&');
  t.regex(await developer.page(address), /name="name"[^>]*value="Lib"[^]*name="to_account"[^>]*value="dev"/);
  const fields = { kind: 'package', name: 'Lib', reference: '1.0.0', to_account: 'prod', to_name: '', reason: '<b>' };
  const send = (more: object) => developer.send('/console/promotions/new', { ...fields, ...more });
  t.regex(
    await developer.refusedPage(await send({ to_account: 'nowhere' })),
    /role="alert">There is no account nowhere/,
  );
  t.regex(await developer.refusedPage(await send({ to_name: 'Other' })), /role="alert">[^<]*its ID is in its nuspec/);
  t.is(leadsTo(await send({})), '/console/promotions/1 (promotion-requested)');
  const asked = await developer.page('/console/promotions/1');
  t.regex(asked, /&lt;b&gt;[^]*Somebody of the other account[^]*Withdraw/);
  t.notRegex(asked, /value="approve"/);

  t.notRegex(await reader.page('/console/promotions/1'), /<button[^>]*name="act"/);
  t.regex(
    await releaser.page('/console/promotions?state=requested'),
    /href="\/console\/promotions\/1"[^]*Lib 1\.0\.0[^]*dev/,
  );
  t.regex(await releaser.page('/console/promotions/1'), /value="approve"[^]*value="reject"/);
  t.is(leadsTo(await releaser.send('/console/promotions/1', { act: 'approve' })), '/console/promotions/1 (promoted)');
  t.regex(await releaser.page('/console/promotions/1'), /done/);
  t.is((await reader.fetch('/console/packages/Lib/1.0.0')).status, 200);
  await send({ kind: 'image', name: 'team/app', reference: 'v1' });
  t.regex(await releaser.page('/console/promotions?q=TEAM'), /promotions\/2"/);
  t.notRegex(await releaser.page('/console/promotions?q=team'), /promotions\/1"/);
  const numbers = async (path: string) =>
    [...(await releaser.page(path)).matchAll(/scope="row"[^>]*><a href="\/console\/promotions\/(\d)"/g)].map(
      ([, id]) => id,
    );
  t.deepEqual(await numbers('/console/promotions'), ['2', '1']);
  t.deepEqual(await numbers('/console/promotions?sort=oldest'), ['1', '2']);
  t.regex(await releaser.page('/console/promotions'), /2 promotions[^]*sort=oldest">Asked/);
  t.regex(await releaser.page('/console/promotions?q=team'), /1 promotion</);
  const rejected = await releaser.send('/console/promotions/2', { act: 'reject' });
  t.is(leadsTo(rejected), '/console/promotions/2 (promotion-rejected)');
  t.regex(
    await releaser.refused('/console/promotions/2', { act: 'approve' }),
    /role="alert">The promotion 2 was rejected/,
  );
});
