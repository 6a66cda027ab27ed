import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { greeting } from '../../src/cli/greeting.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { commandLine, requiredCommand, temporaryFolder } from '../support/clients/clients.ts';
import { dotnetEnvironment } from '../support/clients/dotnet.ts';
import { paste } from '../support/clients/paste.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';

// The lines that add the feed to NuGet leave no second source, which NuGet would ask for private names.

const folder = await temporaryFolder();
const asked: string[] = [];
/** In the place of the public feed. It has no packages. */
const publicFeed = createServer((request, response) => {
  asked.push(request.url!);
  if (request.url !== '/v3/index.json') response.writeHead(404).end();
  else {
    const address = `http://${request.headers.host}/flat/`;
    const resources = [{ '@id': address, '@type': 'PackageBaseAddress/3.0.0' }];
    response.end(JSON.stringify({ version: '3.0.0', resources }));
  }
});
let entrepot: Entrepot;

test.before(async () => {
  publicFeed.listen(0, '127.0.0.1');
  await once(publicFeed, 'listening');
  entrepot = await startEntrepot(folder.path);
  const body = new FormData();
  body.append('package', new Blob([new Uint8Array(await makeNupkg({ id: 'Contoso.Private', version: '1.0.0' }))]), 'x');
  const headers = { 'x-nuget-apikey': entrepot.token };
  const { status } = await fetch(`${entrepot.url}/v3/push`, { method: 'PUT', headers, body });
  if (status !== 201) throw new Error(`the push of the package ended with ${status}`);
});

test.after.always(async () => {
  publicFeed.close();
  await entrepot?.stop();
  await folder.remove();
});

const read = (path: string) => readFile(join(import.meta.dirname, '../..', path), 'utf8');

/** The lines of `text` that change sources, with the address and the token of this server. */
function sourceLinesIn(text: string): string {
  const lines = text.split('\n').map((line) => line.trim());
  const found = lines.filter((line) => /^dotnet (?:nuget (?:add|remove) source|new nugetconfig)/.test(line));
  return `${found.join('\n')}\n`
    .replaceAll('http://127.0.0.1:8080', entrepot.url)
    .replaceAll(/\$TOKEN|\bTOKEN\b/g, entrepot.token);
}

async function connectPage(): Promise<string> {
  const body = new URLSearchParams({ token: entrepot.token, next: '/console/connect' });
  const headers = { origin: entrepot.url, 'sec-fetch-site': 'same-origin' };
  const signIn = await fetch(`${entrepot.url}/console/sign-in`, { method: 'POST', body, headers, redirect: 'manual' });
  const cookie = signIn.headers
    .getSetCookie()
    .map((each) => each.split(';')[0]!)
    .join('; ');
  const html = await (await fetch(`${entrepot.url}/console/connect`, { headers: { cookie } })).text();
  const code = /<code>(dotnet nuget remove[^<]*)<\/code>/.exec(html)![1]!;
  return code.replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&amp;', '&');
}

/** A user who has the public feed as a source, and restores a private package after pasting `text` as often as `times`. */
async function restore(t: ExecutionContext, name: string, text: string, times: number): Promise<string[]> {
  const home = join(folder.path, name);
  const project = join(home, 'project');
  const config = join(home, 'cli/.nuget/NuGet');
  for (const path of [project, config]) await mkdir(path, { recursive: true });
  const { port } = publicFeed.address() as AddressInfo;
  const source = `<add key="nuget.org" value="http://127.0.0.1:${port}/v3/index.json" allowInsecureConnections="true" />`;
  await writeFile(
    join(config, 'NuGet.Config'),
    `<configuration><packageSources>${source}</packageSources></configuration>`,
  );
  await writeFile(
    join(project, 'project.csproj'),
    `<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><TargetFramework>net10.0</TargetFramework></PropertyGroup>
<ItemGroup><PackageReference Include="Contoso.Private" Version="1.0.0" /></ItemGroup></Project>`,
  );
  // At a prompt, a line that fails does not stop the next ones.
  const typed = text.replaceAll(/^dotnet nuget remove .*$/gm, (line) => `${line} || :`);
  for (let time = 0; time < times; time += 1) {
    const { code, stdout, stderr } = await paste(typed, project, home);
    t.is(code, 0, `${name}: ${stdout}${stderr}`);
  }
  const cli = commandLine('dotnet', requiredCommand('dotnet'), [], { env: dotnetEnvironment(home), cwd: project });
  const sources = await cli.run('nuget', 'list', 'source', '--format', 'short');
  asked.length = 0;
  await cli.run('restore').catch((error: Error) => t.true(asked.length > 0, error.message));
  return sources
    .trim()
    .split('\n')
    .map((line) => line.trim());
}

testWith('dotnet')('a source that is only added leaves the public one, which is asked for private names', async (t) => {
  t.timeout(600_000);
  const line = sourceLinesIn(await read('docs/clients.md'))
    .split('\n')
    .find((each) => each.includes(' add '))!;
  t.is((await restore(t, 'only-added', line, 1)).length, 2);
  t.true(
    asked.some((path) => path.includes('contoso.private')),
    asked.join(' '),
  );
});

testWith('dotnet')('after pasting the lines, also twice, a restore asks no source but this server', async (t) => {
  t.timeout(600_000);
  const readme = await read('README.md');
  const [row] = /^\| dotnet, NuGet .*$/m.exec(readme)!;
  const texts: [name: string, text: string, times: number][] = [
    ['first-start', greeting(entrepot.url, entrepot.token), 2],
    ['console', await connectPage(), 2],
    ['clients', await read('docs/clients.md'), 2],
    ['readme', readme.replace(row, ''), 2],
    ['readme-row', [...row.matchAll(/`([^`]+)`/g)].map(([, code]) => code).join('\n'), 1],
  ];
  for (const [name, text, times] of texts) {
    const sources = await restore(t, name, sourceLinesIn(text), times);
    t.deepEqual(sources, [`E ${entrepot.url}/v3/index.json`], name);
    t.deepEqual(asked, [], name);
    const assets = await readFile(join(folder.path, name, 'project/obj/project.assets.json'), 'utf8');
    t.true(assets.includes('Contoso.Private/1.0.0'), name);
  }
});
