import test from 'ava';
import { dangers, hostile } from '../support/hostile.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { ociIndex, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

const configType = 'application/vnd.oci.image.config.v1+json';

const order = (page: string) => [...page.matchAll(/name="tag" value="([^"]+)"/g)].map(([, tag]) => tag!);

test('images are listed with their origin, and an image has a row for each tag, the newest first, over all pages', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [hub.settings('docker.io', { default: true })] });
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/images'), /class="empty">\s*No images yet/);
  hub.image('library/alpine', '3');
  await (await server.fetch('/v2/alpine/manifests/3')).arrayBuffer();
  const repository = new TestRepository(server, 'team/app');
  const config = await repository.blob(JSON.stringify({ os: 'linux', architecture: 'amd64' }), configType);
  const { bytes } = await repository.image('v1', { config });
  server.clock.now = Date.now();
  const put = async (tag: string) => {
    server.clock.now! += 1000;
    t.is((await repository.put(tag, bytes)).status, 201);
  };
  for (let number = 2; number <= 55; number += 1) await put(`v${number}`);
  const page = await visitor.page('/console/images');
  t.regex(page, /<a href="\/console\/images\/team%2Fapp">team\/app<\/a>[^]*hosted[^]*data-label="Tags">55</);
  t.regex(page, /docker\.io%2Flibrary%2Falpine">[^]*mirrored from docker\.io/);
  t.notRegex(await visitor.page('/console/images?origin=mirrored'), /team%2Fapp/);
  const image = await visitor.page('/console/images/team%2Fapp');
  t.deepEqual(
    order(image),
    Array.from({ length: 50 }, (_, index) => `v${55 - index}`),
  );
  t.regex(image, /same as v1, v10, v11/);
  t.regex(image, /<td[^>]*>linux\/amd64<\/td>/);
  t.regex(image, /docker pull 127\.0\.0\.1:\d+\/team\/app:v55</);
  const changes = await visitor.page('/console/images/team%2Fapp?show=history');
  t.regex(changes, /What tags pointed to[^]*>v55</);
  t.regex(changes, /<a href="\/console\/images\/team%2Fapp\?kind=tag&amp;show=history&amp;cursor=[^"]+" rel="next">/);
  t.regex(await visitor.page('/console/images/team%2Fapp?show=used'), /Who uses it[^]*first token/);
  const reader = await Visitor.signedIn(server, await tokenOf(server, ['read']));
  t.regex(await reader.page('/console/images/team%2Fapp?show=used'), /Only an administrator/);
  const [, next] = /<button name="cursor" value="([^"]+)">Next page/.exec(image)!;
  t.deepEqual(order(await visitor.page(`/console/images/team%2Fapp?cursor=${encodeURIComponent(next!)}`)), [
    'v5',
    'v4',
    'v3',
    'v2',
    'v1',
  ]);
  t.deepEqual(order(await visitor.page('/console/images/team%2Fapp?sort=asc')).slice(0, 3), ['v1', 'v2', 'v3']);
  t.deepEqual(order(await visitor.page('/console/images/team%2Fapp?q=V1&sort=desc')).slice(0, 3), [
    'v19',
    'v18',
    'v17',
  ]);
  t.regex(
    await visitor.page('/console/images/team%2Fapp?q=none'),
    /Nothing matches\. <a href="\/console\/images\/team%2Fapp">Clear/,
  );
  await put(`sha256-${'a'.repeat(64)}.sig`);
  const signed = await visitor.page('/console/images/team%2Fapp');
  t.regex(signed, /docker pull 127\.0\.0\.1:\d+\/team\/app:v55</, 'a signature cannot be run');
  t.regex(signed, /<td[^>]*><a href="\/console\/images\/team%2Fapp\/sha256[^"]+">v55<\/a>/);
  await put('latest');
  await put('v56');
  t.regex(await visitor.page('/console/images/team%2Fapp?sort=asc'), /docker pull \S+\/team\/app:latest</);
  const before = hub.requests().length;
  const mirrored = await visitor.page('/console/images/docker.io%2Flibrary%2Falpine');
  t.regex(mirrored, /not stored here/);
  const [, digestPath] = /<td[^>]*><a href="([^"]+)" title="sha256/.exec(mirrored)!;
  t.regex(mirrored, /Drop from the mirror…/);
  t.notRegex(await visitor.page(digestPath!), /the last <span class="quiet">never/);
  t.regex(await visitor.page(digestPath!), /Drop from the mirror…/);
  t.regex(await visitor.page('/console/images/docker.io%2Flibrary%2Falpine/delete?tag=3'), /<h1>Drop 1 tag of/);
  t.regex(await visitor.page(digestPath!), /The config of this image is not stored\s+here: a page fetches nothing/);
  t.is(hub.requests().length, before);
  t.regex(
    await (await visitor.fetch('/console/images/docker.io%2Fnone')).text(),
    /not stored here\. The image of an upstream/,
  );
  for (let number = 1; number <= 51; number += 1) await put(`v${number}`);
  const pulled = await visitor.page('/console/images/team%2Fapp');
  t.notRegex(pulled, /value="latest"/, 'it is on another page of the list');
  t.regex(pulled, /docker pull 127\.0\.0\.1:\d+\/team\/app:latest</);
});

test('the page of a digest has layers, commands, platforms, referrers and annotations; untagged manifests have theirs', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const history = [
    { created: '2026-01-01T00:00:00Z', created_by: 'ENV A=1', empty_layer: true },
    { created: '2026-01-01T00:00:00Z', created_by: 'RUN make' },
  ];
  const config = await repository.blob(JSON.stringify({ os: 'linux', architecture: 'arm64', history }), configType);
  const image = await repository.image('v1', { config, annotations: { 'org.test': 'a value' } });
  const manifests = [
    {
      mediaType: image.mediaType,
      digest: image.digest,
      size: image.size,
      platform: { os: 'linux', architecture: 'arm64' },
    },
  ];
  const index = await repository.put('multi', { schemaVersion: 2, mediaType: ociIndex, manifests });
  const indexDigest = index.headers.get('docker-content-digest')!;
  const sbom = await repository.manifest({
    artifactType: 'application/spdx+json',
    subject: { mediaType: image.mediaType, digest: image.digest, size: image.size },
  });
  const pushed = await repository.put('sbom', sbom);
  const sbomDigest = pushed.headers.get('docker-content-digest')!;
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.page(`/console/images/team%2Fapp/${encodeURIComponent(image.digest)}`);
  t.regex(page, /1 layer/);
  t.regex(page, /<code>ENV A=1<\/code>[^]*?no layer/);
  t.regex(page, /<code>RUN make<\/code>[^]*?data-label="Size of its layer">\s*<span class="exact" title="100 bytes"/);
  t.regex(page, /Platform<\/dt>\s*<dd>linux\/arm64/);
  t.true(page.includes(`title="${indexDigest}"`), 'the index that lists it');
  t.regex(page, /application\/spdx\+json/);
  t.true(page.includes(`title="${sbomDigest}"`));
  t.regex(page, /org\.test<\/code><\/td\s*><td[^>]*>a value/);
  t.true(page.includes(`/team/app@${image.digest}`));
  const ofIndex = await visitor.page(`/console/images/team%2Fapp/${indexDigest}`);
  t.regex(ofIndex, /1 manifest of this index[^]*linux\/arm64/);
  await server.fetch('/v1/containers/team/app/v1', { method: 'DELETE' });
  const untagged = await visitor.page('/console/images/team%2Fapp?show=untagged');
  t.regex(untagged, /an index/);
  t.regex(
    untagged,
    /<td[^>]*data-label="Kind"><span class="exact" title="application\/vnd\.oci\.image\.config[^"]+">Image</,
  );
  t.true(untagged.includes(`title="${image.digest}"`));
  t.is((await visitor.fetch(`/console/images/team%2Fapp/sha256:${'0'.repeat(64)}`)).status, 404);
  t.is((await visitor.fetch('/console/images/team%2Fapp/x')).status, 404);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read'], 'other'));
  t.notRegex(await other.page('/console/images'), /team/);
  t.is((await other.fetch('/console/images/team%2Fapp')).status, 404);
  t.is((await other.fetch(`/console/images/team%2Fapp/${image.digest}`)).status, 404);
  const { value } = await createToken(server, ['read'], 'default', { containers: ['else'] });
  const narrow = await Visitor.signedIn(server, value);
  t.is((await narrow.fetch('/console/images/team%2Fapp')).status, 403);
});

test('hostile texts of an image are only text on every page that shows them', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [hub.settings('docker.io', { default: true })] });
  const visitor = await Visitor.signedIn(server);
  for (const [index, text] of hostile.entries()) {
    const name = `hostile/i${index}`;
    const repository = new TestRepository(server, name);
    const config = {
      os: text,
      architecture: text,
      author: text,
      created: text,
      history: [{ created_by: text, created: text, comment: text }, text, null],
      config: { Labels: { [text]: text } },
    };
    const blob = await repository.blob(JSON.stringify(config), configType);
    const annotations = { [text]: text };
    const image = await repository.image('v1', { config: blob, annotations, artifactType: text });
    const subject = { mediaType: image.mediaType, digest: image.digest, size: image.size };
    await repository.image('sig', { subject, annotations, artifactType: text });
    const platform = { os: text, architecture: text };
    await repository.put('multi', {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [{ ...subject, platform }],
      annotations,
    });
    const document = {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [{ ...subject, mediaType: text, platform }, text],
      annotations,
    };
    const { digest } = hub.manifest('up/hostile', document, `t${index}`);
    await (await server.fetch(`/v2/docker.io/up/hostile/manifests/t${index}`)).arrayBuffer();
    for (const path of [
      `/console/images/${encodeURIComponent(name)}`,
      `/console/images/${encodeURIComponent(name)}?show=untagged`,
      `/console/images/${encodeURIComponent(name)}/${image.digest}`,
      '/console/images/docker.io%2Fup%2Fhostile',
      `/console/images/docker.io%2Fup%2Fhostile/${digest}`,
      `/console/images/${encodeURIComponent(name)}?q=${encodeURIComponent(text)}`,
      `/console/search?q=${encodeURIComponent(text)}`,
    ]) {
      t.deepEqual(dangers(await visitor.page(path)), [], `${path} ${text}`);
    }
    t.deepEqual(dangers(await (await visitor.fetch(`/console/images/${encodeURIComponent(text)}`)).text()), []);
  }
});

test('the page of an index has its images with their sizes first, then what attests them; of an image how it runs', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/multi');
  const layer = await repository.blob('x'.repeat(5000));
  const config = await repository.blob(
    JSON.stringify({
      os: 'linux',
      architecture: 'arm64',
      config: {
        Entrypoint: ['/app', '--serve'],
        Cmd: ['--port', '8080'],
        Env: ['PATH=/bin', 'SECRET=<b>'],
        User: 'app',
        WorkingDir: '/srv',
        ExposedPorts: { '8080/tcp': {} },
      },
      history: [{ created_by: `RUN ${'a'.repeat(600)}END`, created: '2026-01-02T03:04:05.678Z' }],
    }),
    'application/vnd.oci.image.config.v1+json',
  );
  const put = async (reference: string, manifest: object, type: string) => {
    const response = await repository.put(reference, JSON.stringify(manifest), type);
    t.is(response.status, 201);
    return { mediaType: type, digest: response.headers.get('docker-content-digest')!, size: 500 };
  };
  const image = await put('arm', { schemaVersion: 2, mediaType: ociManifest, config, layers: [layer] }, ociManifest);
  const attestation = await put(
    'attestation',
    { schemaVersion: 2, mediaType: ociManifest, config, layers: [], annotations: { of: 'arm' } },
    ociManifest,
  );
  const attests = {
    'vnd.docker.reference.type': 'attestation-manifest',
    'vnd.docker.reference.digest': image.digest,
  };
  const index = await put(
    'v1',
    {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [
        { ...attestation, platform: { os: 'unknown', architecture: 'unknown' }, annotations: attests },
        { ...image, platform: { os: 'linux', architecture: 'arm64' } },
      ],
    },
    ociIndex,
  );
  const visitor = await Visitor.signedIn(server);
  const page = async (digest: string) =>
    (await visitor.page(`/console/images/team%2Fmulti/${encodeURIComponent(digest)}`)).replace(/\s+/g, ' ');
  const ofIndex = await page(index.digest);
  t.regex(ofIndex, /title="application\/vnd\.oci\.image\.index\.v1\+json">Index of platforms</);
  t.regex(ofIndex, /<td[^>]*>linux\/arm64<\/td>.*6\.\d kB.*<td[^>]*>Build attestation for linux\/arm64<\/td>/);
  const ofImage = await page(image.digest);
  t.regex(ofImage, /Entrypoint<\/dt> <dd><code>\/app --serve<\/code>/);
  t.regex(ofImage, /Command<\/dt> <dd><code>--port 8080<\/code>/);
  t.regex(ofImage, /User<\/dt> <dd>app<.*Working directory<\/dt> <dd>\/srv<.*Ports<\/dt> <dd>8080\/tcp</);
  t.regex(ofImage, /2 variables.*<code>SECRET=&lt;b&gt;<\/code>/);
  t.regex(ofImage, /<details> <summary><code>RUN a+…<\/code><\/summary> <code>RUN a+END<\/code>/);
  t.regex(ofImage, /2026-01-02 03:04</);
});

test('a chart is pulled with helm, another artifact with oras, and an image with docker', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const lineOf = async (name: string, configType: string, artifactType?: string) => {
    const repository = new TestRepository(server, name);
    const config = await repository.blob('{}', configType);
    const manifest = {
      schemaVersion: 2,
      mediaType: ociManifest,
      ...(artifactType && { artifactType }),
      config,
      layers: [],
    };
    t.is((await repository.put('1.2.3', JSON.stringify(manifest), ociManifest)).status, 201);
    const page = await visitor.page(`/console/images/${encodeURIComponent(name)}`);
    return /<code>((?:helm|oras|docker) pull [^<]*)<\/code>/.exec(page)?.[1]?.replace(/127\.0\.0\.1:\d+/, 'HOST');
  };
  t.is(
    await lineOf('charts/app', 'application/vnd.cncf.helm.config.v1+json'),
    'helm pull oci://HOST/charts/app --version 1.2.3',
  );
  t.is(
    await lineOf('files/a', 'application/vnd.oci.empty.v1+json', 'application/x.test'),
    'oras pull HOST/files/a:1.2.3',
  );
  t.is(await lineOf('team/a', 'application/vnd.oci.image.config.v1+json'), 'docker pull HOST/team/a:1.2.3');
  const image = await visitor.page('/console/images/team%2Fa');
  t.regex(image, /<code>podman pull --tls-verify=false 127\.0\.0\.1:\d+\/team\/a:1\.2\.3<\/code>/);
  t.notRegex(await visitor.page('/console/images/charts%2Fapp'), /podman/);
});

test('a tag says what is attached to its image, and tags of signatures are left out until they are asked for', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [hub.settings('docker.io', { default: true })] });
  const repository = new TestRepository(server, 'team/app');
  const image = await repository.image('v1');
  const plain = await repository.image('v0', { annotations: { other: 'yes' } });
  const subject = { mediaType: image.mediaType, digest: image.digest, size: image.size };
  for (const [tag, artifactType] of [
    ['a', 'application/vnd.dev.sigstore.bundle.v0.3+json'],
    ['b', 'application/spdx+json'],
    ['c', 'application/x.unknown'],
  ] as const) {
    t.is((await repository.put(tag, await repository.manifest({ artifactType, subject }))).status, 201);
    await repository.fetch(`manifests/${tag}`, { method: 'DELETE' });
  }
  await repository.image(`${plain.digest.replace(':', '-')}.sig`);
  const attestation = { ...subject, annotations: { 'vnd.docker.reference.type': 'attestation-manifest' } };
  const index = { schemaVersion: 2, mediaType: ociIndex, manifests: [subject, attestation] };
  t.is((await repository.put('multi', JSON.stringify(index), ociIndex)).status, 201);
  const list = async (query: string) => {
    const answer = await server.fetch(`/v1/containers/team%2Fapp/tags?${query}`);
    t.is(answer.status, 200, await answer.clone().text());
    const { items } = (await answer.json()) as { items: { name: string; attached: string[] }[] };
    return items.map(({ name, attached }) => `${name} ${attached.join(' ')}`.trim()).sort();
  };
  t.deepEqual(await list('attached=0&order=newest'), ['multi attestation', 'v0 signature', 'v1 signature sbom']);
  t.is((await list('')).length, 4);
  t.deepEqual(await list('attached=0&order=asc&q=V'), ['v0 signature', 'v1 signature sbom']);
  const visitor = await Visitor.signedIn(server);
  const page = (await visitor.page('/console/images/team%2Fapp')).replace(/\s+/g, ' ');
  t.deepEqual(order(page).sort(), ['multi', 'v0', 'v1']);
  t.regex(page, />v1<\/a> <span class="state good">signed<\/span> <span class="state good">SBOM<\/span>/);
  t.regex(page, /Tags of signatures are left out\. <a href="\/console\/images\/team%2Fapp\?attached=1">/);
  t.is(order(await visitor.page('/console/images/team%2Fapp?attached=1')).length, 4);

  const { manifest } = hub.image('library/alpine', '3');
  const sbom = {
    mediaType: ociManifest,
    digest: manifest.digest,
    size: 3,
    artifactType: 'application/vnd.cyclonedx+json',
  };
  const referrers = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [sbom] });
  hub.on(`/v2/library/alpine/referrers/${manifest.digest}`, answer(200, { 'content-type': ociIndex }, referrers));
  await (await server.fetch('/v2/alpine/manifests/3')).arrayBuffer();
  const mirrored = async () => visitor.page('/console/images/docker.io%2Flibrary%2Falpine');
  t.notRegex(await mirrored(), />SBOM</);
  await (await server.fetch(`/v2/alpine/referrers/${manifest.digest}`)).arrayBuffer();
  t.regex(await mirrored(), />SBOM</);
});
