import { mkdir, readFile, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { startImporting, type Importing } from '../support/imports.ts';
import { digestOf, ociIndex, ociManifest, platformImage, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { answer, endless } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const empty = 'application/vnd.oci.empty.v1+json';

async function imageAt({ target }: Pick<Importing, 'target'>, name: string, reference: string) {
  const response = await target.fetch(`/v2/${name}/manifests/${reference}`);
  return { status: response.status, text: await response.text() };
}

test('a whole registry comes, with platforms, signatures and other referrers, renamed, and a second time nothing is fetched', async (t) => {
  const old = await startTestServer(t);
  const app = new TestRepository(old, 'old/app');
  const [amd, arm] = [await app.image('amd64'), await app.image('arm64')];
  const index = {
    schemaVersion: 2,
    mediaType: ociIndex,
    manifests: [amd, arm].map(({ mediaType, digest: each, size }) => ({ mediaType, digest: each, size })),
  };
  t.is((await app.put('1.0', index as never, ociIndex)).status, 201);
  const digest = digestOf(JSON.stringify(index));
  const subject = { mediaType: ociIndex, digest, size: JSON.stringify(index).length };
  const signed = await app.image(`${digest.replace(':', '-')}.sig`);
  const sbom = await app.manifest({ artifactType: 'application/spdx+json', subject });
  const sbomDigest = digestOf(JSON.stringify(sbom));
  t.is((await app.put(sbomDigest, sbom)).status, 201);
  // The same layers in another repository.
  await new TestRepository(old, 'other').image('x');
  const importing = await startImporting(t);
  const { bring, file, target } = importing;
  const words = [old.url, '--token-file', await file('token', old.token), '--map', 'old/*=team/*'];
  const planned = await bring(...words, '--dry-run');
  t.deepEqual([planned.code, planned.stderr], [0, '']);
  t.regex(planned.stdout, /^to import: 5 \(/);
  t.is((await imageAt(importing, 'team/app', '1.0')).status, 404);
  const wrong = await bring(...words.slice(0, -1), 'old/*=Team/*', '--dry-run');
  t.regex(wrong.stderr, /^failed: old\/app: Team\/app is not a name of images$/m);
  const done = await bring(...words);
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^imported: 5 \(/);
  t.is((await imageAt(importing, 'team/app', '1.0')).text, JSON.stringify(index));
  t.is((await imageAt(importing, 'team/app', arm.digest)).text, arm.bytes);
  t.is((await imageAt(importing, 'team/app', `${digest.replace(':', '-')}.sig`)).text, signed.bytes);
  const referrers = (await (await target.fetch(`/v2/team/app/referrers/${digest}`)).json()) as any;
  t.deepEqual(
    referrers.manifests.map((each: { digest: string }) => each.digest),
    [sbomDigest],
  );
  const [layer] = JSON.parse(arm.bytes).layers;
  const blob = Buffer.from(await (await target.fetch(`/v2/team/app/blobs/${layer.digest}`)).arrayBuffer());
  t.is(digestOf(blob), layer.digest);
  t.is((await imageAt(importing, 'old/app', '1.0')).status, 404);
  const again = await bring(...words);
  t.regex(again.stdout, /^imported: 0\nhere already: 5\n/);
  // A tag that moved at the source.
  const moved = await app.image('1.0');
  const conflict = await bring(...words);
  t.is(conflict.code, 1);
  t.regex(conflict.stderr, /^conflict: team\/app 1\.0: the tag here points to another image/m);
  t.is((await imageAt(importing, 'team/app', '1.0')).text, JSON.stringify(index));
  const followed = await bring(...words, '--move-tags');
  t.is(followed.code, 0);
  t.is((await imageAt(importing, 'team/app', '1.0')).text, moved.bytes);
  // One that was pushed here stays.
  const here = await new TestRepository(target, 'team/app').image('amd64');
  const kept = await bring(...words, '--move-tags');
  t.regex(kept.stderr, /^conflict: team\/app amd64: the tag here points to an image that the source does not have$/m);
  t.is((await imageAt(importing, 'team/app', 'amd64')).text, here.bytes);
});

test('what refers to the image of one platform, or to such a referrer, comes with the index, also when that is here already', async (t) => {
  const old = await startTestServer(t);
  const app = new TestRepository(old, 'app');
  const platform = await platformImage(app, '1.0');
  const signature = await app.attach(platform);
  const importing = await startImporting(t);
  const words = [old.url, '--token-file', await importing.file('token', old.token)];
  const bring = async () => (await importing.bring(...words)).stdout;
  const statusOf = async ({ digest }: { digest: string }) => (await imageAt(importing, 'app', digest)).status;
  t.regex(await bring(), /^imported: 1 \(/);
  t.is(await statusOf(signature), 200);
  t.regex(await bring(), /^imported: 0\nhere already: 1\n/);
  const later = [await app.attach(platform), await app.attach(signature)];
  t.regex(await bring(), /^imported: 1 \(/);
  for (const each of later) t.is(await statusOf(each), 200);
  t.regex(await bring(), /^imported: 0\nhere already: 1\n/);
});

test('images come from a registry that answers the path of referrers as one that it does not know', async (t) => {
  for (const status of [400, 405, 406]) {
    const source = await startUpstreamRegistry(t);
    const { manifest } = source.image('app', '1');
    source.on(`/v2/app/referrers/${manifest.digest}`, answer(status));
    source.on('/v2/app/tags/list', answer(200, {}, '{"tags":["1"]}'));
    source.on('/v2/_catalog', answer(200, {}, '{"repositories":["app"]}'));
    const importing = await startImporting(t);
    const done = await importing.bring(source.url.href);
    t.deepEqual([done.code, done.stderr], [0, ''], String(status));
    t.is((await imageAt(importing, 'app', '1')).text, manifest.bytes);
  }
});

test('an image whose list of referrers ends before its last page is not told to have come whole', async (t) => {
  const source = await startUpstreamRegistry(t);
  const { manifest } = source.image('app', '1');
  const list = `/v2/app/referrers/${manifest.digest}`;
  source.on(list, answer(200, { link: `<${list}?page=2>; rel="next"` }, '{"manifests":[]}'));
  source.on(`${list}?page=2`, answer(404));
  source.on('/v2/app/tags/list', answer(200, {}, '{"tags":["1"]}'));
  source.on('/v2/_catalog', answer(200, {}, '{"repositories":["app"]}'));
  const { bring } = await startImporting(t);
  const done = await bring(source.url.href);
  t.is(done.code, 1);
  t.regex(done.stderr, /^failed: app 1: The source has no page that its list of manifests names$/m);
});

test('a report has what became of each image, with its bytes; nothing comes twice, and an index may lack images', async (t) => {
  const source = await startUpstreamRegistry(t);
  const { manifest, config, layer } = source.image('one', '1');
  // The same image in another repository.
  source.manifest('two', manifest.bytes, '1');
  source.blob('two', layer.bytes);
  source.on(`/v2/two/blobs/${config.digest}`, answer(404));
  const child = source.image('sparse');
  const absent = { mediaType: ociManifest, digest: digestOf('absent'), size: 6 };
  const { bytes: _bytes, ...there } = child.manifest;
  const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [there, absent] });
  source.manifest('sparse', index, '1');
  const silent = source.image('silent').manifest;
  source.on('/v2/silent/manifests/1', answer(200, { 'content-type': ociManifest }, silent.bytes));
  const repositories = ['one', 'two', 'sparse', 'silent'];
  for (const name of repositories) source.on(`/v2/${name}/tags/list`, answer(200, {}, '{"tags":["1"]}'));
  source.on('/v2/_catalog', answer(200, {}, JSON.stringify({ repositories })));
  const importing = await startImporting(t);
  const asked = () => source.requests().filter((each) => /^GET .*\/(?:blobs\/|manifests\/(?:1|sha256:))/.test(each));
  const run = async (report: string, ...words: string[]) => {
    const before = asked().length;
    const place = join(importing.folder, report);
    const { code, stderr } = await importing.bring(source.url.href, '--concurrency', '1', '--report', place, ...words);
    t.deepEqual([code, stderr], [0, ''], report);
    const lines = (await readFile(place, 'utf8')).trim().split('\n');
    return { items: lines.map((line) => JSON.parse(line)), requests: asked().slice(before) };
  };
  const sizeOf = (image: typeof child) => image.config.size + image.layer.size + image.manifest.size;
  const items = (outcome: string, ...bytes: number[]) =>
    repositories.map((name, at) => ({ name, reference: '1', outcome, bytes: bytes[at] ?? 0 }));
  const whole = sizeOf({ manifest, config, layer });
  const sparse = sizeOf(child) + index.length;
  const last = silent.size + whole - manifest.size;
  t.deepEqual((await run('plan', '--dry-run')).items, items('imported', whole, whole, sparse, last));
  const { items: brought, requests } = await run('done');
  t.deepEqual(brought, items('imported', whole, manifest.size, sparse, last));
  t.deepEqual(
    requests.filter((each) => /\/(?:one|two)\/blobs\//.test(each)),
    [config, layer].map(({ digest }) => `GET /v2/one/blobs/${digest}`),
  );
  t.is((await imageAt(importing, 'sparse', '1')).text, index);
  t.is((await imageAt(importing, 'sparse', absent.digest)).status, 404);
  // Only a digest that the source tells shows without a request that nothing is new.
  t.deepEqual(await run('again'), { items: items('present'), requests: ['GET /v2/silent/manifests/1'] });
});

test('a hostile registry: nothing wrong comes in, and each refusal has its reason', async (t) => {
  const source = await startUpstreamRegistry(t);
  const good = source.image('good', '1');
  const tagsOf = (name: string, ...tags: string[]) =>
    source.on(`/v2/${name}/tags/list`, answer(200, {}, JSON.stringify({ name, tags })));
  tagsOf('good', '1', '../../x', '');
  const bad = source.image('wrong', '1');
  source.on(`/v2/wrong/blobs/${bad.layer.digest}`, answer(200, {}, Buffer.alloc(bad.layer.size, 7)));
  tagsOf('wrong', '1');
  const long = source.image('long', '1');
  const sent = { bytes: 0 };
  source.on(`/v2/long/blobs/${long.layer.digest}`, endless(sent));
  tagsOf('long', '1');
  source.on('/v2/lying/manifests/1', answer(200, { 'docker-content-digest': good.manifest.digest }, 'no manifest'));
  tagsOf('lying', '1');
  const values = JSON.stringify({ schemaVersion: 2, values: Array.from({ length: 40_000 }, () => 0) });
  source.on('/v2/many/manifests/1', answer(200, { 'content-type': ociManifest }, values));
  tagsOf('many', '1');
  source.on('/v2/other/manifests/1', answer(200, { 'content-type': 'application/other' }, '{"schemaVersion":2}'));
  tagsOf('other', '1');
  // An index that names itself cannot have its own digest; one whose child has other content is refused.
  const child = { mediaType: ociManifest, digest: digestOf('another'), size: 7 };
  source.on(
    `/v2/nested/manifests/${child.digest}`,
    answer(200, { 'content-type': ociManifest }, '{"schemaVersion":2}'),
  );
  source.manifest('nested', { schemaVersion: 2, mediaType: ociIndex, manifests: [child] }, '1');
  tagsOf('nested', '1');
  // A list whose pages lead in a circle.
  source.on(
    '/v2/circle/tags/list',
    answer(200, { link: '</v2/circle/tags/list?n=1000>; rel="next"' }, '{"tags":["1"]}'),
  );
  const repositories = ['good', 'wrong', 'long', 'lying', 'many', 'other', 'nested', 'circle', '../x', 'A/b', ''];
  source.on('/v2/_catalog', answer(200, {}, JSON.stringify({ repositories })));
  const importing = await startImporting(t);
  const heard = await importing.bring(source.url.href);
  t.is(heard.code, 1);
  t.regex(heard.stdout, /^imported: 1 \(.*\nhere already: 0\nmirrored: 0\nconflicts: 0\nfailed: 7\n/);
  for (const expected of [
    /^failed: wrong 1: The source sent other content under sha256:/m,
    /^failed: long 1: .*larger than/m,
    /^failed: lying 1: Its manifest is of the type unknown, which is not stored here$/m,
    /^failed: many 1: Its manifest has too many values$/m,
    /^failed: other 1: Its manifest is of the type application\/other, which is not stored here$/m,
    /^failed: nested 1: The source sent other content under sha256:/m,
    /^failed: circle: The source sends a list without an end$/m,
  ])
    t.regex(heard.stderr, expected);
  t.true(sent.bytes < 50 * 2 ** 20);
  t.is((await imageAt(importing, 'good', '1')).text, good.manifest.bytes);
  for (const name of ['wrong', 'long', 'lying', 'nested']) t.is((await imageAt(importing, name, '1')).status, 404);
  const { repositories: shown } = (await (await importing.target.fetch('/v2/_catalog')).json()) as any;
  t.deepEqual(shown, ['good']);
});

test('a repository whose images an upstream has is mirrored, and one with an image of its own is hosted', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const source = await startUpstreamRegistry(t);
  const catalog = ['old/alpine', 'old/mixed'];
  for (const name of catalog) {
    const { manifest, config, layer } = upstream.image(name.replace('old', 'library'), '3');
    source.blob(name, layer.bytes);
    source.on(`/v2/${name}/blobs/${config.digest}`, answer(404));
    source.manifest(name, manifest.bytes, '3');
  }
  const own = source.image('old/mixed', 'own');
  // An upstream that refuses access to an image does not have it; one that fails may have it.
  for (const [name, status] of [
    ['refused', 403],
    ['failing', 400],
  ] as const) {
    const { digest } = source.image(`old/${name}`, '3').manifest;
    upstream.on(`/v2/library/${name}/manifests/${digest}`, answer(status));
    catalog.push(`old/${name}`);
  }
  for (const name of ['alpine', 'refused', 'failing'])
    source.on(`/v2/old/${name}/tags/list`, answer(200, {}, '{"tags":["3"]}'));
  source.on('/v2/old/mixed/tags/list', answer(200, {}, '{"tags":["own"]}'));
  source.on('/v2/_catalog', answer(200, {}, JSON.stringify({ repositories: catalog })));
  const importing = await startImporting(t, [upstream.settings('docker.io', { default: true })]);
  const words = [source.url.href, '--map', 'old/*=library/*'];
  const report = join(importing.folder, 'report');
  const done = await importing.bring(...words, '--report', report);
  const lines = (await readFile(report, 'utf8')).trim().split('\n');
  t.deepEqual(
    lines.map((line) => JSON.parse(line)).find(({ outcome }) => outcome === 'mirrored'),
    {
      name: 'library/alpine',
      reference: '3',
      outcome: 'mirrored',
      bytes: 0,
      note: 'docker.io has the same image',
      upstream: 'docker.io',
    },
  );
  t.regex(done.stdout, /^imported: 2 \(.*\nhere already: 0\nmirrored: 1\nconflicts: 0\nfailed: 1\n/);
  t.regex(done.stderr, /^failed: old\/failing: It is not known whether docker\.io has this image, too: /m);
  t.is(done.stderr.match(/^failed/gm)?.length, 1);
  const origins = async (name: string) =>
    ((await (await importing.target.fetch(`/v1/containers/${encodeURIComponent(name)}`)).json()) as any).origin;
  for (const name of ['library/mixed', 'library/refused']) t.is(await origins(name), 'hosted', name);
  t.is((await imageAt(importing, 'library/mixed', 'own')).text, own.manifest.bytes);
  t.is(await origins('docker.io/library/alpine'), 'mirrored');
  const hosted = await importing.bring(...words, '--hosted');
  t.regex(hosted.stdout, /^imported: 1 \(.*\nhere already: 2\nmirrored: 0\nconflicts: 0\nfailed: 1\n/);
  t.regex(hosted.stderr, /^failed: library\/alpine 3: The source does not have sha256:/m);
  t.is(await origins('library/failing'), 'hosted');
});

test('an OCI image layout, an archive of docker save, and the folder of a docker-registry with the times of its tags', async (t) => {
  const importing = await startImporting(t);
  const { bring, folder } = importing;
  const write = async (place: string, files: Record<string, Buffer | string>) => {
    for (const [name, bytes] of Object.entries(files)) {
      await mkdir(join(folder, place, name, '..'), { recursive: true });
      await writeFile(join(folder, place, name), bytes);
    }
    return join(folder, place);
  };
  const one = made('one');
  const annotations = { 'org.opencontainers.image.ref.name': '1.0' };
  const layout = await write('layout', {
    'oci-layout': '{"imageLayoutVersion":"1.0.0"}',
    'index.json': JSON.stringify({ schemaVersion: 2, manifests: [{ ...one.described, annotations }] }),
    ...Object.fromEntries(one.blobs.map((bytes) => [`blobs/sha256/${hex(bytes)}`, bytes])),
  });
  t.regex((await bring(layout)).stderr, /it has an image without a name: give it with --name/);
  const named = await bring(layout, '--name', 'team/one');
  t.deepEqual([named.code, named.stderr], [0, '']);
  t.is((await imageAt(importing, 'team/one', '1.0')).text, one.manifest.toString());
  t.is((await bring(layout, '--name', 'team/fixed:7')).code, 0);
  t.is((await imageAt(importing, 'team/fixed', '7')).text, one.manifest.toString());
  const digested = await bring(layout, '--name', `team/one@${one.described.digest}`, '--account', 'default');
  t.regex(digested.stderr, /layout: it has an image without a tag: give it with --name/);
  // Two images with tags of their own.
  const another = made('another');
  const tagged = (of: typeof one, tag: string) => ({
    ...of.described,
    annotations: { 'org.opencontainers.image.ref.name': tag },
  });
  const pair = await write('pair', {
    'oci-layout': '{"imageLayoutVersion":"1.0.0"}',
    'index.json': layoutIndex(tagged(one, '1.0'), tagged(another, '2.0')),
    ...Object.fromEntries([...one.blobs, ...another.blobs].map((bytes) => [`blobs/sha256/${hex(bytes)}`, bytes])),
  });
  t.regex(
    (await bring(pair, '--name', 'team/pair:7')).stderr,
    /pair: two of its images would be team\/pair:7 here\. If they have tags of their own, give --name without a tag/,
  );
  t.is((await bring(pair, '--name', 'team/pair')).code, 0);
  t.is((await imageAt(importing, 'team/pair', '1.0')).text, one.manifest.toString());
  t.is((await imageAt(importing, 'team/pair', '2.0')).text, another.manifest.toString());
  // A whole name, and an image that lacks its layer.
  const whole = { 'io.containerd.image.name': 'docker.io/team/whole:5', 'org.opencontainers.image.ref.name': 'x' };
  const lacks = made('lacking');
  const more = await write('more', {
    'oci-layout': '{"imageLayoutVersion":"1.0.0"}',
    'index.json': layoutIndex({ ...one.described, annotations: whole }, { ...lacks.described, annotations }),
    ...Object.fromEntries(
      [...one.blobs, ...lacks.blobs.slice(1)].map((bytes) => [`blobs/sha256/${hex(bytes)}`, bytes]),
    ),
  });
  const partly = await bring(more, '--name', 'team/lacking');
  t.regex(partly.stdout, /^imported: 1 \(/);
  const layer = digestOf(lacks.blobs[0]!);
  t.true(partly.stderr.includes(`failed: team/lacking 1.0: The source does not have ${layer}, which the image needs`));
  t.is((await imageAt(importing, 'team/whole', '5')).text, one.manifest.toString());
  await write('more', { 'index.json': layoutIndex({ annotations: whole }) });
  t.regex((await bring(more)).stderr, /more: index\.json has no digest/);
  const saved = await write('saved', {
    'manifest.json': JSON.stringify([
      { Config: 'config.json', Layers: ['a/layer.tar'], RepoTags: ['team/two:2', 'team/two:two'] },
      { Config: 'config.json', Layers: [], RepoTags: null },
    ]),
    'config.json': '{"architecture":"amd64","rootfs":{}}',
    'a/layer.tar': 'a layer',
  });
  t.regex((await bring(saved)).stderr, /saved: it has an image without a name: give it with --name/);
  t.is((await bring(saved, '--name', 'team/unnamed:1')).code, 0);
  const two = await imageAt(importing, 'team/two', '2');
  t.is(JSON.parse(two.text).layers[0].digest, digestOf('a layer'));
  t.deepEqual(await imageAt(importing, 'team/two', 'two'), two);
  t.deepEqual(JSON.parse((await imageAt(importing, 'team/unnamed', '1')).text).layers, []);
  const three = made('three');
  const repository = 'docker/registry/v2/repositories/team/three/_manifests';
  const link = digestOf(three.manifest);
  const [first, second] = [made('the first one'), made('the second one')];
  const ahead = `${repository}/tags/ahead`;
  const past = (of: string) => `${repository}/tags/v3/index/sha256/${of.slice(7)}/link`;
  const links = [first, second].map(({ manifest }) => digestOf(manifest));
  const lost = digestOf('a manifest that is not there any more');
  const later = made('one that the tag had later, before it was moved back');
  // What refers to an image, and what looks so.
  const referring = (subject: unknown, text: string) => {
    const { manifest, blobs } = made(text);
    const own = Buffer.from(JSON.stringify({ ...JSON.parse(manifest.toString()), subject }));
    return [...blobs.slice(0, 2), own];
  };
  const signatures = ['a', 'b'].map((each) => referring(described(three.manifest, ociManifest), `signature ${each}`));
  const strange = [referring(null, 'null'), referring({ digest: 5 }, 'number'), [Buffer.from('no JSON')]];
  const long = digestOf(three.manifest, 'sha512');
  const revision = (of: string) => [`${repository}/revisions/${of.replace(':', '/')}/link`, of];
  const files = await write('registry', {
    ...Object.fromEntries(
      [three, first, second, later]
        .flatMap(({ blobs }) => blobs)
        .concat(...signatures, ...strange)
        .map((bytes) => registryData(digestOf(bytes), bytes)),
    ),
    ...Object.fromEntries([...signatures, ...strange].map((parts) => revision(digestOf(parts.at(-1)!)))),
    ...Object.fromEntries([
      registryData(long, three.manifest),
      revision(long),
      revision(lost),
      revision(digestOf(later.manifest)),
    ]),
    ...Object.fromEntries([registryData(digestOf('right'), Buffer.from('wrong')), revision(digestOf('right'))]),
    [`${repository}/tags/long/current/link`]: long,
    [`${repository}/tags/wrong/current/link`]: digestOf('right'),
    [`${repository}/tags/.bad/current/link`]: link,
    [`${repository}/tags/copy/current/link.old`]: link,
    [`${repository.replace('three', 'Three')}/tags/v1/current/link`]: link,
    // A manifest that only another repository has.
    [`${repository.replace('three', 'four')}/tags/v1/current/link`]: link,
    [past(digestOf(later.manifest))]: digestOf(later.manifest),
    [`${past(digestOf(signatures[0]!.at(-1)!))}.old`]: 'no link',
    [`${repository}/tags/v3/current/link`]: `${link}\n`,
    ...Object.fromEntries([...links, link, lost].map((each) => [past(each), each])),
    ...Object.fromEntries(links.map((each) => [`${repository}/revisions/sha256/${each.slice(7)}/link`, each])),
    // The clock of the source was ahead.
    [`${ahead}/current/link`]: link,
    [`${ahead}/index/sha256/${links[0]!.slice(7)}/link`]: links[0]!,
    [`${repository}/tags/deleted/index/sha256/${link.slice(7)}/link`]: link,
    [`${repository}/tags/broken/current/link`]: '../../../etc/passwd',
    [`${repository}/revisions/sha256/${link.slice(7)}/link`]: link,
  });
  for (const [path, time] of [
    [`${repository}/tags/v3/current/link`, '2020-01-02'],
    [past(links[0]!), '2018-05-06'],
    [past(links[1]!), '2019-05-06'],
    [past(lost), '2017-01-01'],
    [past(link), '2020-01-02'],
    [past(digestOf(later.manifest)), '2020-01-03'],
    [`${past(digestOf(signatures[0]!.at(-1)!))}.old`, '2018-01-01'],
    [`${ahead}/current/link`, '2099-01-02'],
    [`${ahead}/index/sha256/${links[0]!.slice(7)}/link`, '2099-01-01'],
  ] as const)
    await utimes(join(files, path), new Date(time), new Date(time));
  const registry = await bring('docker-registry', files);
  t.is(registry.code, 1);
  t.regex(registry.stdout, /^imported: 3 \(.*\nhere already: 0\nmirrored: 0\nconflicts: 0\nfailed: 3\n/);
  t.regex(registry.stderr, /^failed: team\/four v1: The source lists this tag and does not have its image$/m);
  t.regex(registry.stderr, /^failed: team\/three wrong: The source sent other content under sha256:/m);
  t.is((await imageAt(importing, 'team/three', 'long')).text, three.manifest.toString());
  for (const parts of signatures) {
    const bytes = parts.at(-1)!;
    t.is((await imageAt(importing, 'team/three', digestOf(bytes))).text, bytes.toString());
  }
  t.regex(registry.stderr, /^failed: team\/three broken: The link of this tag has no digest$/m);
  t.is((await imageAt(importing, 'team/three', 'v3')).text, three.manifest.toString());
  const read = async (path: string) => (await (await importing.target.fetch(path)).json()) as any;
  const { items } = await read('/v1/containers/team%2Fthree/tags');
  const shown = Object.fromEntries(items.map((each: any) => [each.name, each.updated_at]));
  t.deepEqual(Object.keys(shown), ['ahead', 'long', 'v3']);
  t.regex(shown['v3'], /^2020-01-02/);
  const history = await read('/v2/team/three/_oci/tag-history/v3');
  const time = 'org.opencontainers.distribution.tag.timestamp';
  t.deepEqual(
    history.manifests.map(({ digest, size, annotations }: any) => [digest, size > 100, annotations[time].slice(0, 10)]),
    [
      [link, true, '2020-01-02'],
      [links[1], true, '2019-05-06'],
      [links[0], true, '2018-05-06'],
    ],
  );
  const soon = new Date(Date.now() + 60_000).toISOString();
  const aheadTimes = (await read('/v2/team/three/_oci/tag-history/ahead')).manifests.map(
    (each: any) => each.annotations[time],
  );
  t.true(
    [shown['ahead'], ...aheadTimes].every((each) => each < soon),
    'nothing was pushed in the future',
  );
  const dated = await importing.target.fetch('/v2/as-of/2020-01-01/team/three/manifests/v3');
  t.is(dated.status, 404);
});

/** An image with one layer. */
const made = (text: string) => {
  const [layer, config] = [Buffer.from(`layer of ${text}`), Buffer.from('{"architecture":"amd64"}')];
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: ociManifest,
      config: described(config, empty),
      layers: [described(layer, 'application/vnd.oci.image.layer.v1.tar')],
    }),
  );
  return { manifest, blobs: [layer, config, manifest], described: described(manifest, ociManifest) };
};

const described = (bytes: Buffer, mediaType: string) => ({
  mediaType,
  digest: digestOf(bytes),
  size: bytes.length,
});

const hex = (bytes: Buffer) => digestOf(bytes).slice(7);

/** The index of an image layout. */
const layoutIndex = (...manifests: object[]) => JSON.stringify({ schemaVersion: 2, manifests });

/** A blob in the folder of a docker-registry. */
const registryData = (of: string, bytes: Buffer) => {
  const [algorithm, digits] = of.split(':') as [string, string];
  return [`docker/registry/v2/blobs/${algorithm}/${digits.slice(0, 2)}/${digits}/data`, bytes] as const;
};
