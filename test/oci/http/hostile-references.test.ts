import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { raw } from '../../support/raw.ts';
import { errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

/** References in a path that are neither tags nor digests. */
const badTags = [
  '..%5C..%5Capp14%5Cmanifests%5Cv1',
  '..\\..\\app14\\manifests\\v1',
  '%2e%2e',
  '..',
  '.',
  'latest%3Fn=1',
  'latest%23x',
  'latest%2525',
  'la%20test',
  'la%00test',
  '-latest',
  'caf%C3%A9',
  '%F0%9F%90%B3',
  't'.repeat(129),
  't'.repeat(300),
];
const badDigests = [
  'sha256:abc',
  `sha256:${'A'.repeat(64)}`,
  'md5:d41d8cd98f00b204e9800998ecf8427e',
  'a:b',
  '%3A..%5C',
];

for (const dialect of dialects) {
  test(`${dialect}: a reference that is neither a tag nor a digest never reaches an upstream or the storage`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    upstream.image('org/app1', 'v1');
    upstream.image('org/app14', 'v1');
    upstream.on('/', answer(200, { 'content-type': 'application/json' }, '{}'));
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [upstream.settings('reg.local', { default: true })],
    });
    for (const method of ['GET', 'HEAD', 'DELETE']) {
      for (const reference of badTags) {
        const { status } = await raw(server, `/v2/reg.local/org/app1/manifests/${reference}`, { method });
        t.is(status, 404, `${method} ${reference}`);
      }
      for (const reference of badDigests) {
        const { status } = await raw(server, `/v2/reg.local/org/app1/manifests/${reference}`, { method });
        t.is(status, 400, `${method} ${reference}`);
      }
    }
    for (const reference of [...badTags, ...badDigests]) {
      const { status } = await raw(server, `/v2/reg.local/org/app1/manifests/${reference}`, { method: 'PUT' });
      t.is(status, 400, `PUT ${reference}`);
    }
    for (const digest of [...badDigests, ...badTags]) {
      for (const kind of ['blobs', 'referrers']) {
        const { status } = await raw(server, `/v2/reg.local/org/app1/${kind}/${digest}`);
        t.is(status, 400, `${kind} ${digest}`);
      }
    }
    t.deepEqual(upstream.asked, []);
    const list = (await (await server.fetch('/v1/containers')).json()) as { items: unknown[] };
    t.deepEqual(list.items, []);
  });

  test(`${dialect}: no part of a package path reaches an upstream unless it is an ID or a version`, async (t) => {
    const feed = await UpstreamFeed.start(t);
    await feed.offer({ id: 'Their.Package', versions: [{ version: '1.0.0' }] });
    const server = await startMirrorOf(t, [feed.as('up.test')], {
      database: { url: await temporaryDatabase(t, dialect) },
    });
    t.is((await server.fetch('/v3/package/their.package/index.json')).status, 200);
    const before = feed.asked.length;
    const strange = [
      '..%5C..%5Csecret',
      '..%2F..%2Fsecret',
      'a%3Fb',
      'a%23b',
      'a%20b',
      '.',
      '..',
      'a..b',
      'x'.repeat(101),
    ];
    for (const id of strange) {
      for (const path of [
        `package/${id}/index.json`,
        `package/${id}/1.0.0/${id}.1.0.0.nupkg`,
        `package/${id}/1.0.0/readme`,
        `registration/${id}/index.json`,
        `registration-gz-semver2/${id}/page/1.0.0/2.0.0.json`,
        `autocomplete?id=${id}`,
      ]) {
        const { status } = await raw(server, `/v3/${path}`);
        t.true(
          status === 404 || status === 400 || (path.startsWith('autocomplete') && status === 200),
          `${status} ${path}`,
        );
      }
    }
    const versions = ['..%5C..%5Csecret', '1.0.0%3Fa', '1.0.0%2F..', `1.0.0-${'a'.repeat(400)}`, '1.0.0-%C3%A9', '..'];
    for (const version of versions) {
      for (const file of [`their.package.${version}.nupkg`, 'their.package.nuspec', 'readme', 'icon']) {
        const { status } = await raw(server, `/v3/package/their.package/${version}/${file}`);
        t.is(status, 404, `${version} ${file}`);
      }
    }
    t.deepEqual(feed.asked.slice(before), []);
  });
}

test('a repository whose name looks like a path of the registry is requested by its own name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const image = upstream.image('blobs/manifests/tags', 'list');
  const server = await startTestServer(t, { upstreams: [upstream.settings('reg.local')] });
  const repository = new TestRepository(server, 'reg.local/blobs/manifests/tags');
  t.is((await repository.fetch('manifests/list')).headers.get('docker-content-digest'), image.manifest.digest);
  t.deepEqual(upstream.requests(), ['GET /v2/blobs/manifests/tags/manifests/list']);
  t.deepEqual(await errorOf(await repository.fetch('manifests/sha256:abc')), [400, 'DIGEST_INVALID']);
});
