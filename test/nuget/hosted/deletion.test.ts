import test from 'ava';
import { deletedVersions, deleteVersion } from '../../../src/nuget/hosted/deletion.ts';
import { claimedAmong, packageClaims } from '../../../src/nuget/hosted/claims.ts';
import { createAdvisory, listAdvisories } from '../../../src/nuget/hosted/advisories.ts';
import { packageReferences, packageRowBytes } from '../../../src/nuget/hosted/references.ts';
import { DeletedItems } from '../../../src/permanence/deleted.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { allOf } from '../../support/all-of.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const packages = `SELECT account_id, package_key, version_count, size_bytes, metadata_bytes, revision, updated_at, latest_stable,
  latest_pre2, flags FROM packages ORDER BY id`;
const versions = 'SELECT package_row, version FROM package_versions ORDER BY id';
const tables = ['package_versions', 'package_blobs', 'package_symbols', 'deleted_items'];

async function counts(hosted: HostedPackages): Promise<number[]> {
  return Promise.all(tables.map(async (table) => (await hosted.rows(`SELECT * FROM ${table}`)).length));
}

/** Two versions of `Lib` with symbols, and another package of it in another account. */
async function withTwo(t: Parameters<typeof HostedPackages.open>[0], deletedFor: number) {
  const hosted = await HostedPackages.open(t, deletedFor);
  await hosted.push({ id: 'Other' });
  const one = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  const two = await makeNupkg({ id: 'Lib', version: '2.0.0', description: 'a longer description' });
  await hosted.push(one);
  await hosted.push(two);
  await hosted.push(two, { account: 2 });
  for (const version of ['1.0.0', '2.0.0']) await hosted.pushSymbols({ id: 'Lib', version });
  await hosted.events();
  return { hosted, one, two };
}

test('a version that is deleted for good leaves nothing, and the others of its package stay as they are', async (t) => {
  const { hosted, one } = await withTwo(t, 0);
  const [other, before, elsewhere] = (await hosted.rows(packages)) as [any, any, any];
  t.deepEqual(await counts(hosted), [4, 4 * 2 + 2, 2, 0]);
  hosted.clock.now = 3000;
  await deleteVersion(hosted.context, 1, 'LIB', '2.0');
  t.deepEqual(await counts(hosted), [3, 3 * 2 + 1, 1, 0]);
  const [kept] = await hosted.rows<{ id: number; bytes: number }>(
    "SELECT id, metadata_bytes AS bytes FROM package_versions WHERE version = '1.0.0' AND package_row = 2",
  );
  const [symbols] = await hosted.rows<{ bytes: number; version_row: number }>(
    'SELECT 100 + LENGTH(file_name) + LENGTH(path) AS bytes, version_row FROM package_symbols',
  );
  t.is(symbols!.version_row, kept!.id);
  const after = {
    ...before,
    version_count: 1,
    size_bytes: one.length,
    metadata_bytes: kept!.bytes + symbols!.bytes,
    revision: before.revision + 1,
    updated_at: 3000,
    latest_stable: kept!.id,
    latest_pre2: kept!.id,
  };
  t.deepEqual(await hosted.rows(packages), [other, after, elsewhere]);
  t.deepEqual(await hosted.events(), [[3000, 'package.deleted', 1, 'Lib', '2.0.0', {}]]);
  await t.throwsAsync(deleteVersion(hosted.context, 1, 'Lib', '2.0.0'), {
    name: 'NotFound',
    message: 'Lib 2.0.0 does not exist in this feed.',
  });
  await deleteVersion(hosted.context, 1, 'Lib', '1.0.0');
  t.deepEqual(await hosted.rows(packages), [
    other,
    {
      ...after,
      version_count: 0,
      size_bytes: 0,
      metadata_bytes: 0,
      revision: after.revision + 1,
      latest_stable: null,
      latest_pre2: null,
      flags: 0,
    },
    elsewhere,
  ]);
});

test('a deleted version can be restored as it was, or deleted for good', async (t) => {
  const { hosted, one, two } = await withTwo(t, 5000);
  const before = (await hosted.rows(packages)) as [any, any, any];
  const versionsBefore = (await hosted.rows(versions)) as any[];
  const items = new DeletedItems(
    hosted.store.database,
    new Map([['package', deletedVersions(hosted.context)]]),
    hosted.context.now,
  );
  hosted.clock.now = 2000;
  await deleteVersion(hosted.context, 1, 'lib', '2.0.0');
  t.deepEqual(
    await hosted.rows(versions),
    versionsBefore.map((each, index) => (index === 2 ? { ...each, package_row: -each.package_row } : each)),
  );
  t.deepEqual((await hosted.rows(packages))[1], {
    ...before[1],
    version_count: 1,
    size_bytes: one.length,
    revision: before[1].revision + 1,
    updated_at: 2000,
    latest_stable: 2,
    latest_pre2: 2,
  });
  const [item] = await items.list(1, 10);
  t.deepEqual(item, {
    id: 1,
    accountId: 1,
    kind: 'package',
    type: 'version',
    name: 'Lib',
    reference: '2.0.0',
    digest: digestOf(two),
    size: two.length,
    rowId: 3,
    changedAt: 0,
    deletedBy: item!.deletedBy,
    deletedAt: 2000,
    endsAt: 7000,
  });
  const held = async (bytes: Buffer) =>
    hosted.store.database.transaction((tx) => packageReferences.holders!(tx, digestOf(bytes), 10));
  t.deepEqual((await held(two)).toSorted(), ['package Lib 2.0.0', 'package Lib 2.0.0']);
  hosted.clock.now = 3000;
  t.deepEqual((await items.restore(1, 1)).left, []);
  t.deepEqual(await hosted.rows(packages), [
    before[0],
    { ...before[1], revision: before[1].revision + 2, updated_at: 3000 },
    before[2],
  ]);
  t.deepEqual(await hosted.rows(versions), versionsBefore);
  t.deepEqual(await hosted.events(), [
    [2000, 'package.deleted', 1, 'Lib', '2.0.0', {}],
    [3000, 'package.restored', 1, 'Lib', '2.0.0', { deleted_at: '1970-01-01T00:00:02.000Z' }],
  ]);
  await deleteVersion(hosted.context, 1, 'lib', '2.0.0');
  t.deepEqual(await counts(hosted), [4, 10, 2, 1]);
  await items.purge(1, (await items.list(1, 10))[0]!.id, 'secret');
  t.deepEqual(await counts(hosted), [3, 7, 1, 0]);
  t.deepEqual(await held(two), ['package Lib 2.0.0']);
  t.deepEqual(await held(one), ['package Lib 1.0.0']);
  const [[kept], [symbols]] = await Promise.all([
    hosted.rows<{ bytes: number }>('SELECT metadata_bytes AS bytes FROM package_versions WHERE id = 2'),
    hosted.rows<{ bytes: number }>('SELECT 100 + LENGTH(file_name) + LENGTH(path) AS bytes FROM package_symbols'),
  ]);
  t.is(((await hosted.rows(packages))[1] as any).metadata_bytes, kept!.bytes + symbols!.bytes);
});

test('the claim of an id ends when no version is left and none can be restored, with its advisories', async (t) => {
  const { hosted } = await withTwo(t, 5000);
  const { database } = hosted.store;
  const claims = packageClaims(database, hosted.context.now);
  t.is(claims.contents, 'versions');
  t.deepEqual(await claims.list(1, '', 10), []);
  const release = (id: string, account = 1) => claims.release(account, id);
  t.is(await release('unknown'), 'unclaimed');
  t.is(await release('Other', 2), 'unclaimed');
  t.is(await release('LIB'), 'in use');
  const url = 'https://example.com/';
  for (const packageId of ['Lib', 'Other'])
    await createAdvisory(hosted.context, 1, { packageId, versions: '[1.0.0]', severity: 1, url });
  await hosted.events();
  await deleteVersion(hosted.context, 1, 'lib', '1.0.0');
  t.is(await release('Lib'), 'deleted');
  await deleteVersion(hosted.context, 1, 'lib', '2.0.0');
  await deleteVersion(hosted.context, 1, 'other', '1.0.0');
  const [lib, other] = [
    { name: 'Lib', position: 'lib', since: 1000 },
    { name: 'Other', position: 'other', since: 1000 },
  ];
  t.deepEqual(await claims.list(1, '', 10), [lib, other]);
  t.deepEqual(await claims.list(1, '', 1), [lib]);
  t.deepEqual(await claims.list(1, 'lib', 10), [other]);
  t.deepEqual(await claims.list(2, '', 10), []);
  t.is(await release('Lib'), 'deleted');
  const items = new DeletedItems(database, new Map([['package', deletedVersions(hosted.context)]]), hosted.context.now);
  for (const { id } of await items.list(1, 10)) await items.purge(1, id, 'x');
  await hosted.events();
  hosted.clock.now = 9000;
  t.is(await release('LIB'), undefined);
  t.is(await release('Lib'), 'unclaimed');
  t.deepEqual(await hosted.events(), [[9000, 'claim.released', 1, 'Lib', null, {}]]);
  t.deepEqual(await claims.list(1, '', 10), [other]);
  t.deepEqual(
    (await listAdvisories(database, 1, 10, undefined)).map(({ packageId }) => packageId),
    ['Other'],
  );
  t.deepEqual(await hosted.rows('SELECT account_id, package_key FROM packages ORDER BY id'), [
    { account_id: 1, package_key: 'other' },
    { account_id: 2, package_key: 'lib' },
  ]);
});

test('claims are found among more ids than one statement takes, of one account', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'First' });
  await hosted.push({ id: 'Last' });
  await hosted.push({ id: 'Elsewhere' }, { account: 2 });
  const others = Array.from({ length: 1000 }, (_, index) => `Other${index}`);
  const ids = ['FIRST', ...others, 'Last', 'Elsewhere'];
  t.deepEqual(await claimedAmong(hosted.store.database, 1, ids), new Set(['first', 'last']));
  t.deepEqual(await claimedAmong(hosted.store.database, 1, []), new Set());
});

test('blobs of versions belong to their account, also while a deletion can be undone', async (t) => {
  const { hosted, one, two } = await withTwo(t, 5000);
  await deleteVersion(hosted.context, 1, 'lib', '2.0.0');
  const sql = packageReferences.owned[0]!;
  const owned = await hosted.store.database.select<{ account_id: number; digest: string }>(sql, ['', 'sha256:~']);
  const owners = (bytes: Buffer) =>
    owned.filter(({ digest }) => digest === digestOf(bytes)).map(({ account_id }) => account_id);
  t.deepEqual(owners(one), [1]);
  t.deepEqual(
    owners(two).toSorted((one, other) => one - other),
    [1, 2],
  );
  const only = await hosted.store.database.select<{ digest: string }>(sql, [digestOf(one).slice(0, -1), digestOf(one)]);
  t.deepEqual(
    only.map(({ digest }) => digest),
    [digestOf(one)],
  );
  t.deepEqual(await hosted.store.database.select(sql, [digestOf(one), digestOf(one)]), []);
});

test('the bytes of the rows of packages are summed by account, page by page', async (t) => {
  const { hosted } = await withTwo(t, 0);
  const rows = await hosted.rows<{ account_id: number; metadata_bytes: number; terms: string }>(
    'SELECT account_id, metadata_bytes, terms FROM packages ORDER BY id',
  );
  const bytes = rows.map((row) => row.metadata_bytes + 5 * row.terms.length) as [number, number, number];
  const paged = (step: number) => allOf(packageRowBytes(hosted.store.database, step));
  const elsewhere = { account_id: 2, bytes: bytes[2] };
  t.deepEqual(await paged(2), [[{ account_id: 1, bytes: bytes[0] + bytes[1] }], [elsewhere]]);
  t.deepEqual(await paged(1), [
    [{ account_id: 1, bytes: bytes[0] }],
    [{ account_id: 1, bytes: bytes[1] }],
    [elsewhere],
  ]);
});
