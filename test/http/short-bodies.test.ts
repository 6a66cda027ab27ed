import { connect } from 'node:net';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import test, { type ExecutionContext } from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm, TestFeed } from '../support/feed.ts';
import { digestOf, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';
import { serve, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// Bodies that end before their announced end. What arrives is complete by itself, so only the announced end shows that
// something is missing.

/** How the body says where it ends, and how its connection ends before that. */
const cuts = [
  ['a body shorter than its Content-Length', 'length', 'end'],
  ['a body in chunks without the last one', 'chunks', 'end'],
  ['a reset before the end of the Content-Length', 'length', 'reset'],
] as const;
type Cut = (typeof cuts)[number];

interface Sent {
  method: string;
  path: string;
  type: string;
  body: Buffer;
}

/** Sends `body` as the beginning of a longer one; resolves to all that the server answers until the connection is closed. */
async function sendShort({ url, token }: TestServer, { method, path, type, body }: Sent, cut: Cut): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  socket.on('error', () => undefined);
  const [, framing, end] = cut;
  const length = framing === 'length' ? `Content-Length: ${body.length + 1000}` : 'Transfer-Encoding: chunked';
  const head = [`${method} ${path} HTTP/1.1`, `Host: ${hostname}`, `Authorization: Bearer ${token}`];
  socket.write(`${[...head, `Content-Type: ${type}`, length].join('\r\n')}\r\n\r\n`);
  if (framing === 'chunks') socket.write(`${body.length.toString(16)}\r\n`);
  socket.write(body);
  if (framing === 'chunks') socket.write('\r\n');
  if (end === 'end') {
    socket.end();
    return within(text(socket), 60_000);
  }
  // The server must have read what was sent before it sees the reset.
  await until(() => socket.writableLength === 0);
  socket.resetAndDestroy();
  return '';
}

/** Waits until the server has finished the request, and fails if it succeeded. */
async function checkRefused(t: ExecutionContext, server: TestServer, sent: Sent, cut: Cut): Promise<void> {
  const from = server.lines.length;
  const answer = await sendShort(server, sent, cut);
  t.notRegex(answer, /^HTTP\/1\.1 [23]/);
  const path = sent.path.split('?', 1)[0]!;
  const finished = () =>
    server.lines
      .slice(from)
      .map((line) => JSON.parse(line) as { msg: string; path: string; status: number; complete: boolean })
      .filter((line) => line.msg === 'request' && line.path === path);
  await until(() => finished().length > 0, 60_000);
  for (const { status, complete } of finished()) t.false(complete && status < 400, `${status}`);
}

const blob = Buffer.from('complete by itself');

for (const cut of cuts) {
  test(`${cut[0]} stores no blob, manifest, package or token`, async (t) => {
    const server = await startTestServer(t);
    const repository = new TestRepository(server, 'team/app');
    const manifest = Buffer.from(JSON.stringify(await repository.manifest()));
    const before = (await readdir(join(server.data, 'blobs'), { recursive: true })).sort();

    const session = await repository.start();
    for (const [method, path] of [
      ['POST', `/v2/team/app/blobs/uploads/?digest=${digestOf(blob)}`],
      ['PUT', `${session}?digest=${digestOf(blob)}`],
    ] as const)
      await checkRefused(t, server, { method, path, type: 'application/octet-stream', body: blob }, cut);
    t.is((await repository.fetch(`blobs/${digestOf(blob)}`)).status, 404);

    const path = '/v2/team/app/manifests/1.0';
    await checkRefused(t, server, { method: 'PUT', path, type: ociManifest, body: manifest }, cut);
    for (const reference of ['1.0', digestOf(manifest)])
      t.is((await repository.fetch(`manifests/${reference}`)).status, 404);

    const nupkg = await makeNupkg({ id: 'Short', version: '1.0.0' });
    const form = packageForm(nupkg);
    for (const [type, body] of [
      ['application/octet-stream', nupkg],
      [form.type, form.body],
    ] as const)
      await checkRefused(t, server, { method: 'PUT', path: '/v3/push', type, body }, cut);
    const feed = new TestFeed(server);
    t.is((await feed.fetch('/package/short/1.0.0/short.1.0.0.nupkg')).status, 404);

    const body = Buffer.from(JSON.stringify({ name: 'short', scopes: ['read'] }));
    await checkRefused(t, server, { method: 'POST', path: '/v1/tokens', type: 'application/json', body }, cut);
    t.notRegex(await (await server.fetch('/v1/tokens')).text(), /"short"/);

    const after = (await readdir(join(server.data, 'blobs'), { recursive: true })).sort();
    t.deepEqual(after, before);
    t.is((await repository.put('1.0', manifest)).status, 201, 'the whole body is stored');
  });
}

for (const length of [true, false]) {
  const name = length ? 'a shorter body than its Content-Length' : 'a body in chunks without the last one';

  test(`${name} of an upstream is no manifest, blob or package`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [upstream.settings('up.test', { timeout: '20s' }), up.as('feed.test')]);
    /** The body, or the status if it is not 200, or undefined if the body is not complete. */
    const read = async (path: string) => {
      try {
        const answer = await server.fetch(path);
        const bytes = Buffer.from(await answer.arrayBuffer());
        return answer.status === 200 ? bytes : answer.status;
      } catch {
        return undefined;
      }
    };
    const manifest = Buffer.from(upstream.image('app', '1.0').manifest.bytes);
    const digest = upstream.blob('app', blob).digest;
    const whole = serve(manifest, { headers: { 'content-type': ociManifest } });
    // Without its digest in a header, only the end shows that something is missing.
    upstream.on('/v2/app/manifests/1.0', short(manifest, length, { 'content-type': ociManifest }));
    upstream.on(`/v2/app/blobs/${digest}`, short(blob, length));
    t.false(Buffer.isBuffer(await read('/v2/up.test/app/manifests/1.0')));
    t.false(Buffer.isBuffer(await read(`/v2/up.test/app/blobs/${digest}`)));
    upstream.on('/v2/app/manifests/1.0', whole);
    upstream.on(`/v2/app/blobs/${digest}`, serve(blob));
    await until(async () => Buffer.isBuffer(await read('/v2/up.test/app/manifests/1.0')), 60_000);
    t.deepEqual(await read(`/v2/up.test/app/blobs/${digest}`), blob);
    t.true(upstream.count(`/v2/app/blobs/${digest}`, 'GET') >= 2, 'the short body was not kept');

    await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
    const nupkg = await makeNupkg({ id: 'A', version: '1.0.0' });
    const versions = Buffer.from(JSON.stringify({ versions: ['1.0.0'] }));
    up.upstream.on('/flat/a/1.0.0/a.1.0.0.nupkg', short(nupkg, length));
    up.upstream.on('/flat/a/index.json', short(versions, length));
    t.false(Buffer.isBuffer(await read('/v3/package/a/1.0.0/a.1.0.0.nupkg')));
    t.false(Buffer.isBuffer(await read('/v3/package/a/index.json')));
    up.upstream.on('/flat/a/1.0.0/a.1.0.0.nupkg', serve(nupkg));
    await until(async () => Buffer.isBuffer(await read('/v3/package/a/1.0.0/a.1.0.0.nupkg')), 60_000);
    t.deepEqual(await read('/v3/package/a/1.0.0/a.1.0.0.nupkg'), nupkg);
  });
}

/** An answer that announces more than `bytes`, by its Content-Length or in chunks, and ends after them. */
function short(bytes: Buffer, length: boolean, headers = {}): Behaviour {
  const more = Buffer.concat([bytes, Buffer.alloc(1000, ' ')]);
  return serve(more, { headers, length, ranges: false, until: bytes.length, how: 'end' });
}
