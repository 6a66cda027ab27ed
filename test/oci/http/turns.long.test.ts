import test from 'ava';
import type { Database } from '../../../src/database/database.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import { tagRow } from '../../../src/oci/hosted/natural-order.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { databaseOf } from '../../support/inside.ts';
import { inParts, longestTurn, longestTurnOf } from '../../support/longest-turn.ts';
import { digestOf, ociIndex, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// In a process of its own: it measures the process.

// How long the largest requests to the registry hold all others.

/** Milliseconds of processor time. */
const longest = 50;

/** Short, so that 28,000 of them have less than 4 MiB. */
const descriptors = (count: number) =>
  Array.from({ length: count }, (_, index) => ({
    mediaType: 'application/x',
    digest: `sha256:${index.toString(16).padStart(64, '0')}`,
    size: 1,
  }));

const indexOf = (count: number, more: object = {}) =>
  Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: descriptors(count), ...more }));

async function addTagsAndReferrers(database: Database, name: string, digest: string): Promise<void> {
  const sql = 'SELECT id FROM repositories WHERE name = ?';
  const { id } = (await database.get<{ id: number }>(sql, [name]))!;
  await database.transaction(async (tx) => {
    for (let start = 0; start < 1900; start += 100) {
      const part = Array.from({ length: 100 }, (_, index) => start + index);
      await tx.insertNew(
        'tags',
        part.map((index) => tagRow(id, `tag-${index}`, digest as Digest, 1)),
      );
      const seen = { account_id: 1, upstream: '', name, kind: 'tag', digest, seen_at: 1 };
      await tx.insertNew(
        'history',
        part.map((index) => ({ ...seen, reference: `tag-${index}` })),
      );
      if (start >= 500) continue;
      const referrer = { media_type: ociManifest, subject: digest, size_bytes: 1, image_bytes: 1, pushed_at: 1 };
      await tx.insertNew(
        'manifests',
        part.map((index) => ({ repository_id: id, ...referrer, digest: digestOf(`${name} ${index}`) })),
      );
    }
  });
}

for (const dialect of dialects) {
  test.serial(`${dialect}: no manifest, accepted or refused, holds other requests`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    const { config } = (await repository.manifest()) as unknown as { config: object };
    const image = { schemaVersion: 2, mediaType: ociManifest, config };
    const annotations = Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [`key${index}`, '']));
    const cases: [what: string, status: number, body: Buffer, type: string][] = [
      ['the largest index', 201, indexOf(2000, { annotations: { a: 'x'.repeat(3_700_000) } }), ociIndex],
      ['one entry too many', 400, indexOf(2001), ociIndex],
      ['28,000 layers', 400, Buffer.from(JSON.stringify({ ...image, layers: descriptors(28_000) })), ociManifest],
      ['2,000 missing layers', 400, Buffer.from(JSON.stringify({ ...image, layers: descriptors(2000) })), ociManifest],
      ['20,000 annotations', 201, Buffer.from(JSON.stringify({ ...image, layers: [], annotations })), ociManifest],
      ['many values', 400, Buffer.from(`{"annotations":[${'{},'.repeat(1_390_000)}1]}`), ociManifest],
      ['spaces', 400, Buffer.from(`{${' '.repeat(4 * 2 ** 20 - 100)}}`), ociManifest],
    ];
    for (const [what, status, body, type] of cases) {
      let answered = 0;
      const time = await longestTurn(async () => {
        const headers = { 'content-type': type };
        const sent = { method: 'PUT', headers, body: inParts(body), duplex: 'half' } as const;
        answered = (await repository.fetch('manifests/v1', sent)).status;
      });
      t.log(what, time.toFixed(1));
      t.is(answered, status, what);
      t.true(time < longest, `${what}: ${time.toFixed(0)} ms`);
    }
    const pull = await longestTurn(() => repository.fetch('manifests/v1').then((response) => response.text()));
    t.true(pull < longest, `a pull: ${pull.toFixed(0)} ms`);
  });

  test.serial(
    `${dialect}: the deletion of a manifest with 1,900 tags and 500 referrers holds no other request`,
    async (t) => {
      const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
      const database = databaseOf(server);
      const times: number[] = [];
      for (const name of ['one', 'two', 'three']) {
        const repository = new TestRepository(server, name);
        const { digest } = await repository.image('v1');
        await addTagsAndReferrers(database, name, digest);
        let status = 0;
        const remove = async () => ({ status } = await repository.fetch(`manifests/${digest}`, { method: 'DELETE' }));
        times.push(await longestTurnOf(remove));
        t.is(status, 202);
      }
      const time = Math.min(...times);
      t.true(time < longest, `${time.toFixed(0)} ms`);
      const left = await database.get<{ count: number }>('SELECT COUNT(*) AS count FROM tags', []);
      t.is(left!.count, 0);
      const postponed = await database.get<{ count: number }>(
        'SELECT COUNT(*) AS count FROM manifests WHERE untagged_at > 1',
        [],
      );
      t.is(postponed!.count, 3 * 500);
      const [event] = await database.select<{ details: string }>(
        "SELECT details FROM events WHERE type = 'manifest.deleted'",
        [],
      );
      const { tags, tag_count: count } = JSON.parse(event!.details) as { tags: string[]; tag_count: number };
      t.deepEqual([tags.length, count], [50, 1901]);
    },
  );

  test.serial(
    `${dialect}: a list of images with many tags shows the first ones, and holds no other request`,
    async (t) => {
      const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
      const names = Array.from({ length: 20 }, (_, index) => `app-${String(index).padStart(3, '0')}`);
      const { bytes } = await new TestRepository(server, names[0]!).image('v1');
      const { config, layers } = JSON.parse(bytes) as { config: object; layers: object[] };
      for (const name of names.slice(1)) {
        const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [config, ...layers] };
        t.is((await new TestRepository(server, name).put('v1', index)).status, 201);
      }
      await databaseOf(server).transaction(async (tx) => {
        const rows = await tx.select<{ repository_id: number; digest: Digest }>(
          'SELECT repository_id, digest FROM manifests',
          [],
        );
        for (const { repository_id: id, digest } of rows) {
          for (let start = 0; start < 1000; start += 250) {
            const part = Array.from({ length: 250 }, (_, index) => start + index);
            await tx.insertNew(
              'tags',
              part.map((index) => tagRow(id, `w${String(index).padStart(4, '0')}`, digest, 1)),
            );
          }
          await tx.run('UPDATE repositories SET tag_count = 1001 WHERE id = ?', [id]);
        }
      });
      let text = '';
      const ask = async (path: string) => ((text = await (await server.fetch(path)).text()), undefined);
      const shownOf = async (path: string) => {
        const time = await longestTurn(() => ask(path));
        t.true(time < longest, `${path}: ${time.toFixed(0)} ms`);
        return (JSON.parse(text) as { items: { tags: { name: string }[]; tag_count: number }[] }).items;
      };
      for (const [limit, shown] of [
        [200, 25],
        [50, 100],
        [4, 1000],
      ] as const) {
        const items = await shownOf(`/v1/containers?limit=${limit}`);
        t.is(items.length, Math.min(limit, names.length));
        for (const item of items) t.deepEqual([item.tags.length, item.tag_count], [shown, 1001]);
        t.is(items[0]!.tags[1]!.name, 'w0000');
      }
      t.is((await shownOf('/v1/containers?limit=20&tags=3'))[0]!.tags.length, 3);
      const pages: string[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        const path: string = `/v1/containers/${names[3]}/tags?limit=200${cursor && `&cursor=${cursor}`}`;
        const page = (await (await server.fetch(path)).json()) as { items: { name: string }[]; next_cursor: string };
        pages.push(...page.items.map(({ name }) => name));
        cursor = page.next_cursor;
      }
      t.is(new Set(pages).size, 1001, 'all tags can be read');
    },
  );
}

test.serial('a list of referrers with long annotations holds no other request', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const { digest } = await repository.image('v1');
  const { repository_id: id } = (await databaseOf(server).get<{ repository_id: number }>(
    'SELECT repository_id FROM manifests',
    [],
  ))!;
  const annotations = JSON.stringify({ long: 'x'.repeat(1_300_000) });
  const row = { repository_id: id, media_type: ociManifest, subject: digest, size_bytes: 1, image_bytes: 1 };
  const digests = Array.from({ length: 32 }, (_, index) => digestOf(`${index}`)).toSorted();
  await databaseOf(server).transaction(async (tx) => {
    for (const each of digests) await tx.insertNew('manifests', [{ ...row, pushed_at: 1, digest: each, annotations }]);
  });
  // To parse a page would be a long turn of this process.
  let pages: Uint8Array[][] = [];
  const time = await longestTurn(async () => {
    pages = [];
    for (let path: string | undefined = `/v2/app/referrers/${digest}`; path !== undefined;) {
      const response: Response = await server.fetch(path);
      const pieces: Uint8Array[] = [];
      for await (const piece of response.body!) pieces.push(piece as Uint8Array);
      pages.push(pieces);
      path = /<([^>]+)>/.exec(response.headers.get('link') ?? '')?.[1];
    }
  });
  const found = pages.flatMap((pieces) => {
    const page = JSON.parse(Buffer.concat(pieces).toString()) as {
      manifests: { digest: string; annotations: object }[];
    };
    return page.manifests;
  });
  t.true(found.every((each) => JSON.stringify(each.annotations) === annotations));
  t.deepEqual(
    found.map((each) => each.digest),
    digests,
  );
  t.log(time.toFixed(1));
  t.true(time < longest, `${time.toFixed(0)} ms`);
});

test.serial(
  'long lists of an upstream hold no other request, whether they are fetched, read first or read again',
  async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const tags = Array.from({ length: 190_000 }, (_, index) => `tag-${(index * 7919) % 190_000}`);
    const lists = '/v2/team/app/tags/list';
    upstream.on(lists, answer(200, {}, JSON.stringify({ name: 'team/app', tags })));
    const others = ['team/two', 'team/three'];
    for (const name of others) upstream.on(`/v2/${name}/tags/list`, answer(200, {}, JSON.stringify({ tags, name })));
    const subject = digestOf('subject');
    const manifests = Buffer.from(JSON.stringify({ schemaVersion: 2, manifests: descriptors(20_000) }));
    upstream.on(`/v2/team/app/referrers/${subject}`, answer(200, {}, manifests));
    const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')], anonymousRead: 'mirrored' });
    const sorted = tags.toSorted();
    const path = '/v2/up.test/team/app/tags/list';
    const fetches: number[] = [];
    for (const name of ['team/app', ...others]) {
      const fetched = () =>
        server.fetch(`/v2/up.test/${name}/tags/list?n=1`, { token: null }).then((each) => each.text());
      fetches.push(await longestTurnOf(fetched));
    }
    t.true(Math.min(...fetches) < longest, `a fetch: ${fetches.map((each) => each.toFixed(0)).join(', ')} ms`);
    for (const [query, expected] of [
      ['?n=2', sorted.slice(0, 2)],
      [`?n=3&last=${sorted[100_000]}`, sorted.slice(100_001, 100_004)],
      ['?n=2&last=tag-0x', sorted.slice(sorted.findIndex((tag) => tag > 'tag-0x')).slice(0, 2)],
      [`?last=${sorted.at(-2)}`, sorted.slice(-1)],
      [`?last=${sorted.at(-1)}`, []],
    ] as const) {
      let text = '';
      const time = await longestTurn(async () => {
        text = await (await server.fetch(path + query, { token: null })).text();
      });
      t.log(query, time.toFixed(1));
      t.deepEqual((JSON.parse(text) as { tags: string[] }).tags, [...expected], query);
      t.true(time < longest, `${query}: ${time.toFixed(0)} ms`);
    }
    const whole = await longestTurn(async () => (await server.fetch(path)).arrayBuffer());
    t.true(whole < longest, `10,000 tags: ${whole.toFixed(0)} ms`);
    for (const query of ['', '?n=1']) {
      let found = 0;
      const time = await longestTurn(async () => {
        found = (await (await server.fetch(`/v2/up.test/team/app/referrers/${subject}${query}`)).arrayBuffer())
          .byteLength;
      });
      t.true(found > 100);
      t.true(time < longest, `referrers${query}: ${time.toFixed(0)} ms`);
    }
    const hostile = Buffer.from(`{"tags":[${'{},'.repeat(5_000_000)}1]}`);
    upstream.on('/v2/team/hostile/tags/list', answer(200, {}, hostile));
    let status = 0;
    const time = await longestTurn(async () => {
      ({ status } = await server.fetch('/v2/up.test/team/hostile/tags/list'));
    });
    t.is(status, 502);
    t.true(time < longest, `a hostile list: ${time.toFixed(0)} ms`);
  },
);

test.serial('the description of an index of an upstream with 9,900 images holds no other request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const manifests = descriptors(9900).map(({ mediaType, digest }) => ({ mediaType, digest }));
  upstream.manifest('team/app', { schemaVersion: 2, mediaType: ociIndex, manifests: manifests.toReversed() }, 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  t.is((await server.fetch('/v2/up.test/team/app/manifests/v1')).status, 200);
  let text = '';
  const time = await longestTurn(async () => {
    text = await (await server.fetch('/v1/containers/up.test/team/app/manifests/v1')).text();
  });
  t.is((JSON.parse(text) as { children: unknown[] }).children.length, 200);
  t.log(time.toFixed(1));
  t.true(time < longest, `${time.toFixed(0)} ms`);
});

test.serial('a search for a blob in 50 manifests of many values holds no other request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const config = { mediaType: 'application/x', digest: digestOf('config'), size: 1 };
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const times: number[] = [];
  for (const name of ['one', 'two', 'three']) {
    const app = new TestRepository(server, `up.test/team/${name}`);
    const annotations = Object.fromEntries(Array.from({ length: 12_000 }, (_, index) => [`${name}${index}`, '']));
    for (let index = 0; index < 50; index += 1) {
      const layers = [{ ...config, digest: digestOf(`${name} ${index}`) }];
      const { digest } = upstream.manifest(`team/${name}`, { schemaVersion: 2, config, layers, annotations });
      const { status } = await app.fetch(`manifests/${digest}`, { method: 'HEAD' });
      t.is(status, 200);
    }
    let status = 0;
    const get = async () => ({ status } = await app.fetch(`blobs/${digestOf('unknown')}`));
    times.push(await longestTurnOf(get));
    t.is(status, 404);
  }
  const time = Math.min(...times);
  t.log(time.toFixed(1));
  t.true(time < longest, `${times.map((each) => each.toFixed(0)).join(', ')} ms`);
});
