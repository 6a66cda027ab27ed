import { join } from 'node:path';
import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { startEntrepot, type Entrepot } from '../support/processes/entrepot.ts';

// Deprecation and advisories of hosted packages, as dotnet shows them.

const folder = await temporaryFolder();
const withDotnet = testWith('dotnet');
let entrepot: Entrepot;

test.before(async () => {
  entrepot = await startEntrepot(folder.path);
});

test.after.always(async () => {
  await entrepot?.stop();
  await folder.remove();
});

async function send(method: string, path: string, body: string | Uint8Array<ArrayBuffer>, type: string): Promise<void> {
  const headers = { authorization: `Bearer ${entrepot.token}`, 'content-type': type };
  const response = await fetch(entrepot.url + path, { method, headers, body });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
}

async function publish(id: string, version: string): Promise<void> {
  const nupkg = await makeNupkg({ id, version });
  await send('PUT', '/v3/push', new Uint8Array(nupkg), 'application/octet-stream');
}

function sendJson(method: string, path: string, body: object): Promise<void> {
  return send(method, path, JSON.stringify(body), 'application/json');
}

/** A project that was restored with these packages, and the output of the restore. */
async function restored(name: string, references: Record<string, string>) {
  const url = `${entrepot.url}/v3/index.json`;
  const consumer = await dotnet(join(folder.path, name), { url, username: 'api', password: entrepot.token });
  const project = await consumer.project(name, references);
  const output = await consumer.run('restore', project);
  return { output, list: (option: string) => consumer.run('list', project, 'package', option) };
}

withDotnet('dotnet lists deprecated versions with their reasons and alternatives, and no others', async (t) => {
  for (const id of ['Deprecated.Lib', 'Current.Lib']) await publish(id, '1.0.0');
  await publish('Current.Lib', '0.9.0');
  const deprecation = {
    reasons: ['Legacy', 'CriticalBugs'],
    message: 'It loses data.',
    alternative: { id: 'Contoso.New', range: '2.0.0' },
  };
  await sendJson('PUT', '/v1/packages/Deprecated.Lib/1.0.0/deprecation', deprecation);
  await sendJson('PUT', '/v1/packages/Current.Lib/0.9.0/deprecation', deprecation);
  const { list } = await restored('Lister', { 'Deprecated.Lib': '1.0.0', 'Current.Lib': '1.0.0' });
  const output = await list('--deprecated');
  t.regex(output, /Deprecated\.Lib\s+1\.0\.0\s+1\.0\.0\s+Legacy,\s*CriticalBugs\s+Contoso\.New >= 2\.0\.0/);
  t.notRegex(output, /Current/);
});

withDotnet('a restore warns of advisories on hosted versions, each by its severity, and of no others', async (t) => {
  const severities = { 'Low.Lib': 0, 'Moderate.Lib': 1, 'High.Lib': 2, 'Critical.Lib': 3 };
  const address = 'https://advisories.test/';
  for (const [id, severity] of Object.entries(severities)) {
    await publish(id, '1.0.0');
    await sendJson('POST', '/v1/advisories', { package: id, versions: '[1.0.0, 1.1.0)', severity, url: address + id });
  }
  await publish('Fixed.Lib', '1.1.0');
  await sendJson('POST', '/v1/advisories', {
    package: 'Fixed.Lib',
    versions: '[1.0.0, 1.1.0)',
    severity: 3,
    url: address,
  });
  const { output, list } = await restored('Warned', {
    ...Object.fromEntries(Object.keys(severities).map((id) => [id, '1.0.0'])),
    'Fixed.Lib': '1.1.0',
  });
  for (const [id, severity] of Object.entries(severities)) {
    t.regex(output, new RegExp(`warning NU190${severity + 1}: .*'${id}' 1\\.0\\.0 .*${address}${id}`));
  }
  t.notRegex(output, /NU1900|Fixed/, 'the vulnerability data is valid');
  const vulnerable = await list('--vulnerable');
  t.regex(vulnerable, /Critical\.Lib\s+1\.0\.0\s+1\.0\.0\s+Critical\s+https/);
  t.notRegex(vulnerable, /Fixed/);
});
