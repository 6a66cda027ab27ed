import test from 'ava';
import {
  keyOfVersion,
  lockPackage,
  lockVersion,
  packageKey,
  refreshPackage,
  versionNotFound,
  viewOf,
  views,
} from '../../../src/nuget/hosted/packages.ts';
import { deleteVersion } from '../../../src/nuget/hosted/deletion.ts';
import { setListed } from '../../../src/nuget/hosted/publish.ts';
import { describeTerms, idTermsOf, movePackage } from '../../../src/nuget/hosted/term-index.ts';
import { termsOf, tierWidth } from '../../../src/nuget/format/terms.ts';
import { parseMetadata } from '../../../src/nuget/format/metadata.ts';
import { HostedPackages } from '../../support/hosted-packages.ts';

test('a client has the view of the versions that it supports and asks for', (t) => {
  t.deepEqual(
    [viewOf(false, false), viewOf(true, false), viewOf(false, true), viewOf(true, true)],
    ['stable', 'pre', 'stable2', 'pre2'],
  );
  t.deepEqual(
    Object.values(views).map(({ bit }) => bit),
    [1, 2, 4, 8],
  );
  t.deepEqual([packageKey('LÄB'), keyOfVersion('1.0-RC+x'), keyOfVersion('x')], ['läb', '1.0.0-rc', undefined]);
});

/** The newest version in each view, the bits of the views and types, and what is shown of the package. */
async function newest(hosted: HostedPackages, key = 'lib') {
  const [row] = await hosted.rows<Record<string, unknown>>(
    `SELECT p.flags, p.package_id, p.package_types, p.revision, p.updated_at, a.version AS stable, b.version AS pre,
       c.version AS stable2, d.version AS pre2
     FROM packages p LEFT JOIN package_versions a ON a.id = p.latest_stable LEFT JOIN package_versions b ON b.id = p.latest_pre
     LEFT JOIN package_versions c ON c.id = p.latest_stable2 LEFT JOIN package_versions d ON d.id = p.latest_pre2
     WHERE p.account_id = 1 AND p.package_key = '${key}'`,
  );
  return row!;
}

test('each view has its newest listed version, and the package shows what the newest of all says', async (t) => {
  const hosted = await HostedPackages.open(t);
  const tool = [{ name: 'DotnetTool' }, { name: 'Template' }];
  await hosted.push({ id: 'LIB', version: '1.0.0-a' });
  const first = { flags: 16 + 2 + 8, package_id: 'LIB', package_types: 'Dependency', stable: null, stable2: null };
  t.deepEqual(await newest(hosted), {
    ...first,
    pre: '1.0.0-a',
    pre2: '1.0.0-a',
    revision: 1,
    updated_at: 1000,
  });
  await hosted.push({ id: 'Lib', version: '1.0.0', packageTypes: tool });
  await hosted.push({ id: 'lib', version: '2.0.0+x' });
  hosted.clock.now = 2000;
  await hosted.push({ id: 'LIb', version: '3.0.0-a.b', packageTypes: tool });
  const all = {
    flags: 15 + 32 + 64,
    package_id: 'LIb',
    package_types: 'DotnetTool Template',
    stable: '1.0.0',
    pre: '1.0.0',
    stable2: '2.0.0',
    pre2: '3.0.0-a.b',
    revision: 4,
    updated_at: 2000,
  };
  t.deepEqual(await newest(hosted), all);
  await setListed(hosted.context, 1, 'lib', '3.0.0-a.b', false);
  const second = { ...all, flags: 15 + 16, package_id: 'lib', package_types: 'Dependency', pre2: '2.0.0' };
  t.deepEqual(await newest(hosted), { ...second, revision: 5 });
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  t.deepEqual(await newest(hosted), {
    ...second,
    flags: 2 + 4 + 8 + 16,
    stable: null,
    pre: '1.0.0-a',
    revision: 6,
  });
  for (const version of ['1.0.0-a', '1.0.0', '2.0.0']) await deleteVersion(hosted.context, 1, 'lib', version);
  t.deepEqual(await newest(hosted), {
    ...second,
    flags: 0,
    stable: null,
    pre: null,
    stable2: null,
    pre2: null,
    revision: 9,
  });
});

test('the types of a package have at most 255 characters together', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', packageTypes: [{ name: 'a'.repeat(200) }, { name: 'b'.repeat(100) }] });
  t.is((await newest(hosted))['package_types'], `${'a'.repeat(200)} ${'b'.repeat(54)}`);
});

test('a package and its version are locked by their names in any spelling, in their account', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Other' });
  await hosted.push({ id: 'Lib', version: '1.0.0-RC' });
  const inTransaction = <T>(work: (tx: any) => Promise<T>) => hosted.store.database.transaction(work);
  const [row] = await hosted.rows<{ id: number }>("SELECT id FROM packages WHERE package_key = 'lib'");
  const [version] = await hosted.rows<{ id: number }>("SELECT id FROM package_versions WHERE version = '1.0.0-RC'");
  t.is(await inTransaction((tx) => lockPackage(tx, 1, 'LIB')), row!.id);
  t.is(await inTransaction((tx) => lockPackage(tx, 2, 'LIB')), undefined);
  t.deepEqual(await inTransaction((tx) => lockVersion(tx, 1, 'LIB', '1.00-rc')), {
    packageRow: row!.id,
    versionRow: version!.id,
    subject: { kind: 'package', name: 'Lib', reference: '1.0.0-RC' },
  });
  for (const [account, id, name] of [
    [1, 'Lib', '1.0.0'],
    [1, 'Lib', 'x'],
    [2, 'Lib', '1.0.0-rc'],
    [1, 'None', '1.0.0'],
  ] as const)
    await t.throwsAsync(
      inTransaction((tx) => lockVersion(tx, account, id, name)),
      { name: 'NotFound', message: `${id} ${name} does not exist in this feed.` },
    );
  const long = versionNotFound('a'.repeat(101), 'b'.repeat(101));
  t.is(long.message, `${'a'.repeat(100)} ${'b'.repeat(100)} does not exist in this feed.`);
});

/** The search index of a package of account 1. */
async function indexOf(hosted: HostedPackages, key = 'lib') {
  const [row] = await hosted.rows<{ id: number; terms: string; id_terms: string; index_version: number }>(
    `SELECT id, terms, id_terms, index_version FROM packages WHERE account_id = 1 AND package_key = '${key}'`,
  );
  const { id, ...described } = row!;
  const under = (table: string, columns: string) =>
    hosted.rows(`SELECT ${columns} FROM ${table} WHERE package_row = ${id} ORDER BY 1, 2`);
  return {
    ...described,
    words: await under('package_terms', 'account_id, term, standing, fields, flags'),
    frameworks: await under('package_frameworks', 'family, version'),
    dependencies: await under('package_dependencies', 'account_id, dependency_key'),
  };
}

/** What the index has of a package with this metadata. */
function indexed(text: string, flags: number, standing = 63) {
  const terms = termsOf(parseMetadata(text));
  return {
    terms: describeTerms(terms),
    id_terms: idTermsOf(terms),
    index_version: 2,
    words: terms
      .map(({ term, tier, fields }) => ({ account_id: 1, term, standing: tier * tierWidth + standing, fields, flags }))
      .toSorted((one, other) => Buffer.compare(Buffer.from(one.term), Buffer.from(other.term))),
  };
}

const group = (targetFramework: string, ...ids: string[]) => ({
  targetFramework,
  dependencies: ids.map((id) => ({ id })),
});

test('the index has the words, frameworks and dependencies of the newest listed version, and loses the others', async (t) => {
  const hosted = await HostedPackages.open(t);
  const packageTypes = [{ name: 'A type' }];
  await hosted.push({
    id: 'Lib',
    version: '1.0.0',
    tags: 'old shared',
    packageTypes,
    dependencyGroups: [group('net8.0', 'Dep', 'DEP', 'Other'), group('net472', 'Third'), group('net6.0')],
  });
  await hosted.push({ id: 'Lib', version: '1.0.0', tags: 'theirs' }, { account: 2 });
  await hosted.push({ id: 'App', tags: 'shared' });
  const metadata = (version: string) =>
    hosted
      .rows<{ metadata: string }>(
        `SELECT metadata FROM package_versions WHERE version = '${version}' ORDER BY id LIMIT 1`,
      )
      .then(([row]) => row!.metadata);
  const one = {
    ...indexed(await metadata('1.0.0'), 15),
    frameworks: [
      { family: 'core', version: 60_000 },
      { family: 'framework', version: 40_702 },
    ],
    dependencies: ['dep', 'other', 'third'].map((dependency_key) => ({ account_id: 1, dependency_key })),
  };
  t.deepEqual(await indexOf(hosted), one);
  const app = await indexOf(hosted, 'app');
  const theirs = await hosted.rows('SELECT * FROM package_terms WHERE account_id = 2');
  await hosted.push({
    id: 'Lib',
    version: '2.0.0',
    tags: 'new shared',
    dependencyGroups: [group('netstandard2.0', 'Dep', 'Fourth'), group('net48')],
  });
  t.deepEqual(await indexOf(hosted), {
    ...indexed(await metadata('2.0.0'), 15 + 16),
    frameworks: [
      { family: 'framework', version: 40_800 },
      { family: 'standard', version: 20_000 },
    ],
    dependencies: ['dep', 'fourth'].map((dependency_key) => ({ account_id: 1, dependency_key })),
  });
  await setListed(hosted.context, 1, 'lib', '2.0.0', false);
  t.deepEqual(await indexOf(hosted), one);
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  t.deepEqual(await indexOf(hosted), {
    terms: '',
    id_terms: '',
    index_version: 2,
    words: [],
    frameworks: [],
    dependencies: [],
  });
  t.deepEqual(await indexOf(hosted, 'app'), app);
  t.deepEqual(await hosted.rows('SELECT * FROM package_terms WHERE account_id = 2'), theirs);
});

test('an index of an earlier release is written again, with the flags of today', async (t) => {
  const hosted = await HostedPackages.open(t);
  await hosted.push({ id: 'Lib', tags: 'word' });
  const before = await indexOf(hosted);
  const { database } = hosted.store;
  const refresh = () => database.transaction((tx) => refreshPackage(tx, 1, 1000));
  await database.transaction(async (tx) => {
    await tx.run("UPDATE packages SET index_version = 1, id_terms = 'x'");
    await tx.run('UPDATE package_terms SET fields = 0, standing = 0, flags = 0');
  });
  await refresh();
  t.deepEqual(await indexOf(hosted), before);
  await database.transaction((tx) => tx.run('UPDATE package_terms SET fields = 0'));
  await refresh();
  t.true(
    (await indexOf(hosted)).words.every((each) => each['fields'] === 0),
    'nothing is written without a change',
  );
  await database.transaction((tx) => tx.run('UPDATE packages SET flags = 0'));
  await refresh();
  t.deepEqual(await indexOf(hosted), before);
});

const metadata = (length: number) =>
  JSON.stringify({
    id: 'Lib',
    packageTypes: [],
    dependencyGroups: [{ dependencies: [{ id: 'd'.repeat(length), range: '(, )' }] }],
  });

test('more dependencies than one statement writes are in the index, and none that is too long', async (t) => {
  const hosted = await HostedPackages.open(t);
  const ids = Array.from({ length: 900 }, (_, index) => `Dep${index}`);
  await hosted.push({ id: 'Lib', dependencies: ids.map((id) => ({ id })) });
  t.is((await indexOf(hosted)).dependencies.length, 900);
  for (const [length, count] of [
    [128, 1],
    [129, 0],
  ] as const) {
    await hosted.store.database.transaction(async (tx) => {
      await tx.run('UPDATE package_versions SET metadata = ?', [metadata(length)]);
      await refreshPackage(tx, 1, 1000);
    });
    t.is((await indexOf(hosted)).dependencies.length, count);
  }
});

test('a package with other downloads moves with all its words, also those with spaces', async (t) => {
  const hosted = await HostedPackages.open(t);
  const { database } = hosted.store;
  await hosted.push({ id: 'Lib', packageTypes: [{ name: 'Some type 7' }] });
  await hosted.push({ id: 'Lib', packageTypes: [{ name: 'Some type 7' }] }, { account: 2 });
  await hosted.push({ id: 'App' });
  const [before, app] = [await indexOf(hosted), await indexOf(hosted, 'app')];
  t.true(before.words.some((each) => each['term'] === '#some type 7'));
  const theirs = await hosted.rows('SELECT * FROM package_terms WHERE account_id = 2');
  const move = (standing: number) =>
    database.transaction(async (tx) => {
      const row = await tx.get(
        'SELECT id, account_id, standing, flags, terms, index_version FROM packages WHERE id = 1',
      );
      await movePackage(tx, row as never, standing);
    });
  await move(40);
  t.deepEqual(await hosted.rows('SELECT standing FROM packages ORDER BY id'), [
    { standing: 40 },
    { standing: 63 },
    { standing: 63 },
  ]);
  t.deepEqual(
    (await indexOf(hosted)).words,
    before.words.map((each) => ({ ...each, standing: (each['standing'] as number) - 23 })),
  );
  t.deepEqual(await indexOf(hosted, 'app'), app);
  t.deepEqual(await hosted.rows('SELECT * FROM package_terms WHERE account_id = 2'), theirs);
  await move(63);
  t.deepEqual(await indexOf(hosted), before);
  await database.transaction((tx) => tx.run('UPDATE package_terms SET standing = 1 WHERE account_id = 1'));
  await move(63);
  t.true(
    (await indexOf(hosted)).words.every((each) => each['standing'] === 1),
    'nothing moves to its own place',
  );
  await setListed(hosted.context, 1, 'lib', '1.0.0', false);
  await move(50);
  t.deepEqual((await hosted.rows('SELECT standing FROM packages ORDER BY id'))[0], { standing: 50 });
});
