import test, { type ExecutionContext } from 'ava';
import { Browser } from '../support/cookie-browser.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, tokenOf } from '../support/inside.ts';
import { auditOf } from '../support/audit.ts';
import { instancesOf } from '../support/instances.ts';
import { OpenDocument } from '../support/open-document.ts';
import { signedIn, startProvider } from '../support/provider.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const rules = [
  { claim: 'groups', value: 'dev', account: 'default', scopes: ['read', 'write'] },
  { claim: 'groups', value: 'leads', account: 'default', scopes: ['admin'] },
  { claim: 'groups', value: 'dev', account: 'missing', scopes: ['read'] },
  { claim: 'sub', value: 'ann', account: 'other', scopes: ['read'] },
];

const people: Record<string, object> = {
  ann: { name: 'Ann <A>', groups: ['dev', 'leads'], email: 'ann@example.com' },
  bob: { name: 'Bob', groups: ['sales'], email: 'ann@example.com' },
};

const startWithProvider = (t: ExecutionContext, settings: Record<string, unknown> = {}, given = rules) =>
  startProvider(t, people, given, settings);

const page = async (browser: Browser, server: TestServer, path: string) =>
  (await browser.fetch(server.url + path)).text();

test('a start names the rules whose account does not exist', async (t) => {
  const { server } = await startWithProvider(t);
  const warned = server.lines.filter((line) => line.includes('there is no account'));
  t.is(warned.length, 2);
  t.regex(warned[0]!, /signIn\.oidc\.rules\.2\.account: there is no account \\"missing\\"/);
  t.regex(warned[1]!, /signIn\.oidc\.rules\.3\.account: there is no account \\"other\\"/);
});

for (const dialect of dialects) {
  test(`${dialect}: a person signs in with the provider, and may do what the rules say`, async (t) => {
    const { server } = await startWithProvider(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const document = await OpenDocument.of(server);
    await tokenOf(server, ['admin'], 'other');
    t.regex(
      await page(new Browser(), server, '/console/sign-in'),
      /<a class="button primary" href="\/console\/sign-in\/oidc\?next=[^]*<details[^]*API token/,
    );
    const browser = await signedIn(server);
    t.deepEqual([...browser.cookies(server.url).keys()], ['entrepot-session'], 'the cookie of the sign-in is gone');
    t.regex(await page(browser, server, '/console/connect'), /Ann &lt;A&gt;/);
    t.is((await browser.fetch(`${server.url}/console/jobs`)).status, 403, 'no rule gives operate');
    t.is((await browser.fetch(`${server.url}/v1/account`)).status, 401, '/v1 takes no cookie');

    const sessions = await document.read('GET /sessions', await server.fetch('/v1/sessions'));
    const [session] = sessions['items'] as { id: string; token_id: null; person: { id: string; name: string } }[];
    t.like(session, { token_id: null, person: { name: 'Ann <A>' } });
    t.regex(session!.person.id, /^[0-9a-f]{32}$/, 'no part of the subject');
    t.regex(await page(browser, server, '/console/tokens'), /<td[^>]*>Ann &lt;A&gt;<\/td>/);

    const made = await browser.send(`${server.url}/console/tokens/new`, { name: 'mine', scope: 'read', days: '7' });
    t.is(made.status, 201);
    const [event] = await auditOf(server, 'type=token.created&actor=Ann%20%3CA%3E');
    t.deepEqual(event!.actor, { kind: 'person', id: session!.person.id, name: 'Ann <A>' });
    t.is((await browser.send(`${server.url}/console/tokens/new`, { name: 'x', scope: 'operate' })).status, 403);

    t.is((await server.fetch(`/v1/sessions/${session!.id}`, { method: 'DELETE' })).status, 204);
    t.is((await browser.fetch(`${server.url}/console/connect`)).status, 303, 'ended at once');
  });
}

test('a person with several accounts chooses one, and only one of the rules', async (t) => {
  const { server } = await startWithProvider(t);
  await tokenOf(server, ['admin'], 'other');
  await tokenOf(server, ['admin'], 'foreign');
  const browser = await signedIn(server);
  const choose = (account: string) => browser.send(`${server.url}/console/account`, { account });
  t.regex(await page(browser, server, '/console/connect'), /<option value="default" selected/);
  t.is((await browser.fetch(`${server.url}/console/tokens`)).status, 200);
  const chosen = await choose('other');
  t.is(leadsTo(chosen), '/console/ (account-changed)');
  t.regex(await page(browser, server, '/console/connect'), /<option value="other" selected/);
  const refused = await browser.fetch(`${server.url}/console/tokens`);
  t.is(refused.status, 403, 'read only in this account');
  t.regex(await refused.text(), /You do not have the right &quot;admin&quot; in the account other\. Ask/);
  for (const account of ['foreign', 'missing', '']) t.is((await choose(account)).status, 404, account);
  const crossSite = await browser.fetch(`${server.url}/console/account`, {
    method: 'POST',
    body: new URLSearchParams({ account: 'default' }),
    headers: { 'sec-fetch-site': 'cross-site' },
  });
  t.is(crossSite.status, 403);
  t.regex(await page(browser, server, '/console/connect'), /<option value="other" selected/);
  const listed = async (token: string) =>
    ((await (await server.fetch('/v1/sessions', { token })).json()) as { items: { id: string }[] }).items;
  const [used, admin, foreign] = await Promise.all(
    ['other', 'default', 'foreign'].map((account) => tokenOf(server, ['admin'], account)),
  );
  t.is((await listed(used!)).length, 1);
  t.is((await listed(admin!)).length, 1, 'the person can return to this account at any time');
  t.is((await listed(foreign!)).length, 0);
  t.is(leadsTo(await browser.send(`${server.url}/console/sign-out`, {})), '/console/sign-in (signed-out)');
  t.is((await listed(admin!)).length, 0, 'a session is signed out in each account');
  const left = await page(browser, server, '/console/sign-in');
  t.regex(left, /<a href="http:\/\/127\.0\.0\.1:\d+\/session\/end\?client_id=[^"]+">Sign out at 127\.0\.0\.1:\d+, too/);
  t.notRegex(await page(new Browser(), server, '/console/sign-in'), /Sign out at/);
  const again = await signedIn(server);
  await again.send(`${server.url}/console/account`, { account: 'other' });
  const [session] = await listed(admin!);
  const end = (token: string) => server.fetch(`/v1/sessions/${session!.id}`, { method: 'DELETE', token });
  t.is((await end(foreign!)).status, 404);
  t.is((await end(admin!)).status, 204);
  t.is((await again.fetch(`${server.url}/console/connect`)).status, 303, 'ended in the other account, too');
  t.is((await browser.fetch(`${server.url}/console/connect`)).status, 303);
});

test('a form of a page that was opened in another account is refused, and changes nothing', async (t) => {
  const writer = { claim: 'sub', value: 'ann', account: 'other', scopes: ['read', 'write'] };
  const { server } = await startWithProvider(t, {}, [...rules, writer]);
  const admin = await tokenOf(server, ['admin'], 'other');
  const browser = await signedIn(server);
  const choose = (account: string) => browser.send(`${server.url}/console/account`, { account });
  const addressIn = async (path: string) => {
    const [, action] = /<form method="post"[^>]* action="([^"]+)"/.exec(await page(browser, server, path))!;
    return new URL(action!.replaceAll('&amp;', '&'), `${server.url}${path}`).href;
  };
  const at = await addressIn('/console/upload?x=1');
  t.is(at, `${server.url}/console/upload?x=1&shown_account=default`);
  const connect = await addressIn('/console/connect');
  const send = (name = 'a laptop') => browser.send(connect, { name, scopes: 'read' });
  await choose('other');
  const refused = await send();
  t.is(refused.status, 403);
  t.regex(await refused.text(), /This page was opened in another account\. You use the account other now/);
  const { items } = (await (await server.fetch('/v1/tokens', { token: admin })).json()) as {
    items: { name: string }[];
  };
  t.false(items.some(({ name }) => name === 'a laptop'));
  const form = new FormData();
  form.append('package', new Blob(['x']), 'a.nupkg');
  const headers = { 'sec-fetch-site': 'same-origin' };
  const uploaded = await browser.fetch(at, { method: 'POST', body: form, headers });
  t.is(uploaded.status, 403);
  t.regex(await uploaded.text(), /This page was opened in another account/);
  await choose('default');
  t.is((await send()).status, 201, 'the account of the page is in use again');
  const again = (await send(' ')).headers.get('location')!;
  t.regex(again, /^\/console\/connect\?refused=[\w-]+$/);
});

test('a person without a rule gets a page that says so, and no session', async (t) => {
  const { server, who, issuer } = await startWithProvider(t);
  who.id = 'bob';
  const browser = new Browser();
  const { response } = await browser.follow(`${server.url}/console/sign-in/oidc`);
  t.is(response.status, 403);
  const text = await response.text();
  t.regex(text, /<h1>No account<\/h1>/);
  t.regex(text, /You signed in as Bob/);
  t.true(text.includes(issuer));
  t.deepEqual([...browser.cookies(server.url).keys()], [], 'an e-mail address of another person gives nothing');
});

test('a removed rule takes its rights from open sessions, and another provider ends them', async (t) => {
  const database = { url: await temporaryDatabase(t, 'sqlite') };
  const { server, issuer } = await startWithProvider(t, { database });
  const browser = await signedIn(server);
  const cookie = browser.cookies(server.url).get('entrepot-session')!;
  const statusesWith = async (oidc: object) => {
    const other = await startTestServer(t, { database, data: server.data, signIn: { oidc } });
    const ask = (path: string) =>
      other
        .fetch(path, { token: null, headers: { cookie: `entrepot-session=${cookie}` } })
        .then(({ status }) => status);
    return [await ask('/console/connect'), await ask('/console/tokens')];
  };
  const settings = { issuer, clientId: 'entrepot', clientSecret: 'secret', allowPrivateNetwork: true };
  t.deepEqual(await statusesWith({ ...settings, rules }), [200, 200]);
  t.deepEqual(await statusesWith({ ...settings, rules: rules.slice(0, 1) }), [200, 403]);
  t.deepEqual(await statusesWith({ ...settings, rules: rules.slice(3) }), [303, 303]);
  const otherGroup = [{ ...rules[0]!, value: 'sales' }];
  t.deepEqual(await statusesWith({ ...settings, rules: otherGroup }), [303, 303], 'another value of the same claim');
  t.deepEqual(await statusesWith({ ...settings, issuer: 'http://127.0.0.1:1', rules }), [303, 303]);
  t.deepEqual(await statusesWith({}), [303, 303]);
});

const isCallback = ({ pathname }: URL) => pathname.endsWith('/callback');

test('a code and its callback work once, and only in the browser that began', async (t) => {
  const { server } = await startWithProvider(t);
  const victim = new Browser();
  const attacker = new Browser();
  const { url } = await attacker.follow(`${server.url}/console/sign-in/oidc`, isCallback);
  t.is((await victim.fetch(url)).status, 400, 'a browser that did not begin');
  await victim.fetch(`${server.url}/console/sign-in/oidc`);
  const forced = await victim.fetch(url);
  t.is(forced.status, 400, 'a browser that began another sign-in');
  t.regex(await forced.text(), /<h1>Not signed in<\/h1>/);
  t.false(victim.cookies(server.url).has('entrepot-session'));
  const pending = attacker.cookies(server.url).get('entrepot-sign-in')!;
  t.is((await attacker.fetch(url)).status, 303);
  t.is((await attacker.fetch(url)).status, 400, 'the same callback again');
  attacker.cookies(server.url).set('entrepot-sign-in', pending);
  const replay = await attacker.fetch(url);
  t.is(replay.status, 400);
  t.regex(await replay.text(), /refused the sign-in \(invalid_grant\)/);

  const before = new Browser();
  before.cookies(server.url).set('entrepot-session', 'A'.repeat(43));
  await before.follow(`${server.url}/console/sign-in/oidc`);
  t.not(before.cookies(server.url).get('entrepot-session'), 'A'.repeat(43), 'a chosen value never becomes a session');
});

for (const dialect of dialects) {
  test(`${dialect}: a person makes own tokens, which do what the person may do now, and no longer`, async (t) => {
    const { server, who } = await startWithProvider(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    who.id = `cas ${dialect}`;
    const person: { name: string; groups: string[] } = { name: 'Cas', groups: ['dev', 'leads'] };
    people[who.id] = person;
    const browser = await signedIn(server);
    const connect = (fields: Record<string, string>) => browser.send(`${server.url}/console/connect`, fields);
    const make = async (scopes: string) => {
      const made = await connect({ name: `for ${scopes}`, scopes });
      t.is(made.status, 201);
      const text = await made.text();
      t.regex(text, /This is the only time that it is shown/);
      const values = new Set([...text.matchAll(/ent_\w+/g)].map(([value]) => value));
      t.is(values.size, 1);
      t.notRegex(text, /\bTOKEN\b/);
      return [...values][0]!;
    };
    const status = async (token: string, path = '/v1/packages') => (await server.fetch(path, { token })).status;
    t.regex(await page(browser, server, '/console/connect'), /Create a token and fill it in below/);
    const build = await make('read write');
    t.deepEqual([await status(build), await status(build, '/v1/tokens')], [200, 403]);
    for (const scopes of ['delete', 'read operate'])
      t.is((await connect({ name: 'more', scopes })).status, 403, scopes);
    const refused = await connect({ name: ' ', scopes: 'read' });
    t.regex(await page(browser, server, refused.headers.get('location')!), /id="name-error"/);

    const admin = await make('read admin');
    const body = JSON.stringify({ name: 'child', scopes: ['read', 'delete'] });
    const json = { 'content-type': 'application/json' };
    const created = await server.fetch('/v1/tokens', { method: 'POST', body, token: admin, headers: json });
    t.is(created.status, 201);
    const { token: child, id } = (await created.json()) as { token: string; id: string };
    t.is(await status(child), 200);
    for (const [method, path] of [
      ['GET', ''],
      ['POST', ''],
      ['DELETE', `/${id}`],
    ] as const) {
      for (const token of [admin, server.token]) {
        const init = { method, token, ...(method === 'POST' && { body, headers: json }) };
        const refused = await server.fetch(`/v1/me/tokens${path}`, init);
        t.is(refused.status, 403, `${method} with a token`);
        t.regex(await refused.text(), /Personal tokens belong to people/);
      }
    }

    const [event] = await auditOf(server, 'type=token.created&subject=for%20read%20write');
    t.like(event!.actor, { kind: 'person', name: 'Cas' });
    const own = await page(browser, server, '/console/my-tokens');
    t.regex(own, /for read write[^]*child|child[^]*for read write/);
    t.notRegex(own, /first token/);
    const ours = (await (await server.fetch('/v1/tokens')).json()) as { items: Record<string, unknown>[] };
    const listed = ours.items.find(({ name }) => name === 'for read write')!;
    t.is(listed['expires_at'], new Date(server.clock.now + 90 * 86_400_000).toISOString());
    t.regex(String(listed['person_id']), /^[0-9a-f]{32}$/);
    const stranger = ours.items.find(({ name }) => name === 'first token')!;
    t.is((await browser.send(`${server.url}/console/my-tokens/${String(stranger['id'])}`, {})).status, 404);
    t.is(await status(server.token), 200);

    const me = (method: string, path = '', sent?: object, headers = {}) =>
      browser.fetch(`${server.url}/v1/me/tokens${path}`, {
        method,
        headers: { ...json, ...headers },
        ...(sent && { body: JSON.stringify(sent) }),
      });
    const days = (count: number) => new Date(server.clock.now! + count * 86_400_000).toISOString();
    const mine = { name: 'short', scopes: ['read'], expires_at: days(1) };
    const late = await me('POST', '', { ...mine, expires_at: days(366) });
    t.is(late.status, 400);
    t.regex(await late.text(), /expires after 365 days at the latest/);
    t.is((await me('POST', '', mine, { 'sec-fetch-site': 'cross-site' })).status, 403);
    t.is(
      (await me('POST', '', mine, { authorization: `Bearer ${admin}` })).status,
      403,
      'the token counts, not the cookie',
    );
    const short = (await (await me('POST', '', mine)).json()) as Record<string, string>;
    t.is(short['expires_at'], mine.expires_at);
    t.is(await status(short['token']!), 200);
    const shown = (await (await me('GET')).json()) as { items: { name: string }[] };
    t.deepEqual(shown.items.map(({ name }) => name).toSorted(), ['child', 'for read admin', 'for read write', 'short']);
    t.is((await me('DELETE', `/${short['id']}`)).status, 204);
    t.is(await status(short['token']!), 401);
    t.is((await me('DELETE', `/${String(stranger['id'])}`)).status, 404);
    const more = await Promise.all(Array.from({ length: 47 }, () => me('POST', '', mine)));
    t.deepEqual(new Set(more.map((each) => each.status)), new Set([201]));
    const tooMany = await me('POST', '', mine);
    t.is(tooMany.status, 403);
    t.regex(await tooMany.text(), /at most 50 valid tokens/);
    // There are more tokens than one page of a list has, and this one is the oldest.
    const revoking = await page(browser, server, `/console/my-tokens/${String(listed['id'])}`);
    t.regex(revoking, /Clients that use <strong>for read write<\/strong>/);
    const all = (await (await me('GET', '?limit=200')).json()) as { items: { id: string; name: string }[] };
    for (const { id: each } of all.items.filter(({ name }) => name === 'short')) await me('DELETE', `/${each}`);

    person.groups = ['dev'];
    t.is(await status(admin, '/v1/tokens'), 200, 'the provider tells the new groups at the next sign-in');
    const away = { id: 'away', person: '{}', signed_in_at: server.clock.now - 30 * 86_400_000 };
    const others = [away, { ...away, id: 'other', signed_in_at: away.signed_in_at + 1 }];
    for (const row of others) await databaseOf(server).transaction((tx) => tx.insert('people', row));
    await signedIn(server);
    const known = await databaseOf(server).select<{ id: string }>('SELECT id FROM people');
    t.is(known.length, 2);
    t.false(
      known.some(({ id }) => id === 'away'),
      'one who did not sign in is forgotten',
    );
    t.deepEqual([await status(admin), await status(admin, '/v1/tokens'), await status(child)], [200, 403, 200]);
    server.clock.now += 29 * 86_400_000;
    t.is(await status(build), 200);
    server.clock.now += 2 * 86_400_000;
    t.is(await status(build), 401, 'no sign-in for 30 days');
    t.is(await status(server.token), 200);
    const again = await signedIn(server);
    t.is(await status(build), 200);

    const path = `${server.url}/console/my-tokens/${String(listed['id'])}`;
    t.regex(await (await again.fetch(path)).text(), /Revoke the token/);
    t.is(leadsTo(await again.send(path, {})), '/console/my-tokens (tokens-revoked)');
    t.is(await status(build), 401);
    person.groups = [];
    await new Browser().follow(`${server.url}/console/sign-in/oidc`);
    t.deepEqual([await status(admin), await status(child), await status(server.token)], [401, 401, 200]);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: who is disabled is refused by all instances at once, and an account limits personal tokens`, async (t) => {
    const start = await instancesOf(t, dialect);
    const { server, who, oidc } = await startProvider(t, people, rules, {}, start);
    const other = await start({ signIn: { oidc } });
    for (const each of [server, other]) each.clock.now = Date.now();
    who.id = `dee ${dialect}`;
    people[who.id] = { name: 'Dee', groups: ['dev', 'leads'] };
    const browser = await signedIn(server);
    const json = { 'content-type': 'application/json' };
    const me = (body: object) =>
      browser.fetch(`${server.url}/v1/me/tokens`, { method: 'POST', headers: json, body: JSON.stringify(body) });
    const made = (await (await me({ name: 'of Dee', scopes: ['read', 'write'] })).json()) as Record<string, string>;
    const token = made['token']!;
    const statuses = async () => {
      const found = [];
      for (const each of [server, other]) found.push((await each.fetch('/v1/packages', { token })).status);
      return [...found, (await browser.fetch(`${server.url}/console/my-tokens`)).status];
    };
    t.deepEqual(await statuses(), [200, 200, 200]);

    const ask = (method: string, path: string, body?: object, by = server.token) =>
      server.fetch(`/v1${path}`, { method, token: by, headers: json, ...(body && { body: JSON.stringify(body) }) });
    const reader = await tokenOf(server, ['read']);
    const elsewhere = await tokenOf(server, ['admin'], 'elsewhere');
    const listed = (await (await ask('GET', '/people')).json()) as { items: Record<string, unknown>[] };
    const dee = listed.items.find(({ name }) => name === 'Dee')!;
    t.like(dee, { subject: who.id, issuer: oidc.issuer, accounts: ['default'], disabled: [] });
    t.is((await ask('GET', '/people', undefined, reader)).status, 403);
    t.deepEqual(((await (await ask('GET', '/people', undefined, elsewhere)).json()) as { items: [] }).items, []);
    const path = `/people/${String(dee['id'])}`;
    const reason = { reason: 'left the company' };
    t.is((await ask('POST', `${path}/disable`, reason, elsewhere)).status, 404, 'another account knows nobody');
    t.is((await ask('POST', `${path}/disable?layer=all`, reason, elsewhere)).status, 403);
    for (const layer of ['account', 'all']) {
      const done = await ask('POST', `${path}/disable?layer=${layer}`, reason);
      t.is(done.status, 200);
      t.like(await done.json(), { disabled: [{ account: layer === 'all' ? null : 'default', ...reason }] });
      t.deepEqual(await statuses(), [401, 401, 303], layer);
      await t.throwsAsync(signedIn(server), { message: /40[0-9]/ }, 'a new sign-in');
      const { items } = (await (await ask('GET', '/tokens')).json()) as { items: Record<string, unknown>[] };
      t.is(items.find(({ name }) => name === 'of Dee')!['refused_because'], 'disabled');
      t.is((await ask('POST', `${path}/enable?layer=${layer}`)).status, 200);
      t.deepEqual(await statuses(), [200, 200, 303], 'the session has ended');
    }
    const events = await auditOf(server, 'type=person.*');
    const about = { person_id: dee['id'] };
    t.deepEqual(
      events.map(({ type, account, subject, details }) => [type, account, subject.kind, subject.name, details]),
      [
        ['person.disabled', 'default', 'person', 'Dee', { ...about, everywhere: false, ...reason }],
        ['person.enabled', 'default', 'person', 'Dee', { ...about, everywhere: false }],
        ['person.disabled', null, 'person', 'Dee', { ...about, everywhere: true, ...reason }],
        ['person.enabled', null, 'person', 'Dee', { ...about, everywhere: true }],
      ],
    );

    const admin = await Visitor.signedIn(server);
    const at = `/console${path}`;
    t.regex(await admin.page('/console/people?q=DEE'), new RegExp(`1 person<[^]*href="${at}"[^]*enabled[^]*default`));
    t.regex(await admin.page('/console/people?q=nobody'), /Nothing matches/);
    t.regex(await admin.refused(at, { act: 'disable', reason: ' ' }), /id="reason-error"/);
    t.is(leadsTo(await admin.send(at, { act: 'disable', reason: '<b>' })), `${at} (person-disabled)`);
    t.regex(await admin.page(at), /disabled in default[^]*&lt;b&gt;[^]*value="enable"/);
    t.is(
      leadsTo(await admin.send(`${at}?layer=all`, { act: 'disable', reason: 'x' })),
      `${at}?layer=all (person-disabled)`,
    );
    t.regex(await admin.page('/console/people?layer=all'), /disabled everywhere/);
    t.is(leadsTo(await admin.send(at, { act: 'enable' })), `${at} (person-enabled)`);
    t.deepEqual(await statuses(), [401, 401, 303], 'still disabled everywhere');
    t.is(leadsTo(await admin.send(`${at}?layer=all`, { act: 'enable' })), `${at}?layer=all (person-enabled)`);
    t.deepEqual(await statuses(), [200, 200, 303]);
    const stranger = await Visitor.signedIn(server, elsewhere);
    t.is((await stranger.fetch(at)).status, 404);
    t.is((await stranger.send(`${at}?layer=all`, { act: 'disable', reason: 'x' })).status, 404, 'without operate');
    const ends = '/console/people/limits';
    t.regex(
      await admin.refused(ends, { limited: 'no', days: 'x' }),
      /id="longest_days-error"[^>]*>expected a whole number/,
    );
    t.is(
      leadsTo(await admin.send(ends, { limited: 'yes', scope: 'read', days: '2' })),
      `${ends} (personal-limits-set)`,
    );
    t.deepEqual(await (await ask('GET', '/account/personal-tokens')).json(), { scopes: ['read'], longest_days: 2 });
    t.regex(await admin.page(ends), /value="read"[^>]*checked[^]*value="2"/);
    t.is(leadsTo(await admin.send(ends, { limited: 'no', days: '' })), `${ends} (personal-limits-set)`);

    const again = await signedIn(server);
    const limits = { scopes: ['read'], longest_days: 2 };
    t.is((await ask('PUT', '/account/personal-tokens', limits, reader)).status, 403);
    t.deepEqual(await (await ask('PUT', '/account/personal-tokens', limits)).json(), limits);
    const push = (by: string) => other.fetch('/v3/push', { method: 'PUT', token: by, body: 'x' });
    t.deepEqual([(await push(token)).status, await statuses()], [403, [200, 200, 303]]);
    const mine = (body: object) =>
      again.fetch(`${server.url}/v1/me/tokens`, { method: 'POST', headers: json, body: JSON.stringify(body) });
    t.regex(await (await mine({ name: 'more', scopes: ['read', 'write'] })).text(), /at most read\b/);
    const late = new Date(server.clock.now! + 3 * 86_400_000).toISOString();
    t.regex(await (await mine({ name: 'late', scopes: ['read'], expires_at: late })).text(), /after 2 days at the/);
    for (const each of [server, other]) each.clock.now! += 2 * 86_400_000 + 1;
    t.deepEqual(await statuses(), [401, 401, 303], 'a token that is older ends, too');
  });
}

test('a person who may promote in both accounts promotes at once, unless another person has to approve it', async (t) => {
  const { server } = await startWithProvider(t, {}, [
    { claim: 'groups', value: 'dev', account: 'default', scopes: ['read', 'promote'] },
    { claim: 'groups', value: 'dev', account: 'other', scopes: ['read', 'promote'] },
    { claim: 'groups', value: 'leads', account: 'third', scopes: ['read', 'write'] },
  ]);
  const admin = await tokenOf(server, ['admin'], 'other');
  await tokenOf(server, ['admin'], 'third');
  await new TestRepository(server, 'app').image('v1');
  const browser = await signedIn(server);
  const ask = async (fields: Record<string, string>) => {
    const wish = { kind: 'image', name: 'app', reference: 'v1', to_name: '', reason: '', ...fields };
    const answer = await browser.send(`${server.url}/console/promotions/new`, wish);
    const at = answer.headers.get('location')!;
    return at.includes('refused') ? page(browser, server, at) : leadsTo(answer);
  };
  t.is(await ask({ to_account: 'other' }), '/console/promotions/1 (promoted)');
  const reader = await tokenOf(server, ['read'], 'other');
  t.is((await server.fetch('/v2/app/manifests/v1', { token: reader })).status, 200);
  t.regex(
    await ask({ to_account: 'third' }),
    /There is no account third that takes promotions/,
    'a right of another kind',
  );
  const change = { method: 'PUT', body: '{"approval":"another"}', headers: { 'content-type': 'application/json' } };
  t.is((await server.fetch('/v1/account/promotion', { ...change, token: admin })).status, 200);
  t.is(await ask({ to_account: 'other', to_name: 'new' }), '/console/promotions/2 (promotion-requested)');
  await browser.send(`${server.url}/console/account`, { account: 'other' });
  const own = await browser.send(`${server.url}/console/promotions/2`, { act: 'approve' });
  t.regex(
    await page(browser, server, own.headers.get('location')!),
    /Another person approves it/,
    'the same person with another account',
  );
});
