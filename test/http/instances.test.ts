import test, { type ExecutionContext } from 'ava';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { TestRepository } from '../support/registry.ts';
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
