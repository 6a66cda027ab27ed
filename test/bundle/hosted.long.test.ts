import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeSnupkg } from '../support/builders/nupkg.ts';
import { ranImport, sentImport } from '../support/bundle-runs.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';
import { TestFeed } from '../support/feed.ts';
import { rowsOf, tokenOf } from '../support/inside.ts';
import { create, hostContent, hostedOn, shownBy } from './hosted-suite.ts';

// Bundles with what accounts host.

hostedOn('mysql');

test('symbols that write the version in another case are known when they come again', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const feed = new TestFeed(await near.serve());
  await feed.publish({ id: 'Contoso.Case', version: '2.0.0-beta' });
  const symbols = await makeSnupkg({ id: 'Contoso.Case', version: '2.0.0-Beta' });
  t.is((await feed.push(symbols, '/symbols')).status, 201);
  await create(gap, 'bundle', key);
  await far.ok('bundle', 'import', path('bundle'));
  t.regex(await far.ok('bundle', 'import', path('bundle')), /0 new entries, 0 B stored; it was imported before/);
});

test('a delta is refused where an account deleted what it counts on', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed } = await hostContent(source);
  await create(gap, 'whole', key);
  await far.ok('bundle', 'import', path('whole'));
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--hosted', 'default/contoso.*');
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await create(gap, 'delta', key, '--against', path('receipt'));
  const server = await far.serve();
  const gone = await server.fetch('/v1/packages/Contoso.Lib/2.0.0', { method: 'DELETE' });
  t.is(gone.status, 204);
  t.regex(await far.fails('bundle', 'import', path('delta')), /default\/contoso\.lib nupkg 2\.0\.0/);
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0']);
});

test('a proof for files counts what a bundle brings into the account, and names what is neither there nor here', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  const { feed } = await hostContent(source);
  await create(gap, 'bundle', key);
  const list = await file('list.txt', 'Contoso.Lib@2.0.0\nteam/app:1.0');
  const more = await file('more.txt', 'Contoso.Lib@3.0.0\nteam/app:9.9');
  t.regex(await far.ok('bundle', 'verify', path('bundle'), '--for', list), /found: 2 that the account default hosts/);
  const missing = await far.run('bundle', 'verify', path('bundle'), '--for', list, more);
  t.is(missing.code, 1);
  t.regex(
    missing.stdout + missing.stderr,
    /Contoso\.Lib 3\.0\.0 [^\n]*more\.txt:1[^]*team\/app:9\.9 [^\n]*more\.txt:2/,
  );
  t.regex(missing.stderr, /2 missing/);

  await far.ok('bundle', 'import', path('bundle'));
  await feed.publish({ id: 'Contoso.Lib', version: '3.0.0' });
  await near.ok('bundle', 'create', '--hosted', 'default/contoso.*', '--to', path('next'), '--key', key);
  t.regex(await far.ok('bundle', 'verify', path('next'), '--for', list), /found/);
});

test('an account that is not here is named, and content of another account stays hidden from the default one', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  const source = await near.serve();
  await near.ok('account', 'create', 'team');
  await (await TestFeed.ofAccount(source, 'team')).publish({ id: 'Secret' });
  await hostContent(source);
  t.regex(await near.fails('bundle', 'create', '--hosted', 'nobody', '--to', path('x')), /no account nobody/);
  t.regex(await near.fails('bundle', 'create', '--hosted', 'team/None*', '--to', path('x')), /hosts no package/);
  await near.ok('bundle', 'create', '--hosted', 'team/*', '--to', path('bundle'), '--key', key);
  t.regex(
    await far.fails('bundle', 'import', path('bundle')),
    /account team, which is not here[^]*account create team/,
  );
  await far.ok('account', 'create', 'team');
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  // It is asked of an upstream, as a name that nobody hosts.
  t.is((await server.fetch('/v3/package/secret/index.json')).status, 504);
  const token = await tokenOf(server, ['read'], 'team');
  t.is((await server.fetch('/v3/package/secret/index.json', { token })).status, 200);
});

test('a name that was mirrored here is told, and the hosted content takes precedence', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, feed, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Contoso.Lib', versions: [{ version: '0.9.0' }] });
  const list = await file('list.txt', 'Contoso.Lib@0.9.0');
  await near.ok('bundle', 'create', list, '--to', path('mirrored'), '--key', key);
  await far.ok('bundle', 'import', path('mirrored'));
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  await far.ok('bundle', 'import', path('bundle'));
  const server = await far.serve();
  t.deepEqual((await shownBy(t, server)).versions, ['1.0.0', '2.0.0']);
  const [event] = await rowsOf<{ details: string }>(
    server,
    "SELECT details FROM events WHERE type = 'package.published' AND subject_name = 'Contoso.Lib' ORDER BY id LIMIT 1",
  );
  t.is(JSON.parse(event!.details).taken_over_from, 'feed.test');
});

test('hosted content is imported only by a command', async (t) => {
  const gap = await startAirGap(t);
  const { near, far, path } = gap;
  const key = await trustedKey(gap);
  await hostContent(await near.serve());
  await create(gap, 'bundle', key);
  const server = await far.serve();
  const segments = { 1: await readFile(join(path('bundle'), '0001.tar')) };
  const run = await ranImport(server, await sentImport(server, segments));
  t.is(run['state'], 'failed');
  t.regex(run['error'], /content that accounts host\. Only a command imports it/);
  t.deepEqual((await shownBy(t, server)).versions, []);
});
