import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { TestDisk } from '../support/test-disk.ts';
import { until } from '../support/until.ts';
import { answer, held, serve } from '../support/upstreams/faulty-upstream.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

const secret = 'the-secret-of-the-source';
const loopback = { imports: { allow: ['127.0.0.1'] } };

type Answer = Record<string, any>;

async function call(server: TestServer, method: string, path: string, body?: object, token?: string): Promise<Answer> {
  const response = await server.fetch(`/v1/imports${path}`, {
    method,
    ...(token !== undefined && { token }),
    ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  return { status: response.status, ...(response.status === 204 ? {} : ((await response.json()) as Answer)) };
}

/** The run when it has ended. */
async function ended(server: TestServer, id: string, token?: string): Promise<Answer> {
  let run: Answer = {};
  await until(async () => {
    run = await call(server, 'GET', `/${id}`, undefined, token);
    return run['state'] !== 'running';
  });
  return run;
}

/** All bytes that the server has stored or logged. */
async function everything({ data, lines }: TestServer): Promise<string> {
  const files = await readdir(data, { recursive: true, withFileTypes: true });
  const texts = files
    .filter((each) => each.isFile())
    .map((each) => readFile(join(each.parentPath, each.name), 'latin1').catch(() => ''));
  return [...(await Promise.all(texts)), ...lines].join('\n');
}

test('an import by the API: assessment, progress, results and failures in pages; the secret is kept nowhere', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['A', 'B', 'C', 'D']) await source.offer({ id, versions: [{ version: '1.0.0' }] });
  for (const id of ['b', 'c', 'd']) source.upstream.on(`/flat/${id}/1.0.0/${id}.1.0.0.nupkg`, answer(404));
  const server = await startTestServer(t, loopback);
  const document = await OpenDocument.of(server);
  const body = { kind: 'feed', url: `${source.url}/index.json`, user: 'me', secret, concurrency: 1 };
  const planned = await call(server, 'POST', '', { ...body, dry_run: true });
  t.like(planned, { status: 201, dry_run: true, needs_secret: true, user: 'me' });
  t.like(await ended(server, planned['id']), { state: 'done', ended: 4 });
  t.is((await new TestFeed(server).fetch('/package/a/index.json')).status, 404);
  const { id } = await call(server, 'POST', '', body);
  const run = await ended(server, id);
  t.like(run, { state: 'done', known: 4, ended: 4, error: null });
  t.like(run['results'], { imported: { count: 1 }, failed: { count: 3, size_bytes: 0 } });
  t.is((await new TestFeed(server).fetch('/package/a/index.json')).status, 200);
  const first = await call(server, 'GET', `/${id}/problems?limit=2`);
  const second = await call(server, 'GET', `/${id}/problems?limit=2&cursor=${first['next_cursor']}`);
  const problems = [...first['items'], ...second['items']];
  t.deepEqual(
    problems.map(({ name, reference, outcome }: Answer) => [name, reference, outcome]),
    ['B', 'C', 'D'].map((name) => [name, '1.0.0', 'failed']),
  );
  t.regex(problems[0].reason, /does not have its file/);
  t.is(second['next_cursor'], null);
  t.is((await call(server, 'GET', `/${planned['id']}/problems?cursor=${first['next_cursor']}`)).status, 400);
  const listed = await document.read('GET /imports', await server.fetch('/v1/imports'));
  t.is((listed['items'] as unknown[]).length, 2);
  await document.read('GET /imports/{id}', await server.fetch(`/v1/imports/${id}`));
  await document.read('GET /imports/{id}/problems', await server.fetch(`/v1/imports/${id}/problems`));
  const login = `Basic ${Buffer.from(`me:${secret}`).toString('base64')}`;
  t.true(source.upstream.asked.some(({ headers }) => headers.authorization === login));
  // It continues only with the secret, which nobody has kept.
  source.upstream.on('/flat/b/1.0.0/b.1.0.0.nupkg', serve(await makeNupkg({ id: 'B', version: '1.0.0' })));
  const without = await call(server, 'POST', `/${id}/resume`, {});
  t.is(without.status, 400);
  t.regex(without['detail'], /Send the secret of the source again: it is not stored/);
  t.is((await call(server, 'POST', `/${id}/resume`, { secret })).status, 201);
  const again = await ended(server, id);
  t.like(again['results'], { imported: { count: 1 }, present: { count: 1 }, failed: { count: 2 } });
  t.is((await call(server, 'GET', `/${id}/problems`))['items'].length, 2);
  t.false((await everything(server)).includes(secret));
  t.is((await call(server, 'DELETE', `/${id}`)).status, 204);
  t.is((await call(server, 'GET', `/${id}`)).status, 404);
});

test('a full disk stops an import, nothing is half there, and it goes on when there is room', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['A', 'B', 'C']) await source.offer({ id, versions: [{ version: '1.0.0' }] });
  const disk = new TestDisk();
  const bytes = await makeNupkg({ id: 'B', version: '1.0.0', payloadBytes: 100_000 });
  source.upstream.on('/flat/b/1.0.0/b.1.0.0.nupkg', (request, response) => {
    disk.left = 30_000;
    serve(bytes)(request, response);
  });
  const server = await startTestServer(t, loopback, { disk });
  const feed = new TestFeed(server);
  const { id } = await call(server, 'POST', '', { kind: 'feed', url: `${source.url}/index.json`, concurrency: 1 });
  const full = await ended(server, id);
  t.like(full, { state: 'stopped' });
  t.like(full['results'], { imported: { count: 1 }, failed: { count: 1 } });
  t.regex(full['error'], /disk/i);
  for (const [each, status] of [
    ['a', 200],
    ['b', 404],
    ['c', 404],
  ] as const)
    t.is((await feed.fetch(`/package/${each}/index.json`)).status, status, each);
  source.upstream.on('/flat/b/1.0.0/b.1.0.0.nupkg', serve(bytes));
  disk.left = Number.POSITIVE_INFINITY;
  t.is((await call(server, 'POST', `/${id}/resume`, {})).status, 201);
  t.like(await ended(server, id), { state: 'done', results: { imported: { count: 2 }, present: { count: 1 } } });
  const whole = await feed.fetch('/package/b/1.0.0/b.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await whole.arrayBuffer()), bytes);
});

test('accounts see and start only their own imports; private servers, folders and other schemes are refused', async (t) => {
  const source = await UpstreamFeed.start(t);
  await source.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t);
  const url = `${source.url}/index.json`;
  const admin = await tokenOf(server, ['read', 'admin'], 'other');
  const { id } = await call(server, 'POST', '', { kind: 'feed', url }, admin);
  const refused = await ended(server, id, admin);
  // Neither the address that a name has nor a port is tried.
  t.like(refused, { state: 'done', results: { failed: { count: 1 } } });
  const [problem] = (await call(server, 'GET', `/${id}/problems`, undefined, admin))['items'];
  t.regex(problem.reason, /an address that is refused: it is not public; the setting imports\.allow can allow/);
  const named = await call(server, 'POST', '', { kind: 'feed', url: url.replace('127.0.0.1', 'localhost') }, admin);
  await ended(server, named['id'], admin);
  const found = await call(server, 'GET', `/${named['id']}/problems`, undefined, admin);
  t.false(JSON.stringify(found).includes('127.0.0.1'));
  const metadata = await call(server, 'POST', '', { kind: 'registry', url: 'http://169.254.169.254/' }, admin);
  t.like(await ended(server, metadata['id'], admin), { results: { failed: { count: 1 } } });
  t.is(source.upstream.asked.length, 0);
  for (const [path, method] of [
    [`/${id}`, 'GET'],
    [`/${id}/problems`, 'GET'],
    [`/${id}`, 'DELETE'],
  ] as const)
    t.is((await call(server, method, path)).status, 404);
  t.is((await call(server, 'POST', `/${id}/resume`, {})).status, 404);
  t.deepEqual((await call(server, 'GET', ''))['items'], []);
  for (const scopes of [
    ['read', 'write', 'delete'],
    ['read', 'operate'],
  ]) {
    const token = await tokenOf(server, scopes, 'other');
    t.is((await call(server, 'GET', '', undefined, token)).status, 403);
    t.is((await call(server, 'POST', '', { kind: 'feed', url }, token)).status, 403);
  }
  const wrong = async (body: object, field: string) => {
    const { status, detail } = await call(server, 'POST', '', { kind: 'feed', url, ...body });
    t.is(status, 400);
    t.true(detail.startsWith(`${field}: `), detail);
  };
  await wrong({ url: 'file:///etc/passwd' }, 'url');
  await wrong({ url: '/var/lib/registry' }, 'url');
  await wrong({ url: 'http://me:word@old.example/' }, 'url');
  await wrong({ url: 'https://old.example/v3/index.json?key=1' }, 'url');
  await wrong({ kind: 'folder' }, 'kind');
  await wrong({ kind: 'harbor', url: 'https://old.example/path' }, 'url');
  await wrong({ rename: ['no rule'] }, 'rename');
  await wrong({ concurrency: 17 }, 'concurrency');
});

test('one import of an account at a time, and four in all; one that is stopped, lost or closed does not continue by itself', async (t) => {
  const source = await UpstreamFeed.start(t);
  const nupkg = await makeNupkg({ id: 'A', version: '1.0.0' });
  await source.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const file = held(serve(nupkg));
  source.upstream.on('/flat/a/1.0.0/a.1.0.0.nupkg', file.behaviour);
  const server = await startTestServer(t, loopback);
  const body = { kind: 'feed', url: `${source.url}/index.json` };
  const { id } = await call(server, 'POST', '', body);
  const busy = await call(server, 'POST', '', body);
  t.like(busy, { status: 429 });
  const others = await Promise.all(['b', 'c', 'd', 'e'].map((name) => tokenOf(server, ['admin', 'read'], name)));
  const runs: Answer[] = [];
  for (const each of others.slice(0, 3)) runs.push(await call(server, 'POST', '', body, each));
  t.deepEqual(
    runs.map(({ status }) => status),
    [201, 201, 201],
  );
  t.is((await call(server, 'POST', '', body, others[3])).status, 429);
  await until(() => source.upstream.count('/flat/a/1.0.0/a.1.0.0.nupkg') >= 4);
  t.is((await call(server, 'POST', `/${id}/resume`, {})).status, 429);
  t.is((await call(server, 'DELETE', `/${id}`)).status, 204);
  t.like(await ended(server, id), { state: 'cancelled', error: null });
  await databaseOf(server).transaction((tx) =>
    tx.run('UPDATE import_runs SET beat_at = 1 WHERE id = ?', [runs[0]!['id']]),
  );
  file.release();
  for (const [at, each] of others.slice(0, 3).entries()) await ended(server, runs[at]!['id'], each);
  const resumed = await call(server, 'POST', `/${id}/resume`, {});
  t.like(await ended(server, resumed['id']), { state: 'done', results: { imported: { count: 1 } } });
});

test('the page starts an import, shows its failures, and asks for the secret again', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['A', 'B']) await source.offer({ id, versions: [{ version: '1.0.0' }] });
  source.upstream.on('/flat/b/1.0.0/b.1.0.0.nupkg', answer(404));
  const server = await startTestServer(t, loopback);
  const visitor = await Visitor.signedIn(server);
  const fields = {
    kind: 'feed',
    url: `${source.url}/index.json`,
    user: 'me',
    secret,
    only: '',
    rename: '',
    dry_run: 'false',
  };
  const wrong = await visitor.refused('/console/imports', { ...fields, rename: 'no rule' });
  t.regex(wrong, /Use a rule such as old\/\*=team\/\*/);
  t.regex(wrong, new RegExp(`name="url"[^>]*value="${source.url}/index.json"`));
  t.false(wrong.includes(secret));
  const planned = await visitor.send('/console/imports', { ...fields, dry_run: 'true' });
  const planAt = planned.headers.get('location')!;
  await ended(server, planAt.split('/').at(-1)!);
  t.regex(await visitor.page(planAt), /only shown, nothing imported[^]*To import[^]*Cannot come/);
  const started = await visitor.send('/console/imports', fields);
  const at = started.headers.get('location')!;
  await ended(server, at.split('/').at(-1)!);
  const page = await visitor.page(at);
  t.regex(page, /1 conflict or failure/);
  t.regex(page, /does not have its file/);
  t.regex(await visitor.page('/console/imports'), new RegExp(`href="${at}"`));
  const refused = await visitor.refused(at, { act: 'resume', secret: '' });
  t.regex(refused, /Send the secret of the source again/);
  t.is((await visitor.send(at, { act: 'resume', secret })).status, 303);
  await ended(server, at.split('/').at(-1)!);
  t.false((await everything(server)).includes(secret));
  const forgotten = await visitor.send(at, { act: 'delete' });
  t.is(forgotten.headers.get('location'), '/console/imports');
});

const tokenFor = (wanted: string) => `Bearer ${Buffer.from(wanted).toString('hex')}`;

test('a source that names the realm of another registry changes nothing for imports from that one', async (t) => {
  const scope = 'repository:org/app:pull';
  const other = 'repository:org/other:pull';
  const good = await startUpstreamRegistry(t);
  const challenge = (wanted: string) =>
    answer(401, { 'www-authenticate': `Bearer realm="${good.url.href}token",service="s",scope="${wanted}"` });
  good.image('org/app', '1.0');
  good.on('/token', (request, response) => {
    const wanted = new URL(request.url!, good.url).searchParams.get('scope') ?? '';
    json({ token: tokenFor(wanted).slice(7), expires_in: 3600 })(request, response);
  });
  good.on('/v2/org/app/tags/list', (request, response) => {
    const isRight = request.headers.authorization === tokenFor(scope);
    (isRight ? json({ tags: ['1.0'] }) : challenge(scope))(request, response);
  });
  const hostile = await startUpstreamRegistry(t);
  hostile.on('/v2/org/app/tags/list', challenge(other));
  const server = await startTestServer(t, loopback);
  const bring = async ({ url }: { url: URL }, token?: string) => {
    const body = { kind: 'registry', url: url.href, names: ['org/app'] };
    const { id } = await call(server, 'POST', '', body, token);
    return ended(server, id, token);
  };
  await bring(hostile, await tokenOf(server, ['read', 'admin'], 'other'));
  t.true(hostile.asked.some(({ headers }) => headers.authorization === tokenFor(other)));
  t.like(await bring(good), { state: 'done', results: { imported: { count: 1 } } });
});
