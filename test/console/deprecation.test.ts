import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const address = '/console/packages/Contoso.Old/deprecation';
const change = `${address}/change`;

test('versions are deprecated and undeprecated by a form, and its errors keep the input', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '1.1.0', '2.0.0']) await feed.publish({ id: 'Contoso.Old', version });
  const visitor = await Visitor.signedIn(server);
  const deprecated = async () => {
    const { items } = await feed.json('/registration-gz-semver2/contoso.old/index.json');
    return items[0].items.map(({ catalogEntry }: any) => catalogEntry.deprecation ?? null);
  };
  const first = await visitor.page(address);
  t.regex(first, /<h1>Deprecation and advisories of Contoso\.Old<\/h1>/);
  t.true(first.indexOf('value="2.0.0"') < first.indexOf('value="1.1.0"'), 'the newest first');

  const given: [string, string][] = [
    ['act', 'deprecate'],
    ['which', 'selected'],
    ['reason', 'Legacy'],
    ['reason', 'Other'],
    ['message', 'Use <b>the new one</b>'],
    ['alternative', 'Contoso.New'],
    ['range', '[2.0.0, 3.0.0)'],
  ];
  const refused = async (fields: [string, string][], id: string, message: RegExp) => {
    const text = await visitor.refused(change, fields);
    t.regex(/<p class="field-error"[^>]*>[^<]*/.exec(text)?.[0] ?? '', new RegExp(`id="${id}-error"`));
    t.regex(text, message);
    return text;
  };
  const kept = await refused(given, 'versions', /Select one or more versions/);
  t.regex(kept, /value="Legacy" checked/);
  t.true(kept.includes('Use &lt;b&gt;the new one&lt;/b&gt;</textarea'));
  t.regex(kept, /value="\[2\.0\.0, 3\.0\.0\)"/);
  const chosen: [string, string][] = [...given, ['version', '1.0.0'], ['version', '1.1.0']];
  t.regex(
    await refused(
      chosen.filter(([name]) => name !== 'message'),
      'message',
      /Other needs a message/,
    ),
    /<li>Contoso\.Old 1\.1\.0<\/li>[^]*type="hidden" name="version" value="1\.1\.0"/,
  );
  await refused(
    chosen.filter(([name]) => name !== 'alternative'),
    'alternative',
    /Give the ID of the package/,
  );
  await refused(
    chosen.filter(([name]) => name !== 'reason'),
    'reasons',
    /one or more reasons/,
  );
  t.deepEqual(await deprecated(), [null, null, null]);

  const sent = await visitor.send(change, chosen);
  t.deepEqual([sent.status, leadsTo(sent)], [303, `${address} (versions-deprecated)`]);
  const shown = {
    reasons: ['Legacy', 'Other'],
    message: 'Use <b>the new one</b>',
    alternatePackage: { id: 'Contoso.New', range: '[2.0.0, 3.0.0)' },
  };
  t.deepEqual(await deprecated(), [shown, shown, null]);
  const page = await visitor.page(address);
  t.is(page.match(/>deprecated</g)!.length, 2);
  t.true(page.includes('Use &lt;b&gt;the new one') && page.includes('Contoso.New [2.0.0, 3.0.0)'));
  t.regex(page, /role="status">Deprecated\./);

  const undo = (fields: [string, string][]) => visitor.send(change, [['act', 'undeprecate'], ...fields]);
  await visitor.refused(change, [['act', 'undeprecate']]);
  t.is((await undo([['version', '1.0.0']])).status, 303);
  t.deepEqual(await deprecated(), [null, shown, null]);
  t.is(
    (
      await visitor.send(change, [
        ['act', 'deprecate'],
        ['which', 'all'],
        ['reason', 'Legacy'],
      ])
    ).status,
    303,
  );
  t.true((await deprecated()).every(Boolean));
  t.is((await undo([['which', 'all']])).status, 303);
  t.deepEqual(await deprecated(), [null, null, null]);
});

test('an advisory is written by a form, and deleted on a page of its own', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Old', version: '1.0.0' });
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page(address), /There is no advisory on this package/);
  const given = { affected: '[1.0.0]', severity: '3', url: 'https://x.test/?a=1&b="2"' };
  for (const [field, value, id] of [
    ['affected', '1.0.0', 'versions'],
    ['severity', '4', 'severity'],
    ['url', 'javascript:alert(1)', 'url'],
  ] as const) {
    const text = await visitor.refused(address, { ...given, [field]: value });
    t.true(text.includes(`id="${id}-error"`) && text.includes(`aria-describedby="${id}-error"`), field);
    if (field !== 'severity') t.true(text.includes(`value="${value}"`), 'the input is kept');
  }
  t.deepEqual(await feed.json('/vulnerabilities/base.json'), {});
  t.is((await visitor.send(address, given)).status, 303);
  const page = await visitor.page(address);
  t.regex(page, /<th scope="row"[^>]*>\[1\.0\.0, 1\.0\.0\]<\/th>\s*<td[^>]*>Critical \(NU1904\)<\/td>/);
  t.regex(page, /<a href="https:\/\/x\.test\/\?a=1&amp;b=%222%22" rel="nofollow noopener">/);
  t.regex(await visitor.refused(address, given), /id="url-error" role="alert">This advisory exists already/);

  const [link] = /\/console\/packages\/Contoso\.Old\/advisories\/[\w-]+\/delete/.exec(page)!;
  t.regex(await visitor.page(link), /Contoso\.Old \[1\.0\.0, 1\.0\.0\]/);
  t.not((await feed.json('/vulnerabilities/base.json'))['contoso.old'], undefined, 'a GET deletes nothing');
  const gone = await visitor.send(link, {});
  t.deepEqual([gone.status, leadsTo(gone)], [303, `${address} (advisory-deleted)`]);
  t.deepEqual(await feed.json('/vulnerabilities/base.json'), {});
  t.is((await visitor.fetch(link)).status, 404);
  t.is((await visitor.send(link, {})).status, 404);
});

test('the pages need the scope write and a matching name; packages of others do not exist', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Old', version: '1.0.0' });
  const statuses = async (token: string) => {
    const visitor = await Visitor.signedIn(server, token);
    const fields = { act: 'deprecate', which: 'all', reason: 'Legacy' };
    const advice = { affected: '[1.0.0]', severity: '3', url: 'https://x.test/' };
    return [
      (await visitor.fetch(address)).status,
      (await visitor.fetch(change)).status,
      (await visitor.send(change, fields)).status,
      (await visitor.send(address, advice)).status,
    ];
  };
  t.deepEqual(await statuses(await tokenOf(server, ['read', 'delete', 'admin', 'operate'])), [403, 403, 403, 403]);
  t.deepEqual(await statuses(await tokenOf(server, ['read', 'write'], 'other')), [404, 404, 404, 404]);
  const limited = (packages: string[]) => createToken(server, ['read', 'write'], 'default', { packages });
  t.deepEqual(await statuses((await limited(['Fabrikam.*'])).value), [403, 403, 403, 403]);
  t.deepEqual(await statuses((await limited(['Contoso.*'])).value), [200, 200, 303, 303]);
  const visitor = await Visitor.signedIn(server);
  t.is((await visitor.fetch('/console/packages/Contoso.None/deprecation')).status, 404);
});

test('the page of a package shows its deprecation and advisories, and leads to their forms', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Old', version: '1.0.0' });
  const send = (path: string, method: string, body: object) =>
    server.fetch(path, { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  const alternative = { id: 'Contoso.Old', range: '[3.0.0, )' };
  const deprecation = { reasons: ['Legacy'], message: 'Use the other one', alternative };
  t.true((await send('/v1/packages/Contoso.Old/1.0.0/deprecation', 'PUT', deprecation)).ok);
  const advisory = { package: 'Contoso.Old', versions: '[1.0.0, 2.0.0)', severity: 2, url: 'https://a.test/1' };
  t.is((await send('/v1/advisories', 'POST', advisory)).status, 201);
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/packages/Contoso.Old');
  t.regex(page, /Use the other one/);
  t.regex(page, /Contoso\.Old<\/a>\s*\[3\.0\.0, \) instead\./);
  t.regex(page, /1 known vulnerability[^]*https:\/\/a\.test\/1/);
  const versions = await visitor.page('/console/packages/Contoso.Old?show=versions');
  t.true(versions.includes(`href="${address}"`));
  t.regex(versions, /listed\s+<span class="state bad">vulnerable: high<\/span>\s*<span class="state warn">deprecated/);
});

test('versions are deprecated by a range, and a wrong range is said beside its field', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '1.5.0', '2.0.0']) await feed.publish({ id: 'Contoso.Old', version });
  const visitor = await Visitor.signedIn(server);
  const form = { which: 'selected', act: 'deprecate', reason: 'Legacy', within: '[1.0.0, 2.0.0)' };
  t.is((await visitor.send(change, form)).status, 303);
  const { items } = (await (await server.fetch('/v1/packages/Contoso.Old/deprecations')).json()) as {
    items: { version: string; deprecation: object | null }[];
  };
  const deprecated = items.filter(({ deprecation }) => deprecation).map(({ version }) => version);
  t.deepEqual(deprecated.toSorted(), ['1.0.0', '1.5.0']);
  t.regex(await visitor.refused(change, { ...form, within: '1.0 to 2.0' }), /id="within-error"[^>]*>expected a range/);
});
