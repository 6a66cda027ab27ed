import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import type { NupkgOptions } from '../../support/builders/nupkg.ts';
import { startTestServer } from '../../support/server.ts';
import { databaseOf, flushUsage, packageFeedOf, rowsOf } from '../../support/inside.ts';

// A word of the search text finds the ids that have a term which begins with it, wherever that term is in the id.

async function startFeed(t: ExecutionContext, dialect: Dialect, packages: readonly NupkgOptions[]) {
  const feed = new TestFeed(await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }));
  await feed.publish(...packages.map((each) => ({ payloadBytes: 0, description: 'Nothing.', ...each })));
  return feed;
}

const idsOf = async (feed: TestFeed, query: string) =>
  (await feed.json(`/search?${query}`)).data.map((hit: any) => hit.id);

async function download(feed: TestFeed, id: string, times: number): Promise<void> {
  for (let time = 0; time < times; time += 1) {
    await (await feed.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).arrayBuffer();
  }
  await flushUsage(feed.server);
}

const packages: NupkgOptions[] = [
  { id: 'Microsoft.EntityFrameworkCore', authors: 'Microsoft' },
  { id: 'Microsoft.IdentityModel.JsonWebTokens', authors: 'Microsoft' },
  { id: 'System.IdentityModel.Tokens.Jwt', tags: 'JsonWebToken', authors: 'Microsoft' },
  { id: 'Contoso.Json-Converters_Extra', authors: 'Contoso' },
  { id: 'Mentions', tags: 'json entity', authors: 'Contoso', description: 'The framework of web tokens.' },
];

for (const dialect of dialects) {
  test(`a word finds ids by the start of any term, also of joined terms (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, packages);
    const [core, tokens, jwt, converters, mentions] = packages.map(({ id }) => id!);
    const cases: Record<string, string[]> = {
      entityfram: [core!],
      EntityFram: [core!],
      entity: [core!, mentions!],
      frameworkcor: [core!],
      frame: [core!],
      framework: [core!, mentions!],
      JsonWebToken: [tokens!, jwt!],
      jsonwebtok: [tokens!],
      webtoken: [tokens!],
      identitym: [tokens!, jwt!],
      'microsoft identitym': [tokens!, jwt!],
      'identitym toke': [tokens!, jwt!],
      'identitym jw': [jwt!],
      'conver extr': [converters!],
      'contoso conv': [converters!],
      'json contoso': [converters!, mentions!],
      'entityfram authors:microsoft': [core!],
      'entityfram authors:contoso': [],
      'packageid:microsoft.entityframeworkcore entityfram': [core!],
      'packageid:microsoft.entityframeworkcore jsonweb': [],
      ramework: [],
      entitycore: [],
      coreentity: [],
      'entityfram jsonweb': [],
    };
    for (const [q, ids] of Object.entries(cases)) {
      const found = await feed.json(`/search?q=${encodeURIComponent(q)}`);
      t.deepEqual(
        found.data.map((hit: any) => hit.id),
        ids,
        q,
      );
      t.is(found.totalHits, ids.length, q);
    }
    const completed: Record<string, string[]> = {
      entityfram: [core!],
      webtok: [tokens!],
      json: [tokens!, converters!],
      'identitym jw': [jwt!],
      mention: [mentions!],
      'json contoso': [converters!],
      microsoft: [core!, tokens!],
    };
    for (const [q, ids] of Object.entries(completed)) {
      const found = await feed.json(`/autocomplete?q=${encodeURIComponent(q)}`);
      t.deepEqual(found.data, ids, q);
      t.is(found.totalHits, ids.length, q);
    }
  });

  test(`ids that match stand before tags and descriptions, with any number of downloads (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Acme.Templates', tags: 'aspnet', description: 'Templates for aspnet and web.' },
      { id: 'Acme.Described', description: 'For aspnet sites on the web.' },
      { id: 'Microsoft.AspNetCore.Web' },
      { id: 'Contoso.AspNet' },
      { id: 'AspNetStart' },
      { id: 'AspNet' },
    ]);
    await download(feed, 'acme.templates', 9);
    await download(feed, 'acme.described', 7);
    await download(feed, 'microsoft.aspnetcore.web', 2);
    t.deepEqual(await idsOf(feed, 'q=AspNet'), [
      'AspNet',
      'AspNetStart',
      'Microsoft.AspNetCore.Web',
      'Contoso.AspNet',
      'Acme.Templates',
      'Acme.Described',
    ]);
    t.deepEqual(await idsOf(feed, 'q=web+aspnet'), ['Microsoft.AspNetCore.Web', 'Acme.Templates', 'Acme.Described']);
    for (let skip = 0; skip < 6; skip += 1) {
      const page = await feed.json(`/search?q=aspnet&skip=${skip}&take=1`);
      t.is(page.totalHits, 6);
      t.deepEqual(
        page.data.map((hit: any) => hit.id),
        (await idsOf(feed, 'q=aspnet')).slice(skip, skip + 1),
      );
    }
  });

  test(`a package with several terms of one start is one hit (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      { id: 'Acme.Json.JsonPath.JsonPathTools', tags: 'json jsonpath' },
      { id: 'Json.Jsx.JsonPath', tags: 'js' },
    ]);
    for (const [q, ids] of Object.entries({
      js: ['Json.Jsx.JsonPath', 'Acme.Json.JsonPath.JsonPathTools'],
      json: ['Json.Jsx.JsonPath', 'Acme.Json.JsonPath.JsonPathTools'],
      jsonpath: ['Json.Jsx.JsonPath', 'Acme.Json.JsonPath.JsonPathTools'],
      'jsonp path': ['Json.Jsx.JsonPath', 'Acme.Json.JsonPath.JsonPathTools'],
      acme: ['Acme.Json.JsonPath.JsonPathTools'],
    })) {
      const found = await feed.json(`/search?q=${encodeURIComponent(q)}`);
      t.deepEqual(found.data.map((hit: any) => hit.id).toSorted(), ids.toSorted(), q);
      t.is(found.totalHits, ids.length, q);
    }
  });

  test(`packages of an older release are found as before, and by their terms once indexed again (${dialect})`, async (t) => {
    const feed = await startFeed(t, dialect, [
      ...packages,
      { id: 'Acme.Grouped', dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [] }] },
      { id: 'Acme.Unlisted' },
    ]);
    await feed.fetch('/push/acme.unlisted/1.0.0', { method: 'DELETE' });
    const stored = async () => [
      await rowsOf(feed.server, 'SELECT id, terms, id_terms, index_version FROM packages ORDER BY id'),
      await rowsOf(feed.server, 'SELECT * FROM package_terms ORDER BY package_row, term'),
      await rowsOf(feed.server, 'SELECT * FROM package_frameworks'),
    ];
    const wanted = await stored();
    t.true(wanted.every((rows) => rows.length > 0));
    await makeOld(feed);
    const found = async (q: string) => (await feed.json(`/search?q=${q}`)).data.map((hit: any) => hit.id);
    t.deepEqual((await found('json')).toSorted(), [
      'Contoso.Json-Converters_Extra',
      'Mentions',
      'Microsoft.IdentityModel.JsonWebTokens',
    ]);
    t.deepEqual(await found('entityfram'), []);
    await databaseOf(feed.server).transaction((tx) => tx.run('UPDATE packages SET index_version = 0'));
    const { reindexing } = packageFeedOf(feed.server);
    await Promise.all([reindexing.run(), reindexing.run()]);
    t.deepEqual(await stored(), wanted);
    t.deepEqual(await found('entityfram'), ['Microsoft.EntityFrameworkCore']);
    const before = await rowsOf(feed.server, 'SELECT * FROM packages');
    await reindexing.run();
    t.deepEqual(await rowsOf(feed.server, 'SELECT * FROM packages'), before, 'nothing is left to index');
  });
}

/**
 * Changes the rows of packages to those of an older release: without id terms, and with other tiers. The server, which does not look at
 * the version of the index to search, leaves them until that is set to 0.
 */
async function makeOld({ server }: TestFeed): Promise<void> {
  const rows = await rowsOf<{ id: number; terms: string }>(server, 'SELECT id, terms FROM packages');
  await databaseOf(server).transaction(async (tx) => {
    await tx.run("DELETE FROM package_terms WHERE term LIKE '.%'");
    await tx.run('DELETE FROM package_frameworks');
    await tx.run('UPDATE package_terms SET standing = standing + 1000 WHERE standing < 2000');
    for (const { id, terms } of rows) {
      const lines = terms.split('\n').filter((line) => !line.startsWith('.'));
      const old = lines.map((line) => line.replace(' 1 ', ' 2 ').replace(' 0 ', ' 1 ')).join('\n');
      await tx.run('UPDATE packages SET terms = ?, id_terms = NULL, index_version = 1000 WHERE id = ?', [old, id]);
    }
  });
}
