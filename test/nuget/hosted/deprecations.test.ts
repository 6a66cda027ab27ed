import test from 'ava';
import {
  changeDeprecation,
  deprecatedVersions,
  listDeprecations,
  notHosted,
} from '../../../src/nuget/hosted/deprecations.ts';
import { parseDeprecation } from '../../../src/nuget/format/deprecation.ts';
import { followSource, hasChangedAtSource } from '../../../src/nuget/hosted/imported.ts';
import { allOf } from '../../support/all-of.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const legacy = parseDeprecation('lib', { reasons: ['Legacy'] });
const other = parseDeprecation('lib', { reasons: ['Other'], message: 'süß', alternative: { id: 'New' } });
const bytesOf = (deprecation: object) => Buffer.byteLength(JSON.stringify(deprecation));

async function withVersions(t: Parameters<typeof HostedPackages.open>[0], ...versions: string[]) {
  const hosted = await HostedPackages.open(t);
  for (const version of versions) await hosted.push({ id: 'Lib', version });
  await hosted.push({ id: 'Other', version: '1.0.0' });
  await hosted.push({ id: 'Lib', version: '1.0.0' }, { account: 2 });
  await hosted.events();
  hosted.clock.now = 2000;
  const change = (versions: 'all' | readonly string[], given: Parameters<typeof changeDeprecation>[4], id = 'LIB') =>
    changeDeprecation(hosted.context, 1, id, versions, given);
  const state = () =>
    hosted.rows<{ version: string; listed: number; deprecation: string | null; bytes: number }>(
      `SELECT v.version, v.listed, v.deprecation, v.metadata_bytes - LENGTH(v.metadata) AS bytes
       FROM package_versions v JOIN packages p ON p.id = v.package_row AND p.account_id = 1 AND p.package_key = 'lib'
       ORDER BY v.sort_key`,
    );
  const packageOf = async () =>
    (
      await hosted.rows<
        Record<'metadata_bytes' | 'largest_metadata' | 'revision' | 'updated_at' | 'has_deprecated', number>
      >(
        `SELECT metadata_bytes, largest_metadata, revision, updated_at, has_deprecated FROM packages
         WHERE account_id = 1 AND package_key = 'lib'`,
      )
    )[0]!;
  return { hosted, change, state, packageOf };
}

const plain = (version: string) => ({ version, listed: 1, deprecation: null, bytes: 0 });
const marked = (version: string, deprecation: object, listed = 1) => ({
  version,
  listed,
  deprecation: JSON.stringify(deprecation),
  bytes: bytesOf(deprecation),
});

test('a deprecation is written with its bytes, once for the versions that have another one', async (t) => {
  const { hosted, change, state, packageOf } = await withVersions(t, '1.0.0', '1.1.0-Beta', '2.0.0');
  const rest = await hosted.rows('SELECT * FROM packages WHERE id > 1');
  const before = await packageOf();
  t.is(await change(['1.1-beta', '1.1.0-BETA', '1.0'], { deprecation: other }), 2);
  t.deepEqual(await state(), [marked('1.0.0', other), marked('1.1.0-Beta', other), plain('2.0.0')]);
  t.deepEqual(await packageOf(), {
    metadata_bytes: before.metadata_bytes + 2 * bytesOf(other),
    largest_metadata: before.largest_metadata + bytesOf(other),
    revision: before.revision + 1,
    updated_at: 2000,
    has_deprecated: 1,
  });
  hosted.clock.now = 3000;
  t.is(await change(['1.0.0', '2.0.0'], { deprecation: other }), 1);
  t.is(await change('all', { deprecation: other }), 0);
  t.is(await change(['2.0.0'], { deprecation: legacy }), 1);
  t.is(await change(['1.0.0', '1.1.0-beta'], { deprecation: undefined }), 2);
  t.is(await change(['1.0.0', '1.1.0-beta'], { deprecation: undefined }), 0);
  t.deepEqual(await state(), [plain('1.0.0'), plain('1.1.0-Beta'), marked('2.0.0', legacy)]);
  t.deepEqual(await packageOf(), {
    metadata_bytes: before.metadata_bytes + bytesOf(legacy),
    largest_metadata: before.largest_metadata + bytesOf(other),
    revision: before.revision + 4,
    updated_at: 3000,
    has_deprecated: 1,
  });
  t.deepEqual(await hosted.events(), [
    [2000, 'package.deprecated', 1, 'Lib', null, { reasons: ['Other'], versions: ['1.0.0', '1.1.0-Beta'] }],
    [3000, 'package.deprecated', 1, 'Lib', '2.0.0', { reasons: ['Other'] }],
    [3000, 'package.deprecated', 1, 'Lib', '2.0.0', { reasons: ['Legacy'] }],
    [3000, 'package.undeprecated', 1, 'Lib', null, { versions: ['1.0.0', '1.1.0-Beta'] }],
  ]);
  t.deepEqual(await hosted.rows('SELECT * FROM packages WHERE id > 1'), rest);
  t.deepEqual(await hosted.rows('SELECT COUNT(*) AS n FROM package_versions WHERE deprecation IS NOT NULL'), [
    { n: 1 },
  ]);
});

test('versions are listed and unlisted with their deprecation, or without one', async (t) => {
  const { hosted, change, state, packageOf } = await withVersions(t, '1.0.0', '2.0.0');
  t.is(await change(['2.0.0'], { deprecation: undefined, listed: true }), 0);
  const { revision } = await packageOf();
  t.is(await change(['1.0.0', '2.0.0'], { deprecation: legacy, listed: false }), 2);
  t.deepEqual(await state(), [marked('1.0.0', legacy, 0), marked('2.0.0', legacy, 0)]);
  t.is((await packageOf()).revision, revision + 2);
  t.deepEqual(await hosted.rows('SELECT latest_pre2 FROM packages WHERE id = 1'), [{ latest_pre2: null }]);
  t.is(await change(['2.0.0'], { deprecation: legacy, listed: true }), 1);
  t.is(await change(['1.0.0'], { deprecation: undefined }), 1);
  t.deepEqual(await state(), [{ ...plain('1.0.0'), listed: 0 }, marked('2.0.0', legacy)]);
  t.is(await change('all', { deprecation: legacy, listed: true }), 1);
  t.deepEqual(await state(), [marked('1.0.0', legacy), marked('2.0.0', legacy)]);
  t.deepEqual(
    (await hosted.events()).map((each) => (each as unknown[]).slice(1)),
    [
      ['package.deprecated', 1, 'Lib', null, { reasons: ['Legacy'], versions: ['1.0.0', '2.0.0'] }],
      ['package.unlisted', 1, 'Lib', '1.0.0', {}],
      ['package.unlisted', 1, 'Lib', '2.0.0', {}],
      ['package.relisted', 1, 'Lib', '2.0.0', {}],
      ['package.undeprecated', 1, 'Lib', '1.0.0', {}],
      ['package.deprecated', 1, 'Lib', '1.0.0', { reasons: ['Legacy'] }],
      ['package.relisted', 1, 'Lib', '1.0.0', {}],
    ],
  );
});

const missing = (name: string) => ({
  name: 'NotFound',
  message: `This account does not host ${name}. Only hosted packages can be deprecated or have advisories.`,
});

const wrong = (message: string) => ({
  name: 'Invalid',
  message,
  instanceOf: Error,
});

test('nothing changes if a named version is not hosted, or if none or too many are named', async (t) => {
  const { hosted, change, state, packageOf } = await withVersions(t, '1.0.0', '2.0.0');
  const before = [await state(), await packageOf()];
  const deprecation = legacy;
  await t.throwsAsync(change(['1.0.0', '3.0'], { deprecation }), missing('LIB 3.0'));
  await t.throwsAsync(change(['1.0.0', 'x'], { deprecation }), missing('LIB x'));
  await t.throwsAsync(change(['1.0.0'], { deprecation }, 'Nothing'), missing('Nothing 1.0.0'));
  await t.throwsAsync(change('all', { deprecation }, 'Nothing'), missing('Nothing'));
  await t.throwsAsync(change([], { deprecation }), wrong('Name one or more versions, or all.'));
  const many = Array.from({ length: 1001 }, () => '1.0.0');
  const error = await t.throwsAsync(
    change(many, { deprecation }),
    wrong('Name at most 1000 versions in one request, or all.'),
  );
  t.deepEqual((error as any).detail, { errors: [{ field: 'versions', message: error.message }] });
  t.deepEqual([await state(), await packageOf()], before);
  t.deepEqual(await hosted.events(), []);
  t.is(await change(many.slice(1), { deprecation }), 1);
  t.is(
    notHosted('a'.repeat(200), 'b'.repeat(200)).message.length,
    missing(`${'a'.repeat(100)} ${'b'.repeat(100)}`).message.length,
  );
});

/** A package with so many versions that they are changed in several transactions. */
async function withMany(t: Parameters<typeof HostedPackages.open>[0], count: number) {
  const made = await withVersions(t, '1.0.0');
  const [row] = await made.hosted.rows<Record<string, string | number | null>>(
    'SELECT * FROM package_versions WHERE id = 1',
  );
  const { id: _id, ...rest } = row!;
  await made.hosted.store.database.transaction(async (tx) => {
    await tx.insertNew(
      'package_versions',
      Array.from({ length: count - 1 }, (_, index) => {
        const version = `2.${index}.0`;
        const names = { version, version_key: version, full_version: version };
        return { ...rest, ...names, sort_key: `02${String(index).padStart(4, '0')}` };
      }),
    );
    await tx.run('UPDATE packages SET version_count = ? WHERE id = 1', [count]);
  });
  return made;
}

for (const count of [100, 101, 250])
  test(`all of ${count} versions are deprecated, by name or all`, async (t) => {
    const { hosted, change } = await withMany(t, count);
    const left = async () =>
      (await hosted.rows('SELECT id FROM package_versions WHERE package_row = 1 AND deprecation IS NULL')).length;
    t.is(await change('all', { deprecation: legacy }), count);
    t.is(await left(), 0);
    const names = (
      await hosted.rows<{ version: string }>('SELECT version FROM package_versions WHERE package_row = 1')
    ).map(({ version }) => version);
    t.is(await change(names, { deprecation: undefined }), count);
    t.is(await left(), count);
    const events = (await hosted.events()) as any[];
    const sizes = events.map((each) => each[5].versions?.length ?? 1);
    const batches = [count > 100 ? 100 : count, ...(count > 200 ? [100, 50] : count > 100 ? [1] : [])];
    t.deepEqual(sizes, [...batches, ...batches]);
  });

const of = (version: string, key = version) => ({ key, version, listed: true, deprecation: undefined });

test('the versions of a package are listed with their deprecation, the newest first, page by page', async (t) => {
  const { hosted, change } = await withVersions(t, '1.0.0', '1.1.0-Beta', '2.0.0-0', '2.0.0--0');
  await change(['1.1.0-beta'], { deprecation: other, listed: false });
  const { database } = hosted.store;
  const all = [
    of('2.0.0-0'),
    of('2.0.0--0'),
    { ...of('1.1.0-Beta', '1.1.0-beta'), listed: false, deprecation: JSON.parse(JSON.stringify(other)) },
    of('1.0.0'),
  ];
  t.deepEqual(await listDeprecations(database, 1, 'LIB', 10, undefined), all);
  t.deepEqual(await listDeprecations(database, 1, 'lib', 2, undefined), all.slice(0, 2));
  for (const [index, { key }] of all.entries())
    t.deepEqual(await listDeprecations(database, 1, 'lib', 10, key), all.slice(index + 1), key);
  t.deepEqual(await listDeprecations(database, 1, 'lib', 1, all[0]!.key), all.slice(1, 2));
  t.deepEqual(await listDeprecations(database, 2, 'lib', 10, undefined), [of('1.0.0')]);
  for (const [account, id] of [
    [1, 'none'],
    [2, 'other'],
  ] as const)
    await t.throwsAsync(listDeprecations(database, account, id, 10, undefined), {
      name: 'NotFound',
      message: notHosted(id).message,
    });
});

test('all deprecated versions of an account are found, the newest first, package by package', async (t) => {
  const { hosted, change } = await withVersions(t, '1.0.0', '2.0.0', '3.0.0');
  const found = (account: number) => allOf(deprecatedVersions(hosted.store.database, account));
  t.deepEqual(await found(1), []);
  await hosted.push({ id: 'A' });
  await change(['1.0.0'], { deprecation: legacy }, 'Other');
  await change(['3.0.0', '1.0.0'], { deprecation: legacy });
  await change('all', { deprecation: legacy }, 'A');
  await change('all', { deprecation: undefined }, 'A');
  t.deepEqual(await found(1), [
    { id: 'Lib', version: '3.0.0' },
    { id: 'Lib', version: '1.0.0' },
    { id: 'Other', version: '1.0.0' },
  ]);
  t.deepEqual(await found(2), []);
});

test('deprecated versions of more packages than one statement reads are found', async (t) => {
  const { hosted } = await withVersions(t, '1.0.0');
  const [packageRow] = await hosted.rows('SELECT * FROM packages WHERE id = 1');
  const [versionRow] = await hosted.rows('SELECT * FROM package_versions WHERE id = 1');
  const names = Array.from({ length: 205 }, (_, index) => `P${String(index).padStart(3, '0')}`);
  await hosted.store.database.transaction(async (tx) => {
    for (const [index, name] of names.entries()) {
      const id = 1000 + index;
      await tx.insert('packages', {
        ...packageRow!,
        id,
        package_key: name.toLowerCase(),
        package_id: name,
        has_deprecated: 1,
      });
      await tx.insert('package_versions', { ...versionRow!, id, package_row: id, deprecation: JSON.stringify(legacy) });
    }
  });
  t.deepEqual(
    await allOf(deprecatedVersions(hosted.store.database, 1)),
    names.map((id) => ({ id, version: '1.0.0' })),
  );
});

const offered = {
  from: 'old',
  id: 'lib',
  version: '1.0.0',
  publishedAt: undefined,
  listed: true,
  downloads: 0,
  deprecation: undefined,
};

const source = (listed: boolean, deprecation: object | null) => ({ from: 'old', listed, deprecation });

test('what changed at the source of an imported version changes here, and only that', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push(await makeNupkg({ id: 'Lib' }), { earlier: offered });
  await hosted.push({ id: 'Own' });
  await hosted.events();
  hosted.clock.now = 2000;
  const follow = (given: Partial<Parameters<typeof followSource>[2]>, account = 1) =>
    followSource(hosted.context, account, { ...offered, ...given });
  const state = async () =>
    (
      await hosted.rows<{ listed: number; deprecation: string | null; imported: string }>(
        'SELECT listed, deprecation, imported FROM package_versions WHERE id = 1',
      )
    ).map(({ listed, deprecation, imported }) => [
      listed,
      deprecation && JSON.parse(deprecation),
      JSON.parse(imported),
    ])[0];
  const told = JSON.parse(JSON.stringify(legacy));
  t.deepEqual(await follow({}), []);
  t.deepEqual(await follow({ from: 'new', listed: false }), []);
  t.deepEqual(await follow({ listed: false, version: '2.0.0' }), []);
  t.deepEqual(await follow({ listed: false, id: 'none' }), []);
  t.deepEqual(await follow({ listed: false, id: 'own' }), []);
  t.deepEqual(await follow({ listed: false }, 2), []);
  t.deepEqual(await hosted.events(), []);
  t.deepEqual(await state(), [1, null, source(true, null)]);
  t.deepEqual(await follow({ listed: false, deprecation: legacy }), ['unlisted', 'deprecated']);
  t.deepEqual(await state(), [0, told, source(false, told)]);
  t.deepEqual(await follow({ listed: true, deprecation: legacy }), ['listed']);
  t.deepEqual(await state(), [1, told, source(true, told)]);
  t.deepEqual(await follow({ listed: true }), ['not deprecated any more']);
  t.deepEqual(await state(), [1, null, source(true, null)]);
  t.deepEqual(
    (await hosted.events()).map((each) => (each as string[])[1]),
    ['package.deprecated', 'package.unlisted', 'package.relisted', 'package.undeprecated'],
  );
  const own = { deprecation: other, listed: false };
  await changeDeprecation(hosted.context, 1, 'lib', 'all', own);
  t.deepEqual(await follow({ deprecation: legacy }), ['deprecated']);
  t.deepEqual(await state(), [0, told, source(true, told)]);
  await changeDeprecation(hosted.context, 1, 'lib', 'all', own);
  t.deepEqual(await follow({ deprecation: legacy, listed: false }), []);
  t.deepEqual(await state(), [0, JSON.parse(JSON.stringify(other)), source(false, told)]);
  t.deepEqual(await follow({ deprecation: other, listed: true }), ['listed', 'deprecated']);
  t.deepEqual(await state(), [1, JSON.parse(JSON.stringify(other)), source(true, JSON.parse(JSON.stringify(other)))]);
});

test('a version changed at its source only if it came from there, and something else is told of it', (t) => {
  const imported = JSON.stringify({ from: 'old', listed: true, deprecation: null });
  t.false(hasChangedAtSource(null, offered));
  t.false(hasChangedAtSource(imported, offered));
  t.false(hasChangedAtSource(imported, { ...offered, from: 'new', listed: false }));
  t.true(hasChangedAtSource(imported, { ...offered, listed: false }));
  t.true(hasChangedAtSource(imported, { ...offered, deprecation: legacy }));
});
