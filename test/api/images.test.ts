import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken, databaseOf, flushUsage, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { ociIndex, TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

async function get(server: TestServer, path: string, token?: string): Promise<any> {
  const response = await server.fetch(`/v1/containers/${path}`, token === undefined ? {} : { token });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return response.json();
}

async function walk(server: TestServer, path: string, query: string): Promise<any[]> {
  const found: any[] = [];
  for (let cursor = ''; ;) {
    const page = await get(server, `${path}?${query}${cursor}`);
    found.push(...page.items);
    if (page.next_cursor === null) return found;
    cursor = `&cursor=${page.next_cursor}`;
  }
}

const names = (items: any[]) => items.map(({ name }) => name);
const config = (more: object = {}) =>
  JSON.stringify({ os: 'linux', architecture: 'amd64', created: '2026-01-01T00:00:00Z', ...more });
const configType = 'application/vnd.oci.image.config.v1+json';

for (const dialect of dialects) {
  test(`${dialect}: tags are in natural order over all pages, with aliases, platforms and pulls`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const document = await OpenDocument.of(server);
    const repository = new TestRepository(server, 'team/app');
    const arm = await repository.blob(config({ architecture: 'arm64', variant: 'v8' }), configType);
    const amd = await repository.blob(config(), configType);
    const first = await repository.image('v10', { config: amd });
    for (const tag of ['v2', 'V9', '1.10', '1.9', '1.09', 'latest']) await repository.put(tag, first.bytes);
    const second = await repository.image('v1', { config: arm });
    const children = [
      { ...first, bytes: undefined, platform: { os: 'linux', architecture: 'amd64' } },
      { ...second, bytes: undefined, platform: { os: 'linux', architecture: 'arm64', variant: 'v8' } },
      {
        ...second,
        bytes: undefined,
        digest: `sha256:${'0'.repeat(64)}`,
        platform: { os: 'unknown', architecture: 'unknown' },
      },
    ];
    await repository.put('multi', { schemaVersion: 2, mediaType: ociIndex, manifests: children });
    const order = ['1.09', '1.9', '1.10', 'latest', 'multi', 'v1', 'v2', 'V9', 'v10'];
    for (const size of [1, 2, 200]) {
      t.deepEqual(names(await walk(server, 'team/app/tags', `limit=${size}`)), order);
      t.deepEqual(names(await walk(server, 'team%2Fapp/tags', `limit=${size}&order=desc`)), order.toReversed());
    }
    t.deepEqual(names(await walk(server, 'team/app/tags', 'q=v&limit=2')), ['v1', 'v2', 'V9', 'v10']);
    server.clock.now = Date.now() + 60_000;
    for (const tag of ['v10', 'v2']) {
      await repository.put(tag, first.bytes);
      server.clock.now += 1000;
    }
    for (const size of [1, 2, 200]) {
      const newest = names(await walk(server, 'team/app/tags', `limit=${size}&order=newest`));
      t.deepEqual(newest.slice(0, 2), ['v2', 'v10']);
      const oldest = names(await walk(server, 'team/app/tags', `limit=${size}&order=oldest`));
      t.deepEqual(oldest, newest.toReversed());
      t.is(newest.length, order.length);
      t.true(
        order.every((name) => newest.includes(name)),
        'also those that were pushed together',
      );
    }
    const matching = names(await walk(server, 'team/app/tags', 'order=newest&q=V&limit=1'));
    t.deepEqual([matching.slice(0, 2), matching.length], [['v2', 'v10'], 4]);
    t.deepEqual(names(await walk(server, 'team/app/tags', 'q=%25')), []);
    await (await repository.fetch('manifests/v2')).arrayBuffer();
    await (await repository.fetch(`manifests/${second.digest}`)).arrayBuffer();
    await (await repository.fetch('manifests/multi')).arrayBuffer();
    await flushUsage(server);
    const list: any = await document.read(
      'GET /containers/{name}/tags',
      await server.fetch('/v1/containers/team/app/tags'),
    );
    const row = (name: string) => list.items.find((each: any) => each.name === name);
    t.like(row('v10'), { digest: first.digest, platforms: ['linux/amd64'], pull_count: 1 });
    t.deepEqual(row('v10').aliases, ['1.09', '1.10', '1.9', 'V9', 'latest', 'v2']);
    t.truthy(row('v10').last_pulled_at);
    t.like(row('v1'), { platforms: ['linux/arm64/v8'], pull_count: 1, aliases: [] });
    t.like(row('multi'), { platforms: ['linux/amd64', 'linux/arm64/v8'], pull_count: 2 });
    t.like(await get(server, 'team/app'), { name: 'team/app', origin: 'hosted', tag_count: 9, pull_count: 2 });
    await document.read('GET /containers/{name}', await server.fetch('/v1/containers/team/app'));

    // By their numbers.
    for (const size of [4, 200]) {
      const byPulls = await walk(server, 'team/app/tags', `limit=${size}&order=pulls`);
      t.deepEqual(
        byPulls.map(({ pull_count: count }) => count),
        [2, ...Array<number>(8).fill(1)],
      );
      t.is(byPulls[0].name, 'multi', 'an index has the pulls of its images');
      const bySize = await walk(server, 'team/app/tags', `limit=${size}&order=size`);
      t.is(bySize[0].name, 'multi');
      const sizes = bySize.map(({ size_bytes: bytes }) => bytes);
      t.deepEqual(
        sizes,
        sizes.toSorted((one, another) => another - one),
      );
      t.deepEqual(
        [byPulls, bySize].map((each) => new Set(names(each)).size),
        [9, 9],
      );
    }
    const large = new TestRepository(server, 'zeta/large');
    await large.image('v1', { layers: [await large.blob('x'.repeat(50_000))] });
    await new TestRepository(server, 'zeta/empty').blob('no manifest');
    const theirs = new TestRepository(server, 'zeta/theirs', await tokenOf(server, ['read', 'write'], 'other'));
    await theirs.image('v1');
    const listed = async (query: string): Promise<string[]> => {
      const { items, next_cursor: next } = await get(server, `?${query}`);
      return next === null ? names(items) : [...names(items), ...(await listed(`${query}&cursor=${next}`))];
    };
    for (const [query, expected] of [
      ['sort=tags', ['team/app', 'zeta/large']],
      ['sort=size', ['zeta/large', 'team/app']],
      ['sort=pulls', ['team/app', 'zeta/large']],
      ['sort=used', ['team/app', 'zeta/large']],
      ['q=ZETA', ['zeta/large']],
      ['q=p&sort=size', ['team/app']],
    ] as const)
      for (const limit of [1, 50]) t.deepEqual(await listed(`limit=${limit}&${query}`), expected, query);
    const whole = await get(server, '?total=1');
    t.deepEqual(
      whole.items.map((each: any) => [each.name, names(each.tags)]),
      [
        ['team/app', order.toSorted().slice(0, whole.items[0].tags.length)],
        ['zeta/large', ['v1']],
      ],
    );
    const bytes = whole.items.reduce((sum: number, each: any) => sum + each.size_bytes, 0);
    t.deepEqual(whole.total, { count: 2, size_bytes: bytes });
    const ascending = (await get(server, 'team/app/tags?limit=1')).next_cursor;
    for (const bad of [
      'order=x',
      'cursor=x',
      `q=${'a'.repeat(129)}`,
      'attached=2',
      'attached=',
      `order=desc&cursor=${encodeURIComponent(ascending)}`,
    ]) {
      t.is((await server.fetch(`/v1/containers/team/app/tags?${bad}`)).status, 400, bad);
    }
    await databaseOf(server).transaction((tx) => tx.run("UPDATE tags SET sort_key = ''"));
    t.deepEqual(names(await walk(server, 'team/app/tags', '')), order, 'tags of an older release get their keys');
  });

  test(`${dialect}: untagged manifests and the details of one, hosted`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const document = await OpenDocument.of(server);
    // The same tag in another repository.
    await new TestRepository(server, 'team/aside').image('v1');
    const repository = new TestRepository(server, 'team/app');
    const history = [
      { created: '2026-01-01T00:00:00Z', created_by: 'COPY . .' },
      { created_by: 'ENV a=b', empty_layer: true },
    ];
    const own = await repository.blob(config({ history, config: { Labels: { a: 'b' } }, author: 'Ada' }), configType);
    const image = await repository.image('v1', { config: own, annotations: { note: 'n'.repeat(3000) } });
    const child = await repository.image('tmp');
    const index = {
      schemaVersion: 2,
      mediaType: ociIndex,
      manifests: [{ mediaType: image.mediaType, digest: child.digest, size: child.size }],
    };
    await repository.put('multi', index);
    await server.fetch('/v1/containers/team/app/tmp', { method: 'DELETE' });
    const signature = await repository.manifest({
      artifactType: 'application/vnd.test.signature',
      subject: { mediaType: image.mediaType, digest: image.digest, size: image.size },
    });
    const signed = await repository.put('sig', signature);
    const signatureDigest = signed.headers.get('docker-content-digest')!;
    await server.fetch('/v1/containers/team/app/sig', { method: 'DELETE' });
    const path = '/v1/containers/team/app/manifests';
    const untagged: any = await document.read('GET /containers/{name}/manifests', await server.fetch(path));
    const listed = untagged.items.map((each: any) => `${each.digest} ${each.is_child} ${each.subject}`);
    t.deepEqual(listed.sort(), [`${child.digest} true null`, `${signatureDigest} false ${image.digest}`].sort());
    t.is(untagged.next_cursor, null);
    t.is((await get(server, 'team/app/manifests?limit=2')).next_cursor, null, 'nothing is behind a full page');
    t.is((await walk(server, 'team/app/manifests', 'limit=1')).length, 2);
    const details: any = await document.read(
      'GET /containers/{name}/manifests/{reference}',
      await server.fetch(`${path}/${image.digest}`),
    );
    t.like(details, {
      name: 'team/app',
      origin: 'hosted',
      tags: ['v1'],
      config: { is_stored: true, platform: 'linux/amd64', author: 'Ada', labels: [{ name: 'a', value: 'b' }] },
      history: [
        { created_by: 'COPY . .', is_empty: false },
        { created_by: 'ENV a=b', is_empty: true },
      ],
      are_referrers_known: true,
    });
    t.is(details.layers.length, 1);
    t.is(details.annotations[0].value.length, 2000);
    t.deepEqual(
      details.referrers.map((each: any) => [each.digest, each.artifact_type]),
      [[signatureDigest, 'application/vnd.test.signature']],
    );
    const ofChild = await get(server, `team/app/manifests/${child.digest}`);
    t.is(ofChild.indexes.length, 1);
    const ofIndex = await get(server, `team/app/manifests/${ofChild.indexes[0]}`);
    t.like(ofIndex, { config: null, children: [{ digest: child.digest, is_stored: true }] });
    t.is((await server.fetch(`${path}/sha256:${'1'.repeat(64)}`)).status, 404);
    t.is((await server.fetch(`${path}/x`)).status, 404);
    t.is((await get(server, 'team/app/manifests/v1')).digest, image.digest);
    const other = await tokenOf(server, ['read'], 'other');
    for (const each of ['team/app', 'team/app/tags', 'team/app/manifests', `team/app/manifests/${image.digest}`]) {
      t.is((await server.fetch(`/v1/containers/${each}`, { token: other })).status, 404, each);
    }
    const { value } = await createToken(server, ['read'], 'default', { containers: ['else/*'] });
    t.is((await server.fetch('/v1/containers/team/app/tags', { token: value })).status, 403);
  });

  test(`${dialect}: a mirrored image is described from what is stored, and nothing is fetched`, async (t) => {
    const hub = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [hub.settings('docker.io', { default: true })],
      anonymousRead: 'mirrored',
    });
    const image = hub.image('library/alpine', 'v2');
    for (const tag of ['v10', '3']) hub.manifest('library/alpine', image.manifest.bytes, tag);
    server.clock.now = Date.now();
    for (const tag of ['v2', 'v10', '3']) {
      await (await server.fetch(`/v2/alpine/manifests/${tag}`)).arrayBuffer();
      server.clock.now += 1000;
    }
    await flushUsage(server);
    const before = hub.requests().length;
    const path = 'docker.io%2Flibrary%2Falpine';
    const tags = await walk(server, `${path}/tags`, 'limit=1');
    t.deepEqual(names(tags), ['3', 'v2', 'v10']);
    t.deepEqual(names(await walk(server, `${path}/tags`, 'limit=2&order=desc')), ['v10', 'v2', '3']);
    t.deepEqual(names(await walk(server, `${path}/tags`, 'limit=1&order=newest')), ['3', 'v10', 'v2']);
    t.deepEqual(names(await walk(server, `${path}/tags`, 'limit=1&order=oldest')), ['v2', 'v10', '3']);
    t.like(tags[0], { platforms: null, pull_count: 3, aliases: ['v10', 'v2'] });
    const details = await get(server, `${path}/manifests/${image.manifest.digest}`);
    t.like(details, {
      name: 'docker.io/library/alpine',
      origin: 'mirrored',
      upstream: 'docker.io',
      config: { is_stored: false, platform: null },
      are_referrers_known: false,
    });
    t.deepEqual(details.tags, ['3', 'v10', 'v2']);
    t.deepEqual((await get(server, `${path}/manifests`)).items, []);
    t.like(await get(server, 'alpine'), { name: 'docker.io/library/alpine', tag_count: 3, pull_count: 3 });
    t.is((await server.fetch('/v1/containers/docker.io/library/none/tags')).status, 200, 'nothing is known of it');
    t.is((await server.fetch('/v1/containers/docker.io/library/none')).status, 404);
    t.is(hub.requests().length, before, 'nothing was fetched');
    const { value } = await createToken(server, ['read'], 'default', { containers: ['alpine'] });
    t.is((await server.fetch('/v1/containers/alpine/tags', { token: value })).status, 200);
    await new TestRepository(server, 'team/app').image('v1');
    t.is((await server.fetch('/v1/containers/alpine/tags', { token: null })).status, 200);
    t.is((await server.fetch('/v1/containers/docker.io%2Flibrary%2Falpine', { token: null })).status, 200);
    for (const each of ['team/app', 'team/app/tags', 'team/app/manifests']) {
      t.is((await server.fetch(`/v1/containers/${each}`, { token: null })).status, 401, each);
    }
  });
}

const described = ({ digest, mediaType, size }: Descriptor) => ({ digest, media_type: mediaType, size_bytes: size });
const unknown = { platform: null, created: null, author: null, user: null, working_directory: null };
const layerOf = ({ bytes }: { bytes: string }) => JSON.parse(bytes).layers[0] as Descriptor;
const noWords = { labels: [], entrypoint: [], command: [], environment: [], ports: [] };

test('a description has all that a manifest says', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const updated_at = new Date(server.clock.now).toISOString();
  const repository = new TestRepository(server, 'team/app');
  const created = '2026-01-02T00:00:00Z';
  const own = await repository.blob(
    config({
      architecture: 'arm64',
      variant: 'v8',
      author: 'Ada',
      history: [{ created, created_by: 'COPY . .', comment: 'of a build' }, 'no object', { empty_layer: 'true' }],
      config: {
        Labels: { a: 'b', number: 5 },
        Entrypoint: ['/entry'],
        Cmd: ['serve', 1],
        Env: ['A=1'],
        User: '',
        WorkingDir: '/work',
        ExposedPorts: { '80/tcp': {} },
      },
    }),
    configType,
  );
  const subject = await repository.image('subject');
  const annotations = { note: 'v' };
  const { mediaType, digest, size } = subject;
  const more = { config: own, artifactType: 'application/x', subject: { mediaType, digest, size }, annotations };
  const image = await repository.image('v1', more);
  const missing = { mediaType, digest: `sha256:${'0'.repeat(64)}`, size: 7 };
  const attests = { 'vnd.docker.reference.type': 'attestation-manifest', 'vnd.docker.reference.digest': image.digest };
  const manifests = [
    {
      mediaType,
      digest: image.digest,
      size: image.size,
      platform: { os: 'linux', architecture: 'arm64', variant: '' },
    },
    { ...missing, platform: { os: 'unknown', architecture: 'unknown' }, annotations: attests },
  ];
  const index = JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests });
  const pushed = await repository.put('multi', index, ociIndex);
  const ofIndex = { digest: pushed.headers.get('docker-content-digest')!, mediaType: ociIndex, size: index.length };
  const empty = JSON.parse(subject.bytes).config as Descriptor;
  // The same content in another repository, with more that belongs to it there.
  const copy = new TestRepository(server, 'copy');
  for (const blob of [own, empty, layerOf(image), layerOf(subject)]) {
    const mount = await copy.fetch(`blobs/uploads/?mount=${blob.digest}&from=team/app`, { method: 'POST' });
    t.is(mount.status, 201);
  }
  for (const [tag, bytes, type] of [
    ['of-subject', subject.bytes, mediaType],
    ['of-image', image.bytes, mediaType],
    ['of-index', index, ociIndex],
    ['another-index', JSON.stringify({ schemaVersion: 2, mediaType: ociIndex, manifests: [manifests[0]] }), ociIndex],
  ] as const)
    t.is((await copy.put(tag, bytes, type)).status, 201);
  await copy.attach(subject);
  await copy.image(`${image.digest.replace(':', '-')}.sig`);
  await (await copy.fetch('manifests/of-image')).text();
  await flushUsage(server);
  const imageBytes = image.size + own.size + layerOf(image).size;
  const common = { name: 'team/app', origin: 'hosted', upstream: null, updated_at, pull_count: 0 };
  const rest = { last_pulled_at: null, indexes: [], withdrawn_tags: [], artifact_type: null, subject: null };
  const lists = { annotations: [], layers: [], history: [], children: [], referrers: [], are_referrers_known: true };
  const nothing = { created: null, created_by: null, comment: null, is_empty: false };
  t.deepEqual(await get(server, 'team/app/manifests/v1'), {
    ...common,
    ...rest,
    ...lists,
    ...described(image),
    size_bytes: imageBytes,
    tags: ['v1'],
    indexes: [ofIndex.digest],
    artifact_type: 'application/x',
    subject: subject.digest,
    annotations: [{ name: 'note', value: 'v' }],
    config: {
      ...described(own),
      is_stored: true,
      platform: 'linux/arm64/v8',
      created: '2026-01-01T00:00:00Z',
      author: 'Ada',
      labels: [{ name: 'a', value: 'b' }],
      entrypoint: ['/entry'],
      command: ['serve'],
      environment: ['A=1'],
      user: null,
      working_directory: '/work',
      ports: ['80/tcp'],
    },
    layers: [described(layerOf(image))],
    history: [{ created, created_by: 'COPY . .', comment: 'of a build', is_empty: false }, nothing, nothing],
  });
  t.deepEqual(await get(server, 'team/app/manifests/multi'), {
    ...common,
    ...rest,
    ...lists,
    ...described(ofIndex),
    size_bytes: index.length + imageBytes,
    tags: ['multi'],
    config: null,
    children: [
      { ...described(missing), platform: null, is_stored: false, content_bytes: null, attests: image.digest },
      { ...described(image), platform: 'linux/arm64', is_stored: true, content_bytes: imageBytes, attests: null },
    ],
  });
  t.deepEqual(await get(server, 'team/app/manifests/subject'), {
    ...common,
    ...rest,
    ...lists,
    ...described(subject),
    size_bytes: subject.size + empty.size + layerOf(subject).size,
    tags: ['subject'],
    config: { ...described(empty), is_stored: true, ...unknown, ...noWords },
    layers: [described(layerOf(subject))],
    referrers: [{ ...described(image), artifact_type: 'application/x', annotations: [{ name: 'note', value: 'v' }] }],
  });
  const { items } = await get(server, 'team/app/tags');
  t.deepEqual(
    items.map((each: any) => [
      each.name,
      each.media_type,
      each.attached,
      each.platforms,
      each.withdrawn_at,
      each.aliases,
      each.pull_count,
    ]),
    [
      ['multi', ociIndex, ['attestation'], ['linux/arm64'], null, [], 0],
      ['subject', mediaType, [], [], null, [], 0],
      ['v1', mediaType, [], ['linux/arm64/v8'], null, [], 0],
    ],
  );
  const inCopy = (await get(server, 'copy/tags')).items.map((each: any) => [each.name, each.pull_count, each.attached]);
  t.deepEqual(inCopy.slice(0, 4), [
    ['another-index', 1, []],
    ['of-image', 1, ['signature']],
    ['of-index', 1, ['attestation']],
    ['of-subject', 0, []],
  ]);
  t.deepEqual(await get(server, 'team/app/manifests'), { items: [], next_cursor: null });
});

const many = <T>(count: number, part: (index: number) => T): T[] => Array.from({ length: count }, (_, n) => part(n));

test('a description has at most so many parts, and the beginning of long texts', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const long = 'x'.repeat(3000);
  const words = many(101, (n) => `A${n}=1`);
  const own = await repository.blob(
    config({ author: long, history: many(501, () => ({ created_by: long })), config: { Env: words } }),
    configType,
  );
  const layer = await repository.blob('a layer');
  const annotations = Object.fromEntries([[long, long], ...many(100, (n) => [`a${n}`, ''])]);
  const image = await repository.image('v1', { config: own, layers: many(501, () => layer), annotations });
  const of = await get(server, 'team/app/manifests/v1');
  const counts = [of.layers, of.history, of.config.environment, of.annotations].map((each: unknown[]) => each.length);
  t.deepEqual(counts, [500, 500, 100, 100]);
  t.deepEqual(
    [of.config.author, of.history[0].created_by, of.annotations[0].name, of.annotations[0].value].map(
      (each) => each.length,
    ),
    [255, 2000, 255, 2000],
  );
  const { mediaType, size } = image;
  const child = (n: number) => ({ mediaType, digest: `sha256:${String(n).padStart(64, '0')}`, size });
  t.is(
    (await repository.put('multi', { schemaVersion: 2, mediaType: ociIndex, manifests: many(201, child) })).status,
    201,
  );
  t.is((await get(server, 'team/app/manifests/multi')).children.length, 200);
  const { items } = await get(server, 'team/app/tags?limit=1');
  t.deepEqual([items[0].name, items[0].platforms], ['multi', []]);
});

test('a token for one spelling of a name does not read what is hosted under another', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [hub.settings('docker.io', { default: true })] });
  await new TestRepository(server, 'docker.io/library/alpine').image('v1');
  const { value } = await createToken(server, ['read'], 'default', { containers: ['alpine'] });
  t.is((await server.fetch('/v1/containers/alpine/tags', { token: value })).status, 403);
  t.is((await server.fetch('/v1/containers/alpine/tags')).status, 200);
});
