import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg, makeNuspec } from '../support/builders/nupkg.ts';
import { writeZip } from '../support/builders/zip.ts';
import { TestFeed } from '../support/feed.ts';
import { startImporting } from '../support/imports.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';
import { digestOf, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { answer, endless, held, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { json, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

const redirectTo = (address: string) => answer(302, { location: address });
const fileOf = (id: string) => `/flat/${id}/1.0.0/${id}.1.0.0.nupkg`;

test('a hostile feed: nothing wrong comes in, and each refusal has its reason', async (t) => {
  const source = await UpstreamFeed.start(t);
  const elsewhere = await startFaultyUpstream(t);
  const bytes = await makeNupkg({ id: 'Good', version: '1.0.0' });
  const offer = (id: string, entry?: object) =>
    source.offer({ id, versions: [{ version: '1.0.0', ...(entry && { entry: { ...entry } }) }] });
  for (const id of ['Good', 'Other', 'Elsewhere', 'Private', 'Endless', 'Broken', 'Absent']) await offer(id);
  await offer('Hash', { packageHashAlgorithm: 'SHA512', packageHash: Buffer.alloc(64).toString('base64') });
  source.upstream.on(fileOf('good'), serve(bytes));
  source.upstream.on(fileOf('other'), serve(bytes));
  // Another server gets no secret; another host than the one that was named may not be in a private network.
  elsewhere.on('/file', serve(await makeNupkg({ id: 'Elsewhere', version: '1.0.0' })));
  source.upstream.on(fileOf('elsewhere'), redirectTo(new URL('/file', elsewhere.url).href));
  source.upstream.on(fileOf('private'), redirectTo(`http://localhost:${elsewhere.url.port}/file`));
  const sent = { bytes: 0 };
  source.upstream.on(fileOf('endless'), endless(sent));
  source.upstream.on('/registration/broken/index.json', answer(200, {}, '{"items": 7'));
  source.upstream.on(fileOf('absent'), answer(404));
  // Pages without an end, with names that are none.
  const ids = [...source.packages.values()].map(({ id }) => ({ id, version: '1.0.0', versions: [] }));
  const strange = ['../../etc/passwd', 'a/b', '', 'x'.repeat(500), '..'].map((id) => ({ id, version: '1.0.0' }));
  source.upstream.on('/query', json({ totalHits: 1e9, data: [...ids, ...strange] }));
  source.upstream.on('/autocomplete', json({ totalHits: 0, data: ['../x', 'good'] }));
  const { target, bring, file } = await startImporting(t, [], { ENTREPOT_LIMITS_NUPKG: '1MiB' });
  const token = await file('token', 'secret-of-the-source');
  const heard = await bring(`${source.url}/index.json`, '--token-file', token, '--user', 'me');
  t.is(heard.code, 1);
  t.regex(heard.stdout, /^imported: 2 \(.*\nhere already: 0\nmirrored: 0\nconflicts: 0\nfailed: 6\n/);
  for (const expected of [
    /^failed: Other 1\.0\.0: The source sent Good 1\.0\.0 in place of other 1\.0\.0$/m,
    /^failed: Hash 1\.0\.0: The source sent content with another hash than it tells$/m,
    /^failed: Private 1\.0\.0: The source 127\.0\.0\.1:\d+ has, or redirects to, an address that is refused/m,
    /^failed: Endless 1\.0\.0: .*larger than/m,
    /^failed: Broken: The source sent a document that cannot be read/m,
    /^failed: Absent 1\.0\.0: The source lists this version and does not have its file$/m,
    /^warning: The source tells of 1000000000 packages and lists 8: some may be missing/m,
  ])
    t.regex(heard.stderr, expected);
  t.false(`${heard.stdout}${heard.stderr}`.includes('secret-of-the-source'));
  t.true(sent.bytes < 50 * 2 ** 20);
  t.is(elsewhere.count('/file'), 1);
  t.is(elsewhere.asked[0]!.headers.authorization, undefined);
  t.truthy(source.upstream.asked.find(({ path }) => path === fileOf('good'))!.headers.authorization);
  const shown = await new TestFeed(target).json('/search?prerelease=true&take=100');
  t.deepEqual(shown.data.map(({ id }: { id: string }) => id).sort(), ['Elsewhere', 'Good']);
});

test('credentials that are refused in the middle, and a limit that is reached, stop the import; it goes on later', async (t) => {
  const source = await UpstreamFeed.start(t);
  for (const id of ['A', 'B', 'C', 'D']) await source.offer({ id, versions: [{ version: '1.0.0' }] });
  const good = await makeNupkg({ id: 'C', version: '1.0.0', payloadBytes: 100_000 });
  source.upstream.on(fileOf('c'), answer(401, { 'www-authenticate': 'Basic' }), serve(good));
  const { bring, target, file } = await startImporting(t);
  const token = await file('token', 'one');
  const words = [`${source.url}/index.json`, '--concurrency', '1', '--user', 'me', '--token-file', token];
  const first = await bring(...words);
  t.is(first.code, 1);
  t.regex(
    first.stderr,
    /^entrepot: stopped before the end: .*refused access.*; run the same command again to continue$/m,
  );
  t.is(source.upstream.count(fileOf('d')), 0);
  const second = await bring(...words);
  t.deepEqual([second.code, second.stderr], [0, '']);
  t.regex(second.stdout, /^imported: 2 \(.*\nhere already: 2\n/);
  const limited = await startImporting(t, [], { ENTREPOT_LIMITS_ACCOUNT_STORAGE: '1kB' });
  const refused = await limited.bring(...words);
  t.is(refused.code, 1);
  t.regex(refused.stderr, /^entrepot: stopped before the end: Account "default" stores .*its limit is 1000 bytes/m);
  t.is((await new TestFeed(target).fetch('/package/d/index.json')).status, 200);
});

test('a source that is down fails with its reason and a code', async (t) => {
  const source = await startFaultyUpstream(t);
  await source.stop();
  const { bring } = await startImporting(t);
  const { code, stderr } = await bring(`${source.url.href}v3/index.json`);
  t.is(code, 1);
  t.regex(
    stderr,
    /^failed: the list of names: The source 127\.0\.0\.1:\d+ (?:failed a moment ago: it )?cannot be reached/m,
  );
});

test('a source that is slow or cuts connections holds nothing else up, and what it gets or loses meanwhile is found by the next run', async (t) => {
  const source = await UpstreamFeed.start(t);
  const ids = ['A', 'B', 'C', 'D'];
  const bytes = await Promise.all(ids.map((id) => makeNupkg({ id, version: '1.0.0', payloadBytes: 20_000 })));
  for (const [at, id] of ids.entries()) await source.offer({ id, versions: [{ version: '1.0.0', nupkg: bytes[at]! }] });
  const newer = await makeNupkg({ id: 'B', version: '2.0.0' });
  const late = await makeNupkg({ id: 'Late', version: '1.0.0' });
  const slow = held(serve(bytes[0]!));
  source.upstream.on(fileOf('a'), slow.behaviour);
  source.upstream.on(fileOf('c'), serve(bytes[2]!, { until: 1000 }), serve(bytes[2]!));
  const { bring, target } = await startImporting(t);
  const feed = new TestFeed(target);
  const first = bring(`${source.url}/index.json`, '--concurrency', '2');
  for (const id of ['b', 'c', 'd'])
    await until(async () => (await feed.fetch(`/package/${id}/index.json`)).status === 200);
  t.is((await feed.fetch('/package/a/index.json')).status, 404);
  t.is(source.upstream.count(fileOf('c')), 2);
  // The source changes: B has one more version, there is another package, and D is gone.
  await source.offer({
    id: 'B',
    versions: [
      { version: '1.0.0', nupkg: bytes[1]! },
      { version: '2.0.0', nupkg: newer },
    ],
  });
  await source.offer({ id: 'Late', versions: [{ version: '1.0.0', nupkg: late }] });
  source.packages.delete('d');
  slow.release();
  const { code, stdout, stderr } = await first;
  t.deepEqual([code, stderr], [0, '']);
  t.regex(stdout, /^imported: 4 \(/);
  const next = await bring(`${source.url}/index.json`);
  t.deepEqual([next.code, next.stderr], [0, '']);
  t.regex(next.stdout, /^imported: 2 \(.*\nhere already: 3\n/);
  // An import deletes nothing.
  t.deepEqual((await feed.json('/package/d/index.json')).versions, ['1.0.0']);
  t.deepEqual((await feed.json('/package/b/index.json')).versions, ['1.0.0', '2.0.0']);
});

test('two sources with one name: the first one stays; packages of 65,535 entries come, and larger ones do not', async (t) => {
  const { bring, target, folder } = await startImporting(t);
  const feed = new TestFeed(target);
  // Of the same size: their hashes differ.
  const bytes = await Promise.all([0, 1].map(() => makeNupkg({ id: 'Same', version: '1.0.0' })));
  for (const [at, each] of bytes.entries()) {
    const source = await UpstreamFeed.start(t);
    const entry = { packageHashAlgorithm: 'SHA512', packageHash: createHash('sha512').update(each).digest('base64') };
    await source.offer({ id: at === 0 ? 'Same' : 'SAME', versions: [{ version: '1.0.0', nupkg: each, entry }] });
    const { code, stderr } = await bring(`${source.url}/index.json`);
    if (at === 0) t.deepEqual([code, stderr], [0, '']);
    else t.regex(stderr, /^conflict: SAME 1\.0\.0: other content is here under this name$/m);
  }
  const kept = await feed.fetch('/package/same/1.0.0/same.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await kept.arrayBuffer()), bytes[0]);
  await mkdir(join(folder, 'large'));
  for (const [id, count] of [
    ['Most', 65_534],
    ['TooMany', 65_535],
  ] as const) {
    const files = Array.from({ length: count }, (_, at) => ({ name: `content/${at}`, method: 0 }));
    const nuspec = { name: `${id}.nuspec`, data: makeNuspec({ id }) };
    await writeFile(join(folder, 'large', `${id}.nupkg`), writeZip([nuspec, ...files]));
  }
  const { stdout, stderr } = await bring(join(folder, 'large'));
  t.regex(stdout, /^imported: 1 \(/);
  t.regex(stderr, /^failed: TooMany\.nupkg: .*(?:zip|entries)/m);
  t.is((await feed.fetch('/package/most/1.0.0/most.1.0.0.nupkg')).status, 200);
});

test('killed at any instant, it goes on where it was, and nothing is half there', async (t) => {
  const old = await startTestServer(t);
  const from = new TestFeed(old);
  const packages = new Map<string, Buffer>();
  for (let at = 0; at < 40; at += 1) {
    const [id, version] = [`Lib${at % 10}`, `1.0.${at}`];
    const bytes = await makeNupkg({ id, version, payloadBytes: 20_000 });
    packages.set(`${id.toLowerCase()}/${version}`, bytes);
    t.is((await from.push(bytes)).status, 201);
  }
  const folder = await folderUntilEnd(t);
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', TOKEN: from.token });
  const words = ['import', `${old.url}/v3/index.json`, '--token-env', 'TOKEN', '--concurrency', '4'];
  let brought = 0;
  for (const lines of [1, 7, 13]) {
    const report = join(folder, `report-${lines}`);
    const { child, end } = command.begin(...words, '--report', report);
    const imported = async () => (await readFile(report, 'utf8').catch(() => '')).match(/"imported"/g)?.length ?? 0;
    await until(async () => (await imported()) >= lines);
    child.kill('SIGKILL');
    await Promise.all([end, child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined]);
    brought += await imported();
  }
  const { code, stdout, stderr } = await command.run(...words);
  t.deepEqual([code, stderr], [0, '']);
  const [, imported, here] = /^imported: (\d+).*\nhere already: (\d+)\n/.exec(stdout)!.map(Number);
  t.is(imported! + here!, 40);
  t.true(here! >= brought);
  const serving = await command.serve({ ENTREPOT_BOOTSTRAP_TOKEN: 'a-token-for-the-first-start-of-it' });
  for (const [path, bytes] of packages) {
    const name = path.replace('/', '.');
    const answered = await fetch(`${serving.url}/v3/package/${path}/${name}.nupkg`, {
      headers: { authorization: 'Bearer a-token-for-the-first-start-of-it' },
    });
    t.is(answered.status, 200);
    t.true(bytes.equals(Buffer.from(await answered.arrayBuffer())));
  }
});

test('killed while images come, no tag is there without all that it needs, and it goes on where it was', async (t) => {
  const old = await startTestServer(t);
  const app = new TestRepository(old, 'team/app');
  const tags = Array.from({ length: 24 }, (_, at) => `1.${at}`);
  for (const tag of tags) {
    const layer = await app.blob(randomBytes(300_000), 'application/vnd.oci.image.layer.v1.tar');
    const config = await app.blob(`{"tag":"${tag}"}`, 'application/vnd.oci.image.config.v1+json');
    const manifest = { schemaVersion: 2, mediaType: ociManifest, config, layers: [layer] };
    t.is((await app.put(tag, manifest)).status, 201);
  }
  const folder = await folderUntilEnd(t);
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', TOKEN: old.token });
  const words = ['import', old.url, '--token-env', 'TOKEN', '--concurrency', '3'];
  const key = 'a-token-for-the-first-start-of-it';
  const wholeTags = async (serving: { url: string }) => {
    const ask = async (path: string) => {
      const answered = await fetch(`${serving.url}/v2/team/app/${path}`, {
        headers: { authorization: `Bearer ${key}` },
      });
      return { status: answered.status, bytes: Buffer.from(await answered.arrayBuffer()) };
    };
    const listed = await ask('tags/list?n=100');
    const found = listed.status === 200 ? (JSON.parse(listed.bytes.toString()) as { tags: string[] }).tags : [];
    for (const tag of found) {
      const { config, layers } = JSON.parse((await ask(`manifests/${tag}`)).bytes.toString());
      for (const { digest } of [config, ...layers]) t.is(digestOf((await ask(`blobs/${digest}`)).bytes), digest, tag);
    }
    return found;
  };
  for (const lines of [1, 8]) {
    const report = join(folder, `report-${lines}`);
    const { child, end } = command.begin(...words, '--report', report);
    const imported = async () => (await readFile(report, 'utf8').catch(() => '')).match(/"imported"/g)?.length ?? 0;
    await until(async () => (await imported()) >= lines);
    child.kill('SIGKILL');
    await end;
    const serving = await command.serve({ ENTREPOT_BOOTSTRAP_TOKEN: key });
    t.true((await wholeTags(serving)).length >= lines);
    await serving.stop();
  }
  const { code, stdout, stderr } = await command.run(...words);
  t.deepEqual([code, stderr], [0, '']);
  const [, imported, here] = /^imported: (\d+).*\nhere already: (\d+)\n/.exec(stdout)!.map(Number);
  t.is(imported! + here!, tags.length);
  t.true(here! >= 9);
  const serving = await command.serve({ ENTREPOT_BOOTSTRAP_TOKEN: key });
  t.deepEqual((await wholeTags(serving)).sort(), tags.toSorted());
});

test('an import ends when its report cannot be written', async (t) => {
  const { bring, folder, file } = await startImporting(t);
  // So many that the failure comes before the end.
  for (let at = 0; at < 30; at += 1) await file(`${at}.nupkg`, await makeNupkg({ id: `Contoso.Lib${at}` }));
  // The device is always full.
  const { code, stderr } = await bring(folder, '--report', '/dev/full', '--concurrency', '1');
  t.not(code, 0);
  t.regex(stderr, /ENOSPC|no space/i);
});
