import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { bundleForm, called, ended, madeBundle, ranImport, refusal, sentImport } from '../support/bundle-runs.ts';
import { applyPolicy, runJob } from '../support/inside.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { OpenDocument } from '../support/open-document.ts';
import { eventually } from '../support/until.ts';
import { Visitor } from '../support/visitor.ts';

// Bundles by `/v1/bundles`: making, segments, imports, keys.

test('a bundle is made by one server and imported by another, with its key and its counts', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, far } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib.One', versions: [{ version: '1.0.0' }] });
  const image = registry.image('library/redis', '7');
  const from = await near.serve({ bundles: { key } });
  const document = await OpenDocument.of(from);
  const form = bundleForm({ 'packages.txt': 'Lib.One@1.0.0\n', 'images.txt': 'redis:7\n' });
  const begun = await document.read('POST /bundles', await from.fetch('/v1/bundles', { method: 'POST', body: form }));
  t.like(begun, { files: ['packages.txt', 'images.txt'], stored: false, against: null });
  const made = await ended(from, `/${String(begun['id'])}`);
  t.like(made, { state: 'done', error: null, missing_total: 0 });
  t.like(made['bundle'], { segments: 1, packages: { count: 1 }, written: null, policy: false });
  t.is(made['segments'].length, 1);
  t.is(made['done_bytes'], made['total_bytes']);
  const list = await called(from, 'GET', '?direction=made');
  t.like(list['items'][0], { digest: made['bundle'].digest, direction: 'made', state: 'complete', against: null });
  t.deepEqual((await called(from, 'GET', ''))['items'], []);
  const download = await from.fetch(`/v1/bundles/${made['id']}/segments/1`);
  t.is(download.headers.get('content-type'), 'application/x-tar');
  t.is(download.headers.get('content-disposition'), 'attachment; filename="0001.tar"');
  const segment = Buffer.from(await download.arrayBuffer());
  t.is(segment.length, made['segments'][0].size_bytes);
  t.is((await from.fetch(`/v1/bundles/${made['id']}/segments/2`)).status, 404);
  await from.close();

  const to = await far.serve();
  const [trusted] = (await called(to, 'GET', '/keys'))['items'];
  t.like(trusted, { name: 'near.key', role: 'both', expires_at: null });
  t.is(made['bundle'].key.id, trusted.id);
  t.is(made['bundle'].key.name, null, 'its own installation need not trust it');
  const at = await sentImport(to, { 1: segment });
  const waiting = await called(to, 'GET', at);
  t.like(waiting, { state: 'receiving', segments: [{ number: 1, size_bytes: segment.length }], bundle: null });
  t.is((await to.fetch('/v2/redis/manifests/7')).status, 502);
  const imported = await ranImport(to, at);
  t.like(imported, { state: 'done', error: null, needed: [], segments: [], unsigned: false });
  t.like(imported['bundle'], { digest: made['bundle'].digest, key: { id: trusted.id, name: 'near.key' } });
  t.true(imported['bundle'].written > 0);
  t.is(await (await to.fetch('/v2/redis/manifests/7')).text(), image.manifest.bytes);
  const [shown] = (await called(to, 'GET', ''))['items'];
  t.like(shown, { direction: 'imported', state: 'complete', written: imported['bundle'].written });
  t.deepEqual(shown.packages, made['bundle'].packages);
  const { source, size_bytes: size } = shown;
  const filtered = `?total=1&sort=oldest&state=complete&q=${source.slice(2, 9).toUpperCase()}`;
  t.deepEqual((await called(to, 'GET', filtered))['total'], { count: 1, size_bytes: size });
  t.like(await called(to, 'GET', '?total=1&state=incomplete'), { items: [], total: { count: 0 } });
  t.deepEqual((await called(to, 'GET', '?q=none'))['items'], []);
  t.deepEqual(await readdir(join(far.data, 'bundles')), [], 'its segments are removed');
  const again = await ranImport(to, await sentImport(to, { 1: segment }));
  t.is(again['bundle'].written, 0, 'twice is nothing more');
  t.is((await called(to, 'GET', ''))['items'][0].written, imported['bundle'].written);
  t.regex((await refusal(to, 'PUT', `${at}/segments/1`, { body: 'x' })).detail, /This import is done/);
  t.regex((await refusal(to, 'POST', `${at}/run`, json({}))).detail, /This import is done/);
});

test('segments come in any order and in several goes, and the answer says which are needed', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  // Each image has 200 kB of content.
  for (let at = 0; at < 12; at += 1) gap.registry.image(`team/app${at}`, '1');
  const images = Array.from({ length: 12 }, (_, at) => `docker.io/team/app${at}:1`);
  const list = await gap.file('list.txt', images.join('\n'));
  await gap.near.ok('bundle', 'create', list, '--to', gap.path('bundle'), '--key', key, '--segment', '1200kB');
  const names = (await readdir(gap.path('bundle'))).toReversed();
  t.true(names.length >= 3);
  const server = await gap.far.serve();
  const at = await sentImport(server, {});
  t.regex((await refusal(server, 'POST', `${at}/run`, json({}))).detail, /No segment of this import/);
  const send = async (name: string) =>
    called(server, 'PUT', `${at}/segments/${Number(name.slice(0, 4))}`, await readFile(join(gap.path('bundle'), name)));
  await send(names[0]!);
  const partly = await ranImport(server, at);
  t.like(partly, { state: 'incomplete', error: null });
  t.true(partly['needed'].includes(1));
  t.false(partly['needed'].includes(names.length), 'it has this one');
  t.is((await called(server, 'GET', ''))['items'][0].state, 'incomplete');
  for (const name of names.slice(1)) await send(name);
  t.like(await ranImport(server, at), { state: 'done', needed: [] });
  t.is((await server.fetch('/v2/team/app11/manifests/1')).status, 200);
});

test('what is wrong with segments is said without paths of the server, and good copies go on', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  const good = await madeBundle(gap, 'bundle', '--key', key);
  const other = await madeBundle(gap, 'unsigned');
  const server = await gap.far.serve({ bundles: { segment: String(good[1]!.length) } });
  const damaged = Buffer.from(good[1]!);
  // Most of it is a layer of 200 kB.
  const position = damaged.length >> 1;
  damaged[position] = damaged[position]! ^ 1;
  const wrong: [segments: Record<number, Buffer>, error: RegExp][] = [
    [
      { 1: damaged },
      /^0001\.tar: the bytes of sha256:\w+ are damaged\. Send a good copy of it, and run the import again$/,
    ],
    [{ 1: good[1]!.subarray(0, position) }, /^0001\.tar: this is no complete tar file: it is truncated$/],
    [{ 7: Buffer.from('no tar file') }, /^0007\.tar: this is no complete tar file/],
    [{ 1: good[1]!, 2: other[1]! }, /^0002\.tar belongs to another bundle than 0001\.tar/],
    [{ 1: other[1]! }, /^the bundle is not signed.* with the option unsigned$/],
  ];
  for (const [segments, error] of wrong) {
    const at = await sentImport(server, segments);
    const failed = await ranImport(server, at);
    t.is(failed['state'], 'failed', String(error));
    t.regex(failed['error'], error);
    t.false(String(failed['error']).includes(gap.folder));
    t.is(failed['segments'].length, Object.keys(segments).length, 'they stay, so that one can be replaced');
    await called(server, 'DELETE', at);
    t.is((await refusal(server, 'GET', at)).status, 404);
  }
  t.is((await server.fetch('/v2/redis/manifests/7')).status, 502, 'nothing is shown');
  const at = await sentImport(server, { 1: damaged });
  t.is((await ranImport(server, at))['state'], 'failed');
  await called(server, 'PUT', `${at}/segments/1`, new Uint8Array(good[1]!));
  t.is((await ranImport(server, at))['state'], 'done');
  const unsigned = await sentImport(server, { 1: other[1]! });
  t.like(await ranImport(server, unsigned, { unsigned: true }), { state: 'done', bundle: { key: null } });
});

test('a bundle by an unknown key is refused until the key is trusted, and after it is removed', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  await near.ok('bundle', 'keygen', '--to', path('near.key'));
  const segments = await madeBundle(gap, 'bundle', '--key', path('near.key'));
  const pem = await readFile(path('near.key.pub'), 'utf8');
  const server = await far.serve();
  const document = await OpenDocument.of(server);
  const at = await sentImport(server, segments);
  t.regex((await ranImport(server, at))['error'], /signed by the key [0-9a-f]{16}, which is not trusted here/);
  const trust = (body: object) => server.fetch('/v1/bundles/keys', { method: 'POST', ...json(body) });
  const added = await document.read(
    'POST /bundles/keys',
    await trust({ public_key: pem, name: 'near', role: 'receipts' }),
  );
  t.like(added, { name: 'near', role: 'receipts', public_key: pem, expires_at: null });
  t.regex((await ranImport(server, at))['error'], /signed by near, which is not trusted for bundles/);
  await trust({ public_key: pem, name: 'near', role: 'bundles' });
  t.is((await ranImport(server, at))['state'], 'done');
  const id = String(added['id']);
  t.is((await refusal(server, 'DELETE', `/keys/${id.slice(0, 12)}`)).status, 404, 'only its whole ID');
  await called(server, 'DELETE', `/keys/${id}`);
  t.deepEqual((await called(server, 'GET', '/keys'))['items'], []);
  t.is((await ranImport(server, await sentImport(server, segments)))['state'], 'failed');

  const secret = await readFile(path('near.key'), 'utf8');
  const bad: [body: object, field: string][] = [
    [{ public_key: secret, name: 'a' }, 'public_key'],
    [{ public_key: 'no key', name: 'a' }, 'public_key'],
    [{ public_key: pem, name: ' ' }, 'name'],
    [{ public_key: pem, name: 'a', role: 'all' }, 'role'],
    [{ public_key: pem, name: 'a', expires_at: '2001-01-01T00:00:00Z' }, 'expires_at'],
  ];
  for (const [body, field] of bad) {
    const answer = await trust(body);
    t.is(answer.status, 400, field);
    const text = await answer.text();
    t.is((JSON.parse(text) as { errors: { field: string }[] }).errors[0]!.field, field);
    t.false(text.includes(secret.split('\n')[1]!), 'no answer has a private key');
  }
});

test('a bundle against a receipt has only what is new, and a wrong receipt is refused', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path, registry } = gap;
  const key = await trustedKey(gap);
  await near.ok('bundle', 'trust', 'add', `${key}.pub`);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const to = await far.serve();
  await ranImport(to, await sentImport(to, segments));
  await to.close();
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', key);
  const receipt = await readFile(path('receipt'));
  registry.image('library/nginx', '1');
  const from = await near.serve();
  const lists = { 'images.txt': 'redis:7\nnginx:1\n' };
  const { id } = await called(from, 'POST', '', bundleForm(lists, {}, receipt));
  const made = await ended(from, `/${id}`);
  t.like(made, { state: 'done' });
  t.regex(made['against'], /^sha256:/);
  t.is(made['bundle'].key, null, 'no key is in the settings');
  const whole = await called(from, 'POST', '', bundleForm(lists));
  const complete = await ended(from, `/${whole['id']}`);
  t.true(made['bundle'].size_bytes < complete['bundle'].size_bytes);
  t.deepEqual(made['bundle'].manifests, complete['bundle'].manifests);
  const altered = Buffer.from(receipt);
  altered[altered.length - 5] = altered[altered.length - 5]! ^ 1;
  for (const wrong of [altered, Buffer.from('no receipt')]) {
    const answer = await from.fetch('/v1/bundles', { method: 'POST', body: bundleForm(lists, {}, wrong) });
    t.is(answer.status, 400);
    const problem = (await answer.json()) as { detail: string; errors: { field: string }[] };
    t.is(problem.errors[0]!.field, 'against');
    t.false(problem.detail.includes(near.data), problem.detail);
  }
});

test('what cannot be had is listed, and a bundle without it is made only if that is allowed', async (t) => {
  const gap = await startAirGap(t);
  gap.registry.image('library/redis', '7');
  const server = await gap.near.serve();
  const lists = { 'images.txt': 'redis:7\ngone:1\n' };
  const make = async (fields: Record<string, string>) =>
    ended(server, `/${(await called(server, 'POST', '', bundleForm(lists, fields)))['id']}`);
  const failed = await make({});
  t.like(failed, { state: 'failed', missing_total: 1, segments: [], bundle: null });
  t.like(failed['missing'][0], { file: 'images.txt', line: 2 });
  t.regex(failed['error'], /1 thing.* cannot be had/);
  t.is((await refusal(server, 'GET', `/${failed['id']}/segments/1`)).status, 404);
  const made = await make({ allow_missing: 'true', segment: '2MiB', expires: '30d' });
  t.like(made, { state: 'done', missing_total: 1 });
  const stored = await called(server, 'POST', '', bundleForm({}, { stored: 'true' }));
  t.like(await ended(server, `/${stored['id']}`), { state: 'done', stored: true });
  const wrong: [fields: Record<string, string>, field: string][] = [
    [{ segment: 'much' }, 'segment'],
    [{ segment: '0' }, 'segment'],
    [{ expires: '99999d' }, 'expires'],
    [{ policy: 'yes' }, 'policy'],
    [{ stored: 'yes' }, 'stored'],
  ];
  for (const [fields, field] of wrong) {
    const answer = await server.fetch('/v1/bundles', { method: 'POST', body: bundleForm(lists, fields) });
    t.is(answer.status, 400, field);
    t.is(((await answer.json()) as { errors: { field: string }[] }).errors[0]!.field, field);
  }
  t.is((await refusal(server, 'POST', '', { body: bundleForm({}) })).status, 400, 'nothing is chosen');
  const small = await make({ allow_missing: 'true', segment: '1kB' });
  t.regex(small['error'], /a segment needs at least \d+ MiB/);
  const runs = await called(server, 'GET', '/runs');
  t.is(runs['made'].length, 4);
  t.like(runs, { imported: [], signs: false, segment_limit_bytes: 16 * 2 ** 30 });
  t.deepEqual(
    await kept(server.data, 2),
    [made['id'] as string, stored['id'] as string].toSorted(),
    'a failed one leaves no files',
  );
});

test('the latest three bundles are kept, for a day; an import that nobody runs, too', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const server = await gap.near.serve();
  const ids: string[] = [];
  for (let each = 0; each < 4; each += 1) {
    const { id } = await called(server, 'POST', '', bundleForm({}, { stored: 'true' }));
    t.is((await ended(server, `/${id}`))['state'], 'done');
    ids.push(id);
    server.clock.now = Date.now() + (each + 1) * 1000;
  }
  t.deepEqual(await kept(server.data, 3), ids.slice(1).toSorted());
  t.is((await refusal(server, 'GET', `/${ids[0]}/segments/1`)).status, 404);
  await called(server, 'DELETE', `/${ids[1]}`);
  t.deepEqual(await kept(server.data, 2), ids.slice(2).toSorted());
  const at = await sentImport(server, segments);
  const open = [at, await sentImport(server, {}), await sentImport(server, {})];
  t.is((await refusal(server, 'POST', '/imports')).status, 429, 'three are open');
  server.clock.now = Date.now() + 86_400_000 + 60_000;
  const { id } = await called(server, 'POST', '', bundleForm({}, { stored: 'true' }));
  await ended(server, `/${id}`);
  t.deepEqual(await kept(server.data, 1), [id]);
  t.is((await called(server, 'GET', at))['state'], 'expired');
  t.regex((await refusal(server, 'PUT', `${at}/segments/1`, { body: 'x' })).detail, /for a day.*Begin a new one/);
  t.is(open.length, 3);
  await called(server, 'POST', '/imports');
});

test('one import and one making run at a time, and each can be stopped', async (t) => {
  const gap = await startAirGap(t);
  const key = await trustedKey(gap);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const server = await gap.far.serve();
  const [first, second] = [await sentImport(server, segments), await sentImport(server, segments)];
  const results = await Promise.all(
    [first, second].map((at) => server.fetch(`/v1/bundles${at}/run`, { method: 'POST', ...json({}) })),
  );
  t.deepEqual(new Set(results.map(({ status }) => status)), new Set([201, 429]));
  const refused = results.find(({ status }) => status === 429)!;
  t.is(refused.headers.get('retry-after'), '10');
  for (const at of [first, second]) await ended(server, at);
  const late = results[0] === refused ? first : second;
  t.is((await called(server, 'GET', late))['state'], 'receiving');
  t.is((await ranImport(server, late))['state'], 'done', 'then the other runs');
});

test('a new key is trusted by its statement and a revoked one never again, by /v1', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await near.ok('bundle', 'keygen', '--to', path('offline'));
  await near.ok('bundle', 'keygen', '--to', path('next'), '--signed-by', key);
  await near.ok('bundle', 'revoke', `${key}.pub`, '--key', path('offline'), '--to', path('revoked'));
  const text = (name: string) => readFile(path(name), 'utf8');
  const from = await near.serve({ bundles: { key } });
  const wrong = bundleForm({}, { stored: 'true', allow_missing: 'true', new_key: '{}' });
  t.regex((await refusal(from, 'POST', '', { body: wrong })).detail, /^new_key: This is no signed statement/);
  const form = bundleForm({}, { stored: 'true', allow_missing: 'true', new_key: await text('next.signed') });
  const made = await ended(from, `/${(await called(from, 'POST', '', form))['id']}`);
  t.is(made['state'], 'done');
  const segment = await (await from.fetch(`/v1/bundles/${made['id']}/segments/1`)).arrayBuffer();
  await from.close();

  const to = await far.serve();
  const imported = await ranImport(to, await sentImport(to, { 1: Buffer.from(segment) }));
  const [{ id, vouched_by: by }] = (await called(to, 'GET', '/keys'))['items'];
  t.is(by, null);
  const { new_key: told } = imported['bundle'];
  t.like(told, { signer: 'near.key', refused: null });
  const document = await OpenDocument.of(to);
  const post = (path: string, body: object) => to.fetch(`/v1/bundles${path}`, { method: 'POST', ...json(body) });
  for (const body of [{}, { public_key: await text('offline.pub'), statement: told.statement }])
    t.is((await post('/keys', { name: 'x', ...body })).status, 400);
  t.is((await post('/keys', { name: 'x', statement: `${told.statement.slice(0, -2)}}` })).status, 400);
  t.is((await post('/keys', { name: 'x', role: 'revoke', statement: told.statement })).status, 400);
  const added = await document.read(
    'POST /bundles/keys',
    await post('/keys', { name: 'x', statement: told.statement }),
  );
  t.like(added, { id: told.id, role: 'both', vouched_by: id, expires_at: null });
  t.regex(
    (await refusal(to, 'POST', '/keys', json({ name: 'x', statement: told.statement }))).detail,
    /trusted already/,
  );

  const revocation = json({ statement: await text('revoked') });
  const early = await refusal(to, 'POST', '/keys/revocations', revocation);
  t.is(early.status, 400);
  t.regex(early.detail, /^statement: .*not trusted here/);
  await called(to, 'POST', '/keys', { name: 'offline', role: 'revoke', public_key: await text('offline.pub') });
  for (let time = 0; time < 2; time += 1) {
    const answer = await to.fetch('/v1/bundles/keys/revocations', { method: 'POST', ...revocation });
    const revoked = await document.read('POST /bundles/keys/revocations', answer);
    t.like(revoked, { id, name: 'near.key' });
    t.deepEqual(
      (revoked['vouched_for'] as { id: string }[]).map((each) => each.id),
      [told.id],
    );
  }
  const keys = await document.read('GET /bundles/keys', await to.fetch('/v1/bundles/keys'));
  t.deepEqual(
    (keys['items'] as { name: string }[]).map(({ name }) => name),
    ['offline', 'x'],
  );
  t.like((keys['revoked'] as object[])[0], { id, name: 'near.key' });
  const again = json({ name: 'near', public_key: await text('near.key.pub') });
  t.regex((await refusal(to, 'POST', '/keys', again)).detail, /^public_key: .*It cannot be trusted again/);
  const late = await ranImport(to, await sentImport(to, { 1: Buffer.from(segment) }));
  t.is(late['state'], 'failed');
  t.regex(late['error'], /signed by the key near\.key, \S+, which was revoked at/);
});

test('a receipt is written and downloaded by /v1, and the source makes the next bundle against it', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path, feed } = gap;
  const key = await trustedKey(gap);
  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const to = await far.serve({ bundles: { key: path('far.key') } });
  const document = await OpenDocument.of(to);
  t.is((await refusal(to, 'GET', '/receipt')).status, 404);
  t.is((await called(to, 'GET', '/runs'))['receipt'], null);
  await ranImport(to, await sentImport(to, segments));
  const answers = await Promise.all([1, 2].map(() => to.fetch('/v1/bundles/receipt', { method: 'POST' })));
  t.true(answers.every(({ status }) => status === 201 || status === 429));
  const written = await document.read(
    'POST /bundles/receipt',
    answers.find(({ status }) => status === 201)!,
  );
  t.true((written['items'] as number) >= 4);
  const download = await to.fetch('/v1/bundles/receipt');
  t.is(download.headers.get('content-disposition'), 'attachment; filename="receipt"');
  const receipt = Buffer.from(await download.arrayBuffer());
  t.is(receipt.length, written['size_bytes'] as number);
  const runs = await document.read('GET /bundles/runs', await to.fetch('/v1/bundles/runs'));
  t.like(runs['receipt'], { size_bytes: receipt.length });
  // Other files of runs are removed, and it stays.
  await ranImport(to, await sentImport(to, segments));
  t.is((await to.fetch('/v1/bundles/receipt')).status, 200);
  await to.close();

  await near.ok('bundle', 'trust', 'add', path('far.key.pub'), '--role', 'receipts');
  await feed.offer({ id: 'Lib.Two', versions: [{ version: '1.0.0' }] });
  const from = await near.serve({ bundles: { key } });
  const form = bundleForm({ 'list.txt': 'Lib.One@1.0.0\nLib.Two@1.0.0\n' }, {}, receipt);
  const made = await ended(from, `/${(await called(from, 'POST', '', form))['id']}`);
  t.like(made, { state: 'done', against: written['digest'] as string });
  t.is(made['bundle'].packages.count, 2);
  t.true(made['bundle'].size_bytes < made['bundle'].packages.size_bytes + made['bundle'].documents.size_bytes);
});

test('lists of known bad content are taken along by /v1, if the policy names some', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, file } = gap;
  const key = await trustedKey(gap);
  await gap.feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const from = await near.serve({ bundles: { key } });
  const make = async () =>
    ended(
      from,
      `/${(await called(from, 'POST', '', bundleForm({ 'list.txt': 'Lib@1.0.0' }, { known_bad: 'true' })))['id']}`,
    );
  t.like(await make(), { state: 'failed', error: 'The policy names no list of known bad content.' });
  const list = await file('bad.jsonl', linesOf([osv('MAL-1', 'Other'), osv('MAL-2', 'Another')]));
  await applyPolicy(from, { knownBad: { lists: [{ name: 'osv', file: list }] } });
  t.like(await make(), { state: 'failed', error: 'The list osv of known bad content was never read.' });
  await runJob(from, 'known-bad');
  const made = await make();
  t.deepEqual(made['bundle'].known_bad, [{ name: 'osv', records: 2 }]);
  t.deepEqual((await called(from, 'GET', '?direction=made'))['items'][0].known_bad, made['bundle'].known_bad);
  const segment = await (await from.fetch(`/v1/bundles/${made['id']}/segments/1`)).arrayBuffer();
  await from.close();
  const to = await far.serve();
  const at = await sentImport(to, { 1: Buffer.from(segment) });
  t.deepEqual((await ranImport(to, at))['bundle'].known_bad, made['bundle'].known_bad);
  const visitor = await Visitor.signedIn(to);
  t.regex(await visitor.page(`/console/bundles${at}`), /Known bad content[^]*osv \(2 records\)/);
  t.regex(await visitor.page('/console/bundles'), /lists of known bad content: osv \(2 records\)/);
});

test('segments that were sent can be checked without an import', async (t) => {
  const gap = await startAirGap(t);
  const { far, path } = gap;
  const key = await trustedKey(gap);
  const segments = await madeBundle(gap, 'bundle', '--key', key);
  const server = await far.serve();
  const document = await OpenDocument.of(server);
  const at = await sentImport(server, segments);
  await called(server, 'POST', `${at}/run`, { check: true });
  await ended(server, at);
  const checked = await document.read('GET /bundles/imports/{id}', await server.fetch(`/v1/bundles${at}`));
  t.like(checked, { state: 'checked', error: null, check: true, needed: [] });
  t.like(checked['bundle'], { segments: 1, packages: { count: 1 }, written: null });
  t.is((checked['segments'] as object[]).length, 1, 'they stay');
  t.deepEqual((await called(server, 'GET', ''))['items'], []);
  t.is((await server.fetch('/v2/redis/manifests/7')).status, 502);

  const damaged = Buffer.from(segments[1]!);
  damaged[damaged.length - 60_000]! ^= 1;
  await called(server, 'PUT', `${at}/segments/1`, new Uint8Array(damaged));
  const failed = await ranImport(server, at, { check: true });
  t.is(failed['state'], 'failed');
  t.regex(failed['error'], /^1 items are damaged, such as sha256:[0-9a-f]{64} in 0001\.tar\. Send a good copy$/);
  await called(server, 'PUT', `${at}/segments/1`, new Uint8Array(segments[1]!));
  await far.ok('bundle', 'trust', 'remove', 'near.key');
  t.regex((await ranImport(server, at, { check: true }))['error'], /not trusted here/);
  await far.ok('bundle', 'trust', 'add', `${path('near.key')}.pub`);
  t.is((await ranImport(server, at, { check: true }))['state'], 'checked');
  t.like(await ranImport(server, at), { state: 'done', check: false });
  t.is((await server.fetch('/v2/redis/manifests/7')).status, 200);
});

function json(body: object): { body: string; headers: Record<string, string> } {
  return { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
}

/** The folders of runs, when there are `count` or fewer. */
async function kept(data: string, count: number): Promise<string[]> {
  const names = () => readdir(join(data, 'bundles'));
  return (await eventually(names, (found) => found.length <= count)).toSorted();
}
