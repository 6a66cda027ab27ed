import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

function place(name: string, of: string): string {
  return `href="/console/images/${encodeURIComponent(name)}/${encodeURIComponent(of)}"`;
}

test('the search of every page finds packages and images with their origin, filtered and paged', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const hostile = '<script>alert(1)</script>"\'';
  await feed.publish({ id: 'Contoso.Redis', description: hostile });
  for (let number = 0; number < 51; number += 1) {
    await new TestRepository(server, `team/redis-${String(number).padStart(2, '0')}`).image('v1');
  }
  const visitor = await Visitor.signedIn(server);
  t.regex(
    await visitor.page('/console/connect'),
    /<form class="find" role="search" method="get" action="\/console\/search">/,
  );
  const page = await visitor.page('/console/search?q=redis');
  t.regex(page, /<a href="\/console\/packages\/Contoso\.Redis">Contoso\.Redis<\/a>/);
  t.regex(page, /<a href="\/console\/images\/team%2Fredis-00">team\/redis-00<\/a>/);
  t.regex(page, /class="origin hosted">hosted</);
  t.true(page.includes('&lt;script&gt;alert(1)'));
  t.false(page.includes('<script>alert'));
  t.regex(page, /GET \/v1\/search\?q=redis</);
  const [, next] = /<a href="([^"]+)" rel="next">/.exec(page)!;
  const second = await visitor.page(next!.replaceAll('&amp;', '&'));
  t.regex(second, /team\/redis-50/);
  t.notRegex(second, /team\/redis-00<|rel="next"/);
  const images = await visitor.page('/console/search?q=redis&kind=container');
  t.notRegex(images, /Contoso\.Redis/);
  t.regex(images, /<option value="container" selected>/);
});

test('a search without a text and one without results say what to do next; its text is escaped', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/search'), /class="empty">\s*Type a part of a name/);
  const text = '"><img src=x onerror=alert(1)>';
  const page = await visitor.page(`/console/search?q=${encodeURIComponent(text)}&origin=mirrored`);
  t.regex(page, /class="empty">\s*Nothing found/);
  t.false(page.includes('<img'));
  t.is((await visitor.fetch(`/console/search?q=${'a'.repeat(5000)}`)).status, 200);
  t.is((await visitor.fetch('/console/search?q=a&cursor=x')).status, 400);
  const { value } = await createToken(server, ['write']);
  const writer = await Visitor.signedIn(server, value);
  t.is((await writer.fetch('/console/search?q=a')).status, 403);
  t.is(
    (await new Visitor(server).fetch('/console/search?q=a')).headers.get('location'),
    '/console/sign-in?next=%2Fconsole%2Fsearch%3Fq%3Da',
  );
});

test('searches of the console count for the limit of searches', async (t) => {
  const server = await startTestServer(t, { limits: { searchesPerMinute: 1, delay: '1ms' } });
  server.clock.now = Date.now();
  const visitor = await Visitor.signedIn(server);
  await visitor.page('/console/search?q=a');
  const refused = await visitor.fetch('/console/search?q=a');
  t.is(refused.status, 429);
  t.is(refused.headers.get('retry-after'), '60');
  t.regex(await refused.text(), /limit of 1 searches a minute/);
  t.is((await server.fetch('/v1/search?q=a')).status, 429, 'the same token');
});

test('a digest or its beginning, a tag, a version and the beginning of a token lead to what they name', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [hub.settings('docker.io', { default: true })] });
  const { digest } = await new TestRepository(server, 'team/app').image('1.5.0');
  hub.image('library/alpine', '3');
  const pulled = await server.fetch('/v2/alpine/manifests/3');
  await pulled.arrayBuffer();
  const theirs = pulled.headers.get('docker-content-digest')!;
  const visitor = await Visitor.signedIn(server);
  const search = async (q: string, by = visitor) =>
    (await by.page(`/console/search?q=${encodeURIComponent(q)}`)).replace(/\s+/g, ' ');
  const host = new URL(server.url).host;
  for (const text of [digest, digest.slice(0, 15), `team/app@${digest}`, 'team/app:1.5.0', `${host}/team/app:1.5.0`]) {
    const page = await search(text);
    t.true(page.includes(place('team/app', digest)), text);
    t.notRegex(page, /Nothing found/, text);
  }
  for (const text of [theirs, theirs.slice(0, 15), 'docker.io/library/alpine:3']) {
    t.true((await search(text)).includes(place('docker.io/library/alpine', theirs)), text);
  }
  t.regex(await search(digest.slice(0, 14)), /Nothing found/, 'seven characters are too few');
  t.regex(await search('team/app:9'), /Nothing here is team\/app:9\. See <a href="\/console\/images\/team%2Fapp">/);
  t.regex(await search('A.B@1.0.0'), /Go to <a href="\/console\/packages\/A\.B\/1\.0\.0">/);
  t.regex(await search('ent_abcd'), /href="\/console\/tokens\/find"/);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'other'));
  for (const text of [digest.slice(0, 15), 'team/app:1.5.0'])
    t.false((await search(text, other)).includes(digest), text);
  const { value } = await createToken(server, ['read'], 'default', { containers: ['else'] });
  const narrow = await Visitor.signedIn(server, value);
  for (const text of [digest.slice(0, 15), 'team/app:1.5.0'])
    t.false((await search(text, narrow)).includes(encodeURIComponent(digest)), text);
});

const digestOf = (length: number, name = 'sha256') => `team/app@${name}:${'0'.repeat(length)}`;

test('a text leads to a version or an image only if it can be the name of one', async (t) => {
  const visitor = await Visitor.signedIn(await startTestServer(t));
  const placeIn = async (q: string) => {
    const page = (await visitor.page(`/console/search?q=${encodeURIComponent(q)}`)).replace(/\s+/g, ' ');
    return /<p>(Go to|Nothing here is) /.exec(page)?.[1];
  };
  const version = `1${'0'.repeat(60)}`;
  for (const text of ['A.B@1', ' A_B-c 1.0.0-rc.1+x ', `${'a'.repeat(100)}@1.0`, `A@${version}`])
    t.is(await placeIn(text), 'Go to', text);
  const images = [digestOf(64), digestOf(128, 'sha512'), `team/app:${'a'.repeat(128)}`, '0-a._/b:_x.y-z', 'a:1'];
  for (const text of images) t.is(await placeIn(text), 'Nothing here is', text);
  for (const text of [
    `${'a'.repeat(101)}@1.0`,
    `A@${version}0`,
    'A@v1',
    'A B@1',
    'A@1 B',
    'A!@1',
    '@1',
    'A/1',
    digestOf(63),
    digestOf(129),
    digestOf(64, 'sha25'),
    digestOf(64, 'md50'),
    `${digestOf(64)}x`,
    `team/app:${'a'.repeat(129)}`,
    'team/app:-x',
    'team/app:x y',
    'team/app:',
    'Team/app:x',
    '.team/app:x',
    'sha256:abc',
  ])
    t.is(await placeIn(text), undefined, text);
});

test('a search that finds nothing offers one without filters, if it has some', async (t) => {
  const visitor = await Visitor.signedIn(await startTestServer(t));
  const saidTo = async (query: string) =>
    /Nothing found\.[^]*?download\.\s*([^]*?)\s*<a href="\/console\/connect">/.exec(
      await visitor.page(`/console/search?${query}`),
    )![1];
  t.is(await saidTo('q=zz'), 'See');
  for (const filter of ['kind=package', 'origin=hosted'])
    t.is((await saidTo(`q=zz&${filter}`))!.trim(), '<a href="/console/search?q=zz">Search without filters</a>, or see');
});

const needs = (version: string) => [{ id: 'contoso.core', version }];

test('a search shows the newest release, as lists do, and marks what is vulnerable or deprecated', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0-beta.1']) await feed.publish({ id: 'Contoso.Core', version });
  await feed.publish({ id: 'Contoso.Next', version: '1.0.0-rc.1' });
  const advisory = { package: 'Contoso.Core', versions: '[1.0.0]', severity: 3, url: 'https://a.test/1' };
  await server.fetch('/v1/advisories', {
    method: 'POST',
    body: JSON.stringify(advisory),
    headers: { 'content-type': 'application/json' },
  });
  const found = async () =>
    ((await (await server.fetch('/v1/search?q=contoso')).json()) as { items: any[] }).items.map(
      ({ name, version, severity, deprecated }) => [name, version, severity, deprecated],
    );
  await until(async () => {
    // The overview collects them.
    await server.fetch('/v1/findings');
    return (await found()).some(([, , severity]) => severity !== null);
  });
  t.deepEqual(
    (await found()).sort(([one], [other]) => String(one).localeCompare(String(other))),
    [
      ['Contoso.Core', '1.0.0', 'critical', false],
      ['Contoso.Next', '1.0.0-rc.1', null, false],
    ],
  );
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/search?q=contoso'), /class="state bad">vulnerable: critical/);
  await feed.publish({
    id: 'Fabrikam.Web',
    dependencyGroups: [
      { targetFramework: 'net8.0', dependencies: needs('1.0') },
      { targetFramework: 'net9.0', dependencies: needs('2.0.0-beta.1') },
      { targetFramework: 'net10.0', dependencies: needs('(1.0.0, )') },
    ],
  });
  const page = await visitor.page('/console/packages/Fabrikam.Web?show=dependencies');
  const marked = [...page.matchAll(/<h3>([^<]*)<\/h3>([^]*?)<\/ul>/g)].map(([, framework, list]) => [
    framework,
    list!.includes('vulnerable: critical'),
  ]);
  t.deepEqual(marked, [
    ['net8.0', true],
    ['net9.0', false],
    ['net10.0', false],
  ]);
});

test('a page that is not found says why, and leads to the name, to the search and to the explanation', async (t) => {
  const server = await startTestServer(t, { reserved: { packages: ['Fabrikam.*'] } });
  await new TestFeed(server).publish({ id: 'Contoso.Core' });
  await new TestRepository(server, 'team/app').image('1');
  const visitor = await Visitor.signedIn(server);
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  const missing = async (path: string, by = visitor) => {
    const answer = await by.fetch(path);
    t.is(answer.status, 404, path);
    return answer.text();
  };
  const version = await missing('/console/packages/Contoso.Core/9.9.9');
  t.regex(version, /The package Contoso\.Core is here, but 9\.9\.9 is not/);
  t.regex(version, /href="\/console\/packages\/Contoso\.Core">Contoso\.Core</);
  t.regex(version, /href="\/console\/explain\?kind=package&amp;name=Contoso\.Core&amp;reference=9\.9\.9">Explain why/);
  t.regex(version, /href="\/console\/search">/);
  const digest = `sha256:${'0'.repeat(64)}`;
  const manifest = await missing(`/console/images/team%2Fapp/${digest}`, reader);
  t.regex(manifest, /The image team\/app is here, but sha256:0+ is not[^]*href="\/console\/images\/team%2Fapp">/);
  t.notRegex(manifest, /Explain why/);
  const why = /team\/other is not stored here\. No upstream may be asked for team\/other, and it is not hosted here\./;
  t.regex(await missing(`/console/images/team%2Fother/${digest}`), why);
  t.regex(
    await missing('/console/packages/Fabrikam.Secret'),
    /Fabrikam\.Secret is reserved by fabrikam\.\*: no upstream is ever asked for it/i,
  );
  t.regex(await missing('/console/packages/Fabrikam.Secret', reader), /has a page after its first download/);
  t.regex(await missing('/console/packages/no%20name'), /not stored here/);
  const nothing = await visitor.page('/console/search?q=Contoso.Typo');
  t.regex(nothing, /href="\/console\/explain\?kind=package&amp;name=Contoso\.Typo">Explain a name/);
  t.notRegex(await reader.page('/console/search?q=Contoso.Typo'), /Explain a name/);
});
