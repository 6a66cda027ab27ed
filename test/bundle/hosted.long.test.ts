import { randomBytes } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { makeNupkg, makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { ranImport, sentImport } from '../support/bundle-runs.ts';
import { startAirGap, trustedKey, type AirGap } from '../support/bundles.ts';
import { dialects } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { databaseOf, rowsOf, tokenOf } from '../support/inside.ts';
import { ociIndex, TestRepository, type Descriptor } from '../support/registry.ts';
import type { TestServer } from '../support/server.ts';

// Bundles with what accounts host.

/** An image as an index lists it. */
function descriptorOf({ mediaType, digest, size }: Descriptor): Descriptor {
  return { mediaType, digest, size };
}

/** The near site hosts a package with symbols, and an image for two platforms with a signature; resolves to what is there. */
async function hostContent(near: TestServer) {
  const feed = new TestFeed(near);
  const pdb = makePdb(randomBytes(16), 5000);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' }, { id: 'Contoso.Lib', version: '2.0.0' }, { id: 'Other' });
  const symbols = await makeSnupkg({
    id: 'Contoso.Lib',
    version: '2.0.0',
    files: { 'lib/net8.0/Contoso.Lib.pdb': pdb },
  });
  if ((await feed.push(symbols, '/symbols')).status !== 201) throw new Error('the symbols were refused');
  const deprecation = { reasons: ['Legacy'], message: 'Use "2.0.0".' };
  for (const [path, method, body] of [
    ['/v1/packages/Contoso.Lib/1.0.0/deprecation', 'PUT', JSON.stringify(deprecation)],
    ['/v3/push/Contoso.Lib/1.0.0', 'DELETE', undefined],
  ] as const) {
    const headers = { 'content-type': 'application/json', 'x-nuget-apikey': near.token };
    const answer = await near.fetch(path, { method, headers, ...(body && { body }) });
    if (answer.status >= 300) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  }
  const repository = new TestRepository(near, 'team/app');
  const images = [await repository.image('amd'), await repository.image('arm')];
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: images.map(descriptorOf) };
  const digest = (await repository.put('1.0', index, ociIndex)).headers.get('docker-content-digest')!;
  const subject = { mediaType: ociIndex, digest, size: Buffer.byteLength(JSON.stringify(index)) };
  const signature = await repository.image('sig', { subject, artifactType: 'application/vnd.test.signature' });
  return { feed, repository, images, digest, signature };
}

const isListed = `SELECT v.listed FROM package_versions v JOIN packages p ON p.id = v.package_row
  WHERE p.package_key = 'contoso.lib' AND v.version = '1.0.0'`;

/** Makes a bundle on the near site of what its account `default` hosts. */
function create({ near, path }: AirGap, name: string, key: string, ...words: string[]): Promise<string> {
  return near.ok('bundle', 'create', '--hosted', 'default', '--to', path(name), '--key', key, ...words);
}

/** The versions and tags of a site's account `default`. */
async function shownBy(t: ExecutionContext, server: TestServer) {
  const versions = await server.fetch('/v3/package/contoso.lib/index.json');
  const tags = await server.fetch('/v2/team/app/tags/list');
  t.log(versions.status, tags.status);
  return {
    versions: versions.status === 200 ? ((await versions.json()) as { versions: string[] }).versions : [],
    tags: tags.status === 200 ? ((await tags.json()) as { tags: string[] }).tags : [],
  };
}

for (const dialect of dialects) {
  test(`packages and images of an account come into the account of the same name (${dialect})`, async (t) => {
    const gap = await startAirGap(t, {}, dialect);
    const { near, far, path } = gap;
    const key = await trustedKey(gap);
    const source = await near.serve();
    const { digest, signature } = await hostContent(source);
    const names = ['--hosted', 'default/contoso.*', '--hosted', 'default/team/*'];
    const made = await near.ok('bundle', 'create', ...names, '--to', path('bundle'), '--key', key);
    t.regex(made, /packages: 2 /);
    const listed = await near.ok('bundle', 'inspect', path('bundle'), '--list');
    t.regex(listed, /default\tnupkg\tcontoso\.lib\t2\.0\.0/);
    t.notRegex(listed, /other/);
    const server = await far.serve();
    t.deepEqual(await shownBy(t, server), { versions: [], tags: [] });
    t.regex(await far.ok('bundle', 'import', path('bundle')), /packages: 2 [^]*imported/);

    t.deepEqual(await shownBy(t, server), { versions: ['1.0.0', '2.0.0'], tags: ['1.0', 'amd', 'arm', 'sig'] });
    const nupkg = '/v3/package/contoso.lib/2.0.0/contoso.lib.2.0.0.nupkg';
    const bytes = await Promise.all([source, server].map(async (each) => (await each.fetch(nupkg)).arrayBuffer()));
    t.deepEqual(Buffer.from(bytes[1]!), Buffer.from(bytes[0]!));
    const registrations = await Promise.all(
      [source, server].map(async (each) => {
        const { items } = await new TestFeed(each).json('/registration-gz-semver2/contoso.lib/index.json');
        return items[0].items.map(({ catalogEntry }: any) => {
          const { version, listed: isListed, published, deprecation } = catalogEntry;
          return { version, isListed, published, reasons: deprecation?.reasons, message: deprecation?.message };
        });
      }),
    );
    t.deepEqual(registrations[1], registrations[0]);
    t.deepEqual(
      registrations[1].map(({ isListed, message }: any) => [isListed, message]),
      [
        [false, 'Use "2.0.0".'],
        [true, undefined],
      ],
    );
    const [near1, far1] = await Promise.all(
      [source, server].map((each) => rowsOf(each, 'SELECT file_name, signature, path FROM package_symbols')),
    );
    t.is(far1!.length, 1);
    t.deepEqual(far1, near1);
    const [hash] = await rowsOf<{ sha512: string }>(
      source,
      "SELECT sha512 FROM package_versions WHERE version = '2.0.0'",
    );
    const hashes = await rowsOf(server, `SELECT version FROM package_versions WHERE sha512 = '${hash!.sha512}'`);
    t.deepEqual(hashes, [{ version: '2.0.0' }]);

    const manifest = await server.fetch('/v2/team/app/manifests/1.0');
    t.is(manifest.headers.get('docker-content-digest'), digest);
    for (const child of ((await manifest.json()) as { manifests: { digest: string }[] }).manifests) {
      const image = await server.fetch(`/v2/team/app/manifests/${child.digest}`);
      t.is(image.status, 200);
      const { config, layers } = (await image.json()) as { config: { digest: string }; layers: { digest: string }[] };
      for (const each of [config, ...layers])
        t.is((await server.fetch(`/v2/team/app/blobs/${each.digest}`)).status, 200);
    }
    const referrers = (await (await server.fetch(`/v2/team/app/referrers/${digest}`)).json()) as any;
    t.deepEqual(
      referrers.manifests.map((each: any) => each.digest),
      [signature.digest],
    );

    const events = await rowsOf(server, "SELECT id FROM events WHERE type IN ('package.published', 'image.pushed')");
    t.true(events.length >= 6);
    t.regex(await far.ok('bundle', 'import', path('bundle')), /0 new entries, 0 B stored; it was imported before/);
    t.is(
      (await rowsOf(server, "SELECT id FROM events WHERE type IN ('package.published', 'image.pushed')")).length,
      events.length,
    );
    t.regex(await far.ok('doctor'), /./);
  });
}

test('symbols that write the version in another case are known when they come again', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const feed = new TestFeed(await near.serve());
  await feed.publish({ id: 'Contoso.Case', version: '2.0.0-beta' });
  const symbols = await makeSnupkg({ id: 'Contoso.Case', version: '2.0.0-Beta' });
  t.is((await feed.push(symbols, '/symbols')).status, 201);
  await create(gap, 'bundle', key);
  await far.ok('bundle', 'import', path('bundle'));
  t.regex(await far.ok('bundle', 'import', path('bundle')), /0 new entries, 0 B stored; it was imported before/);
});

test('a delta against a receipt has only what is new; a tag moves, an unlisted version comes back', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed, repository } = await hostContent(source);
  await create(gap, 'whole', key);
  await far.ok('bundle', 'import', path('whole'));
  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  await near.ok('bundle', 'trust', 'add', path('far.key.pub'), '--role', 'receipts');
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', path('far.key'), '--hosted', 'default');
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await source.fetch('/v3/push/Contoso.Lib/1.0.0', { method: 'POST', headers: { 'x-nuget-apikey': source.token } });
  const moved = await repository.image('1.0');
  t.regex(await create(gap, 'delta', key, '--against', path('receipt')), /left out: (?:[5-9]|\d\d+) items/);
  const [whole, delta] = await Promise.all(['whole', 'delta'].map((name) => stat(join(path(name), '0001.tar'))));
  t.true(delta!.size < whole!.size);

  const server = await far.serve();
  await far.ok('bundle', 'import', path('delta'));
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0', '3.0.0']);
  const found = await server.fetch('/v2/team/app/manifests/1.0');
  t.is(found.headers.get('docker-content-digest'), moved.digest);
  t.deepEqual(await rowsOf(server, isListed), [{ listed: 1 }]);
  const history = await rowsOf(
    server,
    "SELECT digest FROM history WHERE kind = 'tag' AND reference = '1.0' ORDER BY id",
  );
  t.is(history.length, 2, 'the history of the tag travels');

  // The older bundle brings no tag back, and unlists nothing.
  t.regex(await far.ok('bundle', 'import', path('whole')), /imported before/);
  const older = await server.fetch('/v2/team/app/manifests/1.0');
  t.is(older.headers.get('docker-content-digest'), moved.digest);
  t.deepEqual(await rowsOf(server, isListed), [{ listed: 1 }]);
});

test('a delta is refused where an account deleted what it counts on', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed } = await hostContent(source);
  await create(gap, 'whole', key);
  await far.ok('bundle', 'import', path('whole'));
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--hosted', 'default/contoso.*');
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await create(gap, 'delta', key, '--against', path('receipt'));
  const server = await far.serve();
  const gone = await server.fetch('/v1/packages/Contoso.Lib/2.0.0', { method: 'DELETE' });
  t.is(gone.status, 204);
  t.regex(await far.fails('bundle', 'import', path('delta')), /default\/contoso\.lib nupkg 2\.0\.0/);
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0']);
});

test('a proof for files counts what a bundle brings into the account, and names what is neither there nor here', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed } = await hostContent(source);
  await create(gap, 'bundle', key);
  const list = await file('list.txt', 'Contoso.Lib@2.0.0\nteam/app:1.0');
  const more = await file('more.txt', 'Contoso.Lib@3.0.0\nteam/app:9.9');
  t.regex(await far.ok('bundle', 'verify', path('bundle'), '--for', list), /found: 2 that the account default hosts/);
  const missing = await far.run('bundle', 'verify', path('bundle'), '--for', list, more);
  t.is(missing.code, 1);
  t.regex(
    missing.stdout + missing.stderr,
    /Contoso\.Lib 3\.0\.0 [^\n]*more\.txt:1[^]*team\/app:9\.9 [^\n]*more\.txt:2/,
  );
  t.regex(missing.stderr, /2 missing/);

  await far.ok('bundle', 'import', path('bundle'));
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await near.ok('bundle', 'create', '--hosted', 'default/contoso.*', '--to', path('next'), '--key', key);
  t.regex(await far.ok('bundle', 'verify', path('next'), '--for', list), /found/);
});

test('other bytes under a name refuse the whole bundle, and nothing of it is shown', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  const server = await far.serve();
  const own = new TestFeed(server);
  t.is((await own.push(await makeNupkg({ id: 'Contoso.Lib', version: '2.0.0', description: 'Mine' }))).status, 201);
  t.regex(await far.fails('bundle', 'import', path('bundle')), /hosts Contoso\.Lib 2\.0\.0 already, with other bytes/);
  t.deepEqual(await shownBy(t, server), { versions: ['2.0.0'], tags: [] });
  await server.fetch('/v1/packages/Contoso.Lib/2.0.0', { method: 'DELETE' });
  await far.ok('bundle', 'import', path('bundle'));
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0']);
});

test('a deprecation that cannot be read refuses the bundle', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  await new TestFeed(source).publish({ id: 'Contoso.Lib' });
  for (const [at, text] of ['{', '{}', 'null', '{"reasons":["Legacy"],"alternatePackage":{"id":7}}'].entries()) {
    await databaseOf(source).transaction((tx) => tx.run('UPDATE package_versions SET deprecation = ?', [text]));
    await create(gap, `bundle${at}`, key);
    t.regex(await far.fails('bundle', 'import', path(`bundle${at}`)), /a wrong deprecation of contoso\.lib/, text);
  }
});

test('an account that is not here is named, and content of another account stays hidden from the default one', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  await near.ok('account', 'create', 'team');
  await (await TestFeed.ofAccount(source, 'team')).publish({ id: 'Secret' });
  await hostContent(source);
  t.regex(await near.fails('bundle', 'create', '--hosted', 'nobody', '--to', path('x')), /no account nobody/);
  t.regex(await near.fails('bundle', 'create', '--hosted', 'team/None*', '--to', path('x')), /hosts no package/);
  await near.ok('bundle', 'create', '--hosted', 'team/*', '--to', path('bundle'), '--key', key);
  t.regex(
    await far.fails('bundle', 'import', path('bundle')),
    /account team, which is not here[^]*account create team/,
  );
  await far.ok('account', 'create', 'team');
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  // It is asked of an upstream, as a name that nobody hosts.
  t.is((await server.fetch('/v3/package/secret/index.json')).status, 504);
  const token = await tokenOf(server, ['read'], 'team');
  t.is((await server.fetch('/v3/package/secret/index.json', { token })).status, 200);
});

test('a name that was mirrored here is told, and the hosted content takes precedence', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, feed, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Contoso.Lib', versions: [{ version: '0.9.0' }] });
  const list = await file('list.txt', 'Contoso.Lib@0.9.0');
  await near.ok('bundle', 'create', list, '--to', path('mirrored'), '--key', key);
  await far.ok('bundle', 'import', path('mirrored'));
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0']);
  const [event] = await rowsOf<{ details: string }>(
    server,
    "SELECT details FROM events WHERE type = 'package.published' AND subject_name = 'Contoso.Lib' ORDER BY id LIMIT 1",
  );
  t.is(JSON.parse(event!.details).taken_over_from, 'feed.test');
});

test('hosted content is imported only by a command', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  const server = await far.serve();
  const segments = { 1: await readFile(join(path('bundle'), '0001.tar')) };
  const run = await ranImport(server, await sentImport(server, segments));
  t.is(run['state'], 'failed');
  t.regex(run['error'], /content that accounts host\. Only a command imports it/);
  t.deepEqual((await shownBy(t, server)).versions, []);
});
