import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { auditOf } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { digestOf, errorOf, ociIndex, ociManifest, TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { flushUsage, flushUses, rowsOf, runJob, tokenOf } from '../support/inside.ts';

const day = 86_400_000;
const off = { uploads: 'off', retention: 'off', evict: 'off', gc: 'off', scrub: 'off' };

async function start(t: ExecutionContext, dialect: Dialect, settings: Record<string, unknown> = {}) {
  const database = { url: await temporaryDatabase(t, dialect) };
  return startTestServer(t, { database, jobs: off, ...settings });
}

function pass(server: TestServer, milliseconds: number): void {
  server.clock.now = (server.clock.now ?? Date.now()) + milliseconds;
}

/** The report lines of a run, and its counts. */
async function run(server: TestServer, name: string, dryRun = false) {
  const said: string[] = [];
  const counts = await runJob(server, name, { dryRun, say: (line) => said.push(line) });
  return { said: said.sort(), counts };
}

const has = async (repository: TestRepository, { digest }: { digest: string }, kind = 'blobs') =>
  (await repository.fetch(`${kind}/${digest}`, { method: 'HEAD' })).status === 200;

async function tagsOf(repository: TestRepository): Promise<string[]> {
  return ((await (await repository.fetch('tags/list')).json()) as { tags: string[] }).tags;
}

/** What retention says of tags of `team/app`. */
const told = (...names: string[]) => names.map((tag) => `tag team/app:${tag}`);

async function bytesOnDisk(server: TestServer): Promise<number> {
  const entries = await readdir(join(server.data, 'blobs'), { recursive: true, withFileTypes: true });
  const files = entries.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
  return (await Promise.all(files.map((file) => stat(file)))).reduce((sum, { size }) => sum + size, 0);
}

for (const dialect of dialects) {
  test(`${dialect}: content within the grace period stays, by the clock of the server`, async (t) => {
    const server = await start(t, dialect, { gc: { grace: '2h' } });
    // Years away from the clock of the machine.
    const pushedAt = Date.UTC(2040, 0, 1);
    server.clock.now = pushedAt;
    await new TestFeed(server).publish({ id: 'Brief' });
    t.is((await server.fetch('/v1/packages/Brief/1.0.0', { method: 'DELETE' })).status, 204);
    server.clock.now = pushedAt + 2 * 3_600_000;
    t.like((await run(server, 'gc')).counts, { blobs: 0 }, 'nothing before the end of the grace');
    server.clock.now += 1;
    t.like((await run(server, 'gc')).counts, { blobs: 2 }, 'the package and its nuspec');
  });

  test(`${dialect}: a day later, the layers of a deleted image are deleted, except those that other content uses`, async (t) => {
    const server = await start(t, dialect);
    const [app, other] = [new TestRepository(server, 'team/app'), new TestRepository(server, 'team/other')];
    const [shared, own] = [await app.blob('shared'), await app.blob('own')];
    const kept = await app.image('kept', { layers: [shared] });
    const gone = await app.image('gone', { layers: [shared, own] });
    await other.fetch(`blobs/uploads/?mount=${own.digest}&from=team/app`, { method: 'POST' });
    const elsewhere = await other.image('v1', { layers: [own] });
    const abandoned = await app.blob('pushed, and then nothing');
    pass(server, 30 * day);
    t.is((await app.fetch(`manifests/${gone.digest}`, { method: 'DELETE' })).status, 202);
    t.like((await run(server, 'gc', true)).counts, { layers: 4, blobs: 1 }, 'the helper adds a layer to each image');
    await run(server, 'gc');
    t.true(await has(app, own), 'a layer without a manifest is kept for the next push');
    t.false(await has(app, abandoned), 'but only for the grace');
    pass(server, 2 * day);
    await run(server, 'gc');
    t.false(await has(app, own), 'no manifest of the repository refers to it');
    t.true(await has(other, own), 'a manifest of the other repository does');
    for (const [repository, image] of [
      [app, kept],
      [other, elsewhere],
    ] as const) {
      t.true(await has(repository, image, 'manifests'));
      const { config, layers } = JSON.parse(image.bytes) as { config: Descriptor; layers: Descriptor[] };
      for (const part of [config, ...layers]) t.true(await has(repository, part));
    }
    t.false(await has(app, gone, 'manifests'));
    t.like((await run(server, 'gc')).counts, { layers: 0, blobs: 0 }, 'a second run finds nothing');
    const again = await app.image('gone', { layers: [shared, await app.blob('own')] });
    t.is(again.digest, gone.digest, 'it can be pushed again');
    await run(server, 'gc');
    t.true(await has(app, own));
  });

  test(`${dialect}: a blob that is pushed again is kept for its manifest`, async (t) => {
    const server = await start(t, dialect, { gc: { grace: '1h' } });
    const app = new TestRepository(server, 'team/app');
    await app.blob('layer');
    pass(server, day);
    const layer = await app.blob('layer');
    await run(server, 'gc');
    t.is(
      (
        await app.put('v1', {
          schemaVersion: 2,
          mediaType: 'application/vnd.oci.image.manifest.v1+json',
          config: layer,
          layers: [],
        })
      ).status,
      201,
    );
  });

  test(`${dialect}: untagged manifests are deleted after their time, with content that only they need`, async (t) => {
    const retention = { containers: { untaggedAfter: '10d' }, protect: ['team/safe'] };
    const server = await start(t, dialect, { retention });
    const [app, safe] = [new TestRepository(server, 'team/app'), new TestRepository(server, 'team/safe')];
    await app.put('latest', JSON.stringify(await app.manifest()));
    await app.image('latest');
    const one = await app.image('one');
    const two = await app.image('two');
    const inner = { schemaVersion: 2, mediaType: ociIndex, manifests: [one] };
    const innerBytes = JSON.stringify(inner);
    const index = async (tag: string, manifests: object[]) => {
      const bytes = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests, annotations: { tag } });
      const response = await app.put(tag, bytes, ociIndex);
      return { mediaType: ociIndex, digest: response.headers.get('docker-content-digest')!, size: bytes.length };
    };
    const nested = await index('nested', [one]);
    const outer = await index('outer', [nested, two]);
    const signature = await app.image('signature', { subject: outer });
    const byDigest = await app.image('temporary');
    for (const tag of ['one', 'two', 'nested', 'signature', 'temporary', 'latest']) {
      t.is((await app.fetch(`manifests/${tag}`, { method: 'DELETE' })).status, 202);
    }
    const untagged = await safe.image('v1');
    await safe.fetch('manifests/v1', { method: 'DELETE' });
    // An index of another repository keeps nothing here.
    const third = new TestRepository(server, 'team/third');
    const apart = await third.image('apart');
    await third.fetch('manifests/apart', { method: 'DELETE' });
    await index('elsewhere', [apart]);
    const all = [one, two, nested, outer, signature];
    pass(server, 11 * day);
    const first = await run(server, 'retention', true);
    t.is(first.counts['manifests'], 4, first.said.join('; '));
    t.true(first.said.includes(`manifest team/third@${apart.digest}`));
    t.true(first.said.includes(`manifest team/app@${byDigest.digest}`));
    t.deepEqual((await run(server, 'retention')).said, first.said, 'same as in the dry run');
    for (const each of all)
      t.true(await has(app, each, 'manifests'), 'an index keeps its children, and its signature stays');
    t.true(await has(safe, untagged, 'manifests'), 'protected');
    // The tag moves to another manifest: the old index was in use until now and is untagged from now on.
    await app.put('outer', innerBytes, ociIndex);
    pass(server, 9 * day);
    t.is((await run(server, 'retention')).counts['manifests'], 0);
    pass(server, day);
    for (const dryRun of [true, false])
      t.is((await run(server, 'retention', dryRun)).counts['manifests'], 0, 'not yet longer than its time');
    pass(server, day);
    const last = await run(server, 'retention');
    t.deepEqual(
      last.said,
      [nested, outer, signature, two].map(({ digest }) => `manifest team/app@${digest}`).sort(),
      'its own content is deleted too; content of another index is not',
    );
    t.true(await has(app, one, 'manifests'));
    pass(server, 2 * day);
    await run(server, 'gc');
    const { layers } = JSON.parse(one.bytes) as { layers: Descriptor[] };
    t.true(await has(app, layers[0]!));
    t.false(await has(app, (JSON.parse(two.bytes) as { layers: Descriptor[] }).layers[0]!), 'gc deletes their bytes');
  });

  test(`${dialect}: old tags are deleted by the first rule that matches, except the newest and what is used`, async (t) => {
    const tags = [
      { tags: ['keep-*'], keepNewest: 1000 },
      { images: ['team/*'], tags: ['ci-*'], keepNewest: 2, keepUsedFor: '10d', accounts: ['default'] },
      { images: ['team/app'], keepNewest: 1 },
    ];
    const server = await start(t, dialect, { retention: { containers: { tags }, protect: ['team/safe'] } });
    server.clock.now = Date.now();
    const [app, safe, tool] = ['team/app', 'team/safe', 'tool'].map((name) => new TestRepository(server, name));
    const other = new TestRepository(server, 'team/lib', await tokenOf(server, ['read', 'write'], 'other'));
    // The oldest, which is pulled through the index that it is in.
    const child = await app!.image('ci-child');
    const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [child] };
    await app!.put('ci-0-index', JSON.stringify(index), ociIndex);
    await app!.fetch('manifests/ci-child', { method: 'DELETE' });
    // As old, in an index whose image is pulled from another repository only.
    const shared = JSON.stringify({ schemaVersion: 2, config: await app!.blob('{}'), layers: [] });
    const copy = { mediaType: ociManifest, digest: digestOf(shared), size: shared.length };
    await tool!.blob('{}');
    for (const repository of [app!, tool!]) t.is((await repository.put(copy.digest, shared)).status, 201);
    await app!.put('ci-0-other', { schemaVersion: 2, mediaType: ociIndex, manifests: [copy] });
    // Nearly as the tags of attached content.
    const alike = [`ci-sha256-${'a'.repeat(64)}`, `sha256-${'a'.repeat(65)}`];
    for (const tag of alike) await app!.image(tag);
    for (const repository of [app!, safe!, tool!, other]) {
      for (const tag of ['ci-1', 'ci-2', 'ci-3', 'ci-4', 'ci-5', 'keep-1', 'v1', 'v2']) {
        pass(server, 1000);
        await repository.image(tag);
      }
    }
    // Of a sha512 digest, the tag has the first 64 digits.
    const attached = [`sha256-${'a'.repeat(64)}.sig`, `sha512-${'b'.repeat(64)}`];
    for (const tag of attached) await app!.image(tag);
    t.deepEqual((await run(server, 'retention', true)).said, told(alike[1]!, 'v1'), 'all others are new');
    // The first of them was pushed exactly ten days ago; before it came only the indexes and what looks attached.
    pass(server, 10 * day - 31_000);
    t.deepEqual((await run(server, 'retention', true)).said, told('ci-0-index', 'ci-0-other', ...alike, 'v1'));
    pass(server, day + 31_000);
    await (await app!.fetch('manifests/ci-2')).arrayBuffer();
    await (await app!.fetch(`manifests/${child.digest}`)).arrayBuffer();
    await (await tool!.fetch(`manifests/${copy.digest}`)).arrayBuffer();
    await flushUsage(server);
    const expected = told('ci-0-other', 'ci-1', 'ci-3', ...alike, 'v1');
    const dry = await run(server, 'retention', true);
    t.deepEqual(dry.said, expected);
    const { said, counts } = await run(server, 'retention');
    t.deepEqual([said, counts], [expected, { tags: 6 }]);
    t.is((await run(server, 'retention')).counts['tags'], 0);
    t.deepEqual(await tagsOf(app!), ['ci-0-index', 'ci-2', 'ci-4', 'ci-5', 'keep-1', ...attached, 'v2']);
    for (const repository of [safe!, tool!, other]) t.is((await tagsOf(repository)).length, 8);
    const events = await auditOf(server, 'type=tag.deleted');
    t.true(events.some(({ actor, subject }) => actor.kind === 'system' && subject.reference === 'ci-3'));
    t.true(await has(app!, child, 'manifests'));
  });

  test(`${dialect}: old versions are deleted, releases and prereleases separately; protected ones stay`, async (t) => {
    const retention = { packages: { keepVersions: 2 }, protect: ['contoso.safe', 'Contoso.Lib:1.0.*'] };
    const server = await start(t, dialect, { retention });
    const feed = new TestFeed(server);
    const other = await TestFeed.ofAccount(server, 'other');
    // The order of the versions counts, not that of their pushes.
    const versions = ['10.0.0', '1.0.0', '2.0.0', '1.1.0', '3.0.0-a.10', '3.0.0-a.1', '3.0.0-a.2'];
    for (const version of versions) {
      await feed.publish({ id: 'Contoso.Lib', version }, { id: 'Contoso.Safe', version });
    }
    for (const version of ['1.0.0', '2.0.0', '3.0.0']) await other.publish({ id: 'Contoso.Tool', version });
    const expected = ['package Contoso.Lib 1.1.0', 'package Contoso.Lib 3.0.0-a.1', 'package Contoso.Tool 1.0.0'];
    const tried = await run(server, 'retention', true);
    t.deepEqual(tried.said, expected);
    const sizes = await rowsOf<{ size: number }>(
      server,
      `SELECT v.size_bytes AS size FROM package_versions v JOIN packages p ON p.id = v.package_row
       WHERE p.package_id = 'Contoso.Lib' AND v.version IN ('1.1.0', '3.0.0-a.1')
       OR p.package_id = 'Contoso.Tool' AND v.version = '1.0.0'`,
    );
    const size = sizes.reduce((sum, each) => sum + each.size, 0);
    t.like(tried.counts, { versions: 3, version_bytes: size });
    const { said, counts } = await run(server, 'retention');
    t.deepEqual(said, expected);
    t.like(counts, { versions: 3, version_bytes: size });
    const list = async (id: string) => (await feed.json<{ versions: string[] }>(`/package/${id}/index.json`)).versions;
    t.deepEqual(await list('contoso.lib'), ['1.0.0', '2.0.0', '3.0.0-a.2', '3.0.0-a.10', '10.0.0']);
    t.is((await list('contoso.safe')).length, versions.length);
    const shown = (await (await server.fetch('/v1/packages/Contoso.Lib')).json()) as { version_count: number };
    t.is(shown.version_count, 5);
    t.deepEqual((await run(server, 'retention')).said, []);
    // One transaction deletes 20.
    const many = Array.from({ length: 23 }, (_, number) => ({ id: 'Many', version: `1.0.${number}`, payloadBytes: 0 }));
    await feed.publish(...many);
    // The newest one that searches show is deleted.
    for (const version of ['1.0.21', '1.0.22'])
      t.is((await feed.fetch(`/push/Many/${version}`, { method: 'DELETE' })).status, 204);
    t.is((await feed.json('/search?q=many')).data[0].version, '1.0.20');
    t.is((await run(server, 'retention', true)).counts['versions'], 21);
    t.is((await run(server, 'retention')).counts['versions'], 21);
    t.deepEqual(await list('many'), ['1.0.21', '1.0.22']);
    t.is((await feed.json('/search?q=many')).totalHits, 0);
    const before = await bytesOnDisk(server);
    pass(server, 2 * day);
    await run(server, 'gc');
    t.true((await bytesOnDisk(server)) < before);
    for (const version of await list('contoso.lib')) {
      t.is((await feed.fetch(`/package/contoso.lib/${version}/contoso.lib.${version}.nupkg`)).status, 200);
    }
  });

  test(`${dialect}: mirrored content is reduced to its limit, the least recently used first`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const server = await start(t, dialect, {
      upstreams: [upstream.settings('up.test')],
      mirror: { maxSize: '450kB' },
      gc: { grace: '0s' },
    });
    const mirrored = new TestRepository(server, 'up.test/app');
    const images = ['a', 'b', 'c'].map((tag) => upstream.image('app', tag));
    const pull = async (index: number) => {
      const { manifest, layer } = images[index]!;
      await (await mirrored.fetch(`manifests/${manifest.digest}`)).arrayBuffer();
      const response = await mirrored.fetch(`blobs/${layer.digest}`);
      return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) };
    };
    for (const index of [0, 1, 2]) {
      t.is((await pull(index)).status, 200);
      pass(server, day);
    }
    // Push the bytes of the oldest content as hosted content, and use the second oldest again.
    const app = new TestRepository(server, 'team/app');
    await app.image('v1', { layers: [await app.blob(images[0]!.layer.bytes)] });
    await pull(1);
    await flushUses(server);
    const expected = await run(server, 'evict', true);
    t.true(
      expected.said.every((line) => line.includes(images[0]!.layer.digest) || line.includes('manifest')),
      expected.said.join(),
    );
    const evicted = await run(server, 'evict');
    t.deepEqual(evicted, expected);
    t.true(evicted.counts['bytes']! >= 200_000);
    pass(server, 1);
    await run(server, 'gc');
    const asked = upstream.requests().length;
    t.is((await pull(1)).status, 200);
    t.is((await pull(2)).status, 200);
    t.is(upstream.requests().length, asked, 'more recently used content is still stored');
    t.true(await has(app, images[0]!.layer), 'hosted content stays');
    t.true((await pull(0)).bytes.equals(images[0]!.layer.bytes), 'evicted content is fetched again');
    t.true(upstream.requests().length > asked);
  });

  test(`${dialect}: content of an offline upstream is never evicted`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const image = upstream.image('app', 'v1');
    const url = await temporaryDatabase(t, dialect);
    const data = await folderUntilEnd(t);
    const first = await startTestServer(t, {
      data,
      database: { url },
      upstreams: [upstream.settings('off.test'), upstream.settings('on.test')],
    });
    for (const [name, { manifest, layer }] of [
      ['off.test/app', image],
      ['on.test/other', upstream.image('other', 'v1')],
    ] as const) {
      for (const path of [`manifests/${manifest.digest}`, `blobs/${layer.digest}`]) {
        await (await first.fetch(`/v2/${name}/${path}`)).arrayBuffer();
      }
    }
    await first.close();
    for (const [global, expected] of [
      [true, 4],
      [false, 2],
    ] as const) {
      const server = await startTestServer(t, {
        data,
        database: { url },
        offline: global,
        upstreams: [upstream.settings('off.test', { mode: 'offline' }), upstream.settings('on.test')],
        mirror: { maxSize: '0' },
      });
      await run(server, 'evict');
      const rows = await rowsOf<{ upstream: string }>(server, 'SELECT upstream FROM mirror_entries');
      t.is(rows.length, expected);
      if (!global) t.true(rows.every((row) => row.upstream === 'off.test'));
      const layer = await server.fetch(`/v2/off.test/app/blobs/${image.layer.digest}`);
      t.true(image.layer.bytes.equals(Buffer.from(await layer.arrayBuffer())));
      await server.close();
    }
  });

  test(`${dialect}: after a flipped bit on disk, mirrored content is fetched again and hosted content is reported`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const server = await start(t, dialect, { upstreams: [upstream.settings('up.test')] });
    const { layer } = upstream.image('app', 'v1');
    const mirrored = new TestRepository(server, 'up.test/app');
    await (await mirrored.fetch(`blobs/${layer.digest}`)).arrayBuffer();
    const app = new TestRepository(server, 'team/app');
    const hosted = await app.blob('hosted');
    await app.image('v1', { layers: [hosted] });
    for (const { digest } of [layer, hosted]) {
      const file = await open(join(server.data, 'blobs/sha256', digest.slice(7, 9), digest.slice(7)), 'r+');
      const byte = Buffer.alloc(1);
      await file.read(byte, 0, 1, 3);
      // Not a fixed value: one in 256 random layers already has it.
      byte[0]! ^= 1;
      await file.write(byte, 0, 1, 3);
      await file.close();
    }
    const { counts, said } = await run(server, 'scrub');
    t.like(counts, { corrupt: 2, missing: 0, damaged_hosted: 1, damaged_mirrored: 1 });
    t.true(
      said.some((line) => line.includes('needed by repository team/app; push it again')),
      said.join(),
    );
    t.true(server.lines.some((line) => line.includes('"level":50') && line.includes(hosted.digest)));
    const response = await mirrored.fetch(`blobs/${layer.digest}`);
    t.true(layer.bytes.equals(Buffer.from(await response.arrayBuffer())));
    t.deepEqual(await errorOf(await app.fetch(`blobs/${hosted.digest}`)), [500, 'UNKNOWN']);
    await app.blob('hosted');
    t.is(await (await app.fetch(`blobs/${hosted.digest}`)).text(), 'hosted');
    t.like((await run(server, 'scrub')).counts, { corrupt: 0, missing: 0 });
  });
}

test('the results of jobs are in the metrics', async (t) => {
  const server = await start(t, 'sqlite');
  await new TestRepository(server, 'team/app').blob('abandoned');
  pass(server, 2 * day);
  await run(server, 'gc');
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  t.regex(metrics, /^entrepot_job_runs_total\{job="gc",outcome="done"\} 1$/m);
  t.regex(metrics, /^entrepot_job_items_total\{job="gc",item="layers"\} 1$/m);
});

test('without rules no hosted content is deleted', async (t) => {
  const server = await start(t, 'sqlite');
  const app = new TestRepository(server, 'team/app');
  await app.image('v1');
  await app.fetch('manifests/v1', { method: 'DELETE' });
  pass(server, 1000 * day);
  t.deepEqual((await run(server, 'retention')).counts, {});
  t.deepEqual((await run(server, 'evict')).counts, {});
});
