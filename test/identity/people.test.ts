import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, tokenOf } from '../support/inside.ts';
import type { Browser } from '../support/cookie-browser.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { within } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';
import { sendJson, type Json } from './support.ts';

const day = 86_400_000;

async function start(t: ExecutionContext, people: Record<string, object>, rules: readonly object[], signIn = {}) {
  const parts = await startProvider(t, people, rules, {}, (given = {}) =>
    startTestServer(t, { ...given, signIn: { ...(given['signIn'] as object), ...signIn } }),
  );
  parts.server.clock.now = Date.now();
  return parts;
}

const itemsOf = async (server: TestServer, path: string) =>
  ((await (await server.fetch(path)).json()) as { items: Json[] }).items;

test('who is disabled stays so for longer than others are known', async (t) => {
  const rules = ['ann', 'bob'].map((value) => ({ claim: 'sub', value, account: 'default', scopes: ['read'] }));
  const { server, who } = await start(t, { ann: { name: 'Ann' }, bob: { name: 'Bob' } }, rules);
  await signedIn(server);
  const [ann] = await itemsOf(server, '/v1/people');
  await sendJson(server, 'POST', `/v1/people/${String(ann!['id'])}/disable`, { reason: 'has left' });
  server.clock.now! += 31 * day;
  who.id = 'bob';
  await signedIn(server);
  const subjects: string[] = [];
  for (let cursor: string | null = ''; cursor !== null && subjects.length < 5;) {
    const page = await server.fetch(`/v1/people?limit=1${cursor && `&cursor=${cursor}`}`);
    const { items, next_cursor: next } = (await page.json()) as { items: Json[]; next_cursor: string | null };
    subjects.push(...items.map(({ subject }) => String(subject)));
    cursor = next;
  }
  t.deepEqual(subjects.sort(), ['ann', 'bob']);
  who.id = 'ann';
  await t.throwsAsync(signedIn(server), { message: /40[0-9]/ });
});

test('of what rules know about a person, only claims that the provider cuts are kept, and not for ever', async (t) => {
  const rules = [
    { claim: 'groups', value: 'dev', account: 'default', scopes: ['read'] },
    { claim: 'name', value: 'Lead', account: 'default', scopes: ['write'] },
  ];
  const people: Record<string, object> = { ann: { name: 'Lead', groups: ['dev'] } };
  const { server } = await start(t, people, rules);
  const first = await signedIn(server);
  await personalToken(first, server, ['write']);
  people['ann'] = { name: 'Ann', groups: ['dev'] };
  await signedIn(server);
  await t.throwsAsync(personalToken(first, server, ['write']), { message: /^403 / }, 'in each browser at once');
  people['ann'] = { name: 'Lead', groups: ['dev'] };
  const token = await personalToken(await signedIn(server), server, ['read', 'write']);
  const statuses = async () => [
    (await server.fetch('/v1/packages', { token })).status,
    (await server.fetch('/v3/push', { method: 'PUT', body: 'x', token })).status,
  ];
  t.deepEqual(await statuses(), [200, 400]);
  people['ann'] = { name: 'Ann', hasgroups: true };
  server.clock.now! += 20 * day;
  await signedIn(server);
  t.deepEqual(await statuses(), [200, 403], 'the name is another one, and the groups are those of before');
  server.clock.now! += 11 * day;
  await t.throwsAsync(signedIn(server), { message: /403/ });
  t.deepEqual(await statuses(), [401, 401], 'the groups were told too long ago');
});

test('the session of a person ends without a sign-in for the time that ends personal tokens', async (t) => {
  const rules = [{ claim: 'sub', value: 'ann', account: 'default', scopes: ['read'] }];
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules, { tokens: { idle: '1d' } });
  const browser = await signedIn(server);
  await personalToken(browser, server, ['read']);
  const { id } = (await itemsOf(server, '/v1/tokens')).find((each) => each['person_id'] !== null)!;
  const query = `who=token&id=${String(id)}&verb=read&kind=package&name=any`;
  const state = async () => {
    const { status } = await browser.fetch(`${server.url}/console/connect`);
    return [status, (await itemsOf(server, '/v1/sessions')).length];
  };
  const explained = async () => (await server.fetch(`/v1/grants/explain?${query}`)).json();
  t.like(await explained(), { allowed: true });
  for (let hours = 6; hours < 24; hours += 6) {
    server.clock.now! += 6 * 3_600_000;
    t.deepEqual(await state(), [200, 1]);
  }
  server.clock.now! += 6 * 3_600_000;
  t.deepEqual(await state(), [303, 0]);
  t.like(await explained(), { allowed: false, because: 'its person has not signed in for too long' });
});

test('a refused form of a person is shown only in the account in which it was sent', async (t) => {
  const rules = ['default', 'other'].map((account) => ({
    claim: 'sub',
    value: 'ann',
    account,
    scopes: ['read', 'admin'],
  }));
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules);
  await tokenOf(server, ['read'], 'other');
  const browser = await signedIn(server);
  const path = `${server.url}/console/tokens/new`;
  const refused = await browser.send(path, { name: ' ', scope: 'read', packages: 'My.*' });
  const isShown = async () =>
    (await (await browser.fetch(server.url + refused.headers.get('location')!)).text()).includes('My.*');
  const found: boolean[] = [];
  for (const account of ['default', 'other', 'default']) {
    await browser.send(`${server.url}/console/account`, { account });
    found.push(await isShown());
  }
  t.deepEqual(found, [true, false, true]);
});

test('who is disabled in an account keeps the session in another one', async (t) => {
  const rules = ['default', 'other'].map((account) => ({ claim: 'sub', value: 'ann', account, scopes: ['read'] }));
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules);
  await tokenOf(server, ['read'], 'other');
  const [here, there] = [await signedIn(server), await signedIn(server)];
  await there.send(`${server.url}/console/account`, { account: 'other' });
  const [ann] = await itemsOf(server, '/v1/people');
  const disable = async (reason: string, layer = 'account') =>
    (await sendJson(server, 'POST', `/v1/people/${String(ann!['id'])}/disable?layer=${layer}`, { reason })).status;
  t.deepEqual([await disable(' '), await disable('x'.repeat(201)), await disable('x'.repeat(200))], [400, 400, 200]);
  const statuses = [here, there].map(async (each) => (await each.fetch(`${server.url}/console/connect`)).status);
  t.deepEqual(await Promise.all(statuses), [303, 200]);
  const rows = async () => (await databaseOf(server).select('SELECT id FROM sessions')).length;
  t.is(await rows(), 1, 'nothing is left of the other one');
  t.is(await disable('left', 'all'), 200);
  t.is(await rows(), 0);
  const [{ disabled }] = (await itemsOf(server, '/v1/people')) as [{ disabled: Json[] }];
  t.deepEqual(disabled.map(({ account }) => String(account)).sort(), ['default', 'null'], 'one does not end the other');
});

test('a person asks with the session of the console who it is, and an own token says whose it is', async (t) => {
  const scopes = ['read', 'write'];
  const rules = ['default', 'other'].map((account) => ({ claim: 'name', value: 'Ann', account, scopes }));
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules);
  await tokenOf(server, ['read'], 'other');
  const browser = await signedIn(server);
  const [ann] = await itemsOf(server, '/v1/people');
  const me = async () => (await browser.fetch(`${server.url}/v1/me`)).json();
  const known = {
    kind: 'person',
    id: ann!['id'],
    name: 'Ann',
    account: 'default',
    accounts: ['default', 'other'],
    scopes,
    limited: false,
    person_id: ann!['id'],
    expires_at: null,
  };
  t.deepEqual(await me(), known);
  await browser.send(`${server.url}/console/account`, { account: 'other' });
  t.deepEqual(await me(), { ...known, account: 'other' });
  const token = await personalToken(browser, server, ['read'], { packages: ['Contoso.*'] });
  t.like(await (await server.fetch('/v1/me', { token })).json(), {
    kind: 'token',
    account: 'other',
    accounts: ['other'],
    scopes: ['read'],
    limited: true,
    person_id: ann!['id'],
  });
});

test('who has operate in the account is disabled, and let in again, only with operate', async (t) => {
  const rule = { claim: 'sub', account: 'default' };
  const rules = [
    { ...rule, value: 'ann', scopes: ['read', 'operate'] },
    { ...rule, value: 'bob', scopes: ['read', 'admin'] },
    { ...rule, value: 'ann', account: 'other', scopes: ['read', 'admin'] },
  ];
  const { server, who } = await start(t, { ann: { name: 'Ann' }, bob: { name: 'Bob' } }, rules);
  const admin = await tokenOf(server, ['admin']);
  const operator = await tokenOf(server, ['admin', 'operate']);
  const elsewhere = await tokenOf(server, ['admin'], 'other');
  await signedIn(server);
  who.id = 'bob';
  await signedIn(server);
  const people = await itemsOf(server, '/v1/people');
  const send = (subject: string, act: 'disable' | 'enable', token: string) => {
    const { id } = people.find((each) => each['subject'] === subject)!;
    return sendJson(
      server,
      'POST',
      `/v1/people/${String(id)}/${act}`,
      act === 'disable' ? { reason: 'left' } : {},
      token,
    );
  };
  const refused = await send('ann', 'disable', admin);
  t.is(refused.status, 403);
  t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' });
  t.is((await send('ann', 'disable', operator)).status, 200);
  t.is((await send('ann', 'enable', admin)).status, 403, 'what an operator has decided');
  t.is((await send('ann', 'enable', operator)).status, 200);
  for (const act of ['disable', 'enable'] as const) {
    t.is((await send('bob', act, admin)).status, 200, 'an administrator does not have operate');
    t.is((await send('ann', act, elsewhere)).status, 200, 'in an account where the person does not have it');
  }
});

test('a rule sees each group of a person in very many', async (t) => {
  const groups = [...Array.from({ length: 1500 }, (_, number) => `g-${number}`), 'dev'];
  const rules = [{ claim: 'groups', value: 'dev', account: 'default', scopes: ['read'] }];
  const { server } = await start(t, { ann: { name: 'Ann', groups } }, rules);
  await t.notThrowsAsync(signedIn(server));
});

test('a list of sessions asks for all grants at once, and one of people reads 1,000 for a page', async (t) => {
  const rules = [{ claim: 'sub', value: 'ann', account: 'default', scopes: ['read'] }];
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules);
  for (let count = 0; count < 3; count += 1) await signedIn(server);
  const database = databaseOf(server);
  const select = database.select.bind(database);
  let asked = 0;
  database.select = (sql, values) => {
    if (sql.includes('FROM grants JOIN accounts')) asked += 1;
    return select(sql, values);
  };
  t.is((await itemsOf(server, '/v1/sessions')).length, 3);
  t.is(asked, 1);

  const strangers = Array.from({ length: 1000 }, (_, number) => {
    const person = { issuer: 'https://other.example', subject: String(number), name: 'Other', claims: [] };
    return { id: `!${number}`, person: JSON.stringify(person), signed_in_at: server.clock.now! };
  });
  await database.transaction((tx) => tx.insertNew('people', strangers));
  const page = async (cursor = '') =>
    (await (await server.fetch(`/v1/people?limit=200${cursor}`)).json()) as { items: Json[]; next_cursor: string };
  const first = await page();
  t.deepEqual(first.items, []);
  t.is((await page(`&cursor=${first.next_cursor}`)).items.length, 1);
  const entitled = await server.fetch('/v1/grants/entitled?verb=read&kind=package&name=any');
  t.like(await entitled.json(), { is_complete: false }, 'it looks at 1,000 people');
  const visitor = await Visitor.signedIn(server);
  const who = await visitor.page('/console/access/explain?verb=read&kind=package&name=any');
  t.regex(who, /There are more people or tokens than are examined\./);
  const shown = await visitor.page('/console/people');
  t.regex(shown, /Nothing on this page\.[^]*rel="next"/);
  t.notRegex(shown, /No person has signed in/);
});

test('limits that could end a personal token with operate are set only with operate', async (t) => {
  const rules = [{ claim: 'sub', value: 'ann', account: 'default', scopes: ['read', 'operate'] }];
  const { server } = await start(t, { ann: { name: 'Ann' } }, rules);
  const admin = await tokenOf(server, ['admin']);
  const operates = await personalToken(await signedIn(server), server, ['read', 'operate']);
  const put = async (limits: Json, token: string) => {
    const answer = await sendJson(server, 'PUT', '/v1/account/personal-tokens', limits, token);
    return [answer.status, ((await answer.json()) as Json)['scope']];
  };
  const works = async () => (await server.fetch('/v1/instances', { token: operates })).status;
  for (const limits of [{ scopes: ['read'] }, { longest_days: 1 }, {}])
    t.deepEqual(await put(limits, admin), [403, 'operate'], JSON.stringify(limits));
  t.is(await works(), 200);
  t.deepEqual(await put({ scopes: ['read'] }, await tokenOf(server, ['admin', 'operate'])), [200, undefined]);
  t.is(await works(), 403);
  const { id } = (await itemsOf(server, '/v1/tokens')).find((each) => each['person_id'] !== null)!;
  t.is((await server.fetch(`/v1/tokens/${String(id)}`, { method: 'DELETE' })).status, 204);
  t.deepEqual(await put({}, admin), [200, undefined], 'no such token is left');
});

test('a personal token whose person has lost operate does not keep an administrator from the limits', async (t) => {
  const rules = [
    { claim: 'groups', value: 'ops', account: 'default', scopes: ['operate'] },
    { claim: 'sub', value: 'ann', account: 'default', scopes: ['read'] },
  ];
  const people: Record<string, object> = { ann: { name: 'Ann', groups: ['ops'] } };
  const { server } = await start(t, people, rules);
  const admin = await tokenOf(server, ['admin']);
  const put = async () =>
    (await sendJson(server, 'PUT', '/v1/account/personal-tokens', { scopes: null }, admin)).status;
  const signInWith = async (groups: readonly string[]) => {
    people['ann'] = { name: 'Ann', groups };
    return signedIn(server);
  };
  await personalToken(await signInWith(['ops']), server, ['read', 'operate']);
  t.is(await put(), 403);
  await signInWith([]);
  t.is(await put(), 200, 'no rule gives it');
  await signInWith(['ops']);
  t.is(await put(), 403, 'it has effect again');
  const [ann] = await itemsOf(server, '/v1/people');
  const disabled = await sendJson(server, 'POST', `/v1/people/${String(ann!['id'])}/disable`, { reason: 'left' });
  t.is(disabled.status, 200);
  t.is(await put(), 403, 'the person can be let in again');
  server.clock.now! += 31 * day;
  t.is(await put(), 200, 'no sign-in');
});

for (const dialect of dialects) {
  test(`${dialect}: an account knows who has a session or a personal token in it, whatever else is forgotten`, async (t) => {
    const rules = ['ann', 'bob'].map((value) => ({ claim: 'sub', value, account: 'default', scopes: ['read'] }));
    const people = { ann: { name: 'Ann' }, bob: { name: 'Bob' } };
    const database = { url: await temporaryDatabase(t, dialect) };
    const { server, who } = await startProvider(t, people, rules, { database });
    server.clock.now = Date.now();
    const other = await tokenOf(server, ['admin'], 'other');
    const grant = { subject: { kind: 'person', id: 'ann' }, verbs: ['read'] };
    t.is((await sendJson(server, 'POST', '/v1/grants', grant, other)).status, 201);
    const browser = await signedIn(server);
    await browser.send(`${server.url}/console/account`, { account: 'other' });
    const known = async () => {
      const answer = await server.fetch('/v1/people', { token: other });
      return ((await answer.json()) as { items: Json[] }).items.map(({ subject }) => subject);
    };
    // As an instance of an older version begins a session.
    await databaseOf(server).transaction((tx) => tx.run('UPDATE people SET used_accounts = NULL', []));
    t.deepEqual(await known(), ['ann']);

    const token = await personalToken(browser, server, ['read']);
    const status = async () => (await server.fetch('/v1/packages', { token })).status;
    server.clock.now += 31 * day;
    who.id = 'bob';
    await signedIn(server);
    t.deepEqual(await known(), []);
    who.id = 'ann';
    await signedIn(server);
    t.is(await status(), 200, 'the token has effect again');
    t.deepEqual(await known(), ['ann']);
    const { id } = (await itemsOf(server, '/v1/people')).find(({ subject }) => subject === 'ann')!;
    const disabled = await sendJson(server, 'POST', `/v1/people/${String(id)}/disable`, { reason: 'left' }, other);
    t.is(disabled.status, 200);
    t.is(await status(), 401);
    await databaseOf(server).transaction(async (tx) => {
      await tx.run('UPDATE people SET disabled = NULL', []);
      await tx.run('UPDATE tokens SET revoked_at = 1 WHERE owner_id IS NOT NULL', []);
      await tx.run('DELETE FROM sessions', []);
    });
    t.deepEqual(await known(), [], 'nothing of the person is left in the account');
  });

  test(`${dialect}: a grant to a group shows an account only people who have used it, and their sessions only meanwhile`, async (t) => {
    const people = { ann: { name: 'Ann', groups: ['staff'] } };
    const rules = [{ claim: 'groups', value: 'staff', account: 'work', scopes: ['read'] }];
    const database = { url: await temporaryDatabase(t, dialect) };
    const { server } = await startProvider(t, people, rules, { database });
    const [work, stranger] = [await tokenOf(server, ['admin'], 'work'), await tokenOf(server, ['admin'], 'aaa')];
    const grant = { subject: { kind: 'group', id: 'staff' }, verbs: ['read'], packages: ['none'] };
    t.is((await sendJson(server, 'POST', '/v1/grants', grant, stranger)).status, 201);
    const browser = await signedIn(server);
    const seen = async (token: string) => {
      const lists = ['/v1/sessions', '/v1/people', '/v1/grants/entitled?verb=read&kind=package&name=none'];
      const [sessions, known, entitled] = (await Promise.all(
        lists.map(async (path) => ((await (await server.fetch(path, { token })).json()) as { items: Json[] }).items),
      )) as [Json[], Json[], Json[]];
      return [sessions.length, known.length, entitled.filter(({ who }) => who === 'person').length];
    };
    t.deepEqual(
      [await seen(work), await seen(stranger)],
      [
        [1, 1, 1],
        [0, 0, 0],
      ],
    );
    const [session] = ((await (await server.fetch('/v1/sessions', { token: work })).json()) as { items: Json[] }).items;
    const [ann] = ((await (await server.fetch('/v1/people', { token: work })).json()) as { items: Json[] }).items;
    const statuses = async (id: unknown) => [
      (await server.fetch(`/v1/sessions/${String(id)}`, { method: 'DELETE', token: stranger })).status,
      (await server.fetch(`/v1/people/${String(ann!['id'])}`, { token: stranger })).status,
    ];
    t.deepEqual(await statuses(session!['id']), [404, 404]);
    t.is((await browser.fetch(`${server.url}/console/connect`)).status, 200, 'it has not ended');

    const choose = (account: string) => browser.send(`${server.url}/console/account`, { account });
    await choose('aaa');
    t.deepEqual(
      [await seen(work), await seen(stranger)],
      [
        [1, 1, 1],
        [1, 1, 1],
      ],
    );
    await choose('work');
    t.deepEqual(
      [await seen(work), await seen(stranger)],
      [
        [1, 1, 1],
        [0, 1, 1],
      ],
    );
    await choose('aaa');
    t.deepEqual(await statuses(session!['id']), [204, 200]);
    t.deepEqual(
      [await seen(work), await seen(stranger)],
      [
        [0, 1, 1],
        [0, 1, 1],
      ],
    );
  });
}

test('a new session begins in the account that the person used last, whatever other accounts grant', async (t) => {
  const { server } = await start(t, { ann: { name: 'Ann' } }, []);
  const grant = { subject: { kind: 'person', id: 'ann' }, verbs: ['read'] };
  const give = async (account: string) =>
    (await sendJson(server, 'POST', '/v1/grants', grant, await tokenOf(server, ['admin'], account))).status;
  t.deepEqual([await give('other'), await give('work')], [201, 201]);
  const account = async (browser: Browser) =>
    ((await (await browser.fetch(`${server.url}/v1/me`)).json()) as Json)['account'];
  const first = await signedIn(server);
  t.is(await account(first), 'other');
  await first.send(`${server.url}/console/account`, { account: 'work' });
  t.is(await give('aaa'), 201);
  t.is(await account(await signedIn(server)), 'work');
  await first.send(`${server.url}/console/account`, { account: 'other' });
  const [row] = await databaseOf(server).select<{ used: string }>('SELECT used_accounts AS used FROM people');
  t.deepEqual(JSON.parse(row!.used), ['other', 'work'], 'each once, the latest first');
});

for (const dialect of dialects) {
  test(`${dialect}: many people are disabled at the same time`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const ids = Array.from({ length: 30 }, (_, index) => `person-${index}`);
    const rows = ids.map((id) => {
      const person = { issuer: 'https://login.example', subject: id, name: id, claims: [] };
      return { id, person: JSON.stringify(person), signed_in_at: Date.now() };
    });
    await databaseOf(server).transaction((tx) => tx.insertNew('people', rows));
    const disabled = ids.map((id) =>
      sendJson(server, 'POST', `/v1/people/${id}/disable?layer=all`, { reason: 'has left' }),
    );
    // They are more than the connections to MySQL.
    for (const { status } of await within(Promise.all(disabled), 50_000)) t.is(status, 200);
    const people = await itemsOf(server, '/v1/people?layer=all&limit=200');
    t.is(people.filter((each) => (each['disabled'] as Json[]).length === 1).length, ids.length);
  });
}
