import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import test from 'ava';
import { makeNupkg, makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { serving, startImporting } from '../support/imports.ts';
import { entrepot } from '../support/in-process.ts';
import { rowsOf } from '../support/inside.ts';
import { digestOf, ociIndex, ociManifest, platformImage, signedIndex, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

const exporting = (from: TestServer, ...words: string[]) =>
  entrepot({ ENTREPOT_DATA: from.data, ENTREPOT_UPSTREAMS: '[]' }, 'export', ...words);

test('what was pushed here since goes back to the old feed, also unlisted; what came from there stays, other bytes are a conflict', async (t) => {
  const old = await startTestServer(t);
  const there = new TestFeed(old);
  await there.publish({ id: 'Lib', version: '1.0.0' });
  const { target: here, bring, file, folder } = await startImporting(t);
  const words = [`${old.url}/v3/index.json`, '--token-file', await file('token', old.token)];
  t.is((await bring(...words)).code, 0);
  const feed = new TestFeed(here);
  const pushed = await makeNupkg({ id: 'Lib', version: '2.0.0', payloadBytes: 50_000 });
  t.is((await feed.push(pushed)).status, 201);
  await feed.publish({ id: 'Hidden', version: '1.0.0-beta' }, { id: 'Both', version: '1.0.0' });
  t.is((await here.fetch('/v3/push/Hidden/1.0.0-beta', { method: 'DELETE' })).status, 204);
  const theirs = await makeNupkg({ id: 'Both', version: '1.0.0', payloadBytes: 10 });
  t.is((await there.push(theirs)).status, 201);
  const planned = await exporting(here, 'feed', ...words, '--dry-run');
  // Several go at the same time.
  for (const line of [/^to export\tHidden\t1\.0\.0-beta\t/m, /^to export\tLib\t2\.0\.0\t/m, /^to export: 2 \(/m])
    t.regex(planned.stdout, line);
  t.is((await there.fetch('/package/lib/2.0.0/lib.2.0.0.nupkg')).status, 404);
  const report = join(folder, 'report');
  const done = await exporting(here, 'feed', ...words, '--report', report);
  t.is(done.code, 1);
  t.regex(done.stdout, /^exported: 2 \(.*\nthere already: 0\nconflicts: 1\nfailed: 0\n/);
  t.is(done.stderr, 'conflict: Both 1.0.0: the target has other content under this name\nentrepot: 1 did not go\n');
  t.is((await readFile(report, 'utf8')).trim().split('\n').length, 3);
  const bytes = async (path: string) => Buffer.from(await (await there.fetch(`/package/${path}`)).arrayBuffer());
  t.true(pushed.equals(await bytes('lib/2.0.0/lib.2.0.0.nupkg')));
  t.true(theirs.equals(await bytes('both/1.0.0/both.1.0.0.nupkg')));
  t.is((await there.json('/registration/hidden/index.json')).items[0].items[0].catalogEntry.listed, false);
  const again = await exporting(here, 'feed', ...words, '--only', 'Lib,Hidden');
  t.deepEqual([again.code, again.stdout], [0, 'exported: 0\nthere already: 2\nconflicts: 0\nfailed: 0\n']);
  // One that was unlisted here after it went; all that is older than a time stays.
  t.is((await here.fetch('/v3/push/Lib/2.0.0', { method: 'DELETE' })).status, 204);
  const later = await exporting(here, 'feed', ...words, '--since', new Date(Date.now() + 60_000).toISOString());
  t.regex(later.stdout, /^exported: 0\nthere already: 0\n/);
  const assessed = await exporting(here, 'feed', ...words, '--only', 'Lib,Hidden', '--dry-run');
  t.is(assessed.stdout, 'to export: 0\nthere already: 1\nto unlist there: 1\nconflicts: 0\ncannot go: 0\n');
  t.regex((await exporting(here, 'feed', ...words, '--only', 'Lib')).stdout, /^unlisted there: 1\n/m);
  // What came from there keeps its state there.
  t.is((await here.fetch('/v3/push/Lib/1.0.0', { method: 'DELETE' })).status, 204);
  const all = await exporting(here, 'feed', ...words, '--all', '--only', 'Lib');
  t.is(all.stdout, 'exported: 0\nthere already: 2\nconflicts: 0\nfailed: 0\n');
  const stateThere = async () =>
    (await there.json('/registration/lib/index.json')).items[0].items[0].catalogEntry.listed;
  t.true(await stateThere());
  // One that is not there any more comes again, with its state here.
  t.is((await old.fetch('/v1/packages/Lib/1.0.0', { method: 'DELETE' })).status, 204);
  t.regex((await exporting(here, 'feed', ...words, '--all', '--only', 'Lib')).stdout, /^exported: 1 \(/);
  t.false(await stateThere());
});

test('what was promoted to the account goes, too, and not what an import had brought to the other account', async (t) => {
  const [back, old] = [await startTestServer(t), await startTestServer(t)];
  const { target: here, bring, file } = await startImporting(t);
  await new TestFeed(old).publish({ id: 'Imported', version: '1.0.0' });
  t.is((await bring(`${old.url}/v3/index.json`, '--token-file', await file('old', old.token))).code, 0);
  await new TestFeed(here).publish({ id: 'Lib', version: '1.0.0' });
  const command = (...words: string[]) => entrepot({ ENTREPOT_DATA: here.data, ENTREPOT_UPSTREAMS: '[]' }, ...words);
  t.is((await command('account', 'create', 'prod')).code, 0);
  for (const id of ['Lib', 'Imported']) {
    const promoted = await command('promote', id, '1.0.0', '--kind', 'package', '--to-account', 'prod');
    t.deepEqual([promoted.code, promoted.stderr], [0, '']);
  }
  const words = ['feed', `${back.url}/v3/index.json`, '--token-file', await file('token', back.token)];
  const done = await exporting(here, ...words, '--account', 'prod');
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^exported: 1 \(/);
  t.is((await back.fetch('/v3/package/lib/index.json')).status, 200);
  t.regex(
    (await exporting(here, ...words, '--account', 'prod', '--all')).stdout,
    /^exported: 1 \(.*\nthere already: 1\n/,
  );
});

test('symbols go with their package', async (t) => {
  const [old, here] = [await startTestServer(t), await startTestServer(t)];
  const [feed, there] = [new TestFeed(here), new TestFeed(old)];
  await feed.publish({ id: 'My.Package', version: '1.2.3' });
  const pdb = makePdb(Buffer.alloc(16, 0xab));
  const symbols = await makeSnupkg({ id: 'My.Package', version: '1.2.3', files: { 'lib/net8.0/A.pdb': pdb } });
  t.is((await feed.push(symbols, '/symbols')).status, 201);
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'token'), old.token);
  const words = ['feed', `${old.url}/v3/index.json`, '--token-file', join(folder, 'token')];
  t.deepEqual([(await exporting(here, ...words)).stderr, (await exporting(here, ...words)).stderr], ['', '']);
  const key = `${'ab'.repeat(16)}ffffffff`;
  const found = await there.fetch(`/symbols/A.pdb/${key}/A.pdb`);
  t.is(found.status, 200);
  t.true(Buffer.from(await found.arrayBuffer()).equals(pdb));
  t.is((await there.fetch('/package/my.package/index.json')).status, 200);
});

test('a target that deletes what it is asked to unlist gets the package and its symbols again, and is asked no more', async (t) => {
  const here = await startTestServer(t);
  const feed = new TestFeed(here);
  here.clock.now = Date.UTC(2020, 0, 1);
  await feed.publish({ id: 'Old', version: '1.0.0' });
  here.clock.now = undefined;
  for (const id of ['A', 'B']) {
    await feed.publish({ id, version: '1.0.0' });
    t.is((await here.fetch(`/v3/push/${id}/1.0.0`, { method: 'DELETE' })).status, 204);
    t.is((await feed.push(await makeSnupkg({ id, version: '1.0.0' }), '/symbols')).status, 201);
  }
  const files = new Map<string, Buffer>();
  const symbols = new Set<string>();
  const asked: string[] = [];
  const url = await serving(t, async (request, response) => {
    const path = new URL(request.url!, 'http://x').pathname;
    asked.push(`${request.method} ${path}`);
    const [, , id = ''] = path.split('/');
    if (path === '/index.json') {
      const at = `http://${request.headers.host}`;
      const resources = [
        { '@id': `${at}/flat/`, '@type': 'PackageBaseAddress/3.0.0' },
        { '@id': `${at}/push`, '@type': 'PackagePublish/2.0.0' },
        { '@id': `${at}/symbols`, '@type': 'SymbolPackagePublish/4.9.0' },
      ];
      response.end(JSON.stringify({ version: '3.0.0', resources }));
    } else if (request.method === 'PUT') {
      const body = Buffer.concat(await request.toArray());
      const start = body.indexOf('\r\n\r\n') + 4;
      const bytes = body.subarray(start, body.lastIndexOf('\r\n--'));
      const key = bytes.includes('A.nuspec') ? 'a' : 'b';
      if (path === '/symbols') symbols.add(key);
      else files.set(key, bytes);
      response.writeHead(201).end();
    } else if (request.method === 'DELETE') {
      symbols.delete(id);
      response.writeHead(files.delete(id) ? 204 : 404).end();
    } else if (path.endsWith('.nupkg') && files.has(id)) {
      const bytes = files.get(id)!;
      response.writeHead(200, { 'content-length': bytes.length });
      response.end(request.method === 'HEAD' ? undefined : bytes);
    } else response.writeHead(404).end();
  });
  const done = await exporting(here, 'feed', `${url}/index.json`, '--concurrency', '1', '--since', '2025-01-01');
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.deepEqual([...files.keys()].sort(), ['a', 'b']);
  t.deepEqual(
    asked.filter((each) => each.includes('/old')),
    [],
    'the target is asked only about what goes',
  );
  t.deepEqual([...symbols].sort(), ['a', 'b']);
  t.is(asked.filter((each) => each.startsWith('DELETE')).length, 1);
});

const presentThere = (name: string) => [name, 'present', 0, undefined];
const otherThere = (name: string) => [name, 'conflict', 0, 'the target has other content under this name'];

test('what a target answers about each version: there meanwhile, other content, hidden, refused, symbols, not unlisted', async (t) => {
  const here = await startTestServer(t);
  const feed = new TestFeed(here);
  const sent = new Map<string, Buffer>();
  const ids = [
    'Accepted',
    'Changed',
    'Gone',
    'Hidden',
    'Kept',
    'Known',
    'Lost',
    'Raced',
    'Refused',
    'Same',
    'Sized',
    'Wrong',
  ];
  for (const [at, id] of ids.entries()) {
    const nupkg = await makeNupkg({ id, version: '1.0.0', payloadBytes: at });
    sent.set(id.toLowerCase(), nupkg);
    t.is((await feed.push(nupkg)).status, 201);
  }
  const symbols = new Map<string, number>();
  for (const id of ['Known', 'Wrong']) {
    const files = { 'lib/net8.0/A.pdb': makePdb(Buffer.alloc(16, id.length)) };
    const snupkg = await makeSnupkg({ id, version: '1.0.0', files });
    symbols.set(id, snupkg.length);
    t.is((await feed.push(snupkg, '/symbols')).status, 201);
  }
  for (const id of ['Gone', 'Kept']) t.is((await here.fetch(`/v3/push/${id}/1.0.0`, { method: 'DELETE' })).status, 204);

  const other = (id: string) => Buffer.from(sent.get(id)!.map((byte) => byte ^ 1));
  const files = new Map([
    ['same', sent.get('same')!],
    ['sized', Buffer.alloc(5)],
    ['changed', other('changed')],
  ]);
  const statuses: Record<string, number> = { accepted: 299, hidden: 409, lost: 409, raced: 409, refused: 400 };
  const types = ['PackagePublish/2.0.0', 'SymbolPackagePublish/4.9.0'];
  const asked: { method: string; path: string; key: unknown }[] = [];
  const answersClosed = Promise.withResolvers<void>();
  const url = await serving(t, async (request, response) => {
    const path = new URL(request.url!, 'http://x').pathname;
    asked.push({ method: request.method!, path, key: request.headers['x-nuget-apikey'] });
    const body = Buffer.concat(await request.toArray()).toString('latin1');
    const named = path.split('/')[2] ?? ids.find((each) => body.includes(`${each}.nuspec`))?.toLowerCase() ?? '';
    const at = `http://${request.headers.host}`;
    if (path === '/index.json') {
      const resources = types.map((type) => ({ '@id': `${at}/${type.split('P')[0]}push`, '@type': type }));
      resources.push({ '@id': `${at}/flat/`, '@type': 'PackageBaseAddress/3.0.0' });
      response.end(JSON.stringify({ version: '3.0.0', resources }));
    } else if (path === '/Symbolpush') response.writeHead(named === 'known' ? 409 : 400).end();
    else if (request.method === 'PUT') {
      if (named !== 'hidden' && named !== 'refused')
        files.set(named, named === 'lost' ? other(named) : sent.get(named)!);
      response.writeHead(statuses[named] ?? 201);
      if (named === 'gone') {
        // An answer without an end: nobody reads it, so the connection is closed.
        response.once('close', answersClosed.resolve);
        response.write(Buffer.alloc(2 ** 20));
      } else response.end();
    } else if (request.method === 'DELETE') {
      if (named === 'gone') await answersClosed.promise;
      response.writeHead(named === 'gone' ? 299 : 405).end();
    } else if (path === '/flat/same/index.json') response.end('{"versions":["1.0.0"]}');
    else if (!path.endsWith('.nupkg') || !files.has(named)) response.writeHead(404).end();
    else {
      // One has no length.
      response.writeHead(200, named === 'same' ? {} : { 'content-length': files.get(named)!.length });
      response.end(request.method === 'HEAD' ? undefined : files.get(named));
    }
  });
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'key'), 'key-of-pushes');
  let runs = 0;
  const run = async (...words: string[]) => {
    const report = join(folder, `report-${(runs += 1)}`);
    const more = ['--api-key-file', join(folder, 'key'), '--concurrency', '1', '--report', report, ...words];
    const heard = await exporting(here, 'feed', `${url}/index.json`, ...more);
    const lines = (await readFile(report, 'utf8')).trimEnd().split('\n');
    const read = lines.map((line) => JSON.parse(line));
    return { ...heard, lines: read.map(({ name, outcome, bytes, note }) => [name, outcome, bytes, note]) };
  };
  const sizeOf = (id: string) => sent.get(id.toLowerCase())!.length;
  const imported = (name: string, note?: string) => [name, 'imported', sizeOf(name), note];
  const planned = await run('--dry-run');
  const whole = (name: string) => [name, 'imported', sizeOf(name) + (symbols.get(name) ?? 0), undefined];
  const known = new Map([
    ['Same', presentThere('Same')],
    ['Changed', otherThere('Changed')],
    ['Sized', otherThere('Sized')],
  ]);
  t.deepEqual(
    planned.lines,
    ids.map((name) => known.get(name) ?? whole(name)),
  );
  t.deepEqual(
    asked.filter(({ method }) => method === 'PUT'),
    [],
  );
  const hidden = 'the target has this version already, and does not show it';
  const kept = 'it is listed there, and not here: the target answered 405';
  const done = await run();
  t.deepEqual(done.lines, [
    imported('Accepted'),
    otherThere('Changed'),
    imported('Gone'),
    ['Hidden', 'conflict', 0, hidden],
    imported('Kept', kept),
    whole('Known'),
    ['Lost', 'conflict', 0, hidden],
    imported('Raced'),
    ['Refused', 'failed', 0, 'The target refused the package (400).'],
    presentThere('Same'),
    otherThere('Sized'),
    imported('Wrong', 'the target answered 400 to the symbols'),
  ]);
  t.false(asked.some(({ method, path }) => method === 'GET' && path.endsWith('/sized.1.0.0.nupkg')));
  const keys = Map.groupBy(asked, ({ method }) => method === 'PUT' || method === 'DELETE');
  t.deepEqual([...new Set(keys.get(true)!.map(({ key }) => key))], ['key-of-pushes']);
  t.deepEqual([...new Set(keys.get(false)!.map(({ key }) => key))], [undefined]);
  // A target without symbols, and one without pushes.
  types.pop();
  const plain = await run('--only', 'Known,Wrong');
  t.is(plain.stderr, 'warning: The target has no address for symbols, so none are sent.\n');
  t.deepEqual(plain.lines, [presentThere('Known'), presentThere('Wrong')]);
  t.is((await run('--only', 'Same')).stderr, '', 'it has no symbols');
  types.pop();
  t.regex((await run('--only', 'Known')).stderr, /the list of names: The target has no PackagePublish\/2\.0\.0, so/);
});

async function imageOf(server: TestServer, name: string, reference: string) {
  const response = await server.fetch(`/v2/${name}/manifests/${reference}`);
  return response.status === 200 ? response.text() : response.status;
}

test('images go with platforms and referrers, renamed, to no other address; a tag that points elsewhere is a conflict', async (t) => {
  const [old, here] = [await startTestServer(t), await startTestServer(t)];
  const { index, sbom } = await signedIndex(new TestRepository(here, 'team/app'), '1.0');
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'token'), old.token);
  const words = ['registry', old.url, '--token-file', join(folder, 'token'), '--rename', 'team/*=old/*'];
  t.regex((await exporting(here, ...words, '--dry-run')).stdout, /^to export: 3 \(/m);
  t.is(await imageOf(old, 'old/app', '1.0'), 404);
  t.deepEqual(await rowsOf(old, 'SELECT digest FROM blobs'), [], 'an assessment sends nothing');
  const done = await exporting(here, ...words);
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^exported: 3 \(/);
  t.is(await imageOf(old, 'old/app', '1.0'), index);
  const { manifests } = (await (await old.fetch(`/v2/old/app/referrers/${digestOf(index)}`)).json()) as any;
  t.deepEqual(
    manifests.map((each: { digest: string }) => each.digest),
    [digestOf(sbom)],
  );
  t.regex((await exporting(here, ...words)).stdout, /^exported: 0\nthere already: 3\n/);
  const { tags } = (await (await old.fetch('/v2/old/app/tags/list')).json()) as any;
  t.deepEqual(tags, ['1.0', 'amd64', 'arm64'], 'this registry has lists of referrers by itself');
  const moved = await new TestRepository(old, 'old/app').image('amd64');
  const conflict = await exporting(here, ...words);
  t.is(conflict.code, 1);
  t.regex(conflict.stderr, /^conflict: old\/app amd64: the tag there points to another image; --move-tags moves it$/m);
  t.is(await imageOf(old, 'old/app', 'amd64'), moved.bytes);
  t.is((await exporting(here, ...words, '--move-tags')).code, 0);
  t.is(await imageOf(old, 'old/app', 'amd64'), await imageOf(here, 'team/app', 'amd64'));

  // An upload that a target leads elsewhere.
  const elsewhere = await startFaultyUpstream(t);
  const hostile = await startFaultyUpstream(t);
  hostile.on('/v2/old/app/blobs/uploads/', answer(202, { location: new URL('/upload', elsewhere.url).href }));
  const refused = await exporting(here, 'registry', hostile.url.origin, '--user', 'me', ...words.slice(2));
  t.is(refused.code, 1);
  t.regex(
    refused.stderr,
    /^failed: old\/app 1\.0: The target leads an upload to http:\/\/127\.0\.0\.1:\d+, which is not/m,
  );
  t.is(elsewhere.asked.length, 0);
  t.false(hostile.asked.some(({ method }) => method === 'PUT'));
});

test('a repository gets one manifest at a time', async (t) => {
  const here = await startTestServer(t);
  await signedIndex(new TestRepository(here, 'team/app'), '1.0');
  const pushed: string[] = [];
  let [now, most] = [0, 0];
  const url = await serving(t, async (request, response) => {
    await request.resume().toArray();
    if (request.method === 'POST') response.writeHead(202, { location: '/upload' }).end();
    else if (request.method !== 'PUT') response.writeHead(request.url === '/v2/' ? 200 : 404).end();
    else if (!request.url!.includes('/manifests/')) response.writeHead(201).end();
    else {
      pushed.push(request.url!);
      most = Math.max(most, (now += 1));
      await sleep(50);
      now -= 1;
      response.writeHead(201).end();
    }
  });
  const done = await exporting(here, 'registry', url, '--concurrency', '4');
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.true(pushed.length >= 7, pushed.join(' '));
  t.is(most, 1);
});

test('each of more tags than one statement reads goes once', async (t) => {
  const here = await startTestServer(t);
  const app = new TestRepository(here, 'app');
  const { bytes, digest } = await app.image('first');
  for (let start = 0; start < 500; start += 50) {
    const tags = Array.from({ length: 50 }, (_, index) => `tag=t${start + index}`).join('&');
    t.is((await app.put(`${digest}?${tags}`, bytes)).status, 201);
  }
  const asked: string[] = [];
  const url = await serving(t, async (request, response) => {
    asked.push(request.url!);
    response.writeHead(200, { 'docker-content-digest': digest }).end();
  });
  const done = await exporting(here, 'registry', url);
  t.deepEqual([done.code, done.stdout], [0, 'exported: 0\nthere already: 501\nconflicts: 0\nfailed: 0\n']);
  const tags = asked.filter((path) => path.startsWith('/v2/app/manifests/'));
  t.deepEqual([tags.length, new Set(tags).size], [501, 501]);
});

test('what refers to the image of one platform goes with the index, also when that is there already', async (t) => {
  const [old, here] = [await startTestServer(t), await startTestServer(t)];
  const app = new TestRepository(here, 'app');
  const platform = await platformImage(app, '1.0');
  const signature = await app.attach(platform);
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'token'), old.token);
  const send = async () => (await exporting(here, 'registry', old.url, '--token-file', join(folder, 'token'))).stdout;
  t.regex(await send(), /^exported: 1 \(/);
  t.is(await imageOf(old, 'app', signature.digest), await imageOf(here, 'app', signature.digest));
  t.regex(await send(), /^exported: 0\nthere already: 1\n/);
  const later = await app.attach(platform);
  t.regex(await send(), /^exported: 1 \(/);
  t.is(await imageOf(old, 'app', later.digest), await imageOf(here, 'app', later.digest));
});

const entryOf = (text: string, more = {}) => ({
  mediaType: ociManifest,
  digest: digestOf(text),
  size: text.length,
  ...more,
});
const indexOf = (...manifests: object[]) => ({ schemaVersion: 2, mediaType: ociIndex, manifests });

test('a registry without lists of referrers gets them under a tag, beside what is there, and what it refuses is told', async (t) => {
  const here = await startTestServer(t);
  const app = new TestRepository(here, 'team/app');
  const { index, sbom } = await signedIndex(app, '1.0');
  t.is((await app.put('sparse', indexOf(entryOf('an image that is not there')))).status, 201);
  const tag = digestOf(index).replace(':', '-');
  t.is((await app.put(tag, indexOf())).status, 201);

  const manifests = new Map([[tag, { type: ociIndex, text: JSON.stringify(indexOf(entryOf('of another client'))) }]]);
  const blobs = new Set<string>();
  const sent: string[] = [];
  let refused = '';
  const url = await serving(t, async (request, response) => {
    const { pathname, searchParams } = new URL(request.url!, 'http://target');
    const body = Buffer.concat(await request.toArray());
    const kind = /\/(manifests|blobs\/uploads|blobs)\//.exec(pathname)?.[1] ?? '';
    const reference = pathname.split('/').at(-1)!;
    const end = (status: number, headers = {}, text?: string) => void response.writeHead(status, headers).end(text);
    if (request.method !== 'GET' && request.method !== 'HEAD') sent.push(`${request.method} ${pathname}`);
    if (pathname === '/v2/') end(200);
    else if (`${request.method} ${kind}` === refused) end(400);
    else if (request.method === 'POST') end(202, { location: `${pathname}1?state=x` });
    else if (request.method === 'PUT' && kind === 'blobs/uploads') {
      const isRight = searchParams.get('state') === 'x' && searchParams.get('digest') === digestOf(body);
      blobs.add(digestOf(body));
      end(isRight ? 204 : 400);
    } else if (request.method === 'PUT') {
      manifests.set(reference, { type: request.headers['content-type']!, text: body.toString() });
      end(200);
    } else if (kind === 'blobs') end(blobs.has(reference) ? 200 : 404);
    else {
      const found = kind === 'manifests' ? manifests.get(reference) : undefined;
      const headers = found && { 'content-type': found.type, 'docker-content-digest': digestOf(found.text) };
      end(found ? 200 : 404, headers, request.method === 'HEAD' ? undefined : found?.text);
    }
  });
  const words = ['registry', url, '--rename', 'team/*=old/*', '--concurrency', '1'];
  t.regex((await exporting(here, ...words, '--dry-run')).stdout, /^to export: 4 \(/m);
  t.deepEqual(sent, []);
  const done = await exporting(here, ...words);
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^exported: 4 \(/);
  t.is(manifests.get('1.0')!.text, index);
  t.is(manifests.get('1.0')!.type, ociIndex);
  t.deepEqual(manifests.get(digestOf(sbom)), { type: ociManifest, text: sbom });
  const { type, text } = manifests.get(tag)!;
  t.is(type, ociIndex);
  t.deepEqual(
    JSON.parse(text),
    indexOf(entryOf('of another client'), entryOf(sbom, { artifactType: 'application/spdx+json' })),
  );
  const count = sent.length;
  t.is(new Set(sent.filter((each) => each.startsWith('PUT') && each.includes('sha256:'))).size, 5, 'each manifest');
  t.is((await exporting(here, ...words)).stdout, 'exported: 0\nthere already: 4\nconflicts: 0\nfailed: 0\n');
  t.is(sent.length, count, 'nothing more');

  for (const [what, message] of [
    ['POST blobs/uploads', /^failed: old\/app 1\.0: The target refused an upload to old\/app \(400\)$/m],
    ['PUT blobs/uploads', /^failed: old\/app 1\.0: The target refused sha256:\w{64} \(400\)$/m],
    ['PUT manifests', /^failed: old\/app 1\.0: The target refused the manifest sha256:\w{64} \(400\)$/m],
  ] as const) {
    manifests.clear();
    blobs.clear();
    refused = what;
    const failed = await exporting(here, ...words);
    t.is(failed.code, 1);
    t.regex(failed.stderr, message);
  }
  const wrong = await exporting(here, 'registry', url, '--rename', 'team/*=Old/*');
  t.regex(wrong.stderr, /^failed: team\/app: Old\/app is not a name of images$/m);
});
