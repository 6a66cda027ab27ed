import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { serving } from '../support/imports.ts';
import { entrepot } from '../support/in-process.ts';
import { CommandLine } from '../support/processes/command.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';

const exporting = (from: TestServer, ...words: string[]) =>
  entrepot({ ENTREPOT_DATA: from.data, ENTREPOT_UPSTREAMS: '[]' }, 'export', ...words);

const begin = (location: string) => answer(202, { location });

test('a hostile target: uploads and pushes go to no other address, and the secret stays', async (t) => {
  const elsewhere = await startFaultyUpstream(t);
  const registry = await startFaultyUpstream(t);
  const here = await startTestServer(t);
  await new TestRepository(here, 'a').image('1');
  await new TestRepository(here, 'b').image('1');
  await new TestRepository(here, 'c').image('1');
  const folder = await folderUntilEnd(t);
  const file = join(folder, 'token');
  await writeFile(file, 'secret-of-the-target');
  registry.on('/v2/a/blobs/uploads/', begin(new URL('/upload', elsewhere.url).href));
  registry.on('/v2/b/blobs/uploads/', begin('http://169.254.169.254/latest'));
  registry.on('/v2/c/blobs/uploads/', answer(307, { location: new URL('/upload', elsewhere.url).href }));
  const images = await exporting(here, 'registry', registry.url.origin, '--user', 'me', '--token-file', file);
  t.is(images.code, 1);
  t.regex(
    images.stderr,
    /^failed: a 1: The target leads an upload to http:\/\/127\.0\.0\.1:\d+, which is not its own address/m,
  );
  t.regex(images.stderr, /^failed: b 1: The target leads an upload to http:\/\/169\.254\.169\.254, which/m);
  t.regex(images.stderr, /^failed: c 1: The target .* redirects a change to 127\.0\.0\.1:\d+, where nothing is sent/m);
  await new TestFeed(here).publish({ id: 'Lib', version: '1.0.0' });
  const resources = (publish: string) =>
    answer(
      200,
      { 'content-type': 'application/json' },
      JSON.stringify({
        version: '3.0.0',
        resources: [
          { '@id': `${registry.url.origin}/flat/`, '@type': 'PackageBaseAddress/3.0.0' },
          { '@id': publish, '@type': 'PackagePublish/2.0.0' },
        ],
      }),
    );
  registry.on('/v3/index.json', resources(new URL('/push', elsewhere.url).href));
  const words = ['feed', `${registry.url.origin}/v3/index.json`, '--token-file', file];
  const packages = await exporting(here, ...words);
  t.regex(
    packages.stderr,
    /^failed: Lib 1\.0\.0: The target names 127\.0\.0\.1:\d+ for pushes, which is not the host of its index/m,
  );
  registry.on('/v3/index.json', resources(`${registry.url.origin}/push`));
  registry.on('/push', answer(307, { location: new URL('/push', elsewhere.url).href }));
  t.regex((await exporting(here, ...words)).stderr, /^failed: Lib 1\.0\.0: The target .* redirects a change to/m);
  t.is(elsewhere.asked.length, 0);
  t.is(registry.asked.find(({ path }) => path === '/push')!.headers['x-nuget-apikey'], 'secret-of-the-target');
  t.false(`${images.stdout}${images.stderr}${packages.stdout}${packages.stderr}`.includes('secret-of-the-target'));
});

test('killed in the middle, it goes on when it is repeated', async (t) => {
  const old = await startTestServer(t);
  const command = await CommandLine.create(t, { ENTREPOT_UPSTREAMS: '[]', TOKEN: old.token });
  const folder = await folderUntilEnd(t);
  await mkdir(join(folder, 'packages'));
  for (let at = 0; at < 20; at += 1) {
    const bytes = await makeNupkg({ id: `Lib${at % 4}`, version: `1.0.${at}`, payloadBytes: 20_000 });
    await writeFile(join(folder, 'packages', `${at}.nupkg`), bytes);
  }
  t.is((await command.begin('import', join(folder, 'packages')).end).code, 0);
  const words = ['export', 'feed', `${old.url}/v3/index.json`, '--token-env', 'TOKEN', '--all', '--concurrency', '2'];
  const report = join(folder, 'report');
  const { child, end } = command.begin(...words, '--report', report);
  const written = async () => (await readFile(report, 'utf8').catch(() => '')).split('\n').length - 1;
  await until(async () => (await written()) >= 3);
  child.kill('SIGKILL');
  await end;
  const again = await command.begin(...words).end;
  t.is(again.code, 0);
  const [, sent = '', present = ''] = /^exported: (\d+).*\nthere already: (\d+)\n/.exec(again.stdout) ?? [];
  t.is(Number(sent) + Number(present), 20);
  t.true(Number(present) >= 3);
  const { versions } = await new TestFeed(old).json('/package/lib0/index.json');
  t.is(versions.length, 5);
});

test('a refusal before the body was read, and credentials that are refused, have their reason and end in time', async (t) => {
  const here = await startTestServer(t);
  const feed = new TestFeed(here);
  t.is((await feed.push(await makeNupkg({ id: 'A', version: '1.0.0', payloadBytes: 8 * 2 ** 20 }))).status, 201);
  const statuses = [413, 401];
  const url = await serving(t, (request, response) => {
    if (request.url === '/index.json') {
      const at = `http://${request.headers.host}`;
      const resources = [
        { '@id': `${at}/flat/`, '@type': 'PackageBaseAddress/3.0.0' },
        { '@id': `${at}/push`, '@type': 'PackagePublish/2.0.0' },
      ];
      response.end(JSON.stringify({ version: '3.0.0', resources }));
    } else response.writeHead(request.method === 'PUT' ? statuses.shift()! : 404).end();
    return Promise.resolve();
  });
  const refused = await exporting(here, 'feed', `${url}/index.json`);
  t.is(refused.stderr, 'failed: A 1.0.0: The target refused the package (413)\nentrepot: 1 did not go\n');
  const denied = await exporting(here, 'feed', `${url}/index.json`);
  t.regex(denied.stderr, /^entrepot: stopped before the end: The target .* refused access; check its credentials/m);
  t.deepEqual(statuses, []);
});
