import test, { type ExecutionContext } from 'ava';
import { temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { afterRead, databaseOf } from '../support/inside.ts';
import { redisUrl } from '../support/processes/services.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually, until } from '../support/until.ts';
import { answer, held } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Two instances with one database and one data folder, and what a person drops at one of them.

const nupkg = '/v3/package/thing/1.0.0/thing.1.0.0.nupkg';
const image = '/v2/docker.io/team/app/manifests/1';

/** MariaDB without Redis shows a write of another instance after a fifth of a second, as documented. */
const setups = [
  { name: 'sqlite', dialect: 'sqlite', hasRedis: false, isExact: true },
  { name: 'mysql with Redis', dialect: 'mysql', hasRedis: true, isExact: true },
  { name: 'mysql', dialect: 'mysql', hasRedis: false, isExact: false },
] as const;

interface Pair {
  registry: UpstreamRegistry;
  manifest: { mediaType: string; digest: string };
  /** Makes the upstreams answer that they have the package and the image no more. */
  withdraw: () => void;
  servers: [TestServer, TestServer];
}

async function pairOf(t: ExecutionContext, { dialect, hasRedis }: (typeof setups)[number]): Promise<Pair> {
  const [feed, registry] = [await UpstreamFeed.start(t), await startUpstreamRegistry(t)];
  await feed.offer({ id: 'Thing', versions: [{ version: '1.0.0' }] });
  const { manifest } = registry.image('team/app', '1');
  const settings = {
    data: await folderUntilEnd(t),
    database: { url: await temporaryDatabase(t, dialect) },
    upstreams: [feed.as('feed.test'), registry.settings('docker.io')],
    ...(hasRedis && { redis: { url: redisUrl() } }),
  };
  return {
    registry,
    manifest,
    withdraw: () => {
      feed.upstream.on('/flat/thing/1.0.0/thing.1.0.0.nupkg', answer(404));
      for (const reference of ['1', manifest.digest]) registry.on(`/v2/team/app/manifests/${reference}`, answer(404));
    },
    servers: [await startTestServer(t, settings), await startTestServer(t, settings)],
  };
}

async function get(server: TestServer, path: string): Promise<number> {
  const response = await server.fetch(path);
  await response.arrayBuffer();
  return response.status;
}

async function drop(t: ExecutionContext, server: TestServer, path: string): Promise<void> {
  t.is((await server.fetch(path, { method: 'DELETE' })).status, 204, path);
}

for (const setup of setups) {
  const assertGone = async (t: ExecutionContext, server: TestServer, path: string) => {
    if (setup.isExact) t.is(await get(server, path), 404, path);
    else
      await eventually(
        () => get(server, path),
        (status) => status === 404,
      );
  };

  test(`${setup.name}: what a person drops at one instance, the other one serves no more`, async (t) => {
    const { withdraw, servers } = await pairOf(t, setup);
    const [one, two] = servers;
    for (const server of [...servers, ...servers])
      for (const path of [nupkg, image]) t.is(await get(server, path), 200, path);
    withdraw();
    t.is(await get(two, nupkg), 200, 'a version that its upstream has withdrawn stays');
    await drop(t, one, '/v1/packages/Thing/1.0.0');
    await assertGone(t, two, nupkg);
    await assertGone(t, one, nupkg);
    await drop(t, two, '/v1/containers/docker.io/team/app/1');
    await assertGone(t, one, image);
    await assertGone(t, two, image);
  });

  // With Redis, the other instance does not read the entry from the database.
  if (setup.hasRedis) continue;
  test(`${setup.name}: what was read before a drop is not served after it`, async (t) => {
    const { withdraw, servers } = await pairOf(t, setup);
    const [one, two] = servers;
    t.is(await get(one, nupkg), 200);
    withdraw();
    afterRead(two, 'FROM mirror_entries WHERE id = ?', () => drop(t, one, '/v1/packages/Thing/1.0.0'));
    t.is(await get(two, nupkg), 200, 'this request began before the drop');
    await assertGone(t, two, nupkg);
  });
}

test('an entry that was dropped while its upstream was asked for it is not served again', async (t) => {
  const { withdraw, servers, registry, manifest } = await pairOf(t, setups[0]);
  const [one] = servers;
  t.is(await get(one, image), 200);
  // The tag is not fresh any more.
  one.clock.now = Date.now() + 86_400_000;
  const path = '/v2/team/app/manifests/1';
  const confirmed = held(answer(200, { 'content-type': manifest.mediaType, 'docker-content-digest': manifest.digest }));
  registry.on(path, confirmed.behaviour);
  const asked = registry.count(path);
  const answered = get(one, image);
  await until(() => registry.count(path) > asked);
  await drop(t, one, '/v1/containers/docker.io/team/app/1');
  confirmed.release();
  t.is(await answered, 200, 'this request began before the drop');
  withdraw();
  t.is(await get(one, image), 404);
});

test('with Redis, hits of mirrored content read from memory whether something was dropped', async (t) => {
  const { servers } = await pairOf(t, setups[1]);
  const [, two] = servers;
  for (const server of servers) t.is(await get(server, nupkg), 200);
  const database = databaseOf(two);
  const select = database.select.bind(database);
  let reads = 0;
  database.select = (sql, values) => {
    if (/FROM mirror_(drops|entries)/.test(sql)) reads += 1;
    return select(sql, values);
  };
  const rounds = 40;
  const start = performance.now();
  for (let round = 0; round < rounds; round += 1) t.is(await get(two, nupkg), 200);
  // Every row expires after a fifth of a second.
  const expired = Math.ceil((performance.now() - start) / 200) + 1;
  t.true(reads <= expired, `${reads} reads in ${rounds} rounds, ${expired} of them because the rows had expired`);
});
