import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

const flat = (page: string) => page.replace(/\s+/g, ' ').replaceAll(/> </g, '><');

test('the page of the storage counts what each clean-up would free, and runs it', async (t) => {
  const server = await startTestServer(t, { retention: { packages: { keepVersions: 1 } } });
  const feed = new TestFeed(server);
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) await feed.publish({ id: 'Some', version });
  const visitor = await Visitor.signedIn(server);
  const page = flat(await visitor.page('/console/storage'));
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
  t.notRegex(await reader.page('/console/storage'), /What can be freed/);
  t.is((await reader.send('/console/storage', { run: 'gc' })).status, 403);
  t.notRegex(await (await reader.send('/console/storage', { act: 'count' })).text(), /nothing to do/);
  const limited = await createToken(server, ['read', 'operate'], 'default', { packages: ['Other.*'] });
  const some = await Visitor.signedIn(server, limited.value);
  const refused = await (await some.send('/console/storage', { act: 'count' })).text();
  t.regex(refused, /cannot use jobs, because they concern all names/);
});
