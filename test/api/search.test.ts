import test, { type ExecutionContext } from 'ava';
import { suffixesOf } from '../../src/mirror/store/words.ts';
import { migrate } from '../../src/database/migrate.ts';
import { migrations } from '../../src/database/migrations/index.ts';
import { dialects, emptyDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, flushUsage, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

interface Page {
  items: { kind: string; name: string; origin: string; upstream: string | null; description: string | null }[];
  next_cursor: string | null;
}

async function search(server: TestServer, query: string, token?: string | null): Promise<Page> {
  const response = await server.fetch(`/v1/search?${query}`, token === undefined ? {} : { token });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Page;
}

const names = ({ items }: Page) => items.map(({ name }) => name);

/** The names of all pages. */
async function walk(server: TestServer, query: string): Promise<string[]> {
  const found: string[] = [];
  for (let cursor = ''; ;) {
    const page = await search(server, `${query}${cursor}`);
    found.push(...names(page));
    if (page.next_cursor === null) return found;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

/** A row of `mirror_entries`. */
const entry = (kind: string, name: string) => ({
  id: `${kind}${name}`.slice(0, 64),
  upstream: 'u',
  kind,
  name,
  reference: 'r',
  digest: 'd',
  size_bytes: 1,
  content_type: '',
  attributes: '{}',
  stored_at: 0,
  validated_at: 0,
  used_at: 0,
});

/** A server with hosted and mirrored packages and images whose names have the word `redis`. */
async function start(t: ExecutionContext, settings: object = {}) {
  const up = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const hub = registry.settings('docker.io', { default: true });
  const server = await startTestServer(t, { upstreams: [up.as('up.test'), hub], ...settings });
  const feed = new TestFeed(server);
  const long = { id: 'Contoso.Redis', description: 'x'.repeat(500) };
  // The version that is shown is the newest release.
  await feed.publish(long, { ...long, version: '2.0.0-beta' }, { id: 'Redis.Tools' }, { id: 'Other' });
  for (const id of ['StackExchange.Redis', 'Redis-Old']) {
    await up.offer({ id, versions: [{ version: '1.0.0' }] });
    const key = id.toLowerCase();
    await (await feed.fetch(`/package/${key}/1.0.0/${key}.1.0.0.nupkg`)).arrayBuffer();
  }
  for (const name of ['library/redis', 'bitnami/redis-cluster']) {
    registry.image(name, 'v1');
    await (await server.fetch(`/v2/docker.io/${name}/manifests/v1`)).arrayBuffer();
  }
  for (const name of ['team/redis', 'team/redis-redis', 'team/app']) await new TestRepository(server, name).image('v1');
  return { server, up, registry };
}

for (const dialect of dialects) {
  test(`${dialect}: packages and images, hosted and mirrored, are found together, page by page`, async (t) => {
    const { server, up, registry } = await start(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const document = await OpenDocument.of(server);
    await (await server.fetch('/v2/team/redis/manifests/v1')).arrayBuffer();
    await flushUsage(server);
    const asked = [up.upstream.asked.length, registry.requests().length];
    await document.read('GET /search', await server.fetch('/v1/search?q=redis'));
    const page = await search(server, 'q=redis');
    t.deepEqual(page.items.map(({ kind, origin, upstream, name }) => `${kind} ${origin} ${upstream} ${name}`).sort(), [
      'container hosted null team/redis',
      'container hosted null team/redis-redis',
      'container mirrored docker.io docker.io/bitnami/redis-cluster',
      'container mirrored docker.io docker.io/library/redis',
      'package hosted null Contoso.Redis',
      'package hosted null Redis.Tools',
      'package mirrored up.test Redis-Old',
      'package mirrored up.test StackExchange.Redis',
    ]);
    const itemOf = (wanted: string) => page.items.find(({ name }) => name === wanted);
    const common = { kind: 'package', version: '1.0.0', digest: null, severity: null, deprecated: false };
    t.deepEqual(itemOf('Contoso.Redis'), {
      ...common,
      name: 'Contoso.Redis',
      origin: 'hosted',
      upstream: null,
      description: 'x'.repeat(300),
      download_count: 0,
    } as Page['items'][number]);
    t.deepEqual(itemOf('team/redis'), {
      ...common,
      kind: 'container',
      name: 'team/redis',
      version: null,
      origin: 'hosted',
      upstream: null,
      description: null,
      download_count: 1,
    } as Page['items'][number]);
    t.like(itemOf('Redis-Old'), {
      ...common,
      name: 'Redis-Old',
      origin: 'mirrored',
      upstream: 'up.test',
      description: null,
    });
    t.deepEqual((await walk(server, 'q=redis&limit=2')).sort(), names(page).sort());
    t.deepEqual((await walk(server, 'q=redis&limit=1')).sort(), names(page).sort());
    t.deepEqual(names(await search(server, 'q=redis&kind=container&origin=mirrored')), [
      'docker.io/library/redis',
      'docker.io/bitnami/redis-cluster',
    ]);
    t.deepEqual(names(await search(server, 'q=redis&kind=package&origin=mirrored')), [
      'StackExchange.Redis',
      'Redis-Old',
    ]);
    t.deepEqual(names(await search(server, 'q=library/red')), ['docker.io/library/redis']);
    t.deepEqual(names(await search(server, 'q=docker.io/bitnami/r')), ['docker.io/bitnami/redis-cluster']);
    t.deepEqual(names(await search(server, 'q=redis%20stack')), ['StackExchange.Redis']);
    t.deepEqual(names(await search(server, 'q=edis')), [], 'a word begins after a separator');
    t.deepEqual([up.upstream.asked.length, registry.requests().length], asked, 'nothing was sent upstream');
    for (const bad of ['', 'q=', `q=${'a'.repeat(201)}`, 'q=a&kind=x', 'q=a&origin=x', 'q=a&cursor=x']) {
      t.is((await server.fetch(`/v1/search?${bad}`)).status, 400, bad);
    }
  });

  test(`${dialect}: the migration finds what was there before`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const before = migrations.filter(({ name }) => name < '024');
    await migrate(database, { version: '0.1.0', migrations: before });
    const image = `${'a-'.repeat(40)}/${'b'.repeat(120)}_c.d`;
    await database.transaction(async (tx) => {
      for (const [kind, name] of [
        ['nupkg', 'contoso.redis-x'],
        ['manifest', image],
        ['blob', 'no'],
      ] as const) {
        await tx.insert('mirror_entries', entry(kind, name));
      }
      await tx.insert('repositories', { account_id: 1, name: image, created_at: 0, updated_at: 0 });
    });
    await migrate(database);
    const rows = await database.select<{ name: string; suffix: string }>('SELECT name, suffix FROM mirror_words');
    const expected = ['contoso.redis-x', image].flatMap((name) =>
      suffixesOf(name).map((suffix) => `${name} ${suffix}`),
    );
    t.deepEqual(rows.map(({ name, suffix }) => `${name} ${suffix}`).sort(), expected.sort());
    const hosted = await database.select<{ suffix: string }>('SELECT suffix FROM repository_words');
    t.deepEqual(hosted.map(({ suffix }) => suffix).sort(), suffixesOf(image).sort());
  });
}

test('a search shows no name that the token may not see, and no evicted, claimed or hidden one', async (t) => {
  const { server } = await start(t, { anonymousRead: 'mirrored' });
  const patterns = { packages: ['Contoso.*', 'stack*'], containers: ['team/*', 'docker.io/library/*'] };
  const { value } = await createToken(server, ['read'], 'default', patterns);
  t.deepEqual(names(await search(server, 'q=redis', value)).sort(), [
    'Contoso.Redis',
    'StackExchange.Redis',
    'docker.io/library/redis',
    'team/redis',
    'team/redis-redis',
  ]);
  const { value: other } = await createToken(server, ['read'], 'other');
  const mirrored = ['Redis-Old', 'StackExchange.Redis', 'docker.io/bitnami/redis-cluster', 'docker.io/library/redis'];
  t.deepEqual(names(await search(server, 'q=redis', other)).sort(), mirrored);
  t.deepEqual(names(await search(server, 'q=redis', null)).sort(), mirrored, 'anonymous');
  const { value: writer } = await createToken(server, ['write']);
  t.is((await server.fetch('/v1/search?q=redis', { token: writer })).status, 403);
  await new TestFeed(server).publish({ id: 'Redis-Old', version: '9.0.0' });
  const found = await search(server, 'q=redis-old&kind=package');
  t.deepEqual(
    found.items.map(({ origin }) => origin),
    ['hosted'],
  );
  await databaseOf(server).transaction((tx) => tx.run("DELETE FROM mirror_entries WHERE name LIKE '%redis%'"));
  t.deepEqual(names(await search(server, 'q=redis&origin=mirrored')), []);
});

test('a search reads a bounded number of names', async (t) => {
  const server = await startTestServer(t);
  const database = databaseOf(server);
  await database.transaction(async (tx) => {
    for (let start = 0; start < 12_000; start += 500) {
      await tx.insertNew(
        'mirror_words',
        Array.from({ length: 500 }, (_, index) => {
          const name = `gone${String(start + index).padStart(5, '0')}`;
          return { kind: 'nupkg', suffix: name, upstream: 'u', name };
        }),
      );
    }
  });
  let rows = 0;
  const select = database.select.bind(database);
  database.select = async <T extends object>(...args: Parameters<typeof select>) => {
    const found = await select<T>(...args);
    if (args[0].includes('mirror_words')) rows += found.length;
    return found;
  };
  t.deepEqual(names(await search(server, 'q=gone&kind=package')), []);
  t.is(rows, 5000);
});

for (const dialect of dialects) {
  test(`${dialect}: a digest finds the images that have it, hosted and mirrored, of the account alone`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const { manifest } = upstream.image('app', 'v1');
    const server = await startTestServer(t, {
      upstreams: [upstream.settings('up.test')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const repository = new TestRepository(server, 'team/app');
    const image = await repository.image('v1');
    const other = new TestRepository(server, 'team/secret', await tokenOf(server, ['read', 'write'], 'other'));
    const hidden = await other.image('v1', { layers: [await other.blob('of another')] });
    await (await server.fetch('/v2/up.test/app/manifests/v1')).arrayBuffer();
    const find = async (digest: string, token = server.token) => {
      const response = await server.fetch(`/v1/search?q=${encodeURIComponent(digest)}`, { token });
      return ((await response.json()) as { items: { name: string }[] }).items.map(({ name }) => name);
    };
    t.deepEqual(await find(image.digest), ['team/app']);
    t.deepEqual(await find(manifest.digest), ['up.test/app']);
    t.deepEqual(await find(hidden.digest), []);
    t.deepEqual(await find(`sha256:${'0'.repeat(64)}`), []);
    const limited = (await createToken(server, ['read'], 'default', { containers: ['other/*'] })).value;
    t.deepEqual(await find(image.digest, limited), []);
    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page(`/console/search?q=${image.digest}`);
    t.true(page.includes(`href="/console/images/team%2Fapp/${encodeURIComponent(image.digest)}"`));
    for (const [text, address] of [
      ['team/api:1.5.0', '/console/images/team%2Fapi'],
      ['Contoso.Core@2.1.1', '/console/packages/Contoso.Core/2.1.1'],
      ['ent_abcd', '/console/tokens/find'],
    ] as const) {
      t.true((await visitor.page(`/console/search?q=${encodeURIComponent(text)}`)).includes(`href="${address}"`), text);
    }
  });
}
