import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { entryId } from '../../src/mirror/store/entries.ts';
import { databaseOf } from '../support/inside.ts';
import { seal } from '../../src/bundle/keys.ts';
import { installationIdentity } from '../../src/storage/upkeep/identity.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { digestOf } from '../support/registry.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';

// A bundle against a receipt has only what the receiver lacks.

test('a delta brings only what is new, moves tags of a running server, and needs what it counts on', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms' });
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const before = registry.image('library/app', 'latest');
  for (let number = 0; number < 40; number += 1)
    await feed.offer({ id: `Lib${number}`, versions: [{ version: '1.0.0' }] });
  const ids = Array.from({ length: 40 }, (_, number) => `Lib${number}@1.0.0`);
  const list = await file('list.txt', ['app:latest', ...ids].join('\n'));
  await near.ok('bundle', 'create', list, '--to', path('whole'), '--key', key);
  await far.ok('bundle', 'import', path('whole'));
  const server = await far.serve();
  const digestOf = async () => (await server.fetch('/v2/app/manifests/latest')).headers.get('docker-content-digest');
  t.is(await digestOf(), before.manifest.digest);

  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  t.regex(
    await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', path('far.key')),
    /receipt: \d+ items; they are kept/,
  );
  t.regex(
    await near.fails('bundle', 'create', list, '--to', path('x'), '--against', path('receipt')),
    /not trusted here/,
  );
  await near.ok('bundle', 'trust', 'add', path('far.key.pub'), '--role', 'receipts');

  const after = registry.image('library/app', 'latest');
  await feed.offer({ id: 'New', versions: [{ version: '1.0.0' }] });
  const changed = await file('changed.txt', ['app:latest', 'New@1.0.0', ...ids].join('\n'));
  const dry = await near.ok(
    'bundle',
    'create',
    changed,
    '--to',
    path('delta'),
    '--against',
    path('receipt'),
    '--dry-run',
  );
  t.regex(dry, /left out: \d+ items/);
  const made = await near.ok(
    'bundle',
    'create',
    changed,
    '--to',
    path('delta'),
    '--key',
    key,
    '--against',
    path('receipt'),
  );
  t.regex(made, /left out: \d+ items .* that the receiver has/);
  const [whole, delta] = await Promise.all(['whole', 'delta'].map((name) => stat(join(path(name), '0001.tar'))));
  t.true(delta!.size < whole!.size);

  t.regex(await far.ok('bundle', 'import', path('delta')), /imported sha256/);
  t.is(await digestOf(), after.manifest.digest, 'the running server shows it');
  t.is((await server.fetch('/v3/package/new/1.0.0/new.1.0.0.nupkg')).status, 200);
  t.is((await server.fetch('/v3/package/lib7/1.0.0/lib7.1.0.0.nupkg')).status, 200);

  await server.close();
});

test('a delta is refused where what it counts on is not stored', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const list = await file('list.txt', 'Lib@1.0.0');
  await near.ok('bundle', 'create', list, '--to', path('first'), '--key', key);
  // The receipt of an installation that has it, with the identity of the one that has not.
  await near.ok('bundle', 'receipt', '--to', path('near.receipt'));
  await far.ok('bundle', 'receipt', '--to', path('far.receipt'));
  await near.ok('bundle', 'create', list, '--to', path('foreign'), '--key', key, '--against', path('near.receipt'));
  t.regex(await far.fails('bundle', 'import', path('foreign')), /is for the installation [0-9a-f-]{36}, and this is/);

  await far.ok('bundle', 'import', path('first'));
  await far.ok('bundle', 'receipt', '--to', path('far.receipt'));
  await near.ok('bundle', 'create', list, '--to', path('delta'), '--key', key, '--against', path('far.receipt'));
  const lib = { upstream: 'feed.test', kind: 'nupkg', name: 'lib', reference: '1.0.0' };
  const server = await far.serve();
  t.is((await server.fetch(`/v1/upstreams/feed.test/entries/${entryId(lib)}`, { method: 'DELETE' })).status, 204);
  await databaseOf(server).transaction((tx) =>
    tx.run('DELETE FROM blobs WHERE digest NOT IN (SELECT digest FROM mirror_entries)'),
  );
  await server.close();
  t.regex(
    await far.fails('bundle', 'import', path('delta')),
    /is not here: 1 of its items, such as feed\.test\/lib nupkg 1\.0\.0/,
  );

  const altered = (await readFile(path('far.receipt'), 'utf8')).replace(
    /(sha256:)(.)([0-9a-f]{63}\n)/,
    (_all, a, b, c) => `${a}${b === '0' ? 1 : 0}${c}`,
  );
  await writeFile(path('altered'), altered);
  t.regex(
    await near.fails('bundle', 'create', list, '--to', path('y'), '--against', path('altered')),
    /altered after it was written/,
  );
});

test('an older bundle is refused; with --older, only content that never changes comes in', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms' });
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const [first, other] = [registry.image('library/app', 'latest'), registry.image('library/tool', '1')];
  const both = await file('both.txt', 'app:latest\ntool:1\n');
  await near.ok('bundle', 'create', both, '--to', path('old'), '--key', key);
  const second = registry.image('library/app', 'latest');
  await near.ok('bundle', 'create', await file('one.txt', 'app:latest'), '--to', path('new'), '--key', key);
  await far.ok('bundle', 'import', path('new'));
  t.regex(await far.fails('bundle', 'import', path('old')), /is older than the last one of its source.*--older/);
  await far.ok('bundle', 'import', path('old'), '--older');
  const server = await far.serve();
  const digestOf = async (name: string) => (await server.fetch(`/v2/${name}`)).headers.get('docker-content-digest');
  t.is(await digestOf('app/manifests/latest'), second.manifest.digest);
  t.is(await digestOf(`app/manifests/${first.manifest.digest}`), first.manifest.digest);
  t.is(await digestOf(`tool/manifests/${other.manifest.digest}`), other.manifest.digest);
  t.is((await server.fetch('/v2/tool/manifests/1')).status, 502, 'no tag');
  await server.close();
});

test('a digest alone does not make what an account has pushed mirrored content', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const bytes = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0', nupkg: bytes }] });
  const server = await far.serve();
  t.is((await new TestFeed(server).push(bytes)).status, 201);
  const installation = await installationIdentity(databaseOf(server));
  await server.close();
  // A receipt that claims it, which nobody signed.
  const header = { format: 'entrepot-receipt', version: 1, installation, created_at: 1, digests: 1 };
  const body = `${JSON.stringify(header)}\n${digestOf(bytes)}\n`;
  const statement = Buffer.from(JSON.stringify({ receipt: digestOf(body) }));
  await file('receipt', seal('application/vnd.entrepot.receipt.v1+json', statement, undefined) + body);
  const list = await file('list.txt', 'Lib@1.0.0');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--against', path('receipt'));
  t.regex(await far.fails('bundle', 'import', path('bundle')), /is not here: 1 of its items/);
});
