import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import { statfs } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import test from 'ava';
import { digestOf } from '../../src/runtime/digest.ts';
import { answer, endless, held, serve, until, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { closeMirror, rowsOf, tokenOf } from '../support/inside.ts';

// Clients that disconnect early, request very much, or request content when the disk is full must not harm others.

const large = randomBytes(40 * 2 ** 20);
const largeDigest = digestOf(large);

/** A request whose client can disconnect. */
function begin(server: TestServer, path: string, token = server.token, headers: Record<string, string> = {}) {
  const asked: ClientRequest = request(server.url + path, {
    agent: false,
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
  asked.on('error', () => undefined);
  asked.end();
  const head = once(asked, 'response').then(([response]) => response as IncomingMessage);
  head.catch(() => undefined);
  return {
    head,
    /** Waits until this many bytes are received. */
    has: async (wanted: number) => {
      const response = await head;
      let bytes = 0;
      response.on('error', () => undefined).on('data', (piece: Buffer) => (bytes += piece.length));
      await until(() => bytes >= wanted);
    },
    leave: () => asked.destroy(),
  };
}

/** Sends a first piece and then nothing; counts the open answers. */
function stalling(open: { count: number }, headers = {}): Behaviour {
  return (_request, response) => {
    open.count += 1;
    response.once('close', () => (open.count -= 1));
    response.writeHead(200, headers);
    response.write(Buffer.alloc(1000));
  };
}

async function readBlob(server: TestServer, digest: string, init = {}) {
  const response = await server.fetch(`/v2/up.test/team/app/blobs/${digest}`, init);
  return { response, bytes: Buffer.from(await response.arrayBuffer()) };
}

async function otherAccount(server: TestServer, name: string): Promise<string> {
  return tokenOf(server, ['read'], name);
}

test('fetches of disconnected clients release their connections, and other accounts do not wait for them', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const open = { count: 0 };
  const paths = Array.from({ length: 260 }, (_, index) => `app${index % 5}/blobs/${digestOf(`slow ${index}`)}`);
  for (const path of paths) upstream.on(`/v2/${path}`, stalling(open, { 'content-length': 2 ** 30 }));
  const other = upstream.blob('team/app', 'quick');
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test', { timeout: '60s' })],
    limits: { accountFetches: 600 },
  });
  const token = await otherAccount(server, 'other');
  const clients = paths.map((path) => begin(server, `/v2/up.test/${path}`));
  await until(() => open.count === 256);
  for (const client of clients) client.leave();
  const quick = await server.fetch(`/v2/up.test/team/app/blobs/${other.digest}`, { token });
  t.is(await quick.text(), 'quick');
  await until(() => open.count === 0);
  t.pass();
});

test('a client that disconnects before the upstream answers cancels the upstream request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const open = { count: 0 };
  const silent: Behaviour = (_request, response) => {
    open.count += 1;
    response.once('close', () => (open.count -= 1));
  };
  upstream.on(`/v2/team/app/blobs/${largeDigest}`, silent);
  upstream.on('/v2/team/app/manifests/v1', silent);
  const feed = await UpstreamFeed.start(t);
  feed.upstream.on('/flat/some.package/index.json', silent);
  const server = await startMirrorOf(t, [
    upstream.settings('up.test', { timeout: '60s' }),
    feed.as('feed.test', { timeout: '60s' }),
  ]);
  for (const path of [
    `/v2/up.test/team/app/blobs/${largeDigest}`,
    '/v2/up.test/team/app/manifests/v1',
    '/v3/package/some.package/index.json',
    '/v3/registration/some.package/index.json',
  ]) {
    if (path.includes('registration')) feed.upstream.on('/registration/some.package/index.json', silent);
    const first = begin(server, path);
    const second = begin(server, path);
    await until(() => open.count === 1);
    first.leave();
    await server.fetch('/livez');
    t.is(open.count, 1, 'one is still waiting');
    second.leave();
    await until(() => open.count === 0);
  }
  t.pass();
});

test('an endless body stops soon after its last reader disconnects', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const sent = { bytes: 0 };
  let closed = false;
  upstream.on(`/v2/team/app/blobs/${largeDigest}`, (asked, response) => {
    response.once('close', () => (closed = true));
    endless(sent)(asked, response);
  });
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test')],
    mirror: { unreadRest: '1MiB' },
  });
  const client = begin(server, `/v2/up.test/team/app/blobs/${largeDigest}`);
  await client.has(1);
  client.leave();
  await until(() => closed);
  t.true(sent.bytes < 2 ** 30);
  await closeMirror(server);
});

test('a fetch without readers finishes if little is missing; otherwise the next reader resumes it', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const path = `/v2/team/app/blobs/${largeDigest}`;
  const half = large.length / 2;
  const gate = held((_request, response) => void response.end(large.subarray(half)));
  let closed = 0;
  const begun: Behaviour = (asked, response) => {
    response.once('close', () => (closed += 1));
    response.writeHead(200, { 'content-length': large.length });
    response.write(large.subarray(0, half));
    gate.behaviour(asked, response);
  };
  upstream.on(path, begun, serve(large));
  const settings = { upstreams: [upstream.settings('up.test', { timeout: '20s' })] };
  const server = await startTestServer(t, { ...settings, mirror: { unreadRest: '1MiB' } });
  const client = begin(server, `/v2/up.test/team/app/blobs/${largeDigest}`);
  await client.has(half - 2 ** 20);
  client.leave();
  await until(() => closed === 1);
  const next = await server.fetch(`/v2/up.test/team/app/blobs/${largeDigest}`);
  t.true(Buffer.from(await next.arrayBuffer()).equals(large));
  const ranges = upstream.asked.filter((each) => each.path === path).map(({ range }) => range);
  t.is(ranges.length, 2);
  t.regex(ranges[1] ?? '', /^bytes=\d{8}-$/, 'only the rest is requested');
  t.true(Number(/\d+/.exec(ranges[1]!)![0]) >= half - 2 ** 20);
  t.deepEqual(
    (await server.fetch(`/v2/up.test/team/app/blobs/${largeDigest}`)).headers.get('cache-status'),
    'entrepot; hit',
  );

  const patient = await startTestServer(t, { ...settings, mirror: { unreadRest: '22MiB' } });
  upstream.on(path, begun);
  const leaving = begin(patient, `/v2/up.test/team/app/blobs/${largeDigest}`);
  await leaving.has(half - 2 ** 20);
  leaving.leave();
  gate.release();
  await until(async () => (await rowsOf(patient, 'SELECT id FROM mirror_entries')).length > 0);
  t.is(upstream.asked.filter((each) => each.path === path).length, 3);
});

test('the concurrent fetches of an account are limited; further ones wait, those of other accounts do not', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const gates = [0, 1, 2, 3].map((index) => {
    const bytes = Buffer.from(`layer ${index}`);
    const gate = held(serve(bytes));
    const path = `/v2/team/app/blobs/${digestOf(bytes)}`;
    upstream.on(path, gate.behaviour);
    return { ...gate, path: path.replace('/v2/', '/v2/up.test/'), bytes, upstreamPath: path };
  });
  const quick = upstream.blob('team/app', 'quick');
  const slow = Buffer.from('anonymous');
  upstream.on(`/v2/team/app/blobs/${digestOf(slow)}`, serve(slow));
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test', { timeout: '60s' })],
    limits: { accountFetches: 2 },
    anonymousRead: true,
  });
  const token = await otherAccount(server, 'other');
  const answers = gates.slice(0, 3).map(({ path }) => server.fetch(path).then((each) => each.text()));
  await until(() => upstream.count(gates[0]!.upstreamPath) + upstream.count(gates[1]!.upstreamPath) === 2);
  const leaving = begin(server, gates[3]!.path);
  t.is(await (await server.fetch(`/v2/up.test/team/app/blobs/${quick.digest}`, { token })).text(), 'quick');
  const anonymous = await server.fetch(`/v2/up.test/team/app/blobs/${digestOf(slow)}`, { token: null });
  t.is(await anonymous.text(), 'anonymous');
  // Another account does not wait behind the waiting account.
  gates[2]!.release();
  t.is(await (await server.fetch(gates[2]!.path, { token })).text(), 'layer 2');
  leaving.leave();
  for (const gate of gates) gate.release();
  t.deepEqual(await Promise.all(answers), ['layer 0', 'layer 1', 'layer 2']);
  t.is(upstream.count(gates[3]!.upstreamPath), 0, 'the fetch of the disconnected client was never sent');
});

test('a blob must not be larger than the stored manifest says', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const digest = digestOf('a small layer');
  const sent = { bytes: 0 };
  upstream.on(`/v2/team/app/blobs/${digest}`, endless(sent));
  const config = upstream.blob('team/app', '{}');
  const layers = [{ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest, size: 13 }];
  upstream.manifest('team/app', { schemaVersion: 2, mediaType: ociManifest, config, layers }, 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  for (const reference of ['v1', 'v1']) {
    t.is((await server.fetch(`/v2/up.test/team/app/manifests/${reference}`)).status, 200);
    const client = begin(server, `/v2/up.test/team/app/blobs/${digest}`);
    const outcome = await client.head.then(
      async (response) => {
        response.on('error', () => undefined).resume();
        await once(response, 'close');
        return response.complete && response.statusCode === 200;
      },
      () => false,
    );
    t.false(outcome);
  }
  t.true(sent.bytes < 64 * 2 ** 20, `${sent.bytes}`);
  const other = await startTestServer(t, { data: server.data, upstreams: [upstream.settings('up.test')] });
  const before = sent.bytes;
  const response = await other.fetch(`/v2/up.test/team/app/blobs/${digest}`).catch(() => undefined);
  await response?.arrayBuffer().catch(() => undefined);
  t.true(sent.bytes - before < 32 * 2 ** 20, 'the same limit on another instance');
  upstream.on(`/v2/team/app/blobs/${digest}`, answer(200, {}, 'a small layer'));
  server.clock.now = Date.now() + 120_000;
  t.is(await (await server.fetch(`/v2/up.test/team/app/blobs/${digest}`)).text(), 'a small layer');
});

test('with a full disk, blobs are verified and streamed without being stored, and stored content is served', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const stored = upstream.blob('team/app', 'stored before');
  upstream.on(`/v2/team/app/blobs/${largeDigest}`, serve(large));
  const chunked = randomBytes(9 * 2 ** 20);
  upstream.on(`/v2/team/app/blobs/${digestOf(chunked)}`, serve(chunked, { length: false }));
  const wrong = digestOf('something else');
  upstream.on(`/v2/team/app/blobs/${wrong}`, serve(large));
  const cut = randomBytes(9 * 2 ** 20);
  upstream.on(
    `/v2/team/app/blobs/${digestOf(cut)}`,
    serve(cut, { until: 5_000_000 }),
    serve(cut, { until: 2_000_000 }),
    serve(cut),
  );
  const image = upstream.image('team/app', 'v1');
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Some.Package', versions: [{ version: '1.0.0' }] });
  const upstreams = [upstream.settings('up.test'), feed.as('feed.test')];
  const first = await startTestServer(t, { upstreams });
  await readBlob(first, stored.digest);
  await first.close();

  const full = await startTestServer(t, { upstreams, data: first.data, storage: { reserve: '1000TiB' } });
  t.is((await readBlob(full, stored.digest)).response.headers.get('cache-status'), 'entrepot; hit');
  for (const turn of ['first', 'again']) {
    const { response, bytes } = await readBlob(full, largeDigest);
    t.true(bytes.equals(large), turn);
    t.is(response.headers.get('cache-status'), 'entrepot; fwd=miss', turn);
  }
  t.true((await readBlob(full, digestOf(chunked))).bytes.equals(chunked), 'without Content-Length');
  t.true((await readBlob(full, digestOf(cut))).bytes.equals(cut), 'interrupted twice and resumed');
  const range = await readBlob(full, largeDigest, { headers: { range: 'bytes=30000000-30000999' } });
  t.is(range.response.status, 206);
  t.true(range.bytes.equals(large.subarray(30_000_000, 30_001_000)));
  const crowd = await Promise.all(Array.from({ length: 5 }, () => readBlob(full, largeDigest)));
  t.true(crowd.every(({ bytes }) => bytes.equals(large)));
  const outcome = await readBlob(full, wrong).then(
    ({ response }) => response.status,
    () => 'cut',
  );
  t.true(outcome === 'cut' || outcome === 502 || outcome === 504, `a wrong body completes at no client: ${outcome}`);
  // What is verified as a whole is kept in memory.
  const manifest = await full.fetch('/v2/up.test/team/app/manifests/v1');
  t.is(manifest.headers.get('cache-status'), 'entrepot; fwd=miss');
  t.is(await manifest.text(), image.manifest.bytes);
  const nupkg = await full.fetch('/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg');
  t.is(nupkg.headers.get('cache-status'), 'entrepot; fwd=miss');
  t.is((await nupkg.arrayBuffer()).byteLength, Number(nupkg.headers.get('content-length')));
  const rows = await rowsOf<{ digest: string }>(full, 'SELECT digest FROM mirror_entries');
  t.deepEqual(
    rows.map(({ digest }) => digest),
    [stored.digest],
  );
  await full.close();

  // Between the reserve and half of it, documents and packages are fetched, sent and then deleted.
  const { bavail, bsize } = await statfs(tmpdir());
  const reserve = Math.floor(bavail * bsize * 1.5);
  const tight = await startTestServer(t, { upstreams, data: first.data, storage: { reserve } });
  const served = await tight.fetch('/v2/up.test/team/app/manifests/v1');
  t.is(served.headers.get('docker-content-digest'), image.manifest.digest);
  t.is(served.headers.get('cache-status'), 'entrepot; fwd=miss');
  t.is(await served.text(), image.manifest.bytes);
  const bytes = await tight.fetch('/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg');
  t.is(bytes.status, 200);
  t.is((await bytes.arrayBuffer()).byteLength, Number(bytes.headers.get('content-length')));
  t.is((await rowsOf(tight, 'SELECT id FROM mirror_entries')).length, 1);
  await tight.close();

  const roomy = await startTestServer(t, { upstreams, data: first.data });
  await readBlob(roomy, largeDigest);
  t.is(
    (await readBlob(roomy, largeDigest)).response.headers.get('cache-status'),
    'entrepot; hit',
    'with free space again',
  );
});

test('a client that does not read its answers is disconnected, for every kind of request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const tags = Array.from({ length: 5000 }, (_, index) => `tag-${index}-${'x'.repeat(100)}`);
  upstream.on('/v2/team/app/tags/list', answer(200, { 'content-type': 'application/json' }, JSON.stringify({ tags })));
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test')],
    limits: { uploadIdle: '2s' },
  });
  const annotations = { long: 'x'.repeat(3_500_000) };
  await new TestRepository(server, 'team/hosted').image('v1', { annotations });
  await new TestFeed(server).publish({ id: 'Some.Package', version: '1.0.0', payloadBytes: 3_000_000 });
  const { hostname, port } = new URL(server.url);
  for (const path of [
    '/v2/team/hosted/manifests/v1',
    '/v2/up.test/team/app/tags/list',
    '/v3/package/some.package/1.0.0/some.package.1.0.0.nupkg',
    '/v1/openapi.json',
    '/metrics',
  ]) {
    const socket = connect(Number(port), hostname);
    t.teardown(() => socket.destroy());
    socket.pause();
    const asked = `GET ${path} HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${server.token}\r\n\r\n`;
    socket.write(asked.repeat(path.startsWith('/v2') || path.startsWith('/v3') ? 60 : 2000));
    socket.on('error', () => undefined);
    await until(() => server.lines.some((line) => isCut(line, path)));
  }
  t.pass();
});

/** Whether a log line reports an answer that its client did not receive completely. */
function isCut(line: string, path: string): boolean {
  const { msg, path: asked, complete } = JSON.parse(line) as { msg: string; path: string; complete: boolean };
  return msg === 'request' && asked === path && !complete;
}
