import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet, sourceName } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';

// The .NET SDK at a server that refuses much of what it requests. For most requests it obeys Retry-After; for the list of
// versions it tries six times, a second apart, so that only the delay before a refusal helps.

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet');
let server: Entrepot;

test.before(async () => {
  server = await startEntrepot(folder.path, {
    ENTREPOT_LIMITS_REQUESTS_PER_MINUTE: '6',
  });
});

test.after.always(async () => {
  await server?.stop();
  await folder.remove();
});

withDotnet('a restore that meets 429 is delayed, tries again, and succeeds', async (t) => {
  const { url, username, password, token } = server;
  const client = await dotnet(join(folder.path, 'client'), { url: `${url}/v3/index.json`, username, password });
  const push = (path: string) => client.run('nuget', 'push', path, '--source', sourceName, '--api-key', token);
  await push(await client.pack({ id: 'Contoso.Library', version: '1.0.0' }));
  await push(await client.pack({ id: 'Contoso.App', version: '2.0.0', dependencies: { 'Contoso.Library': '1.0.0' } }));
  const project = await client.project('Program', { 'Contoso.App': '2.0.0' });
  await client.run('restore', project);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  t.regex(metrics, /^entrepot_limited_requests_total\{limit="requests",outcome="(?:delayed|refused)"\} [1-9]/m);
});
