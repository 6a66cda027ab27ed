import { mkdir, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { dialects } from '../support/databases.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { rowsOf } from '../support/inside.ts';

// Bundles, from the near site to the far one (docs/airgap.md).

for (const dialect of dialects)
  test(`${dialect}: what a lock file and a list name is served at the far side, which reaches nothing`, async (t) => {
    const gap = await startAirGap(t, {}, dialect);
    const { feed, registry, near, far, file, path } = gap;
    const key = await trustedKey(gap);
    const bytes = await makeNupkg({ id: 'Lib.One', version: '1.0.0' });
    await feed.offer({
      id: 'Lib.One',
      versions: [{ version: '1.0.0', nupkg: bytes, published: '2024-02-03T04:05:06Z' }, { version: '1.1.0' }],
    });
    const image = registry.image('library/redis', '7');
    const lock = { version: 1, dependencies: { net8: { 'Lib.One': { type: 'Direct', resolved: '1.0.0' } } } };
    const files = [await file('packages.lock.json', JSON.stringify(lock)), await file('images.txt', 'redis:7\n')];
    const made = await near.ok('bundle', 'create', ...files, '--to', path('bundle'), '--key', key);
    t.regex(made, /^packages: 1 \(/m);
    t.regex(made, /1 segment with .* of content, signed by [0-9a-f]{16}; sha256:/);
    t.deepEqual(await readdir(path('bundle')), ['0001.tar']);
    t.regex(await far.ok('bundle', 'inspect', path('bundle')), /segments: 1, all here\npackages: 1 /);
    const imported = await far.ok('bundle', 'import', path('bundle'));
    t.regex(imported, /imported sha256:[0-9a-f]{64}: \d+ new entries/);

    const server = await far.serve();
    const index = await server.fetch('/v3/package/lib.one/index.json');
    t.deepEqual(await index.json(), { versions: ['1.0.0', '1.1.0'] });
    const nupkg = await server.fetch('/v3/package/lib.one/1.0.0/lib.one.1.0.0.nupkg');
    t.deepEqual(Buffer.from(await nupkg.arrayBuffer()), bytes);
    t.is((await server.fetch('/v3/package/lib.one/1.1.0/lib.one.1.1.0.nupkg')).status, 504);
    const manifest = await server.fetch('/v2/redis/manifests/7');
    t.is(await manifest.text(), image.manifest.bytes);
    for (const digest of [image.config.digest, image.layer.digest])
      t.is((await server.fetch(`/v2/redis/blobs/${digest}`)).status, 200);
    t.is((await server.fetch('/v3/vulnerabilities/index.json')).status, 200);

    t.regex(await far.ok('bundle', 'import', path('bundle')), /0 new entries, 0 B stored; it was imported before/);
    const [event, ...others] = await auditOf(server, 'type=bundle.imported');
    t.deepEqual(others, [], 'twice is nothing');
    const { entries, bytes: stored, source, key: signer, ...rest } = event!.details;
    t.deepEqual(rest, {});
    t.is(entries, Number(/(\d+) new entries/.exec(imported)![1]));
    t.true(Number(stored) > bytes.length);
    t.regex(String(source), /^[0-9a-f-]{36}$/);
    t.is(/signed by ([0-9a-f]{16})/.exec(made)?.[1], String(signer).slice(0, 16));
  });

test('a folder of packages, and the versions that were here before stay listed', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  await near.ok('bundle', 'create', await file('list.txt', 'Lib@1.0.0'), '--to', path('bundle'));
  await far.ok('bundle', 'import', path('bundle'), '--unsigned');
  const bytes = await makeNupkg({ id: 'Lib', version: '2.0.0' });
  // As the folder of global packages has them.
  await mkdir(join(path('packages'), 'lib/2.0.0'), { recursive: true });
  await writeFile(join(path('packages'), 'lib/2.0.0/lib.2.0.0.nupkg'), bytes);
  const newest = await makeNupkg({ id: 'LIB', version: '10.0.0' });
  await writeFile(join(path('packages'), 'newest.NUPKG'), newest);
  await writeFile(join(path('packages'), 'notes.txt'), 'not a package');
  await writeFile(join(path('packages'), 'lib.2.0.0.symbols.nupkg'), 'not read');
  const words = ['bundle', 'import', path('packages'), '--unsigned', '--upstream'];
  t.regex(
    await far.fails(...words, 'other.test'),
    /packages: name the upstream to which the packages belong with --upstream: feed\.test/,
  );
  await far.ok(...words, 'feed.test');
  const server = await far.serve();
  t.deepEqual(await (await server.fetch('/v3/package/lib/index.json')).json(), {
    versions: ['1.0.0', '2.0.0', '10.0.0'],
  });
  const nupkg = await (await server.fetch('/v3/package/lib/2.0.0/lib.2.0.0.nupkg')).arrayBuffer();
  t.true(Buffer.from(nupkg).equals(bytes));
  await server.close();
  // Another file of the same version, and another folder with the same id: one of the two would be lost.
  await mkdir(path('other'));
  await writeFile(join(path('other'), 'lib.nupkg'), await makeNupkg({ id: 'Lib', version: '3.0.0' }));
  t.regex(await far.fails(...words, 'feed.test', path('other')), /: lib is there twice/);
  await writeFile(join(path('other'), 'more.nupkg'), await makeNupkg({ id: 'Lib', version: '3.0.0', title: 'Other' }));
  t.regex(
    await far.fails('bundle', 'import', path('other'), '--unsigned', '--upstream', 'feed.test'),
    /: lib 3\.0\.0 is there twice, with different content\. Leave one out/,
  );
  await mkdir(path('empty'));
  t.regex(
    await far.fails('bundle', 'import', path('empty'), '--unsigned'),
    /empty: this is no bundle, no OCI image layout/,
  );
  await mkdir(path('wrong'));
  await writeFile(join(path('wrong'), 'lib.nupkg'), 'no zip');
  t.regex(await far.fails('bundle', 'import', path('wrong'), '--unsigned'), /lib\.nupkg is no package/);
});

test('content that is larger than a segment comes in one segment at a time', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const numbers = Buffer.alloc(1_500_000);
  for (let at = 0; at < numbers.length; at += 4) numbers.writeUInt32LE(at, at);
  // The parts of zeros are equal.
  const contents = [numbers, Buffer.alloc(2_500_000)];
  const layers = contents.map((bytes) => registry.blob('team/big', bytes));
  const config = registry.blob('team/big', '{}');
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  registry.manifest('team/big', { schemaVersion: 2, mediaType, config, layers }, '1');
  const list = await file('list.txt', 'docker.io/team/big:1');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB');
  const segments = (await readdir(path('bundle'))).toSorted();
  t.true(segments.length >= 4);
  await mkdir(path('drive'));
  const drive = join(path('drive'), 'some.tar');
  const server = await far.serve();
  for (;;) {
    await rename(join(path('bundle'), segments.pop()!), drive);
    const { code, stderr } = await far.run('bundle', 'import', drive);
    if (code === 0) break;
    const asked = stderr.match(/nothing is shown yet, because (.*) of \d segments/)![1]!.split(', ');
    t.true(
      asked.every((each) => segments.includes(each)),
      `${stderr} ${segments.join()}`,
    );
    t.is((await server.fetch('/v2/team/big/manifests/1')).status, 502);
  }
  for (const [at, { digest }] of layers.entries()) {
    const body = await (await server.fetch(`/v2/team/big/blobs/${digest}`)).arrayBuffer();
    t.true(contents[at]!.equals(Buffer.from(body)));
  }
  t.deepEqual(await rowsOf(server, 'SELECT digest FROM mirror_staged'), []);
});
