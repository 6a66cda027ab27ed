import { createHash } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { makeNupkg, makeNuspec, pngPixel } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { damages, filesOf } from '../support/damage.ts';
import { createToken, flushUsage, rowsOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

async function versionsOf(server: TestServer, id: string, query = ''): Promise<string[]> {
  const found: string[] = [];
  for (let cursor = ''; ;) {
    const page: any = await (await server.fetch(`/v1/packages/${id}/versions?limit=2${query}${cursor}`)).json();
    found.push(...page.items.map(({ version }: any) => version));
    if (page.next_cursor === null) return found;
    cursor = `&cursor=${page.next_cursor}`;
  }
}

for (const dialect of dialects) {
  test(`${dialect}: versions are listed in their order, page by page, hosted and mirrored, and described`, async (t) => {
    const up = await UpstreamFeed.start(t);
    const server = await startMirrorOf(t, [up.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    const document = await OpenDocument.of(server);
    const feed = new TestFeed(server);
    const order = ['10.0.0', '2.0.0', '2.0.0-rc.1', '1.10.0', '1.2.0'];
    for (const version of order) await feed.publish({ id: 'Hosted', version, tags: 'a b', readme: '# R' });
    await up.offer({ id: 'Mirrored', versions: order.toReversed().map((version) => ({ version })) });
    for (const version of order) {
      await (await feed.fetch(`/package/mirrored/${version}/mirrored.${version}.nupkg`)).arrayBuffer();
    }
    for (const id of ['hosted', 'mirrored'])
      await (await feed.fetch(`/package/${id}/2.0.0/${id}.2.0.0.nupkg`)).arrayBuffer();
    for (const id of ['Hosted', 'Mirrored']) {
      t.deepEqual(await versionsOf(server, id), order, id);
      t.deepEqual(await versionsOf(server, id, '&sort=oldest'), order.toReversed(), id);
      const byUse = ['2.0.0', '1.2.0', '1.10.0', '2.0.0-rc.1', '10.0.0'];
      // A download counts when its answer has ended here, which may be after its client has it.
      const used = async () => {
        await flushUsage(server);
        return versionsOf(server, id, '&sort=downloads');
      };
      t.deepEqual(await eventually(used, (found) => found.join() === byUse.join()), byUse, id);
      t.deepEqual(await versionsOf(server, id, '&q=2.0.0-RC'), ['2.0.0-rc.1'], id);
      const range = encodeURIComponent('(1.2.0, 10.0.0)');
      t.deepEqual(await versionsOf(server, id, `&range=${range}`), ['2.0.0', '2.0.0-rc.1', '1.10.0'], id);
      await document.read('GET /packages/{id}/versions', await server.fetch(`/v1/packages/${id}/versions`));
      const one = await document.read('GET /packages/{id}/{version}', await server.fetch(`/v1/packages/${id}/1.2`));
      t.like(one, { id, version: '1.2.0', origin: id.toLowerCase(), listed: true, is_advice_known: true });
    }
    const hosted: any = await (await server.fetch('/v1/packages/hosted/2.0.0')).json();
    t.like(hosted, { readme: '# R', tags: ['a', 'b'], upstream: null, is_readme_whole: true });
    t.is((await server.fetch('/v1/packages/none/versions')).status, 404);
    t.is((await server.fetch('/v1/packages/none/1.0.0')).status, 404);
    const origin = async (query: string) => {
      const { items }: any = await (await server.fetch(`/v1/packages?origin=${query}`)).json();
      return items.map(({ id }: any) => id);
    };
    t.deepEqual([await origin('hosted'), await origin('mirrored')], [['Hosted'], ['Mirrored']]);
    t.is((await server.fetch('/v1/packages?origin=x')).status, 400);
  });
}

const described = (id: string) => ({
  package_types: ['Dependency'],
  description: `About ${id}`,
  authors: 'Some Author',
});

test('a version is described with all that its nuspec says, and nothing that it does not say', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  server.clock.now = Date.UTC(2026, 2, 4, 5, 6, 7, 89);
  const rich = {
    id: 'Contoso.Rich',
    version: '1.2.3-Beta.1+build',
    title: 'Rich',
    description: 'Of much.',
    summary: 'Much.',
    authors: 'Ann, Bob',
    tags: 'one two',
    projectUrl: 'https://example.com/rich',
    license: { type: 'expression', value: 'MIT' },
    minClientVersion: '3.0',
    developmentDependency: true,
    releaseNotes: 'n'.repeat(4001),
    repository: { type: 'git', url: 'https://example.com/git', commit: 'abc' },
    icon: pngPixel,
    readme: '\uFEFFhello \uFEFF',
    packageTypes: [{ name: 'DotnetTool', version: '1.0' }, { name: 'Template' }],
    dependencyGroups: [
      { targetFramework: 'net8.0', dependencies: [{ id: 'Newtonsoft.Json', version: '13.0.1' }] },
      { dependencies: [] },
    ],
  };
  const more = '<copyright>All rights</copyright><requireLicenseAcceptance>true</requireLicenseAcceptance><title>';
  const nuspec = makeNuspec({ ...rich, iconPath: 'icon.png', readmePath: 'README.md' }).replace('<title>', more);
  const file = { id: 'File', license: { type: 'file', value: 'license.txt' }, files: { 'license.txt': 'Mine' } };
  const linked = '<licenseUrl>https://example.com/license</licenseUrl><description>';
  const bare = { id: 'Bare', nuspec: makeNuspec({ id: 'Bare' }).replace('<description>', linked) };
  const made = new Map<string, Buffer>();
  for (const each of [{ ...rich, nuspec }, file, bare, { id: 'Lost', tags: 'a', icon: pngPixel }]) {
    const nupkg = await makeNupkg(each);
    made.set(each.id, nupkg);
    t.is((await feed.push(nupkg)).status, 201);
  }
  t.is((await feed.fetch('/push/file/1.0.0', { method: 'DELETE' })).status, 204);
  const common = (id: string) => ({
    published_at: '2026-03-04T05:06:07.089Z',
    cached_at: null,
    withdrawn_at: null,
    size_bytes: made.get(id)!.length,
    sha512: createHash('sha512').update(made.get(id)!).digest('base64'),
    download_count: 0,
    id,
    origin: 'hosted',
    upstream: null,
    deprecation: null,
    vulnerabilities: [],
    is_readme_whole: true,
    is_advice_known: true,
  });
  const nothing = {
    title: null,
    copyright: null,
    release_notes: null,
    project_url: null,
    repository_url: null,
    repository_commit: null,
    license_expression: null,
    license_file: null,
    license_url: null,
    requires_license_acceptance: false,
    development_dependency: false,
    min_client_version: null,
    dependency_groups: [],
    has_icon: false,
    readme: null,
    tags: [],
    version: '1.0.0',
    listed: true,
  };
  const details = async (path: string) => (await server.fetch(`/v1/packages/${path}`)).json();
  t.deepEqual(await details('contoso.rich/1.2.3-beta.1'), {
    ...common('Contoso.Rich'),
    version: '1.2.3-Beta.1',
    listed: true,
    package_types: ['DotnetTool', 'Template'],
    title: 'Rich',
    description: 'Of much.',
    authors: 'Ann, Bob',
    tags: ['one', 'two'],
    copyright: 'All rights',
    release_notes: 'n'.repeat(4000),
    project_url: 'https://example.com/rich',
    repository_url: 'https://example.com/git',
    repository_commit: 'abc',
    license_expression: 'MIT',
    license_file: null,
    license_url: null,
    requires_license_acceptance: true,
    development_dependency: true,
    min_client_version: '3.0',
    dependency_groups: [
      {
        target_framework: 'net8.0',
        dependencies: [{ id: 'Newtonsoft.Json', range: '[13.0.1, )', severity: null, deprecated: false }],
      },
      { target_framework: null, dependencies: [] },
    ],
    has_icon: true,
    readme: 'hello \uFEFF',
  });
  t.deepEqual(await details('file/1.0'), {
    ...common('File'),
    ...nothing,
    ...described('File'),
    license_file: 'license.txt',
    listed: false,
  });
  t.deepEqual(await details('bare/1.0.0'), {
    ...common('Bare'),
    ...nothing,
    ...described('Bare'),
    license_url: 'https://example.com/license',
  });
  // The rest is told of a version whose nuspec is damaged.
  const [row] = await rowsOf<{ digest: string }>(
    server,
    'SELECT nuspec_digest AS digest FROM package_versions ORDER BY id DESC',
  );
  await damages.missing(filesOf(server, row!.digest).stored);
  t.deepEqual(await details('lost/1.0.0'), {
    ...common('Lost'),
    ...nothing,
    package_types: [],
    description: null,
    authors: null,
  });
});

test('a README of 100,000 characters is whole, a longer one is cut, and a damaged one is left out', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Most', readme: 'a'.repeat(100_000) });
  const most: any = await (await server.fetch('/v1/packages/Most/1.0.0')).json();
  t.deepEqual([most.readme.length, most.is_readme_whole], [100_000, true]);
  await feed.publish({ id: 'Long', readme: 'a'.repeat(150_000) });
  const long: any = await (await server.fetch('/v1/packages/Long/1.0.0')).json();
  t.deepEqual([long.readme.length, long.is_readme_whole], [100_000, false]);
  await feed.publish({ id: 'Damaged', readme: '# Lost' });
  const [row] = await rowsOf<{ digest: string }>(
    server,
    'SELECT readme_digest AS digest FROM package_versions ORDER BY id DESC',
  );
  await damages.missing(filesOf(server, row!.digest).stored);
  const damaged: any = await (await server.fetch('/v1/packages/Damaged/1.0.0')).json();
  t.like(damaged, { readme: null, id: 'Damaged', description: 'About Damaged' });
});

test('with anonymousRead mirrored, a visitor without a token sees only versions of upstreams', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')], { anonymousRead: 'mirrored' });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Hosted' });
  await up.offer({ id: 'Mirrored', versions: [{ version: '1.0.0' }] });
  await (await feed.fetch('/package/mirrored/1.0.0/mirrored.1.0.0.nupkg')).arrayBuffer();
  const status = async (path: string) => (await server.fetch(path, { token: null })).status;
  t.is(await status('/v1/packages/Mirrored/1.0.0'), 200);
  t.is(await status('/v1/packages/Mirrored/versions'), 200);
  t.is(await status('/v1/packages/Hosted/1.0.0'), 401);
  t.is(await status('/v1/packages/Hosted/versions'), 401);
});

test('a dependency is marked only for who may read the package that it names', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const dependencies = ['Old', 'Fine'].map((id) => ({ id, version: '1.0.0' }));
  await feed.publish({ id: 'Old' }, { id: 'Fine' }, { id: 'App', dependencies });
  // NuGet chooses the lowest version of a range, if the range has one.
  const ranges = ['[1.0.0]', '[1.0, 2.0.0)', '(1.0.0, )', '(, 1.0.0]', '0.9.0', '1.0.1'];
  const dependencyGroups = ranges.map((version, number) => ({
    targetFramework: `net${number + 5}.0`,
    dependencies: [{ id: 'OLD', version }],
  }));
  await feed.publish({ id: 'Ranges', dependencyGroups });
  const deprecated = await server.fetch('/v1/packages/Old/1.0.0/deprecation', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ reasons: ['Legacy'] }),
  });
  t.true(deprecated.ok);
  const marks = async (token?: string) => {
    const details: any = await (await server.fetch('/v1/packages/App/1.0.0', { ...(token && { token }) })).json();
    return details.dependency_groups[0].dependencies.map((each: any) => [each.id, each.deprecated]);
  };
  const limitedTo = async (...packages: string[]) =>
    (await createToken(server, ['read'], 'default', { packages })).value;
  const known = [
    ['Old', true],
    ['Fine', false],
  ];
  // A first answer may come before the marks are collected.
  await eventually(marks, (found) => found[0][1]);
  t.deepEqual(await marks(), known);
  t.deepEqual(await marks(await limitedTo('App', 'Old')), known);
  t.deepEqual(await marks(await limitedTo('App')), [
    ['Old', false],
    ['Fine', false],
  ]);
  const { dependency_groups: groups }: any = await (await server.fetch('/v1/packages/Ranges/1.0.0')).json();
  t.deepEqual(
    groups.flatMap((group: any) => group.dependencies.map(({ deprecated: mark }: any) => mark)),
    [true, true, false, false, false, false],
  );
});
