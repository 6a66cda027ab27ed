import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';

import { TestFeed } from '../../support/feed.ts';
import { startTestServer } from '../../support/server.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { addVersions } from '../../support/versions.ts';
import { eventually, until } from '../../support/until.ts';
import { databaseOf } from '../../support/inside.ts';

// Answers with long lists, of hosted and upstream packages.

for (const dialect of dialects) {
  test(`a search shows the newest versions of packages with very many versions (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Vast.One' }, { id: 'Vast.Two' }, { id: 'Vast.Few' });
    const numbers = Array.from({ length: 10_500 }, (_, index) => `1.0.${index + 1}`);
    await addVersions(databaseOf(server), 'Vast.One', numbers);
    await addVersions(databaseOf(server), 'Vast.Few', ['2.0.0']);
    const whole = await feed.json('/search?q=vast');
    t.is(whole.data.find(({ id }: any) => id === 'Vast.One').versions.length, 10_501);
    await addVersions(databaseOf(server), 'Vast.Two', numbers);
    const { data } = await feed.json('/search?q=vast');
    for (const { id, versions } of data) {
      const shown = versions.map(({ version }: any) => version);
      if (id === 'Vast.Few') t.deepEqual(shown, ['1.0.0', '2.0.0']);
      else t.deepEqual(shown, numbers.slice(-6666));
    }
    t.is(data.length, 3);
    const { versions } = (await feed.json('/search?q=vast.two&take=1')).data[0];
    t.is(versions.length, 10_501, 'a single hit is complete');
  });

  test(`a long list of versions is complete, also where many versions are equal in order (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Steps' });
    const numbers = Array.from({ length: 4998 }, (_, index) => `1.0.${index + 1}`);
    // The statement of the first 5,000 rows ends between these two.
    const pair = ['2.0.0--0', '2.0.0-0'];
    const labels = Array.from({ length: 13 }, () => ['0', '-0']);
    const equal = labels.reduce(
      (texts, two) => texts.flatMap((text) => two.map((each) => `${text}.${each}`)),
      ['3.0.0-x'],
    );
    t.is(equal.length, 8192);
    const all = [...numbers, ...pair, ...equal, '4.0.0'];
    await addVersions(databaseOf(server), 'Steps', all);
    const { versions } = await feed.json('/package/steps/index.json');
    t.is(versions.length, all.length + 1);
    t.deepEqual(versions.slice(0, 4999), ['1.0.0', ...numbers]);
    t.deepEqual(versions.slice(4999).toSorted(), all.slice(4998).toSorted());
    t.is(versions.at(-1), '4.0.0');
    const { count, items } = await feed.json('/registration-gz-semver2/steps/index.json');
    t.is(count, Math.ceil((all.length + 1) / 64));
    t.is(items.at(-1).upper, '4.0.0');
  });

  test(`the management API shows the newest thousand versions of a package (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    await new TestFeed(server).publish({ id: 'Many' });
    await addVersions(
      databaseOf(server),
      'Many',
      Array.from({ length: 1100 }, (_, index) => `1.0.${index + 1}`),
    );
    const details = (await (await server.fetch('/v1/packages/many')).json()) as any;
    t.is(details.version_count, 1101);
    t.is(details.versions.length, 1000);
    t.deepEqual([details.versions[0].version, details.versions[999].version], ['1.0.1100', '1.0.101']);
  });
}

test('a thousand long upstream hits are shortened, and a few are complete', async (t) => {
  const up = await UpstreamFeed.start(t);
  const text = 'word '.repeat(800);
  const versions = Array.from({ length: 60 }, (_, index) => ({ version: `1.0.${index}`, downloads: 1 }));
  const hit = { version: '1.0.59', title: 'Long', description: text, summary: text, authors: [text], versions };
  const hits = Array.from({ length: 1000 }, (_, index) => ({ id: `Long.${index}`, ...hit, tags: text.split(' ') }));
  up.upstream.on('/query', (request, response) => {
    const take = Number(new URL(request.url!, up.url).searchParams.get('take'));
    json({ totalHits: 5000, data: hits.slice(0, take) })(request, response);
  });
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  // On a busy machine the upstream's answer is too late for the first search, and cached for the next.
  const few = await eventually(
    () => feed.json('/search?q=long&take=10'),
    (found) => found.data.length === 10,
  );
  t.deepEqual([few.data[0].description.length, few.data[0].versions.length], [4000, 60]);
  let answer = '';
  let data: any[] = [];
  await until(async () => {
    answer = await (await feed.fetch('/search?q=long&take=1000')).text();
    ({ data } = JSON.parse(answer) as { data: any[] });
    return data.length === 1000;
  });
  t.true(answer.length < 10 * 2 ** 20, `${answer.length} characters`);
  t.true(data.every(({ versions: shown }) => shown.length === 20 && shown.at(-1).version === '1.0.59'));
});

test('an upstream document with too long a list is an upstream failure', async (t) => {
  const up = await UpstreamFeed.start(t);
  const many = Array.from({ length: 100_001 }, () => '1.0.0');
  up.upstream.on('/flat/a/index.json', json({ versions: many }));
  up.upstream.on('/flat/b/index.json', json({ versions: many.slice(1) }));
  const page = { lower: '1.0.0', upper: '1.0.0', items: many };
  up.upstream.on('/registration/a/index.json', json({ count: 1, items: [page] }));
  up.upstream.on('/registration/c/index.json', json({ count: many.length, items: many }));
  const advisories = { '@name': 'base', '@updated': '2024-01-01T00:00:00Z', '@id': `${up.url}/advisories.json` };
  up.upstream.on('/vulnerabilities/index.json', json([advisories]));
  up.upstream.on('/advisories.json', json(Object.fromEntries(many.map((_, index) => [`p${index}`, []]))));
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  for (const path of [
    '/package/a/index.json',
    '/registration/a/index.json',
    '/registration/c/index.json',
    '/vulnerabilities/up.test/base.json',
  ]) {
    t.is((await feed.fetch(path)).status, 502, path);
  }
  t.deepEqual(await feed.json('/package/b/index.json'), { versions: ['1.0.0'] });
});
