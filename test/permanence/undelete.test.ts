import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { openDatabase, type Transaction } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { migrations } from '../../src/database/migrations/index.ts';
import { version } from '../../src/runtime/package.ts';
import { dialects, emptyDatabase, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { TestFeed } from '../support/feed.ts';
import { makeNupkg, makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { databaseOf, flushUsage, runJob, tokenOf } from '../support/inside.ts';
import { errorOf, signedIndex, TestRepository, digestOf } from '../support/registry.ts';
import { eventually } from '../support/until.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { entrepot } from '../support/in-process.ts';
import { emptyPlace, serveOn } from '../backup/support.ts';

/** Lets milliseconds pass on the clock of a server. */
function pass({ clock }: TestServer, milliseconds: number): void {
  clock.now = clock.time() + milliseconds;
}

interface Deleted {
  id: string;
  kind: string;
  type: string;
  name: string;
  reference: string;
  digest: string;
  deleted_by: { kind: string } | null;
}

const remove = { method: 'DELETE' };
const post = { method: 'POST' };

async function deletedOf(server: TestServer, token = server.token): Promise<Deleted[]> {
  const response = await server.fetch('/v1/deleted', { token });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return ((await response.json()) as { items: Deleted[] }).items;
}

async function storedBytes(server: TestServer): Promise<number> {
  await runJob(server, 'sample');
  return ((await (await server.fetch('/v1/account/storage')).json()) as { hosted_bytes: number }).hosted_bytes;
}

function withoutPulls(items: object[]): object[] {
  return items.map((each) => ({ ...each, pull_count: 0, last_pulled_at: '' }));
}

async function windowOf(server: TestServer): Promise<number> {
  const list = (await (await server.fetch('/v1/deleted')).json()) as { deleted_for_seconds: number };
  return list.deleted_for_seconds;
}

/** Puts a manifest, whose blobs `from` has, under a tag or its digest. */
async function copyTo(
  to: TestRepository,
  from: TestRepository,
  reference: string,
  bytes: string,
): Promise<TestRepository> {
  const {
    mediaType,
    config,
    layers = [],
  } = JSON.parse(bytes) as {
    mediaType: string;
    config?: { digest: string };
    layers?: { digest: string }[];
  };
  for (const { digest } of config ? [config, ...layers] : layers)
    await to.fetch(`blobs/uploads/?mount=${digest}&from=${from.name}`, post);
  const { status } = await to.put(reference, bytes, mediaType);
  if (status !== 201) throw new Error(`${status}`);
  return to;
}

async function serve(t: ExecutionContext, dialect: 'sqlite' | 'mysql', more: Record<string, unknown> = {}) {
  const url = await temporaryDatabase(t, dialect);
  return startTestServer(t, { database: { url }, deletedFor: undefined, gc: { grace: '0s' }, ...more });
}

for (const dialect of dialects) {
  test(`${dialect}: a deleted version comes back as it was, by hand or by a push of the same bytes`, async (t) => {
    const server = await serve(t, dialect);
    const feed = new TestFeed(server);
    const bytes = await makeNupkg({ id: 'Contoso.Core', version: '1.0.0', payloadBytes: 5000, readme: 'x' });
    const guid = Buffer.alloc(16, 7);
    t.is((await feed.push(bytes)).status, 201);
    await feed.publish({ id: 'Contoso.Core', version: '2.0.0' }, { id: 'Contoso.Other', version: '7.0.0' });
    const other = async () => [
      await (await server.fetch('/v1/packages/Contoso.Other')).json(),
      await feed.json('/registration/contoso.other/index.json'),
    ];
    const ofOther = await other();
    const files = { 'lib/net8.0/Contoso.Core.pdb': makePdb(guid) };
    const symbols = await makeSnupkg({ id: 'Contoso.Core', version: '1.0.0', files });
    const pdb = async () =>
      (await feed.fetch(`/symbols/contoso.core.pdb/${'07'.repeat(16)}ffffffff/contoso.core.pdb`)).status;
    t.is((await feed.push(symbols, '/symbols')).status, 201);
    t.is((await feed.fetch('/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg')).status, 200);
    const deprecated = JSON.stringify({ reasons: ['Legacy'], message: 'old' });
    const headers = { 'content-type': 'application/json' };
    const address = '/v1/packages/Contoso.Core/1.0.0';
    t.is((await server.fetch(`${address}/deprecation`, { method: 'PUT', headers, body: deprecated })).status, 204);
    t.is((await server.fetch(`${address}/unlist`, post)).status, 204);
    await flushUsage(server);
    const registration = async () =>
      JSON.stringify(await feed.json('/registration/contoso.core/index.json')).replaceAll(/"commit[^,]*,/g, '');
    const details = async () => {
      // Marks follow within a moment.
      const found = await eventually(
        async () => (await (await server.fetch('/v1/packages/Contoso.Core')).json()) as Record<string, unknown>,
        ({ deprecated }) => deprecated === true,
      );
      return { ...found, updated_at: '' };
    };
    const before = [await registration(), await details(), await (await server.fetch(address)).json()];
    t.is(await pdb(), 200);
    const stored = await storedBytes(server);

    t.is((await server.fetch(address, remove)).status, 204);
    t.is(await pdb(), 404);
    t.is((await feed.fetch('/package/contoso.core/1.0.0/contoso.core.1.0.0.nupkg')).status, 404);
    t.is((await server.fetch(address)).status, 404);
    t.deepEqual((await feed.json<{ versions: string[] }>('/package/contoso.core/index.json')).versions, ['2.0.0']);
    pass(server, 86_400_000);
    t.like(await runJob(server, 'gc'), { deleted_items: 0, blobs: 0 });
    t.is(await storedBytes(server), stored, 'the quota counts it still');
    const [item, ...others] = await deletedOf(server);
    t.like(item, { kind: 'package', type: 'version', name: 'Contoso.Core', reference: '1.0.0' });
    t.deepEqual([item!.deleted_by?.kind, others], ['token', []]);

    const changed = await feed.push(await makeNupkg({ id: 'contoso.CORE', version: '1.0', payloadBytes: 10 }));
    t.is(changed.status, 409);
    t.regex(changed.statusText, /was deleted with other bytes, and can be restored until 20/);
    t.is((await server.fetch(`/v1/deleted/${item!.id}/restore`, post)).status, 200);
    t.deepEqual([await registration(), await details(), await (await server.fetch(address)).json()], before);
    t.is(await pdb(), 200);
    t.deepEqual(await deletedOf(server), []);
    t.is((await server.fetch(`/v1/deleted/${item!.id}/restore`, post)).status, 404);

    t.is((await server.fetch(address, remove)).status, 204);
    const again = await feed.push(bytes);
    t.is(again.status, 201);
    t.regex(again.headers.get('x-nuget-warning')!, /This push has restored it/);
    t.deepEqual([await registration(), await details(), await (await server.fetch(address)).json()], before);
    t.deepEqual(await deletedOf(server), []);
    t.deepEqual(await other(), ofOther, 'another package is as it was');

    t.is((await server.fetch(address, remove)).status, 204);
    const [last] = await deletedOf(server);
    t.is((await server.fetch(`/v1/deleted/${last!.id}`, remove)).status, 400, 'a reason is needed');
    t.is((await server.fetch(`/v1/deleted/${last!.id}?reason=wrong%20build`, remove)).status, 204);
    t.is((await feed.push(await makeNupkg({ id: 'Contoso.Core', version: '1.0.0', payloadBytes: 10 }))).status, 201);
    t.true((await storedBytes(server)) <= stored);
    const audit = (await (await server.fetch('/v1/audit?type=package.*')).json()) as { items: Record<string, any>[] };
    t.deepEqual(
      audit.items.slice(0, 3).map(({ type, subject, details: { reason } }) => [type, subject.version, reason]),
      [
        ['package.published', '1.0.0', undefined],
        ['package.purged', '1.0.0', 'wrong build'],
        ['package.deleted', '1.0.0', undefined],
      ],
    );
  });

  test(`${dialect}: a deleted image comes back with its tags, platforms and referrers`, async (t) => {
    const server = await serve(t, dialect, { retention: { containers: { untaggedAfter: '1d' } } });
    const api = new TestRepository(server, 'team/api');
    const { index, sbom } = await signedIndex(api, 'v1');
    const digest = digestOf(index);
    t.is((await api.put('latest', index, 'application/vnd.oci.image.index.v1+json')).status, 201);
    const list = async () => {
      const response = await server.fetch('/v1/containers/team%2Fapi/tags');
      return response.status === 200 ? ((await response.json()) as { items: object[] }).items : [];
    };
    const referrers = async () => (await (await api.fetch(`referrers/${digest}`)).json()) as { manifests: object[] };
    const pulls = async () => {
      for (const child of (JSON.parse(index) as { manifests: { digest: string }[] }).manifests) {
        const manifest = await api.fetch(`manifests/${child.digest}`);
        if (manifest.status !== 200) return manifest.status;
        const { layers, config } = (await manifest.json()) as {
          layers: { digest: string }[];
          config: { digest: string };
        };
        for (const blob of [...layers, config]) {
          const { status } = await api.fetch(`blobs/${blob.digest}`);
          if (status !== 200) return status;
        }
      }
      return (await api.fetch('manifests/v1')).status;
    };
    t.is(await pulls(), 200);
    await flushUsage(server);
    const [tags, referred] = [await list(), await referrers()];
    const stored = await storedBytes(server);

    for (const tag of ['amd64', 'arm64']) t.is((await api.fetch(`manifests/${tag}`, remove)).status, 202);
    t.is((await api.fetch(`manifests/${digest}`, remove)).status, 202);
    t.is((await api.fetch('manifests/latest')).status, 404);
    t.is((await api.fetch(`manifests/${digest}`)).status, 404);
    // What belonged to it is not used any more: retention deletes it.
    pass(server, 2 * 86_400_000);
    t.like(await runJob(server, 'retention'), { manifests: 3 });
    t.is((await api.fetch(`manifests/${digestOf(sbom)}`)).status, 404);
    t.like(await runJob(server, 'gc'), { deleted_items: 0, blobs: 0, layers: 0 });
    t.is(await storedBytes(server), stored);
    t.is((await server.fetch('/v1/claims/container/team%2Fapi', remove)).status, 400, 'the name is not given away');
    const all = await deletedOf(server);
    t.deepEqual(new Set(all.map(({ kind }) => kind)), new Set(['image']));
    t.deepEqual(all.map(({ type }) => type).toSorted(), ['manifest', 'manifest', 'manifest', 'manifest', 'tag', 'tag']);
    const parts = 'SELECT id FROM deleted_items WHERE part_of <> 0';
    const withIt = await databaseOf(server).select<{ id: number }>(parts);
    t.is(withIt.length, 2);
    for (const { id } of withIt)
      t.is(
        (await server.fetch(`/v1/deleted/${id}/restore`, post)).status,
        404,
        'a tag comes back with its manifest only',
      );
    const deletion = all.find((each) => each.digest === digest)!;
    const restored = await server.fetch(`/v1/deleted/${deletion.id}/restore`, post);
    t.deepEqual(await restored.json(), { id: deletion.id, left_tags: [] });
    for (const { id, reference } of await deletedOf(server))
      t.is((await server.fetch(`/v1/deleted/${id}/restore`, post)).status, 200, reference);
    t.is(await pulls(), 200);
    await flushUsage(server);
    t.deepEqual(withoutPulls(await list()), withoutPulls(tags));
    t.deepEqual(await referrers(), referred);
    t.deepEqual(await deletedOf(server), []);
    t.deepEqual(await databaseOf(server).select('SELECT id FROM deleted_items'), []);
    t.is(await storedBytes(server), stored);
    t.like(await runJob(server, 'retention'), { manifests: 0 }, 'it is not deleted at once again');

    // Tags and manifests may always be pushed.
    t.is((await api.fetch('manifests/latest', remove)).status, 202);
    const other = await api.image('latest');
    const [tag] = await deletedOf(server);
    t.like(tag, { type: 'tag', reference: 'latest', digest });
    t.is((await server.fetch(`/v1/deleted/${tag!.id}/restore`, post)).status, 409);
    t.is((await api.fetch('manifests/latest', remove)).status, 202);
    t.is((await server.fetch(`/v1/deleted/${tag!.id}/restore`, post)).status, 200);
    t.is((await api.fetch('manifests/latest')).headers.get('docker-content-digest'), digest);
    t.is((await api.fetch(`manifests/${other.digest}`)).status, 200);

    // Deleted, pushed again and deleted again: the tags of both times.
    t.is((await api.put('first', other.bytes, other.mediaType)).status, 201);
    t.is((await api.fetch(`manifests/${other.digest}`, remove)).status, 202);
    t.is((await api.put('again', other.bytes, other.mediaType)).status, 201);
    t.is((await api.put('more', other.bytes, other.mediaType)).status, 201);
    t.is((await api.fetch(`manifests/${other.digest}`, remove)).status, 202);
    const both = (await deletedOf(server)).filter((each) => each.type === 'manifest');
    t.is(both.length, 1);
    await api.image('more');
    const answer = await server.fetch(`/v1/deleted/${both[0]!.id}/restore`, post);
    t.deepEqual(await answer.json(), { id: both[0]!.id, left_tags: ['more'] });
    for (const name of ['first', 'again'])
      t.is((await api.fetch(`manifests/${name}`)).headers.get('docker-content-digest'), other.digest, name);

    // The end of the window.
    for (const name of ['first', 'again', 'more', 'latest', 'v1', 'amd64', 'arm64'])
      await api.fetch(`manifests/${name}`, remove);
    await server.fetch(`/v1/containers/team%2Fapi/manifests/${digest}`, remove);
    pass(server, 7 * 86_400_000 - 1);
    t.like(await runJob(server, 'gc', { dryRun: true }), { deleted_items: 0 });
    pass(server, 1);
    t.like(await runJob(server, 'gc', { dryRun: true }), { deleted_items: 9 });
    pass(server, 86_400_000);
    t.true((await runJob(server, 'retention'))['manifests']! > 0);
    t.like(await runJob(server, 'gc', { dryRun: true }), { deleted_items: 9 });
    t.like(await runJob(server, 'gc'), { deleted_items: 9 });
    pass(server, 8 * 86_400_000);
    await runJob(server, 'gc');
    pass(server, 1000);
    await runJob(server, 'gc');
    t.is(await storedBytes(server), 0);
    t.is((await server.fetch('/v1/claims/container/team%2Fapi', remove)).status, 204);
    t.deepEqual(await errorOf(await api.fetch('manifests/v1')), [404, 'MANIFEST_UNKNOWN']);
  });

  test(`${dialect}: an image that was deleted and pushed again has the pulls of both times`, async (t) => {
    const server = await serve(t, dialect);
    const api = new TestRepository(server, 'team/api');
    const bytes = JSON.stringify(await api.manifest());
    const digest = digestOf(bytes);
    // An older repository with the same image, which changes in nothing.
    const twin = await copyTo(new TestRepository(server, 'team/twin'), api, 'v1', bytes);
    t.is((await api.put('v1', bytes)).status, 201);
    const pull = async (times: number) => {
      for (let each = 0; each < times; each += 1) t.is((await api.fetch('manifests/v1')).status, 200);
      await flushUsage(server);
    };
    const pulls = async () => {
      const { items } = (await (await server.fetch('/v1/containers/team%2Fapi/tags')).json()) as {
        items: { name: string; pull_count: number }[];
      };
      return items.map(({ name, pull_count: count }) => [name, count]);
    };
    const restore = async () => {
      const { id } = (await deletedOf(server)).find(({ type }) => type === 'manifest')!;
      t.is((await server.fetch(`/v1/deleted/${id}/restore`, post)).status, 200);
    };
    await pull(1);
    t.is((await api.fetch(`manifests/${digest}`, remove)).status, 202);
    t.is((await api.put('v1', bytes)).status, 201);
    await pull(2);
    t.deepEqual(await pulls(), [['v1', 2]]);
    await restore();
    t.deepEqual(await pulls(), [['v1', 3]], 'restored beside the one that was pushed again');

    t.is((await api.fetch(`manifests/${digest}`, remove)).status, 202);
    t.is((await api.put('v1', bytes)).status, 201);
    await pull(4);
    t.is((await api.fetch(`manifests/${digest}`, remove)).status, 202);
    await restore();
    t.deepEqual(await pulls(), [['v1', 7]], 'restored after both were deleted');
    const { items } = (await (await server.fetch('/v1/containers/team%2Ftwin/tags')).json()) as { items: object[] };
    t.like(items, { 0: { name: 'v1', digest, pull_count: 0 }, length: 1 });
    t.is(await (await twin.fetch('manifests/v1')).text(), bytes);
  });

  test(`${dialect}: an index that is restored leaves images deleted that were deleted before it`, async (t) => {
    const server = await serve(t, dialect);
    const api = new TestRepository(server, 'team/api');
    // An older repository with the same images, which changes in nothing.
    const twin = new TestRepository(server, 'team/twin');
    const { index, sbom } = await signedIndex(twin, 'v1');
    const { manifests } = JSON.parse(index) as { manifests: { digest: string }[] };
    const [before, after] = manifests.map(({ digest }) => digest);
    for (const reference of ['amd64', 'arm64', digestOf(sbom), 'v1'])
      await copyTo(api, twin, reference, await (await twin.fetch(`manifests/${reference}`)).text());
    const other = (await api.image('other')).digest;
    for (const digest of [before, digestOf(index), after, other])
      t.is((await api.fetch(`manifests/${digest}`, remove)).status, 202);
    const { id } = (await deletedOf(server)).find(
      ({ digest, type }) => digest === digestOf(index) && type === 'manifest',
    )!;
    t.is((await server.fetch(`/v1/deleted/${id}/restore`, post)).status, 200);
    const status = async (digest: string | undefined) => (await api.fetch(`manifests/${digest}`)).status;
    t.deepEqual([await status(digestOf(index)), await status(after), await status(before)], [200, 200, 404]);
    t.is(await status(other), 404, 'it has nothing to do with the index');
    const tagsOf = async (name: string) => (await (await server.fetch(`/v2/${name}/tags/list`)).json()) as object;
    t.deepEqual(await tagsOf('team/api'), { name: 'team/api', tags: ['arm64', 'v1'] });

    // A tag brings its manifest back, if that was deleted later.
    for (const reference of ['v1', digestOf(index)])
      t.is((await api.fetch(`manifests/${reference}`, remove)).status, 202);
    const tag = (await deletedOf(server)).find(({ type, reference }) => type === 'tag' && reference === 'v1')!;
    t.is((await server.fetch(`/v1/deleted/${tag.id}/restore`, post)).status, 200);
    t.is((await api.fetch('manifests/v1')).headers.get('docker-content-digest'), digestOf(index));
    t.deepEqual(await tagsOf('team/api'), { name: 'team/api', tags: ['arm64', 'v1'] });

    t.deepEqual(await tagsOf('team/twin'), { name: 'team/twin', tags: ['amd64', 'arm64', 'v1'] });
    for (const each of [before, after, digestOf(index), digestOf(sbom)])
      t.is((await twin.fetch(`manifests/${each}`)).status, 200);
    const counts = await databaseOf(server).select(
      'SELECT name, tag_count, manifest_count FROM repositories ORDER BY name',
    );
    t.deepEqual(counts, [
      { name: 'team/api', tag_count: 2, manifest_count: 3 },
      { name: 'team/twin', tag_count: 3, manifest_count: 4 },
    ]);
  });

  test(`${dialect}: a deletion, a restoration or a purge that is interrupted changes nothing`, async (t) => {
    const server = await serve(t, dialect);
    const api = new TestRepository(server, 'team/api');
    const { index } = await signedIndex(api, 'v1');
    const digest = digestOf(index);
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Contoso', version: '1.0.0' });
    const rows = async () => {
      const found = [await databaseOf(server).select('SELECT id, type FROM events ORDER BY id')];
      for (const table of ['package_versions', 'packages', 'manifests', 'manifest_references', 'tags', 'deleted_items'])
        found.push(await databaseOf(server).select(`SELECT * FROM ${table} ORDER BY 1, 2`));
      return JSON.stringify(found);
    };
    for (const [address, of] of [
      [`/v2/team/api/manifests/${digest}`, 'image'],
      ['/v1/packages/Contoso/1.0.0', 'version'],
    ] as const) {
      await interrupted(t, server, rows, () => server.fetch(address, remove));
      const [item] = await deletedOf(server);
      await interrupted(t, server, rows, () => server.fetch(`/v1/deleted/${item!.id}/restore`, post));
      t.deepEqual(await deletedOf(server), [], of);
      t.true((await server.fetch(address, remove)).ok);
      const [again] = await deletedOf(server);
      await interrupted(t, server, rows, () => server.fetch(`/v1/deleted/${again!.id}?reason=x`, remove));
      t.deepEqual(await deletedOf(server), [], of);
    }
  });
}

for (const dialect of dialects) {
  test(`${dialect}: of several who restore, push and purge at once, one succeeds`, async (t) => {
    const server = await serve(t, dialect);
    const feed = new TestFeed(server);
    const bytes = await makeNupkg({ id: 'Contoso', version: '1.0.0' });
    t.is((await feed.push(bytes)).status, 201);
    for (let round = 0; round < 4; round += 1) {
      t.is((await server.fetch('/v1/packages/Contoso/1.0.0', remove)).status, 204);
      const [{ id } = { id: '' }] = await deletedOf(server);
      const restore = async () => (await server.fetch(`/v1/deleted/${id}/restore`, post)).status;
      const purge = async () => (await server.fetch(`/v1/deleted/${id}?reason=x`, remove)).status;
      const push = async () => (await feed.push(bytes)).status;
      const answers = await Promise.all([restore(), push(), purge(), restore(), purge()]);
      const [first, pushed, ...others] = answers;
      t.true([first, ...others].filter((status) => status !== 404).length <= 1, answers.join());
      t.true([201, 409].includes(pushed), answers.join());
      if (pushed === 409) t.is(first === 200 || others[1] === 200, true, answers.join());
      const { version_count: count, size_bytes: size } = (await (
        await server.fetch('/v1/packages/Contoso')
      ).json()) as Record<string, number>;
      t.deepEqual([count, size], [1, bytes.length]);
      t.deepEqual(await deletedOf(server), []);
    }
  });

  test(`${dialect}: a backup has what was deleted and can be restored`, async (t) => {
    const [from, to] = [await emptyPlace(t, dialect), await emptyPlace(t, dialect)];
    const server = await serveOn(t, from, { deletedFor: undefined });
    const api = new TestRepository(server, 'team/api');
    const { index } = await signedIndex(api, 'v1');
    await new TestFeed(server).publish({ id: 'Contoso', version: '1.0.0' });
    t.is((await api.fetch(`manifests/${digestOf(index)}`, remove)).status, 202);
    t.is((await server.fetch('/v1/packages/Contoso/1.0.0', remove)).status, 204);
    const file = join(from.folder, 'backup.tar');
    t.is((await entrepot(from.environment, 'backup', file)).code, 0);
    t.is((await entrepot({}, 'verify', file)).code, 0);
    t.is((await entrepot(to.environment, 'restore', file)).code, 0);
    const restored = await serveOn(t, to, { deletedFor: undefined });
    t.is((await entrepot(to.environment, 'verify')).code, 0);
    t.is(await windowOf(restored), 7 * 86_400);
    for (const { id } of await deletedOf(restored))
      t.is((await restored.fetch(`/v1/deleted/${id}/restore`, post)).status, 200);
    t.is((await new TestRepository(restored, 'team/api').fetch('manifests/v1')).status, 200);
    t.is((await new TestFeed(restored).fetch('/package/contoso/1.0.0/contoso.1.0.0.nupkg')).status, 200);
  });
}

/** Sends a request whose transaction fails at its first write, then at its second one, and so on, until it succeeds. */
async function interrupted(
  t: ExecutionContext,
  server: TestServer,
  rows: () => Promise<string>,
  send: () => Promise<Response>,
): Promise<void> {
  const database = databaseOf(server);
  const real = database.transaction.bind(database);
  const before = await rows();
  for (let writes = 0; ; writes += 1) {
    let left = writes;
    const write =
      <Args extends unknown[], Result>(work: (...args: Args) => Promise<Result>) =>
      (...args: Args): Promise<Result> => {
        left -= 1;
        return left < 0 ? Promise.reject(new Error('killed')) : work(...args);
      };
    database.transaction = (work, options) =>
      real((tx) => {
        const dying: Transaction = {
          dialect: tx.dialect,
          select: (...args) => tx.select(...args),
          get: (...args) => tx.get(...args),
          run: write((...args: Parameters<Transaction['run']>) => tx.run(...args)),
          insert: write((...args: Parameters<Transaction['insert']>) => tx.insert(...args)),
          insertNew: write((...args: Parameters<Transaction['insertNew']>) => tx.insertNew(...args)),
          upsert: write((...args: Parameters<Transaction['upsert']>) => tx.upsert(...args)),
        };
        return work(dying);
      }, options);
    const { status } = await send().finally(() => (database.transaction = real));
    if (status < 500) {
      t.true(status < 300 && writes > 3, `${status} after ${writes} writes`);
      t.not(await rows(), before);
      return;
    }
    t.true((await rows()) === before, `after ${writes} writes`);
  }
}

test('many deletions that end together are counted and ended, and no later one', async (t) => {
  const server = await serve(t, 'sqlite');
  const api = new TestRepository(server, 'team/api');
  await api.image('v1');
  pass(server, 0);
  t.is((await api.fetch('manifests/v1', remove)).status, 202);
  // More than two pages, and the last one ends later.
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 230)
       INSERT INTO deleted_items (account_id, kind, type, name, reference, digest, size_bytes, row_id, part_of,
         changed_at, deleted_by, deleted_at, ends_at)
       SELECT account_id, kind, type, name, n, digest, size_bytes, row_id, part_of,
         changed_at, deleted_by, deleted_at, ends_at + (n = 230) FROM deleted_items JOIN numbers`,
    ),
  );
  pass(server, 7 * 86_400_000);
  t.like(await runJob(server, 'gc', { dryRun: true }), { deleted_items: 230 });
  t.like(await runJob(server, 'gc'), { deleted_items: 230 });
  t.deepEqual(
    (await deletedOf(server)).map(({ reference }) => reference),
    ['230'],
  );
});

test('what was deleted is seen by its account alone, by those who may delete the name', async (t) => {
  const server = await startTestServer(t, { deletedFor: undefined });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Mine', version: '1.0.0' }, { id: 'Hidden', version: '1.0.0' });
  for (const id of ['Mine', 'Hidden']) t.is((await server.fetch(`/v1/packages/${id}/1.0.0`, remove)).status, 204);
  const [hidden, mine] = await deletedOf(server);
  const other = await tokenOf(server, ['read', 'write', 'delete', 'admin', 'operate'], 'other');
  t.deepEqual(await deletedOf(server, other), []);
  const status = async (token: string, path: string, init: RequestInit) =>
    (await server.fetch(path, { token, ...init })).status;
  t.is(await status(other, `/v1/deleted/${mine!.id}/restore`, post), 404);
  t.is(await status(other, `/v1/deleted/${mine!.id}?reason=x`, remove), 404);
  for (const id of ['0', '-1', 'x', '99999999999999999', '1e3'])
    t.is(await status(server.token, `/v1/deleted/${id}/restore`, post), 404, id);

  const reader = await tokenOf(server, ['read', 'write']);
  t.is(await status(reader, '/v1/deleted', {}), 403);
  t.is(await status(reader, `/v1/deleted/${mine!.id}/restore`, post), 403);
  const deleter = await tokenOf(server, ['read', 'delete']);
  t.deepEqual((await deletedOf(server, deleter))[0]!.deleted_by, null, 'only administrators see who deleted');
  t.is(await status(deleter, `/v1/deleted/${mine!.id}?reason=x`, remove), 403);

  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name: 'limited', scopes: ['delete', 'admin'], patterns: { packages: ['mine'] } });
  const { token: limited } = (await (await server.fetch('/v1/tokens', { ...post, headers, body })).json()) as {
    token: string;
  };
  t.deepEqual(
    (await deletedOf(server, limited)).map(({ name }) => name),
    ['Mine'],
  );
  t.is(await status(limited, `/v1/deleted/${hidden!.id}/restore`, post), 404);
  t.is(await status(limited, `/v1/deleted/${hidden!.id}?reason=x`, remove), 404);
  t.is(await status(limited, `/v1/deleted/${mine!.id}/restore`, post), 200);
  t.is((await feed.fetch('/package/mine/1.0.0/mine.1.0.0.nupkg')).status, 200);
});

for (const dialect of dialects) {
  test(`${dialect}: an installation of before deletes at once, until it sets a time`, async (t) => {
    const url = await emptyDatabase(t, dialect);
    const database = await openDatabase(url);
    const earlier = migrations.slice(
      0,
      migrations.findIndex(({ name }) => name.startsWith('070-')),
    );
    await migrate(database, { version, migrations: earlier });
    await database.transaction((tx) => tx.insertNew('accounts', [{ name: 'default', created_at: 1 }]));
    await database.close();
    const data = await folderUntilEnd(t);
    const older = await startTestServer(t, { data, database: { url }, deletedFor: undefined });
    t.is(await windowOf(older), 0);
    await new TestFeed(older).publish({ id: 'Gone', version: '1.0.0' });
    t.is((await older.fetch('/v1/packages/Gone/1.0.0', remove)).status, 204);
    t.deepEqual(await deletedOf(older), []);
    await older.close();
    const set = await startTestServer(t, { data, database: { url }, deletedFor: '2d' });
    t.is(await windowOf(set), 2 * 86_400);
  });
}
