import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { startAirGap, trustedKey } from '../support/bundles.ts';

// Whether a restore and pulls would succeed after an import, without a network and without the import.

test('verify --for finds what files list in the bundle and at the receiver, and names what is missing', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  const depends = await makeNupkg({
    id: 'Top',
    version: '1.0.0',
    dependencies: [{ id: 'Below', version: '[1.0.0, )' }],
  });
  await feed.offer({ id: 'Top', versions: [{ version: '1.0.0', nupkg: depends }] });
  await feed.offer({ id: 'Below', versions: [{ version: '1.0.0' }] });
  await feed.offer({ id: 'Before', versions: [{ version: '1.0.0' }] });
  await feed.offer({ id: 'Absent', versions: [{ version: '1.0.0' }] });
  registry.image('library/redis', '7');
  await near.ok('bundle', 'create', await file('one.txt', 'Before@1.0.0'), '--to', path('one'), '--key', key);
  await far.ok('bundle', 'import', path('one'));
  const project =
    '<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><TargetFramework>net8.0</TargetFramework></PropertyGroup><ItemGroup><PackageReference Include="Top" Version="1.0.0" /></ItemGroup></Project>';
  const files = [await file('App.csproj', project), await file('list.txt', 'redis:7\nBefore@1.0.0\n')];
  await near.ok('bundle', 'create', ...files, '--to', path('two'), '--key', key);

  const proven = await far.ok('bundle', 'verify', path('two'), '--for', ...files);
  t.regex(
    proven,
    /signed by near\.key\nreading .*\n?[^]*found: 3 packages, 1 manifests, 2 layers\n|found: 3 packages, 1 manifests, 2 layers/,
  );
  const more = await file('more.txt', 'Absent@1.0.0\nredis:8\nTop@1.0.0\n');
  const refused = await far.fails('bundle', 'verify', path('two'), '--for', more);
  t.regex(refused, /missing: Absent 1\.0\.0 \(.*more\.txt:1\): /);
  t.regex(refused, /missing: redis:8 \(.*more\.txt:2\): .*neither in the bundle nor stored here/);
  t.regex(refused, /2 missing; see above/);
  t.notRegex(refused, /Top/);
  const server = await far.serve();
  t.is((await server.fetch('/v3/package/top/index.json')).status, 504, 'nothing was imported');
  await server.close();
});

test('verify --for refuses what an import would refuse', async (t) => {
  const gap = await startAirGap(t);
  const { registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  registry.image('library/redis', '7');
  registry.image('library/tool', '1');
  const [one, both] = [await file('one.txt', 'redis:7'), await file('both.txt', 'redis:7\ntool:1')];
  const tool = await file('tool.txt', 'tool:1');
  const make = async (name: string, list: string, ...more: string[]) => {
    await near.ok('bundle', 'create', list, '--to', path(name), '--key', key, ...more);
    return path(name);
  };
  const refuses = async (bundle: string, reason: RegExp) => {
    t.regex(await far.fails('bundle', 'verify', bundle, '--for', tool), reason);
    t.regex(await far.fails('bundle', 'import', bundle), reason);
  };
  await refuses(await make('expired', both, '--expires', '1ms'), /was valid until/);
  const before = await make('before', one);
  const delta = await make('delta', both, '--against', before);
  // The list needs nothing of what the delta counts on.
  await refuses(delta, /counts on content that is not here: 5 of its items, such as .*docker\.io\/library\/redis /);
  await far.ok('bundle', 'import', before);
  await far.ok('bundle', 'verify', delta, '--for', tool);

  await far.ok('bundle', 'keygen', '--to', path('far.key'));
  await near.ok('bundle', 'trust', 'add', path('far.key.pub'), '--role', 'receipts');
  await far.ok('bundle', 'receipt', '--to', path('receipt'), '--key', path('far.key'));
  const own = await make('own', both, '--against', path('receipt'));
  await far.ok('bundle', 'verify', own, '--for', tool);
  await far.ok('bundle', 'import', own);
  await refuses(delta, /is older than the last one of its source/);
  await far.ok('bundle', 'verify', own, '--for', tool);
  await rm(far.data, { recursive: true });
  await far.ok('bundle', 'trust', 'add', `${key}.pub`);
  await refuses(own, /is for the installation/);
  await far.ok('bundle', 'verify', own);
});

test('a stored version that a policy denies is in no bundle', async (t) => {
  const gap = await startAirGap(t);
  const { feed, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  const list = await file('list.txt', 'Lib@1.0.0\nLib@2.0.0');
  await near.ok('bundle', 'create', list, '--to', path('before'), '--key', key);
  const rules = [{ name: 'no-one', packages: ['lib'], versions: '[1.0.0]', verdict: 'deny', reason: 'MAL-2026-1' }];
  await near.ok('policy', 'apply', await file('policy.yaml', JSON.stringify({ mode: 'enforce', rules })));
  for (const what of [[list], ['--stored']]) {
    const { code, stderr } = await near.run('bundle', 'create', ...what, '--to', path('after'), '--key', key);
    t.is(code, 1);
    t.regex(stderr, /missing: Lib 1\.0\.0 \(.*MAL-2026-1[^]*1 missing, so no bundle was written/i);
  }
  await near.ok('bundle', 'create', list, '--to', path('after'), '--key', key, '--allow-missing');
  const shown = await near.ok('bundle', 'inspect', path('after'), '--list');
  t.deepEqual(shown.match(/\tnupkg\t.*\t/g), ['\tnupkg\tlib\t2.0.0\t']);
  t.regex(await far.fails('bundle', 'verify', path('after'), '--for', list), /missing: Lib 1\.0\.0 /);
});

test('verify reads every byte, and writes a bill of materials', async (t) => {
  const gap = await startAirGap(t);
  const { feed, registry, near, far, path, file } = gap;
  const key = await trustedKey(gap);
  await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }] });
  const image = registry.image('library/redis', '7');
  const list = await file('list.txt', 'redis:7\nLib@1.0.0');
  await near.ok('bundle', 'create', list, '--to', path('bundle'), '--key', key, '--segment', '1MiB');
  t.regex(
    await far.ok('bundle', 'verify', path('bundle'), '--sbom', path('sbom.json')),
    /^checked \d+ items, [\d.]+ \w+$/m,
  );
  const { bomFormat, components } = JSON.parse(await readFile(path('sbom.json'), 'utf8')) as {
    bomFormat: string;
    components: { purl: string; hashes: { content: string }[] }[];
  };
  t.is(bomFormat, 'CycloneDX');
  t.deepEqual(
    components.map(({ purl }) => purl),
    [
      'pkg:nuget/Lib@1.0.0',
      `pkg:oci/redis@${encodeURIComponent(image.manifest.digest)}?repository_url=docker.io%2Flibrary%2Fredis&tag=7`,
    ],
  );
  t.is(components[1]!.hashes[0]!.content, image.manifest.digest.slice('sha256:'.length));
  await near.ok('bundle', 'create', list, '--to', path('unsigned'));
  t.regex(await far.fails('bundle', 'verify', path('unsigned')), /The bundle is not signed/);
  await far.ok('bundle', 'verify', path('unsigned'), '--unsigned');
  await rm(join(path('bundle'), '0001.tar'));
  t.regex(await far.fails('bundle', 'verify', path('bundle')), /no segment of a bundle is here/);
});
