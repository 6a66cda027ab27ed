import test, { type ExecutionContext } from 'ava';
import { datesOf } from '../../../src/nuget/upstream/package-dates.ts';
import { defaultAccountOf, firstUpstream, packageFeedOf } from '../../support/inside.ts';
import type { TestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

const [first, second, third] = ['2025-01-01T00:00:00Z', '2025-06-01T12:30:00.5+02:00', '2026-03-01T00:00:00'];
const asUtc = {
  first: Date.UTC(2025, 0, 1),
  second: Date.UTC(2025, 5, 1, 10, 30, 0, 500),
  third: Date.UTC(2026, 2, 1),
};
const dates = (server: TestServer, key: string, settledBefore?: number) => read(server, key, settledBefore);

async function read(server: TestServer, key: string, settledBefore?: number) {
  const { mirror, registrations } = await packageFeedOf(server).views.of(defaultAccountOf(server));
  const found = await datesOf(mirror, registrations, { upstream: firstUpstream(server) }, key, settledBefore);
  return found && [...found];
}

async function start(t: ExecutionContext, settings = {}) {
  const feed = await UpstreamFeed.start(t);
  return { feed, server: await startMirrorOf(t, [feed.as('feed.test', settings)]) };
}

test('the dates of the upstream, with and without an offset, and of SemVer 2 versions; nothing for a version without', async (t) => {
  const { feed, server } = await start(t);
  const versions = [
    { version: '1.0.0', published: first },
    { version: '2.0.0-RC.1', published: second },
    { version: '2.0.0', published: third },
    { version: '3.0.0', published: 'soon' },
  ];
  await feed.offer({ id: 'Lib', versions });
  t.deepEqual(await dates(server, 'lib'), [
    ['1.0.0', asUtc.first],
    ['2.0.0-rc.1', asUtc.second],
    ['2.0.0', asUtc.third],
    ['3.0.0', undefined],
  ]);
});

test('an unlisted version has the time of its last change, also in the form of another server', async (t) => {
  const { feed, server } = await start(t);
  const unlisted = { published: '1900-01-01T00:00:00+00:00' };
  const entry = { commitTimeStamp: second };
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', ...unlisted },
      { version: '2.0.0', ...unlisted, entry },
      { version: '3.0.0', published: '0001-01-01T00:00:00', entry },
      { version: '4.0.0', published: first, entry },
      { version: '5.0.0', ...unlisted, changed: third, entry },
    ],
  });
  t.deepEqual(await dates(server, 'lib'), [
    ['1.0.0', undefined],
    ['2.0.0', asUtc.second],
    ['3.0.0', asUtc.second],
    ['4.0.0', asUtc.first],
    ['5.0.0', asUtc.third],
  ]);
});

/** A package with two pages of two versions; the index says when each was changed. */
async function offerPaged(feed: UpstreamFeed, changed: readonly (string | undefined)[]): Promise<void> {
  const versions = ['1.0.0', '1.1.0', '2.0.0', '2.1.0'].map((version) => ({ version, published: first }));
  await feed.offer({ id: 'Lib', versions, pageSize: 2 });
  const pages = [
    ['1.0.0', '1.1.0'],
    ['2.0.0', '2.1.0'],
  ].map(([lower, upper], at) => ({
    '@id': `${feed.url}/registration-pages/lib/page/${lower}/${upper}.json`,
    count: 2,
    lower,
    upper,
    commitTimeStamp: changed[at],
  }));
  feed.upstream.on('/registration/lib/index.json', json({ count: 2, items: pages }));
}

const pagesAsked = (feed: UpstreamFeed) =>
  feed.asked.filter((path) => path.startsWith('/registration-pages/')).map((path) => path.split('/').at(-2));

test('a page that did not change since is not fetched, and its versions count as old as the change', async (t) => {
  const { feed, server } = await start(t);
  await offerPaged(feed, [second, third]);
  t.deepEqual(await dates(server, 'lib', asUtc.second), [
    ['1.0.0', asUtc.second],
    ['1.1.0', asUtc.second],
    ['2.0.0', asUtc.first],
    ['2.1.0', asUtc.first],
  ]);
  t.deepEqual(pagesAsked(feed), ['2.0.0']);
  t.is((await dates(server, 'lib', asUtc.third))!.length, 4);
  t.deepEqual(pagesAsked(feed), ['2.0.0']);
  t.deepEqual(await dates(server, 'lib'), [
    ['1.0.0', asUtc.first],
    ['1.1.0', asUtc.first],
    ['2.0.0', asUtc.first],
    ['2.1.0', asUtc.first],
  ]);
  t.deepEqual(pagesAsked(feed), ['2.0.0', '1.0.0']);
});

test('a page without the time of its change is fetched', async (t) => {
  const { feed, server } = await start(t);
  await offerPaged(feed, [undefined, undefined]);
  t.deepEqual((await dates(server, 'lib', Date.UTC(2030)))!.at(-1), ['2.1.0', asUtc.first]);
  t.is(pagesAsked(feed).length, 2);
});

test('a page whose count is no number of versions is fetched, and its dates are known', async (t) => {
  for (const count of [-1, 1.5]) {
    const { feed, server } = await start(t);
    await offerPaged(feed, [second, second]);
    const page = { '@id': `${feed.url}/registration-pages/lib/page/1.0.0/1.1.0.json`, lower: '1.0.0', upper: '1.1.0' };
    feed.upstream.on('/registration/lib/index.json', json({ items: [{ ...page, count, commitTimeStamp: second }] }));
    t.deepEqual((await dates(server, 'lib', asUtc.third))!.slice(0, 2), [
      ['1.0.0', asUtc.first],
      ['1.1.0', asUtc.first],
    ]);
  }
});

test('a version that an older page does not know yet has no date', async (t) => {
  const { feed, server } = await start(t);
  await offerPaged(feed, [second, second]);
  feed.upstream.on('/flat/lib/index.json', json({ versions: ['1.0.0', '1.0.9', '1.1.0', '2.0.0', '2.1.0'] }));
  t.deepEqual(await dates(server, 'lib', asUtc.third), [
    ['1.0.0', asUtc.first],
    ['1.0.9', undefined],
    ['1.1.0', asUtc.first],
    ['2.0.0', asUtc.second],
    ['2.1.0', asUtc.second],
  ]);
});

test('a feed without registrations has no dates, and an upstream that fails has none to give', async (t) => {
  const { feed, server } = await start(t, { freshFor: '1s' });
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  t.is(await dates(server, 'other'), undefined);
  feed.upstream.on('/registration/lib/index.json', answer(500));
  await t.throwsAsync(dates(server, 'lib'), { name: 'UpstreamUnavailable' });
  for (const type of Object.keys(feed.resources)) {
    if (type.startsWith('Registrations')) delete feed.resources[type];
  }
  feed.announce();
  server.clock.now = Date.now() + 60_000;
  t.deepEqual(await dates(server, 'lib'), [['1.0.0', undefined]]);
});
