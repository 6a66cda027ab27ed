import test, { type ExecutionContext } from 'ava';
import type { Verdict } from '../../../src/mirror/policy/admission.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { createToken, tokenOf } from '../../support/inside.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { startMirrorOf, stringsIn, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

// The feed as it was at the end of a day: what existed then, under the rules of today.

const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];
const fileOf = (day: string, version: string, id = 'lib') =>
  `/as-of/${day}/v3/package/${id}/${version}/${id}.${version}.nupkg`;
const filesOf = (id: string) => [`package/${id}/1.0.0/${id}.1.0.0.nupkg`, `package/${id}/1.0.0/${id}.nuspec`];
const documentsOf = (id: string) => [`package/${id}/index.json`, ...hives.map((hive) => `${hive}/${id}/index.json`)];
const noon = (day: string) => Date.parse(`${day}T12:00:00Z`);

async function documentAt(server: TestServer, path: string): Promise<any> {
  const response = await server.fetch(path);
  if (response.status !== 200) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** The versions that the feed of a day shows of an id, in each document; undefined if it shows no such package. */
async function versionsAt(t: ExecutionContext, server: TestServer, day: string, id: string) {
  const feed = `/as-of/${day}/v3`;
  const flat = await server.fetch(`${feed}/package/${id}/index.json`);
  const versions = flat.status === 404 ? undefined : ((await flat.json()) as { versions: string[] }).versions;
  for (const hive of hives) {
    const index = await server.fetch(`${feed}/${hive}/${id}/index.json`);
    t.is(index.status, flat.status, hive);
    if (index.status === 404) continue;
    const { items } = (await index.json()) as {
      items: { '@id': string; lower: string; upper: string; items?: object[] }[];
    };
    t.true(stringsIn(items).every((text) => !text.includes('/v3/') || text.startsWith(server.url + feed)));
    const pages = await Promise.all(
      items.map(async (page) => {
        t.deepEqual([versions!.includes(page.lower), versions!.includes(page.upper)], [true, true]);
        return page.items ?? ((await documentAt(server, page['@id'].slice(server.url.length))).items as object[]);
      }),
    );
    const found = pages.flat().map((leaf) => (leaf as { catalogEntry: { version: string } }).catalogEntry.version);
    t.deepEqual(found, versions!, hive);
  }
  return versions;
}

for (const dialect of dialects) {
  test(`${dialect}: hosted versions are there from the day of their push on`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    for (const [day, version] of [
      ['2026-03-01', '1.0.0'],
      ['2026-03-05', '2.0.0'],
      ['2026-03-09', '1.5.0'],
    ] as const) {
      server.clock.now = noon(day);
      await feed.publish({ id: 'Contoso.Core', version });
    }
    t.is(await versionsAt(t, server, '2026-02-28', 'contoso.core'), undefined);
    t.deepEqual(await versionsAt(t, server, '2026-03-01', 'contoso.core'), ['1.0.0']);
    t.deepEqual(await versionsAt(t, server, '2026-03-08', 'contoso.core'), ['1.0.0', '2.0.0']);
    t.deepEqual(await versionsAt(t, server, '2026-03-09', 'contoso.core'), ['1.0.0', '1.5.0', '2.0.0']);

    const there = await server.fetch(fileOf('2026-03-05', '2.0.0', 'contoso.core'));
    t.is(there.status, 200);
    const now = await feed.fetch('/package/contoso.core/2.0.0/contoso.core.2.0.0.nupkg');
    t.deepEqual(await there.arrayBuffer(), await now.arrayBuffer());
    for (const path of [
      fileOf('2026-03-04', '2.0.0', 'contoso.core'),
      '/as-of/2026-03-04/v3/registration/contoso.core/2.0.0.json',
    ]) {
      const early = await server.fetch(path);
      t.is(early.status, 404, path);
      const told = 'contoso.core 2.0.0 is known from 2026-03-05, and this address shows the feed of 2026-03-04.';
      t.is(early.statusText, told);
      t.is(((await early.json()) as { detail: string }).detail, told);
    }
    t.regex(
      (await server.fetch('/as-of/2026-02-01/v3/package/contoso.core/index.json')).statusText,
      /^contoso\.core is known from 2026-03-01/,
    );
    const icon = await server.fetch('/as-of/2026-03-05/v3/package/contoso.core/2.0.0/icon');
    t.is(icon.status, 404);
    t.notRegex(icon.statusText, /known/, 'the version is there on this day');
    for (const path of ['package/contoso.core/2.0.0/contoso.core.nuspec', 'registration/contoso.core/2.0.0.json']) {
      t.is((await server.fetch(`/as-of/2026-03-04/v3/${path}`)).status, 404, path);
      t.is((await server.fetch(`/as-of/2026-03-05/v3/${path}`)).status, 200, path);
    }
    t.notRegex((await server.fetch('/as-of/2026-03-04/v3/package/contoso.none/index.json')).statusText, /known/);
    const other = await server.fetch('/as-of/2026-03-09/v3/package/contoso.core/index.json', {
      token: await tokenOf(server, ['read'], 'other'),
    });
    t.is(other.status, 404);
    t.notRegex(other.statusText, /known/);
  });
}

test('a long hosted package is cut into pages of the versions of the day', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  server.clock.now = noon('2026-03-01');
  for (let minor = 0; minor < 130; minor += 1) await feed.publish({ id: 'Long', version: `1.${minor}.0` });
  server.clock.now = noon('2026-03-02');
  await feed.publish({ id: 'Long', version: '1.64.5' });
  t.is((await versionsAt(t, server, '2026-03-01', 'long'))!.length, 130);
  t.is((await versionsAt(t, server, '2026-03-02', 'long'))!.length, 131);
});

test('the service index has packages, registrations, readmes and vulnerabilities, all below the date, and no more', async (t) => {
  const server = await startTestServer(t);
  const index = await documentAt(server, '/as-of/2026-03-01/v3/index.json');
  const resources = index.resources as { '@id': string; '@type': string }[];
  t.true(resources.every(({ '@id': id }) => id.startsWith(`${server.url}/as-of/2026-03-01/v3/`)));
  t.deepEqual(
    [...new Set(resources.map(({ '@type': type }) => type.split('/')[0]))],
    ['PackageBaseAddress', 'RegistrationsBaseUrl', 'VulnerabilityInfo', 'ReadmeUriTemplate'],
  );
  for (const path of ['vulnerabilities/index.json', 'vulnerabilities/base.json'])
    t.is((await server.fetch(`/as-of/2026-03-01/v3/${path}`)).status, 200, path);
  for (const path of ['search', 'autocomplete', 'nothing', '']) {
    const address = `/as-of/2026-03-01/v3/${path}`;
    const none = await server.fetch(address);
    const { code, detail } = (await none.json()) as { code: string; detail: string };
    t.deepEqual([none.status, none.headers.get('allow'), code], [404, null, 'NotFound'], path);
    t.regex(detail, /no search/, path);
    t.is((await server.fetch(address, { method: 'HEAD' })).status, 404, path);
  }
});

test('a date that is none or in the future is 400, today is not; the past cannot be changed', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.parse('2026-03-05T23:59:59Z');
  for (const day of [
    '2026-03-06',
    '2026-02-30',
    '2026-3-1',
    '20260301',
    'today',
    '2026-03-01T00:00:00Z',
    '+002026-03-01',
  ]) {
    for (const path of ['index.json', 'package/some/index.json', 'vulnerabilities/index.json']) {
      const response = await server.fetch(`/as-of/${encodeURIComponent(day)}/v3/${path}`);
      t.is(response.status, 400, `${day} ${path}`);
      t.regex(response.statusText, /is in the future|is not a date/);
    }
  }
  t.is((await server.fetch('/as-of/2026-03-05/v3/index.json')).status, 200);
  for (const method of ['PUT', 'POST', 'DELETE', 'PATCH']) {
    for (const path of ['push', 'push/some/1.0.0', 'package/some/index.json', 'symbols']) {
      const response = await server.fetch(`/as-of/2026-03-05/v3/${path}`, { method });
      t.deepEqual([response.status, response.headers.get('allow')], [405, 'GET, HEAD'], `${method} ${path}`);
      const { code, detail } = (await response.json()) as { code: string; detail: string };
      t.is(code, 'MethodNotAllowed', path);
      t.regex(detail, /past cannot be changed/);
    }
  }
  t.is((await server.fetch('/as-of/2026-03-05/v3/index.json', { token: null })).status, 401);
  const { value: token } = await createToken(server, ['read'], 'default', { packages: ['Other.*'] });
  t.is((await server.fetch('/as-of/2026-03-05/v3/package/some/index.json', { token })).status, 403);
});

test('each answer has a validator and is asked again', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: '2026-01-01T00:00:00Z' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  await new TestFeed(server).publish({ id: 'Own', version: '1.0.0' });
  const today = new Date().toISOString().slice(0, 10);
  for (const path of ['index.json', ...['lib', 'own'].flatMap((id) => [...documentsOf(id), ...filesOf(id)])]) {
    const address = `/as-of/${today}/v3/${path}`;
    await (await server.fetch(address)).arrayBuffer();
    const first = await server.fetch(address);
    const bytes = Buffer.from(await first.arrayBuffer());
    t.is(first.headers.get('cache-control'), 'private, no-cache', path);
    const etag = first.headers.get('etag')!;
    t.regex(etag, /^"sha\d+:/, path);
    t.is((await server.fetch(address, { headers: { 'if-none-match': etag } })).status, 304, path);
    const head = await server.fetch(address, { method: 'HEAD' });
    t.is(head.headers.get('etag'), etag);
    if (path.includes('-gz')) t.notThrows(() => JSON.parse(String(bytes)) as unknown, 'fetch has decompressed it');
    else t.is(Number(head.headers.get('content-length')), bytes.length, path);
  }
});

/** A mirror of a feed with versions of every kind of date. */
async function startMirror(t: ExecutionContext, more: { judge?: () => Promise<(reference: string) => Verdict> } = {}) {
  const up = await UpstreamFeed.start(t);
  const unlisted = { published: '1900-01-01T00:00:00+00:00' };
  await up.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: '2026-01-01T10:00:00Z' },
      { version: '1.1.0', ...unlisted, changed: '2026-01-10T00:00:00Z' },
      { version: '1.2.0', ...unlisted },
      { version: '2.0.0-rc1', published: '2026-02-01T23:59:59.9999999Z' },
      { version: '2.0.0', published: '2026-02-02T00:00:00Z' },
      { version: '3.0.0', published: '2099-01-01T00:00:00Z' },
      { version: '4.0.0', published: 'unknown' },
    ],
  });
  const server = await startTestServer(t, { upstreams: [up.as('up.test', { freshFor: '1h' })] }, more);
  server.clock.now = noon('2026-03-01');
  const pull = async (version: string) => {
    const response = await server.fetch(`/v3/package/lib/${version}/lib.${version}.nupkg`);
    await response.arrayBuffer();
    t.is(response.status, 200);
  };
  return { up, server, pull };
}

async function flatAt(server: TestServer, day: string, id = 'lib'): Promise<string[] | number> {
  const response = await server.fetch(`/as-of/${day}/v3/package/${id}/index.json`);
  return response.status === 200 ? ((await response.json()) as { versions: string[] }).versions : response.status;
}

test('mirrored versions are there from the date of their upstream on, else from when they were first seen here', async (t) => {
  const { server, pull } = await startMirror(t);
  t.is(await flatAt(server, '2025-12-31'), 404);
  t.deepEqual(await flatAt(server, '2026-01-01'), ['1.0.0']);
  t.deepEqual(await flatAt(server, '2026-01-10'), ['1.0.0', '1.1.0']);
  t.deepEqual(await flatAt(server, '2026-02-01'), ['1.0.0', '1.1.0', '2.0.0-rc1']);
  t.deepEqual(await flatAt(server, '2026-02-02'), ['1.0.0', '1.1.0', '2.0.0-rc1', '2.0.0']);
  t.is(((await flatAt(server, '2026-03-01')) as string[]).length, 7, 'what the upstream offers today is seen today');
  for (const version of ['1.2.0', '3.0.0', '4.0.0']) await pull(version);
  server.clock.now = noon('2026-03-05');
  t.deepEqual(await flatAt(server, '2026-02-28'), ['1.0.0', '1.1.0', '2.0.0-rc1', '2.0.0']);
  t.is((await versionsAt(t, server, '2026-02-28', 'lib'))!.length, 4);
  t.deepEqual(await flatAt(server, '2026-03-01'), ['1.0.0', '1.1.0', '1.2.0', '2.0.0-rc1', '2.0.0', '3.0.0', '4.0.0']);
  const early = await server.fetch('/as-of/2026-02-28/v3/package/lib/4.0.0/lib.4.0.0.nupkg');
  t.is(early.status, 404);
  t.is(early.statusText, 'lib 4.0.0 is known from 2026-03-01, and this address shows the feed of 2026-02-28.');
  t.is((await server.fetch('/as-of/2026-02-28/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 200);
});

test('a version that was published again, or with a later date, is there from when it was first seen', async (t) => {
  const { up, server, pull } = await startMirror(t);
  await pull('1.0.0');
  server.clock.now = noon('2026-03-10');
  await up.offer({ id: 'Lib', versions: [{ version: '1.0.0', published: '2026-03-09T00:00:00Z' }] });
  t.is(await flatAt(server, '2026-02-28'), 404);
  t.deepEqual(await flatAt(server, '2026-03-01'), ['1.0.0']);
});

test('what is held and refused today is so in the past, and not told', async (t) => {
  const verdicts = new Map<string, Verdict>();
  const { server } = await startMirror(t, { judge: async () => (reference) => verdicts.get(reference) ?? 'allow' });
  const first = await server.fetch(fileOf('2026-02-02', '2.0.0'));
  t.is(first.status, 200);
  const stored = await server.fetch(fileOf('2026-02-02', '2.0.0'));
  verdicts.set('2.0.0', { denied: 'Version 2.0.0 has known malware.' });
  verdicts.set('2.0.0-rc1', 'hold');
  const etag = stored.headers.get('etag')!;
  const later = await server.fetch(fileOf('2026-02-02', '2.0.0'), { headers: { 'if-none-match': etag } });
  t.deepEqual([later.status, later.statusText], [403, 'Version 2.0.0 has known malware.']);
  t.deepEqual(await flatAt(server, '2026-02-02'), ['1.0.0', '1.1.0', '2.0.0']);
  const held = await server.fetch(fileOf('2026-01-01', '2.0.0-rc1'));
  t.is(held.status, 404);
  t.notRegex(held.statusText, /known/);
});

test('an upstream that fails is no "not found", and what was seen by then is still served', async (t) => {
  const { up, server, pull } = await startMirror(t);
  await pull('1.0.0');
  server.clock.now = noon('2026-03-10');
  up.upstream.on('/registration/lib/index.json', answer(500));
  const status = async (day: string, version: string) =>
    (await server.fetch(`/as-of/${day}/v3/package/lib/${version}/lib.${version}.nupkg`)).status;
  t.is(await status('2026-03-01', '2.0.0'), 502);
  t.is(await flatAt(server, '2026-03-01'), 502);
  t.is(await status('2026-03-01', '1.0.0'), 200);
  t.is(await status('2026-02-01', '1.0.0'), 502);
});

test('a claim of today keeps upstreams out of the past', async (t) => {
  const { up, server } = await startMirror(t);
  server.clock.now = noon('2026-03-05');
  await new TestFeed(server).publish({ id: 'Lib', version: '9.0.0' });
  const asked = up.asked.length;
  t.is(await flatAt(server, '2026-02-02'), 404);
  t.deepEqual(await flatAt(server, '2026-03-05'), ['9.0.0']);
  t.is(up.asked.length, asked);
});

test('a merged id has the hosted and the upstream versions of the day', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = ['1.0.0', '2.0.0'].map((version) => ({ version, published: '2026-01-01T00:00:00Z' }));
  await up.offer({ id: 'Lib', versions });
  const server = await startMirrorOf(t, [up.as('up.test')], { merge: { packages: ['Lib'] } });
  server.clock.now = noon('2026-03-05');
  await new TestFeed(server).publish({ id: 'Lib', version: '2.0.0' }, { id: 'Lib', version: '3.0.0' });
  t.deepEqual(await versionsAt(t, server, '2026-03-04', 'lib'), ['1.0.0', '2.0.0']);
  t.deepEqual(await versionsAt(t, server, '2026-03-05', 'lib'), ['1.0.0', '2.0.0', '3.0.0']);
  t.deepEqual(await flatAt(server, '2025-12-31'), 404);
});

test('pages that did not change since the date are fetched once for their versions only, and many pages need few requests', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = Array.from({ length: 40 }, (_, at) => ({
    version: `1.${at}.0`,
    published: `2026-0${at < 20 ? 1 : 2}-01T00:00:00Z`,
  }));
  await up.offer({ id: 'Lib', versions, pageSize: 4 });
  const server = await startMirrorOf(t, [up.as('up.test', { freshFor: '1h' })]);
  t.is((await versionsAt(t, server, '2026-01-31', 'lib'))!.length, 20);
  t.is((await versionsAt(t, server, '2026-02-01', 'lib'))!.length, 40);
  const counts = new Map<string, number>();
  for (const path of up.asked) counts.set(path, (counts.get(path) ?? 0) + 1);
  t.true(
    [...counts.values()].every((count) => count <= 2),
    'a page is fetched for each hive at most',
  );
});
