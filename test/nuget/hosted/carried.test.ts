import test from 'ava';
import { NameSet } from '../../../src/accounts/names.ts';
import type { HostedEntry } from '../../../src/bundle/hosted-contents.ts';
import { carriedPackages } from '../../../src/nuget/hosted/carried.ts';
import { changeDeprecation } from '../../../src/nuget/hosted/deprecations.ts';
import { deleteVersion } from '../../../src/nuget/hosted/deletion.ts';
import { parseDeprecation } from '../../../src/nuget/format/deprecation.ts';
import { promotablePackages } from '../../../src/nuget/hosted/promotable.ts';
import { setListed } from '../../../src/nuget/hosted/publish.ts';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { byBytes } from '../../../src/runtime/sorted.ts';
import { allOf } from '../../support/all-of.ts';
import { makeNupkg, makePdb, pngPixel } from '../../support/builders/nupkg.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

const everything = new NameSet(['*']);
const legacy = parseDeprecation('lib', { reasons: ['Legacy'], message: 'old', alternative: { id: 'New' } });

/** Account 1 hosts `Lib` 1.0.0 with symbols, and 2.0.0, which is deprecated and unlisted; and `App`. */
async function withPackages(t: Parameters<typeof HostedPackages.open>[0], deletedFor = 0) {
  const hosted = await HostedPackages.open(t, deletedFor);
  const one = await makeNupkg({ id: 'Lib', version: '1.0.0-RC', icon: pngPixel, readme: 'hello' });
  const two = await makeNupkg({ id: 'Lib', version: '2.0.0' });
  const app = await makeNupkg({ id: 'App', version: '1.0.0' });
  for (const each of [one, two, app]) await hosted.push(each);
  const symbols = await hosted.pushSymbols({
    id: 'Lib',
    version: '1.0.0-RC',
    files: { 'a/A.pdb': makePdb(), 'B.pdb': makePdb() },
  });
  await changeDeprecation(hosted.context, 1, 'lib', ['2.0.0'], { deprecation: legacy, listed: false });
  const asked: unknown[][] = [];
  const mirroredFrom = (...question: unknown[]) => {
    asked.push(question);
    return Promise.resolve(question[1] === 'app' || question[1] === 'App' ? 'up.test' : undefined);
  };
  const contents = carriedPackages(hosted.context, mirroredFrom);
  const promotable = promotablePackages(hosted.context, mirroredFrom);
  await hosted.events();
  hosted.clock.now = 5000;
  /** Imports entries into an account. */
  const write = async (account: number, entries: readonly HostedEntry[], isOlder = false) => {
    const bytes: Buffer[] = [];
    const stage = (each: Buffer) => {
      bytes.push(each);
      return Promise.resolve(digestOf(each));
    };
    const writing = await contents.prepare(account, entries, stage);
    return hosted.store.database.transaction((tx) => writing(tx, { isOlder, from: 'bundle 7' }));
  };
  return { hosted, one, two, app, symbols, contents, promotable, asked, write };
}

const versionsOf = (account: number) =>
  `SELECT p.package_id, v.version, v.full_version, v.sort_key, v.listed, v.prerelease, v.semver2, v.published_at, v.deprecation,
     v.imported, v.size_bytes, v.sha512, v.nupkg_digest, v.nuspec_digest, v.readme_digest, v.icon_digest, v.icon_type,
     v.snupkg_digest, v.metadata, v.metadata_bytes, v.download_count
   FROM package_versions v JOIN packages p ON p.id = v.package_row WHERE p.account_id = ${account}
   ORDER BY p.package_key, v.sort_key`;
const packagesOf = (account: number) =>
  `SELECT package_id, version_count, size_bytes, metadata_bytes, largest_metadata, has_deprecated FROM packages
   WHERE account_id = ${account} ORDER BY package_key`;
const symbolsOf = (account: number) =>
  `SELECT file_name, signature, path FROM package_symbols WHERE account_id = ${account} ORDER BY path`;

const common = { type: 'application/octet-stream', seen: [] };

test('all that an account hosts is carried, package by package, each version with its symbols', async (t) => {
  const { hosted, one, two, app, symbols, contents } = await withPackages(t);
  await hosted.push(app, { account: 2 });
  const attributes = { publishedAt: '1000', listed: '1' };
  const lib = { ...common, name: 'lib' };
  const entries = [
    {
      ...common,
      name: 'app',
      reference: '1.0.0',
      kind: 'nupkg',
      digest: digestOf(app),
      size: app.length,
      attributes: { ...attributes, id: 'App', version: '1.0.0' },
    },
    {
      ...lib,
      reference: '1.0.0-rc',
      kind: 'nupkg',
      digest: digestOf(one),
      size: one.length,
      attributes: { ...attributes, id: 'Lib', version: '1.0.0-RC' },
    },
    {
      ...lib,
      reference: '1.0.0-rc',
      kind: 'snupkg',
      digest: digestOf(symbols),
      size: symbols.length,
      attributes: {},
    },
    {
      ...lib,
      reference: '2.0.0',
      kind: 'nupkg',
      digest: digestOf(two),
      size: two.length,
      attributes: { ...attributes, id: 'Lib', version: '2.0.0', listed: '0', deprecation: JSON.stringify(legacy) },
    },
  ];
  t.deepEqual(await allOf(contents.entries(1, everything)), entries);
  t.deepEqual(await allOf(contents.entries(1, new NameSet(['app', 'x*']))), entries.slice(0, 1));
  t.is((await allOf(contents.entries(2, everything))).length, 1);
  t.deepEqual(await allOf(contents.entries(3, everything)), []);
  const [{ nuspec_digest: nuspec }] = (await hosted.rows(versionsOf(1))) as [{ nuspec_digest: Digest }];
  const digests = [digestOf(one), digestOf(symbols), digestOf('other'), nuspec, digestOf(pngPixel)];
  const among = async (account: number, some: Digest[]) => [...(await contents.among(account, some))].toSorted(byBytes);
  const known = digests.filter((each) => each !== digestOf('other'));
  t.deepEqual(await among(1, digests), known.toSorted(byBytes));
  t.deepEqual(await among(2, [...digests, digestOf(app)]), [nuspec, digestOf(app)].toSorted(byBytes));
  t.deepEqual(await among(1, []), []);
});

test('more versions than one statement reads are carried, each once', async (t) => {
  const { hosted, contents } = await withPackages(t);
  const [row] = await hosted.rows<Record<string, string | number | null>>(
    "SELECT * FROM package_versions WHERE version = '2.0.0'",
  );
  const { id: _id, ...rest } = row!;
  const names = Array.from({ length: 1010 }, (_, index) => `3.${index}.0`);
  await hosted.store.database.transaction(async (tx) => {
    for (let start = 0; start < names.length; start += 101)
      await tx.insertNew(
        'package_versions',
        names
          .slice(start, start + 101)
          .map((version) => ({ ...rest, version, version_key: version, full_version: version })),
      );
  });
  const entries = await allOf(contents.entries(1, everything));
  t.is(entries.length, 4 + names.length);
  t.is(new Set(entries.map((each) => `${each.kind} ${each.name} ${each.reference}`)).size, entries.length);
});

const source = (listed: boolean, deprecation: object | null) =>
  JSON.stringify({ from: 'bundle 7', listed, deprecation });

test('an import shows in another account what the first one hosts', async (t) => {
  const { hosted, contents, asked, write, two, app } = await withPackages(t);
  const entries = await allOf(contents.entries(1, everything));
  // Symbols need their package, wherever they are in the list.
  t.is(await write(2, entries.toReversed()), 4);
  t.deepEqual(asked, [
    [2, 'lib'],
    [2, 'lib'],
    [2, 'app'],
  ]);
  const rows = (await hosted.rows(versionsOf(1))) as any[];
  t.deepEqual(
    await hosted.rows(versionsOf(2)),
    rows.map((each) => ({
      ...each,
      imported: each.listed === 0 ? source(false, JSON.parse(JSON.stringify(legacy))) : source(true, null),
    })),
  );
  t.deepEqual(await hosted.rows(packagesOf(2)), await hosted.rows(packagesOf(1)));
  t.deepEqual(await hosted.rows(symbolsOf(2)), await hosted.rows(symbolsOf(1)));
  t.deepEqual(await hosted.events(), [
    [5000, 'package.published', 2, 'Lib', '2.0.0', { size_bytes: two.length, imported_from: 'bundle 7' }],
    [5000, 'package.published', 2, 'Lib', '1.0.0-RC', { size_bytes: rows[1].size_bytes, imported_from: 'bundle 7' }],
    [
      5000,
      'package.published',
      2,
      'App',
      '1.0.0',
      { size_bytes: app.length, taken_over_from: 'up.test', imported_from: 'bundle 7' },
    ],
  ]);
  t.is(await write(2, entries), 0);
  t.deepEqual(await hosted.events(), []);
});

test('a later import changes what is different, an older one only adds', async (t) => {
  const { hosted, contents, write } = await withPackages(t);
  const entries = await allOf(contents.entries(1, everything));
  await write(2, entries);
  await changeDeprecation(hosted.context, 2, 'lib', ['2.0.0'], { deprecation: undefined, listed: true });
  const bytes = await hosted.pushSymbols({ id: 'Lib', version: '1.0.0-RC' }, 2);
  await deleteVersion(hosted.context, 2, 'app', '1.0.0');
  await hosted.events();
  const state = () =>
    hosted.rows(
      `SELECT v.version, v.listed, v.deprecation IS NULL AS plain, v.snupkg_digest FROM package_versions v
       JOIN packages p ON p.id = v.package_row AND p.account_id = 2 ORDER BY p.package_key, v.sort_key`,
    );
  const app = { version: '1.0.0', listed: 1, plain: 1, snupkg_digest: null };
  const [one, two] = [
    { version: '1.0.0-RC', listed: 1, plain: 1 },
    { version: '2.0.0', snupkg_digest: null },
  ];
  t.is(await write(2, entries, true), 1);
  t.deepEqual(await state(), [app, { ...one, snupkg_digest: digestOf(bytes) }, { ...two, listed: 1, plain: 1 }]);
  t.is(await write(2, entries), 2);
  const symbols = entries.find(({ kind }) => kind === 'snupkg')!.digest;
  t.deepEqual(await state(), [app, { ...one, snupkg_digest: symbols }, { ...two, listed: 0, plain: 0 }]);
  const types = ((await hosted.events()) as string[][]).map((each) => each[1]);
  t.deepEqual(types, ['package.published', 'package.deprecated', 'package.unlisted']);
  const library = entries.filter(({ name }) => name === 'lib');
  await deleteVersion(hosted.context, 2, 'lib', '1.0.0-rc');
  t.is(await write(2, library, true), 2, 'symbols that are missing are added');
  await hosted.push({ id: 'App', version: '1.0.0' }, { account: 3 });
  await t.throwsAsync(write(3, entries), {
    name: 'Invalid',
    message:
      'this account hosts App 1.0.0 already, with other bytes than the bundle. Nothing was imported: delete one of the two, or make the bundle without it',
  });
  t.deepEqual((await hosted.rows(packagesOf(3))).length, 1);
});

test('entries that are not what their content is are refused', async (t) => {
  const { contents, write } = await withPackages(t);
  const entries = await allOf(contents.entries(1, everything));
  const [app, , symbols, two] = entries as [HostedEntry, HostedEntry, HostedEntry, HostedEntry];
  const refuse = (entry: HostedEntry, message: string | RegExp, name = 'Invalid') =>
    t.throwsAsync(write(2, [entry]), { name, message });
  await refuse({ ...app, kind: 'chart' }, 'the bundle has hosted content of the unknown kind chart');
  await refuse({ ...app, name: 'lib' }, 'The source sent App 1.0.0 in place of lib 1.0.0.', 'PackageInvalid');
  await refuse({ ...app, reference: '1.0.1' }, 'The source sent App 1.0.0 in place of app 1.0.1.', 'PackageInvalid');
  await refuse({ ...app, kind: 'snupkg' }, /only package type of a symbols package/, 'PackageInvalid');
  await refuse(symbols, 'Lib 1.0.0-RC does not exist in this feed.', 'NotFound');
  const { publishedAt: _date, ...undated } = app.attributes;
  for (const attributes of [
    undated,
    ...['', 'x', '1x', 'x1', '-1', '1.5', '8640000000000001', '12345678901234567'].map((publishedAt) => ({
      ...app.attributes,
      publishedAt,
    })),
  ])
    await refuse({ ...app, attributes }, 'the bundle does not say when app 1.0.0 was published');
  const deprecated = (deprecation: string) => ({ ...two, attributes: { ...two.attributes, deprecation } });
  for (const text of [
    '',
    'x',
    'null',
    '{}',
    '{"reasons":["Unknown"]}',
    '{"reasons":["Other"]}',
    '{"reasons":["Legacy"],"alternatePackage":{"id":"LIB"}}',
  ])
    await refuse(deprecated(text), 'the bundle has a wrong deprecation of lib');
});

test('dates are taken up to the last one that there is, and a version without a mark is listed', async (t) => {
  const { hosted, contents, write } = await withPackages(t);
  const [app] = (await allOf(contents.entries(1, everything))) as [HostedEntry];
  const { listed: _listed, ...attributes } = app.attributes;
  for (const [account, publishedAt, written] of [
    [2, '0', 0],
    [3, '8640000000000000', 5000],
    [4, '4999', 4999],
  ] as const) {
    t.is(await write(account, [{ ...app, attributes: { ...attributes, publishedAt } }]), 1);
    const [row] = (await hosted.rows(versionsOf(account))) as any[];
    t.deepEqual([row.published_at, row.listed], [written, 1]);
  }
});

const places = (digest: Digest, name = 'Lib', reference = '1.0.0-rc') => ({
  from: { accountId: 1, name },
  to: { accountId: 2, name },
  reference,
  digest,
  fromAccount: 'first',
});

test('a version is promoted with its files, symbols, deprecation and state, under its own date', async (t) => {
  const { hosted, one, two, symbols, promotable, asked } = await withPackages(t);
  const promote = async (given: ReturnType<typeof places>) => {
    const prepared = await promotable.prepare(given);
    return [prepared.bytes, await hosted.store.database.transaction((tx) => prepared.write(tx))];
  };
  t.deepEqual(await promotable.bind(1, 'LIB', '1.0-rc'), {
    name: 'Lib',
    reference: '1.0.0-RC',
    digest: digestOf(one),
  });
  t.deepEqual(await promote(places(digestOf(one))), [one.length + symbols.length, true]);
  t.deepEqual(await promote(places(digestOf(two), 'LIB', '2.0')), [two.length, true]);
  t.deepEqual(asked, [
    [2, 'Lib'],
    [2, 'LIB'],
  ]);
  const rows = (await hosted.rows(versionsOf(1))) as any[];
  t.deepEqual(
    await hosted.rows(versionsOf(2)),
    rows.slice(1).map((each) => ({ ...each, published_at: 5000 })),
  );
  t.deepEqual(await hosted.rows(symbolsOf(2)), await hosted.rows(symbolsOf(1)));
  t.deepEqual(await hosted.rows(packagesOf(2)), (await hosted.rows(packagesOf(1))).slice(1));
  const blobs = (account: number) =>
    hosted.rows(
      `SELECT v.version, b.digest FROM package_blobs b JOIN package_versions v ON v.id = b.version_row
       JOIN packages p ON p.id = v.package_row WHERE p.account_id = ${account} AND p.package_key = 'lib'
       ORDER BY v.version, b.digest`,
    );
  t.deepEqual(await blobs(2), await blobs(1));
  t.deepEqual(await hosted.rows('SELECT COUNT(*) AS n FROM blobs WHERE stored_at = 5000'), [{ n: 5 + 2 }]);
  t.deepEqual(await hosted.events(), [
    [5000, 'package.published', 2, 'Lib', '1.0.0-RC', { size_bytes: one.length, imported_from: 'account first' }],
    [5000, 'package.published', 2, 'Lib', '2.0.0', { size_bytes: two.length, imported_from: 'account first' }],
  ]);
  t.deepEqual(await promote(places(digestOf(one))), [0, false]);
  await setListed(hosted.context, 2, 'lib', '1.0.0-rc', false);
  t.deepEqual(await promote(places(digestOf(one))), [0, false]);
  t.is((await hosted.rows(versionsOf(2)))[0]!['listed'], 0);
});

test('a promotion follows an import, and adds symbols that came later', async (t) => {
  const { hosted, promotable, app } = await withPackages(t);
  const promote = async (given: ReturnType<typeof places>) => {
    const prepared = await promotable.prepare(given);
    return [prepared.bytes, await hosted.store.database.transaction((tx) => prepared.write(tx))];
  };
  await hosted.store.database.transaction((tx) =>
    tx.run("UPDATE package_versions SET imported = 'x' WHERE nupkg_digest = ?", [digestOf(app)]),
  );
  const given = places(digestOf(app), 'App', '1.0.0');
  t.deepEqual(await promote(given), [app.length, true]);
  t.is((await hosted.rows(versionsOf(2)))[0]!['imported'], '{"from":"account first","listed":true,"deprecation":null}');
  t.is(((await hosted.events()) as any[])[0][5].taken_over_from, 'up.test');
  const symbols = await hosted.pushSymbols({ id: 'App', version: '1.0.0' });
  t.deepEqual(await promote(given), [symbols.length, true]);
  t.deepEqual(
    await hosted.rows(symbolsOf(2)),
    (await hosted.rows(symbolsOf(1))).filter((each) => (each['path'] as string).includes('App')),
  );
  const later = await hosted.pushSymbols({ id: 'App', version: '1.0.0' });
  t.deepEqual(await promote(given), [later.length, false]);
  t.is((await hosted.rows(versionsOf(2)))[0]!['snupkg_digest'], digestOf(symbols));
});

const gone = (name: string, reference: string, digest: string) => ({
  name: 'NotFound',
  message: `${name} ${reference} (${digest}) was deleted since, so it cannot be promoted.`,
});

test('only the version that was named is promoted, under its own id, and not over other bytes', async (t) => {
  const { hosted, promotable, one, two } = await withPackages(t);
  for (const [id, version] of [
    ['Lib', '3.0.0'],
    ['Lib', 'x'],
    ['None', '1.0.0'],
  ] as const)
    await t.throwsAsync(promotable.bind(1, id, version), {
      name: 'NotFound',
      message: `${id} ${version} does not exist in this feed.`,
    });
  await t.throwsAsync(promotable.bind(2, 'Lib', '2.0.0'), { name: 'NotFound' });
  t.is(promotable.nameFor('Lib', 'LIB'), 'Lib');
  t.throws(() => promotable.nameFor('Lib', 'o'.repeat(101)), {
    name: 'Invalid',
    message: `to_name: the package Lib cannot become ${'o'.repeat(100)}: its ID is in its nuspec, so other bytes would be needed. Promote it to another account, or pack it again with the other ID.`,
  });
  await t.throwsAsync(promotable.prepare(places(digestOf(two))), gone('Lib', '1.0.0-rc', digestOf(two)));
  await t.throwsAsync(promotable.prepare(places(digestOf(two), 'Lib', '9.0')), gone('Lib', '9.0', digestOf(two)));
  await hosted.push({ id: 'LIB', version: '2.0.0' }, { account: 2 });
  const ready = await promotable.prepare(places(digestOf(two), 'Lib', '2.0.0'));
  await t.throwsAsync(
    hosted.store.database.transaction((tx) => ready.write(tx)),
    {
      name: 'AlreadyExists',
      message: 'Lib 2.0.0 exists already where it is promoted to, with other bytes, and a version cannot be changed.',
    },
  );
  const first = await promotable.prepare(places(digestOf(one)));
  await hosted.store.database.transaction((tx) =>
    tx.run("UPDATE blobs SET state = 'deleting' WHERE digest = ?", [digestOf(pngPixel)]),
  );
  await t.throwsAsync(
    hosted.store.database.transaction((tx) => first.write(tx)),
    gone('Lib', '1.0.0-rc', digestOf(one)),
  );
  await deleteVersion(hosted.context, 1, 'lib', '1.0.0-rc');
  await t.throwsAsync(
    hosted.store.database.transaction((tx) => first.write(tx)),
    gone('Lib', '1.0.0-rc', digestOf(one)),
  );
  t.is((await hosted.rows(versionsOf(2))).length, 1);
});

test('symbols without a size are not carried', async (t) => {
  const { hosted, symbols, contents } = await withPackages(t);
  const kinds = async () => (await allOf(contents.entries(1, new NameSet(['lib'])))).map(({ kind }) => kind);
  t.deepEqual(await kinds(), ['nupkg', 'snupkg', 'nupkg']);
  await hosted.store.database.transaction((tx) => tx.run('DELETE FROM blobs WHERE digest = ?', [digestOf(symbols)]));
  t.deepEqual(await kinds(), ['nupkg', 'nupkg']);
});
