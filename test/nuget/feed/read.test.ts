import { createHash } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import test from 'ava';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg, makeNuspec, pngPixel } from '../../support/builders/nupkg.ts';
import { raw } from '../../support/raw.ts';
import { startTestServer } from '../../support/server.ts';

const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];

test('the service index: the four fixed types first, one type in each entry, every address absolute and of this server', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const answer = await feed.fetch('/index.json');
  t.is(answer.headers.get('content-type'), 'application/json');
  t.is(answer.headers.get('cache-control'), 'private, no-cache');
  t.is(answer.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  t.is(answer.headers.get('etag'), null);
  const at = (path: string) => `${feed.server.url}/v3/${path}`;
  const versions = ['/3.0.0-beta', '/3.0.0-rc', '/3.5.0'];
  t.deepEqual(await answer.json(), {
    version: '3.0.0',
    resources: [
      { '@id': at('package'), '@type': 'PackageBaseAddress/3.0.0' },
      { '@id': at('search'), '@type': 'SearchQueryService' },
      { '@id': at('registration'), '@type': 'RegistrationsBaseUrl' },
      { '@id': at('push'), '@type': 'PackagePublish/2.0.0' },
      ...versions.map((each) => ({ '@id': at('search'), '@type': `SearchQueryService${each}` })),
      ...['', ...versions].map((each) => ({ '@id': at('autocomplete'), '@type': `SearchAutocompleteService${each}` })),
      { '@id': at('registration'), '@type': 'RegistrationsBaseUrl/3.0.0-beta' },
      { '@id': at('registration'), '@type': 'RegistrationsBaseUrl/3.0.0-rc' },
      { '@id': at('registration-gz'), '@type': 'RegistrationsBaseUrl/3.4.0' },
      { '@id': at('registration-gz-semver2'), '@type': 'RegistrationsBaseUrl/3.6.0' },
      { '@id': at('push'), '@type': 'PackagePublish/3.0.0-preview.1' },
      { '@id': at('symbols'), '@type': 'SymbolPackagePublish/4.9.0' },
      { '@id': at('vulnerabilities/index.json'), '@type': 'VulnerabilityInfo/6.7.0' },
      { '@id': at('package/{lower_id}/{lower_version}/readme'), '@type': 'ReadmeUriTemplate/6.13.0' },
    ],
  });
});

test('addresses come from the configured public URL', async (t) => {
  const server = await startTestServer(t, { server: { feedUrl: 'https://packages.example.com/feed/' } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'A' });
  const texts = await Promise.all(
    [
      '/index.json',
      '/search',
      '/registration/a/index.json',
      '/registration-gz-semver2/a/1.0.0.json',
      '/vulnerabilities/index.json',
    ].map(async (path) => (await feed.fetch(path)).text()),
  );
  for (const text of texts) {
    t.true(text.includes('https://packages.example.com/feed/v3/'));
    t.false(text.includes(server.url));
  }
});

test('every file of a version, in any spelling, with GET and HEAD', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const nupkg = await makeNupkg({
    id: 'Contoso.Icons',
    version: '1.0.0-Beta',
    icon: pngPixel,
    readme: '# Read **me** – ü',
  });
  t.is((await feed.push(nupkg)).status, 201);
  t.deepEqual(await feed.json('/package/CONTOSO.icons/index.json'), { versions: ['1.0.0-beta'] });
  const files: [path: string, type: string, bytes: Buffer | undefined][] = [
    ['contoso.icons/1.0.0-beta/contoso.icons.1.0.0-beta.nupkg', 'application/octet-stream', nupkg],
    ['Contoso.Icons/1.0.0-Beta/Contoso.Icons.1.0.0-Beta.nupkg', 'application/octet-stream', nupkg],
    ['contoso.icons/1.0-beta/contoso.icons.1.0-beta.nupkg', 'application/octet-stream', nupkg],
    ['contoso.icons/1.0.0.0-beta+build/contoso.icons.1.0.0-beta.nupkg', 'application/octet-stream', nupkg],
    ['contoso.icons/1.0.0-beta/contoso.icons.nuspec', 'text/plain', undefined],
    ['contoso.icons/1.0.0-beta/readme', 'text/markdown; charset=utf-8', Buffer.from('# Read **me** – ü')],
    ['contoso.icons/1.0.0-beta/icon', 'image/png', pngPixel],
  ];
  for (const [path, type, bytes] of files) {
    const response = await feed.fetch(`/package/${path}`);
    t.is(response.status, 200, path);
    const body = Buffer.from(await response.arrayBuffer());
    if (bytes) t.deepEqual(body, bytes, path);
    else t.regex(body.toString(), /<id>Contoso\.Icons<\/id>/);
    const head = await raw(server, `/v3/package/${path}`, { method: 'HEAD' });
    t.is(head.body.length, 0, path);
    for (const headers of [Object.fromEntries(response.headers), head.headers]) {
      t.is(headers['content-type'], type, path);
      t.is(headers['content-length'], String(body.length), path);
      t.is(headers['cache-control'], 'private, max-age=31536000, immutable', path);
      t.is(headers['cache-status'], 'entrepot; hit; detail=hosted', path);
      t.regex(String(headers['etag']), /^"sha256:[0-9a-f]{64}"$/, path);
    }
  }
});

test('a range of a package, and no body if the client has it', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const nupkg = await makeNupkg({ id: 'Big', payloadBytes: 200_000 });
  await feed.push(nupkg);
  const path = '/package/big/1.0.0/big.1.0.0.nupkg';
  const part = await feed.fetch(path, { headers: { range: 'bytes=100-199' } });
  t.is(part.status, 206);
  t.is(part.headers.get('content-range'), `bytes 100-199/${nupkg.length}`);
  t.deepEqual(Buffer.from(await part.arrayBuffer()), nupkg.subarray(100, 200));
  const last = await feed.fetch(path, { headers: { range: 'bytes=-10' } });
  t.deepEqual(Buffer.from(await last.arrayBuffer()), nupkg.subarray(-10));
  const outside = await feed.fetch(path, { headers: { range: `bytes=${nupkg.length}-` } });
  t.is(outside.status, 416);
  t.is(outside.headers.get('content-range'), `bytes */${nupkg.length}`);
  const etag = part.headers.get('etag')!;
  t.is((await feed.fetch(path, { headers: { 'if-none-match': etag } })).status, 304);
  const changed = await feed.fetch(path, { headers: { range: 'bytes=0-9', 'if-range': '"other"' } });
  t.is(changed.status, 200);
});

test('a missing package is 404 with a problem document, for every path', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'A' });
  const climbs = [
    '..%2f..%2fetc%2fpasswd',
    '%2e%2e',
    '..%5c..',
    'a%00',
    'A%2f..%2fA',
    '-',
    'a..b',
    'x'.repeat(300),
    '%F0%9F%98%80',
  ];
  const paths = [
    '/package/b/index.json',
    '/package/a/2.0.0/a.2.0.0.nupkg',
    '/package/a/1.0.0/b.1.0.0.nupkg',
    '/package/a/1.0.0/a.2.0.0.nupkg',
    '/package/a/1.0.0/a.1.0.0.zip',
    '/package/a/1.0.0/b.nuspec',
    '/package/a/1.0.0/readme',
    '/package/a/1.0.0/icon',
    '/package/a/one/a.one.nupkg',
    '/nothing',
    ...climbs.flatMap((each) => [
      `/package/${each}/index.json`,
      `/package/a/${each}/a.1.0.0.nupkg`,
      `/package/a/1.0.0/${each}`,
      `/package/${each}/1.0.0/${each}.1.0.0.nupkg`,
      `/symbols/${each}/${each}/${each}`,
      ...hives.flatMap((hive) => [
        `/${hive}/${each}/index.json`,
        `/${hive}/a/${each}.json`,
        `/${hive}/a/page/${each}/${each}.json`,
        `/${hive}/${each}/page/1.0.0/1.0.0.json`,
      ]),
    ]),
  ];
  for (const path of paths) {
    const { status, headers, body } = await raw(server, `/v3${path}`);
    t.is(status, 404, path);
    t.is(headers['content-type'], 'application/problem+json', path);
    t.is(headers['www-authenticate'], undefined, path);
    t.is((JSON.parse(body.toString()) as { status: number }).status, 404, path);
  }
  for (const path of ['/package/%/index.json', '/package/a/%ff/a.1.0.0.nupkg']) {
    t.is((await raw(server, `/v3${path}`)).status, 400, path);
  }
  for (const each of climbs) {
    t.is((await raw(server, `/v3/push/${each}/1.0.0`, { method: 'DELETE' })).status, 404, each);
    t.is((await raw(server, `/v3/push/a/${each}`, { method: 'POST' })).status, 404, each);
  }
});

test('three hives: plain or gzip, with or without SemVer 2', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish(
    { id: 'Mixed', version: '1.0.0' },
    { id: 'Mixed', version: '1.1.0-beta' },
    { id: 'Mixed', version: '2.0.0-beta.1' },
    { id: 'Mixed', version: '2.0.0+build' },
    { id: 'Mixed', version: '3.0.0', dependencies: [{ id: 'X', version: '[1.0.0-a.b, )' }] },
    { id: 'Newest', version: '1.0.0-a.1' },
  );
  const one = ['1.0.0', '1.1.0-beta'];
  for (const [hive, gzip, versions] of [
    ['registration', false, one],
    ['registration-gz', true, one],
    ['registration-gz-semver2', true, [...one, '2.0.0-beta.1', '2.0.0+build', '3.0.0']],
  ] as const) {
    const { status, headers, body } = await raw(server, `/v3/${hive}/mixed/index.json`);
    t.is(status, 200);
    t.is(headers['content-encoding'], gzip ? 'gzip' : undefined, hive);
    t.is(headers['content-length'], String(body.length));
    const document = JSON.parse((gzip ? gunzipSync(body) : body).toString());
    const entries = document.items[0].items.map((leaf: any) => leaf.catalogEntry);
    t.deepEqual(
      entries.map((entry: any) => entry.version),
      versions,
      hive,
    );
    for (const leaf of document.items[0].items) {
      t.is(leaf.registration, `${server.url}/v3/${hive}/mixed/index.json`);
      const alone = await feed.json(leaf['@id']);
      t.is(alone.catalogEntry.version, leaf.catalogEntry.version);
      t.is((await feed.fetch(leaf.packageContent)).status, 200, 'a listed version can be downloaded');
    }
    t.is((await feed.fetch(`/${hive}/newest/index.json`)).status, hive.endsWith('2') ? 200 : 404, hive);
    t.is((await feed.fetch(`/${hive}/mixed/3.0.0.json`)).status, hive.endsWith('2') ? 200 : 404, hive);
    const head = await raw(server, `/v3/${hive}/mixed/index.json`, { method: 'HEAD' });
    t.is(head.headers['content-length'], String(body.length));
    t.is(head.body.length, 0);
  }
});

test('the documents of a registration have the metadata of the nuspec, and nothing that it does not say', async (t) => {
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
    icon: pngPixel,
    readme: 'hello',
    packageTypes: [{ name: 'DotnetTool', version: '1.0' }, { name: 'Template' }],
    dependencyGroups: [
      { targetFramework: 'net8.0', dependencies: [{ id: 'Newtonsoft.Json', version: '13.0.1' }] },
      { targetFramework: 'netstandard2.0', dependencies: [] },
      { dependencies: [] },
    ],
  };
  const more = '<language>en</language><requireLicenseAcceptance>true</requireLicenseAcceptance><title>';
  const nuspec = makeNuspec({ ...rich, iconPath: 'icon.png', readmePath: 'README.md' }).replace('<title>', more);
  const plain = { id: 'Plain', iconUrl: 'https://example.com/icon.png' };
  const license = '<licenseUrl>https://example.com/license</licenseUrl><description>';
  const made = [
    await makeNupkg({ ...rich, nuspec }),
    await makeNupkg({ ...plain, nuspec: makeNuspec(plain).replace('<description>', license) }),
  ] as const;
  for (const each of made) t.is((await feed.push(each)).status, 201);
  const published = '2026-03-04T05:06:07.089+00:00';
  const leafOf = (id: string, version: string, nupkg: Buffer, said: object) => {
    const at = `${server.url}/v3/registration-gz-semver2/${id}`;
    const packageContent = `${server.url}/v3/package/${id}/${version}/${id}.${version}.nupkg`;
    const catalogEntry = {
      '@id': `${at}/${version}.json`,
      '@type': 'PackageDetails',
      ...said,
      listed: true,
      published,
      packageHash: createHash('sha512').update(nupkg).digest('base64'),
      packageHashAlgorithm: 'SHA512',
      packageContent,
    };
    const registration = `${at}/index.json`;
    return { '@id': `${at}/${version}.json`, '@type': 'Package', catalogEntry, packageContent, registration };
  };
  const files = `${server.url}/v3/package/contoso.rich/1.2.3-beta.1`;
  const leaves = {
    'contoso.rich': leafOf('contoso.rich', '1.2.3-beta.1', made[0], {
      id: 'Contoso.Rich',
      version: '1.2.3-Beta.1+build',
      title: 'Rich',
      description: 'Of much.',
      summary: 'Much.',
      authors: 'Ann, Bob',
      tags: ['one', 'two'],
      iconUrl: `${files}/icon`,
      readmeUrl: `${files}/readme`,
      projectUrl: 'https://example.com/rich',
      licenseExpression: 'MIT',
      requireLicenseAcceptance: true,
      minClientVersion: '3.0',
      language: 'en',
      packageTypes: [{ name: 'DotnetTool', version: '1.0' }, { name: 'Template' }],
      dependencyGroups: [
        { targetFramework: 'net8.0', dependencies: [{ id: 'Newtonsoft.Json', range: '[13.0.1, )' }] },
        { targetFramework: 'netstandard2.0', dependencies: [] },
        { dependencies: [] },
      ],
    }),
    plain: leafOf('plain', '1.0.0', made[1], {
      id: 'Plain',
      version: '1.0.0',
      description: 'About Plain',
      authors: 'Some Author',
      tags: [],
      iconUrl: 'https://example.com/icon.png',
      licenseUrl: 'https://example.com/license',
      requireLicenseAcceptance: false,
      packageTypes: [{ name: 'Dependency' }],
    }),
  };
  for (const [id, leaf] of Object.entries(leaves)) {
    const hive = '/registration-gz-semver2';
    const at = `${server.url}/v3${hive}/${id}`;
    const index = {
      '@id': `${at}/index.json`,
      '@type': ['catalog:CatalogRoot', 'PackageRegistration', 'catalog:Permalink'],
      count: 1,
    };
    const page = { '@type': 'catalog:CatalogPage', count: 1, items: [leaf], parent: index['@id'] };
    const bound = id === 'plain' ? '1.0.0' : '1.2.3-Beta.1';
    const first = { '@id': `${index['@id']}#page/${bound}/${bound}`, ...page, lower: bound, upper: bound };
    t.deepEqual(await feed.json(`${hive}/${id}/index.json`), { ...index, items: [first] });
    t.deepEqual(await feed.json(`${hive}/${id}/page/1.0/2.0.json`), {
      '@id': `${at}/page/1.0.0/2.0.0.json`,
      ...page,
      lower: '1.0.0',
      upper: '2.0.0',
    });
    const alone = { ...leaf, '@type': ['Package', 'catalog:Permalink'], listed: true, published };
    t.deepEqual(await feed.json(leaf['@id']), alone);
  }
});

test('a long registration is in pages of 64, each fetched at its address', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const versions = Array.from({ length: 130 }, (_, minor) => `1.${minor}.0`);
  for (let start = 0; start < 127; start += 16) {
    const some = versions.slice(start, Math.min(127, start + 16));
    await Promise.all(some.map((version) => feed.publish({ id: 'Long', version, payloadBytes: 0 })));
  }
  const inline = await feed.json('/registration/long/index.json');
  t.deepEqual(
    inline.items.map((page: any) => [page.count, page.items.length]),
    [
      [64, 64],
      [63, 63],
    ],
  );
  await feed.publish(...versions.slice(127).map((version) => ({ id: 'Long', version, payloadBytes: 0 })));
  const index = await feed.json('/registration-gz/long/index.json');
  t.is(index.count, 3);
  const found: string[] = [];
  for (const page of index.items) {
    t.is(page.items, undefined);
    const document = await feed.json(page['@id']);
    t.is(document['@id'], page['@id']);
    t.is(document.parent, index['@id']);
    t.is(document.count, page.count);
    t.deepEqual([document.lower, document.upper], [page.lower, page.upper]);
    t.is(document.items[0].catalogEntry.version, page.lower);
    t.is(document.items.at(-1).catalogEntry.version, page.upper);
    found.push(...document.items.map((leaf: any) => leaf.catalogEntry.version));
  }
  t.deepEqual(found, versions);
  t.deepEqual(await feed.json('/package/long/index.json'), { versions });
});

test('vulnerability data is served and empty', async (t) => {
  const feed = new TestFeed(await startTestServer(t));
  const index = await feed.json('/vulnerabilities/index.json');
  t.true(Array.isArray(index) && index.length === 1);
  t.false(Number.isNaN(Date.parse(index[0]['@updated'])));
  t.is(typeof index[0]['@name'], 'string');
  t.deepEqual(await feed.json(index[0]['@id']), {});
});

test('reading needs a token, and a wrong token is 401, never 403 or 404', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'A' });
  for (const path of [
    '/index.json',
    '/package/a/index.json',
    '/package/a/1.0.0/a.1.0.0.nupkg',
    '/registration/a/index.json',
    '/search',
    '/autocomplete',
    '/vulnerabilities/index.json',
    '/symbols/a/b/a',
  ]) {
    for (const headers of [{}, { authorization: 'Bearer wrong' }] as Record<string, string>[]) {
      const response = await server.fetch(`/v3${path}`, { token: null, headers });
      t.is(response.status, 401, path);
      t.is(response.headers.get('www-authenticate'), 'Basic realm="Entrepot"', path);
    }
    for (const authorization of [`Basic ${btoa(`api:${server.token}`)}`, `Bearer ${server.token}`]) {
      const response = await server.fetch(`/v3${path}`, { token: null, headers: { authorization } });
      t.not(response.status, 401, path);
    }
    t.not(
      (await server.fetch(`/v3${path}`, { token: null, headers: { 'x-nuget-apikey': server.token } })).status,
      401,
      path,
    );
  }
});

test('a cached document for one address of the server is not served at another address', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Known.As' });
  const at = async (host: string, path: string) => {
    const { status, headers, body } = await raw(server, path, { headers: { host } });
    t.is(status, 200);
    return (headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString();
  };
  for (const hive of hives) {
    for (const file of ['index.json', '1.0.0.json']) {
      for (const host of ['one.example', 'two.example', 'one.example']) {
        const text = await at(host, `/v3/${hive}/known.as/${file}`);
        const hosts = new Set(text.match(/https?:\/\/(one|two)\.example/g));
        t.deepEqual(hosts, new Set([`http://${host}`]), `${hive}/${file}`);
      }
    }
  }
});
