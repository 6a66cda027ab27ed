import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf } from '../support/inside.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { Visitor } from '../support/visitor.ts';

for (const dialect of dialects) {
  test(`${dialect}: of an upstream, 10,000 entries with one beginning are sorted and added up, and not more`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const database = databaseOf(server);
    const add = (from: number, until: number) => {
      const rows = Array.from({ length: until - from }, (_, index) => {
        const number = String(from + index).padStart(5, '0');
        return {
          id: `${number}${'0'.repeat(59)}`,
          upstream: 'up.test',
          kind: 'nupkg',
          name: `many.${number}`,
          reference: '1.0.0',
          digest: `sha256:${number}`,
          size_bytes: 1000 + from + index,
          content_type: 'application/zip',
          attributes: '{}',
          stored_at: 1,
          validated_at: 1,
          used_at: 1,
        };
      });
      return database.transaction((tx) => tx.insertNew('mirror_entries', rows));
    };
    for (let from = 0; from < 10_000; from += 500) await add(from, from + 500);
    const path = '/v1/upstreams/up.test/entries?limit=1&total=1';
    const read = async (query: string) => {
      const response = await server.fetch(path + query);
      return { status: response.status, body: (await response.json()) as any };
    };
    const { body } = await read('&name=many&sort=size');
    t.is(body.items[0].name, 'many.09999');
    t.deepEqual(body.total, { count: 10_000, size_bytes: 10_000 * 1000 + (9999 * 10_000) / 2 });
    await add(10_000, 10_001);
    const beyond = await read('&name=many&sort=size');
    t.is(beyond.status, 400);
    t.regex(beyond.body.detail, /^name: more than 10000 entries begin with this text\. Send a longer one\./);
    t.is((await read('&name=many')).body.total, null);
    t.is((await read('&name=many.1&sort=size')).body.total.count, 1);
    const visitor = await Visitor.signedIn(server);
    const page = await visitor.page('/console/mirror/up.test?name=many&sort=size');
    t.regex(page, /role="alert">name: more than 10000 entries begin with this text/);
    t.regex(page, /name="name" type="search" maxlength="255" value="many"/);
    t.regex(await visitor.page('/console/mirror/up.test?name=many'), /More than 10,000 entries/);
  });
}
