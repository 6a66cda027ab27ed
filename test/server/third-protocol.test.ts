import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { allProtocols } from '../../src/server/installation.ts';
import { upstreams } from '../../src/config/upstreams.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { createToken, flushUsage, rowsOf, runJob } from '../support/inside.ts';
import { copySchema } from '../support/schema-copy.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { notes, notesTable } from '../support/third-protocol.ts';
import { answer, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

// A server has the protocols of a list. A further one needs no change elsewhere.

async function start(t: ExecutionContext) {
  const upstream = await startFaultyUpstream(t);
  const folder = await folderUntilEnd(t);
  const database = join(folder, 'entrepot.db');
  await copySchema(`sqlite:${database}`);
  using tables = new DatabaseSync(database);
  tables.exec(notesTable);
  const [known] = upstreams.parse([
    { name: 'notes.test', kind: 'nuget', url: upstream.url.href, allowPrivateNetwork: true, timeout: '60s' },
  ]);
  const server = await startTestServer(t, { data: folder }, {}, undefined, {
    protocols: [...allProtocols, notes],
    change: (config) => {
      config.upstreams = [{ ...known!, kind: 'notes' }];
      config.reserved['notes'] = ['secret.*'];
    },
  });
  return { server, upstream };
}

async function put(server: TestServer, path: string, body: string, token?: string): Promise<number> {
  return (await server.fetch(path, { method: 'PUT', body, ...(token !== undefined && { token }) })).status;
}

async function get(server: TestServer, path: string, token?: string): Promise<[number, string, string | null]> {
  const response = await server.fetch(path, token === undefined ? {} : { token });
  return [response.status, await response.text(), response.headers.get('cache-status')];
}

test('a further protocol pushes, pulls, deletes and mirrors, with hosted content first', async (t) => {
  const { server, upstream } = await start(t);
  upstream.on('/team/1', serve(Buffer.from('theirs')));
  upstream.on('/team/2', serve(Buffer.from('second')));
  upstream.on('/gone/1', answer(404));
  t.is((await get(server, '/notes/team/1'))[1], 'theirs');
  t.deepEqual(await get(server, '/notes/team/1'), [200, 'theirs', 'entrepot; hit'], 'from the mirror');
  t.is(await put(server, '/notes/team/1', 'ours'), 201);
  t.deepEqual(await get(server, '/notes/team/1'), [200, 'ours', 'entrepot; hit; detail=hosted']);
  t.is((await get(server, '/notes/team/2'))[1], 'second');
  t.is((await get(server, '/notes/gone/1'))[0], 404);
  t.is((await server.fetch('/notes/team/1', { method: 'DELETE' })).status, 204);
  t.is((await get(server, '/notes/team/1'))[1], 'theirs');
  const before = upstream.asked.length;
  t.is((await get(server, '/notes/secret.plan/1'))[0], 404);
  t.is(upstream.asked.length, before, 'a reserved name is not sent upstream');
  upstream.on('/team/3', answer(500));
  t.is((await get(server, '/notes/team/3'))[0], 502, 'an upstream that fails is not “not found”');
  // The other protocols are there, too.
  t.is((await server.fetch('/v3/index.json')).status, 200);
  t.is((await server.fetch('/v2/')).status, 200);
});

test('tokens are limited to its names, and its scopes count', async (t) => {
  const { server } = await start(t);
  const { value } = await createToken(server, ['read', 'write'], 'default', { notes: ['team', 'team.*'] });
  t.is(await put(server, '/notes/team.a/1', 'mine', value), 201);
  t.is((await get(server, '/notes/team.a/1', value))[0], 200);
  for (const path of ['/notes/other/1', '/notes/teams/1'])
    t.is((await get(server, path, value))[0], 403, `${path} has another name`);
  t.is(await put(server, '/notes/other/1', 'x', value), 403);
  t.is((await server.fetch('/notes/team.a/1', { method: 'DELETE', token: value })).status, 403, 'no scope delete');
  t.is((await server.fetch('/v3/package/team/index.json', { token: value })).status, 403, 'no packages at all');
  const { value: packages } = await createToken(server, ['read'], 'default', { packages: ['*'] });
  t.is((await get(server, '/notes/team.a/1', packages))[0], 403);
  t.is((await server.fetch('/notes/team.a/1', { token: null })).status, 401);
});

test('its requests, downloads and bytes are counted, and its blobs are collected', async (t) => {
  const { server, upstream } = await start(t);
  upstream.on('/team/1', serve(Buffer.from('theirs')));
  await put(server, '/notes/mine/1', 'four');
  await get(server, '/notes/mine/1');
  await get(server, '/notes/team/1');
  await flushUsage(server);
  const counted = await rowsOf<{ name: string; downloads: number; uploads: number }>(
    server,
    `SELECT name, MAX(downloads) AS downloads, MAX(uploads) AS uploads FROM usage_counts WHERE dimension = 'note'
     AND name <> '' GROUP BY name ORDER BY name`,
  );
  t.deepEqual(
    counted.map(({ name, downloads, uploads }) => [name, downloads, uploads]),
    [
      ['mine', 1, 1],
      ['team', 1, 0],
    ],
  );
  t.deepEqual(await rowsOf(server, 'SELECT name, reads FROM notes'), [{ name: 'mine', reads: 1 }]);
  // Its kind is not in the document of the protocols of this server.
  const headers = { authorization: `Bearer ${server.token}` };
  const { items } = (await (await fetch(`${server.url}/v1/upstreams`, { headers })).json()) as {
    items: { kind: string }[];
  };
  t.deepEqual(
    items.map(({ kind }) => kind),
    ['notes'],
  );
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_mirror_requests_total\{kind="notes",outcome="miss"\} 1/);
  server.clock.now = Date.now() + 48 * 3_600_000;
  await runJob(server, 'gc');
  t.is((await get(server, '/notes/mine/1'))[1], 'four', 'a blob with a row stays');
  await server.fetch('/notes/mine/1', { method: 'DELETE' });
  server.clock.now += 48 * 3_600_000;
  await runJob(server, 'gc');
  const left = await rowsOf<{ n: number }>(server, 'SELECT COUNT(*) AS n FROM blobs');
  t.is(left[0]!.n, 1, 'that of the mirror');
});
