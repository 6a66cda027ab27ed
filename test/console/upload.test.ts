import { once } from 'node:events';
import { connect } from 'node:net';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm, TestFeed } from '../support/feed.ts';
import { createToken, flushUsage, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { until } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';

async function upload(visitor: Visitor, bytes: Buffer, headers: Record<string, string> = {}) {
  const { body, type } = packageForm(bytes);
  const response = await visitor.fetch('/console/upload', {
    method: 'POST',
    body: new Uint8Array(body),
    headers: { 'content-type': type, 'sec-fetch-site': 'same-origin', ...headers },
  });
  const location = response.headers.get('location');
  const isRefused = location?.startsWith('/console/upload?refused=') === true;
  const text = isRefused ? await visitor.refusedPage(response) : await response.text();
  return { status: response.status, location, text, isRefused };
}

const errorIn = (text: string) => /id="package-error"[^>]*>([^<]*)/.exec(text)?.[1] ?? '';

const staged = (server: TestServer) => readdir(join(server.data, 'staging'));

test('an uploaded package is published as by a push, counts as one, and leads to its page', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/upload'), /enctype="multipart\/form-data"[^]*data-drop[^]*type="file"/);
  const bytes = await makeNupkg({ id: 'My.Package', version: '1.0.0' });
  const done = await upload(visitor, bytes);
  t.is(done.status, 303, done.text);
  t.is(done.location, '/console/packages/My.Package');
  const feed = new TestFeed(server);
  const stored = await feed.fetch('/package/my.package/1.0.0/my.package.1.0.0.nupkg');
  t.true(Buffer.from(await stored.arrayBuffer()).equals(bytes));
  await flushUsage(server);
  const usage = (await (await server.fetch('/v1/account/usage?group_by=package')).json()) as any;
  t.is(usage.requests.uploads, 1);
  t.like(usage.items[0], { key: 'my.package', uploads: 1 }, JSON.stringify(usage.items));
  t.true(usage.bandwidth.ingress_bytes > bytes.length);
  const [event] = ((await (await server.fetch('/v1/audit?type=package.published')).json()) as any).items;
  t.like(event.actor, { kind: 'token' });

  const again = await upload(visitor, bytes);
  t.true(again.isRefused);
  t.regex(again.text, /id="package-error"[^>]*>[^<]*My\.Package/);
  t.deepEqual(await staged(server), []);

  const document = await OpenDocument.of(server);
  const { body, type } = packageForm(await makeNupkg({ id: 'My.Package', version: '2.0.0' }));
  const init = { method: 'POST', body: new Uint8Array(body), headers: { 'content-type': type } };
  const answer = await document.read('POST /packages', await server.fetch('/v1/packages', init));
  t.deepEqual(answer, { id: 'My.Package', version: '2.0.0', warnings: [] });
  t.is((await server.fetch('/v1/packages', { method: 'POST', body: new Uint8Array(bytes) })).status, 415);
});

test('a package that replaces a mirrored one is published with a warning', async (t) => {
  const upstream = await UpstreamFeed.start(t);
  await upstream.offer({ id: 'Taken', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t, { upstreams: [upstream.as('up.test')] });
  await (await new TestFeed(server).fetch('/package/taken/1.0.0/taken.1.0.0.nupkg')).arrayBuffer();
  const done = await upload(await Visitor.signedIn(server), await makeNupkg({ id: 'Taken', version: '9.0.0' }));
  t.is(done.status, 201);
  t.regex(done.text, /href="\/console\/packages\/Taken"[^]*was mirrored from up\.test until now/);
});

test('wrong files, limits and quota are said beside the field, and nothing stays staged', async (t) => {
  const server = await startTestServer(t, { limits: { nupkg: '64KiB', accountStorage: 100_000 } });
  const visitor = await Visitor.signedIn(server);
  const large = Buffer.alloc(70_000, 1);
  for (const [bytes, expected] of [
    [Buffer.from('not a zip'), /[^.]\. Send it again\.$/],
    [Buffer.alloc(0), /contains no package/],
    [large, /larger than/],
  ] as const) {
    t.regex(errorIn((await upload(visitor, bytes)).text), expected);
  }
  t.regex(errorIn(await visitor.refused('/console/upload', { package: 'x' })), /./, 'not a multipart form');
  const full = await upload(visitor, Buffer.alloc(120_000, 1));
  t.regex(errorIn(full.text), /its limit is 100000 bytes/);
  t.deepEqual(await staged(server), []);
});

test('a visitor without write, or whose patterns exclude the package, cannot upload it', async (t) => {
  const server = await startTestServer(t);
  const bytes = await makeNupkg({ id: 'My.Package', version: '1.0.0' });
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin', 'operate']));
  t.is((await reader.fetch('/console/upload')).status, 403);
  t.is((await upload(reader, bytes)).status, 403);
  const { value } = await createToken(server, ['read', 'write'], 'default', { packages: ['Other.*'] });
  const limited = await upload(await Visitor.signedIn(server, value), bytes);
  t.regex(limited.text, /id="package-error"[^]*my\.package/);
  const { value: images } = await createToken(server, ['read', 'write'], 'default', { containers: ['*'] });
  t.true((await upload(await Visitor.signedIn(server, images), bytes)).isRefused);
  t.is((await new TestFeed(server).fetch('/package/my.package/index.json')).status, 404);
});

test('a form of another site, or without a session, is refused before its body is read', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const { port, hostname } = new URL(server.url);
  const answer = async (headers: string) => {
    const socket = connect(Number(port), hostname);
    t.teardown(() => socket.destroy());
    await once(socket, 'connect');
    socket.write(
      `POST /console/upload HTTP/1.1\r\nHost: ${hostname}:${port}\r\nContent-Length: 1000000\r\n` +
        `Content-Type: multipart/form-data; boundary=x\r\n${headers}\r\n` +
        '--x\r\nContent-Disposition: form-data; name="package"; filename="a"\r\n\r\nbegin',
    );
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    return chunk.toString().split('\r\n', 1)[0]!;
  };
  const cookie = `Cookie: ${visitor.cookie}\r\n`;
  t.regex(await answer(`${cookie}Sec-Fetch-Site: cross-site\r\n`), / 403 /);
  t.regex(await answer(`${cookie}Origin: http://evil.test\r\n`), / 403 /);
  t.regex(await answer('Sec-Fetch-Site: same-origin\r\n'), / 303 /);
  t.deepEqual(await staged(server), []);
});

test('an upload is staged while it arrives, and one that is cut leaves nothing', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const { port, hostname } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(
    `POST /console/upload HTTP/1.1\r\nHost: ${hostname}:${port}\r\nContent-Length: 10000000\r\nCookie: ${visitor.cookie}\r\n` +
      'Sec-Fetch-Site: same-origin\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n' +
      '--x\r\nContent-Disposition: form-data; name="package"; filename="a"\r\n\r\n',
  );
  socket.write(Buffer.alloc(3_000_000, 1));
  await until(async () => (await staged(server)).length === 1);
  socket.destroy();
  await until(async () => (await staged(server)).length === 0);
  t.pass();
});
