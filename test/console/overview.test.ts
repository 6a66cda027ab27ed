import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import type { Row, Value } from '../../src/database/database.ts';
import { createToken, databaseOf, flushUsage } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';

test('the overview waits for the first client, and then shows what the server holds and does', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/'), /<h1>Connect your first client<\/h1>[^]*Waiting for your first request/);
  await new TestFeed(server).publish({ id: 'My.Package', version: '1.0.0' });
  await (await server.fetch('/v3/package/my.package/1.0.0/my.package.1.0.0.nupkg')).arrayBuffer();
  await flushUsage(server);
  await until(async () => (await visitor.page('/console/')).includes('<h1>Overview</h1>'));
  const page = await visitor.page('/console/');
  t.regex(page, /package\.published[^]*My\.Package/);
  t.regex(page, /<title>1 download in \d+ days, 1 at most on a day/);
  t.regex(await visitor.page('/console/connect'), /<strong>Seen\.<\/strong>/);
  const { value } = await createToken(server, ['read']);
  const reader = await Visitor.signedIn(server, value);
  t.notRegex(await reader.page('/console/'), /package\.published/, 'the events need a scope');
  server.clock.now = Date.now() + 70 * 86_400_000;
  const later = await Visitor.signedIn(server);
  t.regex(await later.page('/console/'), /<h1>Overview<\/h1>/, 'also in a month without a request');
});

test('what a page that waits for the first client asks is read once for all its viewers, for each account', async (t) => {
  const server = await startTestServer(t);
  const { value } = await createToken(server, ['read'], 'other');
  const visitors = await Promise.all(Array.from({ length: 8 }, () => Visitor.signedIn(server)));
  const other = await Visitor.signedIn(server, value);
  const database = databaseOf(server);
  const read: string[] = [];
  const select = database.select.bind(database);
  database.select = <T extends object = Row>(sql: string, values?: readonly Value[]) => {
    if (/FROM usage_counts|FROM token_uses/.test(sql)) read.push(`${sql} ${JSON.stringify(values)}`);
    return select<T>(sql, values);
  };
  const began = performance.now();
  for (const path of ['/console/connect', '/console/']) {
    const pages = await Promise.all(visitors.map((each) => each.page(path)));
    for (const page of pages) t.regex(page, /Waiting for your first request/);
  }
  const { size } = new Set(read);
  t.is(size, 3, 'this month, the month before, the latest client');
  const sets = 1 + Math.floor((performance.now() - began) / 2000);
  t.true(read.length <= sets * size, `${read.length} statements for 16 pages`);
  await other.page('/console/connect');
  t.is(new Set(read).size, 2 * size, 'another account has own numbers');

  await new TestFeed(server).publish({ id: 'My.Package' });
  await flushUsage(server);
  for (const each of visitors) await until(async () => (await each.page('/console/connect')).includes('<strong>Seen.'));
  t.regex(await other.page('/console/connect'), /Waiting for your first request/);
});

const counters = async (visitor: Visitor) => {
  const response = await visitor.fetch('/console/counters');
  // They are those of the visitor's account, and change.
  if (response.headers.get('cache-control') !== 'no-store') throw new Error('the counters can be cached');
  return (await response.json()) as Record<string, string>;
};

test('the counters of the overview are read once for all its viewers, and do not keep a session open', async (t) => {
  const server = await startTestServer(t, { signIn: { session: { idle: '2h', absolute: '9h' } } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'My.Package', version: '1.0.0' });
  await flushUsage(server);
  const visitors = await Promise.all(Array.from({ length: 8 }, () => Visitor.signedIn(server)));
  await until(async () => (await visitors[0]!.page('/console/')).includes('<h1>Overview</h1>'));
  const page = await visitors[0]!.page('/console/');
  const shown = Object.fromEntries(
    [...page.matchAll(/data-live="(\w+)">([^<]*)</g)].map(([, name, text]) => [name, text]),
  );
  const { as_of: _asOf, ...first } = await counters(visitors[0]!);
  t.like(shown, first);
  t.is(first['uploads'], '1');
  t.is(first['downloads'], '0');

  const database = databaseOf(server);
  let read = 0;
  const select = database.select.bind(database);
  database.select = <T extends object = Row>(sql: string, values?: readonly Value[]) => {
    if (!/FROM sessions|FROM tokens/.test(sql)) read += 1;
    return select<T>(sql, values);
  };
  await (await server.fetch('/v3/package/my.package/1.0.0/my.package.1.0.0.nupkg')).arrayBuffer();
  await flushUsage(server);
  await until(async () => (await counters(visitors[0]!))['downloads'] === '1');
  read = 0;
  const began = performance.now();
  for (let time = 0; time < 5; time += 1) await Promise.all(visitors.map(counters));
  const sets = 1 + Math.floor((performance.now() - began) / 2000);
  t.true(read <= sets * 10, `${read} statements for 40 answers`);

  const [idle, used] = visitors as [Visitor, Visitor];
  const start = Date.now();
  for (const hours of [1, 1.9]) {
    server.clock.now = start + hours * 3_600_000;
    t.is((await idle.fetch('/console/counters')).status, 200);
    t.is((await used.fetch('/console/jobs')).status, 200);
  }
  server.clock.now = start + 2.1 * 3_600_000;
  t.is((await idle.fetch('/console/counters')).status, 303, 'asking for counters is no use of the session');
  t.is((await used.fetch('/console/counters')).status, 200);
});

test('the page Connect makes a token that ends with that of its visitor, if that ends within 90 days', async (t) => {
  const server = await startTestServer(t);
  const ends = new Date(Date.now() + 30 * 86_400_000).toISOString();
  const made = await server.fetch('/v1/tokens', {
    method: 'POST',
    body: JSON.stringify({ name: 'for a month', scopes: ['read', 'admin'], expires_at: ends }),
    headers: { 'content-type': 'application/json' },
  });
  const { token } = (await made.json()) as { token: string };
  const visitor = await Visitor.signedIn(server, token);
  t.regex(await visitor.page('/console/connect'), /It expires with your own token\./);
  const sent = await visitor.send('/console/connect', { name: 'a laptop', scopes: 'read' });
  t.is(sent.status, 201);
  t.regex(await sent.text(), /--password ent_/);
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as {
    items: { name: string; expires_at: string }[];
  };
  t.is(items.find(({ name }) => name === 'a laptop')?.expires_at, ends);
  t.regex(await (await Visitor.signedIn(server)).page('/console/connect'), /It expires after 90 days\./);
});

test('the lines of the page Connect name the public addresses', async (t) => {
  const server = await startTestServer(t, {
    server: { baseUrl: 'https://hub.example', registryUrl: 'https://images.example:5000' },
  });
  const visitor = new Visitor(server);
  const signedIn = await visitor.send('/console/sign-in', { token: server.token });
  t.regex(signedIn.headers.getSetCookie()[0]!, /^__Host-entrepot-session=.*; Path=\/; HttpOnly; SameSite=Lax; Secure$/);
  const page = await visitor.page('/console/connect');
  t.regex(page, /https:\/\/hub\.example\/v3\/index\.json/);
  t.regex(page, /docker login images\.example:5000 /);
  t.regex(page, /docker tag images\.example:5000\/alpine images\.example:5000\/team\/app:1\.0/);
  t.regex(page, /server = &quot;https:\/\/images\.example:5000&quot;[^]*\[header\]\n {2}Authorization = /);
  t.regex(page, /ctr images pull --user api:TOKEN images\.example:5000\//);
  t.regex(page, /<code>https:\/\/hub\.example\/v3\/symbols<\/code>/);
  const anchors = [...page.matchAll(/<a href="#([\w-]+)">/g)].map(([, id]) => id!);
  t.true(anchors.length >= 9);
  for (const id of anchors) t.true(page.includes(`<section id="${id}">`) || id === 'main', id);
  t.notRegex(page, /127\.0\.0\.1|allow-insecure|plain-http/);
});

test('usage shows a month by day, and by package, image and token', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/usage'), /No client used this account in this month/);
  await new TestFeed(server).publish({ id: 'My.Package', version: '1.0.0' });
  await (await server.fetch('/v3/package/my.package/1.0.0/my.package.1.0.0.nupkg')).arrayBuffer();
  await flushUsage(server);
  t.regex(await visitor.page('/console/usage'), /<rect[^]*<a href="\/console\/packages\/my\.package">/i);
  t.regex(await visitor.page('/console/usage?group_by=token'), /By tokens[^]*<th scope="row"[^>]*>first token<\/th>/);
  const reader = await Visitor.signedIn(server, (await createToken(server, ['read'])).value);
  const unnamed = await reader.page('/console/usage?group_by=token');
  t.regex(unnamed, /By tokens[^]*<code title="[\w-]{36}">/, 'only admin sees the names of tokens');
  t.notRegex(unnamed, /first token/);
  t.is((await visitor.fetch('/console/usage?period=2999-01')).status, 400);
  t.is((await visitor.fetch('/console/usage?period=<script>')).status, 400);
});

test('the audit filters by type, actor, subject and day', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  await new TestFeed(server).publish({ id: 'My.Package', version: '1.0.0' });
  const { value } = await createToken(server, ['read']);
  t.regex(
    await visitor.page('/console/audit'),
    /A version was published <span class="quiet">package\.published<\/span>/,
  );
  const tokens = await visitor.page('/console/audit?type=token.*');
  t.regex(tokens, /token\.created<\/span>/);
  t.notRegex(tokens, /package\.published<\/span>/);
  t.regex(await visitor.page('/console/audit?subject=my.package&type=&actor='), /package\.published<\/span>/);
  t.regex(await visitor.page('/console/audit?until=2020-01-01'), /Nothing matches\. <a href="\/console\/audit">Clear/);
  t.is((await visitor.fetch('/console/audit?type=wrong')).status, 400);
  const reader = await Visitor.signedIn(server, value);
  t.is((await reader.fetch('/console/audit')).status, 403);
});
