import test, { type ExecutionContext } from 'ava';
import { makeNupkg, makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { startTestServer } from '../../support/server.ts';

// Two accounts with packages of one id: each must see, count and change its own only.

const numbers = (prefix: string) => [`${prefix}.0.0`, `${prefix}.1.0`];

async function twoFeeds(t: ExecutionContext, dialect: 'sqlite' | 'mysql') {
  const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
  const feeds = [new TestFeed(server), await TestFeed.ofAccount(server, 'other')] as const;
  for (const [index, feed] of feeds.entries()) {
    for (const version of numbers(String(index + 1))) {
      await feed.publish({ id: 'Same', version, description: `of account ${index + 1}` });
    }
  }
  return { server, feeds };
}

for (const dialect of dialects) {
  test(`${dialect}: each document has the versions of the account that reads it`, async (t) => {
    const { server, feeds } = await twoFeeds(t, dialect);
    // Twice, because the second answers come from memory.
    for (let round = 0; round < 2; round += 1) {
      for (const [index, feed] of feeds.entries()) {
        const [own, others] = [numbers(String(index + 1)), numbers(String(2 - index))];
        t.deepEqual(await feed.json('/package/same/index.json'), { versions: own });
        for (const hive of ['registration', 'registration-gz', 'registration-gz-semver2']) {
          const { items } = await feed.json(`/${hive}/same/index.json`);
          const leaves = items.flatMap((page: any) => page.items.map(({ catalogEntry }: any) => catalogEntry));
          t.deepEqual(
            leaves.map(({ version }: any) => version),
            own,
          );
          t.true(leaves.every(({ description }: any) => description === `of account ${index + 1}`));
          const page = await feed.json(`/${hive}/same/page/1.0.0/9.0.0.json`);
          t.is(page.count, 2);
          for (const version of others) t.is((await feed.fetch(`/${hive}/same/${version}.json`)).status, 404);
        }
        t.deepEqual((await feed.json('/autocomplete?id=same')).data, own);
        const found = await feed.json('/search?q=same');
        t.is(found.totalHits, 1);
        t.deepEqual(
          found.data[0].versions.map(({ version }: any) => version),
          own,
        );
        for (const version of others)
          t.is((await feed.fetch(`/package/same/${version}/same.${version}.nupkg`)).status, 404);
        const shown: any = await (await server.fetch('/v1/packages/Same', { token: feed.token })).json();
        t.deepEqual(shown.versions.map(({ version }: any) => version).sort(), own);
      }
    }
  });

  test(`${dialect}: an account cannot change or claim a version of another one`, async (t) => {
    const { server, feeds } = await twoFeeds(t, dialect);
    const [one, two] = feeds;
    for (const method of ['DELETE', 'POST']) t.is((await two.fetch('/push/same/1.0.0', { method })).status, 404);
    t.is(
      (
        await two.push(
          await makeSnupkg({ id: 'Same', version: '1.0.0', files: { 'lib/a.pdb': makePdb() } }),
          '/symbols',
        )
      ).status,
      404,
    );
    t.is((await one.json('/registration/same/1.0.0.json')).catalogEntry.listed, true);
    t.is((await two.push({ id: 'Same', version: '1.0.0' })).status, 201, 'its own version of that number');
    t.is((await two.fetch('/push/same/1.0.0', { method: 'DELETE' })).status, 204);
    t.is((await one.json('/registration/same/1.0.0.json')).catalogEntry.listed, true);
    t.deepEqual(await one.json('/package/same/index.json'), { versions: numbers('1') });
    t.is((await server.fetch('/v1/packages/Same/1.0.0', { method: 'DELETE' })).status, 204);
    t.deepEqual(await two.json('/package/same/index.json'), { versions: ['1.0.0', ...numbers('2')] });
  });
}

test('the size of a package is that of its versions', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const sizeOf = async () => {
    const [item] = ((await (await server.fetch('/v1/packages')).json()) as { items: { size_bytes: number }[] }).items;
    return item?.size_bytes;
  };
  const [small, large] = [
    await makeNupkg({ id: 'Sized', version: '1.0.0' }),
    await makeNupkg({ id: 'Sized', version: '2.0.0', payloadBytes: 5000 }),
  ];
  await feed.push(small);
  await feed.push(large);
  t.is(await sizeOf(), small.length + large.length);
  await server.fetch('/v1/packages/Sized/2.0.0', { method: 'DELETE' });
  t.is(await sizeOf(), small.length);
});
