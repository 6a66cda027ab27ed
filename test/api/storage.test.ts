import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, flushUsage, runJob, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

type Json = Record<string, any>;
const day = 86_400_000;

const names = (list: Json[]) => list.map(({ kind, name }) => `${kind} ${name}`).toSorted();

for (const dialect of dialects) {
  test(`${dialect}: what fills the disk is shown with its limits, its growth, and what nobody uses`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      limits: { accountStorage: '1GB' },
      mirror: { maxSize: '2GB' },
    });
    server.clock.now = Date.UTC(2040, 0, 10, 12);
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Large', readme: 'x'.repeat(100) + Math.random() }, { id: 'Small' });
    await new TestRepository(server, 'team/app').image('v1');
    await new TestFeed(server, await tokenOf(server, ['read', 'write'], 'other')).publish({ id: 'Theirs' });
    await runJob(server, 'sample');
    server.clock.now += 3_600_000;
    await feed.publish({ id: 'Later' });
    await flushUsage(server);
    await runJob(server, 'sample');
    server.clock.now += 40 * day;
    await runJob(server, 'sample');
    server.clock.now += 51 * day;
    await (await server.fetch('/v3/package/small/1.0.0/small.1.0.0.nupkg')).arrayBuffer();
    await flushUsage(server);

    const document = await OpenDocument.of(server);
    const read = async (query = '', token = server.token): Promise<Json> =>
      document.read('GET /account/storage', await server.fetch(`/v1/account/storage${query}`, { token }));
    const storage = await read('?days=365');
    t.like(storage, { limit_bytes: 1e9, mirror_limit_bytes: 2e9, mirrored_bytes: 0 });
    t.true(storage['hosted_bytes'] > 0 && storage['disk'].free_bytes > 0);
    t.deepEqual(
      storage['history'].map(({ date }: Json) => date),
      ['2040-01-10', '2040-02-19'],
    );
    const [first, second] = storage['history'];
    t.true(first.hosted_bytes < second.hosted_bytes, 'the mean of two samples, of which the first has less');
    t.deepEqual((await read())['history'], []);
    t.deepEqual(names(storage['largest']), ['container team/app', 'package Large', 'package Later', 'package Small']);
    const sizes = storage['largest'].map(({ size_bytes: size }: Json) => size);
    t.deepEqual(
      sizes,
      sizes.toSorted((one: number, other: number) => other - one),
    );
    t.deepEqual(names(storage['unused']), ['container team/app', 'package Large', 'package Later']);

    const reader = await tokenOf(server, ['read']);
    t.like(await read('', reader), { disk: null, mirror_limit_bytes: null, limit_bytes: 1e9 });
    const limited = (await createToken(server, ['read'], 'default', { packages: ['Large'] })).value;
    t.deepEqual(names((await read('', limited))['largest']), ['package Large']);

    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/storage?days=365');
    t.regex(page, /<meter[^>]*><\/meter>\s*[\d.]+ kB of 1\.0 GB/);
    t.regex(page, /<title>02-19: [\d.]+ kB hosted, 0 B mirrored<\/title>/);
    t.regex(
      page,
      /Not downloaded and not changed for 90 days[^]*Large\?show=versions[^]*href="\/console\/jobs\/retention"/,
    );
    t.regex(page, /These [\d]+ names? can free up to\s*<span class="exact" title="[\d,]+ bytes">/);
    t.regex(await visitor.page('/console/storage'), /The first sample is taken within ten minutes/);
    const usage = await visitor.page('/console/usage');
    for (const plot of ['Bytes sent', 'Mirrored requests', 'Bytes from upstreams', 'Uploads'])
      t.true(usage.includes(plot));
    const year = await visitor.page('/console/usage?days=365');
    t.is(year.match(/<title>\d{4}-\d\d-\d\d: /g)?.length, 4 * 53);
    // The pushes were 91 days ago, in a week that began on the 4th: of packages and of an image.
    const from = year.indexOf('<h3>Uploads');
    const uploads = year.slice(from, year.indexOf('<details>', from));
    t.regex(uploads, /<title>2040-01-04: [3-9]<\/title>/);
    t.is(uploads.match(/: 0<\/title>/g)?.length, 52);
    t.true(year.length < 100_000, `${year.length}`);
  });
}
