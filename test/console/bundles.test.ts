import { readFile } from 'node:fs/promises';
import test from 'ava';
import { bundleForm, called, ended, madeBundle, sentImport } from '../support/bundle-runs.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

// The pages of bundles, without JavaScript.

const sameSite = { 'sec-fetch-site': 'same-origin' };

test('a bundle is made, downloaded, sent to another server and imported, all by forms', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far } = gap;
  const key = await trustedKey(gap);
  registry.image('library/redis', '7');
  const from = await near.serve({ bundles: { key } });
  const visitor = await Visitor.signedIn(from);
  t.regex(await visitor.page('/console/mirror'), /<a href="\/console\/bundles"/);
  const form = await visitor.page('/console/bundles/new');
  t.regex(form, /enctype="multipart\/form-data"[^]*name="stored"[^]*name="against"[^]*name="segment"/);
  t.notRegex(form, /is not signed/);
  const send = (body: FormData) => visitor.fetch('/console/bundles/new', { method: 'POST', body, headers: sameSite });
  const fields = { stored: 'false', segment: '', expires: '', policy: 'false', allow_missing: 'false', kind: '' };
  const sent = await send(bundleForm({ 'images.txt': 'redis:7\ngone:1\n' }, fields, Buffer.from('')));
  const failedAt = sent.headers.get('location')!;
  t.regex(failedAt, /^\/console\/bundles\/[0-9a-f-]{36}$/);
  await ended(from, failedAt.slice('/console/bundles'.length));
  t.regex(await visitor.page(failedAt), /failed[^]*1 entry that cannot be had[^]*gone[^]*images\.txt:2/);
  const again = await send(bundleForm({ 'images.txt': 'redis:7\ngone:1\n' }, { ...fields, allow_missing: 'true' }));
  const at = again.headers.get('location')!;
  const made = await ended(from, at.slice('/console/bundles'.length));
  const page = await visitor.page(at);
  const [, link] = /<a href="([^"]+)" download>0001\.tar<\/a>/.exec(page)!;
  const download = await visitor.fetch(link!);
  t.is(download.status, 200);
  const segment = new Uint8Array(await download.arrayBuffer());
  t.is(segment.length, made['segments'][0].size_bytes);
  t.regex(await visitor.page('/console/bundles?show=made'), /Latest makings and imports[^]*complete[^]*2 manifests/);

  const to = await far.serve();
  const reader = await Visitor.signedIn(to);
  const begun = await reader.send('/console/bundles', { act: 'import' });
  const importAt = begun.headers.get('location')!;
  t.regex(importAt, /^\/console\/bundles\/imports\/[0-9a-f-]{36}$/);
  t.regex(await reader.page(importAt), /No segment is here yet[^]*Give it up/);
  t.regex(await reader.page(`${importAt}/segments`), /type="file" multiple[^]*17\.2 GB at most/);
  const segments = new FormData();
  segments.append('segment', new Blob([segment]), '0001.tar');
  const received = await reader.fetch(`${importAt}/segments`, { method: 'POST', body: segments, headers: sameSite });
  t.is(leadsTo(received), `${importAt} (segments-received)`);
  t.regex(await reader.page(importAt), /0001\.tar[^]*value="run"/);
  t.is((await reader.send(importAt, { act: 'run' })).headers.get('location'), importAt);
  await ended(to, importAt.slice('/console/bundles'.length));
  const result = await reader.page(importAt);
  t.regex(
    result,
    /<span class="state good">done<\/span>[^]*2 manifests[^]*Signed by[^]*near\.key[^]*New here[^]*\d+ entries/,
  );
  t.notRegex(result, /value="run"/);
  t.is((await to.fetch('/v2/redis/manifests/7')).status, 200);
  t.regex(await reader.page('/console/bundles'), /aria-current="page"[^]*1 bundle, [^]*complete[^]*near\.key/);
  t.regex(
    await reader.page('/console/bundles?state=incomplete'),
    /Nothing matches\. <a href="\/console\/bundles">Clear/,
  );

  t.is(leadsTo(await visitor.send(at, { act: 'delete' })), '/console/bundles?show=made (bundle-deleted)');
  t.is((await visitor.fetch(link!)).status, 404);
});

test('errors are beside the fields of the forms, and values are shown again', async (t) => {
  const gap = await startAirGap(t);
  const server = await gap.near.serve({ bundles: { segment: '1kB' } });
  const visitor = await Visitor.signedIn(server);
  const wrong: [FormData, RegExp][] = [
    [bundleForm({}), /id="file-error"[^>]*>Choose at least one file, or everything/],
    [bundleForm({ 'list.txt': 'redis:7' }, { segment: '<b>' }), /value="&lt;b&gt;"[^]*id="segment-error"/],
    [bundleForm({ 'list.txt': 'redis:7' }, { expires: 'soon' }), /id="expires-error"/],
    [bundleForm({ 'list.txt': '# nothing' }), /id="file-error"[^>]*>The files list no package and no image/],
    [bundleForm({ 'list.txt': 'redis:7' }, {}, Buffer.from('x')), /id="against-error"/],
  ];
  for (const [body, expected] of wrong) {
    const sent = await visitor.fetch('/console/bundles/new', { method: 'POST', body, headers: sameSite });
    t.regex(await visitor.refusedPage(sent), expected);
  }
  const page = await visitor.page('/console/bundles/new');
  t.regex(page, /is not signed[^]*bundles\.key/);
  const fields = [...page.matchAll(/ name="(\w+)" (?!type="file")[^>]*>(?:\s*<option value="(\w*)")?/g)];
  const all = Object.fromEntries(fields.map(([, name, value]) => [name!, value ?? '']));
  t.like(all, { stored: 'false', known_bad: 'false', new_key: '' });
  const body = bundleForm({ 'list.txt': '# nothing' }, all);
  const sent = await visitor.fetch('/console/bundles/new', { method: 'POST', body, headers: sameSite });
  t.regex(
    await visitor.refusedPage(sent),
    /id="file-error"[^>]*>The files list no package/,
    'browsers send every field',
  );
  const at = `/console/bundles${await sentImport(server, {})}`;
  for (const [name, bytes, expected] of [
    ['bundle.zip', 10, /id="segment-error"[^>]*>Send files with names such as 0001\.tar/],
    ['0001.tar', 1001, /id="segment-error"[^>]*>A segment here has at most 1000 bytes/],
    ['', 0, /id="segment-error"[^>]*>Choose at least one segment/],
  ] as const) {
    const form = new FormData();
    form.append('segment', new Blob([new Uint8Array(bytes)]), name);
    const sent = await visitor.fetch(`${at}/segments`, { method: 'POST', body: form, headers: sameSite });
    t.regex(await visitor.refusedPage(sent), expected);
  }
  const pem = 'no key';
  const refused = await visitor.send('/console/bundles', {
    act: 'trust',
    name: 'near<i>',
    public_key: pem,
    role: 'both',
  });
  t.regex(await visitor.refusedPage(refused), /value="near&lt;i&gt;"[^]*id="public_key-error"/);
});

test('keys are trusted and removed by forms, and what an import lacks is said', async (t) => {
  const gap = await startAirGap(t);
  await gap.near.ok('bundle', 'keygen', '--to', gap.path('near.key'));
  const segments = await madeBundle(gap, 'bundle', '--key', gap.path('near.key'));
  const server = await gap.far.serve();
  const visitor = await Visitor.signedIn(server);
  const at = await sentImport(server, segments);
  const page = `/console/bundles${at}`;
  await visitor.send(page, { act: 'run', older: 'true' });
  t.true((await ended(server, at))['older']);
  t.regex(await visitor.page(page), /failed[^]*which is not trusted here[^]*0001\.tar[^]*value="run"/);
  const pem = await readFile(gap.path('near.key.pub'), 'utf8');
  const trusted = await visitor.send('/console/bundles', {
    act: 'trust',
    name: 'near',
    public_key: pem,
    role: 'bundles',
    expires_at: '2999-12-31',
  });
  t.is(leadsTo(trusted), '/console/bundles?show=keys (key-trusted)');
  const [key] = (await called(server, 'GET', '/keys'))['items'];
  t.like(key, { name: 'near', role: 'bundles', expires_at: '2999-12-31T00:00:00.000Z' });
  const keys = await visitor.page('/console/bundles?show=keys');
  t.regex(keys, /near[^]*bundles[^]*Remove near/);
  t.deepEqual(
    [...keys.matchAll(/<option value="(\w+)"[^>]*>([^<]*)</g)].map(([, value, text]) => `${value}: ${text}`),
    ['bundles: bundles', 'receipts: receipts', 'revoke: revocations of keys'],
  );
  await visitor.send(page, { act: 'run' });
  t.like(await ended(server, at), { state: 'done', older: false });
  const removed = await visitor.send('/console/bundles', { act: 'remove', key: key.id });
  t.is(leadsTo(removed), '/console/bundles?show=keys (key-removed)');
  t.deepEqual((await called(server, 'GET', '/keys'))['items'], []);
  const open = `/console/bundles${await sentImport(server, {})}`;
  t.is(leadsTo(await visitor.send(open, { act: 'delete' })), '/console/bundles (bundle-deleted)');
  t.is((await visitor.fetch(open)).status, 404);
});

test('a signed key is trusted and a key is revoked by forms', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await near.ok('bundle', 'keygen', '--to', path('offline'));
  await near.ok('bundle', 'keygen', '--to', path('next'), '--signed-by', key);
  await near.ok('bundle', 'revoke', `${key}.pub`, '--key', path('offline'), '--to', path('revoked'));
  const statement = await readFile(path('next.signed'), 'utf8');
  const segments = await madeBundle(gap, 'bundle', '--key', key, '--new-key', path('next.signed'));
  const server = await far.serve();
  const visitor = await Visitor.signedIn(server);
  const at = await sentImport(server, segments);
  await visitor.send(`/console/bundles${at}`, { act: 'run' });
  await ended(server, at);
  t.regex(await visitor.page(`/console/bundles${at}`), /New key[^]*signed by near\.key[^]*Trusted keys/);
  const send = (body: Record<string, string>) => visitor.send('/console/bundles', body);
  const trust = { act: 'trust', name: 'next', role: '', expires_at: '' };
  const wrong = await visitor.refusedPage(await send({ ...trust, public_key: '{"a":"<i>"}' }));
  t.regex(wrong, /&lt;i&gt;[^]*id="public_key-error"[^>]*>this is no signed statement/);
  t.is(leadsTo(await send({ ...trust, public_key: statement })), '/console/bundles?show=keys (key-trusted)');
  t.regex(
    await visitor.page('/console/bundles?show=keys'),
    /next[^]*because near\.key signed so[^]*bundles and receipts/,
  );
  const refused = await send({ act: 'revoke', statement: await readFile(path('revoked'), 'utf8') });
  t.regex(await visitor.refusedPage(refused), /id="statement-error"[^>]*>The statement is signed by the key/);
  await send({ ...trust, name: 'offline', role: 'revoke', public_key: await readFile(path('offline.pub'), 'utf8') });
  const revoked = await send({ act: 'revoke', statement: await readFile(path('revoked'), 'utf8') });
  t.is(leadsTo(revoked), '/console/bundles?show=keys (key-revoked)');
  t.regex(await visitor.page('/console/bundles?show=keys'), /Revoked keys[^]*near\.key[^]*offline/);
});

test('a receipt is written and downloaded, and segments are checked, by forms', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const server = await gap.far.serve();
  const visitor = await Visitor.signedIn(server);
  const at = await sentImport(server, segments);
  await visitor.send(`/console/bundles${at}`, { act: 'check' });
  await ended(server, at);
  t.regex(await visitor.page(`/console/bundles${at}`), /checked[^]*Nothing is imported yet[^]*value="run"/);
  t.notRegex(await visitor.page('/console/bundles'), /bundles\/receipt/);
  t.is(leadsTo(await visitor.send('/console/bundles', { act: 'receipt' })), '/console/bundles (receipt-written)');
  t.regex(await visitor.page('/console/bundles'), /<a href="\/console\/bundles\/receipt\/file" download>/);
  const download = await visitor.fetch('/console/bundles/receipt/file');
  t.is(download.status, 200);
  t.is(download.headers.get('cache-control'), 'no-store', 'the next receipt has the same address');
  t.regex(await download.text(), /entrepot-receipt/);
});

test('only operators see the pages of bundles', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server, await tokenOf(server, ['read', 'write', 'delete', 'admin']));
  t.notRegex(await visitor.page('/console/'), /\/console\/bundles/);
  const at = '/console/bundles/00000000-0000-4000-8000-000000000000';
  for (const path of ['', '/new', '/imports/x', '/imports/x/segments', '/x'])
    t.is((await visitor.fetch(`/console/bundles${path}`)).status, 403, path);
  t.is((await visitor.fetch(`${at}/segments/1`)).status, 403);
  t.is((await visitor.send('/console/bundles', { act: 'import' })).status, 403);
});
