import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { createLayout } from '../support/builders/images.ts';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { testWith } from '../support/clients/test-with.ts';
import { TestFeed } from '../support/feed.ts';
import { entrepot } from '../support/in-process.ts';
import { createToken } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const folder = await temporaryFolder();

test.after.always(() => folder.remove());

testWith(
  'dotnet',
  'skopeo',
  'umoci',
)('what dotnet restores and skopeo copies is told with the token, and what the token pushed afterwards', async (t) => {
  const data = join(folder.path, 'data');
  const server = await startTestServer(t, { data });
  const { token, value } = await createToken(server, ['read', 'write']);
  const at = (name: string) =>
    dotnet(join(folder.path, name), { url: `${server.url}/v3/index.json`, username: 'api', password: value });
  const packer = await at('packer');
  const nupkg = await readFile(await packer.pack({ id: 'Some.Library', version: '1.0.0' }));
  await new TestFeed(server).push(nupkg);
  const consumer = await at('consumer');
  await consumer.run('restore', await consumer.project('Program', { 'Some.Library': '1.0.0' }));

  const host = new URL(server.url).host;
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
  await skopeo.run('login', '-u', 'api', '-p', value, host);
  const image = await (await createLayout(join(folder.path, 'images'))).image('app');
  await skopeo.run('copy', image.reference, `docker://${host}/team/app:v1`);
  await skopeo.run('copy', `docker://${host}/team/app:v1`, `dir:${join(folder.path, 'copy')}`);
  await server.installation.core.usage.flush();

  const exposed = async (what: string) => (await entrepot({ ENTREPOT_DATA: data }, 'exposed', what)).stdout;
  const lines = (await exposed('Some.Library@[1.0,2.0)')).split('\n');
  t.regex(lines[0]!, new RegExp(`^some\\.library 1\\.0\\.0\\tdefault\\ta test\\t${token.id}\\t`));
  t.regex(lines[1]!, new RegExp(`\\tpushed later\\tteam/app ${image.digest}\\t`));
  t.regex(await exposed('team/app:v1'), new RegExp(`^team/app ${image.digest}\\tdefault\\ta test\\t${token.id}\\t`));
});
