import test from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { TestFeed } from '../support/feed.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { Visitor } from '../support/visitor.ts';

export type Json = Record<string, any>;

const body = (value: unknown) => answer(200, { 'content-type': 'application/json' }, JSON.stringify(value));

/** A feed that warns of `Stored` before 2.0.0 (more than critical, which is critical) and of `Absent`. */
export async function warningFeed(t: Parameters<typeof UpstreamFeed.start>[0]): Promise<UpstreamFeed> {
  const up = await UpstreamFeed.start(t);
  const page = (name: string) => ({
    '@name': name,
    '@id': `${up.url}/known/${name}.json`,
    '@updated': '2026-01-01T00:00:00Z',
  });
  up.upstream.on('/vulnerabilities/index.json', body([page('base'), page('update')]));
  // Nothing is new since the first page.
  up.upstream.on('/known/update.json', body({}));
  up.upstream.on(
    '/known/base.json',
    body({
      stored: [{ severity: 9, url: 'https://advisories.test/stored', versions: '(, 2.0.0)' }],
      absent: [{ severity: 3, url: 'https://advisories.test/absent', versions: '(, )' }],
    }),
  );
  await up.offer({ id: 'Stored', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  return up;
}

const send = (server: TestServer, path: string, method: string, body: object) =>
  server.fetch(path, { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });

/** What is listed of hosted and stored versions, on one database. */
export function findingsOn(dialect: Dialect): void {
  test(`${dialect}: hosted and stored versions that are vulnerable or deprecated are listed, the worst first`, async (t) => {
    const up = await warningFeed(t);
    const server = await startTestServer(t, {
      upstreams: [up.as('nuget.org')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const feed = new TestFeed(server);
    for (const version of ['1.0.0', '1.1.0', '2.0.0']) await feed.publish({ id: 'Hosted', version });
    const needsHosted = [{ id: 'Hosted', version: '[1.0.0, )' }];
    const pinned = ['[1.1.0]', '[9.0.0]'].map((range) => ({ id: 'Hosted', version: range }));
    await feed.publish({ id: 'Old', dependencies: needsHosted }, { id: 'Fine', dependencies: pinned });
    const others = new TestFeed(server, await tokenOf(server, ['read', 'write'], 'other'));
    await others.publish({ id: 'Theirs', dependencies: needsHosted });
    const advisory = { package: 'Hosted', versions: '[1.0.0, 2.0.0)', severity: 2, url: 'https://a.test/1' };
    t.is((await send(server, '/v1/advisories', 'POST', advisory)).status, 201);
    const low = { package: 'Hosted', versions: '[1.1.0]', severity: 0, url: 'https://a.test/2' };
    t.is((await send(server, '/v1/advisories', 'POST', low)).status, 201);
    const deprecation = { reasons: ['Legacy'], message: 'Use another' };
    t.true((await send(server, '/v1/packages/Old/1.0.0/deprecation', 'PUT', deprecation)).ok);
    // Another name with the same severity is used more.
    await feed.publish({ id: 'Used' });
    const used = { package: 'Used', versions: '[1.0.0]', severity: 2, url: 'https://a.test/3' };
    t.is((await send(server, '/v1/advisories', 'POST', used)).status, 201);
    for (let time = 0; time < 2; time += 1)
      await (await server.fetch('/v3/package/used/1.0.0/used.1.0.0.nupkg')).arrayBuffer();
    for (const version of ['1.0.0', '2.0.0']) {
      await (await server.fetch(`/v3/package/stored/${version}/stored.${version}.nupkg`)).arrayBuffer();
    }
    await (await server.fetch('/v3/package/hosted/2.0.0/hosted.2.0.0.nupkg')).arrayBuffer();

    const document = await OpenDocument.of(server);
    const read = async (query = '', token = server.token): Promise<Json> =>
      document.read('GET /findings', await server.fetch(`/v1/findings${query}`, { token }));
    const shown = async (query = '', token = server.token) =>
      (await read(query, token))['items'].map(({ id, version, severity, deprecated }: Json) =>
        [id, version, severity, deprecated ? 'deprecated' : ''].join(' ').trim(),
      );
    const complete = [
      'Stored 1.0.0 critical',
      'Used 1.0.0 high',
      'Hosted 1.0.0 high',
      'Hosted 1.1.0 high',
      'Old 1.0.0  deprecated',
    ];
    // Downloads count when their answers have ended here.
    await until(async () => (await shown()).join() === complete.join());
    t.deepEqual(await shown(), complete);
    t.deepEqual(await shown('?q=HOST'), ['Hosted 1.0.0 high', 'Hosted 1.1.0 high']);
    t.like(await read('?q=o'), { vulnerable_count: 3, deprecated_count: 1 });
    t.like(await read('?q=sto'), { vulnerable_count: 1, deprecated_count: 0 });
    const all = await read();
    t.like(all, { vulnerable_count: 4, deprecated_count: 1, is_complete: true, next_cursor: null });
    const { last_used_at: usedAt, last_used_by: user, ...stored } = all['items'][0];
    t.true(Math.abs(Date.parse(usedAt) - Date.now()) < 3_600_000);
    t.deepEqual(stored, {
      id: 'Stored',
      version: '1.0.0',
      origin: 'mirrored',
      upstream: 'nuget.org',
      severity: 'critical',
      advisories: [{ severity: 'critical', url: 'https://advisories.test/stored' }],
      deprecated: false,
      downloads_30_days: 2,
    });
    t.is(user.token_name, 'first token');
    t.deepEqual(all['items'][3].advisories, [
      { severity: 'high', url: 'https://a.test/1' },
      { severity: 'low', url: 'https://a.test/2' },
    ]);
    t.like(all['items'][4], {
      id: 'Old',
      version: '1.0.0',
      origin: 'hosted',
      upstream: null,
      severity: null,
      advisories: [],
      deprecated: true,
      downloads_30_days: 0,
    });
    t.deepEqual(await shown('?kind=deprecated'), ['Old 1.0.0  deprecated']);
    t.deepEqual(await shown('?origin=mirrored&kind=vulnerable'), ['Stored 1.0.0 critical']);
    t.deepEqual(await shown('?origin=hosted&kind=vulnerable'), complete.slice(1, -1));
    const first = await read('?limit=3');
    t.deepEqual(await shown(`?limit=3&cursor=${first['next_cursor']}`), ['Hosted 1.1.0 high', 'Old 1.0.0  deprecated']);
    const userOf = async (token: string) => (await read('', token))['items'].at(0).last_used_by;
    const admins = await createToken(server, ['read', 'admin']);
    t.like(await userOf(admins.value), { token_name: 'first token' });
    await (await server.fetch('/v3/package/stored/1.0.0/stored.1.0.0.nupkg', { token: admins.value })).arrayBuffer();
    t.deepEqual(await userOf(server.token), { token_id: admins.token.id, token_name: 'a test' });
    t.is(await userOf((await createToken(server, ['read'])).value), null, 'not for readers');
    const some = await createToken(server, ['read', 'admin'], 'default', { packages: ['Stored'] });
    t.is(await userOf(some.value), null, 'a limited token does not see one that is not limited');
    const limited = (await createToken(server, ['read'], 'default', { packages: ['Hosted'] })).value;
    t.deepEqual(await shown('', limited), ['Hosted 1.0.0 high', 'Hosted 1.1.0 high']);
    t.deepEqual(await shown('', await tokenOf(server, ['read'], 'other')), ['Stored 1.0.0 critical']);

    const list = (await (await server.fetch('/v1/packages')).json()) as Json;
    const marks = list['items'].map(({ id, severity, deprecated }: Json) => [id, severity, deprecated]);
    t.deepEqual(marks, [
      ['Fine', null, false],
      ['Hosted', 'high', false],
      ['Old', null, true],
      ['Stored', 'critical', false],
      ['Used', 'high', false],
    ]);
    const dependents = async (query = '', token = server.token): Promise<Json> =>
      (await (await server.fetch(`/v1/packages/HOSTED/dependents${query}`, { token })).json()) as Json;
    const [fine, ...further] = (await dependents())['items'];
    t.like(fine, {
      id: 'Fine',
      version: '1.0.0',
      ranges: ['[1.1.0, 1.1.0]', '[9.0.0, 9.0.0]'],
      severity: null,
      deprecated: false,
    });
    t.like(further[0], { id: 'Old', severity: null, deprecated: true });
    t.is(further.length, 1, 'none of another account');
    const { next_cursor: cursor, items: page1 } = await dependents('?limit=1');
    t.is(page1[0].id, 'Fine');
    t.like(await dependents(`?limit=1&cursor=${cursor}`), { items: [{ id: 'Old' }], next_cursor: null });
    t.deepEqual((await dependents('', limited))['items'], [], 'a limited token does not see them');
    const losing = async (versions: string) =>
      (await dependents(`?without=${versions}`))['items'].map(({ id }: Json) => id);
    t.deepEqual(await losing('9.9.9'), []);
    t.deepEqual(await losing('1.1'), ['Fine']);
    t.deepEqual(await losing('1.0.0,2.0.0'), []);
    t.deepEqual(await losing('1.0.0, 1.1.0,2.0'), ['Fine', 'Old']);
    const versions = (await (await server.fetch('/v1/packages/Stored/versions')).json()) as Json;
    t.deepEqual(
      versions['items'].map(({ version, severity }: Json) => [version, severity]),
      [
        ['2.0.0', null],
        ['1.0.0', 'critical'],
      ],
    );
    // The registration of this feed has no advisory.
    const details = (await (await server.fetch('/v1/packages/Stored/1.0.0')).json()) as Json;
    t.deepEqual(details['vulnerabilities'], [{ advisory_url: 'https://advisories.test/stored', severity: 'critical' }]);

    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/risks');
    t.regex(page, /4 versions with a known vulnerability, 1\s+deprecated/);
    t.regex(
      page,
      /Stored 1\.0\.0[^]*class="state bad">vulnerable: critical[^]*href="https:\/\/advisories\.test\/stored"/,
    );
    t.regex(page, /by\s*<a href="\/console\/tokens\/[^"]+">a test<\/a>/);
    t.regex(await visitor.page('/console/packages/Hosted?show=used'), />Old<\/a>[^]*deprecated/);
    t.regex(await visitor.page('/console/packages'), />Hosted<\/a>\s*<span class="state bad">vulnerable: high/);
    t.regex(
      (await visitor.page('/console/')).replace(/\s+/g, ' '),
      /vulnerable: critical<\/span>\s*4 vulnerable versions, 1 deprecated/,
    );
    t.regex(
      await visitor.page('/console/risks?kind=deprecated&origin=mirrored'),
      /Nothing matches\. <a href="\/console\/risks">/,
    );

    // A deprecation that ends, and an advisory that is deleted.
    t.true((await server.fetch('/v1/packages/Old/1.0.0/deprecation', { method: 'DELETE' })).ok);
    await until(async () => !(await shown()).includes('Old 1.0.0  deprecated'));
  });

  test(`${dialect}: a stored version that its feed deprecates is listed from stored documents, without a request`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const deprecated = { entry: { deprecation: { reasons: ['Legacy'], message: 'Use another' } } };
    const versions = [{ version: '1.0.0', ...deprecated }, { version: '1.1.0' }, { version: '1.2.0', ...deprecated }];
    await up.offer({ id: 'Stored', versions });
    await up.offer({ id: 'Paged', versions, pageSize: 1 });
    await up.offer({ id: 'Unread', versions });
    const server = await startTestServer(t, {
      upstreams: [up.as('nuget.org')],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    for (const id of ['stored', 'paged', 'unread']) {
      for (const version of ['1.0.0', '1.1.0']) {
        await (await server.fetch(`/v3/package/${id}/${version}/${id}.${version}.nupkg`)).arrayBuffer();
      }
    }
    const read = async (path: string) => (await (await server.fetch(path)).json()) as Json;
    // Of this one, the document for clients without SemVer 2 is stored.
    await read('/v3/registration/stored/index.json');
    const { items: pages } = await read('/v3/registration-gz-semver2/paged/index.json');
    await read(new URL(pages[0]['@id']).pathname);
    await until(async () => (await read('/v1/findings'))['is_complete'] === true);
    const before = up.asked.length;
    const shown = async () =>
      (await read('/v1/findings?kind=deprecated'))['items'].map(({ id, version, origin }: Json) => [
        id,
        version,
        origin,
      ]);
    await until(async () => (await shown()).length >= 2);
    t.deepEqual(await shown(), [
      ['Paged', '1.0.0', 'mirrored'],
      ['Stored', '1.0.0', 'mirrored'],
    ]);
    t.is((await read('/v1/findings'))['deprecated_count'], 2);
    const marks = (await read('/v1/packages'))['items'].map(({ id, deprecated: mark }: Json) => [id, mark]);
    t.deepEqual(marks, [
      ['Paged', true],
      ['Stored', true],
      ['Unread', false],
    ]);
    t.is(up.asked.length, before);
  });
}
