import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';

// The .NET SDK at a server that refuses much of what it requests.

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet');
let server: Entrepot;

test.before(async () => {
  server = await startEntrepot(folder.path, {
    ENTREPOT_LIMITS_REQUESTS_PER_MINUTE: '8',
    ENTREPOT_LIMITS_DELAY: '100ms',
  });
});

test.after.always(async () => {
  await server?.stop();
  await folder.remove();
});

withDotnet('a restore that meets 429 waits as long as the answer says, and succeeds', async (t) => {
  const { url, username, password, token } = server;
  const client = await dotnet(join(folder.path, 'client'), { url: `${url}/v3/index.json`, username, password });
  const library = await client.pack({ id: 'Contoso.Library', version: '1.0.0' });
  const app = await client.pack({ id: 'Contoso.App', version: '2.0.0', dependencies: { 'Contoso.Library': '1.0.0' } });
  for (const path of [library, app])
    await client.run('nuget', 'push', path, '--source', sourceName, '--api-key', token);
  const project = await client.project('Program', { 'Contoso.App': '2.0.0' });
  await client.run('restore', project);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  t.regex(metrics, /^entrepot_limited_requests_total\{limit="requests",outcome="refused"\} [1-9]/m);
});
