import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { makePdb } from '../../support/builders/nupkg.ts';
import { TestFeed } from '../../support/feed.ts';
import { rowsOf } from '../../support/inside.ts';
import { prefetchInto } from '../../support/prefetch.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

// Feeds that serve only some accounts.

const symbols = `/symbols/secret.lib.pdb/${'ab'.repeat(16)}ffffffff/secret.lib.pdb`;

/** `team.test` serves the account `default` only; `pub.test` serves all accounts. */
async function setUp(t: ExecutionContext) {
  const team = await UpstreamFeed.start(t);
  const pub = await UpstreamFeed.start(t);
  await team.offer({ id: 'Secret.Lib', versions: [{ version: '1.0.0' }] });
  await pub.offer({ id: 'Public.Lib', versions: [{ version: '1.0.0' }] });
  const page = `${team.url}/vulnerabilities/page.json`;
  team.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@id': page, '@name': 'page', '@updated': '2026-01-01T00:00:00Z' }]),
  );
  team.upstream.on(
    '/vulnerabilities/page.json',
    json({ 'secret.lib': [{ severity: 2, url: 'https://a.test/1', versions: '(, 2.0.0)' }] }),
  );
  team.upstream.on(symbols, answer(200, {}, makePdb(randomBytes(16), 1000)));
  const upstreams = [
    team.as('team.test', { accounts: ['default'], symbolsUrl: `${team.url}/symbols` }),
    pub.as('pub.test', { symbolsUrl: `${pub.url}/symbols` }),
  ];
  const server = await startMirrorOf(t, upstreams, { anonymousRead: true });
  return { team, pub, server, mine: new TestFeed(server), other: await TestFeed.ofAccount(server, 'other') };
}

async function found(feed: TestFeed, path: string): Promise<string> {
  return JSON.stringify(await feed.json(path));
}

async function bytes(feed: TestFeed): Promise<Buffer> {
  const response = await feed.fetch('/package/lib/1.0.0/lib.1.0.0.nupkg');
  return Buffer.from(await response.arrayBuffer());
}

async function versions(feed: TestFeed): Promise<number[]> {
  return (await feed.json('/search?q=lib')).data.map((hit: any) => hit.versions.length);
}

const files = [
  '/package/secret.lib/index.json',
  '/package/secret.lib/1.0.0/secret.lib.1.0.0.nupkg',
  '/package/secret.lib/1.0.0/secret.lib.nuspec',
  '/registration/secret.lib/index.json',
  '/registration-gz-semver2/secret.lib/index.json',
  '/registration/secret.lib/1.0.0.json',
];

test('an account that a feed does not serve finds nothing of its packages, and the feed gets no request', async (t) => {
  const { team, pub, server, mine, other } = await setUp(t);
  for (const path of files) {
    t.is((await mine.fetch(path)).status, 200, path);
    t.is((await server.fetch(`/v3${path}`, { token: null })).status, 200, 'anonymous readers count as default');
  }
  const lists = [
    '/search?q=lib',
    '/search?q=secret.lib',
    '/search?q=',
    '/autocomplete?q=lib',
    '/autocomplete?id=secret.lib',
    '/vulnerabilities/index.json',
  ];
  const mentions = /secret|team|"1\.0\.0"/i;
  for (const path of lists) t.regex(await found(mine, path), mentions, path);
  const [asked, askedPublic] = [team.upstream.asked.length, pub.upstream.asked.length];
  for (const path of files) t.is((await other.fetch(path)).status, 404, path);
  for (const path of lists) {
    t.notRegex((await found(other, path)).replaceAll(/"public\.lib".*?"1\.0\.0"/gi, ''), /secret|team/i, path);
  }
  t.deepEqual(await other.json('/autocomplete?id=secret.lib'), { data: [] });
  t.is((await other.fetch('/vulnerabilities/team.test/page.json')).status, 404);
  t.is((await mine.fetch('/vulnerabilities/team.test/page.json')).status, 200);
  t.is((await other.fetch(symbols)).status, 404);
  t.is(team.upstream.asked.filter(({ path }) => path === symbols).length, 0);
  t.is(team.upstream.asked.length, asked + 1, 'only the page of vulnerabilities for the account default');
  t.true(pub.upstream.asked.length > askedPublic);
  await mine.fetch(symbols);
  t.is(team.upstream.asked.filter(({ path }) => path === symbols).length, 1);
});

test('/v1 shows and deletes mirrored packages only for the accounts of their feed', async (t) => {
  const { server, mine, other } = await setUp(t);
  const nupkg = '/package/secret.lib/1.0.0/secret.lib.1.0.0.nupkg';
  t.is((await mine.fetch(nupkg)).status, 200);
  t.is((await other.fetch('/package/public.lib/1.0.0/public.lib.1.0.0.nupkg')).status, 200);
  const list = async (feed: TestFeed) => {
    const response = await server.fetch('/v1/packages?limit=1', { token: feed.token });
    return ((await response.json()) as { items: { id: string; upstream: string }[] }).items;
  };
  t.like((await list(mine))[0], { id: 'Public.Lib', upstream: 'pub.test' });
  t.deepEqual(
    (await list(other)).map(({ id }) => id),
    ['Public.Lib'],
  );
  const paths: [string, string][] = [
    ['GET', '/v1/packages/Secret.Lib'],
    ['DELETE', '/v1/packages/Secret.Lib/1.0.0'],
  ];
  for (const [method, path] of paths) {
    t.is((await server.fetch(path, { method, token: other.token })).status, 404, path);
  }
  t.is((await server.fetch('/v1/packages/Secret.Lib')).status, 200);
  t.is((await mine.fetch(nupkg)).headers.get('cache-status'), 'entrepot; hit');
});

test('two accounts have a feed with the same name, each with its own packages', async (t) => {
  const [one, two] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  await one.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  await two.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  const server = await startMirrorOf(t, [
    one.as('corp.test', { id: 'one', accounts: ['default'] }),
    two.as('corp.test', { id: 'two', accounts: ['other'] }),
  ]);
  const other = await TestFeed.ofAccount(server, 'other');
  const mine = new TestFeed(server);
  t.deepEqual(await mine.json('/package/lib/index.json'), { versions: ['1.0.0'] });
  t.deepEqual(await other.json('/package/lib/index.json'), { versions: ['1.0.0', '2.0.0'] });
  t.false((await bytes(mine)).equals(await bytes(other)), 'each has the package of its own feed');
  t.deepEqual([await versions(mine), await versions(other)], [[1], [2]]);
  t.like(await (await server.fetch('/v1/packages/lib', { token: other.token })).json(), { upstream: 'corp.test' });
});

test('a prefetch sends the names of a feed to no other feed', async (t) => {
  const { team, pub, server, mine } = await setUp(t);
  t.is((await mine.fetch('/package/secret.lib/1.0.0/secret.lib.1.0.0.nupkg')).status, 200);
  t.is((await mine.fetch('/package/public.lib/1.0.0/public.lib.1.0.0.nupkg')).status, 200);
  server.clock.now = Date.now() + 3_600_000;
  const [{ id: accountId }] = (await rowsOf<{ id: number }>(
    server,
    "SELECT id FROM accounts WHERE name = 'other'",
  )) as [{ id: number }];
  const asked = team.upstream.asked.length;
  pub.upstream.asked.splice(0);
  await prefetchInto(server, [], { accountId, inUse: { newest: 1, since: 0 } });
  t.is(team.upstream.asked.length, asked);
  t.true(pub.asked.length > 0);
  t.false(pub.asked.some((path) => path.includes('secret')));
});
