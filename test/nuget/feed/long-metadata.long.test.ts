import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg, makeNuspec, makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { startTestServer } from '../../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { databaseOf, rowsOf } from '../../support/inside.ts';

// Packages with more metadata than documents show.

const long = (what: string, length: number) => `${what} `.repeat(length).slice(0, length).trim().padEnd(length, '.');
const groups = Array.from({ length: 250 }, (_, group) => ({
  targetFramework: `net${group}.0`,
  dependencies: Array.from({ length: 6 }, (_, each) => ({ id: `D${group}.${each}`, version: '1.0.0' })),
}));

/** A text that does not compress well: otherwise the package is refused as a zip bomb. */
const huge = randomBytes(2 ** 19 + 1).toString('hex');

/** The metadata that documents show of the package below, hosted or mirrored. */
function isShort(t: { is: (a: unknown, b: unknown) => void; true: (a: boolean) => void }, entry: any): void {
  t.is(entry.title.length, 256);
  for (const text of ['description', 'summary', 'authors'] as const) t.is(entry[text].length, 4000);
  t.is(entry.tags.length, 400);
  t.is(entry.projectUrl, undefined);
  t.is(entry.licenseExpression, undefined);
  t.is(entry.packageTypes.length, 16);
  t.is(entry.packageTypes[0].name.length, 255);
  t.is(entry.dependencyGroups.length, 200);
  t.is(entry.dependencyGroups.flatMap(({ dependencies }: any) => dependencies).length, 1000);
  t.is(entry.dependencyGroups[0].dependencies[5].id, 'D0.5');
  t.is(entry.dependencyGroups[199].targetFramework, 'net199.0');
}

const texts = {
  title: long('title', 3000),
  description: long('about', 100_000),
  summary: long('short', 5000),
  authors: long('names', 5000),
  projectUrl: `https://example.com/${'x'.repeat(3000)}`,
};
const tags = Array.from({ length: 500 }, (_, index) => `tag${index}`.padEnd(10, 'x'));
const licenseExpression = Array.from({ length: 200 }, () => 'MIT').join(' OR ');
const packageTypes = Array.from({ length: 100 }, (_, index) => ({ name: `${index}`.padEnd(300, 'T') }));

test('documents shorten long metadata, and the package itself is unchanged', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const nupkg = await makeNupkg({
    id: 'Long',
    ...texts,
    tags: tags.join(' '),
    license: { type: 'expression', value: licenseExpression },
    packageTypes,
    dependencyGroups: groups,
  });
  t.is((await feed.push(nupkg)).status, 201);
  isShort(t, (await feed.json('/registration/long/1.0.0.json')).catalogEntry);
  isShort(t, (await feed.json('/registration-gz-semver2/long/index.json')).items[0].items[0].catalogEntry);
  const [hit] = (await feed.json('/search?q=long')).data;
  t.deepEqual([hit.title.length, hit.description.length, hit.summary.length, hit.tags.length], [256, 4000, 4000, 400]);
  const file = await feed.fetch('/package/long/1.0.0/long.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await file.arrayBuffer()), nupkg);
  const nuspec = await (await feed.fetch('/package/long/1.0.0/long.nuspec')).text();
  t.true(nuspec.includes(texts.description));
});

test('metadata that was stored before there were limits is shown within them', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Old' });
  const metadata = { id: 'Old', ...texts, tags, licenseExpression, packageTypes, dependencyGroups: shownGroups() };
  await databaseOf(server).transaction((tx) =>
    tx.run('UPDATE package_versions SET metadata = ?', [JSON.stringify(metadata)]),
  );
  isShort(t, (await feed.json('/registration/old/1.0.0.json')).catalogEntry);
});

test('an upstream package is shown within the same limits, and not refused for long metadata', async (t) => {
  const up = await UpstreamFeed.start(t);
  const entry = {
    ...texts,
    tags,
    licenseExpression,
    packageTypes,
    dependencyGroups: shownGroups(),
    minClientVersion: '1'.repeat(1000),
    language: 'l'.repeat(1000),
    deprecation: {
      reasons: Array.from({ length: 50 }, () => 'r'.repeat(1000)),
      message: 'm'.repeat(10_000),
      alternatePackage: { id: 'i'.repeat(1000), range: '*' },
    },
    vulnerabilities: Array.from({ length: 500 }, () => ({
      advisoryUrl: 'https://advisories.example/1',
      severity: '2',
    })),
  };
  const nupkg = await makeNupkg({
    id: 'Long',
    nuspec: makeNuspec({ id: 'Long', ...texts, packageTypes, dependencyGroups: groups }),
  });
  await up.offer({ id: 'Long', versions: [{ version: '1.0.0', nupkg, entry }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  for (const shown of [
    (await feed.json('/registration/long/1.0.0.json')).catalogEntry,
    (await feed.json('/registration-gz-semver2/long/index.json')).items[0].items[0].catalogEntry,
  ]) {
    isShort(t, shown);
    t.is(shown.minClientVersion, undefined);
    t.is(shown.language.length, 255);
    t.is(shown.deprecation.reasons.length, 16);
    t.is(shown.deprecation.reasons[0].length, 255);
    t.is(shown.deprecation.message.length, 4000);
    t.is(shown.deprecation.alternatePackage, undefined);
    t.is(shown.vulnerabilities.length, 100);
  }
  const file = await feed.fetch('/package/long/1.0.0/long.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await file.arrayBuffer()), nupkg);
  const details = (await (await server.fetch('/v1/packages/long')).json()) as { package_type: string };
  t.is(details.package_type.length, 255);
});

for (const dialect of dialects) {
  test(`the database size of a package is correct after each change (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    const database = databaseOf(server);
    const counted = async () => {
      const row = await database.get<{ counted: number; actual: number }>(
        `SELECT p.metadata_bytes AS counted,
           (SELECT COALESCE(SUM(OCTET_LENGTH(metadata)), 0) FROM package_versions) +
           (SELECT COALESCE(SUM(100 + OCTET_LENGTH(file_name) + OCTET_LENGTH(path)), 0) FROM package_symbols) AS actual
         FROM packages p`,
      );
      t.is(row!.counted, row!.actual);
      return row!.counted;
    };
    await feed.publish({ id: 'Counted', version: '1.0.0', description: 'ä'.repeat(5000) });
    const one = await counted();
    t.true(one > 8000 && one < 8500);
    await feed.publish({ id: 'Counted', version: '2.0.0', tags: 'some' });
    t.is((await feed.push({ id: 'Counted', version: '2.0.0' })).status, 409);
    const two = await counted();
    const files = Object.fromEntries(Array.from({ length: 250 }, (_, index) => [`lib/a${index}.pdb`, makePdb()]));
    t.is((await feed.push(await makeSnupkg({ id: 'Counted', version: '2.0.0', files }), '/symbols')).status, 201);
    t.true((await counted()) > two + 250 * 100);
    t.is((await feed.push(await makeSnupkg({ id: 'Counted', version: '2.0.0' }), '/symbols')).status, 201);
    t.true((await counted()) < two + 200);
    t.is((await feed.fetch('/push/Counted/2.0.0', { method: 'DELETE' })).status, 204);
    await counted();
    t.is((await server.fetch('/v1/packages/counted/2.0.0', { method: 'DELETE' })).status, 204);
    t.is(await counted(), one);
    t.is((await server.fetch('/v1/packages/counted/1.0.0', { method: 'DELETE' })).status, 204);
    t.is(await counted(), 0);
  });

  test(`a package has up to 100,000 versions, and a symbols package up to 2,000 PDBs (${dialect})`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Full', version: '1.0.0' });
    const pdb = makePdb();
    const snupkg = (count: number) =>
      makeSnupkg({
        id: 'Full',
        files: Object.fromEntries(Array.from({ length: count }, (_, index) => [`lib/a${index}.pdb`, pdb])),
      });
    t.is((await feed.push(await snupkg(2000), '/symbols')).status, 201);
    t.is((await rowsOf(server, 'SELECT path FROM package_symbols')).length, 2000);
    const tooMany = await feed.push(await snupkg(2001), '/symbols');
    t.is(tooMany.status, 400);
    t.regex(tooMany.statusText, /more than 2000 PDBs/);

    await databaseOf(server).transaction((tx) => tx.run('UPDATE packages SET version_count = 100000'));
    const refused = await feed.push({ id: 'Full', version: '1.0.1' });
    t.is(refused.status, 400);
    t.regex(refused.statusText, /Full has 100000 versions/);
    t.is((await feed.push({ id: 'Full', version: '1.0.0' })).status, 409);
  });
}

test('a push with a nuspec over 1 MiB, or with too much markup, is refused', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  for (const [nuspec, reason] of [
    [makeNuspec({ id: 'Big', description: huge }), /nuspec' is larger than 1048576 bytes/],
    [
      makeNuspec({ id: 'Big' }).replace('</metadata>', `${'<a/>'.repeat(60_000)}</metadata>`),
      /more than 20000 elements/,
    ],
    [
      makeNuspec({ id: 'Big' }).replace(
        '<metadata',
        `<metadata ${Array.from({ length: 30_000 }, (_, index) => `a${index}=""`).join(' ')}`,
      ),
      /more than 20000 elements and attributes/,
    ],
  ] as const) {
    const response = await feed.push({ id: 'Big', nuspec });
    t.is(response.status, 400);
    t.regex(response.statusText, reason);
  }
  t.is((await feed.fetch('/package/big/index.json')).status, 404);
});

test('a mirrored nupkg with too much markup in its nuspec never completes and is not stored', async (t) => {
  const up = await UpstreamFeed.start(t);
  const nuspec = makeNuspec({ id: 'Big', description: huge });
  await up.offer({ id: 'Big', versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id: 'Big', nuspec }) }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const completes = async () => {
    const response = await feed.fetch('/package/big/1.0.0/big.1.0.0.nupkg');
    await response.arrayBuffer();
    return response.status === 200;
  };
  for (let round = 0; round < 2; round += 1) t.false(await completes().catch(() => false));
  t.deepEqual(await rowsOf(server, "SELECT * FROM mirror_entries WHERE kind = 'nupkg'"), []);
  t.deepEqual(await feed.json('/package/big/index.json'), { versions: ['1.0.0'] });
});

/** The groups as registrations write them. */
function shownGroups() {
  return groups.map(({ targetFramework, dependencies }) => ({
    targetFramework,
    dependencies: dependencies.map(({ id, version }) => ({ id, range: `[${version}, )` })),
  }));
}
