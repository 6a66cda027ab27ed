import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

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
