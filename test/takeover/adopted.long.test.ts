import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { rowsOf } from '../support/inside.ts';
import { redisUrl } from '../support/processes/services.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { readNames, startDoor } from '../support/takeover.ts';

const basic = (user: string, password: string) => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

const nupkg = '/v3/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg';

const statusAt = async ({ url }: TestServer, password: string): Promise<number> =>
  (await fetch(`${url}${nupkg}`, { headers: { authorization: basic('alice', password) } })).status;

async function startAdopting(
  t: ExecutionContext,
  {
    adopt = true,
    dialect = 'sqlite',
    ...settings
  }: { adopt?: unknown; dialect?: Dialect; limits?: object; redis?: object; server?: object } = {},
) {
  const old = await startTestServer(t);
  await new TestFeed(old).push(await makeNupkg({ id: 'Contoso.Core', version: '1.0.0' }));
  await new TestRepository(old, 'team/app').image('1.0');
  const door = await startDoor(t, old);
  const auth = { username: 'alice', password: 'guessable' };
  const adopting = { auth, adoptCredentials: adopt };
  const predecessors = [
    { name: 'old-feed', kind: 'nuget', url: `${door.url}/v3/index.json`, ...adopting },
    { name: 'old-images', kind: 'registry', url: door.url, auth },
  ];
  const all = { predecessors, database: { url: await temporaryDatabase(t, dialect) }, ...settings };
  const here = await startTestServer(t, all);
  await readNames(here);
  door.tried.length = 0;
  const as = (authorization: string, path = nupkg, init: RequestInit = {}) =>
    fetch(`${here.url}${path}`, { ...init, headers: { ...(init.headers as object), authorization } });
  return { old, door, here, as, settings: { ...all, data: here.data } };
}

for (const dialect of dialects) {
  test(`${dialect}: a password that the predecessor accepts reads here, is asked once, and is a token that can be revoked`, async (t) => {
    const { door, here, as } = await startAdopting(t, { dialect });
    const answers = await Promise.all(Array.from({ length: 8 }, () => as(basic('alice', 'guessable'))));
    t.deepEqual(
      answers.map(({ status }) => status),
      answers.map(() => 200),
    );
    // Before, a credential that nobody has.
    t.is(door.tried.filter((each) => each.startsWith('check-')).length, 1);
    t.deepEqual(
      door.tried.filter((each) => !each.startsWith('check-')).filter((each) => each !== 'alice:guessable'),
      [],
    );
    t.is((await as(basic('alice', 'wrong'))).status, 401);
    t.is((await as(basic('mallory', 'guessable'))).status, 401);
    door.users.set('eve', 'right');
    door.hidden.add('eve');
    t.is((await as(basic('eve', 'right'))).status, 401, 'who may not read there may not read here');
    // Reading proves no more than reading.
    const push = await as(basic('alice', 'guessable'), '/v1/tokens');
    t.is(push.status, 403);
    const listed = ((await (await here.fetch('/v1/tokens')).json()) as any).items;
    const adopted = listed.filter((each: any) => each.name === 'user alice of old-feed');
    t.is(adopted.length, 1);
    t.deepEqual(adopted[0].scopes, ['read']);
    const [row] = await rowsOf<{ secret: string }>(here, 'SELECT secret FROM adopted_credentials');
    t.false(row!.secret.includes('guessable'));
    // Tokens of this server and identity tokens are never sent on.
    door.tried.length = 0;
    t.is((await as(basic('alice', `ent_${'x'.repeat(36)}`))).status, 401);
    t.is((await as(basic('alice', 'eyJhbGciOiJub25lIn0.e30.x'))).status, 401);
    t.deepEqual(door.tried, []);
    t.is((await here.fetch(`/v1/tokens/${adopted[0].id}`, { method: 'DELETE' })).status, 204);
    t.is((await as(basic('alice', 'guessable'))).status, 401);
  });
}

test('container clients sign in with an old password, and get a Bearer for it', async (t) => {
  const { here, as } = await startAdopting(t);
  const { token } = (await (await as(basic('alice', 'guessable'), '/token?service=entrepot')).json()) as any;
  t.regex(token, /^basic\./);
  t.is((await as(`Bearer ${token}`, '/v2/team/app/manifests/1.0')).status, 200);
  t.is((await as(`Bearer basic.${btoa('alice:other')}`, '/v2/team/app/manifests/1.0')).status, 401);
  t.is((await as(`Bearer ${token}`, '/v2/team/app/blobs/uploads/', { method: 'POST' })).status, 403);
  const form = new URLSearchParams({ grant_type: 'password', username: 'alice', password: 'guessable' });
  t.is((await fetch(`${here.url}/token`, { method: 'POST', body: form })).status, 200);
});

for (const dialect of dialects) {
  test(`${dialect}: a changed password ends the old one after a day; a predecessor that is down does not`, async (t) => {
    const { door, here, as } = await startAdopting(t, { dialect });
    t.is((await as(basic('alice', 'guessable'))).status, 200);
    // Asked again, and not reached: it is accepted for a week.
    here.clock.now = here.clock.time() + 86_400_000 + 1;
    door.state.isDown = true;
    t.is((await as(basic('alice', 'guessable'))).status, 200);
    t.is((await as(basic('bob', 'unknown'))).status, 502);
    door.state.isDown = false;
    here.clock.now += 10 * 60_000;
    door.users.set('alice', 'other');
    t.is((await as(basic('alice', 'guessable'))).status, 401);
    t.is((await as(basic('alice', 'other'))).status, 200);
  });
}

for (const dialect of dialects) {
  test(`${dialect}: a predecessor that is down for hours locks out nobody whose password it accepted`, async (t) => {
    const { door, here, as } = await startAdopting(t, { dialect });
    t.is((await as(basic('alice', 'guessable'))).status, 200);
    here.clock.now = here.clock.time() + 86_400_000 + 1;
    // It answers a moment before: nobody has to find out again whether everybody may read it.
    door.users.set('bob', 'known');
    t.is((await as(basic('bob', 'known'))).status, 200);
    door.state.isDown = true;
    const statuses: number[] = [];
    for (let at = 0; at < 6; at += 1) {
      statuses.push((await as(basic('alice', 'guessable'))).status);
      // It is asked again: the password is not in memory any more.
      here.clock.now += 5 * 60_000 + 1;
    }
    t.deepEqual(
      statuses,
      statuses.map(() => 200),
    );
    // What is not known counts all the same: an old server can fail after it has compared a password.
    const guesses: number[] = [];
    for (let at = 0; at < 4; at += 1) guesses.push((await as(basic('alice', `guess-${at}`))).status);
    t.deepEqual(guesses, [502, 502, 502, 429]);
  });

  test(`${dialect}: a token that was revoked stays so, also after its user has changed the old password`, async (t) => {
    const { door, here, as } = await startAdopting(t, { dialect });
    t.is((await as(basic('alice', 'guessable'))).status, 200);
    const [token] = ((await (await here.fetch('/v1/tokens')).json()) as any).items;
    t.is(token.name, 'user alice of old-feed');
    t.is((await here.fetch(`/v1/tokens/${token.id}`, { method: 'DELETE' })).status, 204);
    here.clock.now = here.clock.time() + 86_400_000 + 1;
    door.users.set('alice', 'other');
    t.is((await as(basic('alice', 'guessable'))).status, 401);
    t.is((await as(basic('alice', 'other'))).status, 401);
    const { items } = (await (await here.fetch('/v1/tokens')).json()) as any;
    t.is(items.filter(({ name }: any) => name === 'user alice of old-feed').length, 1);
  });

  test(`${dialect}: a name in other letter case gives no more rights, and no token for one that was revoked`, async (t) => {
    const file = join(await mkdtemp(join(tmpdir(), 'rights-')), 'rights');
    await writeFile(file, 'user Alice read,write Contoso.Other\nuser Bob write\n');
    const limited = await startAdopting(t, { adopt: { rightsFile: file }, dialect });
    for (const user of ['Alice', 'alice', 'ALICE', 'bob']) limited.door.users.set(user, 'guessable');
    for (const user of ['Alice', 'alice', 'ALICE']) {
      t.is((await limited.as(basic(user, 'guessable'))).status, 403, `${user} may not read this name`);
      const other = await limited.as(basic(user, 'guessable'), '/v3/package/contoso.other/index.json');
      t.is(other.status, 404, `${user} may read this one`);
    }
    t.is((await limited.as(basic('bob', 'guessable'))).status, 401, 'may not read');
    const made = ((await (await limited.here.fetch('/v1/tokens')).json()) as any).items;
    const scopesOf = (name: string) => made.find((each: any) => each.name === `user ${name} of old-feed`).scopes;
    t.deepEqual(scopesOf('Alice'), ['read', 'write']);
    t.deepEqual(scopesOf('ALICE'), ['read'], 'a server that tells them apart has another user');

    const { door, here, as } = await startAdopting(t, { dialect });
    door.users.set('ALICE', 'guessable');
    t.is((await as(basic('alice', 'guessable'))).status, 200);
    const [token] = ((await (await here.fetch('/v1/tokens')).json()) as any).items;
    t.is((await here.fetch(`/v1/tokens/${token.id}`, { method: 'DELETE' })).status, 204);
    t.is((await as(basic('ALICE', 'guessable'))).status, 401, 'the token of this user was revoked');
  });
}

test('wrong passwords of one user reach the predecessor three times, and a server that everybody reads proves nothing', async (t) => {
  const { door, as } = await startAdopting(t);
  const statuses: number[] = [];
  for (const [at, user] of ['alice', 'Alice', 'ALICE', 'aLICE', 'Alice', 'alice'].entries())
    statuses.push((await as(basic(user, `guess-${at}`))).status);
  t.deepEqual(statuses, [401, 401, 401, 429, 429, 429]);
  t.is(door.tried.filter((each) => each.includes(':guess-')).length, 3);
  const open = await startAdopting(t);
  open.door.state.isOpen = true;
  t.is((await open.as(basic('alice', 'guessable'))).status, 401);
  t.true(open.here.lines.some((line) => line.includes('lets everybody read')));
});

for (const dialect of dialects) {
  test(`${dialect}: the wrong passwords of one user at several servers reach the predecessor three times together`, async (t) => {
    const { door, here, settings } = await startAdopting(t, {
      dialect,
      ...(dialect === 'mysql' && { redis: { url: redisUrl() } }),
    });
    const there = await startTestServer(t, settings);
    const statuses: number[] = [];
    for (let at = 0; at < 4; at += 1)
      for (const [each, server] of [here, there].entries())
        statuses.push(await statusAt(server, `guess-${at}-${each}`));
    t.deepEqual(statuses, [401, 401, 401, 429, 429, 429, 429, 429]);
    t.is(door.tried.filter((each) => each.startsWith('alice:guess-')).length, 3);
    t.is(await statusAt(there, 'guessable'), 429, 'the right one, too');
    for (const server of [here, there]) server.clock.now = Date.now() + 31 * 60_000;
    t.is(await statusAt(there, 'guessable'), 200);
  });
}

test('passwords of a known user are compared only within the limit of failed sign-ins of their address', async (t) => {
  const { here, as } = await startAdopting(t, { limits: { failedSignInsPerMinute: 4 } });
  t.is((await as(basic('alice', 'guessable'))).status, 200);
  // It is compared again: it is not in memory any more.
  here.clock.now = here.clock.time() + 5 * 60_000 + 1;
  const statuses: number[] = [];
  for (let at = 0; at < 4; at += 1) statuses.push((await as(basic('alice', `guess-${at}`))).status);
  t.deepEqual([statuses[0], statuses.at(-1)], [401, 429]);
  t.is((await as(basic('alice', 'guessable'))).status, 429, 'the right one is not compared, either');
  here.clock.now += 60_000;
  t.is((await as(basic('alice', 'guessable'))).status, 200);
});

const from = (address: number) => ({ headers: { 'x-forwarded-for': `10.0.0.${address}` } });

test('wrong passwords of many users from many addresses reach the predecessor only within the limit of failed sign-ins', async (t) => {
  const { door, here, as } = await startAdopting(t, {
    limits: { failedSignInsPerMinute: 3 },
    server: { trustProxy: true },
  });
  const statuses: number[] = [];
  for (let at = 0; at < 5; at += 1) statuses.push((await as(basic(`user-${at}`, 'guess'), nupkg, from(at))).status);
  t.deepEqual(statuses, [401, 401, 401, 429, 429]);
  t.deepEqual(
    [...new Set(door.tried.filter((each) => each.endsWith(':guess')))],
    ['user-0:guess', 'user-1:guess', 'user-2:guess'],
  );
  here.clock.now = here.clock.time() + 60_000;
  t.is((await as(basic('alice', 'guessable'), nupkg, from(9))).status, 200);
});

test('passwords that a predecessor accepted before count no failed sign-ins while it is down', async (t) => {
  const { door, here, as } = await startAdopting(t, {
    limits: { failedSignInsPerMinute: 2 },
    server: { trustProxy: true },
  });
  const users = ['bob', 'carol', 'dave', 'eve'];
  for (const user of users) door.users.set(user, 'known');
  const statuses = async () => {
    const found: number[] = [];
    for (const [at, user] of users.entries()) found.push((await as(basic(user, 'known'), nupkg, from(at))).status);
    return found;
  };
  t.deepEqual(await statuses(), [200, 200, 200, 200]);
  here.clock.now = here.clock.time() + 86_400_000 + 1;
  door.state.isDown = true;
  t.deepEqual(await statuses(), [200, 200, 200, 200]);
});

for (const dialect of dialects) {
  test(`${dialect}: keys and rights to push come from a file, and all of it ends with the takeover`, async (t) => {
    const file = join(await mkdtemp(join(tmpdir(), 'rights-')), 'rights');
    await writeFile(
      file,
      '# old keys\nkey ci read,write OLD-KEY\nkey narrow read,write NARROW-KEY Contoso.Other,Fabrikam.*\nuser alice read,write\n',
    );
    const { here, as, door } = await startAdopting(t, { adopt: { rightsFile: file }, dialect });
    const push = async (headers: Record<string, string>, version: string) => {
      const form = new FormData();
      form.append('package', new Blob([new Uint8Array(await makeNupkg({ id: 'Contoso.New', version }))]), 'a.nupkg');
      return (await fetch(`${here.url}/v3/push`, { method: 'PUT', body: form, headers })).status;
    };
    t.is(await push({ 'x-nuget-apikey': 'OLD-KEY' }, '1.0.0'), 201);
    t.is(await push({ 'x-nuget-apikey': 'OTHER' }, '1.0.1'), 401);
    t.is(await push({ authorization: basic('alice', 'guessable') }, '1.0.2'), 201);
    t.is(await push({ authorization: basic('any', 'OLD-KEY') }, '1.0.3'), 201);
    t.is(await push({ 'x-nuget-apikey': 'NARROW-KEY' }, '1.0.4'), 403, 'the name does not match its patterns');
    t.is((await as(basic('any', 'NARROW-KEY'), '/v3/package/contoso.other/index.json')).status, 404);
    const { takeover } = here.installation;
    t.is(await takeover.adopted.count('old-feed'), 3);
    await takeover.inventory.finish('old-feed', []);
    await takeover.adopted.end('old-feed');
    door.tried.length = 0;
    t.is(await push({ 'x-nuget-apikey': 'OLD-KEY' }, '1.0.4'), 401);
    t.is((await as(basic('alice', 'guessable'))).status, 401);
    t.deepEqual(door.tried, []);
    t.is(await takeover.adopted.count('old-feed'), 0);
    const names = ((await (await here.fetch('/v1/tokens')).json()) as any).items.filter(
      (each: any) => !each.revoked_at,
    );
    t.false(names.some(({ name }: any) => name.endsWith('of old-feed')));

    for (const [text, message] of [
      ['user alice admin', /line 1 of .*: expected scopes of read, write, delete/],
      ['key ci read', /line 1 of .*: expected "user NAME SCOPES"/],
      ['user alice read A.* B.*', /line 1 of .*: expected "user NAME SCOPES"/],
      ['user alice read A.*,', /line 1 of .*: expected name patterns/],
    ] as const) {
      await writeFile(file, text);
      await t.throwsAsync(startAdopting(t, { adopt: { rightsFile: file } }), { message });
    }
    const predecessors = [{ name: 'old', kind: 'nuget', url: 'http://old.corp/v3/index.json', adoptCredentials: true }];
    await t.throwsAsync(startTestServer(t, { predecessors }), { message: /so its URL needs https/ });
  });
}
