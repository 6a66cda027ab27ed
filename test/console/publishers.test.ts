import test from 'ava';
import { parse } from 'yaml';
import { tokenOf } from '../support/inside.ts';
import { startIssuer } from '../support/issuer.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';
import { createRule, exchange, fromRepository, startPair } from '../identity/support.ts';

/** The text of HTML without elements. */
const textOf = (escaped: string) =>
  escaped
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');

test('rules are created, changed, explained and deleted in the console', async (t) => {
  const { server, issuer } = await startPair(t);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/tokens'), /href="\/console\/publishers"/);
  const fields: [string, string][] = [
    ['name', 'releases <of> app'],
    ['issuer', 'github'],
    ['claim:repository_id', '100'],
    ['claims', 'ref=refs/tags/*\r\n\r\nref = refs/heads/a=b'],
    ['scope', 'read'],
    ['scope', 'write'],
    ['packages', 'Contoso.*'],
    ['containers', ''],
  ];
  const made = await visitor.send('/console/publishers/new', fields);
  t.is(made.status, 303);
  const address = made.headers.get('location')!;
  t.regex(address, /^\/console\/publishers\/[0-9a-f-]{36}\/use$/);
  const use = await visitor.page(address);
  t.regex(use, /role="status">The rule is saved/);
  t.regex(use, /Last used: <span class="quiet">never/);
  t.regex(use, /\.github\/workflows\/publish\.yml[^]*id-token: write[^]*&amp;audience=https[^]*\/v1\/token-exchange/);
  const pasted = /<pre[^>]*>(?:<code[^>]*>)?(name: publish[^<]*)</.exec(use)![1]!;
  const workflow = parse(textOf(pasted)) as {
    on: object;
    permissions: object;
    jobs: { publish: { steps: { run?: string }[] } };
  };
  t.like(workflow, { on: { push: { tags: ['v*'] } }, permissions: { 'id-token': 'write' } });
  t.regex(workflow.jobs.publish.steps[1]!.run!, /^ID_TOKEN=.*\\\n.*\nTOKEN=\$\(curl[^]*docker login/);
  const list = await visitor.page('/console/publishers');
  t.regex(list, /releases &lt;of&gt; app/);
  t.regex(list, /refs\/tags\/\* or refs\/heads\/a=b/);
  t.regex(list, /token-exchange\/nuget/);
  t.regex(await visitor.page('/console/publishers?q=OF'), /releases &lt;of&gt; app/);
  t.regex(await visitor.page('/console/publishers?q=none'), /Nothing matches\. <a href="\/console\/publishers">/);
  const [, id] = /\/console\/publishers\/([0-9a-f-]{36})"/.exec(list)!;

  const edit = await visitor.page(`/console/publishers/${id}`);
  t.regex(edit, /name="claim:repository_id"[^>]*value="100"/);
  t.regex(edit, />ref = refs\/tags\/\*\nref = refs\/heads\/a=b<\/textarea/);
  const changed = fields.filter(([name, value]) => name !== 'claims' && value !== 'write');
  t.is((await visitor.send(`/console/publishers/${id}`, changed)).status, 303);

  const token = await issuer.sign({ ...fromRepository, html: '<b>' });
  const explained = await visitor.send('/console/publishers/explain', { token });
  t.is(explained.status, 200);
  const page = await explained.text();
  t.regex(page, /The token of the issuer github is accepted/);
  t.regex(page, /releases &lt;of&gt; app<\/strong>:\s*matches/);
  t.regex(page, /&lt;b&gt;/);
  t.false(page.includes(token), 'the token is not shown again');
  const [, from] = /href="(\/console\/publishers\/new\?[^"]*)">Create a rule from this token/.exec(page)!;
  const filled = await visitor.page(from!.replaceAll('&amp;', '&'));
  t.regex(filled, /name="claim:repository_id"[^>]*value="100"/);
  t.is((await exchange(server, token)).body['scope'], 'read');

  t.regex(await visitor.page('/console/publishers'), /<td[^>]*>\s*<span class="quiet">never[^]*Workflow/);
  await (
    await server.fetch('/v1/packages', {
      token: (await exchange(server, await issuer.sign(fromRepository))).body['access_token'] as string,
    })
  ).arrayBuffer();
  t.regex(await visitor.page(`/console/publishers/${id}/use`), /Last used: <time[^>]*>just now/);
  t.regex(await visitor.page(`/console/publishers/${id}/delete`), /releases &lt;of&gt; app/);
  const deleted = await visitor.send(`/console/publishers/${id}/delete`, {});
  t.is(leadsTo(deleted), '/console/publishers (rule-deleted)');
  t.is((await visitor.fetch(`/console/publishers/${id}`)).status, 404);
});

test('an explanation says of each rule whether it matches, and which claims do not', async (t) => {
  const issuer = await startIssuer(t);
  const other = { name: 'gitlab', issuer: 'https://gitlab.example.com', audience: 'https://hub.example' };
  const server = await startTestServer(t, { trustedIssuers: [issuer.trusted(), other] });
  const visitor = await Visitor.signedIn(server);
  const explained = async (claims: Record<string, unknown>) => {
    const answer = await visitor.send('/console/publishers/explain', { token: await issuer.sign(claims) });
    const text = (await answer.text()).replace(/\s+/g, ' ');
    const [, role] = /<p role="status">([^<]*)<\/p>/.exec(text)!;
    const rules = [...text.matchAll(/<strong>([^<]*)<\/strong>: ([^<]*)(<ul>.*?<\/ul>)?/g)];
    return [
      role!.trim(),
      ...rules.map(([, name, verdict, list = '']) =>
        `${name}: ${verdict!.trim()}${list.replaceAll(/(?: *<[^>]*> *)+/g, ' ')}`.trimEnd(),
      ),
    ];
  };
  const first = await explained(fromRepository);
  t.deepEqual(first, ['The token of the issuer github is accepted.']);
  await createRule(server, { name: 'a', claims: { repository_id: '100' } });
  await createRule(server, { name: 'b', claims: { repository_id: ['7', '8'], environment: 'live' } });
  await createRule(server, { name: 'c', issuer: 'gitlab', claims: { project_id: '1' } });
  t.deepEqual(await explained(fromRepository), [
    'The token of the issuer github is accepted.',
    'a: matches',
    'b: does not match repository_id is 100, but must be 7 or 8 environment is missing, but must be live',
    'c: is for another issuer',
  ]);
  const late = await explained({ ...fromRepository, exp: Math.floor(Date.now() / 1000) - 7200 });
  t.regex(late[0]!, /^The token is refused: /);
  t.deepEqual(late.slice(1, 2), ['a: its claims match, but the token is refused']);
});

test('errors are shown beside their fields, and the input is kept', async (t) => {
  const { server } = await startPair(t);
  await createRule(server, { name: 'taken' });
  const visitor = await Visitor.signedIn(server);
  const good = { name: 'new', issuer: 'github', claims: 'repository_id = 1', scope: 'read' };
  for (const [change, field] of [
    [{ name: 'taken' }, 'name'],
    [{ issuer: 'gone' }, 'issuer'],
    [{ claims: 'repository = team/app' }, 'claims'],
    [{ claims: 'repository_id = abc' }, 'claims'],
    [{ claims: 'repository_id' }, 'claims'],
    [{ claims: '' }, 'claims'],
    [{ scope: 'root' }, 'scopes'],
  ] as const) {
    const page = await visitor.refused('/console/publishers/new', { ...good, ...change });
    t.regex(page, new RegExp(`id="${field}-error"`), field);
    if ('claims' in change) t.true(page.includes(change.claims), 'kept');
  }
  t.regex(await visitor.refused('/console/publishers/explain', { token: 'x' }), /id="token-error"/);
});

test('the pages need admin, show no rules of other accounts, and say how to begin', async (t) => {
  const { server } = await startPair(t);
  const { id } = await createRule(server, { name: 'of default' });
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.is((await reader.fetch('/console/publishers')).status, 403);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['admin'], 'other'));
  t.notRegex(await other.page('/console/publishers'), /of default/);
  for (const path of ['', '/delete']) {
    t.is((await other.fetch(`/console/publishers/${String(id)}${path}`)).status, 404);
    const sent = await other.send(`/console/publishers/${String(id)}${path}`, { name: 'x' });
    // The form is refused before the rule is looked for, and the page that would show it again does not exist.
    const status = path === '' ? (await other.fetch(sent.headers.get('location')!)).status : sent.status;
    t.is(status, 404);
  }
  const empty = await Visitor.signedIn(await startTestServer(t));
  t.regex(await empty.page('/console/publishers'), /No issuer is trusted yet.*<code>trustedIssuers<\/code>/s);
});
