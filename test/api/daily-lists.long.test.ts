import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, flushUsage, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

// The numbers of the last 30 days in lists.

type Json = Record<string, any>;

const day = 86_400_000;
/** The last 30 days are in three months. */
const today = Date.parse('2027-03-01T12:00:00Z');

/** The days with a number: how many days ago, and the number. */
function placesOf(numbers: readonly number[]): number[][] {
  return numbers.flatMap((each, index) => (each === 0 ? [] : [[numbers.length - 1 - index, each]]));
}

for (const dialect of dialects) {
  test(`${dialect}: lists of packages and images have the downloads of each of the last 30 days`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [up.as('up.test'), hub.settings('docker.io', { default: true })],
    });
    server.clock.now = today - 31 * day;
    await up.offer({ id: 'Far.A', versions: [{ version: '1.0.0' }] });
    hub.image('library/alpine', '3');
    const other = await tokenOf(server, ['read', 'write'], 'other');
    for (const token of [server.token, other]) await new TestFeed(server, token).publish({ id: 'Near.A' });
    await new TestFeed(server).publish({ id: 'Near.Idle' });
    await new TestRepository(server, 'team/a').image('v1');
    const read = async (path: string, token = server.token) => {
      const response = await server.fetch(path, { token });
      t.is(response.status, 200, path);
      await response.arrayBuffer();
    };
    const near = '/v3/package/near.a/1.0.0/near.a.1.0.0.nupkg';
    const far = '/v3/package/far.a/1.0.0/far.a.1.0.0.nupkg';
    for (const [ago, paths] of [
      [30, [near, far]],
      [29, [near, far, far]],
      [28, [far]],
      [1, ['/v2/team/a/manifests/v1', '/v2/alpine/manifests/3', '/v2/alpine/manifests/3']],
      [0, [near, near, near]],
    ] as const) {
      server.clock.now = today - ago * day;
      for (const path of paths) await read(path);
      if (ago === 0) await read(near, other);
      await flushUsage(server);
    }
    const document = await OpenDocument.of(server);
    const list = async (name: string, query: string, token = server.token) => {
      const answer = await server.fetch(`/v1/${name}?daily=1&${query}`, { token });
      const { items } = (await document.read(`GET /${name}`, answer)) as { items: Json[] };
      return Object.fromEntries(
        items.map((each) => [each['id'] ?? each['name'], placesOf(each['daily_downloads'] ?? each['daily_pulls'])]),
      );
    };
    const packages = {
      'Far.A': [
        [29, 2],
        [28, 1],
      ],
      'Near.A': [
        [29, 1],
        [0, 3],
      ],
      'Near.Idle': [],
    };
    t.deepEqual(await list('packages', ''), packages);
    t.deepEqual(await list('packages', 'sort=downloads&q=a'), packages);
    t.deepEqual(await list('packages', '', other), {
      'Far.A': [],
      'Near.A': [[0, 1]],
    });
    t.deepEqual(await list('containers', ''), { 'docker.io/library/alpine': [[1, 2]], 'team/a': [[1, 1]] });
    const one = async (name: string, token = server.token) =>
      (await (await server.fetch(`/v1/${name}`, { token })).json()) as Json;
    t.deepEqual(placesOf((await one('packages/Near.A?daily=1'))['daily_downloads']), packages['Near.A']);
    t.deepEqual(placesOf((await one('packages/far.a?daily=1', other))['daily_downloads']), []);
    t.deepEqual(placesOf((await one('containers/alpine?daily=1'))['daily_pulls']), [[1, 2]]);
    t.is((await one('packages/Near.A'))['daily_downloads'], undefined);
    t.is((await one('containers/team%2Fa'))['daily_pulls'], undefined);
    const visitor = await Visitor.signedIn(server);
    t.regex(await visitor.page('/console/packages/Near.A'), /4 downloads in 30 days, 3 at most on a day/);
    t.regex(await visitor.page('/console/images/team%2Fa'), /1 pull in 30 days, 1 at most on a day/);
    const [plain] = ((await (await server.fetch('/v1/packages')).json()) as { items: Json[] }).items;
    t.is(plain!['daily_downloads'], undefined);
    const limited = (await createToken(server, ['read'], 'default', { packages: ['near.*'] })).value;
    t.deepEqual(Object.keys(await list('packages', '', limited)), ['Near.A', 'Near.Idle']);
    t.is((await server.fetch('/v1/packages?daily=2')).status, 400);
  });

  test(`${dialect}: the list of upstreams has the requests of each of the last 30 days`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [up.as('same'), hub.settings('same'), up.as('idle')],
    });
    server.clock.now = today;
    const hour = today - (today % 3_600_000);
    const row = (kind: string, hours: number, requests: number, upstream = 'same') => ({
      kind,
      upstream,
      hour: hour - hours * 3_600_000,
      requests,
      failures: 0,
      milliseconds: 0,
      needed: 0,
      hits: 0,
      received_bytes: 0,
    });
    const rows = [
      row('nuget', 0, 4),
      row('nuget', 12, 5),
      row('nuget', 13, 7),
      row('nuget', 29 * 24 + 12, 2),
      row('nuget', 29 * 24 + 13, 9),
      row('registry', 24, 3),
      row('nuget', 1, 8, 'removed'),
    ];
    await databaseOf(server).transaction((tx) => tx.insertNew('upstream_samples', rows));
    const document = await OpenDocument.of(server);
    const { items } = (await document.read('GET /upstreams', await server.fetch('/v1/upstreams?daily=1'))) as {
      items: Json[];
    };
    t.deepEqual(
      items.map(({ kind, id, daily_requests: requests }) => [kind, id, placesOf(requests)]),
      [
        [
          'nuget',
          'same',
          [
            [29, 2],
            [1, 7],
            [0, 9],
          ],
        ],
        ['registry', 'same', [[1, 3]]],
        ['nuget', 'idle', []],
      ],
    );
    const plain = (await (await server.fetch('/v1/upstreams')).json()) as { items: Json[] };
    t.true(plain.items.every((each) => each['daily_requests'] === undefined));
  });
}
