import { mkdir, copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey, siteAt } from '../support/bundles.ts';

// Bundles for a receiver from which nothing comes back: each is made against an earlier one.

test('a bundle against an earlier one has what is new since then, so that those between may be lost', async (t) => {
  const gap = await startAirGap(t, { freshFor: '1ms' });
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const offer = async (id: string) =>
    feed.offer({ id, versions: [{ version: '1.0.0', nupkg: await makeNupkg({ id, version: '1.0.0' }) }] });
  const listed: string[] = [];
  const make = async (name: string, ...more: string[]) => {
    await offer(`Lib.${name}`);
    listed.push(`Lib.${name}@1.0.0`);
    const list = await file('list.txt', listed.join('\n'));
    return near.ok('bundle', 'create', list, '--to', path(name), '--key', key, ...more);
  };
  t.notRegex(await make('first'), /left out/);
  t.regex(await make('second', '--against', path('first')), /left out: \d+ items .* that the receiver has/);
  // One segment of the earlier bundle is enough, and it counts what that one has left out, too.
  await mkdir(path('kept'));
  await copyFile(join(path('second'), '0001.tar'), join(path('kept'), '0001.tar'));
  await make('lost', '--against', join(path('kept'), '0001.tar'));
  await make('overlap', '--against', path('kept'));
  await make('narrow', '--against', path('lost'));

  await far.ok('bundle', 'import', path('first'));
  t.regex(
    await far.fails('bundle', 'import', path('overlap')),
    /counts on content that is not here: \d+ of its items, such as feed\.test\/lib\.second .*\. Import the earlier bundle/,
  );
  const server = await far.serve();
  const status = async (name: string) =>
    (await server.fetch(`/v3/package/lib.${name}/1.0.0/lib.${name}.1.0.0.nupkg`)).status;
  t.deepEqual(await Promise.all(['first', 'lost', 'overlap'].map(status)), [200, 504, 504]);
  await far.ok('bundle', 'import', path('second'));
  t.regex(await far.fails('bundle', 'import', path('narrow')), /not here: \d+ of its items, such as .*lib\.lost/);
  await far.ok('bundle', 'import', path('overlap'));
  t.deepEqual(await Promise.all(['first', 'second', 'lost', 'overlap'].map(status)), [200, 200, 200, 200]);
  await far.ok('bundle', 'import', path('narrow'));
  t.is(await status('narrow'), 200);
  t.regex(await far.ok('bundle', 'verify', path('narrow')), /items are expected at the receiver/);

  const other = siteAt(t, path('other'), near.upstreams);
  await other.ok('token', 'create', '--name', 'x');
  t.regex(
    await other.fails('bundle', 'create', '--stored', '--to', path('x'), '--against', path('first')),
    /first was made by the installation \S+\. Name an earlier bundle of this one/,
  );
});

test('a bundle against one that was for one receiver is for that receiver', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const list = await file('list.txt', 'Lib@1.0.0');
  const make = (name: string, against: string) =>
    near.ok('bundle', 'create', list, '--to', path(name), '--key', key, '--against', path(against));
  await far.ok('token', 'create', '--name', 'x');
  await far.ok('bundle', 'receipt', '--to', path('receipt'));
  await make('first', 'receipt');
  await make('second', 'first');
  const audience = async (name: string) =>
    /for the installation: (\S+)/.exec(await far.ok('bundle', 'inspect', path(name)))?.[1];
  t.truthy(await audience('first'));
  t.is(await audience('second'), await audience('first'));
});
