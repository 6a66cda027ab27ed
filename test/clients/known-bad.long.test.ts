import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../support/clients/clients.ts';
import { containerClient } from '../support/clients/container-clients.ts';
import { dotnet } from '../support/clients/dotnet.ts';
import { pullers, startPuller } from '../support/clients/puller.ts';
import { testWith } from '../support/clients/test-with.ts';
import { applyPolicy, runJob } from '../support/inside.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

// What real clients print of content that a list of known bad content names (docs/policy.md).

const folder = await temporaryFolder();

test.after.always(() => folder.remove());

testWith('dotnet')(
  'dotnet prints the ID and the reason of a version that a list names, and takes no other one',
  async (t) => {
    const packer = await dotnet(join(folder.path, 'packer'), {
      url: 'http://127.0.0.1:9/',
      username: 'api',
      password: 'none',
    });
    const up = await UpstreamFeed.start(t);
    const versions: { version: string; nupkg: Buffer }[] = [];
    for (const version of ['1.0.0', '1.1.0'])
      versions.push({ version, nupkg: await readFile(await packer.pack({ id: 'Some.Library', version })) });
    await up.offer({ id: 'Some.Library', versions });
    const file = join(folder.path, 'list.json');
    const affected = [{ package: { ecosystem: 'NuGet', name: 'Some.Library' }, versions: ['1.1.0'] }];
    const record = osv('MAL-2026-4711', 'Some.Library', {
      affected,
      summary: 'Malicious code in Some.Library (NuGet)',
    });
    await writeFile(file, linesOf([record]));
    const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
    await applyPolicy(server, { knownBad: { lists: [{ name: 'osv', file }] } });
    await runJob(server, 'known-bad');
    const projectWith = async (name: string, range: string) => {
      const source = { url: `${server.url}/v3/index.json`, username: 'api', password: server.token };
      const consumer = await dotnet(join(folder.path, name), source);
      const project = await consumer.project('Program', { 'Some.Library': range });
      return {
        run: () => consumer.run('run', '--project', project),
        restore: () => consumer.fails('restore', project),
      };
    };
    const reason = /403.*it is known to be bad \(MAL-2026-4711\): Malicious code in Some\.Library \(NuGet\)/;
    for (const [name, range] of [
      ['exact', '[1.1.0]'],
      ['floating', '1.*'],
      ['minimum', '1.1.0'],
    ] as const)
      t.regex(await (await projectWith(name, range)).restore(), reason, range);
    t.is(await (await projectWith('earlier', '1.0.0')).run(), '1.0.0\n');
  },
);

testWith('skopeo')('skopeo prints the ID and the reason of an image that a list names', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const { manifest } = registry.image('team/app', 'latest');
  const file = join(folder.path, 'own.json');
  await writeFile(file, linesOf([{ id: 'SEC-12', reason: 'it mines coins', digests: [manifest.digest] }]));
  const server = await startTestServer(t, { upstreams: [registry.settings('registry.test')] });
  await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file }] } });
  await runJob(server, 'known-bad');
  const { host } = new URL(server.url);
  const skopeo = await containerClient('skopeo', join(folder.path, 'skopeo'), [host]);
  await skopeo.run('login', '-u', 'api', '-p', server.token, host);
  for (const reference of [':latest', `@${manifest.digest}`]) {
    const printed = await skopeo.fails(
      'copy',
      `docker://${host}/registry.test/team/app${reference}`,
      `dir:${folder.path}/x`,
    );
    t.regex(printed, /it is known to be bad \(SEC-12\): it mines coins/, reference);
  }
});

for (const client of ['docker', 'podman', 'containerd'] as const) {
  testWith(pullers[client])(`${client} prints the ID and the reason of an image that a list names`, async (t) => {
    const registry = await startUpstreamRegistry(t);
    const { manifest } = registry.image('team/app', 'latest');
    const file = join(folder.path, `own-${client}.json`);
    await writeFile(file, linesOf([{ id: 'SEC-12', reason: 'it mines coins', digests: [manifest.digest] }]));
    const server = await startTestServer(t, { upstreams: [registry.settings('registry.test')] });
    await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file }] } });
    await runJob(server, 'known-bad');
    const puller = await startPuller(t, client, folder.path, server);
    const name = `${new URL(server.url).host}/registry.test/team/app`;
    for (const reference of [':latest', `@${manifest.digest}`])
      t.regex(await puller.fails(`${name}${reference}`), /it is known to be bad \(SEC-12\): it mines coins/, reference);
  });
}
