import test from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import { record, recordPast } from '../../src/history/history.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, defaultAccountOf, runJob, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// When versions and manifests were first here, and which digests each tag has had.

interface Item {
  kind: string;
  reference: string;
  digest: string | null;
  origin: string;
  upstream: string | null;
  seen_at: string;
}

async function historyOf(server: TestServer, path: string, token?: string): Promise<Item[]> {
  const items: Item[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const url: string = `/v1/${path}/history?limit=2${cursor && `&cursor=${cursor}`}`;
    const response = await server.fetch(url, token === undefined ? {} : { token });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    const page = (await response.json()) as { items: Item[]; next_cursor: string | null };
    items.push(...page.items);
    cursor = page.next_cursor;
  }
  return items;
}

const short = ({ kind, reference, digest }: Item) => `${kind} ${reference} ${digest}`;

for (const dialect of dialects) {
  test(`${dialect}: of a tag the latest 1,000 lines are kept, and of a version also when it was first seen`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const database = databaseOf(server);
    const owner = { account_id: defaultAccountOf(server), upstream: '', name: 'team/app' };
    const numbers = Array.from({ length: 1700 }, (_, at) => at);
    const rows = ['tag', 'version', 'other'].flatMap((kind) =>
      numbers.map((at) => ({ ...owner, kind, reference: '1.0', digest: `sha256:${at}`, seen_at: at })),
    );
    await database.transaction((tx) => tx.insertNew('history', rows));
    const see = async (at: number) => {
      const digest = `sha256:${at}`;
      await database.transaction((tx) =>
        record(
          tx,
          { accountId: owner.account_id, upstream: '', name: 'team/app' },
          [
            { kind: 'tag', reference: '1.0', digest },
            { kind: 'tag', reference: 'new', digest },
            { kind: 'version', reference: '1.0', digest },
          ],
          at,
        ),
      );
    };
    const kept = async (kind: string) => {
      const sql = "SELECT seen_at FROM history WHERE kind = ? AND reference = '1.0' ORDER BY id";
      return (await database.select<{ seen_at: number }>(sql, [kind])).map(({ seen_at: at }) => at);
    };
    await see(1700);
    t.deepEqual(await kept('tag'), [...numbers, 1700].slice(500), 'a statement deletes 500 at most');
    await see(1700);
    t.is((await kept('tag')).length, 1201, 'nothing was recorded');
    await see(1701);
    t.deepEqual(await kept('tag'), [...numbers, 1700, 1701].slice(-1000));
    t.deepEqual(await kept('version'), [0, ...[...numbers, 1700, 1701].slice(-999)]);
    t.is((await kept('other')).length, 1700);
    await see(1702);
    t.deepEqual((await kept('tag')).slice(0, 2), [703, 704]);
  });

  test(`${dialect}: the long history of many tags of another installation is added at once`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const owner = { accountId: 1, upstream: '', name: 'team/app' };
    // More lines than a statement of MySQL can have parameters for: 9 of each, and 65,535 in all.
    const lines = Array.from({ length: 8000 }, (_, at) => {
      const reference = `v${at % 600}`;
      return { kind: 'tag' as const, reference, digest: `sha256:${at}`, seenAt: at };
    });
    await database.transaction((tx) => recordPast(tx, owner, lines));
    const rows = await database.select('SELECT reference, digest, seen_at AS seenAt FROM history ORDER BY id');
    t.deepEqual(
      rows,
      lines.map(({ kind: _kind, ...line }) => line),
    );
    await database.transaction((tx) => recordPast(tx, owner, lines));
    t.is((await database.select('SELECT id FROM history')).length, 8000, 'nothing is added twice');
  });

  test(`${dialect}: a mirrored tag has the digests that it had, and when, after they were evicted too`, async (t) => {
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [hub.settings('hub.test', { freshFor: '1m' })],
      mirror: { maxSize: 1 },
    });
    const document = await OpenDocument.of(server);
    server.clock.now = Date.now();
    const pull = async () => {
      await (await server.fetch('/v2/hub.test/team/app/manifests/v1')).arrayBuffer();
      server.clock.now! += 120_000;
    };
    const times = [server.clock.now];
    const first = hub.image('team/app', 'v1').manifest.digest;
    await pull();
    await pull();
    times.push(server.clock.now);
    const manifest = { schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests: [] };
    const second = hub.manifest('team/app', { ...manifest, annotations: { n: '2' } }, 'v1').digest;
    await pull();
    await runJob(server, 'evict');
    await pull();
    const items = await historyOf(server, 'containers/hub.test/team/app');
    t.deepEqual(items.map(short), [
      `tag v1 ${second}`,
      `manifest ${second} ${second}`,
      `manifest ${first} ${first}`,
      `tag v1 ${first}`,
    ]);
    t.true(items.every(({ origin, upstream }) => origin === 'mirrored' && upstream === 'hub.test'));
    t.deepEqual(
      items.map(({ seen_at }) => Date.parse(seen_at)),
      [times[1], times[1], times[0], times[0]],
    );
    const answer = await server.fetch('/v1/containers/hub.test/team/app/history');
    t.is((await document.read('GET /containers/{name}/history', answer))['next_cursor'], null);
  });

  test(`${dialect}: a hosted tag has its digests and its deletions, for its account alone`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    const one = await repository.image('v1');
    const two = await repository.image('v1');
    for (const again of [two, two]) t.is((await repository.put('v1', again.bytes)).status, 201);
    t.is((await repository.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
    t.is((await repository.put('v1', one.bytes)).status, 201);
    t.is((await repository.fetch(`manifests/${one.digest}`, { method: 'DELETE' })).status, 202);
    const items = await historyOf(server, 'containers/team%2Fapp');
    t.deepEqual(items.map(short), [
      'tag v1 null',
      `tag v1 ${one.digest}`,
      'tag v1 null',
      `tag v1 ${two.digest}`,
      `manifest ${two.digest} ${two.digest}`,
      `tag v1 ${one.digest}`,
      `manifest ${one.digest} ${one.digest}`,
    ]);
    t.true(items.every(({ origin, upstream }) => origin === 'hosted' && upstream === null));
    const tags = items.filter(({ kind }) => kind === 'tag').map(short);
    const found: string[] = [];
    for (let cursor = ''; ;) {
      const answer = await server.fetch(`/v1/containers/team/app/history?kind=tag&limit=2${cursor}`);
      const page = (await answer.json()) as { items: Parameters<typeof short>[0][]; next_cursor: string | null };
      found.push(...page.items.map(short));
      if (page.next_cursor === null) break;
      cursor = `&cursor=${page.next_cursor}`;
    }
    t.deepEqual(found, tags);
    t.is((await server.fetch('/v1/containers/team/app/history?kind=version')).status, 400);
    t.deepEqual(await historyOf(server, 'containers/team/app', await tokenOf(server, ['read'], 'other')), []);
  });

  test(`${dialect}: a mirrored version has the time when it was first here`, async (t) => {
    const up = await UpstreamFeed.start(t);
    await up.offer({ id: 'Some.Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [up.as('up.test')],
    });
    const feed = new TestFeed(server);
    server.clock.now = Date.now();
    const pull = async (version: string) => {
      const response = await feed.fetch(`/package/some.lib/${version}/some.lib.${version}.nupkg`);
      await response.arrayBuffer();
      t.is(response.status, 200);
    };
    const seen = server.clock.now;
    await pull('1.0.0');
    server.clock.now += 60_000;
    t.is((await server.fetch('/v1/packages/some.lib/1.0.0', { method: 'DELETE' })).status, 204);
    await pull('1.0.0');
    await pull('2.0.0');
    const items = await historyOf(server, 'packages/SOME.Lib');
    t.deepEqual(
      items.map((each) => [each.kind, each.reference, each.upstream, Date.parse(each.seen_at)]),
      [
        ['version', '2.0.0', 'up.test', seen + 60_000],
        ['version', '1.0.0', 'up.test', seen],
      ],
    );
    t.regex(items[0]!.digest!, /^sha256:[0-9a-f]{64}$/);
    t.deepEqual(await historyOf(server, 'packages/none'), []);
  });
}
