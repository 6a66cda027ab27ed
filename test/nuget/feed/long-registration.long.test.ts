import test, { type ExecutionContext } from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { startTestServer } from '../../support/server.ts';
import { addVersions } from '../../support/versions.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { databaseOf } from '../../support/inside.ts';

// Registrations with much metadata or many versions: every document stays short.

const mebibyte = 2 ** 20;
const hive = 'registration-gz-semver2';

/** About 250 kB of dependencies. */
const heavy = Array.from({ length: 1000 }, (_, index) => ({
  id: `Dependency.${index}.`.padEnd(100, 'x'),
  version: `[1.0.0-${'a'.repeat(57)}, 2.0.0-${'b'.repeat(57)}]`,
}));
const dependencyGroups = [{ dependencies: heavy.map(({ id, version }) => ({ id, range: version })) }];
const numbers = (count: number) => Array.from({ length: count }, (_, minor) => `1.${minor}.0`);

/** All versions, read through the index, in order. Fails if a document is long. */
async function walk(t: ExecutionContext, feed: TestFeed, id: string, most = 1.3 * mebibyte) {
  const read = async (path: string) => {
    const response = await feed.fetch(path);
    t.is(response.status, 200, path);
    const text = await response.text();
    t.true(text.length < most, `${path} has ${text.length} characters`);
    return JSON.parse(text);
  };
  const index = await read(`/${hive}/${id}/index.json`);
  t.is(index.count, index.items.length);
  const pages = [];
  for (const page of index.items) {
    const document = page.items ? page : await read(page['@id']);
    t.deepEqual([document.count, document.items.length], [page.count, page.count]);
    t.true(page.count <= 64);
    t.is(document.items[0].catalogEntry.version, page.lower);
    t.is(document.items.at(-1).catalogEntry.version, page.upper);
    pages.push(document);
  }
  const versions = pages.flatMap(({ items }) => items.map((item: any) => item.catalogEntry.version));
  return { index, pages, versions: versions as string[] };
}

async function isTooLong(t: ExecutionContext, feed: TestFeed, path: string): Promise<void> {
  const response = await feed.fetch(path);
  t.is(response.status, 400, path);
  t.regex(response.statusText, /too many versions in this range. Request a page that the index names/);
}

for (const dialect of dialects) {
  test(`versions with much metadata are in pages of about 1 MiB (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const versions = numbers(36);
    for (const version of versions.slice(0, 3)) await feed.publish({ id: 'Heavy', version, dependencies: heavy });
    const inline = await walk(t, feed, 'heavy');
    t.is(inline.index.items[0].items.length, 3, 'three versions are in the index');
    for (const version of versions.slice(3)) await feed.publish({ id: 'Heavy', version, dependencies: heavy });
    const { index, pages, versions: found } = await walk(t, feed, 'heavy');
    t.deepEqual(found, versions);
    t.true(index.items.every((page: any) => page.items === undefined));
    t.true(pages.every(({ count }) => count >= 3 && count <= 5));
    await isTooLong(t, feed, `/${hive}/heavy/page/1.0.0/1.35.0.json`);
    await isTooLong(t, feed, `/registration/heavy/page/0.0.1/9.0.0.json`);
    const grown = await feed.json(`/${hive}/heavy/page/1.0.0/1.9.0.json`);
    t.is(grown.count, 10, 'a page can have more versions than the index listed');
    t.is((await feed.json(`/${hive}/heavy/1.35.0.json`)).catalogEntry.dependencyGroups[0].dependencies.length, 1000);

    await feed.publish(...['2.0.0', '2.1.0'].map((version) => ({ id: 'Heavy', version })));
    const last = (await walk(t, feed, 'heavy')).index.items.at(-1);
    t.is(last.upper, '2.1.0', 'short and long versions share a page');
    t.true(last.count > 2);
  });

  test(`a range with more versions than a page can have is refused (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Many', version: '1.0.0' });
    await addVersions(
      databaseOf(server),
      'Many',
      Array.from({ length: 1099 }, (_, index) => `1.0.${index + 1}`),
    );
    const { versions } = await walk(t, feed, 'many');
    t.is(versions.length, 1100);
    await isTooLong(t, feed, `/${hive}/many/page/1.0.0/1.0.1099.json`);
    t.is((await feed.json(`/${hive}/many/page/1.0.1/1.0.1024.json`)).count, 1024);
  });
}

for (const dialect of dialects) {
  test(`a mirrored page with the longest versions is served, and one with longer versions is ignored (${dialect})`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const versions = ['a', 'b', 'c', 'd'].map((letter) => ({ version: `1.0.0-${letter.repeat(58)}` }));
    await up.offer({ id: 'Lengthy', versions: [...versions, { version: `1.0.0-${'e'.repeat(300)}` }], pageSize: 2 });
    const database = { url: await temporaryDatabase(t, dialect) };
    const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')], { database }));
    const { versions: found } = await walk(t, feed, 'lengthy');
    t.deepEqual(
      found,
      versions.map(({ version }) => version),
    );
  });
}

test('a mirrored index that contains all versions is split into pages if they are long', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = numbers(36);
  await up.offer({ id: 'Heavy', versions: versions.map((version) => ({ version, entry: { dependencyGroups } })) });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const { index, versions: found } = await walk(t, feed, 'heavy');
  t.deepEqual(found, versions);
  t.true(index.items.every((page: any) => page.items === undefined && page.count <= 5));
  await isTooLong(t, feed, `/${hive}/heavy/page/1.0.0/1.35.0.json`);
  t.is((await feed.json(`/${hive}/heavy/1.35.0.json`)).catalogEntry.version, '1.35.0');
});

test('a mirrored page with more versions than a page of this feed can have is split', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = numbers(1100);
  await up.offer({ id: 'Many', versions: versions.map((version) => ({ version })), pageSize: 1100 });
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const { versions: found } = await walk(t, feed, 'many');
  t.deepEqual(found, versions);
  await isTooLong(t, feed, `/${hive}/many/page/1.0.0/1.1099.0.json`);
});

test('a range over many mirrored pages is refused before a page is requested', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = numbers(40);
  await up.offer({ id: 'Thin', versions: versions.map((version) => ({ version })), pageSize: 1 });
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  await isTooLong(t, feed, `/${hive}/thin/page/1.0.0/1.39.0.json`);
  t.is(up.asked.filter((path) => path.startsWith('/registration-pages/')).length, 0);
  t.is((await feed.json(`/${hive}/thin/page/1.0.0/1.9.0.json`)).count, 10);
  t.deepEqual((await walk(t, feed, 'thin')).versions, versions);
});

test('a merged registration is split into pages by the size of all its versions', async (t) => {
  const up = await UpstreamFeed.start(t);
  const versions = numbers(36);
  await up.offer({ id: 'Heavy', versions: versions.map((version) => ({ version, entry: { dependencyGroups } })) });
  const server = await startMirrorOf(t, [up.as('up.test')], { merge: { packages: ['Heavy'] } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Heavy', version: '1.5.0', description: 'Ours' });
  await feed.publish({ id: 'Heavy', version: '1.5.1', dependencies: heavy });
  const { index, pages, versions: found } = await walk(t, feed, 'heavy');
  t.deepEqual(found, [...versions.slice(0, 6), '1.5.1', ...versions.slice(6)]);
  t.true(index.items.every((page: any) => page.items === undefined));
  const ours = pages.flatMap(({ items }) => items).find((item: any) => item.catalogEntry.version === '1.5.0');
  t.is(ours.catalogEntry.description, 'Ours');
  await isTooLong(t, feed, `/${hive}/heavy/page/1.0.0/1.35.0.json`);
});
