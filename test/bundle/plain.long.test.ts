import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pack } from 'tar-stream';
import test from 'ava';
import { startAirGap } from '../support/bundles.ts';
import { digestOf, dockerManifest, ociIndex, ociManifest } from '../support/registry.ts';

// Content of other tools: it is not signed, and comes in only if that is said.

/** A tar archive with these members. */
async function tarOf(members: Record<string, Buffer | string>): Promise<Buffer> {
  const archive = pack();
  for (const [name, bytes] of Object.entries(members)) archive.entry({ name }, bytes);
  archive.finalize();
  const pieces: Buffer[] = [];
  for await (const piece of archive as AsyncIterable<Buffer>) pieces.push(piece);
  return Buffer.concat(pieces);
}

const descriptor = (bytes: Buffer, mediaType: string) => ({ mediaType, digest: digestOf(bytes), size: bytes.length });
const blob = (bytes: Buffer): [string, Buffer] => [`blobs/sha256/${digestOf(bytes).slice('sha256:'.length)}`, bytes];

/** The files of an OCI image layout with one image, whose reference is `name`. */
function layout(name: string) {
  const [layer, config] = [Buffer.from(`layer of ${name}`), Buffer.from('{"architecture":"amd64"}')];
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: ociManifest,
      config: descriptor(config, 'application/vnd.oci.image.config.v1+json'),
      layers: [descriptor(layer, 'application/vnd.oci.image.layer.v1.tar')],
    }),
  );
  const annotations = { 'org.opencontainers.image.ref.name': name };
  const index = { schemaVersion: 2, manifests: [{ ...descriptor(manifest, ociManifest), annotations }] };
  const files = {
    'oci-layout': '{"imageLayoutVersion":"1.0.0"}',
    'index.json': JSON.stringify(index),
    ...Object.fromEntries([layer, config, manifest].map(blob)),
  };
  return { files, manifest, layer };
}

const whole = (name: string) => ({ 'io.containerd.image.name': name });

test('an OCI image layout, as a folder and as an archive, and an archive of docker save', async (t) => {
  const { far, path } = await startAirGap(t);
  const one = layout('docker.io/team/one:1');
  for (const [name, bytes] of Object.entries(one.files)) {
    await mkdir(join(path('layout'), name, '..'), { recursive: true });
    await writeFile(join(path('layout'), name), bytes);
  }
  // Names that are not those of segments.
  for (const name of ['copy-0001.tar', '0001.tar.sha256', '00001.tar']) await writeFile(join(path('layout'), name), '');
  t.regex(
    await far.fails('bundle', 'import', path('layout')),
    /this is no bundle\. Content of other tools is not signed.*--unsigned/,
  );
  await far.ok('bundle', 'import', path('layout'), '--unsigned');
  const two = layout('1.0');
  await writeFile(path('two.tar'), await tarOf(two.files));
  t.regex(
    await far.fails('bundle', 'import', path('two.tar'), '--unsigned'),
    /an image without a name: give it with --name/,
  );
  await far.ok('bundle', 'import', path('two.tar'), '--unsigned', '--name', 'docker.io/team/two');
  const [config, layer] = ['{"architecture":"amd64","os":"linux"}', 'a layer that is not compressed'];
  const saved = [{ Config: 'config.json', RepoTags: ['team/saved:2'], Layers: ['a/layer.tar'] }];
  const archive = { 'config.json': config, 'a/layer.tar': layer, 'manifest.json': JSON.stringify(saved) };
  await writeFile(path('saved.tar'), await tarOf(archive));
  await far.ok('bundle', 'import', path('saved.tar'), '--unsigned');
  await writeFile(path('elsewhere.tar'), await tarOf(layout('registry.test/team/x:1').files));
  t.regex(
    await far.fails('bundle', 'import', path('elsewhere.tar'), '--unsigned'),
    /no upstream here has the image registry\.test\/team\/x:1/,
  );
  await writeFile(
    path('broken.tar'),
    await tarOf({ ...one.files, 'index.json': '{"manifests":[{"digest":"sha256:1"}]}' }),
  );
  t.regex(await far.fails('bundle', 'import', path('broken.tar'), '--unsigned'), /index\.json has no digest/);
  const without = (part: Buffer) =>
    Object.fromEntries(Object.entries(one.files).filter(([name]) => name !== blob(part)[0]));
  const empty = Buffer.from('{}');
  const ofEmpty = JSON.stringify({
    manifests: [{ digest: digestOf(empty), annotations: whole('team/empty:1') }],
  });
  const save = (image: object) => ({ ...archive, 'manifest.json': JSON.stringify([{ ...saved[0], ...image }]) });
  for (const [what, files, more, message] of [
    ['manifest', without(one.manifest), [], `${digestOf(one.manifest)} is missing`],
    ['layer', without(one.layer), [], `${digestOf(one.layer)} is missing`],
    [
      'type',
      { ...one.files, ...Object.fromEntries([blob(empty)]), 'index.json': ofEmpty },
      [],
      'is no manifest of a known type',
    ],
    ['json', { ...one.files, 'index.json': 'no JSON' }, [], 'index.json is not JSON'],
    [
      'name',
      layout('Not A Tag').files,
      ['--name', 'docker.io/team/x'],
      '"docker.io/team/x:Not A Tag" is not an image name',
    ],
    ['file', save({ Layers: ['none.tar'] }), [], '"none.tar" is missing'],
    ['tags', save({ RepoTags: null }), [], 'it has an image without a name: give it with --name'],
  ] as const) {
    await writeFile(path(`${what}.tar`), await tarOf(files));
    const said = await far.fails('bundle', 'import', path(`${what}.tar`), '--unsigned', ...more);
    t.true(said.includes(message), `${what}: ${said}`);
  }
  // The option names an image of docker save without a name, and a layout may have only some platforms of an image.
  await far.ok('bundle', 'import', path('tags.tar'), '--unsigned', '--name', 'docker.io/team/named:3');
  const platforms = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [descriptor(one.manifest, ociManifest), { ...descriptor(empty, ociManifest), size: 2 }],
    }),
  );
  const sparse = { manifests: [{ ...descriptor(platforms, ociIndex), annotations: whole('docker.io/team/sparse:4') }] };
  const some = { ...one.files, ...Object.fromEntries([blob(platforms)]), 'index.json': JSON.stringify(sparse) };
  await writeFile(path('sparse.tar'), await tarOf(some));
  await far.ok('bundle', 'import', path('sparse.tar'), '--unsigned');

  const server = await far.serve();
  for (const [name, { manifest, layer: bytes }] of [
    ['team/one/manifests/1', one],
    ['team/two/manifests/1.0', two],
  ] as const) {
    const answer = await server.fetch(`/v2/${name}`);
    t.is(await answer.text(), String(manifest));
    t.is(
      await (await server.fetch(`/v2/${name.split('/manifests')[0]}/blobs/${digestOf(bytes)}`)).text(),
      String(bytes),
    );
  }
  const text = await (await server.fetch('/v2/team/saved/manifests/2')).text();
  const bytes = { config: Buffer.from(config), layer: Buffer.from(layer) };
  t.deepEqual(JSON.parse(text), {
    schemaVersion: 2,
    mediaType: dockerManifest,
    config: descriptor(bytes.config, 'application/vnd.docker.container.image.v1+json'),
    layers: [descriptor(bytes.layer, 'application/vnd.docker.image.rootfs.diff.tar')],
  });
  for (const each of Object.values(bytes))
    t.is(await (await server.fetch(`/v2/team/saved/blobs/${digestOf(each)}`)).text(), each.toString());
  for (const reference of [digestOf(text), '2'])
    t.is((await server.fetch(`/v2/team/saved/manifests/${reference}`)).headers.get('content-type'), dockerManifest);
  t.is(await (await server.fetch('/v2/team/named/manifests/3')).text(), text);
  t.is(await (await server.fetch('/v2/team/sparse/manifests/4')).text(), platforms.toString());
  const child = await server.fetch(`/v2/team/sparse/manifests/${digestOf(one.manifest)}`);
  t.is(await child.text(), one.manifest.toString());
  await server.close();
});

test('a layout whose content is not that of its digests is refused, also an index that names itself', async (t) => {
  const { far, path } = await startAirGap(t);
  const type = 'application/vnd.oci.image.index.v1+json';
  const digest = `sha256:${'1'.repeat(64)}`;
  const own = { mediaType: type, digest, size: 200 };
  const annotations = { 'org.opencontainers.image.ref.name': 'docker.io/team/loop:1' };
  const files = {
    'oci-layout': '{"imageLayoutVersion":"1.0.0"}',
    'index.json': JSON.stringify({ schemaVersion: 2, manifests: [{ ...own, annotations }] }),
    [`blobs/sha256/${'1'.repeat(64)}`]: JSON.stringify({ schemaVersion: 2, mediaType: type, manifests: [own] }),
  };
  await writeFile(path('loop.tar'), await tarOf(files));
  t.regex(await far.fails('bundle', 'import', path('loop.tar'), '--unsigned'), /sha256:1{64} has other content/);
});

test('the manifests of a layout are read once, however many indexes name them', async (t) => {
  const { far, path } = await startAirGap(t);
  const { files, manifest } = layout('docker.io/team/one:1');
  const type = 'application/vnd.oci.image.index.v1+json';
  // Each level names the one below twenty times: read as often, they would be 20 to the power of 12.
  let below = descriptor(manifest, ociManifest);
  const levels: Record<string, Buffer> = {};
  for (let level = 0; level < 12; level += 1) {
    const index = Buffer.from(
      JSON.stringify({ schemaVersion: 2, mediaType: type, level, manifests: Array(20).fill(below) }),
    );
    const [name, bytes] = blob(index);
    levels[name] = bytes;
    below = descriptor(index, type);
  }
  const annotations = { 'org.opencontainers.image.ref.name': 'docker.io/team/one:1' };
  const top = JSON.stringify({ schemaVersion: 2, manifests: [{ ...below, annotations }] });
  await writeFile(path('deep.tar'), await tarOf({ ...files, ...levels, 'index.json': top }));
  t.regex(await far.ok('bundle', 'import', path('deep.tar'), '--unsigned'), /^manifests: 14 /m);
});
