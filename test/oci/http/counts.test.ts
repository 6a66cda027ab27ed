import test from 'ava';
import type { Row } from '../../../src/database/database.ts';
import { migrations } from '../../../src/database/migrations/index.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { dialects, emptyDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { databaseOf, rowsOf, runJob } from '../../support/inside.ts';
import { digestOf, ociIndex, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';

const counted = `SELECT r.name,
  (SELECT COUNT(*) FROM tags t WHERE t.repository_id = r.id) AS tag_count,
  (SELECT COUNT(*) FROM manifests m WHERE m.repository_id = r.id) AS manifest_count,
  (SELECT COALESCE(SUM(size), 0) FROM (
     SELECT rb.repository_id, b.digest, b.size FROM repository_blobs rb JOIN blobs b ON b.digest = rb.digest
     UNION SELECT repository_id, digest, size_bytes FROM manifests
   ) AS stored WHERE stored.repository_id = r.id) AS size_bytes
  FROM repositories r ORDER BY r.name`;
const kept = 'SELECT name, tag_count, manifest_count, size_bytes FROM repositories ORDER BY name';

const stored = (server: TestServer) => rowsOf(server, kept);

for (const dialect of dialects) {
  test(`${dialect}: each change of a repository keeps its numbers of tags, manifests and bytes`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const app = new TestRepository(server, 'team/app');
    const remove = async (path: string, status = 202) =>
      t.is((await app.fetch(path, { method: 'DELETE' })).status, status, path);
    const check = async (step: string, expected: object) => {
      const rows = await stored(server);
      t.deepEqual(rows, await rowsOf(server, counted), step);
      t.like(
        rows.find(({ name }) => name === 'team/app'),
        expected,
        step,
      );
    };

    const layer = await app.blob('a layer');
    await check('a blob', { tag_count: 0, manifest_count: 0, size_bytes: 7 });
    await app.blob('a layer');
    await check('the same blob', { size_bytes: 7 });
    const one = await app.image('v1');
    const bytes = 7 + 2 + 100 + one.size;
    await check('an image', { tag_count: 1, manifest_count: 1, size_bytes: bytes });
    await app.put('v1', one.bytes);
    await app.put('v2', one.bytes);
    await check('one more tag', { tag_count: 2, manifest_count: 1, size_bytes: bytes });
    const two = await app.image('v2');
    await check('a moved tag', { tag_count: 2, manifest_count: 2, size_bytes: bytes + 100 + two.size });
    const entries = [one, two].map(({ mediaType, digest, size }) => ({ mediaType, digest, size }));
    const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: entries });
    await app.put('all', index, ociIndex);
    await check('an index', { tag_count: 3, manifest_count: 3 });
    await app.put(digestOf(index), index, ociIndex);
    await check('the index by digest', { tag_count: 3, manifest_count: 3 });

    await app.blob(index);
    await check('a manifest as a blob too', { manifest_count: 3 });
    await remove(`manifests/${digestOf(index)}`);
    await check('still a blob', { tag_count: 2, manifest_count: 2, size_bytes: bytes + 100 + two.size + index.length });
    await app.put('all', index, ociIndex);
    await check('a manifest again', { manifest_count: 3 });
    await remove(`blobs/${digestOf(index)}`);
    await check('still a manifest', { tag_count: 3, size_bytes: bytes + 100 + two.size + index.length });

    const other = new TestRepository(server, 'other');
    for (const status of [201, 201]) {
      const mount = `blobs/uploads/?mount=${layer.digest}&from=team/app`;
      t.is((await other.fetch(mount, { method: 'POST' })).status, status);
    }
    await check('a mounted blob', { tag_count: 3 });
    await remove('manifests/all');
    await check('a deleted tag', { tag_count: 2, manifest_count: 3 });
    await remove(`manifests/${digestOf(index)}`);
    await remove(`blobs/${layer.digest}`);
    await remove(`blobs/${layer.digest}`, 404);
    await check('a deleted blob', { size_bytes: bytes - 7 + 100 + two.size });
    for (const { digest } of [one, two]) await remove(`manifests/${digest}`);
    await check('no manifest', { tag_count: 0, manifest_count: 0, size_bytes: 202 });
    const { items } = (await (await server.fetch('/v1/claims')).json()) as { items: object[] };
    t.like(items, [{ kind: 'container', name: 'team/app' }]);
    t.is(items.length, 1);
    await databaseOf(server).transaction((tx) => tx.run('UPDATE repository_blobs SET linked_at = 0'));
    await runJob(server, 'gc');
    await check('no blob', { size_bytes: 0 });
  });

  test(`${dialect}: the job gc corrects the numbers that an older version has not kept, and a dry run does not`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    for (let number = 0; number < 25; number += 1) await new TestRepository(server, `r${number}`).blob(`${number}`);
    await new TestRepository(server, 'app').image('v1');
    const right = await stored(server);
    await databaseOf(server).transaction((tx) =>
      tx.run('UPDATE repositories SET tag_count = tag_count + 1, manifest_count = manifest_count - 1, size_bytes = 3'),
    );
    const wrong = await stored(server);
    await runJob(server, 'gc', { dryRun: true });
    t.deepEqual(await stored(server), wrong);
    await runJob(server, 'gc');
    t.deepEqual(await stored(server), right);
  });

  test(`${dialect}: a migration counts what was pushed before`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const before = migrations.filter(({ name }) => name < '030');
    await migrate(database, { version: '0.1.0', migrations: before });
    await database.transaction(async (tx) => {
      for (const [name, blobs, manifests, tags] of [
        ['a', [1, 2, 3], [3, 4], 2],
        ['b', [1], [], 0],
      ] as const) {
        const id = await tx.insert('repositories', { account_id: 1, name, created_at: 0, updated_at: 0 });
        for (const size of [...blobs, ...manifests])
          await tx.insertNew('blobs', [{ digest: `sha256:${size}`, size: 10 ** size, stored_at: 0 }]);
        for (const size of blobs)
          await tx.insert('repository_blobs', { repository_id: id, digest: `sha256:${size}`, linked_at: 0 });
        for (const size of manifests) {
          const row = { repository_id: id, digest: `sha256:${size}`, size_bytes: 10 ** size, image_bytes: 0 };
          await tx.insert('manifests', { ...row, media_type: 'm', pushed_at: 0 });
        }
        for (let tag = 0; tag < tags; tag += 1)
          await tx.insert('tags', { repository_id: id, name: `${tag}`, digest: 'sha256:3', updated_at: 0 });
      }
    });
    await migrate(database);
    t.deepEqual(await database.select(kept), [
      { name: 'a', tag_count: 2, manifest_count: 2, size_bytes: 11_110 },
      { name: 'b', tag_count: 0, manifest_count: 0, size_bytes: 10 },
    ]);
  });

  test(`${dialect}: a list of images has as many tags of each as the client wants`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const all = Array.from({ length: 26 }, (_, index) => `v${index + 10}`);
    const { bytes } = await new TestRepository(server, 'app').image(all[0]!);
    const query = all.slice(1).map((tag) => `tag=${tag}`);
    t.is((await new TestRepository(server, 'app').put(`${digestOf(bytes)}?${query.join('&')}`, bytes)).status, 201);
    const ask = (query: string) => server.fetch(`/v1/containers?${query}`);
    for (const [some, shown] of [
      ['tags=0', []],
      ['tags=2', all.slice(0, 2)],
      ['tags=12', all.slice(0, 12)],
      ['tags=999', all],
      ['tags=1000', all],
      ['', all],
      ['limit=200', all.slice(0, 25)],
    ] as const) {
      const { items } = (await (await ask(some)).json()) as {
        items: { tag_count: number; tags: { name: string }[] }[];
      };
      t.is(items[0]!.tag_count, 26);
      t.deepEqual(
        items[0]!.tags.map(({ name }) => name),
        [...shown],
        some,
      );
    }
    for (const wrong of ['-1', '1001', '10000', 'x', 'x1', '1x', '01', ''])
      t.is((await ask(`tags=${wrong}`)).status, 400, wrong);
  });

  test(`${dialect}: lists find their first rows by an index, and read no manifests of other repositories`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const database = databaseOf(server);
    const select = database.select.bind(database);
    const explain = dialect === 'sqlite' ? 'EXPLAIN QUERY PLAN' : 'EXPLAIN';
    const planOf = async (path: string, wanted: RegExp) => {
      const plans: Promise<Row[]>[] = [];
      database.select = (sql, values) => {
        if (wanted.test(sql)) plans.push(select(`${explain} ${sql}`, values));
        return select(sql, values);
      };
      t.is((await server.fetch(path)).status, 200);
      database.select = select;
      t.is(plans.length, 1, path);
      return plans[0]!;
    };
    for (const [table, index] of [
      // Two indexes begin with this column.
      ['packages', /packages_(?:empty|by_version_count)/],
      ['repositories', /repositories_empty/],
    ] as const) {
      const plan = JSON.stringify(await planOf('/v1/claims', new RegExp(`FROM ${table}\\b`)));
      t.regex(plan, index);
    }
    for (const path of ['/v1/containers', '/v2/_catalog']) {
      const plan = await planOf(path, /FROM repositories r\b/);
      if (dialect === 'mysql') {
        const types = plan.map((row) => [row['table'], row['select_type']]);
        t.deepEqual(
          types.filter(([name]) => name === 'm'),
          [['m', 'DEPENDENT SUBQUERY']],
          path,
        );
      } else t.regex(JSON.stringify(plan), /CORRELATED SCALAR SUBQUERY.*SEARCH m USING COVERING INDEX/);
    }
  });
}

test('sqlite: no statement reads all manifests of a repository for each of its manifests or blobs', async (t) => {
  const settings = { retention: { containers: { untaggedAfter: '1d' } } };
  const server = await startTestServer(t, settings);
  const database = databaseOf(server);
  const app = new TestRepository(server, 'app');
  const { mediaType, digest, size } = await app.image('v1');
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [{ mediaType, digest, size }] };
  await app.put('all', index);

  const select = database.select.bind(database);
  const plans = new Map<string, Row[]>();
  database.select = async (sql, values) => {
    if (sql.includes('manifest_references')) plans.set(sql, await select(`EXPLAIN QUERY PLAN ${sql}`, values));
    return select(sql, values);
  };
  for (const path of ['tags', 'manifests', `manifests/${digest}`])
    t.is((await server.fetch(`/v1/containers/app/${path}`)).status, 200);
  await runJob(server, 'retention');
  await runJob(server, 'gc');
  database.select = select;
  t.true(plans.size >= 4, `${plans.size} statements`);
  for (const [sql, plan] of plans)
    for (const { detail } of plan) t.notRegex(String(detail), /^SEARCH \w+ USING .*\(repository_id=\?\)$/, sql);
});
