import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { containerClient } from '../support/clients/container-clients.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { TestFeed } from '../support/feed.ts';
import { createLayout } from '../support/builders/images.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

// Real clients use the feed and the registry as of a date (docs/as-of.md).

const folder = await temporaryFolder();
const noon = (day: string) => Date.parse(`${day}T12:00:00Z`);

test.after.always(() => folder.remove());

testWith('dotnet')('dotnet restores the versions of a day, hosted and mirrored', async (t) => {
  const packer = await dotnet(join(folder.path, 'packer'), {
    url: 'http://127.0.0.1:9/',
    username: 'api',
    password: 'none',
  });
  const pack = async (id: string, version: string) => readFile(await packer.pack({ id, version }));
  const [old, young] = [await pack('Mirrored.Library', '1.0.0'), await pack('Mirrored.Library', '1.1.0')];
  const up = await UpstreamFeed.start(t);
  await up.offer({
    id: 'Mirrored.Library',
    versions: [
      { version: '1.0.0', published: '2026-01-05T00:00:00Z', nupkg: old },
      { version: '1.1.0', published: '2026-03-05T00:00:00Z', nupkg: young },
    ],
  });
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  const feed = new TestFeed(server);
  for (const [day, version] of [
    ['2026-02-01', '2.0.0'],
    ['2026-04-01', '2.1.0'],
  ] as const) {
    server.clock.now = noon(day);
    t.is((await feed.push(await pack('Hosted.Library', version))).status, 201);
  }
  server.clock.now = undefined;

  const runAt = async (name: string, path: string) => {
    const source = { url: `${server.url}${path}/v3/index.json`, username: 'api', password: server.token };
    const consumer = await dotnet(join(folder.path, name), source);
    const project = await consumer.project('Program', { 'Mirrored.Library': '1.*', 'Hosted.Library': '2.*' });
    return { run: () => consumer.run('run', '--project', project), restore: () => consumer.fails('restore', project) };
  };
  t.is(await (await runAt('now', '')).run(), '1.1.0\n2.1.0\n');
  t.is(await (await runAt('past', '/as-of/2026-02-01')).run(), '1.0.0\n2.0.0\n');
  t.is(await (await runAt('between', '/as-of/2026-03-31')).run(), '1.1.0\n2.0.0\n');
  const early = await (await runAt('early', '/as-of/2026-01-31')).restore();
  t.regex(early, /NU1101.*Hosted\.Library/);
  t.notRegex(early, /NU1101.*Mirrored\.Library/);
  t.regex(await (await runAt('future', '/as-of/2999-01-01')).restore(), /NU1301/);
});

testWith('skopeo')('skopeo copies what a tag was on a day, and cannot push there', async (t) => {
  const server = await startTestServer(t);
  const { host } = new URL(server.url);
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
  await skopeo.run('login', '-u', 'api', '-p', server.token, host);
  const layout = await createLayout(join(folder.path, 'images'));
  const [first, second] = [await layout.image('first'), await layout.image('second')];
  for (const [day, image] of [
    ['2026-02-01', first],
    ['2026-04-01', second],
  ] as const) {
    server.clock.now = noon(day);
    await skopeo.run('copy', '--preserve-digests', image.reference, `docker://${host}/team/app:latest`);
  }
  server.clock.now = undefined;
  const at = (day: string) => `docker://${host}/as-of/${day}/team/app:latest`;
  const digest = async (image: string) =>
    (await skopeo.run('inspect', '--no-tags', '--format', '{{.Digest}}', image)).trim();
  t.is(await digest(`docker://${host}/team/app:latest`), second.digest);
  t.is(await digest(at('2026-02-28')), first.digest);
  const copy = join(folder.path, 'copy');
  await skopeo.run('copy', '--preserve-digests', at('2026-02-28'), `dir:${copy}`);
  t.regex(await skopeo.fails('copy', at('2026-01-31'), `dir:${copy}-early`), /known from 2026-02-01/);
  t.regex(await skopeo.fails('copy', `dir:${copy}`, at('2026-02-28')), /past, which cannot be changed|405|[Mm]ethod/);
  const { Tags: tags } = JSON.parse(await skopeo.run('list-tags', `docker://${host}/as-of/2026-02-28/team/app`)) as {
    Tags: string[];
  };
  t.deepEqual(tags, ['latest']);
});
