import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import type { NupkgOptions } from '../support/builders/nupkg.ts';
import { startTestServer } from '../support/server.ts';
import { flushUsage } from '../support/inside.ts';

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
}
