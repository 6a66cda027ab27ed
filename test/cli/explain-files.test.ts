import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const day = 86_400_000;

const lockOf = (versions: Record<string, string>) => {
  const entries = Object.entries(versions).map(([id, resolved]) => [id, { type: 'Direct', resolved }]);
  return JSON.stringify({ version: 1, dependencies: { 'net8.0': Object.fromEntries(entries) } });
};

/** The columns of each line, without the place in a file. */
const rowsOf = ({ stdout }: { stdout: string }) =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split('\t').filter((_, at) => at !== 4));

test('explain with files says of each item whether clients get it, and fails if one is held or denied', async (t) => {
  const data = await folderUntilEnd(t);
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const publishedAt = Math.floor(Date.now() / 1000) * 1000 - day;
  const old = new Date(publishedAt - 100 * day).toISOString();
  await feed.offer({
    id: 'Lib',
    versions: [
      { version: '1.0.0', published: old },
      { version: '1.1.0', published: new Date(publishedAt).toISOString() },
      { version: '2.0.0', published: old },
    ],
  });
  registry.image('team/app', 'v1');
  registry.image('team/app', 'v2');
  const upstreams = [feed.as('feed.test'), registry.settings('registry.test', { default: true })];
  const server = await startMirrorOf(t, upstreams, { data, reserved: { packages: ['Secret.*'] } });
  t.is((await server.fetch('/v2/registry.test/team/app/manifests/v1')).status, 200);
  const environment = {
    ENTREPOT_DATA: data,
    ENTREPOT_UPSTREAMS: JSON.stringify(upstreams),
    ENTREPOT_RESERVED_PACKAGES: '["Secret.*"]',
  };
  const explain = (...words: string[]) => entrepot(environment, 'explain', ...words);
  const fileOf = async (name: string, text: string) => {
    await mkdir(join(data, 'app'), { recursive: true });
    await writeFile(join(data, 'app', name), text);
    return join(data, 'app', name);
  };
  const lock = await fileOf('packages.lock.json', lockOf({ Lib: '1.0.0', 'Secret.Lib': '1.0.0' }));
  const open = await explain(lock);
  t.deepEqual([open.code, open.stderr], [0, '']);
  t.deepEqual(rowsOf(open), [
    ['allow', 'Lib 1.0.0', '-', '-', ''],
    ['none', 'Secret.Lib 1.0.0', '-', '-', 'reserved by Secret.*: no upstream is asked'],
  ]);
  t.true(open.stdout.includes(`\t${lock}`));

  const policy = await fileOf(
    'policy.yaml',
    'minimumAge: { packages: 3d, images: 2d }\nrules:\n  - { name: no-two, packages: [Lib], versions: "[2.0.0, )", verdict: deny, reason: see SEC-12 }\n',
  );
  t.is((await entrepot(environment, 'policy', 'apply', policy)).code, 0);
  t.is((await explain(lock)).code, 0, 'what is open stays open');

  const asked = feed.upstream.asked.filter(({ path }) => path.includes('secret')).length;
  const project = await fileOf(
    'App.csproj',
    '<Project><ItemGroup><PackageReference Include="Lib" Version="1.0.1" /></ItemGroup></Project>',
  );
  const list = await fileOf('list.txt', 'Lib@2.0.0\nLib@1.1.0\nelsewhere.test/team/app:v1\n');
  const compose = await fileOf(
    'compose.yaml',
    'services:\n  a: { image: "team/app:v1" }\n  b: { image: "team/app:v2" }\n  c: { image: "team/app:${TAG}" }\n',
  );
  const until = new Date(publishedAt + 3 * day).toISOString();
  const young = `it is younger than 3 days; it can be used from ${until.slice(0, 16)}Z on`;
  const found = await explain(project, list, compose, '--arg', 'TAG=v3');
  t.is(found.code, 1);
  t.regex(found.stderr, /^entrepot: Of 7, 4 are held, 1 are denied and 0 are not clear\.\n$/);
  t.deepEqual(rowsOf(found), [
    ['hold', 'Lib [1.0.1, )', until, 'age', young],
    ['deny', 'Lib 2.0.0', '-', 'no-two', 'see SEC-12'],
    ['hold', 'Lib 1.1.0', until, 'age', young],
    ['none', 'elsewhere.test/team/app:v1', '-', '-', 'no upstream here serves it'],
    ['allow', 'team/app:v1', '-', 'age', ''],
    ['hold', 'team/app:v2', '-', 'age', 'it is held from the first request on'],
    ['hold', 'team/app:v3', '-', 'age', 'it is held from the first request on'],
  ]);
  t.is(feed.upstream.asked.filter(({ path }) => path.includes('secret')).length, asked);
  t.is(
    registry.requests().filter((each) => /manifests\/v[23]$/.test(each)).length,
    0,
    'a question is no first request',
  );
  const unclear = await explain(compose);
  t.is(unclear.code, 1);
  t.regex(unclear.stdout, /^-\t.*TAG/m);
  const later = await explain(list, '--at', new Date(publishedAt + 4 * day).toISOString());
  t.regex(later.stderr, /Of 3, 0 are held, 1 are denied/);
  const folder = await explain(join(data, 'app/'));
  t.regex(folder.stdout, /team\/app:v2/);

  t.regex((await explain('Lib', '1.0.0')).stdout, /^allow\n/, 'a name is still explained');
  t.regex((await explain('Lib', '1.0.0', '2.0.0')).stderr, /expected one version, tag or digest/);
  t.regex((await explain(join(data, 'none.txt'))).stderr, /none\.txt: cannot be read/);
});
