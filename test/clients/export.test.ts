import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { digestOf, ociIndex, signedIndex, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { startDebianRegistry } from '../support/upstreams/debian-registry.ts';

test('a docker-registry of Debian gets images, and the list of referrers that it does not keep itself', async (t) => {
  const folder = await folderUntilEnd(t);
  const registry = await startDebianRegistry(folder);
  t.teardown(() => registry.stop());
  const here = await startTestServer(t);
  const app = new TestRepository(here, 'team/app');
  const exporting = (...words: string[]) =>
    entrepot({ ENTREPOT_DATA: here.data, ENTREPOT_UPSTREAMS: '[]' }, 'export', ...words);
  const { index, sbom } = await signedIndex(app, '1.0');
  const large = randomBytes(3 * 2 ** 20);
  await app.image('large', { layers: [await app.blob(large, 'application/vnd.oci.image.layer.v1.tar')] });
  await writeFile(join(folder, 'password'), registry.password);
  const words = [
    'registry',
    `http://${registry.host}`,
    '--user',
    registry.username,
    '--token-file',
    join(folder, 'password'),
  ];
  const done = await exporting(...words);
  t.deepEqual([done.code, done.stderr], [0, '']);
  const authorization = `Basic ${Buffer.from(`${registry.username}:${registry.password}`).toString('base64')}`;
  const get = (path: string) =>
    fetch(`http://${registry.host}/v2/team/app/${path}`, { headers: { authorization, accept: `${ociIndex}, */*` } });
  t.is(await (await get('manifests/1.0')).text(), index);
  const list = (await (await get(`manifests/${digestOf(index).replace(':', '-')}`)).json()) as any;
  t.deepEqual(
    list.manifests.map((each: { digest: string }) => each.digest),
    [digestOf(sbom)],
  );
  t.is(digestOf(Buffer.from(await (await get(`blobs/${digestOf(large)}`)).arrayBuffer())), digestOf(large));
  t.regex((await exporting(...words)).stdout, /^exported: 0\nthere already: 4\n/);
});
