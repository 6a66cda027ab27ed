import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { startTestServer } from '../support/server.ts';
import { eventually, until } from '../support/until.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { findingsOn, type Json } from './findings-suite.ts';

findingsOn('sqlite');

test('a page of a registration that its index names no more deprecates nothing', async (t) => {
  const up = await UpstreamFeed.start(t);
  const deprecated = { version: '1.0.0', entry: { deprecation: { reasons: ['Legacy'] } } };
  await up.offer({ id: 'Stored', versions: [deprecated], pageSize: 1 });
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org', { freshFor: '1ms' })] });
  const read = async (path: string) => (await (await server.fetch(path)).json()) as Json;
  await (await server.fetch('/v3/package/stored/1.0.0/stored.1.0.0.nupkg')).arrayBuffer();
  const { items: pages } = await read('/v3/registration/stored/index.json');
  await read(new URL(pages[0]['@id']).pathname);
  await up.offer({ id: 'Stored', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  await read('/v3/registration/stored/index.json');
  await until(async () => (await read('/v1/findings'))['is_complete'] === true);
  t.deepEqual((await read('/v1/findings'))['items'], []);
});

const advisory = (url: string, severity = 2) => ({ severity, url, versions: '(, 9.0.0)' });

test('a version has the highest severity of all pages of an upstream', async (t) => {
  const up = await UpstreamFeed.start(t);
  const entryOf = (name: string) => ({
    '@name': name,
    '@id': `${up.url}/${name}.json`,
    '@updated': '2026-01-01T00:00:00Z',
  });
  up.upstream.on('/vulnerabilities/index.json', json(['base', 'update'].map(entryOf)));
  const [low, high] = [advisory('https://a.test/low', 0), advisory('https://a.test/high')];
  up.upstream.on('/base.json', json({ stored: [low, high], other: [high] }));
  up.upstream.on(
    '/update.json',
    json({ stored: [advisory('https://a.test/new', 1), advisory('https://a.test/worst', 3)] }),
  );
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org')] });
  for (const id of ['Stored', 'Other']) {
    const key = id.toLowerCase();
    await up.offer({ id, versions: [{ version: '1.0.0' }] });
    await (await server.fetch(`/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`)).arrayBuffer();
  }
  const read = async (path: string) => (await (await server.fetch(path)).json()) as Json;
  await until(async () => (await read('/v1/findings'))['items'].length === 2);
  const { items } = await read('/v1/findings');
  t.deepEqual(
    items.map(({ id, severity, advisories }: Json) => [id, severity, advisories.map((each: Json) => each['severity'])]),
    [
      ['Stored', 'critical', ['critical', 'high', 'moderate', 'low']],
      ['Other', 'high', ['high']],
    ],
  );
  t.is((await read('/v1/packages/Stored'))['severity'], 'critical');
});

test('a list of too many characters is not read, and then not all findings are known', async (t) => {
  const up = await UpstreamFeed.start(t);
  /** As long as a list may be. */
  const longest = Array.from({ length: 3000 }, (_, number) => advisory(`https://a.test/${number}`));
  const over = () => 262_144 - JSON.stringify(longest).length;
  while (over() < 0) longest.pop();
  longest.at(-1)!.url += 'x'.repeat(over());
  const longer = [...longest.slice(0, -1), advisory(`${longest.at(-1)!.url}x`)];
  const entry = { '@name': 'base', '@id': `${up.url}/base.json`, '@updated': '2026-01-01T00:00:00Z' };
  up.upstream.on('/vulnerabilities/index.json', json([entry]));
  const short = [advisory('https://a.test/1')];
  up.upstream.on('/base.json', json({ longest, longer, short, other: short }));
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org')] });
  for (const id of ['Longest', 'Longer']) {
    const key = id.toLowerCase();
    await up.offer({ id, versions: [{ version: '1.0.0' }] });
    await (await server.fetch(`/v3/package/${key}/1.0.0/${key}.1.0.0.nupkg`)).arrayBuffer();
  }
  const read = async () => (await (await server.fetch('/v1/findings')).json()) as Json;
  await until(async () => (await read())['items'].length > 0);
  const { items, is_complete: isComplete } = await read();
  t.deepEqual(
    items.map(({ id, advisories }: Json) => [id, advisories.length]),
    [['Longest', 100]],
    'of a package, 100 are shown',
  );
  t.false(isComplete);
  const page = await (await server.fetch('/v3/vulnerabilities/nuget.org/base.json')).json();
  t.deepEqual(page, { longest, longer, short, other: short }, 'clients get all of it');
});

test('the downloads of a finding are those of the last 30 days, also of a package that is used all the time', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  const day = 86_400_000;
  const start = Date.UTC(2026, 10, 1, 12);
  server.clock.now = start;
  await new TestFeed(server).publish({ id: 'Lib', version: '1.0.0' });
  const body = JSON.stringify({ package: 'Lib', versions: '[1.0.0]', severity: 2, url: 'https://a.test/1' });
  const headers = { 'content-type': 'application/json' };
  t.is((await server.fetch('/v1/advisories', { method: 'POST', headers, body })).status, 201);
  const read = async () => ((await (await server.fetch('/v1/findings')).json()) as Json)['items'] as Json[];
  const expected: [onDay: number, token: string | null | undefined, downloads: number][] = [
    [0, undefined, 1],
    [0, undefined, 2],
    [25, undefined, 3],
    [29, undefined, 4],
    [30, undefined, 3],
    [54, undefined, 4],
    [55, null, 4],
  ];
  for (const [onDay, token, downloads] of expected) {
    server.clock.now = start + onDay * day;
    const response = await server.fetch('/v3/package/lib/1.0.0/lib.1.0.0.nupkg', token === null ? { token } : {});
    await response.arrayBuffer();
    const lists = await eventually(read, ([item]) => item!['downloads_30_days'] === downloads);
    t.like(lists[0]!, { downloads_30_days: downloads }, `day ${onDay}`);
  }
});

test('findings of hosted packages are listed while an upstream sends no vulnerability data', async (t) => {
  const up = await UpstreamFeed.start(t);
  up.upstream.on('/vulnerabilities/index.json', (_request, response) => void response.writeHead(403).end());
  const server = await startTestServer(t, { upstreams: [up.as('nuget.org')] });
  await new TestFeed(server).publish({ id: 'Hosted', version: '1.0.0' });
  const created = await server.fetch('/v1/advisories', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ package: 'Hosted', versions: '[1.0.0]', severity: 2, url: 'https://a.test/1' }),
  });
  t.is(created.status, 201);
  const list = (await (await server.fetch('/v1/findings')).json()) as Json;
  t.like(list, { is_complete: false, vulnerable_count: 1 });
  t.is(list['items'][0].id, 'Hosted');
});
