import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { startImporting } from '../support/imports.ts';
import { digestOf, ociManifest } from '../support/registry.ts';
import { answer, serve, startFaultyUpstream, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { json } from '../support/upstreams/upstream-feed.ts';

const basic = `Basic ${Buffer.from('robot:secret-of-harbor').toString('base64')}`;

/** Answers only with the credentials of the source. */
const guarded =
  (behaviour: Behaviour): Behaviour =>
  (request, response) =>
    request.headers.authorization === basic ? behaviour(request, response) : answer(401)(request, response);

/** The first page of a list of Harbor, whose `Link` leads to the second one. */
const firstPage = (body: unknown, next: string): Behaviour =>
  answer(200, { link: `<${next}>; rel="next"`, 'x-total-count': '2' }, JSON.stringify(body));

const artifact = (digest: string, tags: [string, string][], accessories: string[] = []) => ({
  id: 1,
  type: 'IMAGE',
  digest,
  push_time: '2020-01-01T00:00:00.000Z',
  extra_attrs: { architecture: 'amd64', author: 'x'.repeat(1000) },
  tags: tags.length > 0 ? tags.map(([name, push_time]) => ({ id: 2, name, push_time, immutable: false })) : null,
  accessories: accessories.map((own) => ({ digest: own, type: 'signature.cosign', subject_artifact_digest: digest })),
});

/** A Harbor with two projects, of which one is a proxy cache, and a repository with a slash in its name. */
async function harborOf(source: UpstreamRegistry) {
  const api = (path: string, behaviour: Behaviour) => source.on(`/api/v2.0${path}`, guarded(behaviour));
  const [one, two] = [source.image('lib/app', '1.0'), source.image('lib/nested/deep', '2.0')];
  const signature = source.manifest('lib/app', {
    schemaVersion: 2,
    mediaType: ociManifest,
    artifactType: 'application/vnd.dev.cosign.artifact.sig.v1+json',
    config: one.config,
    layers: [],
    subject: { mediaType: ociManifest, digest: one.manifest.digest, size: one.manifest.size },
  });
  api(
    '/projects?page=1&page_size=100',
    firstPage([{ project_id: 1, name: 'lib', registry_id: 0 }], '/api/v2.0/projects?page=2&page_size=100'),
  );
  api('/projects?page=2&page_size=100', json([{ project_id: 2, name: 'hub', registry_id: 3 }, { name: '../x' }, null]));
  api(
    '/projects/lib/repositories?page=1&page_size=100',
    json([{ name: 'lib/app' }, { name: 'lib/nested/deep' }, { name: 'other/x' }]),
  );
  const asked = 'with_tag=true&with_accessory=true&page=1&page_size=50';
  api(
    `/projects/lib/repositories/app/artifacts?${asked}`,
    json([artifact(one.manifest.digest, [['1.0', '2021-02-03T04:05:06.789Z']], [signature.digest, 'no digest'])]),
  );
  api(
    `/projects/lib/repositories/nested%252Fdeep/artifacts?${asked}`,
    json([
      artifact(two.manifest.digest, [
        ['2.0', '0001-01-01T00:00:00.000Z'],
        ['../../x', 'never'],
      ]),
    ]),
  );
  // A signature of another program is a tag that only the registry tells.
  const tag = `${two.manifest.digest.replace(':', '-')}.sig`;
  const signed = source.manifest(
    'lib/nested/deep',
    JSON.stringify({ schemaVersion: 2, mediaType: ociManifest, config: two.config, layers: [] }),
    tag,
  );
  source.on('/v2/lib/app/tags/list', json({ tags: ['1.0'] }));
  source.on('/v2/lib/nested/deep/tags/list', json({ tags: ['2.0', tag] }));
  return { one, two, signature, signed, tag };
}

test('Harbor: repositories of its projects without the catalog, times of tags, accessories, and signatures under tags', async (t) => {
  const source = await startUpstreamRegistry(t);
  const { one, two, signature, signed, tag } = await harborOf(source);
  const { target, bring, file } = await startImporting(t);
  const words = ['harbor', source.url.href, '--user', 'robot', '--token-file', await file('token', 'secret-of-harbor')];
  const done = await bring(...words);
  t.is(done.code, 0, done.stderr);
  t.regex(done.stdout, /^imported: 3 \(/);
  t.regex(done.stderr, /^warning: The project hub is a proxy cache of another registry/m);
  t.is(source.count('/v2/_catalog?n=1000'), 0);
  const digestAt = async (name: string, reference: string) =>
    (await target.fetch(`/v2/${name}/manifests/${reference}`, { method: 'HEAD' })).headers.get('docker-content-digest');
  t.is(await digestAt('lib/app', '1.0'), one.manifest.digest);
  t.is(await digestAt('lib/app', signature.digest), signature.digest);
  t.is(await digestAt('lib/nested/deep', '2.0'), two.manifest.digest);
  t.is(await digestAt('lib/nested/deep', tag), signed.digest);
  const { items } = (await (await target.fetch('/v1/containers/lib%2Fapp/tags')).json()) as any;
  t.is(items[0].updated_at, '2021-02-03T04:05:06.789Z');
  const again = await bring(...words);
  t.regex(again.stdout, /^imported: 0\nhere already: 3\n/);
  const recent = await bring(...words, '--since', '2022-01-01', '--dry-run');
  t.regex(recent.stdout, /^to import: 0\nhere already: 2\n/);
  // The interface of Harbor tells the tags when the registry does not list them.
  source.on('/v2/lib/app/tags/list', answer(404));
  t.regex((await bring(...words)).stdout, /^imported: 0\nhere already: 3\n/);
  source.on('/v2/lib/app/tags/list', answer(400));
  t.regex((await bring(...words)).stderr, /^failed: lib\/app: The source .* answered 400$/m);
  source.on('/v2/lib/app/tags/list', json({ tags: ['1.0'] }));
  source.on(
    `/api/v2.0/projects/lib/repositories/app/artifacts?with_tag=true&with_accessory=true&page=1&page_size=50`,
    answer(400),
  );
  t.regex((await bring(...words)).stderr, /^failed: lib\/app: .*400$/m);
  const wrong = await bring('harbor', source.url.href, '--user', 'robot', '--token-file', await file('wrong', 'x'));
  t.is(wrong.code, 1);
  t.regex(wrong.stderr, /stopped before the end: .*refused access; check its credentials/);
});

test('a server that does not answer as Harbor does is read as a registry', async (t) => {
  const source = await startUpstreamRegistry(t);
  const { manifest } = source.image('team/app', '1');
  source.on('/v2/_catalog', json({ repositories: ['team/app'] }));
  source.on('/v2/team/app/tags/list', json({ tags: ['1'] }));
  const { target, bring } = await startImporting(t);
  const done = await bring('harbor', source.url.href);
  t.is(done.code, 0);
  t.regex(done.stderr, /^warning: The source does not list its projects as Harbor does/);
  const found = await target.fetch('/v2/team/app/manifests/1');
  t.is(digestOf(await found.text()), manifest.digest);
  const pathless = await bring('harbor', `${source.url.href}projects`);
  t.regex(pathless.stderr, /The address of Harbor is that of its host, without a path/);
});

/** A repository as Nexus lists it. */
const listed = (name: string, format: string, type: string) => ({
  name,
  format,
  type,
  // Behind a proxy it may think that it has another name.
  url: `http://nexus.invalid/repository/${name}`,
  attributes: type === 'proxy' ? { proxy: { remoteUrl: 'https://public.example/' } } : {},
});

test('Nexus: its hosted repositories of packages and images, each by its own address', async (t) => {
  const source = await startFaultyUpstream(t);
  const registry = await startUpstreamRegistry(t);
  const { manifest, config, layer } = registry.image('team/app', '1');
  const secret = `Basic ${Buffer.from('me:secret-of-nexus').toString('base64')}`;
  const on = (path: string, behaviour: Behaviour) =>
    source.on(`/nexus${path}`, (request, response) =>
      request.headers.authorization === secret
        ? behaviour(request, response)
        : answer(401, { 'www-authenticate': 'BASIC realm="Sonatype Nexus Repository Manager"' })(request, response),
    );
  on(
    '/service/rest/v1/repositories',
    json([
      listed('own', 'nuget', 'hosted'),
      listed('public', 'nuget', 'proxy'),
      listed('all', 'nuget', 'group'),
      listed('images', 'docker', 'hosted'),
      listed('jars', 'maven2', 'hosted'),
      listed('../up', 'nuget', 'hosted'),
      'no object',
    ]),
  );
  const feed = `${source.url.href}nexus/repository/own`;
  const resources = [
    { '@id': `${feed}/v3/content/`, '@type': 'PackageBaseAddress/3.0.0' },
    { '@id': `${feed}/v3/registrations/`, '@type': 'RegistrationsBaseUrl/3.0.0-beta' },
    { '@id': `${feed}/query`, '@type': 'SearchQueryService/3.0.0-beta' },
  ];
  on('/repository/own/index.json', json({ version: '3.0.0', resources }));
  on(
    '/repository/own/query',
    json({ totalHits: 1, data: [{ id: 'Contoso', version: '1.0.0', versions: [{ version: '1.0.0', downloads: 3 }] }] }),
  );
  on('/repository/own/v3/content/contoso/index.json', json({ versions: ['1.0.0'] }));
  const nupkg = await makeNupkg({ id: 'Contoso', version: '1.0.0' });
  on('/repository/own/v3/content/contoso/1.0.0/contoso.1.0.0.nupkg', serve(nupkg));
  on('/repository/images/v2/_catalog', json({ repositories: ['team/app'] }));
  on('/repository/images/v2/team/app/tags/list', json({ name: 'team/app', tags: ['1'] }));
  for (const reference of ['1', manifest.digest])
    on(
      `/repository/images/v2/team/app/manifests/${reference}`,
      answer(200, { 'content-type': ociManifest, 'docker-content-digest': manifest.digest }, manifest.bytes),
    );
  for (const { digest } of [config, layer])
    on(
      `/repository/images/v2/team/app/blobs/${digest}`,
      (_request, response) =>
        void fetch(new URL(`/v2/team/app/blobs/${digest}`, registry.url))
          .then((found) => found.arrayBuffer())
          .then((bytes) => response.end(Buffer.from(bytes))),
    );
  const { target, bring, file } = await startImporting(t);
  const words = [`${source.url.href}nexus/`, '--user', 'me', '--token-file', await file('token', 'secret-of-nexus')];
  const done = await bring('nexus', ...words);
  t.deepEqual([done.code, done.stderr], [0, '']);
  t.regex(done.stdout, /^imported: 2 \(/);
  const got = await new TestFeed(target).fetch('/package/contoso/1.0.0/contoso.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await got.arrayBuffer()), nupkg);
  const image = await target.fetch('/v2/team/app/manifests/1');
  t.is(await image.text(), manifest.bytes);
  t.false(source.asked.some(({ path }) => /public|all\/|jars|up\//.test(path)));
  t.regex((await bring('nexus', ...words)).stdout, /^imported: 0\nhere already: 2\n/);
  // One repository by its own address, with a path.
  const one = await bring('registry', `${source.url.href}nexus/repository/images/`, ...words.slice(1));
  t.regex(one.stdout, /^imported: 0\nhere already: 1\n/);
  const named = await bring('nexus', ...words, '--names', await file('names', 'Contoso'));
  t.regex(named.stderr, /--names: name the address of one repository/);
  // Two repositories with one name: what came first stays.
  const other = `${source.url.href}nexus/repository/second`;
  on('/service/rest/v1/repositories', json([listed('own', 'nuget', 'hosted'), listed('second', 'nuget', 'hosted')]));
  const moved = resources.map((each) => ({ ...each, '@id': each['@id'].replace(feed, other) }));
  on('/repository/second/index.json', json({ version: '3.0.0', resources: moved }));
  on('/repository/second/query', json({ totalHits: 1, data: [{ id: 'contoso', version: '1.0.0', versions: [] }] }));
  on('/repository/second/v3/content/contoso/index.json', json({ versions: ['1.0.0'] }));
  const another = serve(await makeNupkg({ id: 'contoso', version: '1.0.0', payloadBytes: 300 }));
  on('/repository/second/v3/content/contoso/1.0.0/contoso.1.0.0.nupkg', another);
  const both = await bring('nexus', ...words);
  t.regex(both.stdout, /^imported: 0\nhere already: 1\nmirrored: 0\nconflicts: 1\n/);
  source.on('/nexus/service/rest/v1/repositories', answer(404));
  const none = await bring('nexus', ...words);
  t.is(none.code, 1);
  t.regex(none.stderr, /repositories does not list the repositories\. Import each one by its address/);
});

test('the words of a command say what a source is; an existing report is kept', async (t) => {
  const { bring, folder, file } = await startImporting(t);
  const place = await file('a.nupkg', await makeNupkg({ id: 'Contoso', version: '1.0.0' }));
  const report = await file('report', 'of yesterday');
  const refused = await bring('folder', place, '--account', 'default', '--report', report);
  t.is(refused.code, 1);
  t.regex(refused.stderr, /report exists already\. Name a new file/);
  t.regex((await bring('folder', place, '--rename', 'a/*=b/*')).stdout, /^imported: 1 \(/);
  t.regex((await bring('harbor', folder)).stderr, /harbor needs an address with http or https/);
  t.regex((await bring('folder', 'https://old.example/')).stderr, /folder needs a folder or a file/);
  t.regex((await bring('ftp', folder)).stderr, /"ftp" is no kind of source; use one of feed, registry, /);
  t.regex((await bring('harbor')).stderr, /name the address, folder or archive after "harbor"/);
});
