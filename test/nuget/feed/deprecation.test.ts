import test, { type ExecutionContext } from 'ava';
import { auditOf, said } from '../../support/audit.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { createToken, databaseOf, rowsOf, tokenOf } from '../../support/inside.ts';
import { longestTurn } from '../../support/longest-turn.ts';
import { OpenDocument } from '../../support/open-document.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { addVersions } from '../../support/versions.ts';

// In a process of its own: it measures the process.

// Deprecation of hosted versions: `/v1`, the public gallery's API, registrations and search.

const id = 'Contoso.Old';
const numbers = (count: number) => Array.from({ length: count }, (_, minor) => `2.${minor}.0`);

function send(server: TestServer, method: string, path: string, body?: unknown, token?: string): Promise<Response> {
  return server.fetch(path, {
    method,
    ...(token !== undefined && { token }),
    ...(body !== undefined && {
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    }),
  });
}

/** The deprecations in the registration, by version. */
async function registered(feed: TestFeed, package_ = 'contoso.old'): Promise<Record<string, any>> {
  const index = await feed.json(`/registration-gz-semver2/${package_}/index.json`);
  const leaves = index.items.flatMap((page: any) => page.items);
  return Object.fromEntries(leaves.map(({ catalogEntry: each }: any) => [each.version, each.deprecation]));
}

/** Bytes of the metadata: as counted for the package, as counted for its versions, and as stored. */
async function measured(server: TestServer): Promise<any> {
  const [row] = await rowsOf(
    server,
    `SELECT p.metadata_bytes AS package_bytes, p.largest_metadata AS largest,
       (SELECT SUM(v.metadata_bytes) FROM package_versions v WHERE v.package_row = p.id) AS version_bytes,
       (SELECT MAX(v.metadata_bytes) FROM package_versions v WHERE v.package_row = p.id) AS longest,
       (SELECT SUM(OCTET_LENGTH(v.metadata) + COALESCE(OCTET_LENGTH(v.deprecation), 0))
        FROM package_versions v WHERE v.package_row = p.id) AS stored
     FROM packages p WHERE p.package_key = 'contoso.old'`,
  );
  const numbers = Object.fromEntries(Object.entries(row!).map(([name, value]) => [name, Number(value)]));
  return numbers;
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, server: TestServer, feed: TestFeed) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => {
      const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
      await run(t, server, new TestFeed(server));
    });

  suite(
    'a version is deprecated, shown in the registration and in searches, counted, and undeprecated',
    async (t, server, feed) => {
      const document = await OpenDocument.of(server);
      await feed.publish({ id, version: '1.0.0' }, { id, version: '2.0.0' });
      await feed.publish({ id: 'Contoso.New', version: '1.0.0' });
      const before = await measured(server);
      t.deepEqual(await registered(feed), { '1.0.0': undefined, '2.0.0': undefined });
      const put = (version: string, body: unknown) =>
        send(server, 'PUT', `/v1/packages/contoso.OLD/${version}/deprecation`, body);
      const body = {
        reasons: ['Other', 'Legacy', 'Legacy'],
        message: ' Use the new one: ü€😀 ',
        alternative: { id: 'Contoso.New', range: '1.0' },
      };
      t.deepEqual(await document.read('PUT /packages/{id}/{version}/deprecation', await put('2.0', body)), {});
      const shown = {
        reasons: ['Legacy', 'Other'],
        message: 'Use the new one: ü€😀',
        alternatePackage: { id: 'Contoso.New', range: '[1.0.0, )' },
      };
      t.deepEqual(await registered(feed), { '1.0.0': undefined, '2.0.0': shown });
      for (const path of ['registration/contoso.old/2.0.0.json', 'registration-gz/contoso.old/page/2.0.0/2.0.0.json']) {
        const leaf = await feed.json(`/${path}`);
        t.deepEqual((leaf.items?.[0] ?? leaf).catalogEntry.deprecation, shown, path);
      }
      t.deepEqual((await feed.json('/search?q=contoso.old')).data[0].deprecation, shown);
      t.is((await feed.json('/search?q=contoso.new')).data[0].deprecation, undefined);
      const bytes = Buffer.byteLength(JSON.stringify(shown));
      const after = await measured(server);
      t.is(after.package_bytes, before.package_bytes + bytes, 'it counts as stored by the account');
      t.is(after.version_bytes, after.stored);
      t.true(after.largest >= after.longest);

      const list: any = await document.read(
        'GET /packages/{id}/deprecations',
        await server.fetch(`/v1/packages/${id}/deprecations`),
      );
      t.is(list.next_cursor, null);
      t.deepEqual(list.items, [
        {
          version: '2.0.0',
          listed: true,
          deprecation: {
            reasons: ['Legacy', 'Other'],
            message: shown.message,
            alternative: { id: 'Contoso.New', range: '[1.0.0, )' },
          },
        },
        { version: '1.0.0', listed: true, deprecation: null },
      ]);

      const [{ revision }] = (await rowsOf(
        server,
        `SELECT revision FROM packages WHERE package_key = 'contoso.old'`,
      )) as any;
      t.is((await put('2.0.0', body)).status, 204);
      const [same] = await rowsOf(server, `SELECT revision FROM packages WHERE package_key = 'contoso.old'`);
      t.is(same!['revision'], revision, 'the same deprecation again changes nothing');
      t.is((await put('2.0.0', { reasons: ['CriticalBugs'], alternative: { id: 'Contoso.New' } })).status, 204);
      t.deepEqual((await registered(feed))['2.0.0'], {
        reasons: ['CriticalBugs'],
        alternatePackage: { id: 'Contoso.New', range: '*' },
      });
      t.is((await send(server, 'DELETE', `/v1/packages/${id}/2.0.0/deprecation`)).status, 204);
      t.is((await send(server, 'DELETE', `/v1/packages/${id}/2.0.0/deprecation`)).status, 204, 'it is not deprecated');
      t.deepEqual(await registered(feed), { '1.0.0': undefined, '2.0.0': undefined });
      t.is((await measured(server)).package_bytes, before.package_bytes);
      const events = (await auditOf(server, 'type=package.*')).filter(({ type }) => type.includes('deprecated'));
      t.deepEqual(events.map(said), [
        'package.deprecated Contoso.Old 2.0.0',
        'package.deprecated Contoso.Old 2.0.0',
        'package.undeprecated Contoso.Old 2.0.0',
      ]);
      t.deepEqual(
        events.map(({ details }) => details),
        [{ reasons: ['Legacy', 'Other'] }, { reasons: ['CriticalBugs'] }, {}],
      );
      t.is(events[0]!.actor.kind, 'token');
      // A deprecated version is deleted with its bytes.
      t.is((await put('2.0.0', body)).status, 204);
      t.is((await send(server, 'DELETE', `/v1/packages/${id}/2.0.0`)).status, 204);
      const left = await measured(server);
      t.is(left.package_bytes, left.stored);
    },
  );

  suite('several versions are deprecated together, or all; a missing one changes none', async (t, server, feed) => {
    await feed.publish({ id, version: '1.0.0' });
    // More than one transaction changes, and more than one page lists.
    await addVersions(databaseOf(server), id, numbers(297));
    // These two are equal in order. There are as many versions as three transactions change.
    await feed.publish({ id, version: '0.1.0-0' }, { id, version: '0.1.0--0' });
    const path = `/v1/packages/${id}/deprecations`;
    const reasons = ['Legacy'];
    const all = async (limit = 100) => {
      const found: [string, boolean][] = [];
      for (let next: string | null = ''; next !== null;) {
        const page: any = await (await server.fetch(`${path}?limit=${limit}${next && `&cursor=${next}`}`)).json();
        found.push(...page.items.map((each: any) => [each.version, each.deprecation !== null]));
        next = page.next_cursor;
      }
      return found;
    };
    const before = await all();
    t.is(before.length, 300);
    t.is(new Set(before.map(([version]) => version)).size, 300);
    t.deepEqual(await all(23), before, 'a page may end between two that are equal in order');
    const names = before.map(([version]) => version);
    t.is((await send(server, 'PUT', path, { versions: [...names.slice(0, 120), '77.0.0'], reasons })).status, 404);
    t.true(
      (await all()).every(([, deprecated]) => !deprecated),
      'nothing was changed',
    );

    t.is((await send(server, 'PUT', path, { versions: [names[0], names[2], names[2]], reasons })).status, 204);
    t.deepEqual(
      (await all()).slice(0, 4).map(([, deprecated]) => deprecated),
      [true, false, true, false],
    );
    t.is((await send(server, 'PUT', path, { versions: 'all', reasons })).status, 204);
    t.true((await all()).every(([, deprecated]) => deprecated));
    const events = await auditOf(server, 'type=package.deprecated');
    t.true(events.length > 2 && events.every(({ subject }) => subject.version === undefined));
    t.deepEqual(events[0]!.details['versions'], ['2.294.0', '2.296.0']);
    t.is(
      events.reduce((sum, { details }) => sum + (details['versions'] as string[]).length, 0),
      300,
      'each version is in one event',
    );
    await feed.publish({ id, version: '99.0.0' });
    t.deepEqual((await all())[0], ['99.0.0', false], 'a later version is not deprecated');
    t.is((await send(server, 'DELETE', `${path}?versions=${names[0]},${names[1]}`)).status, 204);
    t.deepEqual(
      (await all()).slice(0, 4).map(([, deprecated]) => deprecated),
      [false, false, false, true],
    );
    t.is((await send(server, 'DELETE', `${path}?versions=all`)).status, 204);
    t.true((await all()).every(([, deprecated]) => !deprecated));
  });
}

test('what is wrong in a deprecation is refused, with its field', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id, version: '1.0.0' });
  const refused = async (body: unknown, field: string, path = `${id}/1.0.0/deprecation`) => {
    const response = await send(server, 'PUT', `/v1/packages/${path}`, body);
    const { errors } = (await response.json()) as { errors: { field: string }[] };
    t.deepEqual([response.status, errors[0]!.field.split('.')[0]], [400, field], JSON.stringify(body).slice(0, 200));
  };
  const reasons = ['Legacy'];
  const of = (range: string, other = 'Contoso.New') => ({ reasons, alternative: { id: other, range } });
  await refused({}, 'reasons');
  await refused({ reasons: [] }, 'reasons');
  await refused({ reasons: ['legacy'] }, 'reasons');
  await refused({ reasons: ['Other'] }, 'message');
  await refused({ reasons: ['Other'], message: ' \n ' }, 'message');
  await refused({ reasons, message: 'x'.repeat(1001) }, 'message');
  await refused({ reasons, message: 'red \u001b[31m' }, 'message');
  await refused({ reasons, alternative: { id: 'not an id' } }, 'alternative');
  await refused({ reasons, alternative: { id: 'x'.repeat(101) } }, 'alternative');
  for (const range of ['1.*', 'x', '[2.0.0, 1.0.0]', `[${'1'.repeat(254)}]`]) await refused(of(range), 'alternative');
  await refused(of('*', 'contoso.OLD'), 'alternative');
  await refused({ reasons, other: 1 }, 'body');
  for (const versions of [[], 'every', Array(1001).fill('1.0.0')])
    await refused({ reasons, versions }, 'versions', `${id}/deprecations`);
  t.is((await send(server, 'PUT', `/v1/packages/${id}/1.0.0/deprecation`, of('[2.0.0]', id))).status, 204);
  const most = { reasons: ['Other'], message: 'x'.repeat(1000), alternative: { id: 'x'.repeat(100), range: '(, 9]' } };
  t.is((await send(server, 'PUT', `/v1/packages/${id}/1.0.0/deprecation`, most)).status, 204);
  t.is((await registered(feed))['1.0.0'].message.length, 1000);

  for (const version of ['2.0.0', 'x', 'deprecations'])
    t.is((await send(server, 'PUT', `/v1/packages/${id}/${version}/deprecation`, { reasons })).status, 404, version);
  t.is((await send(server, 'PUT', '/v1/packages/Contoso.None/deprecations', { versions: 'all', reasons })).status, 404);
  t.is((await server.fetch('/v1/packages/Contoso.None/deprecations')).status, 404);
  t.is((await send(server, 'DELETE', `/v1/packages/${id}/deprecations`)).status, 400, 'the versions are needed');
  for (const [count, status] of [
    [1000, 204],
    [1001, 400],
  ] as const) {
    const path = `/v1/packages/${id}/deprecations?versions=${Array(count).fill('1.0.0').join()}`;
    t.is((await send(server, 'DELETE', path)).status, status, `${count} versions`);
  }
  const post = await send(server, 'POST', `/v1/packages/${id}/deprecations`);
  t.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD, PUT, DELETE']);
});

test('deprecation needs the scope write and a matching name; other accounts and anonymous readers see nothing', async (t) => {
  const server = await startTestServer(t, { anonymousRead: 'mirrored' });
  const feed = new TestFeed(server);
  await feed.publish({ id, version: '1.0.0' });
  const paths = [`/v1/packages/${id}/1.0.0/deprecation`, `/v1/packages/${id}/deprecations`];
  const bodies = [{ reasons: ['Legacy'] }, { reasons: ['Legacy'], versions: 'all' }];
  const statuses = async (token: string | null) => {
    const found: number[] = [];
    for (const [index, path] of paths.entries()) {
      const put = {
        method: 'PUT',
        body: JSON.stringify(bodies[index]),
        headers: { 'content-type': 'application/json' },
      };
      found.push((await server.fetch(path, { ...put, token })).status);
      const query = path.endsWith('s') ? '?versions=all' : '';
      found.push((await server.fetch(path + query, { method: 'DELETE', token })).status);
    }
    const gallery = { method: 'PUT', body: '{"versions":["1.0.0"]}', headers: { 'content-type': 'application/json' } };
    found.push((await server.fetch(`/v3/push/${id}/deprecations`, { ...gallery, token })).status);
    return found;
  };
  const read = async (token: string | null) => (await server.fetch(paths[1]!, { token })).status;
  const limited = async (packages: string[]) =>
    (await createToken(server, ['read', 'write'], 'default', { packages })).value;
  t.deepEqual(await statuses(await tokenOf(server, ['read', 'delete', 'admin', 'operate'])), Array(5).fill(403));
  t.deepEqual(await statuses(await limited(['Fabrikam.*'])), Array(5).fill(403));
  t.is(await read(await limited(['Fabrikam.*'])), 403);
  t.deepEqual(await statuses(await tokenOf(server, ['read', 'write'], 'other')), Array(5).fill(404));
  t.is(await read(await tokenOf(server, ['read'], 'other')), 404);
  t.deepEqual(await statuses(null), Array(5).fill(401));
  t.is(await read(null), 401);
  t.deepEqual(await auditOf(server, 'type=package.deprecated'), [], 'nothing was changed');
  t.deepEqual(await statuses(await limited(['contoso.*'])), [204, 204, 204, 204, 200]);
});

test('the API of the public gallery deprecates, unlists and undeprecates', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id, version: '1.0.0' }, { id, version: '2.0.0' });
  const { resources } = await feed.json('/index.json');
  const address = resources.find((each: any) => each['@type'] === 'PackagePublish/3.0.0-preview.1')['@id'];
  const put = (body: unknown, token = server.token, type = 'application/json') =>
    server.fetch(`${address.slice(server.url.length)}/contoso.old/deprecations`, {
      method: 'PUT',
      headers: { 'content-type': type, 'x-nuget-apikey': token },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      token: null,
    });
  const done = await put({
    versions: ['1.0', '2.0.0'],
    isLegacy: true,
    hasCriticalBugs: true,
    isOther: false,
    alternatePackageId: 'Contoso.New',
    alternatePackageVersion: '6.4',
    message: 'Replaced',
    listedVerb: 'Unchanged',
    laterField: 1,
  });
  t.deepEqual([done.status, await done.json()], [200, {}]);
  const shown = {
    reasons: ['Legacy', 'CriticalBugs'],
    message: 'Replaced',
    alternatePackage: { id: 'Contoso.New', range: '[6.4.0, )' },
  };
  t.deepEqual(await registered(feed), { '1.0.0': shown, '2.0.0': shown });

  const writer = await tokenOf(server, ['read', 'write']);
  t.is((await put({ versions: ['2.0.0'], listedVerb: 'Unlist' }, writer)).status, 403, 'as for one version');
  t.is((await put({ versions: ['2.0.0'], isOther: true, message: 'Bad', listedVerb: 'Unlist' })).status, 200);
  t.deepEqual((await registered(feed))['2.0.0'], { reasons: ['Other'], message: 'Bad' });
  const listing = await server.fetch(`/v1/packages/${id}/deprecations`);
  t.deepEqual(((await listing.json()) as any).items[0], {
    version: '2.0.0',
    listed: false,
    deprecation: { reasons: ['Other'], message: 'Bad', alternative: null },
  });
  t.is((await feed.json('/search?q=contoso.old')).data[0].version, '1.0.0');
  t.is((await put({ versions: ['2.0.0'], listedVerb: 'Relist' }, writer)).status, 200);
  t.is((await feed.json('/search?q=contoso.old')).data[0].version, '2.0.0');
  t.deepEqual(await registered(feed), { '1.0.0': shown, '2.0.0': undefined });
  t.deepEqual((await auditOf(server, 'type=package.*')).slice(2).map(said), [
    'package.deprecated Contoso.Old',
    'package.deprecated Contoso.Old 2.0.0',
    'package.unlisted Contoso.Old 2.0.0',
    'package.undeprecated Contoso.Old 2.0.0',
    'package.relisted Contoso.Old 2.0.0',
  ]);

  for (const [body, status, reason] of [
    [{ versions: ['1.0.0', '3.0'], isLegacy: true }, 404, /does not host contoso\.old 3\.0\. Only/],
    [{ versions: ['1.0.0', 'x'], isLegacy: true }, 404, /does not host contoso\.old x\. Only/],
    [{ versions: [], isLegacy: true }, 400, /Name one or more versions/],
    [{ isLegacy: true }, 400, /versions/],
    [{ versions: ['1.0.0'], isOther: true }, 400, /Other needs a message/],
    [{ versions: ['1.0.0'], isLegacy: true, alternatePackageVersion: '1.0.0' }, 400, /needs its ID/],
    [{ versions: ['1.0.0'], isLegacy: true, alternatePackageId: 'A', alternatePackageVersion: 'x' }, 400, /not valid/],
    [{ versions: ['1.0.0'], listedVerb: 'Delete' }, 400, /listedVerb/],
    ['{', 400, /not valid JSON/],
    [`{"versions":["${'1'.repeat(70_000)}"]}`, 413, /larger than/],
  ] as const) {
    const response = await put(body);
    t.deepEqual([response.status, reason.test(response.statusText)], [status, true], response.statusText);
  }
  t.is((await put('versions=1.0.0', undefined, 'application/x-www-form-urlencoded')).status, 415);
  const other = await feed.fetch('/push/contoso.old/deprecations', { method: 'DELETE' });
  t.deepEqual([other.status, other.headers.get('allow')], [405, 'PUT']);
  t.deepEqual((await registered(feed))['1.0.0'], shown, 'no refused request changed it');
});

test('mysql: a deprecation through one instance is in the registration of the other with the next request', async (t) => {
  const settings = {
    data: await folderUntilEnd(t),
    database: { url: await temporaryDatabase(t, 'mysql') },
  };
  const [one, two] = [await startTestServer(t, settings), await startTestServer(t, settings)];
  await new TestFeed(one).publish({ id, version: '1.0.0' });
  for (let round = 0; round < 4; round += 1) {
    const writer = [one, two][round % 2]!;
    const deprecated = round % 4 < 2;
    const body = { reasons: ['Other'], message: `round ${round}` };
    const path = `/v1/packages/${id}/1.0.0/deprecation`;
    t.is((await send(writer, deprecated ? 'PUT' : 'DELETE', path, deprecated ? body : undefined)).status, 204);
    for (const server of [one, two]) {
      const shown = (await registered(new TestFeed(server)))['1.0.0'];
      t.is(shown?.message, deprecated ? body.message : undefined);
    }
  }
});

test('sqlite: other requests are answered while many versions are deprecated', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id, version: '1.0.0' });
  await addVersions(databaseOf(server), id, numbers(25_000));
  const body = { versions: 'all', reasons: ['Legacy'] };
  const longest = await longestTurn(async () => {
    t.is((await send(server, 'PUT', `/v1/packages/${id}/deprecations`, body)).status, 204);
  });
  t.true(longest < 50, `${longest} ms`);
});

test('long messages count towards the size of registration pages', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id, version: '1.0.0', description: '漢'.repeat(4000) });
  await addVersions(databaseOf(server), id, numbers(74));
  const pages = async () => (await feed.json('/registration-gz-semver2/contoso.old/index.json')).items;
  t.true(
    (await pages()).every((page: any) => page.items),
    'the index has all versions',
  );
  const body = { versions: 'all', reasons: ['Other'], message: '漢'.repeat(1000) };
  t.is((await send(server, 'PUT', `/v1/packages/${id}/deprecations`, body)).status, 204);
  const apart = await pages();
  t.true(apart.length > 1 && apart.every((page: any) => !page.items), 'each page is a document of its own');
  const page = await feed.json(apart[0]['@id']);
  t.is(page.items[0].catalogEntry.deprecation.message, body.message);
});
