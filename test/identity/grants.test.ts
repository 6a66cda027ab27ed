import test, { type ExecutionContext } from 'ava';
import { auditOf } from '../support/audit.ts';
import { Browser as NewBrowser } from '../support/cookie-browser.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { personIdOf } from '../../src/accounts/people.ts';
import { afterRead, createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { eventually } from '../support/until.ts';
import { entrepot } from '../support/in-process.ts';
import { emptyPlace } from '../backup/support.ts';
import { OpenDocument } from '../support/open-document.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { sendJson, type Json } from './support.ts';

const day = 86_400_000;
const rules = [{ claim: 'sub', value: 'root', account: 'default', scopes: ['read', 'write', 'delete', 'admin'] }];

interface Someone {
  name: string;
  groups?: string[];
  hasgroups?: boolean;
}

async function start(t: ExecutionContext, dialect: 'sqlite' | 'mysql') {
  const people: Record<string, Someone> = {
    root: { name: 'Root' },
    ann: { name: 'Ann', groups: ['g-dev'] },
    bob: { name: 'Bob' },
  };
  const database = { url: await temporaryDatabase(t, dialect) };
  const { server, issuer, who } = await startProvider(t, people, rules, { database });
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.App' }, { id: 'Contoso.Core' }, { id: 'Fabrikam' });
  const signIn = (id: string) => {
    who.id = id;
    return signedIn(server);
  };
  return { server, issuer, people, who, signIn };
}

const grant = async (server: TestServer, body: Json, token?: string): Promise<string> => {
  const answer = await sendJson(server, 'POST', '/v1/grants', body, token);
  if (answer.status !== 201) throw new Error(`${answer.status} ${await answer.text()}`);
  return ((await answer.json()) as { id: string }).id;
};
const person = (id: string) => ({ kind: 'person', id });
const group = (id: string) => ({ kind: 'group', id });

const index = (id: string) => `/v3/package/${id.toLowerCase()}/index.json`;
const statuses = (server: TestServer, token: string, ...paths: string[]) =>
  Promise.all(paths.map(async (path) => (await server.fetch(path, { token })).status));
const listed = async (server: TestServer, token: string): Promise<string[]> => {
  const { items } = (await (await server.fetch('/v1/packages', { token })).json()) as { items: { id: string }[] };
  return items.map(({ id }) => id);
};

for (const dialect of dialects) {
  test(`${dialect}: grants give people, groups and tokens verbs for names, and end at once`, async (t) => {
    const { server, issuer, people, who, signIn } = await start(t, dialect);
    const document = await OpenDocument.of(server);
    const push = async (id: string, token: string, version = '2.0.0') =>
      (await new TestFeed(server, token).push({ id, version })).status;

    who.id = 'ann';
    const refused = await new NewBrowser().follow(`${server.url}/console/sign-in/oidc`);
    t.is(refused.response.status, 403, 'no rule and no grant');
    const readers = await grant(server, { subject: group('g-dev'), verbs: ['read'], packages: ['Contoso.*'] });
    const browser = await signIn('ann');
    const text = await (await browser.fetch(`${server.url}/console/packages`)).text();
    t.regex(text, /Contoso\.App/);
    t.notRegex(text, /Fabrikam/);
    const reads = await personalToken(browser, server, ['read']);
    t.deepEqual(await listed(server, reads), ['Contoso.App', 'Contoso.Core']);
    t.deepEqual(await statuses(server, reads, index('Contoso.App'), index('Fabrikam'), '/v1/tokens'), [200, 403, 403]);
    const unseen = await server.fetch('/v1/packages/Fabrikam', { token: reads });
    t.regex(await unseen.text(), /The right \\"read\\" in the account default is limited/, 'not its own patterns');
    t.is((await browser.fetch(`${server.url}/console/tokens`)).status, 403);
    const more = { name: 'more', scopes: ['write'] };
    const json = { 'content-type': 'application/json' };
    const init = { method: 'POST', headers: json, body: JSON.stringify(more) };
    t.is((await browser.fetch(`${server.url}/v1/me/tokens`, init)).status, 403);

    server.clock.now! += 1000;
    const writes = await grant(server, {
      subject: { ...person('ann'), issuer },
      verbs: ['read', 'write'],
      packages: ['Fabrikam'],
    });
    const both = await personalToken(browser, server, ['read', 'write']);
    const narrow = await personalToken(browser, server, ['read', 'write'], { packages: ['Fabrikam', 'Contoso.App'] });
    const wide = await personalToken(browser, server, ['read'], { packages: ['*'], containers: ['*'] });
    t.deepEqual(await listed(server, both), ['Contoso.App', 'Contoso.Core', 'Fabrikam']);
    t.deepEqual(await listed(server, narrow), ['Contoso.App', 'Fabrikam']);
    t.deepEqual(await listed(server, wide), ['Contoso.App', 'Contoso.Core', 'Fabrikam']);
    t.deepEqual(await statuses(server, narrow, index('Contoso.Core'), index('Contoso.App')), [403, 200]);
    t.is(await push('Fabrikam', both), 201);
    t.is(await push('Contoso.App', both), 403, 'it may read this one only');
    t.is(await push('Contoso.New', narrow), 403);
    t.is(await push('Fabrikam', reads, '3.0.0'), 403, 'a token has its own scopes');
    const deleting = await server.fetch('/v1/packages/Fabrikam/2.0.0', { method: 'DELETE', token: both });
    t.is(deleting.status, 403);
    const denied = await new TestFeed(server, both).push({ id: 'Contoso.App', version: '2.0.0' });
    t.regex(denied.statusText, /The right "write" in the account default is limited to names that do not match/);

    const list = await document.read('GET /grants', await server.fetch('/v1/grants'));
    t.deepEqual(
      (list['items'] as Json[]).map(({ id, verbs, packages, images, state }) => [id, verbs, packages, images, state]),
      [
        [writes, ['read', 'write'], ['Fabrikam'], [], 'active'],
        [readers, ['read'], ['Contoso.*'], [], 'active'],
      ],
    );
    t.is((await server.fetch('/v1/grants', { token: both })).status, 403);
    t.is((await server.fetch(`/v1/grants/${writes}`, { method: 'DELETE' })).status, 204);
    t.is((await server.fetch(`/v1/grants/${writes}`, { method: 'DELETE' })).status, 404);
    t.deepEqual(await listed(server, both), ['Contoso.App', 'Contoso.Core']);
    t.is(await push('Fabrikam', both, '3.0.0'), 403);

    const { token, value } = await createToken(server, ['read'], 'default', { packages: ['Fabrikam'] });
    t.deepEqual(await listed(server, value), ['Fabrikam']);
    const ofToken = await grant(server, { subject: { kind: 'token', id: token.id }, verbs: ['write'] });
    t.is(await push('Contoso.App', value), 201, 'beside its own patterns');
    t.deepEqual(await listed(server, value), ['Fabrikam'], 'it may write all, and read what it was made for');
    t.is((await server.fetch(`/v1/grants/${ofToken}`, { method: 'DELETE' })).status, 204);
    t.is(await push('Contoso.App', value, '4.0.0'), 403);

    await grant(server, { subject: person('bob'), verbs: ['admin'] });
    await grant(server, { subject: person('bob'), verbs: ['read'], images: ['none'] });
    const asAdmin = await personalToken(await signIn('bob'), server, ['admin']);
    t.deepEqual(await statuses(server, asAdmin, '/v1/tokens', '/v1/grants', '/v1/packages'), [200, 200, 403]);
    await databaseOf(server).transaction((tx) => tx.run('DELETE FROM people'));
    t.deepEqual(await statuses(server, asAdmin, '/v1/tokens'), [401]);
    const events = await auditOf(server, 'type=grant.*');
    t.deepEqual(
      events.map(({ type }) => type),
      [
        'grant.created',
        'grant.created',
        'grant.removed',
        'grant.created',
        'grant.removed',
        'grant.created',
        'grant.created',
      ],
    );
    t.deepEqual(Object.keys(people), ['root', 'ann', 'bob']);
  });

  test(`${dialect}: groups are those of the last sign-in, and unknown while a provider cuts them`, async (t) => {
    const { server, people, signIn } = await start(t, dialect);
    const ann = people['ann']!;
    await grant(server, { subject: group('g-4999'), verbs: ['read'] });
    await grant(server, { subject: person('ann'), verbs: ['read'], packages: ['Own'] });
    ann.groups = Array.from({ length: 5000 }, (_, number) => `g-${number}`);
    const token = await personalToken(await signIn('ann'), server, ['read']);
    t.is((await listed(server, token)).length, 3, 'the last of 5,000');
    const [row] = await databaseOf(server).select<{ person: string }>('SELECT person FROM people');
    t.is((JSON.parse(row!.person) as { groups: string[] }).groups.length, 501);

    delete ann.groups;
    ann.hasgroups = true;
    server.clock.now! += 20 * day;
    await signIn('ann');
    t.is((await listed(server, token)).length, 3, 'not lost');
    server.clock.now! += 9 * day;
    await signIn('ann');
    t.is((await listed(server, token)).length, 3);
    server.clock.now! += 2 * day;
    await signIn('ann');
    t.deepEqual(await listed(server, token), [], 'not kept');

    ann.groups = ['g-4999'];
    delete ann.hasgroups;
    const browser = await signIn('ann');
    t.is((await listed(server, token)).length, 3);
    delete ann.groups;
    await signIn('ann');
    t.deepEqual(await listed(server, token), [], 'without the claim, the groups are lost');
    t.notRegex(
      await (await browser.fetch(`${server.url}/console/packages`)).text(),
      /Fabrikam/,
      'in open sessions, too',
    );
  });
}

test('a renamed group, and the same subject of another provider, give nothing; who is disabled stays so in a restored backup', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const shared = { data: place.data, database: { url: place.url } };
  const ann = { name: 'Ann', groups: ['g-dev'] };
  const { server, oidc } = await startProvider(t, { ann }, rules, shared);
  await grant(server, { subject: group('g-dev'), verbs: ['read'] });
  const token = await personalToken(await signedIn(server), server, ['read']);
  const status = async (at: TestServer) => (await at.fetch('/v1/packages', { token })).status;
  t.is(await status(server), 200);
  const other = await startProvider(t, { ann }, rules, shared);
  await t.throwsAsync(signedIn(other.server), { message: /403/ }, 'the same subject and group of another provider');
  t.is(await status(other.server), 401);
  t.is(await status(server), 200, 'the sign-in at the other provider changes nothing');
  ann.groups = ['g-developers'];
  await t.throwsAsync(signedIn(server), { message: /403/ });
  t.is(await status(server), 401, 'groups are known by what the provider sends');
  await grant(server, { subject: group('g-developers'), verbs: ['read'] });
  t.is(await status(server), 200);

  const people = (await (await server.fetch('/v1/people')).json()) as { items: { id: string; issuer: string }[] };
  const known = people.items.find(({ issuer }) => issuer === oidc.issuer);
  const disabled = await entrepot(place.environment, 'person', 'disable', known!.id, '--reason', 'has left');
  t.is(disabled.code, 0, disabled.stderr);
  t.is(await status(server), 401);
  const file = `${place.folder}/backup.tar`;
  t.is((await entrepot(place.environment, 'backup', file)).code, 0);
  const restored = await emptyPlace(t, 'sqlite');
  t.is((await entrepot(restored.environment, 'restore', file)).code, 0);
  const next = await startTestServer(t, {
    data: restored.data,
    database: { url: restored.url },
    signIn: { oidc },
  });
  t.is(await status(next), 401);
  const { stdout } = await entrepot(restored.environment, 'person', 'list');
  t.regex(stdout, new RegExp(`^${known!.id}\\t.*\\tdisabled everywhere\\tann\\tAnn$`, 'm'));
  t.is((await entrepot(restored.environment, 'person', 'enable', known!.id)).code, 0);
  t.is(await status(next), 200);
});

test('it is explained which rule or grant lets somebody do something, and why none does', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  const ann = { name: 'Ann', groups: ['g-pay', 'dev'] };
  const shared = { data: place.data, database: { url: place.url } };
  const all = [...rules, { claim: 'sub', value: 'reader', account: 'default', scopes: ['read'] }];
  const { server, issuer } = await startProvider(t, { ann }, all, shared);
  const environment = {
    ...place.environment,
    ENTREPOT_SIGN_IN_OIDC_ISSUER: issuer,
    ENTREPOT_SIGN_IN_OIDC_CLIENT_ID: 'entrepot',
    ENTREPOT_SIGN_IN_OIDC_ALLOW_PRIVATE_NETWORK: 'true',
    ENTREPOT_SIGN_IN_OIDC_RULES: JSON.stringify(all),
  };
  const names = { packages: ['Contoso.Pay.*'] };
  const toGroup = await grant(server, { subject: group('g-pay'), verbs: ['read', 'write'], ...names });
  const toTeam = await grant(server, { subject: { kind: 'account', id: 'team' }, verbs: ['read'], ...names });
  const { token, value } = await createToken(server, ['read'], 'default', { packages: ['Lib'] });
  const toToken = await grant(server, { subject: { kind: 'token', id: token.id }, verbs: ['write'], ...names });
  await personalToken(await signedIn(server), server, ['read', 'write']);
  const listed = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; person_id: string }[] };
  const ofAnn = listed.items.find((each) => each.person_id)!;
  const pay = 'contoso.pay.core';
  const explain = async (who: string, id: string, verb: string, name: string) => {
    const query = new URLSearchParams({ who, id, verb, kind: 'package', name });
    const answer = (await (await server.fetch(`/v1/grants/explain?${query.toString()}`)).json()) as Record<
      string,
      Json[]
    >;
    const told = await entrepot(environment, 'access', 'explain', who, id, verb, name);
    const may = answer['allowed'] ? 'may' : 'may not';
    t.true(told.stdout.includes(` ${may} ${verb} the package ${name} of default: `), told.stderr);
    return [answer['allowed'], answer['because'], answer['grants']?.map((each) => each['id'])];
  };
  const byGroup = [true, `the grant ${toGroup} to the group gives that`, [toGroup]];
  t.deepEqual(await explain('group', 'g-pay', 'write', pay), byGroup);
  t.deepEqual(await explain('person', 'ann', 'write', pay), byGroup);
  t.deepEqual(await explain('person', ofAnn.person_id, 'write', pay), byGroup, 'by the ID');
  t.deepEqual(await explain('token', ofAnn.id, 'write', pay), byGroup);
  const refused = async (who: string, id: string, verb: string, name: string, because: string, grants: string[] = []) =>
    t.deepEqual(await explain(who, id, verb, name), [false, because, grants]);
  await refused('token', ofAnn.id, 'delete', pay, 'the personal token was made for other verbs or names');
  await refused('person', 'ann', 'write', 'Other', 'no rule and no grant gives that for this name, and 1 for others');
  await refused('person', 'nobody', 'read', pay, 'no rule and no grant gives that');
  t.deepEqual(await explain('token', token.id, 'read', 'Lib'), [true, 'the token was made for that', []]);
  t.deepEqual((await explain('token', token.id, 'write', pay))[2], [toToken]);
  await refused('account', 'team', 'read', pay, `the other account has not accepted the grant ${toTeam}`, [toTeam]);
  const entitled = async (verb: string, name: string) => {
    const list = await server.fetch(`/v1/grants/entitled?verb=${verb}&kind=package&name=${name}`);
    const { items, is_complete: isComplete } = (await list.json()) as { items: Json[]; is_complete: boolean };
    t.true(isComplete);
    const told = await entrepot(environment, 'access', 'list', verb, name);
    t.is(told.stdout.split('\n').length - 1, items.length, told.stderr);
    return items
      .map(({ who, id }) => `${who as string} ${id as string}`)
      .filter((each) => !each.endsWith(installed.id));
  };
  const own = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; scopes: string[] }[] };
  const installed = own.items.find(({ scopes }) => scopes.includes('operate'))!;
  // Somebody of another provider with the same subject is somebody else.
  const elsewhere = { issuer: 'https://other.example.com', subject: 'zed', name: 'Zed', claims: [] };
  const row = { id: personIdOf(elsewhere), person: JSON.stringify(elsewhere), signed_in_at: server.clock.time() };
  await databaseOf(server).transaction((tx) => tx.insert('people', row));
  await grant(server, { subject: person('zed'), verbs: ['write'], ...names });
  // Who is found by a group, too, is listed once.
  await grant(server, { subject: person('ann'), verbs: ['write'], ...names });
  const ofGrants = ['rule sub=root', 'group g-pay', 'person ann', 'person zed'];
  t.deepEqual(await entitled('write', pay), [...ofGrants, `token ${ofAnn.id}`, `token ${token.id}`]);
  const shown = await (await server.fetch(`/v1/grants/entitled?verb=write&kind=package&name=${pay}`)).json();
  const byTheGroup = byGroup[1];
  t.like((shown as { items: Json[] }).items, [
    { who: 'rule', id: 'sub=root', name: null, because: 'a rule of the settings gives that' },
    { who: 'group', id: 'g-pay', name: null, because: byTheGroup },
    { who: 'person', id: 'ann', name: 'Ann' },
    { who: 'person', id: 'zed', name: null },
    { who: 'token', id: ofAnn.id, name: 'mine' },
    { who: 'token', id: token.id, name: 'a test', because: `the grant ${toToken} to the token gives that` },
  ] as never);
  const mistaken = async (...words: string[]) => (await entrepot(environment, 'access', 'explain', ...words)).stderr;
  t.regex(await mistaken('robot', 'x', 'read', 'Lib'), /robot: expected one of person, group, token, account\./);
  t.regex(await mistaken('person', 'ann', 'sudo', 'Lib'), /There is no scope "sudo"/);
  t.deepEqual(
    await entitled('read', 'Lib'),
    ['rule sub=root', 'rule sub=reader', `token ${token.id}`],
    'the account has not accepted its grant',
  );
  const team = await tokenOf(server, ['admin'], 'team');
  t.is((await sendJson(server, 'POST', `/v1/grants/${toTeam}/accept`, {}, team)).status, 200);
  const ofTeam = [true, `the grant ${toTeam} to the account gives that`, [toTeam]];
  t.deepEqual(await explain('account', 'team', 'read', pay), ofTeam);
  t.true((await entitled('read', pay)).includes('account team'));
  const limits = await sendJson(server, 'PUT', '/v1/account/personal-tokens', { scopes: ['read'] });
  t.is(limits.status, 200);
  t.deepEqual(await entitled('write', pay), [...ofGrants, `token ${token.id}`]);
  await refused('token', ofAnn.id, 'write', pay, 'the account allows personal tokens only read');
  const disabled = await sendJson(server, 'POST', `/v1/people/${ofAnn.person_id}/disable?layer=all`, {
    reason: 'left',
  });
  t.is(disabled.status, 200);
  await refused('person', 'ann', 'write', pay, 'the person is disabled here');
  t.deepEqual(await entitled('write', pay), ['rule sub=root', 'group g-pay', 'person zed', `token ${token.id}`]);
  const { token: short } = await createToken(server, ['read']);
  const endsAt = Date.now() + day;
  await databaseOf(server).transaction((tx) =>
    tx.run('UPDATE tokens SET expires_at = ? WHERE id = ?', [endsAt, short.id]),
  );
  const ofShort = async (time: number) => {
    server.clock.now = time;
    const query = `who=token&id=${short.id}&verb=read&kind=package&name=Lib`;
    return ((await (await server.fetch(`/v1/grants/explain?${query}`)).json()) as Json)['because'];
  };
  t.is(await ofShort(endsAt - 1), 'the token was made for that');
  t.is(await ofShort(endsAt), 'the token has expired');
  t.is((await server.fetch(`/v1/tokens/${short.id}`, { method: 'DELETE' })).status, 204);
  t.is(await ofShort(endsAt), 'the token is revoked');
  const path = '/v1/grants/explain?who=token&id=x&verb=read&kind=package&name=Lib';
  t.is((await server.fetch(path)).status, 404);
  t.is((await server.fetch(path, { token: value })).status, 403);
});

test('a grant is refused with the field that is wrong, and belongs to one provider', async (t) => {
  const { server, issuer, signIn } = await start(t, 'sqlite');
  const refusal = async (body: Json, token?: string) => {
    const answer = await sendJson(server, 'POST', '/v1/grants', body, token);
    const { detail, errors } = (await answer.json()) as { detail: string; errors?: { field: string }[] };
    return `${answer.status} ${errors?.[0]?.field}: ${detail}`;
  };
  const ann = person('ann');
  t.regex(await refusal({ subject: ann, verbs: [] }), /^400 verbs: .*at least one verb/);
  t.regex(await refusal({ subject: ann, verbs: ['operate'] }), /^400 verbs/);
  t.regex(await refusal({ subject: ann, verbs: ['admin'], images: ['a/*'] }), /^400 verbs: "admin" concerns the whole/);
  t.regex(await refusal({ subject: ann, verbs: ['read'], images: ['a b'] }), /^400 .*A pattern has 1 to 255/);
  t.regex(await refusal({ subject: ann, verbs: ['read'], images: [] }), /^400 .*at least one pattern/);
  t.regex(await refusal({ subject: { kind: 'team', id: 'x' }, verbs: ['read'] }), /^400 subject\.kind/);
  t.regex(
    await refusal({ subject: { kind: 'token', id: 'x' }, verbs: ['read'] }),
    /^400 subject\.id: .*no valid token/,
  );
  const toItself = { subject: { kind: 'account', id: 'default' }, verbs: ['read'], images: ['a'] };
  t.regex(await refusal(toItself), /^400 subject\.id: An account cannot share names with itself/);
  const other = { kind: 'account', id: 'other' };
  t.regex(await refusal({ subject: other, verbs: ['read'] }), /^400 verbs: A grant to another account gives only/);
  t.regex(await refusal({ subject: other, verbs: ['write'], images: ['a'] }), /^400 verbs/);
  const limited = (await createToken(server, ['read', 'admin'], 'default', { packages: ['Contoso.*'] })).value;
  t.regex(await refusal({ subject: ann, verbs: ['read'] }, limited), /^403/);
  t.regex(await refusal({ subject: ann, verbs: ['write'], packages: ['Contoso.A'] }, limited), /^403/);
  await grant(server, { subject: ann, verbs: ['read'], packages: ['Contoso.A'] }, limited);
  const subjectOf = async (subject: Json) =>
    ((await (await sendJson(server, 'POST', '/v1/grants', { subject, verbs: ['read'] })).json()) as Json)['subject'];
  t.deepEqual(await subjectOf({ kind: 'group', id: ' g ', issuer: ' ' }), { kind: 'group', issuer, id: 'g' });
  const { token: own } = await createToken(server, ['read']);
  const ofToken = { kind: 'token', id: own.id };
  t.deepEqual(await subjectOf({ ...ofToken, issuer: 'https://a.example' }), { ...ofToken, issuer: null });

  await grant(server, { subject: { ...person('bob'), issuer: 'https://other.example' }, verbs: ['read'] });
  await t.throwsAsync(signIn('bob'), { message: /403/ }, 'the same subject of another provider');
  const shown = (await (await server.fetch('/v1/grants', { token: limited })).json()) as { items: Json[] };
  t.is(shown.items.length, 1, 'a limited token sees what is within its limits');

  const stranger = await tokenOf(server, ['admin'], 'stranger');
  const id = await grant(server, { subject: other, verbs: ['read'], packages: ['Contoso.*'] });
  const asStranger = { token: stranger, method: 'DELETE' };
  t.is((await server.fetch(`/v1/grants/${id}`, asStranger)).status, 404);
  t.is((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, stranger)).status, 404);
  t.is((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {})).status, 404, 'the account that shares');
});

for (const dialect of dialects) {
  test(`${dialect}: an account reads the names that another one shares with it, under the same addresses`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const a = await tokenOf(server, ['read', 'write', 'delete', 'admin'], 'a');
    const b = await tokenOf(server, ['read', 'write', 'delete', 'admin'], 'b');
    const c = await tokenOf(server, ['read'], 'c');
    await new TestFeed(server, a).publish({ id: 'Lib.Core' }, { id: 'Lib.Own' }, { id: 'Secret' });
    await new TestFeed(server, b).publish({ id: 'Lib.Own', version: '7.0.0' });
    const image = {
      schemaVersion: 2,
      mediaType: ociManifest,
      config: await new TestRepository(server, 'lib/base', a).blob('{}'),
    };
    const put = (name: string, token: string) =>
      server.fetch(`/v2/${name}/manifests/v1`, {
        method: 'PUT',
        token,
        headers: { 'content-type': ociManifest },
        body: JSON.stringify({ ...image, layers: [] }),
      });
    t.is((await put('lib/base', a)).status, 201);
    const body = { subject: { kind: 'account', id: 'b' }, verbs: ['read'], packages: ['Lib.*'], images: ['lib/*'] };
    const id = await grant(server, body, a);
    const paths = [
      index('Lib.Core'),
      '/v1/packages/Lib.Core',
      '/v1/packages/Lib.Core/1.0.0/file',
      '/v2/lib/base/manifests/v1',
      '/v2/lib/base/tags/list',
      '/v1/containers/lib%2Fbase',
    ];
    const none = paths.map(() => 404);
    t.deepEqual(await statuses(server, b, ...paths), none, 'it is not accepted');
    const accepted = await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, b);
    t.is(accepted.status, 200);
    t.like(await accepted.json(), { account: 'a', state: 'active', created_by: null });
    t.deepEqual(
      await statuses(server, b, ...paths),
      paths.map(() => 200),
    );
    t.deepEqual(await statuses(server, b, index('Secret'), '/v1/packages/Secret'), [404, 404]);
    t.deepEqual(await statuses(server, c, ...paths), none);
    const own = (await (await server.fetch(index('Lib.Own'), { token: b })).json()) as { versions: string[] };
    t.deepEqual(own.versions, ['7.0.0'], 'an own name wins');
    const both = ['Lib.Core 1.0.0', 'Lib.Own 7.0.0'];
    t.deepEqual(await lists(server, b), {
      search: ['Lib.Own 7.0.0', 'Lib.Core 1.0.0', 2],
      ids: ['Lib.Own', 'Lib.Core', 2],
      versions: ['1.0.0'],
      catalog: ['lib/base'],
      packages: both,
      bySize: [...both, 2],
      containers: ['lib/base'],
      imagesBySize: ['lib/base', 1],
      found: ['Lib.Core', 'Lib.Own', 'lib/base'],
    });
    const page = await readList(server, '/v3/search?q=lib&skip=1&take=1', b);
    t.is(page.data[0].id, 'Lib.Core', 'the second page goes on in the shared names');
    const first = await readList(server, '/v1/packages?limit=1', b);
    const second = await readList(server, `/v1/packages?limit=1&cursor=${first.next_cursor}`, b);
    t.deepEqual([first.items[0].id, second.items[0].id, second.next_cursor], ['Lib.Core', 'Lib.Own', null]);
    t.is((await put('other', b)).status, 400, 'a blob of another account');
    await new TestRepository(server, 'other', b).blob('{}');
    t.is((await put('other', b)).status, 201);
    const catalog = await server.fetch('/v2/_catalog?n=1', { token: b });
    t.deepEqual(await catalog.json(), { repositories: ['lib/base'] });
    t.regex(catalog.headers.get('link')!, /last=lib%2Fbase/, 'an own name is on the next page');
    const some = (await createToken(server, ['read'], 'b', { packages: ['*.Core'] })).value;
    t.like(await lists(server, some), { search: ['Lib.Core 1.0.0', 1], catalog: [], packages: ['Lib.Core 1.0.0'] });
    t.like(await lists(server, c), { search: [0], ids: [0], versions: [], catalog: [], packages: [], found: [] });
    t.like(await lists(server, a), { packages: ['Lib.Core 1.0.0', 'Lib.Own 1.0.0', 'Secret 1.0.0'] });
    const remove = await server.fetch('/v1/packages/Lib.Core/1.0.0', { method: 'DELETE', token: b });
    t.is(remove.status, 404, 'it only reads');
    const limited = (await createToken(server, ['read'], 'b', { packages: ['Other'] })).value;
    t.deepEqual(await statuses(server, limited, index('Lib.Core')), [403]);

    const onward = { ...body, subject: { kind: 'account', id: 'c' } };
    const next = await grant(server, onward, b);
    const forC = await tokenOf(server, ['admin'], 'c');
    t.is((await sendJson(server, 'POST', `/v1/grants/${next}/accept`, {}, forC)).status, 200);
    t.deepEqual(await statuses(server, c, index('Lib.Core'), index('Lib.Own')), [404, 200], 'no sharing onward');
    const back = await grant(server, { ...body, subject: { kind: 'account', id: 'a' } }, b);
    t.is((await sendJson(server, 'POST', `/v1/grants/${back}/accept`, {}, a)).status, 200, 'a loop');
    t.deepEqual(await statuses(server, a, index('Lib.Core'), index('Lib.Unknown')), [200, 404]);

    const { digest } = image.config;
    const asksPush = await server.fetch(`/v2/lib/base/blobs/${digest}`, { method: 'HEAD', token: b });
    t.is(asksPush.status, 404, 'a push sends its blobs');
    await new TestRepository(server, 'lib/base', b).blob('{}');
    t.is((await put('lib/base', b)).status, 201);
    t.is((await server.fetch(`/v1/grants/${id}`, { method: 'DELETE', token: b })).status, 204, 'the receiver ends it');
    t.deepEqual(await statuses(server, b, index('Lib.Core'), '/v2/lib/base/tags/list'), [404, 200]);
  });
}

// oxlint-disable-next-line typescript/no-explicit-any
async function readList(server: TestServer, path: string, token: string): Promise<any> {
  const response = await server.fetch(path, { token });
  return response.status === 404 ? { data: [], items: [] } : response.json();
}

const packageOf = ({ id, latest_version: version }: Record<string, string>) => `${id} ${version}`;

const nameOf = ({ name }: { name: string }) => name;

const versionOf = ({ version }: { version: string }) => version;

/** What each list and search shows. */
async function lists(server: TestServer, token: string) {
  const read = (path: string) => readList(server, path, token);
  const search = await read('/v3/search?q=lib');
  const ids = await read('/v3/autocomplete?q=lib');
  const bySize = await read('/v1/packages?sort=size&total=1&q=lib');
  const imagesBySize = await read('/v1/containers?sort=size&total=1');
  return {
    search: [...search.data.map(({ id, version }: Record<string, string>) => `${id} ${version}`), search.totalHits],
    ids: [...ids.data, ids.totalHits],
    versions: (await read('/v3/autocomplete?id=Lib.Core')).data,
    catalog: (await read('/v2/_catalog')).repositories,
    packages: (await read('/v1/packages')).items.map(packageOf),
    bySize: [...bySize.items.map(packageOf).toSorted(), bySize.total.count],
    containers: (await read('/v1/containers')).items.map(nameOf),
    imagesBySize: [...imagesBySize.items.map(nameOf), imagesBySize.total.count],
    found: (await read('/v1/search?q=lib')).items.map(nameOf).toSorted(),
  };
}

test('the matrix of routes and principals: each does what it may, and sees no difference between another name and none', async (t) => {
  const { server, people, signIn } = await start(t, 'sqlite');
  people['eve'] = { name: 'Eve', groups: ['g-dev'] };
  await new TestFeed(server).publish({ id: 'Secret' });
  await new TestRepository(server, 'team/app').image('v1');
  const { digest } = await new TestRepository(server, 'secret/app').image('v1');
  await grant(server, { subject: group('g-dev'), verbs: ['read'], packages: ['Contoso.*'] });
  const app = { packages: ['Contoso.App'], images: ['team/*'] };
  await grant(server, { subject: person('bob'), verbs: ['read', 'write', 'delete'], ...app });
  await grant(server, { subject: person('eve'), verbs: ['read'], images: ['none'] });
  const shared = await grant(server, { subject: { kind: 'account', id: 'b' }, verbs: ['read'], ...app });
  const receiver = await tokenOf(server, ['read', 'write', 'delete', 'promote', 'admin'], 'b');
  t.is((await sendJson(server, 'POST', `/v1/grants/${shared}/accept`, {}, receiver)).status, 200);
  const bob = await signIn('bob');
  const all = { packages: ['*'], containers: ['*'] };
  const promoter = await createToken(server, ['promote'], 'default', {
    packages: ['Contoso.App'],
    containers: ['team/*'],
  });
  const ofC = await tokenOf(server, ['admin'], 'c');
  const onlyPromotions = await sendJson(
    server,
    'PUT',
    '/v1/account/promotion',
    { promote_only: true, from: ['b'] },
    ofC,
  );
  t.is(onlyPromotions.status, 200);
  const principals: [name: string, token: string, statuses: string][] = [
    ['person by group', await personalToken(await signIn('ann'), server, ['read']), '200 200 403 403 403 403'],
    ['ex-member', await personalToken(await signIn('eve'), server, ['read']), '403 403 403 403 403 403'],
    ['narrower token', await personalToken(bob, server, ['read'], { packages: ['*.App'] }), '200 200 403 403 403 403'],
    ['shared-name reader', receiver, '200 200 201 404 200 404'],
    ['wider token', await personalToken(bob, server, ['read', 'write', 'delete'], all), '200 200 201 403 200 202'],
    ['person by grant', await personalToken(bob, server, ['read', 'write', 'delete']), '200 200 409 403 200 404'],
    ['promoter', promoter.value, '403 403 403 403 403 403'],
    ['writer where only promotions write', await tokenOf(server, ['read', 'write'], 'c'), '404 404 403 403 404 403'],
  ];
  delete people['eve'].groups;
  await signIn('eve');

  const document = (await (await server.fetch('/v1/openapi.json')).json()) as { paths: Record<string, { get?: Json }> };
  const gets = Object.entries(document.paths).flatMap(([path, { get }]) => (get ? [`/v1${path}`] : []));
  const values: Record<string, string> = { version: '1.0.0', tag: 'v1', reference: 'v1', digest };
  const named = (name: string) => [
    ...gets
      .filter((path) => /^\/v1\/(?:packages|containers)\/\{/.test(path))
      .map((path) =>
        path.replaceAll(/\{(\w+)\}/g, (_, key: string) => values[key] ?? (key === 'id' ? name : `${name}%2Fapp`)),
      ),
    ...['index.json', '1.0.0.json'].map((end) => `/v3/registration-gz-semver2/${name}/${end}`),
    ...['index.json', `1.0.0/${name}.1.0.0.nupkg`, `1.0.0/${name}.nuspec`].map((end) => `/v3/package/${name}/${end}`),
    ...['tags/list', 'manifests/v1', `manifests/${digest}`, `blobs/${digest}`, `referrers/${digest}`].map(
      (end) => `/v2/${name}/app/${end}`,
    ),
    `/v3/search?q=${name}`,
    `/v3/autocomplete?q=${name}`,
    `/v3/autocomplete?id=${name}`,
    `/v1/search?q=${name}`,
    `/v1/packages?total=1&sort=size&q=${name}`,
    `/v1/containers?total=1&sort=size&q=${name}`,
    ...['package', 'container'].map((kind) => `/v1/uses?kind=${kind}&name=${name}`),
  ];
  const lists = gets.filter((path) => !path.includes('{'));
  t.true(named('secret').length > 25 && lists.length > 30);
  for (const [title, token, expected] of principals) {
    const answer = async (path: string) => {
      const response = await server.fetch(path, { token });
      return `${response.status} ${await response.text()}`;
    };
    // Before it asks for the name: the list of failed requests has what its own tokens asked for.
    for (const path of lists) t.notRegex(await answer(path), /^5|secret/i, `${title}: ${path}`);
    for (const [index, path] of named('secret').entries()) {
      const hidden = (await answer(path)).replaceAll(/secret/gi, '-');
      t.is(hidden, (await answer(named('absent')[index]!)).replaceAll(/absent/gi, '-'), `${title}: ${path}`);
      t.notRegex(hidden, /^5/);
    }
    const done = await statuses(server, token, index('Contoso.App'), '/v1/packages/Contoso.App');
    done.push((await new TestFeed(server, token).push({ id: 'Contoso.App', version: '9.0.0' })).status);
    const remove = async (path: string) => (await server.fetch(path, { method: 'DELETE', token })).status;
    done.push(await remove('/v1/packages/Contoso.Core/1.0.0'));
    done.push(...(await statuses(server, token, '/v2/team/app/tags/list')), await remove('/v2/team/app/manifests/v1'));
    t.is(done.join(' '), expected, title);
  }
});

test('grants are added, accepted and removed on pages, without JavaScript', async (t) => {
  const server = await startTestServer(t);
  const a = await Visitor.signedIn(server, await tokenOf(server, ['read', 'write', 'admin'], 'a'));
  const reads = await tokenOf(server, ['read', 'admin'], 'b');
  const b = await Visitor.signedIn(server, reads);
  await new TestFeed(server, await tokenOf(server, ['write'], 'a')).publish({ id: 'Lib.Core' });
  const form = '/console/access/new';
  t.regex(await a.page('/console/access'), /href="\/console\/access\/new"[^]*There are no grants/);
  const fields = { kind: 'account', id: 'b', issuer: '', verb: 'read', packages: 'Lib.* <b>', containers: '' };
  t.regex(
    await a.refused(form, { ...fields, verb: 'write' }),
    /id="verbs-error"[^<]*>A grant to another account gives/,
  );
  t.regex(await a.refused(form, { ...fields, id: 'a' }), /id="subject-error"[^<]*>An account cannot share/);
  t.regex(await a.refused(form, { ...fields, packages: 'x'.repeat(256) }), /id="patterns-error"/);
  t.regex(await a.refused(form, { ...fields, kind: 'group' }), /id="subject-error"[^<]*>Name the issuer of the group/);
  const made = leadsTo(await a.send(form, fields));
  const address = /^(\/console\/access\/[\w-]{36}) \(grant-added\)$/.exec(made)![1]!;
  const page = await a.page(address);
  t.regex(page, /Lib\.\*, &lt;b&gt;[^]*has accepted it/);
  t.notRegex(page, /value="accept"/, 'the other account accepts it');
  t.regex(await b.page('/console/access'), /1 grant<[^]*pending/);
  t.notRegex(await b.page(address), /of a-own/, 'not who added it');
  const stranger = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin'], 'c'));
  t.is((await stranger.fetch(address)).status, 404);
  t.is((await stranger.send(address, { act: 'remove' })).status, 404);
  t.is((await server.fetch(index('Lib.Core'), { token: reads })).status, 404);
  t.is(leadsTo(await b.send(address, { act: 'accept' })), `${address} (grant-accepted)`);
  t.is((await server.fetch(index('Lib.Core'), { token: reads })).status, 200);
  t.is(leadsTo(await b.send(address, { act: 'remove' })), '/console/access (grant-removed)');
  t.is((await server.fetch(index('Lib.Core'), { token: reads })).status, 404);
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'a'));
  t.is((await reader.fetch('/console/access')).status, 403);
});

test('a search tells an upstream no shared id, and asks it as before for what another account does not share', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Public', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const a = await tokenOf(server, ['read', 'write', 'admin'], 'a');
  const b = await tokenOf(server, ['read', 'admin'], 'b');
  await new TestFeed(server, a).publish({ id: 'Lib.Core' }, { id: 'Secret.Thing' });
  const toB = { subject: { kind: 'account', id: 'b' }, verbs: ['read'], packages: ['Lib.*'] };
  const id = await grant(server, toB, a);
  t.is((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, b)).status, 200);
  const queries = async (q: string) => {
    const before = up.asked.filter((path) => path === '/query').length;
    await readList(server, `/v3/search?q=${q}`, b);
    return up.asked.filter((path) => path === '/query').length - before;
  };
  t.is(await queries('Lib.Core'), 0);
  t.is(await queries('Lib.Cor'), 0, 'the beginning of a shared id');
  t.is(await queries('Secret.Thing'), 1, 'an answer does not tell what the other account hosts');
  t.is(await queries('Secret.Thi'), 1);
});

const nupkgOf = (version: string) => `/v3/package/lib.core/${version}/lib.core.${version}.nupkg`;
const leafOf = (version: string) => `/v3/registration-gz-semver2/lib.core/${version}.json`;
const detailsOf = (version: string) => ['', '/file'].map((end) => `/v1/packages/Lib.Core/${version}${end}`);
const pathsOf = (version: string) => [nupkgOf(version), leafOf(version), ...detailsOf(version)];

test('an account shares what it hosts, and not what its upstreams have or had under the same names', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Lib.Core', versions: [{ version: '9.0.0' }] });
  const hub = await startUpstreamRegistry(t);
  const theirs = hub.image('lib/base', 'theirs').manifest.digest;
  const upstreams = [up.as('up.test'), hub.settings('hub.test', { default: true })];
  const server = await startMirrorOf(t, upstreams, { merge: { packages: ['Lib.*'] } });
  const a = await tokenOf(server, ['read', 'write', 'admin'], 'a');
  const b = await tokenOf(server, ['read', 'admin'], 'b');
  const body = { subject: { kind: 'account', id: 'b' }, verbs: ['read'], packages: ['Lib.*'], images: ['lib/*'] };
  const id = await grant(server, body, a);
  t.is((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, b)).status, 200);
  const base = new TestRepository(server, 'lib/base', a);
  t.is((await base.fetch('manifests/theirs')).status, 200);
  const { digest: ours } = await base.image('ours');
  await new TestFeed(server, a).publish({ id: 'Lib.Core' });

  const read = async (path: string, token: string) => readList(server, path, token);
  const documents = async (token: string) => {
    const registration = await read('/v3/registration-gz-semver2/lib.core/index.json', token);
    const leaves = registration.items.flatMap(({ items }: { items: { catalogEntry: { version: string } }[] }) => items);
    return {
      flat: (await read(index('Lib.Core'), token)).versions,
      registration: leaves.map((each: { catalogEntry: { version: string } }) => each.catalogEntry.version),
      completed: (await read('/v3/autocomplete?id=Lib.Core', token)).data,
      listed: (await read('/v1/packages/Lib.Core/versions', token)).items.map(versionOf),
    };
  };
  const both = ['1.0.0', '9.0.0'];
  t.deepEqual(await statuses(server, a, nupkgOf('9.0.0')), [200], 'it is stored from now on');
  for (const version of both)
    t.deepEqual(await statuses(server, a, ...pathsOf(version)), [200, 200, 200, 200], version);
  t.like(await documents(a), { flat: both, registration: both, completed: both });
  t.deepEqual(await statuses(server, b, ...pathsOf('1.0.0')), [200, 200, 200, 200]);
  t.deepEqual(await statuses(server, b, ...pathsOf('9.0.0')), [404, 404, 404, 404]);
  const hosted = ['1.0.0'];
  t.deepEqual(await documents(b), { flat: hosted, registration: hosted, completed: hosted, listed: hosted });

  const history = async (path: string, token: string) => {
    const { items } = await read(`/v1/${path}/history`, token);
    const names: string[] = items.map(({ origin, reference }: Record<string, string>) => `${origin} ${reference}`);
    return names.toSorted();
  };
  t.deepEqual(await history('packages/Lib.Core', a), ['mirrored 9.0.0']);
  t.deepEqual(await history('packages/Lib.Core', b), []);
  const ofImage = ['hosted ours', `hosted ${ours}`];
  t.deepEqual(await history('containers/lib%2Fbase', b), ofImage);
  t.deepEqual(await history('containers/lib%2Fbase', a), [...ofImage, `mirrored ${theirs}`, 'mirrored theirs']);

  const past = async (token: string) => {
    const response = await server.fetch(`/as-of/2020-01-01${nupkgOf('9.0.0')}`, { token });
    return [response.status, (await response.text()).includes('is known from')];
  };
  t.deepEqual(
    [await past(a), await past(b)],
    [
      [404, true],
      [404, false],
    ],
  );
});

test('an account accepts grants of at most 20 others', async (t) => {
  const server = await startTestServer(t);
  const accept = async (number: number, name: string) => {
    const admin = await tokenOf(server, ['admin'], `of-${number}`);
    const body = { subject: { kind: 'account', id: 'default' }, verbs: ['read'], packages: [name] };
    const id = await grant(server, body, admin);
    return sendJson(server, 'POST', `/v1/grants/${id}/accept`, {});
  };
  for (let number = 0; number < 20; number += 1) t.is((await accept(number, 'A.*')).status, 200);
  t.is((await accept(0, 'B.*')).status, 200, 'a second one of the same account');
  const refused = await accept(20, 'A.*');
  t.is(refused.status, 403);
  t.regex(await refused.text(), /at most 200 grants of others, of 20 accounts/);
});

test('a grant that is accepted while it is removed ends at once', async (t) => {
  const server = await startTestServer(t);
  const a = await tokenOf(server, ['read', 'write', 'admin'], 'a');
  const b = await tokenOf(server, ['read', 'admin'], 'b');
  await new TestFeed(server, a).publish({ id: 'Lib' });
  const id = await grant(server, { subject: { kind: 'account', id: 'b' }, verbs: ['read'], packages: ['Lib'] }, a);
  const meanwhile: number[] = [];
  afterRead(server, 'subject_id = ?)) AND id = ?', async () => {
    meanwhile.push((await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {}, b)).status);
    meanwhile.push(...(await statuses(server, b, index('Lib'))));
  });
  t.is((await server.fetch(`/v1/grants/${id}`, { method: 'DELETE', token: a })).status, 204);
  t.deepEqual(meanwhile, [200, 200]);
  t.deepEqual(await statuses(server, b, index('Lib')), [404]);
  const events = await auditOf(server, 'type=grant.*', b);
  t.deepEqual(
    events.map(({ type }) => type),
    ['grant.accepted', 'grant.removed'],
  );
});

test('a grant that matches names from upstreams is not accepted, and names them', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  t.is((await server.fetch('/v2/up.test/app/manifests/v1')).status, 200);
  const a = await tokenOf(server, ['admin'], 'a');
  const subject = { kind: 'account', id: 'default' };
  const id = await grant(server, { subject, verbs: ['read'], images: ['up.test/*'] }, a);
  const refused = await sendJson(server, 'POST', `/v1/grants/${id}/accept`, {});
  t.is(refused.status, 400);
  t.regex(await refused.text(), /names from upstreams that match: up\.test\/app/);
});

for (const dialect of dialects) {
  test(`${dialect}: a grant that a failover of the database has lost is not in force any more`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const one = await startTestServer(t, { database });
    const other = await startTestServer(t, { database, data: one.data });
    await new TestFeed(one).publish({ id: 'Contoso.App' }, { id: 'Contoso.Core' }, { id: 'Fabrikam' });
    const { token, value } = await createToken(one, ['read'], 'default', { packages: ['None'] });
    const give = (server: TestServer, name: string) =>
      grant(server, { subject: { kind: 'token', id: token.id }, verbs: ['read'], packages: [name] });
    const assertReads = async (...names: string[]) => {
      const found = await eventually(
        () => listed(one, value),
        (some) => some.join() === names.join(),
      );
      t.deepEqual(found, names);
    };
    await give(other, 'Contoso.App');
    const version = "SELECT grants_version AS version FROM accounts WHERE name = 'default'";
    const before = (await databaseOf(other).get<{ version: number }>(version))!.version;
    /** The database is again as it was after the first grant. */
    const lose = (id: string) =>
      databaseOf(other).transaction(async (tx) => {
        await tx.run('DELETE FROM grants WHERE id = ?', [id]);
        await tx.run("UPDATE accounts SET grants_version = ? WHERE name = 'default'", [before]);
      });
    for (const isReadBetween of [true, false]) {
      const lost = await give(other, 'Fabrikam');
      await assertReads('Contoso.App', 'Fabrikam');
      await lose(lost);
      if (isReadBetween) await assertReads('Contoso.App');
    }
    await give(other, 'Contoso.Core');
    await assertReads('Contoso.App', 'Contoso.Core');
  });
}
