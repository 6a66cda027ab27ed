import test from 'ava';
import { createAdvisory } from '../../../src/nuget/hosted/advisories.ts';
import { changeDeprecation } from '../../../src/nuget/hosted/deprecations.ts';
import { openFile } from '../../../src/nuget/hosted/files.ts';
import { parseDeprecation } from '../../../src/nuget/format/deprecation.ts';
import { setListed } from '../../../src/nuget/hosted/publish.ts';
import { sortKey, parseVersion, fullString, normalize, versionKey } from '../../../src/nuget/format/version.ts';
import {
  firstPublished,
  listListed,
  listPage,
  listPages,
  listSizes,
  listVersionKeys,
  revisionOf,
} from '../../../src/nuget/hosted/versions.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { readAll } from '../../../src/storage/files/content.ts';
import { makeNupkg, pngPixel } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const names = ['1.0.0', '2.0.0-0', '2.0.0--0', '2.0.0-Beta.1', '2.0.0', '10.0.0+build'];

/** Account 1 hosts `Lib`, published a second after each other, the highest version first; account 2 another one. */
async function withLib(t: Parameters<typeof HostedPackages.open>[0]) {
  const hosted = await HostedPackages.open(t);
  for (const version of names.toReversed()) {
    await hosted.push({ id: 'Lib', version });
    hosted.clock.now += 1000;
  }
  await hosted.push({ id: 'Lib', version: '5.0.0' }, { account: 2 });
  await hosted.push({ id: 'Other', version: '7.0.0' });
  return { hosted, database: hosted.store.database };
}

/** Adds versions like the first one of `Lib`. */
async function addVersions({ store }: HostedPackages, versions: readonly string[], bytes?: number): Promise<void> {
  await store.database.transaction(async (tx) => {
    const [row] = await tx.select<Record<string, string | number | null>>(
      "SELECT * FROM package_versions WHERE version = '1.0.0'",
    );
    const { id: _id, ...rest } = row!;
    for (let start = 0; start < versions.length; start += 100)
      await tx.insertNew(
        'package_versions',
        versions.slice(start, start + 100).map((text) => {
          const version = parseVersion(text)!;
          return {
            ...rest,
            version: normalize(version),
            version_key: versionKey(version),
            full_version: fullString(version),
            sort_key: sortKey(version),
            ...(bytes !== undefined && { metadata_bytes: bytes }),
          };
        }),
      );
    await tx.run(
      `UPDATE packages SET version_count = version_count + ?, metadata_bytes = metadata_bytes + ?,
         largest_metadata = ? WHERE id = ?`,
      [
        versions.length,
        versions.length * (bytes ?? (rest['metadata_bytes'] as number)),
        bytes ?? 1000,
        rest['package_row']!,
      ],
    );
  });
}

const normal = (version: string) => version.replace(/\+.*/, '');

const inOrder = (found: string[]) => found.join(' ').replace('2.0.0--0 2.0.0-0', '2.0.0-0 2.0.0--0').split(' ');

test('the keys of all versions are in the order of versions, and those that were published by a time', async (t) => {
  const { hosted, database } = await withLib(t);
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  const keys = names.map((each) => normal(each).toLowerCase());
  const [low, a, b, ...rest] = keys;
  t.deepEqual(inOrder(await listVersionKeys(database, 1, 'LIB')), [low, a, b, ...rest] as string[]);
  t.deepEqual(await listVersionKeys(database, 1, 'lib', 1000), ['10.0.0']);
  t.deepEqual(await listVersionKeys(database, 1, 'lib', 2999), ['2.0.0', '10.0.0']);
  t.deepEqual(await listVersionKeys(database, 1, 'lib', 3000), ['2.0.0-beta.1', '2.0.0', '10.0.0']);
  t.deepEqual(await listVersionKeys(database, 1, 'lib', 999), []);
  t.deepEqual(await listVersionKeys(database, 2, 'lib'), ['5.0.0']);
  t.deepEqual(await listVersionKeys(database, 1, 'none'), []);
});

test('the first publication of a package, or of one version, is known', async (t) => {
  const { database } = await withLib(t);
  t.is(await firstPublished(database, 1, 'LIB', undefined), 1000);
  t.is(await firstPublished(database, 1, 'lib', '2.0.0'), 2000);
  t.is(await firstPublished(database, 1, 'lib', '3.0.0'), undefined);
  t.is(await firstPublished(database, 2, 'lib', undefined), 7000);
  t.is(await firstPublished(database, 1, 'none', undefined), undefined);
});

test('the revision of a package is its own, and another one after each change', async (t) => {
  const { hosted, database } = await withLib(t);
  const revision = await revisionOf(database, 1, 'LIB');
  t.is(revision, `1/1000/${names.length}`);
  t.regex((await revisionOf(database, 2, 'lib'))!, /^\d+\/7000\/1$/);
  t.is(await revisionOf(database, 1, 'none'), undefined);
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  t.is(await revisionOf(database, 1, 'lib'), `1/1000/${names.length + 1}`);
});

test('listed versions are completed with their metadata, as far as the client supports them', async (t) => {
  const { hosted, database } = await withLib(t);
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  const sorted = async (prerelease: boolean, semVer2: boolean) =>
    (await listListed(database, 1, 'LIB', prerelease, semVer2)).map((each) => each.replace('--0', '-0'));
  t.deepEqual(await sorted(true, true), ['2.0.0-0', '2.0.0-0', '2.0.0-Beta.1', '2.0.0', '10.0.0+build']);
  t.deepEqual(await sorted(true, false), ['2.0.0-0', '2.0.0-0', '2.0.0']);
  t.deepEqual(await sorted(false, true), ['2.0.0', '10.0.0+build']);
  t.deepEqual(await sorted(false, false), ['2.0.0']);
  t.deepEqual(await listListed(database, 2, 'lib', true, true), ['5.0.0']);
});

const plain = (value: unknown) => JSON.parse(JSON.stringify(value));

test('a small package is one page with all that is shown of each version', async (t) => {
  const { hosted, database } = await withLib(t);
  const bytes = await makeNupkg({ id: 'Lib', version: '1.5.0', icon: pngPixel, readme: 'hello' });
  await hosted.push(bytes);
  const deprecation = parseDeprecation('lib', { reasons: ['Legacy'] });
  await changeDeprecation(hosted.context, 1, 'lib', ['2.0.0'], { deprecation, listed: false });
  const url = 'https://example.com/';
  await createAdvisory(hosted.context, 1, { packageId: 'lib', versions: '[1.5.0]', severity: 2, url });
  const rows = new Map(
    (
      await hosted.rows<{ version: string; sha512: string; metadata_bytes: number }>(
        'SELECT version, sha512, metadata_bytes FROM package_versions WHERE package_row = 1',
      )
    ).map((each) => [each.version, each]),
  );
  const shown = (name: string, publishedAt: number, more: object = {}, marks: object = {}) => ({
    version: normal(name),
    fullVersion: name,
    publishedAt,
    sha512: rows.get(normal(name))!.sha512,
    bytes: rows.get(normal(name))!.metadata_bytes + url.length + 50,
    listed: true,
    hasIcon: false,
    hasReadme: false,
    metadata: {
      id: 'Lib',
      description: 'About Lib',
      authors: 'Some Author',
      packageTypes: [{ name: 'Dependency' }],
      ...marks,
    },
    ...more,
  });
  const vulnerabilities = [{ advisoryUrl: url, severity: '2' }];
  const last = shown('10.0.0+build', 1000);
  const two = shown('2.0.0', 2000, { listed: false }, { deprecation: { reasons: ['Legacy'] } });
  const both = [shown('1.0.0', 6000), shown('1.5.0', 7000, { hasIcon: true, hasReadme: true }, { vulnerabilities })];
  const all = (await listPages(database, 1, 'LIB', true))!;
  t.is(all.length, 1);
  t.deepEqual([all[0]!.lower, all[0]!.upper, all[0]!.count], ['1.0.0', '10.0.0', 7]);
  const items = plain(all[0]!.items);
  t.deepEqual([items[0], items[1], items[5], items[6]], [...both, two, last]);
  const old = plain(await listPages(database, 1, 'lib', false));
  t.deepEqual([old[0].lower, old[0].upper, old[0].count], ['1.0.0', '2.0.0', 5]);
  t.deepEqual(plain(await listPages(database, 1, 'lib', true, 2000)), [
    { lower: '2.0.0', upper: '10.0.0', count: 2, items: [two, last] },
  ]);
  t.is(await listPages(database, 1, 'lib', true, 999), undefined);
  t.is(await listPages(database, 1, 'none', true), undefined);
  t.is((await listPages(database, 2, 'lib', true))![0]!.count, 1);
  t.deepEqual(plain(await listPage(database, 1, 'LIB', true, '2.0.0', '10.0')), [two, last]);
  t.deepEqual(plain(await listPage(database, 1, 'lib', false, '1.0', '1.5')), both);
  t.deepEqual(plain(await listPage(database, 1, 'lib', true, '2.0', '2.0')), [two]);
  t.deepEqual(plain(await listPage(database, 1, 'lib', true, '2.0.0', '10.0.0', 1999)), [last]);
  t.deepEqual(await listPage(database, 1, 'lib', false, '9.0.0', '11.0.0'), []);
  t.deepEqual(await listPage(database, 1, 'lib', true, 'x', '2.0.0'), []);
  t.deepEqual(await listPage(database, 1, 'lib', true, '1.0.0', 'x'), []);
  t.deepEqual(await listPage(database, 1, 'none', true, '1.0.0', '2.0.0'), []);
  const sizes = await listSizes(database, 1, 'lib', false);
  const [{ largest }] = (await hosted.rows('SELECT largest_metadata AS largest FROM packages')) as [
    { largest: number },
  ];
  t.deepEqual(
    sizes.filter(({ version }) => !version.includes('-')),
    ['1.0.0', '1.5.0', '2.0.0'].map((version) => ({ version, bytes: largest + url.length + 50 })),
  );
  t.deepEqual(await listSizes(database, 1, 'none', true), []);
  t.deepEqual(await listSizes(database, 1, 'lib', true, 1000), [
    { version: '10.0.0', bytes: largest + url.length + 50 },
  ]);
});

test('pages have their versions in the index below 128 of them, and bounds alone from there on', async (t) => {
  const { hosted, database } = await withLib(t);
  await addVersions(
    hosted,
    Array.from({ length: 121 }, (_, index) => `20.${index}.0`),
  );
  const small = (await listPages(database, 1, 'lib', true))!;
  t.deepEqual(
    small.map(({ lower, upper, count, items }) => [lower, upper, count, items?.length]),
    [
      ['1.0.0', '20.57.0', 64, 64],
      ['20.58.0', '20.120.0', 63, 63],
    ],
  );
  await addVersions(hosted, ['20.121.0']);
  t.deepEqual(await listPages(database, 1, 'lib', true), [
    { lower: '1.0.0', upper: '20.57.0', count: 64 },
    { lower: '20.58.0', upper: '20.121.0', count: 64 },
  ]);
  t.is((await listPages(database, 1, 'lib', false))![0]!.items?.length, 64, 'fewer without those of SemVer 2');
});

test('versions with much metadata are on pages of at most a mebibyte', async (t) => {
  const { hosted, database } = await withLib(t);
  const before = (await listSizes(database, 1, 'lib', true)).length;
  await addVersions(hosted, ['20.0.0', '20.1.0', '20.2.0'], 400_000);
  const [{ plain }] = (await hosted.rows('SELECT metadata_bytes AS plain FROM package_versions')) as [
    { plain: number },
  ];
  const sizes = await listSizes(database, 1, 'lib', true);
  t.deepEqual(sizes.slice(-4), [
    { version: '10.0.0', bytes: plain },
    ...['20.0.0', '20.1.0', '20.2.0'].map((version) => ({ version, bytes: 400_000 })),
  ]);
  t.deepEqual(await listPages(database, 1, 'lib', true), [
    { lower: '1.0.0', upper: '20.1.0', count: before + 2 },
    { lower: '20.2.0', upper: '20.2.0', count: 1 },
  ]);
  const url = `https://example.com/${'x'.repeat(400)}`;
  await createAdvisory(hosted.context, 1, { packageId: 'lib', versions: '[20.2.0]', severity: 1, url });
  t.deepEqual((await listSizes(database, 1, 'lib', true)).at(-1), {
    version: '20.2.0',
    bytes: 400_000 + url.length + 50,
  });
});

test('a package with little metadata has all its versions in the index, also if one of them has much', async (t) => {
  const { hosted, database } = await withLib(t);
  await addVersions(
    hosted,
    Array.from({ length: 100 }, (_, index) => `20.${index}.0`),
  );
  await store(hosted, 'UPDATE packages SET largest_metadata = 16000');
  const pages = (await listPages(database, 1, 'lib', true))!;
  t.deepEqual(
    pages.map(({ count, items }) => [count, items?.length]),
    [
      [64, 64],
      [42, 42],
    ],
  );
});

const tooLong = {
  name: 'Invalid',
  message: 'There are too many versions in this range. Request a page that the index names.',
};

test('a range has at most 1,024 versions, and 8 MiB of metadata', async (t) => {
  const { hosted, database } = await withLib(t);
  await addVersions(
    hosted,
    Array.from({ length: 1025 }, (_, index) => `20.${index}.0`),
  );
  const range = (lower: string, upper: string, until?: number) =>
    listPage(database, 1, 'lib', true, lower, upper, until);
  t.is((await range('20.0.0', '20.1023.0')).length, 1024);
  await t.throwsAsync(range('20.0.0', '20.1024.0'), tooLong);
  t.is((await range('10.0.0', '20.1024.0', 1000)).length, 1);
  await addVersions(hosted, ['30.0.0', '30.1.0', '30.2.0'], 4 * 2 ** 20);
  t.is((await range('30.0.0', '30.1.0')).length, 2);
  await t.throwsAsync(range('30.0.0', '30.2.0'), tooLong);
  t.is((await range('30.2.0', '30.2.0')).length, 1);
  const url = 'https://example.com/';
  await createAdvisory(hosted.context, 1, { packageId: 'lib', versions: '[30.2.0]', severity: 1, url });
  await t.throwsAsync(range('30.0.0', '30.1.0'), tooLong);
  t.is((await range('30.1.0', '30.1.0')).length, 1);
});

test('versions that are equal in order are all read where one statement ends between them', async (t) => {
  const { hosted, database } = await withLib(t);
  const equal = Array.from({ length: 40 }, (_, index) => `3.0.0-x.${index}`);
  await addVersions(hosted, [...Array.from({ length: 4980 }, (_, index) => `2.1.${index}`), ...equal]);
  await store(hosted, "UPDATE package_versions SET sort_key = '03000000$x' WHERE version LIKE '3.0.0-%'");
  const keys = await listVersionKeys(database, 1, 'lib');
  t.is(keys.length, 4980 + 40 + names.length);
  t.is(new Set(keys).size, keys.length);
  t.is(keys[0], '1.0.0');
  t.is(keys.at(-1), '10.0.0');
  await store(hosted, "UPDATE package_versions SET sort_key = '05' WHERE version NOT IN ('1.0.0', '10.0.0')");
  const again = await listVersionKeys(database, 1, 'lib');
  t.deepEqual([again.length, new Set(again).size], [keys.length, keys.length]);
});

async function store({ store: { database } }: HostedPackages, sql: string): Promise<void> {
  await database.transaction((tx) => tx.run(sql));
}

test('the files of a version are opened with their media type, and those that were published by a time', async (t) => {
  const { hosted } = await withLib(t);
  const bytes = await makeNupkg({ id: 'Lib', version: '1.5.0-RC', icon: pngPixel, readme: 'hello' });
  await hosted.push(bytes);
  const open = async (
    ...given: [id: string, version: string, kind: 'nupkg' | 'nuspec' | 'readme' | 'icon', until?: number]
  ) => {
    const file = await openFile(hosted.context, 1, ...given);
    if (!file) return undefined;
    const content = await readAll(file.content, 2 ** 20);
    return [digestOf(content) === file.digest, file.type, content.toString('latin1').slice(0, 5)];
  };
  t.deepEqual(await open('LIB', '1.05-rc', 'nupkg'), [
    true,
    'application/octet-stream',
    bytes.toString('latin1').slice(0, 5),
  ]);
  t.deepEqual(await open('lib', '1.5.0-RC', 'nuspec'), [true, 'text/plain', '<?xml']);
  t.deepEqual(await open('lib', '1.5.0-RC', 'readme'), [true, 'text/markdown; charset=utf-8', 'hello']);
  t.deepEqual(await open('lib', '1.5.0-RC', 'icon'), [true, 'image/png', '\x89PNG\r']);
  t.deepEqual(await open('lib', '1.5.0-RC', 'readme', 7000), [true, 'text/markdown; charset=utf-8', 'hello']);
  for (const [id, version, kind, until] of [
    ['lib', '1.5.0-RC', 'readme', 6999],
    ['lib', '1.0.0', 'readme'],
    ['lib', '1.0.0', 'icon'],
    ['lib', '1.5.1', 'nupkg'],
    ['lib', 'x', 'nupkg'],
    ['none', '1.0.0', 'nupkg'],
    ['lib', '5.0.0', 'nupkg'],
  ] as const)
    t.is(await open(id, version, kind, until), undefined, `${id} ${version} ${kind}`);
  await store(hosted, 'UPDATE package_versions SET icon_type = NULL');
  t.deepEqual((await open('lib', '1.5.0-RC', 'icon'))![1], 'application/octet-stream');
  await store(hosted, `DELETE FROM blobs WHERE digest = '${digestOf('hello')}'`);
  t.is(await open('lib', '1.5.0-RC', 'readme'), undefined);
});
