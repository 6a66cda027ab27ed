import { once } from 'node:events';
import test from 'ava';
import { CheckedFetch } from '../../src/upstream/checked-fetch.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

// Small documents that are fetched with the address checks of upstreams.

test('a small document is fetched as it is answered, without following redirects', async (t) => {
  const server = await startFaultyUpstream(t);
  const checked = new CheckedFetch({ allowPrivate: true, proxy: {} });
  t.teardown(() => checked.close());
  const url = (path: string) => new URL(path, server.url);
  server.on('/doc', answer(200, { 'content-type': 'text/plain', 'set-cookie': ['a=1', 'b=2'] }, 'the text'));
  const found = await checked.fetch(url('/doc'), { headers: { accept: 'text/plain' } });
  t.deepEqual([found.status, found.headers.get('content-type'), await found.text()], [200, 'text/plain', 'the text']);
  t.deepEqual(found.headers.getSetCookie(), ['a=1', 'b=2']);
  t.like(server.asked[0], { method: 'GET', headers: { accept: 'text/plain' } });
  server.on('/moved', answer(302, { location: '/doc' }));
  t.is((await checked.fetch(url('/moved'))).status, 302);
  for (const status of [204, 304]) {
    server.on('/empty', answer(status));
    const empty = await checked.fetch(url('/empty'));
    t.deepEqual([empty.status, empty.body], [status, null]);
  }
  let sent = '';
  server.on('/form', async (request, response) => {
    request.on('data', (piece: Buffer) => (sent += piece.toString()));
    await once(request, 'end');
    response.writeHead(201).end();
  });
  t.is((await checked.fetch(url('/form'), { method: 'POST', body: 'a=b' })).status, 201);
  t.deepEqual([server.asked.at(-1)!.method, sent], ['POST', 'a=b']);
});

test('a document that is too large, cancelled, or at an address that is refused is an error', async (t) => {
  const server = await startFaultyUpstream(t);
  const checked = new CheckedFetch({ allowPrivate: true, proxy: {} });
  t.teardown(() => checked.close());
  const limit = 256 * 1024;
  server.on('/doc', answer(200, {}, Buffer.alloc(limit)), answer(200, {}, Buffer.alloc(limit + 1)));
  const url = new URL('/doc', server.url);
  t.is((await (await checked.fetch(url)).arrayBuffer()).byteLength, limit);
  await t.throwsAsync(checked.fetch(url), { message: `sends more than the limit of ${limit} bytes` });
  await t.throwsAsync(checked.fetch(url, { signal: AbortSignal.abort(new Error('cancelled')) }), {
    message: 'cancelled',
  });
  const open = new CheckedFetch({ allowPrivate: false, proxy: {} });
  await t.throwsAsync(open.fetch(url), { message: /127\.0\.0\.1 is a private address/ });
  open.close();
  await t.throwsAsync(open.fetch(url), { message: /this server is stopping/ });
});
