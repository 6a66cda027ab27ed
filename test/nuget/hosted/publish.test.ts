import { createHash } from 'node:crypto';
import test from 'ava';
import { deleteVersion } from '../../../src/nuget/hosted/deletion.ts';
import { publish, setListed, type EarlierVersion } from '../../../src/nuget/hosted/publish.ts';
import { byBytes } from '../../../src/runtime/sorted.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { makeNupkg, makeNuspec, pngPixel } from '../../support/builders/nupkg.ts';
import { changedDatabase } from '../../support/databases.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const shown = `SELECT version_key, version, full_version, listed, prerelease, semver2, published_at, download_count, deprecation,
  imported, icon_type FROM package_versions ORDER BY id`;
const counted = `SELECT account_id, package_key, package_id, version_count, size_bytes, download_count, standing, metadata_bytes,
  largest_metadata, has_deprecated, revision, created_at, updated_at FROM packages ORDER BY id`;

test('a push writes the version with its files, and counts it in its package only', async (t) => {
  const hosted = await HostedPackages.open(t);
  const full = await makeNupkg({ id: 'Lib', version: '1.02.0-Beta.1+x', icon: pngPixel, readme: 'hello' });
  t.deepEqual(await hosted.push(full), { id: 'Lib', version: '1.2.0-Beta.1', replaces: undefined, warnings: [] });
  hosted.clock.now = 2000;
  const plain = await makeNupkg({ id: 'LIB', version: '2.0', description: 'x' });
  t.deepEqual(await hosted.push(plain), {
    id: 'LIB',
    version: '2.0.0',
    replaces: undefined,
    warnings: ['The id of this package was shown as Lib; it is now shown as LIB.'],
  });
  await hosted.push(plain, { account: 2 });
  const rows = await hosted.rows('SELECT * FROM package_versions ORDER BY id');
  const common = { download_count: 0, deprecation: null, imported: null, snupkg_digest: null, listed: 1 };
  const [first, second, third] = rows as [any, any, any];
  t.deepEqual(first, {
    ...common,
    id: first.id,
    package_row: first.package_row,
    version_key: '1.2.0-beta.1',
    version: '1.2.0-Beta.1',
    full_version: '1.2.0-Beta.1+x',
    sort_key: '01020000$beta#01',
    prerelease: 1,
    semver2: 1,
    published_at: 1000,
    size_bytes: full.length,
    sha512: createHash('sha512').update(full).digest('base64'),
    nupkg_digest: digestOf(full),
    nuspec_digest: first.nuspec_digest,
    readme_digest: digestOf('hello'),
    icon_digest: digestOf(pngPixel),
    icon_type: 'image/png',
    metadata: '{"id":"Lib","description":"About Lib","authors":"Some Author","packageTypes":[{"name":"Dependency"}]}',
    metadata_bytes: first.metadata.length,
  });
  t.deepEqual(second, {
    ...first,
    id: second.id,
    version_key: '2.0.0',
    version: '2.0.0',
    full_version: '2.0.0',
    sort_key: '02000000~',
    prerelease: 0,
    semver2: 0,
    published_at: 2000,
    size_bytes: plain.length,
    sha512: createHash('sha512').update(plain).digest('base64'),
    nupkg_digest: digestOf(plain),
    nuspec_digest: second.nuspec_digest,
    readme_digest: null,
    icon_digest: null,
    icon_type: null,
    metadata: '{"id":"LIB","description":"x","authors":"Some Author","packageTypes":[{"name":"Dependency"}]}',
    metadata_bytes: second.metadata.length,
  });
  const both = first.metadata_bytes + second.metadata_bytes;
  const row = { download_count: 0, standing: 63, has_deprecated: 0, package_key: 'lib', package_id: 'LIB' };
  t.deepEqual(await hosted.rows(counted), [
    {
      ...row,
      account_id: 1,
      version_count: 2,
      size_bytes: full.length + plain.length,
      metadata_bytes: both,
      largest_metadata: first.metadata_bytes,
      revision: 2,
      created_at: 1000,
      updated_at: 2000,
    },
    {
      ...row,
      account_id: 2,
      version_count: 1,
      size_bytes: plain.length,
      metadata_bytes: third.metadata_bytes,
      largest_metadata: third.metadata_bytes,
      revision: 1,
      created_at: 2000,
      updated_at: 2000,
    },
  ]);
  const blobs = await hosted.rows<{ version_row: number; digest: string }>(
    'SELECT version_row, digest FROM package_blobs ORDER BY version_row, digest',
  );
  t.deepEqual(
    Map.groupBy(blobs, (each) => each.version_row),
    new Map(
      rows.map((each: any) => [
        each.id,
        [each.nupkg_digest, each.nuspec_digest, each.readme_digest, each.icon_digest]
          .filter((digest: string | null) => digest !== null)
          .toSorted(byBytes)
          .map((digest) => ({ version_row: each.id, digest })),
      ]),
    ),
  );
  t.deepEqual(await hosted.events(), [
    [1000, 'package.published', 1, 'Lib', '1.2.0-Beta.1', { size_bytes: full.length }],
    [2000, 'package.published', 1, 'LIB', '2.0.0', { size_bytes: plain.length }],
    [2000, 'package.published', 2, 'LIB', '2.0.0', { size_bytes: plain.length }],
  ]);
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
  t.is(hosted.store.blobs.added.get(2), plain.length + (await sizeOfBlob(hosted, third.nuspec_digest)));
});

async function sizeOfBlob({ store }: HostedPackages, digest: string): Promise<number> {
  return (await store.database.get<{ size: number }>('SELECT size FROM blobs WHERE digest = ?', [digest]))!.size;
}

test('two files of a package that are equal are one blob of it', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', icon: pngPixel, readme: pngPixel });
  t.is((await hosted.rows('SELECT * FROM package_blobs')).length, 3);
});

/** A nuspec that lacks some elements. */
const without = (...elements: string[]) =>
  elements.reduce((text, name) => text.replace(new RegExp(`<${name}>.*</${name}>`), ''), makeNuspec());

const incomplete = (elements: string) => ({
  name: 'PackageInvalid',
  message: `The nuspec has no ${elements}. Add it: every package needs it.`,
});

test('a refused push says why, and leaves no file and no row', async (t) => {
  const hosted = await HostedPackages.open(t);
  const refusal = new Error('not permitted');
  const asked: string[] = [];
  const refused = async (options: Parameters<typeof makeNupkg>[0], error: object, given = {}) => {
    await t.throwsAsync(hosted.push(await makeNupkg(options), given), error);
    t.deepEqual(await hosted.store.blobs.stagedIds(), []);
  };
  const permit = (id: string) => {
    asked.push(id);
    throw refusal;
  };
  await refused({ id: 'Lib', icon: pngPixel }, { is: refusal }, { permit });
  t.deepEqual(asked, ['Lib']);
  await refused({ nuspec: without('authors') }, incomplete('<authors>'));
  await refused({ nuspec: without('description') }, incomplete('<description>'));
  await refused({ nuspec: without('authors', 'description') }, incomplete('<authors> and <description>'));
  const failing = new Error('no upstream');
  await refused({ icon: pngPixel }, { is: failing }, { mirroredFrom: () => Promise.reject(failing) });
  t.deepEqual(await hosted.rows('SELECT id FROM packages'), []);
  await hosted.push({ id: 'Lib', version: '1.0.0-RC' });
  for (const version of ['1.0.0-RC', '1.0-rc+5'])
    await refused(
      { id: 'LIB', version },
      {
        name: 'AlreadyExists',
        message: `LIB ${version === '1.0.0-RC' ? version : '1.0.0-rc'} exists already, and a version cannot be changed. Push under a new version.`,
      },
    );
  t.is((await hosted.rows('SELECT id FROM package_versions')).length, 1);
});

test('only a push of a new id asks where the id was mirrored from, and says what it replaces', async (t) => {
  const hosted = await HostedPackages.open(t);
  const asked: string[] = [];
  const mirroredFrom = (id: string) => {
    asked.push(id);
    return Promise.resolve('up.test');
  };
  const first = await hosted.push({ id: 'Lib', version: '1.0.0', payloadBytes: 0 }, { mirroredFrom });
  t.is(first.replaces, 'up.test');
  t.is((await hosted.push({ id: 'lib', version: '2.0.0' }, { mirroredFrom })).replaces, undefined);
  t.deepEqual(asked, ['Lib']);
  await deleteVersion(hosted.context, 1, 'lib', '1.0.0');
  await deleteVersion(hosted.context, 1, 'lib', '2.0.0');
  t.is((await hosted.push({ id: 'lib', version: '1.0.0' }, { mirroredFrom })).replaces, undefined);
  t.is((await hosted.push({ id: 'LIB' }, { mirroredFrom, account: 2 })).replaces, 'up.test');
  t.deepEqual(asked, ['Lib', 'LIB']);
  const details = (await hosted.events()).map((each) => (each as any[])[5].taken_over_from);
  t.deepEqual(details, ['up.test', undefined, undefined, undefined, undefined, 'up.test']);
});

const earlier: EarlierVersion = {
  from: 'https://old.example.com',
  id: 'lib',
  version: '1.0.0',
  publishedAt: 500,
  listed: true,
  downloads: 0,
  deprecation: undefined,
};

test('an imported version keeps its date, its downloads, its deprecation, and whether it is listed', async (t) => {
  const hosted = await HostedPackages.open(t);
  const deprecation = {
    reasons: ['Legacy', 'Other'] as const,
    message: 'ümlaut',
    alternatePackage: { id: 'New', range: '*' },
  };
  const version = (number: string, more: Partial<EarlierVersion>) =>
    hosted.push(
      { id: 'Lib', version: number, nuspec: makeNuspec({ id: 'Lib', version: number }).replace(/<authors>.*/, '') },
      { earlier: { ...earlier, version: number, ...more } },
    );
  await version('1.0.0', {});
  t.deepEqual(await hosted.rows('SELECT has_deprecated, download_count, standing FROM packages'), [
    { has_deprecated: 0, download_count: 0, standing: 63 },
  ]);
  await version('1.1.0', { downloads: 100, deprecation, listed: false, publishedAt: 1000 });
  await version('1.2.0', { downloads: 7, publishedAt: 1001, isOwn: true });
  await version('1.3.0', { publishedAt: undefined, isOwn: false });
  const from = earlier.from;
  const row = {
    listed: 1,
    prerelease: 0,
    semver2: 0,
    published_at: 1000,
    download_count: 0,
    deprecation: null,
    imported: JSON.stringify({ from, listed: true, deprecation: null }),
    icon_type: null,
  };
  const named = (name: string) => ({ ...row, version_key: name, version: name, full_version: name });
  t.deepEqual(await hosted.rows(shown), [
    { ...named('1.0.0'), published_at: 500 },
    {
      ...named('1.1.0'),
      listed: 0,
      download_count: 100,
      deprecation: JSON.stringify(deprecation),
      imported: JSON.stringify({ from, listed: false, deprecation }),
    },
    { ...named('1.2.0'), download_count: 7, imported: null },
    named('1.3.0'),
  ]);
  const sizes = await hosted.rows<{ metadata: string; metadata_bytes: number }>(
    'SELECT metadata, metadata_bytes FROM package_versions ORDER BY id',
  );
  const added = Buffer.byteLength(JSON.stringify(deprecation));
  t.deepEqual(
    sizes.map((each) => each.metadata_bytes - each.metadata.length),
    [0, added, 0, 0],
  );
  const standing = { has_deprecated: 1, download_count: 107, standing: 63 - (4 + 8 + 1) };
  t.deepEqual(await hosted.rows('SELECT has_deprecated, download_count, standing, largest_metadata FROM packages'), [
    { ...standing, largest_metadata: sizes[1]!.metadata_bytes },
  ]);
  t.deepEqual(await hosted.rows("SELECT standing FROM package_terms WHERE term = '.lib'"), [
    { standing: standing.standing },
  ]);
  t.deepEqual(
    (await hosted.events()).map((each) => (each as any[])[5].imported_from),
    [from, from, from, from],
  );
});

test('an import refuses another package than its source has named', async (t) => {
  const hosted = await HostedPackages.open(t);
  for (const [id, version] of [
    ['other', '1.0.0'],
    ['lib', '1.0.1'],
  ] as const)
    await t.throwsAsync(hosted.push({ id: 'Lib', version: '1.0' }, { earlier: { ...earlier, id, version } }), {
      name: 'PackageInvalid',
      message: `The source sent Lib 1.0.0 in place of ${id} ${version}.`,
    });
  t.deepEqual(await hosted.store.blobs.stagedIds(), []);
});

test('what clients can do without may be wrong in an imported package, and not in a new one', async (t) => {
  const hosted = await HostedPackages.open(t);
  const bytes = await makeNupkg({ id: 'Lib', iconPath: 'missing.png' });
  await t.throwsAsync(hosted.push(bytes), { name: 'PackageInvalid', message: /<icon> names 'missing\.png'/ });
  await hosted.push(bytes, { earlier });
  const letters = { earlier: { ...earlier, id: 'pakét' } };
  await t.throwsAsync(hosted.push({ id: 'Pakét' }, letters), { name: 'PackageInvalid', message: /ASCII letters/ });
});

test('a push of the same bytes repairs damaged files, and other bytes do not', async (t) => {
  const hosted = await HostedPackages.open(t);
  const bytes = await makeNupkg({ id: 'Lib', readme: 'hello' });
  await hosted.push(bytes);
  const { driver, blobs } = hosted.store;
  const readme = digestOf('hello');
  const exists = { name: 'AlreadyExists' };
  await t.throwsAsync(hosted.push(bytes), exists);
  await driver.delete(readme);
  t.false(await blobs.isWhole(readme));
  await t.throwsAsync(hosted.push({ id: 'Lib', readme: 'hello' }), exists);
  t.false(await blobs.isWhole(readme));
  const before = await hosted.rows(counted);
  hosted.clock.now = 2000;
  t.deepEqual(await hosted.push(bytes), {
    id: 'Lib',
    version: '1.0.0',
    replaces: undefined,
    warnings: ['Files of this version were damaged in the storage. This push has repaired them.'],
  });
  t.true(await blobs.isWhole(readme));
  t.deepEqual(await hosted.rows(counted), before);
  await t.throwsAsync(hosted.push(bytes), exists);
  t.is((await hosted.events()).length, 1);
});

test('of two pushes of the same new version, the one that ends later is refused', async (t) => {
  const hosted = await HostedPackages.open(t);
  const exists = { name: 'AlreadyExists', message: /exists already/ };
  const bytes = await makeNupkg({ id: 'Lib', version: '1.0.0' });
  const mirroredFrom = async () => {
    await hosted.push(bytes);
    return undefined;
  };
  await t.throwsAsync(hosted.push(bytes, { mirroredFrom }), exists);
  const second = await makeNupkg({ id: 'Lib', version: '2.0.0' });
  const { database } = hosted.store;
  let isFirst = true;
  const context = {
    ...hosted.context,
    database: changedDatabase(database, {
      get: async (sql, values) => {
        const row = await database.get(sql, values);
        if (isFirst) await hosted.push(second);
        isFirst = false;
        return row as never;
      },
    }),
  };
  const checks = { permit: () => {}, mirroredFrom };
  await t.throwsAsync(publish(context, 1, await hosted.stage(second), checks), exists);
  t.false(isFirst);
  t.is((await hosted.events()).length, 2);
});

test('a push restores a deleted version with the same bytes, and refuses others until it is gone', async (t) => {
  const hosted = await HostedPackages.open(t, 5000);
  const bytes = await makeNupkg({ id: 'Lib' });
  await hosted.push(bytes);
  await hosted.push(await makeNupkg({ id: 'Lib', version: '2.0.0' }));
  const before = await hosted.rows(shown);
  const [rowBefore] = (await hosted.rows(counted)) as [any];
  await deleteVersion(hosted.context, 1, 'Lib', '1.0.0');
  hosted.clock.now = 3000;
  await t.throwsAsync(hosted.push({ id: 'Lib' }), {
    name: 'AlreadyExists',
    message:
      'Lib 1.0.0 was deleted with other bytes, and can be restored until 1970-01-01T00:00:06.000Z. Push under a new version, restore it, or let an administrator delete it for good: DELETE /v1/deleted/1?reason=….',
  });
  await hosted.events();
  t.deepEqual(await hosted.push(bytes), {
    id: 'Lib',
    version: '1.0.0',
    replaces: undefined,
    warnings: ['This version was deleted. This push has restored it as it was.'],
  });
  t.deepEqual(await hosted.rows(shown), before);
  t.deepEqual(await hosted.rows(counted), [{ ...rowBefore, revision: rowBefore.revision + 2, updated_at: 3000 }]);
  t.deepEqual(await hosted.rows('SELECT id FROM deleted_items'), []);
  t.deepEqual(await hosted.events(), [
    [3000, 'package.restored', 1, 'Lib', '1.0.0', { deleted_at: '1970-01-01T00:00:01.000Z' }],
  ]);
});

test('a package has at most 100,000 versions', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib' });
  const set = (count: number) =>
    hosted.store.database.transaction((tx) => tx.run('UPDATE packages SET version_count = ?', [count]));
  await set(100_000);
  await t.throwsAsync(hosted.push({ id: 'lib', version: '2.0.0' }), {
    name: 'Invalid',
    message: 'lib has 100000 versions, and more are not allowed. Delete some versions, or use another id.',
  });
  await set(99_999);
  await hosted.push({ id: 'Lib', version: '2.0.0' });
  t.deepEqual(await hosted.rows('SELECT version_count FROM packages'), [{ version_count: 100_000 }]);
});

test('a version is unlisted and listed again, each once in the events, and a rule keeps it from clients that delete', async (t) => {
  const hosted = await HostedPackages.open(t);
  const { context } = hosted;
  await hosted.push({ id: 'Lib', version: '1.0.0' });
  await hosted.push({ id: 'Lib', version: '2.0.0' });
  await hosted.push({ id: 'Lib', version: '2.0.0' }, { account: 2 });
  await hosted.events();
  const state = async () => [
    (await hosted.rows<{ listed: number }>('SELECT listed FROM package_versions ORDER BY id')).map(
      (each) => each.listed,
    ),
    (
      await hosted.rows<{ version: string }>(
        'SELECT v.version FROM packages p LEFT JOIN package_versions v ON v.id = p.latest_stable ORDER BY p.id',
      )
    ).map(({ version }) => version),
  ];
  for (const now of [2000, 3000]) {
    hosted.clock.now = now;
    await setListed(context, 1, 'LIB', '2.0', false, true);
    t.deepEqual(await state(), [
      [1, 0, 1],
      ['1.0.0', '2.0.0'],
    ]);
  }
  t.deepEqual(await hosted.rows('SELECT revision, updated_at FROM packages ORDER BY id'), [
    { revision: 4, updated_at: 3000 },
    { revision: 1, updated_at: 1000 },
  ]);
  t.deepEqual(await hosted.events(), [[2000, 'package.unlisted', 1, 'Lib', '2.0.0', {}]]);
  for (const now of [4000, 5000]) {
    hosted.clock.now = now;
    await setListed(context, 1, 'lib', '2.0.0.0', true);
  }
  t.deepEqual(await state(), [
    [1, 1, 1],
    ['2.0.0', '2.0.0'],
  ]);
  t.deepEqual(await hosted.events(), [[4000, 'package.relisted', 1, 'Lib', '2.0.0', {}]]);
  const rules = { freeze: { images: [] }, keep: { packages: ['lib:1.*'], images: [] } };
  await hosted.store.database.transaction((tx) =>
    tx.insert('permanence', { account_id: 1, rules: JSON.stringify(rules), changed_at: 0 }),
  );
  await t.throwsAsync(setListed(context, 1, 'lib', '1.0', false, true), {
    name: 'Kept',
    message: /^Lib 1\.0\.0 cannot be deleted/,
  });
  await t.throwsAsync(deleteVersion(context, 1, 'lib', '1.0'), { name: 'Kept', message: /^Lib 1\.0\.0 cannot/ });
  await setListed(context, 1, 'lib', '2.0.0', false, true);
  await setListed(context, 1, 'lib', '1.0', false);
  t.deepEqual((await state())[0], [0, 0, 1]);
  for (const [id, version] of [
    ['lib', '3.0.0'],
    ['other', '1.0.0'],
    ['lib', 'x'],
  ] as const)
    await t.throwsAsync(setListed(context, 1, id, version, false), {
      name: 'NotFound',
      message: `${id} ${version} does not exist in this feed.`,
    });
});
