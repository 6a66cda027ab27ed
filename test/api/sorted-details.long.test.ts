import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import type { Row } from '../../src/database/database.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, failuresOf, flushTokens, flushUsage } from '../support/inside.ts';
import { ociIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Lists of what belongs to one name or account, by their numbers: versions, tags, tokens, failed requests, claims.

type Json = Record<string, any>;

/** What `field` has in the items of a list, which is the same in pages of each size. */
async function inOrder(t: ExecutionContext, server: TestServer, path: string, field: string, token = server.token) {
  const found = await Promise.all(
    [1, 2, 50].map(async (limit) => {
      const values: unknown[] = [];
      for (let cursor = ''; ;) {
        const response = await server.fetch(`${path}&limit=${limit}${cursor}`, { token });
        if (response.status !== 200) throw new Error(`${path}: ${response.status} ${await response.text()}`);
        const page = (await response.json()) as Json;
        values.push(...(page['items'] as Json[]).map((each) => each[field]));
        if (page['next_cursor'] === null) return values;
        cursor = `&cursor=${page['next_cursor']}`;
      }
    }),
  );
  for (const values of found) t.deepEqual(values, found[2], path);
  return found[2];
}

const status = async (server: TestServer, path: string) => (await server.fetch(path)).status;

for (const dialect of dialects) {
  test(`${dialect}: versions of hosted and mirrored packages are sorted by size and downloads`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const sizes = { '1.0.0': 2000, '1.1.0': 9000, '2.0.0': 500, '10.0.0': 4000 };
    const versions = Object.entries(sizes).map(([version, size]) => ({
      version,
      readme: randomBytes(size).toString('hex'),
    }));
    const offered = versions.map(async (each) => ({
      version: each.version,
      nupkg: await makeNupkg({ id: 'Far', ...each }),
    }));
    await up.offer({ id: 'Far', versions: await Promise.all(offered) });
    const feed = new TestFeed(server);
    await feed.publish(...versions.map((each) => ({ id: 'Near', ...each })));
    await feed.publish({ id: 'Other', version: '5.0.0' });
    const get = async (id: string, version: string, times: number) => {
      for (let time = 0; time < times; time += 1)
        await (await feed.fetch(`/package/${id}/${version}/${id}.${version}.nupkg`)).arrayBuffer();
    };
    for (const [version, times] of [
      ['1.0.0', 1],
      ['1.1.0', 2],
      ['2.0.0', 4],
      ['10.0.0', 1],
    ] as const)
      await get('far', version, times);
    for (const [version, times] of [
      ['2.0.0', 1],
      ['1.1.0', 3],
      ['1.0.0', 1],
    ] as const)
      await get('near', version, times);
    await flushUsage(server);
    const bySize = ['1.1.0', '10.0.0', '1.0.0', '2.0.0'];
    for (const id of ['far', 'Near']) {
      const path = `/v1/packages/${id}/versions?`;
      const newest = ['10.0.0', '2.0.0', '1.1.0', '1.0.0'];
      t.deepEqual(await inOrder(t, server, path, 'version'), newest);
      t.deepEqual(await inOrder(t, server, `${path}sort=oldest`, 'version'), newest.toReversed());
      t.deepEqual(await inOrder(t, server, `${path}sort=oldest&q=1`, 'version'), ['1.0.0', '1.1.0', '10.0.0']);
      t.deepEqual(await inOrder(t, server, `${path}sort=size`, 'version'), bySize);
      t.deepEqual(await inOrder(t, server, `${path}sort=size&q=1`, 'version'), ['1.1.0', '10.0.0', '1.0.0']);
      t.deepEqual(await inOrder(t, server, `${path}sort=size&range=[1.0,2.0)`, 'version'), ['1.1.0', '1.0.0']);
    }
    const byDownloads = (id: string, field: string) =>
      inOrder(t, server, `/v1/packages/${id}/versions?sort=downloads`, field);
    t.deepEqual(await byDownloads('near', 'version'), ['1.1.0', '1.0.0', '2.0.0', '10.0.0']);
    t.deepEqual(await byDownloads('near', 'download_count'), [3, 1, 1, 0]);
    t.deepEqual(await byDownloads('far', 'version'), ['2.0.0', '1.1.0', '1.0.0', '10.0.0']);
    t.deepEqual(await byDownloads('far', 'download_count'), [4, 2, 1, 1]);
    t.is(await status(server, '/v1/packages/near/versions?sort=version'), 400);
    t.is(await status(server, '/v1/packages/none/versions?sort=size'), 404);
  });

  test(`${dialect}: tags are sorted by size and pulls, which are those of the images of an index`, async (t) => {
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [hub.settings('docker.io', { default: true })],
    });
    const repository = new TestRepository(server, 'team/app');
    const sized = async (tag: string, bytes: number) =>
      repository.image(tag, { layers: [await repository.blob(randomBytes(bytes))] });
    await sized('middle', 5000);
    const small = await sized('small', 100);
    const large = await sized('large', 20_000);
    const child = await sized('child', 3000);
    const index = {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [small, child].map(({ bytes: _bytes, ...each }) => each),
    };
    t.is((await repository.put('both', index)).status, 201);
    const pull = async (reference: string, times: number) => {
      for (let time = 0; time < times; time += 1)
        await (await server.fetch(`/v2/team/app/manifests/${reference}`)).arrayBuffer();
    };
    await pull(small.digest, 2);
    await pull(child.digest, 3);
    await pull(large.digest, 4);
    await flushUsage(server);
    const path = '/v1/containers/team%2Fapp/tags?';
    const sizes = (await inOrder(t, server, `${path}order=size`, 'size_bytes')) as number[];
    t.deepEqual(
      sizes,
      sizes.toSorted((one, other) => other - one),
    );
    t.is(new Set(sizes).size, 5);
    t.deepEqual((await inOrder(t, server, `${path}order=size`, 'name'))!.slice(0, 2), ['large', 'middle']);
    t.deepEqual(await inOrder(t, server, `${path}order=pulls`, 'name'), ['both', 'large', 'child', 'small', 'middle']);
    t.deepEqual(await inOrder(t, server, `${path}order=pulls`, 'pull_count'), [5, 4, 3, 2, 0]);
    t.deepEqual(await inOrder(t, server, `${path}order=pulls&q=L`, 'name'), ['large', 'child', 'small', 'middle']);

    for (const tag of ['3', '4']) {
      hub.image('library/alpine', tag);
      await (await server.fetch(`/v2/alpine/manifests/${tag}`)).arrayBuffer();
    }
    const mirrored = '/v1/containers/docker.io%2Flibrary%2Falpine/tags?';
    t.is((await inOrder(t, server, `${mirrored}order=size`, 'name'))!.length, 2);
    t.is(await status(server, `${mirrored}order=pulls`), 400);

    const id = await repositoryOf(server, 'team/app');
    const sql = 'SELECT id FROM manifests WHERE repository_id = ? AND media_type = ?';
    const { id: both } = (await databaseOf(server).get<{ id: number }>(sql, [id, ociIndex]))!;
    const add = (table: string, some: Row[]) => databaseOf(server).transaction((tx) => tx.insertNew(table, some));
    const images = (from: number, to: number) =>
      Array.from({ length: to - from }, (_, at) => ({ manifest_id: both, digest: `sha256:${from + at}` }));
    for (let from = 2; from < 20_000; from += 2000)
      await add('manifest_references', images(from, Math.min(from + 2000, 20_000)));
    t.is(await status(server, `${path}order=pulls`), 200);
    await add('manifest_references', images(20_000, 20_001));
    t.is(await status(server, `${path}order=pulls`), 400);
    t.is(await status(server, `${path}order=size`), 200);

    const row = { repository_id: id, digest: small.digest, updated_at: 1 };
    const rows = Array.from({ length: 5000 }, (_, number) => ({ ...row, name: `n${number}`, sort_key: `n${number}` }));
    await add('tags', rows.slice(0, 2000));
    await add('tags', rows.slice(2000, 4995));
    t.is(await status(server, `${path}order=size`), 200);
    await add('tags', rows.slice(4995, 4996));
    for (const order of ['size', 'pulls']) t.is(await status(server, `${path}order=${order}`), 400);
    t.is(await status(server, `${path}order=newest`), 200);
  });

  test(`${dialect}: tokens are sorted by their last use, failed requests by their number, and claims filtered`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    const made: Record<string, string> = {};
    for (const name of ['b', 'a', 'idle', 'c']) {
      server.clock.now += 1000;
      const response = await server.fetch('/v1/tokens', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          name: `of ${name}`,
          scopes: ['read'],
          ...(name !== 'c' && { patterns: { packages: ['A*'] } }),
        }),
      });
      made[name] = ((await response.json()) as Json)['token'] as string;
    }
    for (const name of ['c', 'a', 'b']) {
      server.clock.now += 60_000;
      t.is((await server.fetch('/v1/packages', { token: made[name]! })).status, 200);
    }
    await flushTokens(server);
    const names = (query: string, token?: string) => inOrder(t, server, `/v1/tokens?${query}`, 'name', token);
    const used = await names('sort=used&name=OF%20');
    t.deepEqual(used, ['of b', 'of a', 'of c', 'of idle'], 'what was never used is last');
    const narrow = (await createToken(server, ['admin'], 'default', { packages: ['A*'] })).value;
    t.deepEqual(await names('sort=used&name=of', narrow), ['of b', 'of a', 'of idle'], 'within the own limits');
    t.is(await status(server, '/v1/tokens?sort=name'), 400);

    await createToken(server, ['admin'], 'other');
    const idOf = async (name: string) =>
      (await databaseOf(server).get<{ id: number }>('SELECT id FROM accounts WHERE name = ?', [name]))!.id;
    const own = await idOf('default');
    const account = await idOf('other');
    const note = (name: string, times: number, accountId = own) => {
      const key = {
        kind: 'package',
        reference: '',
        tokenId: null,
        upstream: null,
        status: 404,
        code: 'NotFound',
      } as const;
      for (let time = 0; time < times; time += 1)
        failuresOf(server).note({ ...key, accountId, name, reason: 'no', requestId: 'r' });
    };
    for (const [name, times] of [
      ['some', 2],
      ['most', 5],
      ['few', 1],
    ] as const) {
      note(name, times);
      server.clock.now += 1000;
    }
    note('theirs', 3, account);
    const failed = (query: string, token?: string) => inOrder(t, server, `/v1/failed-requests?${query}`, 'name', token);
    t.deepEqual(await failed('sort=count'), ['most', 'theirs', 'some', 'few']);
    const admin = (await createToken(server, ['admin'], 'default')).value;
    t.deepEqual(await failed('sort=count', admin), ['most', 'some', 'few']);
    t.deepEqual(await failed('sort=count&name=SOME'), ['some']);
    t.deepEqual(await failed('', admin), ['few', 'most', 'some']);

    const feed = new TestFeed(server);
    for (const id of ['Gone.One', 'Gone.Two', 'Left']) {
      await feed.publish({ id });
      t.is((await server.fetch(`/v1/packages/${id}/1.0.0`, { method: 'DELETE' })).status, 204);
    }
    t.deepEqual(await inOrder(t, server, '/v1/claims?q=GONE', 'name'), ['Gone.One', 'Gone.Two']);
    t.is((await inOrder(t, server, '/v1/claims?', 'name'))!.length, 3);
    const limited = (await createToken(server, ['admin'], 'default', { packages: ['*.Two', 'Left'] })).value;
    t.deepEqual(await inOrder(t, server, '/v1/claims?q=gone', 'name', limited), ['Gone.Two']);
  });
}

async function repositoryOf(server: TestServer, name: string): Promise<number> {
  const row = await databaseOf(server).get<{ id: number }>('SELECT id FROM repositories WHERE name = ?', [name]);
  return row!.id;
}
