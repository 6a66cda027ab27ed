import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { makeNupkg, makePdb, makeSnupkg, pngPixel } from '../support/builders/nupkg.ts';
import { auditOf, said } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import {
  digestOf,
  ociIndex,
  signedIndex,
  TestRepository,
  type Descriptor,
  type Manifest,
} from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { untilStored } from '../support/stored-bytes.ts';

// Promotions between accounts and names, through HTTP.

interface Answer {
  status: number;
  id: number;
  state: string;
  digest: string;
  detail: string;
  to_name: string;
  is_own: boolean;
  requested_by: { name: string } | null;
  decided_by: { kind: string } | null;
  items: Answer[];
}

async function call(server: TestServer, token: string, method: string, path: string, body?: object): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  const init = { method, token, ...(body && { headers, body: JSON.stringify(body) }) };
  const response = await server.fetch(`/v1${path}`, init);
  const answer = (await response.text()) || '{}';
  return { ...(JSON.parse(answer) as Answer), status: response.status };
}

/** The account `dev` asks, and `prod` takes promotions of it. */
async function start(t: ExecutionContext, dialect: Dialect = 'sqlite', settings: object = {}) {
  const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) }, ...settings });
  const dev = await tokenOf(server, ['read', 'write', 'delete', 'promote'], 'dev');
  const prod = await tokenOf(server, ['read', 'write', 'delete', 'promote', 'admin'], 'prod');
  const rules = (body: object) => call(server, prod, 'PUT', '/account/promotion', body);
  t.like(await rules({ from: ['dev'] }), { status: 200, promote_only: false, approval: 'none' });
  const ask = (body: object, token = dev) =>
    call(server, token, 'POST', '/promotions', { to_account: 'prod', ...body });
  const approve = (id: number, token = prod) => call(server, token, 'POST', `/promotions/${id}/approve`);
  const reject = (id: number, token = prod) => call(server, token, 'POST', `/promotions/${id}/reject`);
  return { server, dev, prod, rules, ask, approve, reject };
}

async function digestAt(server: TestServer, token: string, name: string, reference: string) {
  const response = await server.fetch(`/v2/${name}/manifests/${reference}`, { method: 'HEAD', token });
  return response.status === 200 ? response.headers.get('docker-content-digest') : response.status;
}

for (const dialect of dialects) {
  test(`${dialect}: an approved version appears with its symbols, its deprecation and whether it is listed`, async (t) => {
    const { server, dev, prod, ask, approve } = await start(t, dialect);
    const feed = new TestFeed(server, dev);
    const there = new TestFeed(server, prod);
    const shown = { icon: pngPixel, readme: 'Hello', dependencies: [{ id: 'Other', version: '1.0.0' }] };
    const nupkg = await makeNupkg({ id: 'Contoso.Lib', version: '1.0.0', ...shown });
    t.is((await feed.push(nupkg)).status, 201);
    await feed.publish({ id: 'Contoso.Lib', version: '2.0.0' });
    const files = { 'lib/net8.0/Contoso.Lib.pdb': makePdb(randomBytes(16), 5000) };
    t.is((await feed.push(await makeSnupkg({ id: 'Contoso.Lib', version: '1.0.0', files }), '/symbols')).status, 201);
    const deprecation = { reasons: ['Legacy'], message: 'Use 2.' };
    t.like(await call(server, dev, 'PUT', '/packages/Contoso.Lib/1.0.0/deprecation', deprecation), { status: 204 });
    t.is((await feed.fetch('/push/Contoso.Lib/1.0.0', { method: 'DELETE' })).status, 204);
    const blobs = await rowsOf(server, 'SELECT digest FROM blobs');

    const wish = { kind: 'package', name: 'contoso.lib', reference: '1.0', reason: 'release 7' };
    const asked = await ask(wish);
    t.like(asked, {
      status: 201,
      state: 'requested',
      name: 'Contoso.Lib',
      reference: '1.0.0',
      digest: digestOf(nupkg),
      from_account: 'dev',
      to_account: 'prod',
      to_name: 'Contoso.Lib',
      is_own: true,
    });
    t.is((await ask(wish)).id, asked.id, 'a retry asks for nothing more');
    t.is((await there.fetch('/package/contoso.lib/index.json')).status, 404, 'a request shows nothing');
    t.is((await approve(asked.id, dev)).status, 403, 'the source does not approve');
    t.is((await approve(asked.id, await tokenOf(server, ['read', 'promote'], 'other'))).status, 404);
    t.is((await approve(asked.id, await tokenOf(server, ['read', 'write', 'admin'], 'prod'))).status, 403);
    t.like(await approve(asked.id), { status: 200, state: 'done', is_own: false });
    t.like(await approve(asked.id), { status: 200, state: 'done' });

    t.deepEqual(await there.json('/package/contoso.lib/index.json'), { versions: ['1.0.0'] });
    const got = await there.fetch('/package/contoso.lib/1.0.0/contoso.lib.1.0.0.nupkg');
    t.deepEqual(Buffer.from(await got.arrayBuffer()), nupkg);
    const { items } = await there.json('/registration-gz-semver2/contoso.lib/index.json');
    t.like(items[0].items[0].catalogEntry, { listed: false, deprecation: { reasons: ['Legacy'], message: 'Use 2.' } });
    const leaf = '/registration-gz-semver2/contoso.lib/1.0.0.json';
    t.deepEqual(await there.json(leaf), await feed.json(leaf));
    for (const file of ['icon', 'readme', 'contoso.lib.nuspec']) {
      const path = `/package/contoso.lib/1.0.0/${file}`;
      const [copy, first] = [await there.fetch(path), await feed.fetch(path)];
      t.deepEqual([copy.status, copy.headers.get('content-type')], [200, first.headers.get('content-type')], file);
      t.deepEqual(await copy.arrayBuffer(), await first.arrayBuffer(), file);
    }
    const [published] = await auditOf(server, 'type=package.published', prod);
    t.deepEqual(published!.details, { size_bytes: nupkg.length, imported_from: 'account dev' });
    const [{ signature } = {}] = await rowsOf<{ signature: string }>(server, 'SELECT signature FROM package_symbols');
    t.is((await there.fetch(`/symbols/contoso.lib.pdb/${signature}/contoso.lib.pdb`)).status, 200);
    t.deepEqual(await rowsOf(server, 'SELECT digest FROM blobs'), blobs, 'no new bytes');
    const [own] = await rowsOf<{ id: number }>(server, "SELECT id FROM accounts WHERE name = 'prod'");
    t.like((await rowsOf(server, `SELECT version_count, size_bytes FROM packages WHERE account_id = ${own!.id}`))[0], {
      version_count: 1,
      size_bytes: nupkg.length,
    });

    const audited = await auditOf(server, 'type=promotion.*', prod);
    t.deepEqual(audited.map(said), [
      'promotion.rules_changed prod',
      'promotion.requested Contoso.Lib 1.0.0',
      'promotion.approved Contoso.Lib 1.0.0',
    ]);
    t.like(audited[2]!.details, {
      from_account: 'dev',
      to_account: 'prod',
      reason: 'release 7',
      digest: digestOf(nupkg),
    });
    t.is(audited[1]!.address, null, 'the address of the other account is its own');
    const [seen] = (await auditOf(server, 'type=promotion.approved', await tokenOf(server, ['admin'], 'dev'))).slice(
      -1,
    );
    t.is(seen!.address, null);

    // Other bytes under the same version, and the same ones.
    await feed.publish({ id: 'Contoso.Two', version: '1.0.0' });
    await there.publish({ id: 'Contoso.Two', version: '1.0.0', description: 'another' });
    const { id } = await ask({ ...wish, name: 'Contoso.Two' });
    const refused = await approve(id);
    t.deepEqual([refused.status, /other bytes/.test(refused.detail)], [409, true]);
    t.is((await call(server, prod, 'GET', `/promotions/${id}`)).state, 'requested');

    // What was deleted and pushed again is something else.
    const later = await ask({ ...wish, reference: '2.0.0' });
    t.is((await call(server, dev, 'GET', '/promotions?state=requested')).items.length, 2);
    await server.fetch('/v1/packages/Contoso.Lib/2.0.0', { method: 'DELETE', token: dev });
    const gone = await approve(later.id);
    t.deepEqual([gone.status, /2\.0\.0 .*was deleted since/.test(gone.detail)], [404, true]);
    await feed.publish({ id: 'Contoso.Lib', version: '2.0.0', description: 'new bytes' });
    t.is((await approve(later.id)).status, 404, 'the digest is bound');

    server.clock.now = Date.now() + 400 * 86_400_000;
    t.like(await runJob(server, 'audit'), { promotions: 1 });
    t.is((await call(server, prod, 'GET', `/promotions/${asked.id}`)).status, 404);
    t.is((await call(server, prod, 'GET', `/promotions/${later.id}`)).state, 'requested');
  });

  test(`${dialect}: an image appears by its digest with its platforms and all that refers to it`, async (t) => {
    const { server, dev, prod, ask, approve, reject } = await start(t, dialect);
    const source = new TestRepository(server, 'team/app', dev);
    const target = new TestRepository(server, 'released/app', prod);
    const { index, sbom } = await signedIndex(source, 'v1');
    const digest = digestOf(index);
    const attached = await Promise.all(
      ['', '.att', '.sbom', '.sig'].map(async (end) => {
        const tag = `${digest.replace(':', '-')}${end}`;
        return [tag, (await source.image(tag)).digest] as const;
      }),
    );
    // What refers to an image of the same digest elsewhere.
    const elsewhere = new TestRepository(server, 'team/other', dev);
    await elsewhere.manifest();
    await elsewhere.attach({ mediaType: ociIndex, digest, size: index.length });
    await elsewhere.image('only-there');
    const blobs = await rowsOf(server, 'SELECT digest FROM blobs ORDER BY digest');
    const wish = { kind: 'image', name: 'team/app', reference: 'v1', to_name: 'released/app' };
    const { id } = await ask(wish);
    const moved = await source.image('v1');
    t.not(moved.digest, digest);
    t.like(await approve(id), { status: 200, state: 'done', digest });

    t.is(await digestAt(server, prod, 'released/app', 'v1'), digest, 'what was asked for, not what the tag is now');
    t.is(await digestAt(server, dev, 'team/app', 'v1'), moved.digest);
    const children = (JSON.parse(index) as { manifests: { digest: string }[] }).manifests;
    for (const child of children) {
      const answer = await target.fetch(`manifests/${child.digest}`);
      t.is(answer.status, 200);
      const { layers } = (await answer.json()) as { layers: { digest: string }[] };
      for (const layer of layers) t.is((await target.fetch(`blobs/${layer.digest}`)).status, 200);
    }
    const referrers = await (await target.fetch(`referrers/${digest}`)).json();
    t.deepEqual(
      (referrers as { manifests: { digest: string }[] }).manifests.map((each) => each.digest),
      [digestOf(sbom)],
    );
    for (const [tag, expected] of attached) t.is(await digestAt(server, prod, 'released/app', tag), expected, tag);
    const tags = { name: 'released/app', tags: [...attached.map(([tag]) => tag), 'v1'] };
    t.deepEqual(await (await target.fetch('tags/list')).json(), tags);
    const after = await rowsOf<{ digest: string }>(server, 'SELECT digest FROM blobs ORDER BY digest');
    t.is(after.length, blobs.length + 2, 'the push of the moved tag is all that is new');
    const history = await (await target.fetch('_oci/tag-history/v1')).json();
    t.true(JSON.stringify(history).includes(digest));
    const counts = `SELECT tag_count, manifest_count FROM repositories WHERE name = 'released/app'`;
    t.like((await rowsOf(server, counts))[0], { tag_count: 5, manifest_count: 8 });
    t.like(await runJob(server, 'gc'), { layers: 0 });

    // Once more, and what was asked for and rejected.
    const again = await ask({ ...wish, reference: digest });
    t.like(await approve(again.id), { state: 'done' });
    t.deepEqual(await (await target.fetch('tags/list')).json(), tags, 'a digest is no tag');
    for (const unknown of [
      { name: 'team/app', reference: 'only-there' },
      { name: 'released/app', reference: 'v1' },
      { name: 'Team/App', reference: 'v1' },
    ])
      t.like(await ask({ ...wish, ...unknown }), {
        status: 404,
        detail: `This account has no image ${unknown.name} ${unknown.reference}.`,
      });
    const other = await ask({ ...wish, to_name: 'released/other' });
    t.like(await reject(other.id), { status: 200, state: 'rejected' });
    t.like(await reject(other.id), { status: 200, state: 'rejected' });
    t.is((await approve(other.id)).status, 400);
    t.is((await reject(id)).status, 400);
    t.is(await digestAt(server, prod, 'released/other', 'v1'), 404);
    const withdrawn = await ask({ ...wish, to_name: 'released/third' });
    t.like(await reject(withdrawn.id, dev), { status: 200, state: 'rejected' });
    const { items } = await call(server, dev, 'GET', '/promotions?limit=2');
    t.deepEqual(
      items.map((each) => each.state),
      ['rejected', 'rejected'],
    );

    // Gone between the request and the approval.
    const last = await ask({ ...wish, to_name: 'released/last' });
    const byDigest = await ask({ ...wish, to_name: 'released/last', reference: moved.digest });
    t.is((await source.fetch(`manifests/${moved.digest}`, { method: 'DELETE' })).status, 202);
    const ends = 'was deleted since, so it cannot be promoted.';
    t.like(await approve(last.id), { status: 404, detail: `The image team/app v1 (${moved.digest}) ${ends}` });
    t.like(await approve(byDigest.id), { status: 404, detail: `The image team/app ${moved.digest} ${ends}` });
  });
}

const symbolsOf = (guid: Buffer) =>
  makeSnupkg({ id: 'Lib', version: '1.0.0', files: { 'lib/net8.0/Lib.pdb': makePdb(guid) } });

test('symbols that come back with a deleted version are not replaced by those of a promotion of it', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t, 'sqlite', { deletedFor: '7d' });
  const nupkg = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  const [older, newer] = [Buffer.alloc(16, 0x11), Buffer.alloc(16, 0x22)];
  for (const [token, guid] of [
    [dev, older],
    [prod, newer],
  ] as const) {
    const feed = new TestFeed(server, token);
    t.is((await feed.push(nupkg)).status, 201);
    t.is((await feed.push(await symbolsOf(guid), '/symbols')).status, 201);
  }
  t.is((await server.fetch('/v1/packages/Lib/1.0.0', { method: 'DELETE', token: prod })).status, 204);
  const { id } = await ask({ kind: 'package', name: 'Lib', reference: '1.0.0' });
  t.like(await approve(id), { status: 200, state: 'done' });
  const there = new TestFeed(server, prod);
  t.is((await there.fetch('/package/lib/1.0.0/lib.1.0.0.nupkg')).status, 200);
  const status = async (guid: Buffer) =>
    (await there.fetch(`/symbols/lib.pdb/${guid.toString('hex')}ffffffff/lib.pdb`)).status;
  t.deepEqual([await status(newer), await status(older)], [200, 404]);
});

test('inside an account, without approval, it is done at once; with it, somebody else approves', async (t) => {
  const { server, prod, rules, ask, approve } = await start(t);
  const source = new TestRepository(server, 'app', prod);
  const { digest, bytes } = await source.image('v1');
  t.is((await source.put('v2', bytes)).status, 201);
  const wish = { kind: 'image', name: 'app', reference: 'v1', to_name: 'released/app' };
  const done = await ask(wish, prod);
  t.like(done, { status: 201, state: 'done', digest });
  t.is(await digestAt(server, prod, 'released/app', 'v1'), digest);
  t.is((await ask(wish, prod)).id, done.id, 'a retry does nothing more');
  const copied = await ask({ ...wish, to_name: 'copy' }, prod);
  const places = [
    { ...wish, reference: 'v2' },
    { ...wish, to_name: 'released/copy' },
    { ...wish, name: 'copy' },
  ];
  const ids: number[] = [done.id, copied.id];
  for (const each of places) {
    const made = await ask(each, prod);
    t.like(made, { status: 201, state: 'done', digest });
    ids.push(made.id);
    t.is((await ask(each, prod)).id, made.id, 'a retry');
  }
  t.is(new Set(ids).size, 5, 'another tag, another target and another source of the same content are no retries');
  t.is((await ask(wish, prod)).id, done.id, 'a retry after others');
  t.is((await ask({ ...wish, to_name: undefined }, prod)).status, 400, 'to the same place');
  t.is((await ask({ ...wish, to_name: 'Wrong Name' }, prod)).status, 400);
  await new TestFeed(server, prod).publish({ id: 'Lib', version: '1.0.0' });
  const renamed = await ask({ kind: 'package', name: 'Lib', reference: '1.0.0', to_name: 'Other' }, prod);
  t.deepEqual([renamed.status, /its ID is in its nuspec/.test(renamed.detail)], [400, true]);

  t.like(await rules({ approval: 'another' }), { status: 200, approval: 'another', from: [] });
  const asked = await ask({ ...wish, to_name: 'second' }, prod);
  t.is(asked.state, 'requested');
  const own = await approve(asked.id);
  t.deepEqual([own.status, /Another person approves/.test(own.detail)], [403, true]);
  t.is(await digestAt(server, prod, 'second', 'v1'), 404);
  const limited = await createToken(server, ['read', 'promote'], 'prod', { containers: ['third'] });
  t.is((await approve(asked.id, limited.value)).status, 404, 'a name that its patterns do not show');
  t.is((await call(server, limited.value, 'GET', '/promotions')).items.length, 0);
  t.is((await ask({ ...wish, name: 'third' }, limited.value)).status, 404);
  t.is((await ask({ ...wish, to_name: 'third' }, limited.value)).status, 403);
  const another = await tokenOf(server, ['read', 'promote'], 'prod');
  t.is((await ask({ ...wish, to_name: 'second' }, prod)).id, asked.id, 'the same request');
  const others = [
    await ask({ ...wish, to_name: 'second', reference: 'v2' }, prod),
    await ask({ ...wish, to_name: 'second' }, another),
    await ask({ ...wish, to_name: 'second', name: 'copy' }, prod),
    await ask({ ...wish, to_name: 'fourth' }, prod),
  ];
  t.deepEqual(
    others.map(({ status, state, id }) => [status, state, id === asked.id]),
    [
      [201, 'requested', false],
      [201, 'requested', false],
      [201, 'requested', false],
      [201, 'requested', false],
    ],
    'another tag, somebody else, another source, and another target',
  );
  t.is(new Set(others.map(({ id }) => id)).size, 4);
  t.like(await approve(asked.id, another), { status: 200, state: 'done' });
  t.is(await digestAt(server, prod, 'second', 'v1'), digest);
  const reader = await call(server, await tokenOf(server, ['read'], 'prod'), 'GET', `/promotions/${asked.id}`);
  t.deepEqual([reader.requested_by, reader.decided_by], [null, null]);
  await rules({ approval: 'none' });
  t.like(await approve(others[0]!.id), { status: 200, state: 'done' }, 'the own one, which needs nobody else any more');
});

test('at most 100 promotions of one requester, and 1,000 in all, wait for a decision', async (t) => {
  const { server, dev, ask } = await start(t);
  const { digest } = await new TestRepository(server, 'app', dev).image('v1');
  const wish = { kind: 'image', name: 'app', reference: 'v1' };
  const other = await tokenOf(server, ['read', 'promote'], 'dev');
  const { id } = await ask(wish);
  const [{ id: _id, ...row }] = (await rowsOf(server, 'SELECT * FROM promotions')) as [Record<string, never>];
  const wait = (count: number, more: object) =>
    databaseOf(server).transaction(async (tx) => {
      const rows = Array.from({ length: count }, (_, number) => ({ ...row, to_name: `app${number}`, ...more }));
      for (let from = 0; from < rows.length; from += 100)
        await tx.insertNew('promotions', rows.slice(from, from + 100));
    });
  await wait(98, {});
  t.like(await ask({ ...wish, to_name: 'last' }), { status: 201, state: 'requested', digest });
  const tooMany = await ask({ ...wish, to_name: 'more' });
  t.deepEqual([tooMany.status, /at most 1000 .* and 100 of one requester/.test(tooMany.detail)], [403, true]);
  t.is((await ask(wish)).id, id, 'a repeated request is no new one');
  t.is((await ask(wish, other)).status, 201);
  await wait(898, { requester: 'others' });
  t.is((await ask({ ...wish, to_name: 'last' }, other)).status, 201);
  t.is((await ask({ ...wish, to_name: 'more' }, other)).status, 403);
});

test('an image or package of which something is gone is refused, and nothing of it appears', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t);
  const repository = new TestRepository(server, 'team/app', dev);
  const { digest: lacking, bytes } = await repository.image('lacking');
  const [layer] = (JSON.parse(bytes) as { layers: { digest: string }[] }).layers;
  const image = await repository.image('whole');
  // A blob that only another repository has is not one of the image.
  const copy = `/v2/team/copy/blobs/uploads/?mount=${layer!.digest}&from=team/app`;
  t.is((await server.fetch(copy, { method: 'POST', token: dev })).status, 201);
  t.is((await repository.fetch(`blobs/${layer!.digest}`, { method: 'DELETE' })).status, 202);
  const wish = (reference: string) => ask({ kind: 'image', name: 'team/app', reference });
  const refused = await approve((await wish('lacking')).id);
  t.like(refused, { status: 400 });
  t.true(refused.detail.includes(`${lacking} lacks its blob ${layer!.digest}`), refused.detail);

  const feed = new TestFeed(server, dev);
  const nupkg = await makeNupkg({ id: 'Contoso.Lib', version: '1.0.0', readme: 'Hello' });
  t.is((await feed.push(nupkg)).status, 201);
  const [version] = await rowsOf<{ readme_digest: string }>(server, 'SELECT readme_digest FROM package_versions');
  // A blob whose bytes are being removed, as after a crash of the collector.
  const mark = (digest: string, state: string) =>
    databaseOf(server).transaction((tx) => tx.run('UPDATE blobs SET state = ? WHERE digest = ?', [state, digest]));
  const aboutPackage = { kind: 'package', name: 'Contoso.Lib', reference: '1.0.0' };
  for (const [digest, asked, path] of [
    [version!.readme_digest, () => ask(aboutPackage), '/v3/package/contoso.lib/index.json'],
    [image.digest, () => wish('whole'), '/v2/team/app/manifests/whole'],
  ] as const) {
    await mark(digest, 'pending');
    const { id } = await asked();
    const answer = await approve(id);
    t.deepEqual([answer.status, /was deleted since/.test(answer.detail)], [404, true], digest);
    t.is((await server.fetch(path, { token: prod })).status, 404);
    await mark(digest, 'live');
    t.like(await approve(id), { status: 200, state: 'done' }, digest);
    t.is((await server.fetch(path, { token: prod })).status, 200);
  }
});

test('a promotion does not replace symbols that are there already', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t);
  const nupkg = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  for (const token of [dev, prod]) {
    const feed = new TestFeed(server, token);
    t.is((await feed.push(nupkg)).status, 201);
    const files = { 'lib/net8.0/Lib.pdb': makePdb(randomBytes(16)) };
    t.is((await feed.push(await makeSnupkg({ id: 'Lib', version: '1.0.0', files }), '/symbols')).status, 201);
  }
  const symbols = `SELECT s.signature FROM package_symbols s JOIN package_versions v ON v.id = s.version_row
    JOIN packages p ON p.id = v.package_row JOIN accounts a ON a.id = p.account_id WHERE a.name = 'prod'`;
  const before = await rowsOf(server, symbols);
  t.is(before.length, 1);
  const { id } = await ask({ kind: 'package', name: 'Lib', reference: '1.0.0' });
  t.like(await approve(id), { status: 200, state: 'done' });
  t.deepEqual(await rowsOf(server, symbols), before);
});

test('an account that does not take promotions answers as one that does not exist', async (t) => {
  const { server, dev, rules, ask } = await start(t);
  await new TestRepository(server, 'app', dev).image('v1');
  await tokenOf(server, ['read'], 'closed');
  const wish = { kind: 'image', name: 'app', reference: 'v1' };
  const missing = await ask({ ...wish, to_account: 'nowhere' });
  const closed = await ask({ ...wish, to_account: 'closed' });
  t.is(missing.status, 404);
  t.is(closed.status, 404);
  t.is(closed.detail.replace('closed', 'nowhere'), missing.detail);
  t.is((await ask({ ...wish, reference: 'v9' })).status, 404);
  const open = await ask(wish);
  await rules({ from: [] });
  t.is((await ask({ ...wish, to_name: 'new' })).status, 404);
  t.is(
    (await call(server, await tokenOf(server, ['read', 'promote', 'admin'], 'closed'), 'GET', `/promotions/${open.id}`))
      .status,
    404,
  );
  const writer = await tokenOf(server, ['read', 'write', 'delete', 'admin', 'operate'], 'dev');
  t.is((await ask(wish, writer)).status, 403, 'no other scope contains this one');
  t.is((await call(server, dev, 'PUT', '/account/promotion', {})).status, 403);
});

test('a promote-only account refuses pushes on both protocols and uploads', async (t) => {
  const { server, dev, prod, rules, ask, approve } = await start(t);
  await new TestFeed(server, prod).publish({ id: 'Old', version: '1.0.0' });
  await rules({ promote_only: true, from: ['dev'] });
  const nupkg = { id: 'Lib', version: '1.0.0' };
  const push = await new TestFeed(server, prod).push(nupkg);
  t.is(push.status, 403);
  t.regex(push.statusText, /The account prod takes no pushes, only promotions/);
  const target = new TestRepository(server, 'app', prod);
  const upload = await target.fetch('blobs/uploads/', { method: 'POST' });
  const { errors } = (await upload.json()) as { errors: { code: string; message: string }[] };
  t.is(upload.status, 403);
  t.like(errors[0], { code: 'DENIED' });
  t.regex(errors[0]!.message, /takes no pushes/);
  const mount = await target.fetch(`blobs/uploads/?mount=${digestOf('a')}&from=other`, { method: 'POST' });
  t.is(mount.status, 403);
  t.is((await target.put('v1', { schemaVersion: 2, manifests: [] }, ociIndex)).status, 403);
  const form = new FormData();
  form.append('package', new Blob([new Uint8Array(await makeNupkg(nupkg))]), 'lib.nupkg');
  t.is((await server.fetch('/v1/packages', { method: 'POST', token: prod, body: form })).status, 403);
  t.is((await server.fetch('/v3/push/Old/1.0.0', { method: 'DELETE', token: prod })).status, 204, 'it can be unlisted');

  await new TestFeed(server, dev).publish(nupkg);
  const { id } = await ask({ kind: 'package', name: 'Lib', reference: '1.0.0' });
  t.like(await approve(id), { state: 'done' });
  await rules({ promote_only: false });
  t.is((await new TestFeed(server, prod).push({ id: 'New' })).status, 201);
});

test('the limit of bytes of an account holds for what it does not have yet', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t, 'sqlite', { limits: { accountStorage: 100_000 } });
  const small = { id: 'Small', version: '1.0.0' };
  const large = { id: 'Large', version: '1.0.0', files: { 'lib/a.bin': randomBytes(60_000) } };
  await new TestFeed(server, dev).publish(small, large);
  await new TestFeed(server, prod).publish({
    id: 'Own',
    version: '1.0.0',
    files: { 'lib/a.bin': randomBytes(66_000) },
  });
  await untilStored(server, 60_000, prod);
  const wish = { kind: 'package', reference: '1.0.0' };
  const refused = await approve((await ask({ ...wish, name: 'Large' })).id);
  t.deepEqual([refused.status, /its limit is 100000 bytes/.test(refused.detail)], [403, true]);
  t.like(await approve((await ask({ ...wish, name: 'Small' })).id), { state: 'done' });
  const app = new TestRepository(server, 'app', dev);
  await app.image('v1', { layers: [await app.blob(randomBytes(34_000))] });
  const image = await approve((await ask({ kind: 'image', name: 'app', reference: 'v1' })).id);
  t.deepEqual([image.status, /its limit is 100000 bytes/.test(image.detail)], [403, true]);
});

test('what an account has already does not count for its limit of bytes', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t, 'sqlite', { limits: { accountStorage: 100_000 } });
  const bytes = randomBytes(30_000);
  const nupkg = await makeNupkg({ id: 'Large', version: '1.0.0', files: { 'lib/a.bin': randomBytes(30_000) } });
  for (const token of [dev, prod]) {
    t.is((await new TestFeed(server, token).push(nupkg)).status, 201);
    const app = new TestRepository(server, 'app', token);
    const layer = await app.blob(bytes);
    await app.image(token === dev ? 'new' : 'old', { layers: [layer] });
  }
  const more = await makeNupkg({ id: 'More', version: '1.0.0', files: { 'lib/a.bin': randomBytes(25_000) } });
  t.is((await new TestFeed(server, prod).push(more)).status, 201);
  for (const wish of [
    { kind: 'package', name: 'Large', reference: '1.0.0' },
    { kind: 'image', name: 'app', reference: 'new' },
  ])
    t.like(await approve((await ask(wish)).id), { status: 200, state: 'done' }, wish.kind);
});

test('an image with more than 1,000 manifests that refer to it is refused, and nothing of it appears', async (t) => {
  const { server, dev, prod, ask, approve } = await start(t);
  const source = new TestRepository(server, 'app', dev);
  const { bytes, ...subject } = await source.image('v1');
  const image = JSON.parse(bytes) as Manifest;
  const manifest = await source.manifest({ subject, artifactType: 'application/vnd.test.note' });
  const push = (number: number) => {
    const note = JSON.stringify({ ...manifest, annotations: { number: String(number) } });
    return source.put(digestOf(note), note);
  };
  for (let start = 0; start < 1000; start += 50) {
    const pushed = await Promise.all(Array.from({ length: 50 }, (_, at) => push(start + at)));
    t.true(pushed.every(({ status }) => status === 201));
  }
  const { id } = await ask({ kind: 'image', name: 'app', reference: 'v1' });
  const refused = await approve(id);
  t.deepEqual([refused.status, /more than 1000 manifests/.test(refused.detail)], [413, true]);
  t.is(await digestAt(server, prod, 'app', 'v1'), 404);
  const [referrer] = (
    (await (await source.fetch(`referrers/${subject.digest}?n=1`)).json()) as { manifests: { digest: string }[] }
  ).manifests;
  t.is((await source.fetch(`manifests/${referrer!.digest}`, { method: 'DELETE' })).status, 202);
  t.like(await approve(id), { status: 200, state: 'done' });
  const [counts] = await rowsOf(server, "SELECT manifest_count FROM repositories WHERE name = 'app' ORDER BY id DESC");
  t.like(counts, { manifest_count: 1000 });
  // In another repository there are few, and those of the first one do not count.
  const few = new TestRepository(server, 'few', dev);
  for (const { digest } of [image['config'], ...(image['layers'] as Descriptor[])] as Descriptor[]) {
    const mount = await few.fetch(`blobs/uploads/?mount=${digest}&from=app`, { method: 'POST' });
    t.is(mount.status, 201);
  }
  t.is((await few.put('v1', bytes)).status, 201);
  for (let number = 0; number < 3; number += 1) await few.attach(subject);
  t.like(await approve((await ask({ kind: 'image', name: 'few', reference: 'v1' })).id), { state: 'done' });
  t.is(
    (await rowsOf(server, "SELECT manifest_count FROM repositories WHERE name = 'few' AND manifest_count = 4")).length,
    2,
  );
});
