import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository, type Descriptor } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { databaseOf, flushUsage, tokenOf } from '../../support/inside.ts';

/** The lists of all pages, following Link. */
async function pages<T>(repository: TestRepository, first: string, itemsOf: (body: never) => T[]): Promise<T[][]> {
  const found: T[][] = [];
  for (let path: string | undefined = first; path !== undefined;) {
    const response = await repository.fetch(path);
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    found.push(itemsOf((await response.json()) as never));
    path = /^<([^>]+)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1];
  }
  return found;
}

const tagsOf = ({ tags }: { tags: string[] }) => tags;
const namesOf = ({ repositories }: { repositories: string[] }) => repositories;
const digestsOf = ({ manifests }: { manifests: Descriptor[] }) => manifests.map(({ digest }) => digest);
const entry = ({ mediaType, digest, size }: Descriptor) => ({ mediaType, digest, size });

for (const dialect of dialects) {
  test(`${dialect}: tags and repositories are listed in byte order, page by page`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    const manifest = await repository.manifest();
    const tags = ['1.10', '1.9', 'B', 'V1', '_x', 'a', 'a-1', 'a.1', 'a_1', 'v1'];
    for (const tag of tags.toReversed()) t.is((await repository.put(tag, manifest)).status, 201);
    const sorted = [...tags].sort();
    t.deepEqual(await pages(repository, 'tags/list', tagsOf), [sorted]);
    t.deepEqual(await pages(repository, 'tags/list?n=10', tagsOf), [sorted]);
    t.deepEqual(await pages(repository, 'tags/list?n=&last=', tagsOf), [sorted]);
    const first = await repository.fetch('tags/list?n=4');
    t.is(first.headers.get('link'), `</v2/team/app/tags/list?n=4&last=${sorted[3]}>; rel="next"`);
    t.is(first.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    t.deepEqual(await pages(repository, 'tags/list?n=4', tagsOf), [
      sorted.slice(0, 4),
      sorted.slice(4, 8),
      sorted.slice(8),
    ]);
    t.deepEqual(await pages(repository, 'tags/list?last=V1', tagsOf), [sorted.slice(4)], 'last works without n');
    t.deepEqual(await pages(repository, 'tags/list?n=2&last=aaa', tagsOf), [['v1']], 'last need not exist');
    const none = await repository.fetch('tags/list?n=0');
    t.deepEqual(await none.json(), { name: 'team/app', tags: [] });
    t.is(none.headers.get('link'), null);
    for (const bad of ['n=-1', 'n=x', 'n=1.5', 'n=1e3', 'n=1234567890123456']) {
      t.deepEqual(await errorOf(await repository.fetch(`tags/list?${bad}`)), [400, 'UNSUPPORTED']);
    }
    t.deepEqual(await errorOf(await repository.fetch('tags/list?last=.x')), [400, 'UNSUPPORTED']);

    for (const name of ['team/app2', 'a', 'team-b/c']) await new TestRepository(server, name).image('v1');
    await new TestRepository(server, 'blob-only').blob('x');
    await new TestRepository(server, 'session-only').start();
    const names = ['a', 'team-b/c', 'team/app', 'team/app2'];
    t.deepEqual(await pages(repository, '/v2/_catalog', namesOf), [names]);
    t.deepEqual(await pages(repository, '/v2/_catalog?n=3', namesOf), [names.slice(0, 3), names.slice(3)]);
    t.deepEqual(await pages(repository, '/v2/_catalog?last=team/app', namesOf), [['team/app2']]);
    t.deepEqual(await pages(repository, '/v2/_catalog?n=0', namesOf), [[]]);
    const catalog = await repository.fetch('/v2/_catalog?n=3');
    t.is(catalog.headers.get('link'), '</v2/_catalog?n=3&last=team%2Fapp>; rel="next"');
    t.is(catalog.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    t.is((await repository.fetch('/v2/_catalog?n=4')).headers.get('link'), null);
    t.deepEqual(await errorOf(await repository.fetch('/v2/_catalog?last=A')), [400, 'NAME_INVALID']);
  });

  test(`${dialect}: referrers are found, filtered, and removed with their manifests`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'app');
    const list = async (query = '') => {
      const response = await repository.fetch(`referrers/${subject.digest}${query}`);
      t.is(response.status, 200);
      t.is(response.headers.get('content-type'), ociIndex);
      const { manifests, ...rest } = (await response.json()) as { manifests: Descriptor[] };
      t.deepEqual(rest, { schemaVersion: 2, mediaType: ociIndex });
      t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
      t.is(response.headers.get('link'), null);
      return { manifests, filters: response.headers.get('oci-filters-applied') };
    };
    const image = await repository.image('v1');
    const subject = { mediaType: image.mediaType, digest: image.digest, size: image.size };
    t.deepEqual((await list()).manifests, []);
    const annotations = { note: 'née', other: '' };
    const signature = await repository.image('s', { subject, artifactType: 'application/signature', annotations });
    const plain = await repository.image('p', { subject });
    const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [], subject, annotations });
    t.is((await repository.put(digestOf(index), index, ociIndex)).status, 201);
    const expected = [
      {
        mediaType: ociManifest,
        digest: signature.digest,
        size: signature.size,
        artifactType: 'application/signature',
        annotations,
      },
      {
        mediaType: ociManifest,
        digest: plain.digest,
        size: plain.size,
        artifactType: 'application/vnd.oci.empty.v1+json',
      },
      { mediaType: ociIndex, digest: digestOf(index), size: Buffer.byteLength(index), annotations },
    ].sort((a, b) => (a.digest < b.digest ? -1 : 1));
    t.deepEqual((await list()).manifests, expected);
    t.is((await list()).filters, null);
    const filtered = await list('?artifactType=application/signature');
    t.deepEqual(
      filtered.manifests.map(({ digest }) => digest),
      [signature.digest],
    );
    t.is(filtered.filters, 'artifactType');
    t.deepEqual((await list('?artifactType=application/none')).manifests, []);
    const paged = await pages(repository, `referrers/${subject.digest}?n=1`, digestsOf);
    t.deepEqual(
      paged,
      expected.map(({ digest }) => [digest]),
    );
    const malformed = await repository.fetch(`referrers/${subject.digest}?last=x`);
    t.deepEqual(await errorOf(malformed), [400, 'DIGEST_INVALID']);
    const again = await repository.image('s2', { subject, artifactType: 'application/signature' });
    const some = `referrers/${subject.digest}?n=1&artifactType=application/signature`;
    const signatures = [signature.digest, again.digest].sort();
    t.deepEqual(
      await pages(repository, some, digestsOf),
      signatures.map((each) => [each]),
    );
    t.is(
      (await repository.fetch(some)).headers.get('link'),
      `</v2/app/referrers/${subject.digest}?artifactType=application%2Fsignature&n=1&last=${encodeURIComponent(signatures[0]!)}>; rel="next"`,
    );
    await repository.fetch(`manifests/${again.digest}`, { method: 'DELETE' });

    await repository.fetch(`manifests/${image.digest}`, { method: 'DELETE' });
    t.is((await list()).manifests.length, 3, 'a subject need not be there');
    await repository.fetch(`manifests/${signature.digest}`, { method: 'DELETE' });
    t.false(digestsOf(await list()).includes(signature.digest));
    const strangers = await tokenOf(server, ['read', 'write'], 'other');
    const elsewhere = [new TestRepository(server, 'elsewhere'), new TestRepository(server, 'app', strangers)];
    for (const each of elsewhere) await each.image('v1');
    for (const each of [new TestRepository(server, 'nowhere'), ...elsewhere]) {
      const response = await each.fetch(`referrers/${subject.digest}`);
      t.deepEqual(((await response.json()) as { manifests: [] }).manifests, []);
    }
  });
}

test('referrers that a client listed under the fallback tag are listed too, while their manifests exist', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const { digest } = await repository.image('v1');
  const by = await repository.image('by-api', { subject: { mediaType: ociManifest, digest, size: 1 } });
  const old = await repository.image('old');
  const gone = await repository.image('gone');
  const elsewhere = await new TestRepository(server, 'elsewhere').image('v1');
  const listed = [
    { ...entry(old), artifactType: 'application/old', annotations: { from: 'tag' } },
    { ...entry(by), artifactType: 'application/wrong' },
    entry(gone),
    entry(elsewhere),
  ];
  const fallback = { schemaVersion: 2, mediaType: ociIndex, manifests: listed };
  t.is((await repository.put(digest.replace(':', '-'), fallback)).status, 201);
  await repository.fetch(`manifests/${gone.digest}`, { method: 'DELETE' });
  const list = async (query: string) =>
    ((await (await repository.fetch(`referrers/${digest}${query}`)).json()) as { manifests: Descriptor[] }).manifests;
  const found = await list('');
  t.deepEqual(
    found.map((each) => each.digest),
    [old.digest, by.digest].sort(),
  );
  t.deepEqual(
    found.find((each) => each.digest === old.digest),
    listed[0] as Descriptor,
  );
  t.is(found.find((each) => each.digest === by.digest)!.artifactType, 'application/vnd.oci.empty.v1+json');
  t.deepEqual(
    (await list('?artifactType=application/old')).map((each) => each.digest),
    [old.digest],
  );
  const [first] = await list('?n=1');
  for (const n of [0, 1]) t.is((await list(`?n=${n}`)).length, 1);
  t.deepEqual(
    (await list(`?n=5&last=${first!.digest}`)).map((each) => each.digest),
    [old.digest, by.digest].sort().slice(1),
    'the next page has the rest only',
  );
  for (const [last, rest] of [old.digest, by.digest].sort().map((each, at, all) => [each, all.slice(at + 1)] as const))
    t.deepEqual(
      (await list(`?last=${last}`)).map((each) => each.digest),
      rest,
    );
  // More than one query reads, half of them under the fallback tag only.
  const other = await repository.image('other');
  const base = await repository.manifest({ subject: { mediaType: ociManifest, digest: other.digest, size: 1 } });
  const { subject: _subject, ...plain } = base;
  const pushed = await Promise.all(
    Array.from({ length: 80 }, async (_, number) => {
      const bytes = JSON.stringify({ ...(number % 2 === 0 ? base : plain), annotations: { number: String(number) } });
      const one = { mediaType: ociManifest, digest: digestOf(bytes), size: bytes.length };
      t.is((await repository.put(one.digest, bytes)).status, 201);
      return one;
    }),
  );
  const manifests = pushed.filter((_, number) => number % 2 === 1);
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests };
  t.is((await repository.put(other.digest.replace(':', '-'), index)).status, 201);
  const all = pushed.map((each) => each.digest).sort();
  for (const n of [1000, 80, 33])
    t.deepEqual((await pages(repository, `referrers/${other.digest}?n=${n}`, digestsOf)).flat(), all, String(n));
});

test('a page of referrers stays below 4 MiB, and the next page continues', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const { digest } = await repository.image('v1');
  const subject = { mediaType: ociManifest, digest, size: 1 };
  for (let count = 0; count < 5; count += 1) {
    await repository.image(`r${count}`, { subject, annotations: { text: randomBytes(900_000).toString('hex') } });
  }
  const sizes: number[] = [];
  const found = await pages(repository, `referrers/${digest}`, (body: { manifests: Descriptor[] }) => {
    sizes.push(JSON.stringify(body).length);
    return body.manifests.map((each) => each.digest);
  });
  t.is(new Set(found.flat()).size, 5);
  t.true(found.length > 1 && sizes.every((size) => size <= 4 * 1024 * 1024));
  // One that alone is longer than a page is listed without its annotations.
  const other = { mediaType: ociManifest, digest: digestOf('other'), size: 1 };
  const long = await repository.image('long', { subject: other, annotations: { text: 'x'.repeat(4_150_000) } });
  const list = await (await repository.fetch(`referrers/${other.digest}`)).text();
  t.true(list.length < 1000);
  t.like(JSON.parse(list).manifests[0], { digest: long.digest, annotations: {} });
});

test('a blob is served by ranges, conditionally, and repeatedly', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  const bytes = randomBytes(300_000);
  const { digest } = await repository.blob(bytes);
  const get = async (range: string, more: Record<string, string> = {}) => {
    const response = await repository.fetch(`blobs/${digest}`, { headers: { range, ...more } });
    return [response.status, response.headers.get('content-range'), Buffer.from(await response.arrayBuffer())] as const;
  };
  for (const [range, start, end] of [
    ['bytes=0-0', 0, 1],
    ['bytes=100-', 100, 300_000],
    ['bytes=-500', 299_500, 300_000],
    ['bytes=299999-400000', 299_999, 300_000],
  ] as const) {
    t.deepEqual(await get(range), [206, `bytes ${start}-${end - 1}/300000`, bytes.subarray(start, end)]);
  }
  for (const range of ['bytes=500-0', 'bytes=300000-', 'bytes=999999-9999999']) {
    const [status, contentRange] = await get(range);
    t.deepEqual([status, contentRange], [416, 'bytes */300000']);
  }
  t.is((await get('bytes=0-9', { 'if-range': '"another"' }))[0], 200);
  t.is((await get('bytes=0-9', { 'if-range': `"${digest}"` }))[0], 206);
  t.is((await get('', { 'if-none-match': `"${digest}"` }))[0], 304);
  const head = await repository.fetch(`blobs/${digest}`, { method: 'HEAD' });
  t.is(head.headers.get('content-length'), '300000');
  t.is(head.headers.get('accept-ranges'), 'bytes');
  t.is(head.headers.get('docker-content-digest'), digest);
  t.is(head.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
});

test('a blob is mounted from a named repository or from any one, else a session starts', async (t) => {
  const server = await startTestServer(t);
  const source = new TestRepository(server, 'source');
  const { digest } = await source.blob(randomBytes(1000));
  const mount = async (name: string, query: string, token?: string) => {
    const repository = new TestRepository(server, name, token);
    const response = await repository.fetch(`blobs/uploads/?${query}`, { method: 'POST' });
    const there = await new TestRepository(server, name).fetch(`blobs/${digest}`, { method: 'HEAD' });
    return [response.status, there.status, response.headers.get('location')!.startsWith(`/v2/${name}/blobs/`)];
  };
  t.deepEqual(await mount('with', `mount=${digest}&from=source`), [201, 200, true]);
  t.deepEqual(await mount('without', `mount=${digest}`), [201, 200, true]);
  t.deepEqual(await mount('wrong-source', `mount=${digest}&from=nowhere`), [202, 404, true]);
  t.deepEqual(await mount('malformed-source', `mount=${digest}&from=../x`), [202, 404, true]);
  t.deepEqual(await mount('malformed-digest', 'mount=sha256:abc&from=source'), [202, 404, true]);
  t.deepEqual(await mount('unknown', `mount=${digestOf('unknown')}&from=source`), [202, 404, true]);
  const writer = await tokenOf(server, ['write']);
  t.deepEqual(await mount('unreadable', `mount=${digest}&from=source`, writer), [202, 404, true]);

  const stranger = await tokenOf(server, ['read', 'write'], 'other');
  for (const query of [`mount=${digest}&from=source`, `mount=${digest}`]) {
    const repository = new TestRepository(server, 'theirs', stranger);
    t.is((await repository.fetch(`blobs/uploads/?${query}`, { method: 'POST' })).status, 202);
    t.is((await repository.fetch(`blobs/${digest}`, { method: 'HEAD' })).status, 404);
  }
});

for (const dialect of dialects) {
  test(`${dialect}: the management API’s list counts shared bytes once, and pulls of images`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const repository = new TestRepository(server, 'team/app');
    const one = await repository.image('v1');
    await repository.put('v2', one.bytes);
    const two = await repository.image('v3');
    const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [one, two].map(entry) };
    await repository.put('all', index);
    const indexSize = JSON.stringify(index).length;
    const list = async (query = '') => ((await (await server.fetch(`/v1/containers${query}`)).json()) as any).items;
    const remove = async (path: string, token = server.token) =>
      (await server.fetch(`/v1/containers/${path}`, { method: 'DELETE', token })).status;
    for (const path of ['manifests/all', 'manifests/v1', 'manifests/v3', `blobs/${digestOf('{}')}`]) {
      await (await repository.fetch(path)).text();
    }
    await repository.fetch('manifests/v1', { method: 'HEAD' });
    await new TestRepository(server, 'blob-only').blob('x');
    await flushUsage(server);
    for (const pulls of [2, 3]) {
      const [found, ...others] = await list();
      t.deepEqual(others, []);
      t.is(found.name, 'team/app');
      t.is(found.size_bytes, one.size + two.size + indexSize + 2 + 100 + 100);
      t.is(found.tag_count, 4);
      t.deepEqual(
        found.tags.map((tag: any) => [tag.name, tag.size_bytes]),
        [
          ['all', indexSize + one.size + two.size + 2 * 102],
          ['v1', one.size + 102],
          ['v2', one.size + 102],
          ['v3', two.size + 102],
        ],
      );
      t.is(found.pull_count, pulls, 'images that were fetched: no index, no HEAD, no blob');
      t.true(Date.parse(found.last_pulled_at) > Date.now() - 60_000);
      await (await repository.fetch('manifests/v1')).text();
      await flushUsage(server);
    }
    t.is(await remove('team/app/v2'), 204);
    t.is(await remove('team/app/v2'), 404);
    t.is(await remove('team/app/v1', await tokenOf(server, ['delete'], 'other')), 404);
    const [left, ...more] = await list();
    t.is(left.tag_count, 3);
    t.deepEqual(more, []);
  });
}

test('a blob whose bytes are still being stored again is not mounted', async (t) => {
  const server = await startTestServer(t);
  const { digest } = await new TestRepository(server, 'from').blob('bytes');
  await databaseOf(server).transaction((tx) => tx.run("UPDATE blobs SET state = 'pending'"));
  const mount = `blobs/uploads/?mount=${digest}&from=from`;
  t.is((await new TestRepository(server, 'to').fetch(mount, { method: 'POST' })).status, 202, 'a session starts');
});
