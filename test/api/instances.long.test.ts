import test, { type ExecutionContext } from 'ava';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf } from '../support/inside.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { redisUrl } from '../support/processes/services.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

// Two instances with one MySQL, one Redis and one data folder: what one has answered, the other serves at once.

async function pair(t: ExecutionContext, redisUrl: string): Promise<[TestServer, TestServer]> {
  const settings = {
    data: await folderUntilEnd(t),
    database: { url: await temporaryDatabase(t, 'mysql') },
    redis: { url: redisUrl },
  };
  return [await startTestServer(t, settings), await startTestServer(t, settings)];
}

/** Tags, versions and tokens are written through one and read through both, in turns, `rounds` times. */
async function writeAndRead(t: ExecutionContext, pairOf: readonly TestServer[], name: string, rounds: number) {
  const read = async (path: string, token?: string) => {
    const answers = await Promise.all(pairOf.map((server) => server.fetch(path, token === undefined ? {} : { token })));
    return Promise.all(answers.map(async (answer) => ({ answer, text: await answer.text() })));
  };
  const versions: string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const writer = pairOf[round % 2]!;
    const { digest } = await new TestRepository(writer, name).image('latest');
    for (const { answer } of await read(`/v2/${name}/manifests/latest`))
      t.is(answer.headers.get('docker-content-digest'), digest);

    versions.push(`1.0.${round}`);
    await new TestFeed(writer).publish({ id: name, version: versions.at(-1)! });
    for (const { text } of await read(`/v3/package/${name}/index.json`)) t.deepEqual(JSON.parse(text), { versions });

    const made = await writer.fetch('/v1/tokens', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'short-lived', scopes: ['read'] }),
    });
    const { id, token } = (await made.json()) as { id: string; token: string };
    for (const { answer } of await read('/v3/index.json', token)) t.is(answer.status, 200);
    t.is((await writer.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 204);
    for (const { answer } of await read('/v3/index.json', token)) t.is(answer.status, 401);
  }
}

test('what one instance has answered the other serves with the very next request, with Redis and without', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const both = await pair(t, redis.url);
  await writeAndRead(t, both, 'with', 12);
  await redis.kill();
  await writeAndRead(t, both, 'without', 2);
  await redis.start();
  await writeAndRead(t, both, 'again', 6);
  redis.freeze();
  await writeAndRead(t, both, 'frozen', 2);
  redis.thaw();
  await writeAndRead(t, both, 'thawed', 2);
});

test('a write of one instance leaves the rows of other tables in the memory of the other one', async (t) => {
  const [one, two] = await pair(t, redisUrl());
  const image = await new TestRepository(one, 'hot').image('latest');
  const read = async () => {
    const answer = await two.fetch('/v2/hot/manifests/latest');
    t.is(answer.headers.get('docker-content-digest'), image.digest);
    await answer.arrayBuffer();
  };
  await read();
  const database = databaseOf(two);
  const select = database.select.bind(database);
  let reads = 0;
  database.select = (sql, values) => {
    if (/\bJOIN tags\b/.test(sql)) reads += 1;
    return select(sql, values);
  };
  const rounds = 40;
  const start = performance.now();
  for (let round = 0; round < rounds; round += 1) {
    // Announced as `advisory_changes` and others, which no request for a manifest reads.
    await databaseOf(one).transaction((tx) => tx.run('UPDATE advisory_changes SET changed_at = changed_at + 1'));
    await read();
  }
  // Every row expires after a fifth of a second.
  const expired = Math.ceil((performance.now() - start) / 200) + 1;
  t.true(reads <= expired, `${reads} reads in ${rounds} rounds, ${expired} of them because the rows had expired`);
  t.true(reads < rounds, `${reads} reads`);
});

test('each change is seen by the next request to the other instance, while both write much else', async (t) => {
  const both = await pair(t, redisUrl());
  const over = new AbortController();
  const disturb = async (server: TestServer, number: number) => {
    for (let round = 0; !over.signal.aborted; round += 1) {
      await new TestRepository(server, `other${number}`).blob(`${number} ${round}`);
      await databaseOf(server).transaction((tx) => tx.run('UPDATE advisory_changes SET changed_at = 0'));
    }
  };
  const disturbing = Promise.all(both.flatMap((server) => [disturb(server, 1), disturb(server, 2)]));
  const statuses = async (path: string) =>
    Promise.all(
      both.map(async (server) => {
        const answer = await server.fetch(path);
        await answer.arrayBuffer();
        return answer.status;
      }),
    );
  try {
    for (let round = 0; round < 6; round += 1) {
      const [writer, name] = [both[round % 2]!, `app${round}`];
      const remove = (path: string) => writer.fetch(path, { method: 'DELETE' });
      const blob = `/v2/${name}/blobs/${digestOf(name)}`;
      const manifest = `/v2/${name}/manifests/latest`;
      const nupkg = `/v3/package/${name}/1.0.0/${name}.1.0.0.nupkg`;
      for (const path of [blob, manifest, nupkg]) t.deepEqual(await statuses(path), [404, 404], path);
      await new TestRepository(writer, name).blob(name);
      t.deepEqual(await statuses(blob), [200, 200]);
      t.is((await remove(blob)).status, 202);
      t.deepEqual(await statuses(blob), [404, 404]);
      await new TestRepository(writer, name).image('latest');
      t.deepEqual(await statuses(manifest), [200, 200]);
      t.is((await remove(`/v1/containers/${name}/latest`)).status, 204);
      t.deepEqual(await statuses(manifest), [404, 404]);
      await new TestFeed(writer).publish({ id: name, version: '1.0.0' });
      t.deepEqual(await statuses(nupkg), [200, 200]);
      t.is((await remove(`/v1/packages/${name}/1.0.0`)).status, 204);
      t.deepEqual(await statuses(nupkg), [404, 404]);
    }
  } finally {
    over.abort();
    await disturbing;
  }
});
