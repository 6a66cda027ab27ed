import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { parsePeriod } from '../../src/usage/period.ts';
import { reconcile } from '../../src/usage/reconcile.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { held } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { OpenDocument } from '../support/open-document.ts';
import { digestOf, ociIndex, openRequest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { eventually, until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';
import { createToken, databaseOf, flushUsage, rowsOf, runJob, tokenOf } from '../support/inside.ts';

type Json = any;

/** The report, checked against the OpenAPI document, with all usage until now. */
async function report(server: TestServer, query = ''): Promise<Json> {
  await flushUsage(server);
  const document = await OpenDocument.of(server);
  return document.read('GET /account/usage', await server.fetch(`/v1/account/usage${query}`));
}

async function take(response: Response | Promise<Response>): Promise<Buffer> {
  return Buffer.from(await (await response).arrayBuffer());
}

/** A line of an access log. */
function fetchedLine(at: number, other: object = {}): string {
  return JSON.stringify({ msg: 'fetched', account: 'default', billable: true, at, fetched: 10, ...other });
}

for (const dialect of dialects) {
  test(`${dialect}: usage of a very long name is counted, and does not block other usage`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const up = await UpstreamFeed.start(t);
    const upstreams = [upstream.settings('up.test', { default: true }), up.as('feed.test')];
    const server = await startMirrorOf(t, upstreams, { database: { url: await temporaryDatabase(t, dialect) } });
    const names = ['a', 'b'].map((letter) => `${'x'.repeat(254)}${letter}`);
    for (const name of names) {
      upstream.image(name, 'v1');
      for (let pull = 0; pull < 2; pull += 1) {
        t.is((await take(server.fetch(`/v2/${name}/manifests/v1`))).length > 0, true);
      }
    }
    const id = 'İ'.repeat(100);
    const longId = encodeURIComponent(id.toLowerCase());
    up.upstream.on(`/flat/${longId}/index.json`, json({ versions: ['1.0.0'] }));
    const feed = new TestFeed(server);
    t.deepEqual(await feed.json(`/package/${encodeURIComponent(id)}/index.json`), { versions: ['1.0.0'] });
    await take(new TestRepository(server, 'up.test/y').fetch('tags/list'));
    const { requests, items } = await report(server, '?group_by=container');
    t.is(requests.downloads, 4);
    const keys: string[] = items.map(({ key }: Json) => key).filter(Boolean);
    t.is(keys.length, 2, 'the two names stay different');
    for (const key of keys) t.true(key.startsWith('up.test/xxx') && key.length <= 255, key);
    for (const key of keys) {
      const uses = (await (await server.fetch(`/v1/uses?kind=container&name=${key}`)).json()) as Json;
      t.like(uses.items, [{ name: key, downloads: 2 }], 'and so are the uses of tokens');
    }
    const packages = await report(server, '?group_by=package');
    t.true(packages.items.some(({ key }: Json) => key === id.toLowerCase()));
  });

  test(`${dialect}: a report is exact to the byte, by day, token, package and container`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.UTC(2027, 4, 31, 12);
    const made = await server.fetch('/v1/tokens', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'CI Build', scopes: ['read'] }),
    });
    const { token: value, ...token } = (await made.json()) as Json;
    const feed = new TestFeed(server);
    const reader = new TestFeed(server, value);
    await feed.publish({ id: 'Made.Package', version: '1.0.0' }, { id: 'Made.Package', version: '2.0.0-B' });
    const image = await new TestRepository(server, 'team/app').image('v1');
    const pushed = (await report(server)).bandwidth;
    t.is((await report(server)).requests.uploads, 3);
    t.true(pushed.ingress_bytes > image.size + 1000);

    let sent = 0;
    for (const path of [
      'made.package/1.0.0/made.package.1.0.0.nupkg',
      'Made.Package/2.0.0-b/made.package.2.0.0-b.nupkg',
    ]) {
      sent += (await take(reader.fetch(`/package/${path}`))).length;
    }
    sent += (await take(reader.fetch('/package/made.package/1.0.0/made.package.nuspec'))).length;
    sent += (await take(reader.fetch('/package/Made.Package/index.json'))).length;
    sent += (await take(reader.fetch('/registration/made.package/index.json'))).length;
    sent += (await take(reader.fetch('/index.json'))).length;
    sent += (await take(reader.fetch('/search?q=made'))).length;
    const app = new TestRepository(server, 'team/app', value);
    sent += (await take(app.fetch('manifests/v1'))).length;
    sent += (await take(app.fetch('tags/list'))).length;
    sent += (await take(app.fetch(`blobs/${digestOf('{}')}`))).length;
    await app.fetch('manifests/v1', { method: 'HEAD' });
    await app.fetch('manifests/v1', { headers: { 'if-none-match': `"${image.digest}"` } });
    for (const path of ['manifests/none', `blobs/${digestOf('none')}`]) t.is((await app.fetch(path)).status, 404);
    t.is((await app.put('v2', image.bytes)).status, 403);
    t.is((await server.fetch('/v3/index.json', { token: 'wrong' })).status, 401);

    const all = await report(server, '?group_by=token&granularity=day');
    const byToken = all.items.find(({ key }: Json) => key === token.id);
    t.deepEqual(byToken, {
      date: '2027-05-31',
      key: token.id,
      requests: 12,
      downloads: 3,
      uploads: 0,
      version_checks: 5,
      cache_hits: 0,
      cache_misses: 0,
      egress_bytes: sent,
      ingress_bytes: 0,
      upstream_bytes: 0,
    });
    t.is(all.bandwidth.ingress_bytes, pushed.ingress_bytes);
    t.is(all.requests.downloads, 3);
    t.is(
      all.requests.total,
      all.items.reduce((sum: number, { requests }: Json) => sum + requests, 0),
    );

    const packages = await report(server, '?group_by=package');
    t.deepEqual(
      packages.items.map(({ key, downloads, uploads, requests }: Json) => [key, downloads, uploads, requests]),
      [
        [null, 0, 0, 2],
        ['made.package', 2, 2, 7],
      ],
    );
    const containers = await report(server, '?group_by=container');
    t.like(containers.items, [{ key: 'team/app', downloads: 1, uploads: 1, version_checks: 2, date: null }]);
    t.is(containers.items[0].ingress_bytes, image.size + 102, 'its manifest, layer and config');

    // By a number, with a text, and in all.
    const list = async (query: string, by = server.token): Promise<Json> =>
      (await server.fetch(`/v1/account/usage?${query}`, { token: by })).json();
    const keysOf = ({ items }: Json): string[] => items.map(({ key }: Json) => key);
    const byDownloads = await list('group_by=token&sort=downloads&limit=1');
    t.deepEqual(keysOf(byDownloads), [token.id]);
    const next = await list(`group_by=token&sort=downloads&limit=1&cursor=${byDownloads.next_cursor}`);
    t.deepEqual(keysOf(await list('group_by=token&sort=uploads')), [...keysOf(next), token.id]);
    t.deepEqual(keysOf(await list('group_by=token&q=cI%20bUILD')), [token.id]);
    t.deepEqual(keysOf(await list('group_by=token&q=cI%20bUILD', value)), [], 'names of tokens need the scope admin');
    for (const by of [value, server.token])
      t.deepEqual(keysOf(await list(`group_by=token&q=${token.id}`, by)), [token.id]);
    t.like((await list('group_by=token&q=cI%20bUILD&total=1')).total, { count: 1, requests: 12, egress_bytes: sent });
    t.deepEqual(keysOf(await list('group_by=package&q=MADE&sort=requests')), ['made.package']);
    t.like((await list('group_by=package&total=1')).total, { count: 1, requests: 9, downloads: 2 });
    const limited = (await createToken(server, ['read'], 'default', { packages: ['other'] })).value;
    t.like((await list('group_by=package&total=1', limited)).total, { count: 0, downloads: 0 });
    for (const query of ['sort=downloads', 'granularity=day&group_by=package&q=made', 'total=1'])
      t.is((await server.fetch(`/v1/account/usage?${query}`)).status, 400, query);

    server.clock.now = Date.UTC(2027, 5, 1);
    await take(reader.fetch('/index.json'));
    t.like(await report(server, '?period=2027-05&granularity=day'), {
      requests: { downloads: 3 },
      items: [{ date: '2027-05-31', downloads: 3 }],
    });
    t.is((await report(server)).requests.version_checks, 1);

    const details = (await (await server.fetch('/v1/packages/made.package')).json()) as Json;
    t.is(details.download_count, 2);
    t.is(details.last_downloaded_at, '2027-05-31T12:00:00.000Z');
    t.deepEqual(
      details.versions.map(({ download_count: count }: Json) => count),
      [1, 1],
    );
    const [listed] = ((await (await server.fetch('/v1/containers')).json()) as Json).items;
    t.like(listed, { pull_count: 1, last_pulled_at: '2027-05-31T12:00:00.000Z' });
    const { usage } = (await (await server.fetch('/v1/account')).json()) as Json;
    t.true(usage.requests > 0 && usage.egress_bytes > 0);

    // The access log says the same, to the byte.
    const file = join(server.data, 'access.log');
    const compare = async (...lines: string[]) => {
      await writeFile(file, lines.join('\n'));
      return reconcile(databaseOf(server), [file], parsePeriod('2027-05')!);
    };
    const { compared } = await eventually(
      () => compare(...server.lines),
      (found) => found.compared.every(({ logged, recorded }) => logged === recorded),
    );
    t.like(
      compared.find(({ counter }) => counter === 'downloads'),
      { account: 'default', logged: 3 },
    );
    const less = await compare('the first token', ...server.lines.filter((line) => !line.includes('.nuspec')));
    t.is(less.skipped, 1);
    t.deepEqual(
      less.compared.filter(({ logged, recorded }) => logged !== recorded).map(({ counter }) => counter),
      ['requests', 'egress_bytes'],
    );
    const [begin, end] = [Date.UTC(2027, 4, 1), Date.UTC(2027, 5, 1)];
    const fetched = await compare(
      fetchedLine(begin, { fetched: 100 }),
      fetchedLine(end - 1, { fetched: 1000 }),
      fetchedLine(begin - 1),
      fetchedLine(end),
      fetchedLine(begin, { billable: false }),
      fetchedLine(begin, { msg: 'other' }),
      fetchedLine(begin, { account: undefined }),
    );
    t.deepEqual(
      fetched.compared.filter(({ logged }) => logged > 0),
      [{ account: 'default', counter: 'upstream_bytes', logged: 1100, recorded: 0 }],
    );
    await t.throwsAsync(compare('{"msg":"ready"}', '', '{"msg":"req'), { message: /access\.log:3: / });
    await t.throwsAsync(compare('no log'), { message: /has no line of a JSON log/ });
  });
}

test('lists of a report have pages, and a cursor is valid only for its list', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.UTC(2027, 4, 1);
  for (const name of ['a', 'b', 'c', 'd', 'e']) {
    await new TestRepository(server, name).blob(name);
    server.clock.now += 86_400_000;
    await new TestRepository(server, name).blob(name);
  }
  for (const [query, lines] of [
    ['group_by=container', 5],
    ['group_by=container&granularity=day', 10],
    ['granularity=day', 6],
    ['group_by=token', 1],
  ] as const) {
    const whole = await report(server, `?${query}`);
    t.is(whole.items.length, lines, query);
    const found: Json[] = [];
    let cursor: string | null = null;
    do {
      const page: Json = await report(server, `?${query}&limit=2${cursor ? `&cursor=${cursor}` : ''}`);
      t.deepEqual(page.requests, whole.requests.total < page.requests.total ? page.requests : whole.requests);
      found.push(...page.items);
      cursor = page.next_cursor;
    } while (cursor);
    const keys = (items: Json[]) => items.map(({ date, key }: Json) => [date, key]);
    t.deepEqual(keys(found), keys(whole.items), query);
  }
  const { next_cursor: cursor } = await report(server, '?group_by=container&limit=2');
  for (const query of ['granularity=day', 'group_by=package', 'group_by=container&period=2027-04', '']) {
    t.is((await server.fetch(`/v1/account/usage?${query}&cursor=${cursor}`)).status, 400, query);
  }
});

test('pages of the console are not counted, and a package that is downloaded with it is', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Made' });
  const visitor = await Visitor.signedIn(server);
  const pages = ['', 'packages', 'packages/Made', 'usage', 'tokens'];
  const lineOf = (path: string) => {
    const found = server.lines.find((line) => line.includes(`"path":"/console/${path}"`));
    return found === undefined ? undefined : JSON.parse(found);
  };
  const counted = async () => {
    await flushUsage(server);
    const sums = 'SUM(requests) AS requests, SUM(egress_bytes) AS sent, SUM(ingress_bytes) AS received';
    const [row] = await rowsOf(server, `SELECT ${sums} FROM usage_counts WHERE dimension = 'account'`);
    return row as { requests: number; sent: number; received: number };
  };
  const before = await counted();
  for (const page of pages) await visitor.page(`/console/${page}`);
  t.is((await visitor.send('/console/tokens/new', { name: 'x', scope: 'read' })).status, 201);
  for (const page of [...pages, 'tokens/new']) {
    await until(() => lineOf(page) !== undefined);
    t.like(lineOf(page), { account: 'default', billable: false });
    t.true(lineOf(page).sent > 0, page);
  }
  t.deepEqual(await counted(), before);
  const path = 'packages/Made/1.0.0/file';
  const file = await take(visitor.fetch(`/console/${path}`));
  await until(() => lineOf(path) !== undefined);
  t.like(lineOf(path), { billable: true, sent: file.length });
  const after = await counted();
  t.deepEqual([after.requests - before.requests, after.sent - before.sent], [1, file.length]);
});

test('an interrupted download counts the sent bytes, but no download', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/large');
  const size = 64 * 2 ** 20;
  const { digest } = await repository.blob(randomBytes(size));
  const before = (await report(server)).bandwidth.egress_bytes;
  const request = openRequest(server, 'GET', `/v2/team/large/blobs/${digest}`);
  request.end();
  const [response] = await once(request, 'response');
  let got = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    got += piece.length;
    if (got > 2 ** 20) break;
  }
  request.destroy();
  const lines = () =>
    server.lines.map((line) => JSON.parse(line)).filter(({ status, path }) => status === 200 && path?.endsWith(digest));
  const [line] = await eventually(
    () => Promise.resolve(lines()),
    (found) => found.length > 0,
  );
  t.false(line.complete);
  const counted = (await report(server)).bandwidth.egress_bytes - before;
  t.true(counted >= got && counted < size / 2, `${got} arrived, ${counted} counted`);
  t.true(line.sent >= got && line.sent <= counted);
});

test('a download that is interrupted, or of a part, counts as a request and not as a download', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  // More than the buffers of the connection.
  await feed.publish({ id: 'Large', version: '1.0.0', payloadBytes: 24 * 2 ** 20 });
  const path = '/v3/package/large/1.0.0/large.1.0.0.nupkg';
  const counted = async () => {
    await flushUsage(server);
    return rowsOf(server, "SELECT requests, downloads FROM usage_counts WHERE dimension = 'package'");
  };
  const [{ requests: before } = { requests: 0 }] = await counted();
  const request = openRequest(server, 'GET', path);
  request.end();
  const [response] = await once(request, 'response');
  await once(response, 'readable');
  request.destroy();
  await until(async () => (await counted())[0]?.['requests'] === Number(before) + 1);
  await (await server.fetch(path, { headers: { range: 'bytes=0-99' } })).arrayBuffer();
  t.like(await counted(), [{ requests: Number(before) + 2, downloads: 0 }]);
  await (await server.fetch(path)).arrayBuffer();
  await until(async () => (await counted())[0]?.['downloads'] === 1);
});

test('hits, misses and upstream bytes of the mirror are counted under the listed name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest, config, layer } = upstream.image('library/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  for (const name of ['up.test/library/app', 'library/app']) {
    const app = new TestRepository(server, name);
    for (const path of ['manifests/v1', `blobs/${config.digest}`, `blobs/${layer.digest}`]) await take(app.fetch(path));
  }
  t.is((await new TestRepository(server, 'up.test/library/app').fetch('manifests/none')).status, 404);
  const size = manifest.size + config.size + layer.size;
  const found = await report(server, '?group_by=container');
  t.like(found.requests, { cache_hits: 3, cache_misses: 3, downloads: 2 });
  t.is(found.bandwidth.upstream_bytes, size);
  t.like(found.items, [
    { key: 'up.test/library/app', requests: 6, downloads: 2, upstream_bytes: size, egress_bytes: 2 * size },
  ]);
  t.is(found.items.length, 1);
  t.like(found.storage, { current_bytes: size, by_origin: { hosted: 0, mirrored: size } });
  const [listed] = ((await (await server.fetch('/v1/containers')).json()) as Json).items;
  t.like(listed, { name: 'up.test/library/app', origin: 'mirrored', pull_count: 2 });
});

for (const dialect of dialects) {
  test(`${dialect}: downloads of mirrored packages are counted by version, for each account`, async (t) => {
    const up = await UpstreamFeed.start(t);
    await up.offer({ id: 'Public.Tool', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startMirrorOf(t, [up.as('up.test')], { database });
    const feed = new TestFeed(server);
    const today = Date.UTC(2027, 2, 15, 12);
    for (const [version, ago] of [
      ['1.0.0', 30],
      ['2.0.0', 29],
      ['2.0.0', 0],
    ] as const) {
      server.clock.now = today - ago * 86_400_000;
      await take(feed.fetch(`/package/Public.Tool/${version}/public.tool.${version}.nupkg`));
      await flushUsage(server);
    }
    const shown = (await (await server.fetch('/v1/packages/public.tool')).json()) as Json;
    t.is(shown.download_count, 3);
    t.deepEqual(
      shown.versions.map(({ version, download_count: count }: Json) => [version, count]),
      [
        ['2.0.0', 2],
        ['1.0.0', 1],
      ],
    );
    const before = await report(server, '?group_by=package&period=2027-02');
    t.like(before.items, [{ key: 'public.tool', downloads: 2 }]);
    t.like(before.requests, { downloads: 2, cache_hits: 0, cache_misses: 2 });
    t.like((await report(server)).requests, { downloads: 1, cache_hits: 1, cache_misses: 0 });
    const value = await tokenOf(server, ['read'], 'other');
    const daily = async (token: string): Promise<number[]> => {
      const { items } = (await (await server.fetch('/v1/packages?daily=1', { token })).json()) as Json;
      return items[0].daily_downloads;
    };
    t.deepEqual(await daily(server.token), [1, ...Array<number>(28).fill(0), 1], 'the last 30 days, of two months');
    t.deepEqual(await daily(value), Array<number>(30).fill(0));
    const theirs = (await (await server.fetch('/v1/packages/public.tool', { token: value })).json()) as Json;
    t.is(theirs.download_count, 0);
  });
}

test('bytes that the mirror fetches after the client disconnects are counted and logged with the request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { layer, manifest } = upstream.image('team/app', 'v1');
  const path = `/v2/team/app/blobs/${layer.digest}`;
  const rest = held((_request, response) => void response.end(layer.bytes.subarray(20_000)));
  upstream.on(path, (request, response) => {
    response.writeHead(200, { 'content-length': layer.size });
    response.write(layer.bytes.subarray(0, 20_000));
    rest.behaviour(request, response);
  });
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  server.clock.now = Date.UTC(2027, 0, 1);
  const app = new TestRepository(server, 'up.test/team/app');
  await take(app.fetch('manifests/v1'));
  const request = openRequest(server, 'GET', `/v2/up.test/team/app/blobs/${layer.digest}`);
  request.end();
  const [response] = await once(request, 'response');
  response.destroy();
  const line = (msg: string) =>
    server.lines
      .map((each): Json => JSON.parse(each))
      .find((each) => each.msg === msg && each.subject && !each.complete);
  await until(() => line('request') !== undefined);
  const left = line('request')!;
  t.like(left, { status: 200, complete: false, account: 'default', kind: 'container', billable: true });
  t.is(line('fetched'), undefined, 'not logged yet');
  server.clock.now += 5000;
  rest.release();
  await until(() => line('fetched') !== undefined);
  const { request: id, status, account, token, kind, subject, billable } = left;
  t.like(line('fetched'), { request: id, status, account, token, kind, subject, billable, at: server.clock.now });
  t.is(left.fetched + line('fetched')!.fetched, layer.size);
  t.is((await report(server)).bandwidth.upstream_bytes, layer.size + manifest.size);
});

for (const dialect of dialects) {
  test(`${dialect}: a report covers one account only`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.UTC(2027, 0, 15, 12);
    const theirs = await TestFeed.ofAccount(server, 'theirs', ['read', 'write', 'admin']);
    for (const [feed, id, downloads] of [
      [new TestFeed(server), 'Ours', 1],
      [theirs, 'Theirs', 3],
    ] as const) {
      await feed.publish({ id, payloadBytes: id === 'Ours' ? 1000 : 50_000 });
      const path = `/package/${id}/1.0.0/${id.toLowerCase()}.1.0.0.nupkg`;
      for (let count = 0; count < downloads; count += 1) await take(feed.fetch(path));
    }
    await runJob(server, 'sample');
    const of = async (token: string, query = '') => {
      await flushUsage(server);
      return (await (await server.fetch(`/v1/account/usage${query}`, { token })).json()) as Json;
    };
    const [mine, other] = [await of(server.token), await of(theirs.token)];
    t.like(mine.requests, { downloads: 1, uploads: 1 });
    t.like(other.requests, { downloads: 3, uploads: 1 });
    t.true(mine.storage.current_bytes < 20_000 && other.storage.current_bytes > 50_000);
    for (const { storage } of [mine, other]) t.is(storage.peak_bytes, storage.current_bytes);
    for (const query of ['?group_by=package', '?group_by=package&granularity=day']) {
      const lines = async (token: string) =>
        (await of(token, query)).items.map(({ key, downloads }: Json) => [key, downloads]);
      t.deepEqual(await lines(server.token), [['ours', 1]], query);
      t.deepEqual(await lines(theirs.token), [['theirs', 3]], query);
    }
    // The storage of a closed month comes from its samples.
    server.clock.now = Date.UTC(2027, 1, 15);
    const closed = [await of(server.token, '?period=2027-01'), await of(theirs.token, '?period=2027-01')];
    t.deepEqual(
      closed.map(({ storage }) => [storage.current_bytes, storage.peak_bytes]),
      [mine, other].map(({ storage }) => [storage.current_bytes, storage.current_bytes]),
    );
  });
}

test('a month ends at 23:59:59.999', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.UTC(2027, 0, 31, 23, 59, 59, 999);
  await take(server.fetch('/v3/index.json'));
  server.clock.now += 1;
  await take(server.fetch('/v3/index.json'));
  await take(server.fetch('/v3/index.json'));
  await flushUsage(server);
  const january = await report(server, '?period=2027-01');
  t.like(january, { period: { status: 'open', end: '2027-02-01T00:00:00.000Z' }, requests: { version_checks: 1 } });
  t.is((await report(server, '?period=2027-02')).requests.version_checks, 2);
  server.clock.now += 600_000;
  t.is((await report(server, '?period=2027-01')).period.status, 'closed');
});

test('a manifest that refers to an index counts as an upload; fetching an index is not a download', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const { mediaType, digest, size } = await repository.image('v1');
  await repository.put('all', { schemaVersion: 2, mediaType: ociIndex, manifests: [{ mediaType, digest, size }] });
  await take(repository.fetch('manifests/all'));
  t.like((await report(server)).requests, { uploads: 2, downloads: 0 });
});

test('a report does not wait for a long measurement of stored bytes', async (t) => {
  const server = await startTestServer(t);
  const database = databaseOf(server);
  const get = database.get.bind(database);
  const counted = Promise.withResolvers<undefined>();
  t.teardown(() => counted.resolve(undefined));
  database.get = (sql, values) =>
    sql.includes('AS last\n         FROM (SELECT digest FROM blobs') ? counted.promise : get(sql, values);
  server.clock.now = Date.UTC(2028, 1, 29, 12);
  const storage = async () => {
    const report = (await (await server.fetch('/v1/account/usage')).json()) as any;
    const account = (await (await server.fetch('/v1/account')).json()) as any;
    t.is(account.usage.storage_bytes, report.storage.current_bytes);
    t.is(account.usage.storage_as_of, report.storage.as_of);
    t.true(report.as_of <= (report.storage.as_of ?? report.as_of));
    return [report.storage.current_bytes, report.storage.as_of];
  };
  t.deepEqual(await storage(), [0, null]);
  const sample = { account_id: 1, hour: Date.UTC(2028, 1, 29, 11), hosted_bytes: 5, mirrored_bytes: 6 };
  await database.transaction((tx) => tx.insert('storage_samples', sample));
  t.deepEqual(await storage(), [11, '2028-02-29T11:00:00.000Z']);
});
