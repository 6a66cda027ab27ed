import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet, sourceName, type Dotnet } from '../support/clients/dotnet.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet');
let entrepot: Entrepot;
let publisher: Dotnet;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

withDotnet('dotnet pushes packages, and a version only once', async (t) => {
  publisher = await user('publisher');
  const library = await publisher.pack({ id: 'Contoso.Library', version: '1.0.0' });
  await push(library);
  await push(await publisher.pack({ id: 'Contoso.Library', version: '1.1.0-beta.1', symbols: true }));
  t.regex(await publisher.fails('nuget', 'push', library, ...pushOptions()), /409|Conflict/i);
  t.regex(await push(library, '--skip-duplicate'), /already exists|Conflict/i);
});

withDotnet('a wrong key and a read-only key are refused, each with its reason', async (t) => {
  const other = await publisher.pack({ id: 'Contoso.Refused', version: '1.0.0' });
  const pushWith = async (name: string, key: string): Promise<string> => {
    // The credentials of the source are the same; the client sends them after a 401.
    const client = await dotnet(join(folder.path, name), { ...feed(), password: key });
    return client.fails('nuget', 'push', other, ...pushOptions(key));
  };
  t.regex(await pushWith('stranger', 'ent_wrong'), /401 \(/);
  t.regex(await pushWith('reader', await entrepot.createToken('read')), /403 \(.*write/);
});

withDotnet('another user restores and runs a program that uses it, with its dependencies', async (t) => {
  // Packing restores it from the feed.
  await push(
    await publisher.pack({ id: 'Contoso.App', version: '2.0.0', dependencies: { 'Contoso.Library': '[1.0.0,2.0.0)' } }),
  );
  const consumer = await user('consumer');
  const project = await consumer.project('Program', { 'Contoso.App': '2.*', 'Contoso.Library': '1.0.0' });
  t.is(await consumer.run('run', '--project', project), '2.0.0\n1.0.0\n');
  t.regex(await consumer.run('list', project, 'package', '--include-transitive'), /Contoso\.App\s+2\.\*\s+2\.0\.0/);
  t.regex(
    await consumer.run('list', project, 'package', '--outdated', '--include-prerelease'),
    /Contoso\.Library\s+1\.0\.0\s+1\.0\.0\s+1\.1\.0-beta\.1/,
  );
  t.regex(await consumer.run('list', project, 'package', '--vulnerable'), /no vulnerable packages/);
});

withDotnet('dotnet adds a package at its newest stable version', async (t) => {
  const adder = await user('adder');
  const project = await adder.project('Added', {});
  t.regex(await adder.run('add', project, 'package', 'contoso.library'), /version '1\.0\.0' added/);
});

withDotnet('dotnet searches', async (t) => {
  const found = await search('contoso', '--take', '10');
  t.deepEqual(found, ['Contoso.App 2.0.0', 'Contoso.Library 1.0.0']);
  t.deepEqual(await search('contoso.library', '--prerelease'), ['Contoso.Library 1.1.0-beta.1']);
  t.deepEqual(await search('Contoso.Library', '--exact-match', '--prerelease'), [
    'Contoso.Library 1.0.0',
    'Contoso.Library 1.1.0-beta.1',
  ]);
});

withDotnet('dotnet installs a tool and runs it', async (t) => {
  await push(await publisher.pack({ id: 'Contoso.Tool', version: '1.2.0', tool: 'contoso-tool' }));
  const consumer = await user('tool-user');
  const tools = join(consumer.folder, 'tools');
  await consumer.run('tool', 'install', 'Contoso.Tool', '--tool-path', tools, '--version', '1.2.0');
  t.is(
    await consumer.run(
      'exec',
      join(tools, '.store/contoso.tool/1.2.0/contoso.tool/1.2.0/tools/net10.0/any/Contoso.Tool.dll'),
    ),
    'Contoso.Tool 1.2.0\n',
  );
});

withDotnet('dotnet unlists a version: searches omit it, a restore with an exact version still gets it', async (t) => {
  await push(await publisher.pack({ id: 'Contoso.Withdrawn', version: '1.0.0' }));
  await publisher.run('nuget', 'delete', 'Contoso.Withdrawn', '1.0.0', '--non-interactive', ...pushOptions());
  t.deepEqual(await search('withdrawn'), []);
  const consumer = await user('late');
  const project = await consumer.project('Late', { 'Contoso.Withdrawn': '1.0.0' });
  t.is(await consumer.run('run', '--project', project), '1.0.0\n');
});

withDotnet('an unknown package is "not found", and a feed without credentials is "unauthorized"', async (t) => {
  const consumer = await user('wrong');
  const project = await consumer.project('Wrong', { 'Contoso.Nowhere': '1.0.0' });
  t.regex(await consumer.fails('restore', project), /NU1101/);
  const stranger = await dotnet(join(folder.path, 'other-stranger'), { ...feed(), password: 'ent_wrong' });
  const refused = await stranger.project('Refused', { 'Contoso.Library': '1.0.0' });
  t.regex(await stranger.fails('restore', refused), /401/);
});

function feed(): { url: string; username: string; password: string } {
  return { url: `${entrepot.url}/v3/index.json`, username: 'api', password: entrepot.token };
}

/** Each user has an empty cache. */
function user(name: string): Promise<Dotnet> {
  return dotnet(join(folder.path, name), feed());
}

function pushOptions(key = entrepot.token): string[] {
  return ['--source', sourceName, '--api-key', key];
}

function push(path: string, ...options: string[]): Promise<string> {
  return publisher.run('nuget', 'push', path, ...pushOptions(), ...options);
}

interface SearchResult {
  searchResult: { packages: { id: string; latestVersion?: string; version?: string }[] }[];
}

async function search(...words: string[]): Promise<string[]> {
  const client = await user(`search-${words.join('')}`);
  const output = await client.run('package', 'search', ...words, '--source', sourceName, '--format', 'json');
  const { searchResult } = JSON.parse(output) as SearchResult;
  return searchResult
    .flatMap(({ packages }) => packages.map((found) => `${found.id} ${found.latestVersion ?? found.version}`))
    .toSorted();
}
