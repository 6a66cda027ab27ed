import test, { type ExecutionContext } from 'ava';
import { createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer, held } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

type Json = Record<string, any>;
type Files = Record<string, string | Uint8Array<ArrayBuffer>>;

function formOf(files: Files, fields: Record<string, string> = {}): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  for (const [name, content] of Object.entries(files)) form.append('file', new Blob([content]), name);
  return form;
}

async function open(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test', settings)],
    prefetch: { platforms: ['linux/amd64'] },
  });
  return { upstream, server };
}

function post(
  server: TestServer,
  files: Files,
  fields: Record<string, string> = {},
  token?: string,
): Promise<Response> {
  const init = { method: 'POST', body: formOf(files, fields), ...(token !== undefined && { token }) };
  return server.fetch('/v1/prefetch', init);
}

async function ended(server: TestServer, id: string): Promise<Json> {
  let run: Json = {};
  await until(async () => {
    run = (await (await server.fetch(`/v1/prefetch/${id}`)).json()) as Json;
    return run['state'] !== 'running';
  });
  return run;
}

test('a dropped file is shown first, then fetched by one button, and its failures name file and line', async (t) => {
  const { upstream, server } = await open(t);
  const { layer, config, manifest } = upstream.image('app', 'v1');
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/prefetch');
  t.regex(page, /enctype="multipart\/form-data"[^]*value="linux\/amd64"[^]*type="file" multiple/);
  const send = (fields: Record<string, string>, text: string) =>
    visitor.fetch('/console/prefetch', {
      method: 'POST',
      body: formOf({ 'C:\\src\\compose.yaml': text }, { platforms: '', ...fields }),
      headers: { 'sec-fetch-site': 'same-origin' },
    });
  const compose = 'services:\n  a:\n    image: up.test/app:v1\n  b:\n    image: up.test/gone:v1\n';
  const sent = await send({ dry_run: 'true' }, compose);
  t.is(sent.status, 303);
  const path = sent.headers.get('location')!;
  const preview = await ended(server, path.split('/').at(-1)!);
  t.like(preview, { dry_run: true, state: 'done', can_fetch: true, files: ['compose.yaml'], platforms: [] });
  t.like(preview['result'].fetched.blobs, { count: 2, size_bytes: layer.size + config.size });
  t.like(preview['result'].missing[0], { file: 'compose.yaml', line: 5 });
  t.false(
    upstream.requests().some((each) => each.includes('/blobs/')),
    'a dry run fetches no layer',
  );
  const shown = await visitor.page(path);
  t.regex(shown, /<title>What a prefetch would fetch of compose\.yaml, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC /);
  t.regex(shown, /It would fetch[^]*To fetch[^]*Fetch it now[^]*up\.test\/gone[^]*compose\.yaml:5/);

  const fetching = await visitor.send(path, { act: 'fetch' });
  t.is(fetching.status, 303);
  const run = await ended(server, fetching.headers.get('location')!.split('/').at(-1)!);
  t.like(run, { dry_run: false, state: 'done', can_fetch: false });
  t.like(run['result'].fetched.blobs, { count: 2, size_bytes: layer.size + config.size });
  t.true(run['received_bytes'] >= layer.size + config.size);
  t.is(run['result'].missing_total, 1);
  upstream.unplug();
  t.is((await server.fetch(`/v2/up.test/app/blobs/${layer.digest}`)).status, 200);
  t.is((await server.fetch(`/v2/up.test/app/manifests/${manifest.digest}`)).status, 200);
  t.regex(await visitor.page('/console/prefetch'), /compose\.yaml[^]*dry run/);
});

test('errors are beside their fields, the input is kept, and nothing is started', async (t) => {
  const { server } = await open(t);
  const visitor = await Visitor.signedIn(server);
  const send = async (files: Files, fields: Record<string, string> = {}, headers: Record<string, string> = {}) => {
    const init = {
      method: 'POST',
      body: formOf(files, fields),
      headers: { 'sec-fetch-site': 'same-origin', ...headers },
    };
    return visitor.fetch('/console/prefetch', init);
  };
  const list = { 'list.txt': 'up.test/app:v1' };
  const wrong: [Files, Record<string, string>, RegExp][] = [
    [{}, {}, /id="file-error"[^>]*>Choose at least one file/],
    [{ '': '' }, {}, /id="file-error"[^>]*>Choose at least one file/],
    [{ 'compose.yaml': 'services: [' }, { platforms: 'linux/<b>' }, /value="linux\/&lt;b&gt;"[^]*id="platforms-error"/],
    [{ 'compose.yaml': 'a:\n  services: [' }, {}, /id="file-error"[^>]*>compose\.yaml:2: not YAML/],
    [{ 'what.bin': 'x' }, {}, /kind of this file is unknown/],
    [{ 'list.txt': new Uint8Array([0xc3, 0x28]) }, {}, /is not text in UTF-8/],
    [list, { frameworks: 'net8.0, <x>' }, /id="frameworks-error"/],
    [list, { kind: 'wrong' }, /id="kind-error"/],
    [list, { platforms: 'linux/amd64,'.repeat(21) }, /id="platforms-error"[^>]*>Give at most 20/],
    [{ 'list.txt': '# nothing' }, {}, /list no package and no image/],
    [Object.fromEntries(Array.from({ length: 11 }, (_, i) => [`${i}.txt`, 'a:1'])), {}, /at most 10 files/],
    [{ 'a.txt': '#'.repeat(3 * 2 ** 20), 'b.txt': '#'.repeat(3 * 2 ** 20) }, {}, /larger than 5 MiB together/],
    [list, { platforms: 'x'.repeat(2000) }, /longer than 1024 bytes/],
    [{ 'list.txt': 'up.test/app:1\n'.repeat(50_001) }, {}, /more than 50000 packages and images/],
  ];
  for (const [files, fields, expected] of wrong) {
    t.regex(await visitor.refusedPage(await send(files, fields)), expected);
  }
  t.regex(await visitor.refused('/console/prefetch', { dry_run: 'true' }), /id="file-error"/, 'not a multipart form');
  t.is((await send(list, {}, { 'sec-fetch-site': 'cross-site' })).status, 403);
  const { items } = (await (await server.fetch('/v1/prefetch')).json()) as Json;
  t.deepEqual(items, []);
});

/** The row of a run whose process died. */
const dead = (slot: number) => ({
  id: `00000000-0000-4000-8000-00000000000${slot}`,
  slot,
  account_id: 1,
  state: 'running',
  cancelled: 0,
  created_at: 1,
  beat_at: Date.now() - 61_000,
  settings: JSON.stringify({ dryRun: false, platforms: [], frameworks: [], referrers: true, files: ['a'] }),
  progress: JSON.stringify({ known: 1, ended: 0, received: 0 }),
});

test('each choice of the form is taken, and another value is refused with its field', async (t) => {
  const { upstream, server } = await open(t);
  upstream.image('app', 'v1');
  const list = { 'list.txt': 'up.test/app:v1' };
  const choices: [fields: Record<string, string>, taken: Json][] = [
    [{}, { referrers: true, dry_run: false, platforms: ['linux/amd64'], frameworks: [] }],
    [{ referrers: 'true' }, { referrers: true }],
    [{ referrers: 'false' }, { referrers: false }],
    [{ dry_run: 'false' }, { dry_run: false }],
    [{ dry_run: 'true' }, { dry_run: true }],
    [{ platforms: '' }, { platforms: [] }],
    [{ platforms: 'linux/arm64, linux/amd64' }, { platforms: ['linux/arm64', 'linux/amd64'] }],
    [{ frameworks: 'net8.0,net9.0' }, { frameworks: ['net8.0', 'net9.0'] }],
  ];
  for (const [fields, taken] of choices) {
    const answered = await post(server, list, fields);
    t.is(answered.status, 201, JSON.stringify(fields));
    const run = (await answered.json()) as Json;
    t.like(run, taken, JSON.stringify(fields));
    await ended(server, run['id'] as string);
  }
  const named: [name: string, taken: string][] = [
    ['C:\\lists\\a/list.txt', 'list.txt'],
    [' list\u200B.txt ', 'list.txt'],
    [`${'x'.repeat(300)}.txt`, 'x'.repeat(200)],
    [' ', 'file'],
  ];
  for (const [name, taken] of named) {
    const answered = await post(server, { [name]: 'up.test/app:v1' }, { kind: 'list' });
    const run = (await answered.json()) as Json;
    t.like(run, { files: [taken] }, JSON.stringify(run));
    await ended(server, run['id'] as string);
  }
  const nothing = await post(server, { ' ': '' });
  t.is(((await nothing.json()) as { errors: { field: string }[] }).errors[0]!.field, 'file', 'an empty field');
  for (const field of ['referrers', 'dry_run', 'platforms', 'frameworks', 'kind']) {
    const answered = await post(server, list, { [field]: 'no such value;' });
    t.is(answered.status, 400, field);
    t.is(((await answered.json()) as { errors: { field: string }[] }).errors[0]!.field, field);
  }
});

test('two prefetches run at a time, a third is refused until one is stopped', async (t) => {
  const { upstream, server } = await open(t, { timeout: '60s' });
  const { manifest } = upstream.image('app', 'v1');
  const waiting = held(answer(200, { 'content-type': manifest.mediaType }, manifest.bytes));
  upstream.on('/v2/app/manifests/v1', waiting.behaviour);
  t.teardown(waiting.release);
  const document = await OpenDocument.of(server);
  const list = { 'list.txt': 'up.test/app:v1' };
  const first = await document.read('POST /prefetch', await post(server, list));
  const second = await document.read('POST /prefetch', await post(server, list, { dry_run: 'true' }));
  t.like(first, { state: 'running', platforms: ['linux/amd64'], referrers: true, ended_at: null, result: null });
  const third = await post(server, list);
  t.is(third.status, 429);
  t.is(third.headers.get('retry-after'), '10');
  const visitor = await Visitor.signedIn(server);
  const path = `/console/prefetch/${first['id'] as string}`;
  t.regex(await visitor.page(path), /data-refresh="2000" data-version="\d\/\d"[^]*does not start again/);
  await until(async () => /data-version="\d\/[1-9]"/.test(await visitor.page(path)));
  const stopped = await visitor.send(path, { act: 'cancel' });
  t.is(leadsTo(stopped), `${path} (prefetch-cancelled)`);
  t.is((await post(server, list)).status, 429, 'what it is fetching is not broken off: clients may wait for it, too');
  const client = server.fetch('/v2/up.test/app/manifests/v1');
  waiting.release();
  t.is((await client).status, 200);
  t.is((await ended(server, first['id'] as string))['state'], 'cancelled');
  t.is((await ended(server, second['id'] as string))['state'], 'done');
  const next = await document.read('POST /prefetch', await post(server, list));
  await ended(server, next['id'] as string);

  // Two runs whose processes died.
  const database = databaseOf(server);
  for (const slot of [0, 1]) await database.transaction((tx) => tx.insertNew('prefetch_runs', [dead(slot)]));
  const after = await document.read('POST /prefetch', await post(server, list));
  t.is(typeof after['id'], 'string', 'their places are free');
  await ended(server, after['id'] as string);
  t.is((await ended(server, dead(0).id))['state'], 'lost');
  t.regex(await visitor.page(`/console/prefetch/${dead(1).id}`), /lost[^]*Send the files again/);
  for (const slot of [0, 1]) {
    const alive = { ...dead(slot), id: `00000000-0000-4000-8000-00000000001${slot}`, beat_at: Date.now() - 20_000 };
    await database.transaction((tx) => tx.insertNew('prefetch_runs', [alive]));
  }
  t.is((await post(server, list)).status, 429, 'runs that showed themselves 20 seconds ago are not dead');
});

test('prefetches need operate and a token without name patterns', async (t) => {
  const { server } = await open(t);
  const list = { 'list.txt': 'up.test/app:v1' };
  const { value: limited } = await createToken(server, ['operate'], 'default', { containers: ['up.test/*'] });
  for (const token of [await tokenOf(server, ['read', 'write', 'delete', 'admin']), limited]) {
    t.is((await post(server, list, {}, token)).status, 403);
    const id = '00000000-0000-4000-8000-000000000000';
    for (const [method, path] of [
      ['GET', ''],
      ['GET', `/${id}`],
      ['DELETE', `/${id}`],
      ['POST', `/${id}/fetch`],
    ]) {
      t.is((await server.fetch(`/v1/prefetch${path}`, { method: method!, token })).status, 403, `${method} ${path}`);
    }
    const visitor = await Visitor.signedIn(server, token);
    t.is((await visitor.fetch('/console/prefetch')).status, 403);
  }
  t.is((await server.fetch('/v1/prefetch', { method: 'POST', body: '{}' })).status, 415);
  t.is((await server.fetch('/v1/prefetch/00000000-0000-4000-8000-000000000000')).status, 404);
});
