import test, { type ExecutionContext } from 'ava';
import type { Dialect, Value } from '../../src/database/database.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { afterRead, databaseOf, flushUsage, flushUses, rowsOf, runJob } from '../support/inside.ts';
import { TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// A job reads what it may delete, and then a client uses it: the job has to see that before it deletes.

const day = 86_400_000;

async function start(t: ExecutionContext, dialect: Dialect, settings: Record<string, unknown> = {}) {
  return startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) }, ...settings });
}

function pass(server: TestServer, milliseconds: number): void {
  server.clock.now = (server.clock.now ?? Date.now()) + milliseconds;
}

const isThere = async (repository: TestRepository, path: string) =>
  (await repository.fetch(path, { method: 'HEAD' })).status === 200;

const read = async (from: TestServer, { digest }: { digest: string }) => {
  await (await new TestRepository(from, 'up.test/app').fetch(`blobs/${digest}`)).arrayBuffer();
};

/** Numbers from 1, for SQLite. */
const numbers = (most: number) =>
  `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${most})`;

for (const dialect of dialects) {
  for (const [title, reference, again] of [
    ['tagged', 'v2', []],
    ['tagged and untagged', 'v2', ['DELETE']],
    ['pushed again without a tag', undefined, []],
  ] as const) {
    test(`${dialect}: a manifest that is ${title} while retention runs stays`, async (t) => {
      const server = await start(t, dialect, { retention: { containers: { untaggedAfter: '10d' } } });
      const app = new TestRepository(server, 'team/app');
      const { bytes, digest } = await app.image('v1');
      await app.fetch('manifests/v1', { method: 'DELETE' });
      pass(server, 11 * day);
      afterRead(server, 'FROM manifests m JOIN repositories', async () => {
        t.is((await app.put(reference ?? digest, bytes)).status, 201);
        for (const method of again) t.is((await app.fetch('manifests/v2', { method })).status, 202);
      });
      t.like(await runJob(server, 'retention'), { manifests: 0 });
      t.true(await isThere(app, `manifests/${digest}`));
      pass(server, 11 * day);
      const rest = title === 'tagged' ? 0 : 1;
      t.like(await runJob(server, 'retention'), { manifests: rest }, 'the time counts from the last use');
    });
  }

  test(`${dialect}: tags that are pushed, pulled or kept while retention runs stay`, async (t) => {
    const tags = [{ keepNewest: 0, keepUsedFor: '10d' }];
    const server = await start(t, dialect, { retention: { containers: { tags } } });
    const app = new TestRepository(server, 'team/app');
    pass(server, 0);
    // All at one time, so that another tag has the time that the moved one had.
    for (const tag of ['kept', 'moved', 'old', 'pulled']) await app.image(tag);
    pass(server, 11 * day);
    const database = databaseOf(server);
    const get = database.get.bind(database);
    database.get = async <T extends object>(sql: string, values?: readonly Value[]) => {
      const row = await get<T>(sql, values);
      if (sql.includes('FROM permanence')) {
        database.get = get;
        await app.image('moved');
        await (await app.fetch('manifests/pulled')).arrayBuffer();
        await flushUsage(server);
        const rules = { freeze: { images: [] }, keep: { packages: [], images: ['team/app:kept'] } };
        const put = { method: 'PUT', headers: { 'content-type': 'application/json' }, body: JSON.stringify(rules) };
        t.is((await server.fetch('/v1/account/permanence', put)).status, 200);
      }
      return row;
    };
    t.like(await runJob(server, 'retention'), { tags: 1 });
    t.like(await (await app.fetch('tags/list')).json(), { tags: ['kept', 'moved', 'pulled'] });
  });

  test(`${dialect}: a session that is used while the job runs stays`, async (t) => {
    const server = await start(t, dialect);
    const app = new TestRepository(server, 'app');
    const location = await app.start();
    pass(server, 2 * day);
    afterRead(server, 'FROM uploads WHERE updated_at', () => app.fetch(location, { method: 'PATCH', body: 'used' }));
    t.like(await runJob(server, 'uploads'), { sessions: 0, files: 0 });
    t.is((await app.fetch(location)).headers.get('range'), '0-3');
  });

  for (const [title, meanwhile] of [
    // The time of the blob is then not newer than before: only the reference shows that it is in use.
    ['by a clock that was set back', (server, app) => (pass(server, -30 * day), app.blob('layer'))],
    [
      'and removed again',
      async (_server, app) => app.fetch(`blobs/${(await app.blob('layer')).digest}`, { method: 'DELETE' }),
    ],
  ] as [string, (server: TestServer, app: TestRepository) => Promise<unknown>][]) {
    test(`${dialect}: the bytes of a blob that is pushed ${title} during a collection stay`, async (t) => {
      const server = await start(t, dialect, { gc: { grace: '1h' } });
      const app = new TestRepository(server, 'team/app');
      const { digest } = await app.blob('layer');
      pass(server, day);
      await databaseOf(server).transaction((tx) => tx.run('DELETE FROM repository_blobs'));
      afterRead(server, "AND (state = 'deleting' OR", () => meanwhile(server, app));
      t.like(await runJob(server, 'gc'), { blobs: 0 });
      t.is((await rowsOf(server, `SELECT digest FROM blobs WHERE digest = '${digest}' AND state = 'live'`)).length, 1);
    });
  }

  for (const [title, meanwhile] of [
    // The link is then as old as before: only the manifest shows that the layer is in use.
    ['taken by a manifest', (app, layer) => app.image('v1', { layers: [layer] })],
    ['pushed again', (app) => app.blob('layer')],
  ] as [string, (app: TestRepository, layer: Descriptor) => Promise<unknown>][]) {
    test(`${dialect}: an abandoned layer that is ${title} during a collection stays`, async (t) => {
      const server = await start(t, dialect, { gc: { grace: '1h' } });
      const app = new TestRepository(server, 'team/app');
      const layer = await app.blob('layer');
      pass(server, day);
      afterRead(server, 'AS abandoned', () => meanwhile(app, layer));
      t.like(await runJob(server, 'gc'), { layers: 0, blobs: 0 });
      t.true(await isThere(app, `blobs/${layer.digest}`));
    });
  }

  test(`${dialect}: mirrored content that is used during an eviction stays, here and through another instance`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const settings = { upstreams: [upstream.settings('up.test')], mirror: { maxSize: '0' } };
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startTestServer(t, { ...settings, database });
    const other = await startTestServer(t, { ...settings, database, data: server.data });
    const [here, there] = [upstream.blob('app', 'used here'), upstream.blob('app', 'used there')];
    const unused = upstream.blob('app', 'unused');
    for (const blob of [here, there, unused]) await read(server, blob);
    await flushUses(server);
    for (const each of [server, other]) pass(each, day);
    afterRead(server, 'FROM mirror_entries e WHERE e.used_at', async () => {
      await read(server, here);
      await read(other, there);
      await flushUses(other);
    });
    t.deepEqual(await runJob(server, 'evict'), { entries: 1, bytes: unused.size });
    const left = await rowsOf<{ digest: string }>(server, 'SELECT digest FROM mirror_entries');
    t.deepEqual(left.map(({ digest }) => digest).sort(), [here.digest, there.digest].sort());
  });

  test(`${dialect}: content under two names is freed with its last name`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const server = await start(t, dialect, {
      upstreams: [upstream.settings('up.test')],
      mirror: { maxSize: '150' },
    });
    const [shared, own] = ['s', 'o'].map((letter) => letter.repeat(100));
    const names: [name: string, content: string][] = [
      ['first', shared!],
      ['second', own!],
      ['third', shared!],
    ];
    for (const [name, content] of names) {
      const { digest } = upstream.blob(name, content);
      await (await new TestRepository(server, `up.test/${name}`).fetch(`blobs/${digest}`)).arrayBuffer();
      await flushUses(server);
      pass(server, 1000);
    }
    t.deepEqual(await runJob(server, 'evict'), { entries: 2, bytes: 100 });
    t.like(await rowsOf(server, 'SELECT name FROM mirror_entries'), [{ name: 'third' }]);
  });
}

test('retention deletes more old versions of a package than one batch has', async (t) => {
  const server = await start(t, 'sqlite', { retention: { packages: { keepVersions: 1 } } });
  const feed = new TestFeed(server);
  const versions = Array.from({ length: 22 }, (_, index) => ({ id: 'Lib', version: `1.0.${index}` }));
  await feed.publish(...versions);
  t.like(await runJob(server, 'retention'), { versions: 21 });
  t.deepEqual(await feed.json('/package/lib/index.json'), { versions: ['1.0.21'] });
});

test('retention deletes more old tags than one page and one batch have, also behind many other repositories', async (t) => {
  const tags = [{ images: ['team/app'], keepNewest: 560 }];
  const server = await start(t, 'sqlite', { retention: { containers: { tags } } });
  const database = databaseOf(server);
  await new TestRepository(server, 'other').image('v0');
  await database.transaction((tx) =>
    tx.run(
      `${numbers(500)} INSERT INTO repositories (account_id, name, created_at, updated_at, tag_count)
       SELECT account_id, 'other/' || n, created_at, updated_at, 1 FROM repositories JOIN numbers`,
    ),
  );
  const app = new TestRepository(server, 'team/app');
  await app.image('v0');
  // Half of them later.
  await database.transaction((tx) =>
    tx.run(
      `${numbers(699)} INSERT INTO tags (repository_id, name, digest, updated_at)
       SELECT repository_id, 'v' || n, digest, updated_at + n % 2 FROM tags JOIN numbers WHERE name = 'v0'`,
    ),
  );
  await database.transaction((tx) =>
    tx.run("UPDATE repositories SET tag_count = 700 WHERE name IN ('other', 'team/app')"),
  );
  const old = Array.from({ length: 350 }, (_, index) => `v${2 * index}`).sort();
  const expected = old.slice(0, 140).toReversed();
  for (const dryRun of [true, false]) {
    const said: string[] = [];
    t.deepEqual(await runJob(server, 'retention', { dryRun, say: (line) => said.push(line) }), { tags: 140 });
    t.deepEqual(
      said,
      expected.map((tag) => `tag team/app:${tag}`),
    );
  }
  const left = await rowsOf(server, 'SELECT name, tag_count FROM repositories WHERE tag_count > 1 ORDER BY name');
  t.deepEqual(left, [
    { name: 'other', tag_count: 700 },
    { name: 'team/app', tag_count: 560 },
  ]);
});
