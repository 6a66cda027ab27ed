import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const flat = (page: string) => page.replace(/\s+/g, ' ').replaceAll(/> </g, '><');

test('the page of the storage counts what each clean-up would free, and runs it', async (t) => {
  const up = await UpstreamFeed.start(t);
  for (const [id, payloadBytes] of [
    ['Old', 300_000],
    ['New', 500_000],
  ] as const) {
    const nupkg = await makeNupkg({ id, version: '1.0.0', payloadBytes });
    await up.offer({ id, versions: [{ version: '1.0.0', nupkg }] });
  }
  const server = await startTestServer(t, {
    retention: { packages: { keepVersions: 1 } },
    upstreams: [up.as('nuget.org')],
  });
  const now = Date.now();
  for (const [id, days] of [
    ['old', 91],
    ['new', 89],
  ] as const) {
    server.clock.now = now - days * 86_400_000;
    await (await server.fetch(`/v3/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).arrayBuffer();
  }
  server.clock.now = now;
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) await feed.publish({ id: 'Some', version });
  const visitor = await Visitor.signedIn(server);
  const page = flat(await visitor.page('/console/storage'));
  t.regex(page, />nuget\.org<\/a><\/th><td[^>]*><span[^>]*>80\d kB<\/span><\/td><td[^>]*><span[^>]*>30\d kB</);
  for (const name of ['retention', 'evict', 'gc']) {
    t.regex(page, new RegExp(`>${name}</a></th><td[^>]*>[^<]+</td><td[^>]*><span class="quiet">not counted<`), name);
  }
  const counted = flat(await (await visitor.send('/console/storage', { act: 'count' })).text());
  t.regex(counted, />retention<\/a><\/th><td[^>]*>[^<]+<\/td><td[^>]*>2 versions/);
  t.regex(counted, />gc<\/a><\/th><td[^>]*>[^<]+<\/td><td[^>]*>nothing to do</);
  const versions = async () =>
    ((await (await server.fetch('/v1/packages/Some')).json()) as { version_count: number }).version_count;
  t.is(await versions(), 3, 'to count deletes nothing');
  const started = await visitor.send('/console/storage', { run: 'retention' });
  t.is(leadsTo(started), '/console/jobs/retention (job-started)');
  await until(async () => (await versions()) === 1);

  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.notRegex(await reader.page('/console/storage'), /What can be freed|Mirrored content/);
  t.is((await reader.send('/console/storage', { run: 'gc' })).status, 403);
  t.notRegex(await (await reader.send('/console/storage', { act: 'count' })).text(), /nothing to do/);
  const limited = await createToken(server, ['read', 'operate'], 'default', { packages: ['Other.*'] });
  const some = await Visitor.signedIn(server, limited.value);
  const refused = await (await some.send('/console/storage', { act: 'count' })).text();
  t.regex(refused, /cannot use jobs, because they concern all names/);
});
