import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { dangers, hostile } from '../support/hostile.ts';
import { createToken, flushUsage, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';
import { eventually } from '../support/until.ts';
import { json, startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { Visitor } from '../support/visitor.ts';

test('the list has hosted and mirrored packages with their origin, filtered and paged, and empty states', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/packages'), /class="empty">\s*No packages yet/);
  t.regex(await visitor.page('/console/packages?origin=mirrored'), /class="empty">\s*No package was mirrored yet/);
  const feed = new TestFeed(server);
  await feed.publish(...Array.from({ length: 50 }, (_, index) => ({ id: `Made.P${String(index).padStart(2, '0')}` })));
  await up.offer({ id: 'Zoo', versions: [{ version: '1.0.0' }] });
  await (await feed.fetch('/package/zoo/1.0.0/zoo.1.0.0.nupkg')).arrayBuffer();
  const page = await visitor.page('/console/packages');
  t.regex(page, /<a href="\/console\/packages" aria-current="page">Packages<\/a>/);
  t.regex(page, /<a href="\/console\/packages\/Made\.P49">/);
  const [, next] = /<a href="([^"]+)" rel="next">/.exec(page)!;
  const second = await visitor.page(next!.replaceAll('&amp;', '&'));
  t.regex(second, /\/console\/packages\/Zoo">[^]*mirrored from up\.test/);
  const mirrored = await visitor.page('/console/packages?origin=mirrored');
  t.notRegex(mirrored, /Made\.P/);
  t.regex(mirrored, /packages\/Zoo/);
  t.notRegex(await visitor.page('/console/packages?origin=hosted'), /rel="next"|Zoo/);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'other'));
  t.notRegex(await other.page('/console/packages'), /Made\.P/);
  t.is((await other.fetch('/console/packages/Made.P01')).status, 404);
  t.is((await other.fetch('/console/packages/Made.P01/1.0.0')).status, 404);
  const patterns = { packages: ['Made.P0*'] };
  const { value } = await createToken(server, ['read'], 'default', patterns);
  const narrow = await Visitor.signedIn(server, value);
  t.notRegex(await narrow.page('/console/packages'), /Made\.P1|Zoo/);
  t.is((await narrow.fetch('/console/packages/Made.P01')).status, 200);
  t.is((await narrow.fetch('/console/packages/Made.P11')).status, 403);
});

test('the page of a hosted package has install lines, README, dependencies, facts, versions and who pushed it', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const versions = Array.from({ length: 60 }, (_, index) => ({ id: 'Contoso.Json', version: `1.${index}.0` }));
  await feed.publish(...versions, {
    id: 'Contoso.Json',
    version: '2.0.0',
    title: 'Contoso JSON',
    authors: 'Ada, Grace',
    tags: 'json serialiser',
    readme: '# Hello\n\nSee [docs](https://docs.test/) ![logo](https://evil.test/a.png)',
    license: { type: 'expression', value: 'MIT' },
    developmentDependency: true,
    minClientVersion: '5.0',
    projectUrl: 'https://project.test/',
    repository: { type: 'git', url: 'https://source.test/repo', commit: 'abc123' },
    dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Contoso.Core', version: '[1.0, 2.0)' }] }],
  });
  await feed.fetch('/push/Contoso.Json/1.5.0', { method: 'DELETE' });
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/packages/contoso.json');
  t.regex(page, /dotnet add package Contoso\.Json --version 2\.0\.0/);
  t.regex(page, /&lt;PackageReference Include=&quot;Contoso\.Json&quot; Version=&quot;2\.0\.0&quot; \/&gt;/);
  t.regex(page, /&lt;packageSources&gt;/);
  t.regex(page, /%NUGET_TOKEN%/);
  t.regex(page, /<h3>Hello<\/h3>/);
  t.regex(page, /<a href="https:\/\/docs\.test\/" rel="nofollow noopener">docs<\/a> logo/);
  t.notRegex(page, /<img/);
  const tab = (show: string) => visitor.page(`/console/packages/Contoso.Json?show=${show}`);
  t.regex(
    await tab('dependencies'),
    /net8\.0[^]*<a href="\/console\/packages\/Contoso\.Core">Contoso\.Core<\/a>\s*<span class="quiet">\[1\.0\.0, 2\.0\.0\)/,
  );
  for (const text of ['Ada, Grace', 'json, serialiser', 'MIT', 'https://project.test/', 'abc123', 'Contoso JSON']) {
    t.true(page.includes(text), text);
  }
  t.regex(page, /<a href="https:\/\/source\.test\/repo" rel="nofollow noopener">/);
  t.regex(page, /<dt><\/dt>\s*<dd>Used only while building\.<\/dd><dt>Needs NuGet<\/dt>\s*<dd>5\.0<\/dd>/);
  t.regex(await tab('history'), /Who did what[^]*package\.unlisted/);
  t.regex(page, /Latest versions[^]*>2\.0\.0<[^]*>1\.59\.0<[^]*All 61 versions/);
  t.notRegex(page, />1\.50\.0</);
  t.notRegex(page, /The rest is in the package/);
  await feed.publish(
    { id: 'Contoso.Text', version: '1.0.0', readme: 'x'.repeat(65_536) },
    { id: 'Contoso.Text', version: '2.0.0', readme: 'x'.repeat(65_537) },
  );
  t.notRegex(await visitor.page('/console/packages/Contoso.Text/1.0.0'), /The rest is in the package/);
  t.regex(await visitor.page('/console/packages/Contoso.Text/2.0.0'), /The rest is in the package\./);
  await feed.publish({ id: 'Contoso.Web', dependencies: [{ id: 'Contoso.Json', version: '[1.0.0, )' }] });
  t.regex(await tab('used'), /href="\/console\/packages\/Contoso\.Web"[^]*\[1\.0\.0, \)/);
  t.regex(await tab('used'), /Who uses it[^]*<a href="\/console\/tokens\/[0-9a-f-]+">first token<\/a>/);
  t.regex(await tab('versions&q=1.59'), />1\.59\.0<[^]*<\/table>/);
  t.notRegex(await tab('versions&q=1.59'), />2\.0\.0<\/a><\/td>/);
  t.regex(await tab('versions&q=7'), /Nothing matches\. <a href="\/console\/packages\/Contoso\.Json\?show=versions">/);
  t.regex(page, /GET \/v1\/packages\/Contoso\.Json\/2\.0\.0/);
  const [, next] = /<button name="cursor" value="([^"]+)">Next page/.exec(await tab('versions'))!;
  t.regex(await tab('versions'), /<button name="sort" value="oldest">From the end<\/button>/);
  const oldest = await tab('versions&sort=oldest');
  t.regex(oldest, /aria-sort="ascending"[^]*\/1\.0\.0">1\.0\.0<[^]*<button name="sort" value="">From the end/);
  const second = await tab(`versions&cursor=${encodeURIComponent(next!)}`);
  t.regex(second, /packages\/Contoso\.Json\/1\.5\.0">1\.5\.0<\/a><\/td>\s*<td[^>]*><span class="state warn">unlisted/);
  const old = await visitor.page('/console/packages/Contoso.Json/1.5');
  t.regex(old, /<strong>Unlisted\.<\/strong>/);
  t.regex(old, /--version 1\.5\.0/);
  t.is((await visitor.fetch('/console/packages/Contoso.Json/9.9.9')).status, 404);
  t.is((await visitor.fetch('/console/packages/Contoso.Json/%3Cscript%3E')).status, 404);
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.notRegex(await reader.page('/console/packages/Contoso.Json?show=history'), /Who did what/);
  t.notRegex(await reader.page('/console/packages/Contoso.Json?show=used'), /Who uses it/);
});

test('the page of a mirrored version shows what its upstream says, and says so if the upstream does not answer', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test', { freshFor: '1ms' })]);
  const entry = {
    deprecation: { reasons: ['Legacy'], message: 'Use the other', alternatePackage: { id: 'Better', range: '*' } },
    vulnerabilities: [{ severity: '2', advisoryUrl: 'https://advisories.test/1' }],
  };
  const nupkg = await makeNupkg({ id: 'Old.Lib', version: '1.0.0', readme: '# From the nupkg' });
  await up.offer({ id: 'Old.Lib', versions: [{ version: '1.0.0', nupkg, entry }, { version: '2.0.0' }] });
  const visitor = await Visitor.signedIn(server);
  const before = up.asked.length;
  t.regex(await (await visitor.fetch('/console/packages/Old.Lib')).text(), /not stored here/);
  t.is(up.asked.length, before, 'a page asks nothing for a package that is not here');
  const feed = new TestFeed(server);
  await (await feed.fetch('/package/old.lib/1.0.0/old.lib.1.0.0.nupkg')).arrayBuffer();
  // A busy machine can get the answer of the upstream too late for the first page.
  const show = () => visitor.page('/console/packages/Old.Lib');
  const page = await eventually(show, (text) => text.includes('Deprecated') && text.includes('known vulnerability'));
  t.regex(page, /mirrored from up\.test/);
  t.regex(
    page,
    /<strong>Deprecated<\/strong\s*>\s*\(Legacy\)\.\s*Use the other\s*Use\s*<a href="\/console\/packages\/Better">Better<\/a\s*>\s*instead\./,
  );
  t.regex(
    page,
    /class="warning severe"[^]*1 known vulnerability:[^]*high: <a href="https:\/\/advisories\.test\/1" rel="nofollow noopener">/,
  );
  t.regex(page, /<h3>From the nupkg<\/h3>/);
  t.regex(await visitor.page('/console/packages/Old.Lib?show=history'), /First seen here/);
  t.is((await visitor.fetch('/console/packages/Old.Lib/2.0.0')).status, 404, 'only stored versions');
  t.false(
    up.asked.some((path) => /readme|nuspec|2\.0\.0\.nupkg/.test(path)),
    'no file is fetched for a page',
  );
});

test('while the upstream is silent, a page of a mirrored package is ready in time', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test', { timeout: '30s' })]);
  await up.offer({ id: 'Old.Lib', versions: [{ version: '1.0.0' }] });
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'base', '@id': `${up.url}/v.json`, '@updated': '2026-01-01T00:00:00Z' }]),
  );
  const known = { severity: 3, url: 'https://advisories.test/2', versions: '(, 2.0.0)' };
  const others = { severity: 0, url: 'https://advisories.test/3', versions: '[2.0.0, )' };
  up.upstream.on('/v.json', json({ 'old.lib': [known, others, null, { severity: 1 }] }));
  up.upstream.on('/registration/old.lib/index.json', () => undefined);
  const feed = new TestFeed(server);
  await (await feed.fetch('/package/old.lib/1.0.0/old.lib.1.0.0.nupkg')).arrayBuffer();
  const visitor = await Visitor.signedIn(server);
  const page = await eventually(
    () => visitor.page('/console/packages/Old.Lib'),
    (text) => text.includes('critical: <a'),
  );
  t.regex(page, /up\.test did not say whether this version is deprecated/);
  t.regex(page, /critical: <a href="https:\/\/advisories\.test\/2"/);
  t.notRegex(page, /advisories\.test\/3/);
});

test('hostile texts of a package are only text on every page that shows them', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const visitor = await Visitor.signedIn(server);
  for (const [index, text] of hostile.entries()) {
    const id = `Hostile${index}`;
    const options = {
      id,
      title: text,
      description: text,
      authors: text,
      tags: text,
      projectUrl: text,
      readme: `${text}\n\n[a](${text})\n\n![${text}](${text})\n\n<a href="${text}">x</a>`,
      license: { type: 'file', value: 'README.md' },
      repository: { type: text, url: text, commit: text },
      packageTypes: [{ name: text.slice(0, 60) }],
      dependencyGroups: [{ targetFramework: text, dependencies: [] }],
      releaseNotes: text,
    };
    await feed.publish(options);
    await up.offer({
      id: `Mirrored${index}`,
      versions: [
        {
          version: '1.0.0',
          nupkg: await makeNupkg({ ...options, id: `Mirrored${index}` }),
          entry: {
            deprecation: { reasons: [text], message: text, alternatePackage: { id: text, range: text } },
            vulnerabilities: [{ severity: text, advisoryUrl: text }],
          },
        },
      ],
    });
    const key = `mirrored${index}`;
    await (await feed.fetch(`/package/${key}/1.0.0/${key}.1.0.0.nupkg`)).arrayBuffer();
    const parts = ['', 'versions', 'dependencies', 'used', 'history'].map(
      (show) => `/console/packages/${id}?show=${show}`,
    );
    for (const path of [...parts, `/console/packages/Mirrored${index}`, '/console/search?q=hostile']) {
      const page = await visitor.page(path);
      t.deepEqual(dangers(page), [], `${path} ${text}`);
    }
  }
});

test('long texts are cut on the page', async (t) => {
  const server = await startTestServer(t);
  const long = 'w'.repeat(3000);
  await new TestFeed(server).publish({
    id: 'Long',
    title: long,
    authors: long,
    tags: `${long} b`,
    description: `d${long}`,
    dependencies: Array.from({ length: 900 }, (_, index) => ({ id: `Dependency${index}`, version: '1.0.0' })),
    repository: { url: `https://long.test/${'p'.repeat(1500)}`, commit: long },
  });
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/packages/Long');
  t.true(Buffer.byteLength(page) < 100_000, `${page.length}`);
  const dependencies = await visitor.page('/console/packages/Long?show=dependencies');
  t.is(dependencies.match(/packages\/Dependency\d+"/g)!.length, 300);
  t.regex(dependencies, /600 more are in the nuspec/);
  t.true(Buffer.byteLength(dependencies) < 100_000, `${dependencies.length}`);
});

const png = Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), Buffer.alloc(20, 1)]);

test('a package shows its icon and its release notes, and leads to its file, from what is stored', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const nupkg = await makeNupkg({ id: 'Hosted.Lib', version: '1.0.0', icon: png, releaseNotes: 'Faster.\n<b>' });
  t.is((await feed.push(nupkg)).status, 201);
  const theirs = await makeNupkg({ id: 'Their.Lib', version: '2.0.0', icon: png });
  await up.offer({ id: 'Their.Lib', versions: [{ version: '2.0.0', nupkg: theirs }] });
  await up.offer({ id: 'Unread', versions: [{ version: '1.0.0' }] });
  await (await feed.fetch('/package/their.lib/2.0.0/their.lib.2.0.0.nupkg')).arrayBuffer();
  await feed.publish({ id: 'Plain', version: '1.0.0' });
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page('/console/packages/Hosted.Lib');
  t.regex(page, /<img class="icon" src="\/console\/packages\/Hosted\.Lib\/1\.0\.0\/icon" alt=""/);
  t.regex(page, /Release notes<\/h2>\s*<p class="notes">Faster\.\n&lt;b&gt;<\/p>/);
  t.regex(page, /<a href="\/console\/packages\/Hosted\.Lib\/1\.0\.0\/file">Download the \.nupkg<\/a>/);
  t.notRegex(await visitor.page('/console/packages/Plain'), /<img|Release notes/);
  const { document } = await OpenDocument.of(server);
  t.deepEqual(Object.keys((document['paths'] as any)['/packages/{id}/{version}/icon'].get.responses[200].content), [
    'image/png',
    'image/jpeg',
  ]);
  const before = up.asked.length;
  for (const [id, version, bytes] of [
    ['Hosted.Lib', '1.0.0', nupkg],
    ['Their.Lib', '2.0.0', theirs],
  ] as const) {
    for (const answer of [
      await visitor.fetch(`/console/packages/${id}/${version}/file`),
      await server.fetch(`/v1/packages/${id}/${version}/file`),
    ]) {
      t.like(Object.fromEntries(answer.headers), {
        'content-type': 'application/octet-stream',
        'content-disposition': `attachment; filename="${id.toLowerCase()}.${version}.nupkg"`,
        'x-content-type-options': 'nosniff',
      });
      t.deepEqual(Buffer.from(await answer.arrayBuffer()), bytes);
    }
    const icon = await visitor.fetch(`/console/packages/${id}/${version}/icon`);
    t.is(icon.headers.get('content-type'), 'image/png');
    t.deepEqual(Buffer.from(await icon.arrayBuffer()), png);
  }
  t.is(up.asked.length, before);
  await flushUsage(server);
  const counted = (await (await server.fetch('/v1/packages/Hosted.Lib')).json()) as { download_count: number };
  t.is(counted.download_count, 2);
  const file = await visitor.fetch('/console/packages/Hosted.Lib/1.0.0/file', { method: 'HEAD' });
  t.is(file.headers.get('cache-control'), 'no-store', 'the address is that of another file in another account');
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'other'));
  for (const path of ['Hosted.Lib/1.0.0/file', 'Hosted.Lib/1.0.0/icon', 'Unread/1.0.0/file', 'Hosted.Lib/x/file']) {
    t.is((await other.fetch(`/console/packages/${path}`)).status, 404, path);
  }
  t.is((await visitor.fetch('/console/packages/Plain/1.0.0/icon')).status, 404);
  const { value } = await createToken(server, ['read'], 'default', { packages: ['Plain'] });
  const narrow = await Visitor.signedIn(server, value);
  const unknown = (await (await server.fetch('/v1/packages/Hosted.Lib/x/file')).json()) as { detail: string };
  t.is(unknown.detail, 'Hosted.Lib x does not exist in this feed.');
  t.is((await narrow.fetch('/console/packages/Hosted.Lib/1.0.0/file')).status, 403);
  const stranger = await new Visitor(server).fetch('/console/packages/Hosted.Lib/1.0.0/file');
  t.regex(stranger.headers.get('location') ?? '', /^\/console\/sign-in\?next=/);
});

test('the packages that depend on a package have further pages', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Needed' });
  for (let number = 10; number < 61; number += 1)
    await feed.publish({ id: `User.N${number}`, dependencies: [{ id: 'Needed', version: '1.0.0' }] });
  const visitor = await Visitor.signedIn(server);
  const first = await visitor.page('/console/packages/Needed?show=used');
  t.regex(first, />User\.N59</);
  t.notRegex(first, />User\.N60</);
  const [, next] = /<a href="([^"]+)" rel="next">/.exec(first)!;
  const second = await visitor.page(next!.replaceAll('&amp;', '&'));
  t.regex(second, />User\.N60</);
  t.notRegex(second, />User\.N59<|rel="next"/);
});

test('a page has the versions that are deprecated, and the section of packages leads to it', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Old' }, { id: 'Fine' });
  const deprecated = await server.fetch('/v1/packages/Old/1.0.0/deprecation', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ reasons: ['Legacy'] }),
  });
  t.true(deprecated.ok);
  const visitor = await Visitor.signedIn(server);
  const page = await eventually(
    () => visitor.page('/console/risks'),
    (text) => text.includes('/console/packages/Old'),
  );
  t.notRegex(page, /Fine/);
  t.regex(page, /<a href="\/console\/risks"[^>]*aria-current="page"/);
  t.regex(await visitor.page('/console/packages'), /<a href="\/console\/risks"/);
  t.regex(await visitor.page('/console/'), /<a href="\/console\/risks">Vulnerable and deprecated<\/a>/);
  const stranger = await new Visitor(server).fetch('/console/risks');
  t.is(stranger.headers.get('location'), '/console/sign-in?next=%2Fconsole%2Frisks');
});
