import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet, sourceName, type Dotnet } from '../support/clients/dotnet.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';
import { testWith } from '../support/clients/test-with.ts';

// One Entrepot in front of another, used by the .NET SDK: first with the upstream, then without it.

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet');
let upstream: Entrepot | undefined;
let mirror: Entrepot;

test.before(async () => {
  const [upstreamFolder, mirrorFolder] = [join(folder.path, 'upstream'), join(folder.path, 'mirror')];
  await mkdir(upstreamFolder);
  await mkdir(mirrorFolder);
  upstream = await startEntrepot(upstreamFolder);
  const source = { name: 'upstream', kind: 'nuget', url: `${upstream.url}/v3/index.json`, freshFor: '1s' };
  const auth = { username: upstream.username, password: upstream.password };
  mirror = await startEntrepot(mirrorFolder, {
    ENTREPOT_UPSTREAMS: JSON.stringify([{ ...source, auth, allowPrivateNetwork: true }]),
  });
});

test.after.always(async () => {
  await mirror?.stop();
  await upstream?.stop();
  await folder.remove();
});

withDotnet('packages of the upstream are restored through the mirror', async (t) => {
  const publisher = await user('publisher', started());
  const push = (path: string): Promise<string> =>
    publisher.run('nuget', 'push', path, '--source', sourceName, '--api-key', started().token);
  await push(await publisher.pack({ id: 'Contoso.Library', version: '1.0.0' }));
  await push(await publisher.pack({ id: 'Contoso.Library', version: '1.1.0' }));
  await push(
    await publisher.pack({ id: 'Contoso.App', version: '2.0.0', dependencies: { 'Contoso.Library': '1.0.0' } }),
  );
  t.is(await runProgram('first'), '2.0.0\n1.0.0\n');
});

withDotnet('outdated packages and searches are answered from upstream', async (t) => {
  const consumer = await user('asker', mirror);
  const project = await consumer.project('Asker', { 'Contoso.Library': '1.0.0' });
  await consumer.run('restore', project);
  t.regex(
    await consumer.run('list', project, 'package', '--outdated'),
    /Contoso\.Library\s+1\.0\.0\s+1\.0\.0\s+1\.1\.0/,
  );
  t.regex(await consumer.run('package', 'search', 'contoso', '--source', sourceName), /Contoso\.App/);
});

withDotnet('packages that were restored once can be restored when the upstream is down', async (t) => {
  await upstream?.stop();
  upstream = undefined;
  t.is(await runProgram('second'), '2.0.0\n1.0.0\n');
  // A package that was never requested is not "not found" (NU1101), because the upstream cannot answer.
  const consumer = await user('late', mirror);
  const project = await consumer.project('Late', { 'Contoso.Unseen': '1.0.0' });
  const output = await consumer.fails('restore', project);
  t.regex(output, /NU1301|502|504/);
  t.notRegex(output, /NU1101/);
});

function started(): Entrepot {
  if (upstream === undefined) throw new Error('the upstream is stopped');
  return upstream;
}

/** Each user has an empty cache. */
function user(name: string, of: Entrepot): Promise<Dotnet> {
  const feed = { url: `${of.url}/v3/index.json`, username: of.username, password: of.password };
  return dotnet(join(folder.path, name), feed);
}

async function runProgram(name: string): Promise<string> {
  const consumer = await user(name, mirror);
  const project = await consumer.project('Program', { 'Contoso.App': '2.0.0', 'Contoso.Library': '1.0.0' });
  return consumer.run('run', '--project', project);
}
