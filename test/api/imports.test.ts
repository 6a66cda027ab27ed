import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { eventually, until } from '../support/until.ts';
import { answer, held, serve } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// imports.long.test.ts has the rest: a full disk, private addresses, the page, and that no secret is stored.

type Answer = Record<string, any>;

test('an import of an account: its bounds, its results, its failures in pages, and what others see of it', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['A', 'B', 'C', 'D']) await source.offer({ id, versions: [{ version: '1.0.0' }] });
  for (const id of ['c', 'd']) source.upstream.on(`/flat/${id}/1.0.0/${id}.1.0.0.nupkg`, answer(404));
  const file = held(serve(await makeNupkg({ id: 'B', version: '1.0.0' })));
  const server = await startTestServer(t, { imports: { allow: ['127.0.0.1'] } });
  server.clock.now = Date.now();
  const other = await tokenOf(server, ['read', 'admin'], 'other');
  const call = async (method: string, path: string, body?: object, token = server.token): Promise<Answer> => {
    const init = { method, token };
    const response = await server.fetch(`/v1/imports${path}`, {
      ...init,
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    return { status: response.status, ...(response.status === 204 ? {} : ((await response.json()) as Answer)) };
  };
  const ended = (id: string, token?: string) =>
    eventually(
      () => call('GET', `/${id}`, undefined, token),
      ({ state }) => state !== 'running',
    );
  const secret = 'the-secret';
  const body = { kind: 'feed', url: `${source.url}/index.json`, user: 'me', secret, concurrency: 1 };
  for (const [wrong, field] of [
    [{ url: 'file:///etc/passwd' }, 'url'],
    [{ url: 'http://me:word@old.example/' }, 'url'],
    [{ url: 'https://old.example/v3/index.json?key=1' }, 'url'],
    [{ kind: 'folder' }, 'kind'],
    [{ rename: ['no rule'] }, 'rename'],
    [{ concurrency: 17 }, 'concurrency'],
  ] as const) {
    const { status, detail } = await call('POST', '', { ...body, ...wrong });
    t.deepEqual([status, detail.startsWith(`${field}: `)], [400, true], detail);
  }
  for (const scopes of [
    ['read', 'write', 'delete'],
    ['read', 'operate'],
  ]) {
    const token = await tokenOf(server, scopes);
    t.is((await call('GET', '', undefined, token)).status, 403);
    t.is((await call('POST', '', body, token)).status, 403);
  }

  const planned = await call('POST', '', { ...body, dry_run: true });
  t.like(planned, { status: 201, dry_run: true, needs_secret: true, user: 'me', state: 'running' });
  t.like(await ended(planned['id']), { state: 'done', ended: 4 });
  t.is((await new TestFeed(server).fetch('/package/a/index.json')).status, 404, 'nothing came');
  source.upstream.on('/flat/b/1.0.0/b.1.0.0.nupkg', file.behaviour);
  server.clock.now += 1000;
  const { id } = await call('POST', '', body);
  t.is((await call('POST', '', body)).status, 429, 'one at a time');
  t.is((await call('POST', `/${planned['id']}/resume`, { secret })).status, 429);
  t.is((await call('POST', `/${id}/resume`, { secret })).status, 429);
  const chosen = { only: ['A'], names: ['A', 'B'] };
  const theirs = await call('POST', '', { ...body, ...chosen }, other);
  t.like(theirs, { ...chosen, rename: [] });
  t.like(await ended(theirs['id'], other), { state: 'done', results: { imported: { count: 1 } } });
  t.is((await new TestFeed(server, other).fetch('/package/a/index.json')).status, 200);
  t.is((await new TestFeed(server, other).fetch('/package/b/index.json')).status, 404, 'what it wants alone');
  await until(() => source.upstream.count('/flat/b/1.0.0/b.1.0.0.nupkg') > 0);
  file.release();
  const run = await ended(id);
  t.like(run, { state: 'done', known: 4, ended: 4, error: null });
  t.like(run['results'], { imported: { count: 2 }, failed: { count: 2, size_bytes: 0 } });
  t.true(run['results'].imported.size_bytes > 0 && run['received_bytes'] > 0);
  t.is((await new TestFeed(server).fetch('/package/a/index.json')).status, 200);

  const first = await call('GET', `/${id}/problems?limit=1`);
  const second = await call('GET', `/${id}/problems?limit=1&cursor=${first['next_cursor']}`);
  t.deepEqual(
    [...first['items'], ...second['items']].map(({ name, reference, outcome }) => [name, reference, outcome]),
    [
      ['C', '1.0.0', 'failed'],
      ['D', '1.0.0', 'failed'],
    ],
  );
  t.regex(first['items'][0].reason, /does not have its file/);
  t.is(second['next_cursor'], null);
  t.is((await call('GET', `/${planned['id']}/problems?cursor=${first['next_cursor']}`)).status, 400, 'of another run');
  const list = async (token?: string) =>
    (await call('GET', '', undefined, token))['items'].map((each: Answer) => each['id']);
  t.deepEqual(await list(), [id, planned['id']], 'the latest first');
  t.deepEqual(await list(other), [theirs['id']]);
  for (const [method, path] of [
    ['GET', ''],
    ['GET', '/problems'],
    ['POST', '/resume'],
    ['DELETE', ''],
  ] as const)
    t.is((await call(method, `/${id}${path}`, method === 'POST' ? { secret } : undefined, other)).status, 404);

  t.is((await call('GET', `/${theirs['id']}`)).status, 404, 'of an account that was made later');

  source.upstream.on('/flat/c/1.0.0/c.1.0.0.nupkg', serve(await makeNupkg({ id: 'C', version: '1.0.0' })));
  const without = await call('POST', `/${id}/resume`, {});
  t.is(without.status, 400);
  t.regex(without['detail'], /Send the secret of the source again: it is not stored/);
  t.is((await call('POST', `/${id}/resume`, { secret })).status, 201);
  t.like((await ended(id))['results'], { imported: { count: 1 }, present: { count: 2 }, failed: { count: 1 } });
  t.is((await call('GET', `/${id}/problems`))['items'].length, 1);
  const login = `Basic ${Buffer.from(`me:${secret}`).toString('base64')}`;
  const asked = source.upstream.asked.filter(({ path }) => path.includes('/flat/c/'));
  t.true(asked.every(({ headers }) => headers.authorization === login));
  t.is((await call('DELETE', `/${id}`)).status, 204);
  t.is((await call('GET', `/${id}`)).status, 404);
  t.is((await call('DELETE', `/${id}`)).status, 404);
});
