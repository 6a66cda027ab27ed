import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { TestFeed } from '../support/feed.ts';
import { OpenDocument } from '../support/open-document.ts';
import { errorOf, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { eventually } from '../support/until.ts';

// `anonymousRead: mirrored`: without a token, only mirrored content is readable.

const anonymous = { token: null };

async function answerTo(server: TestServer, path: string, init: RequestInit = {}) {
  const response = await server.fetch(path, { ...anonymous, ...init });
  return { status: response.status, body: await response.text(), headers: response.headers };
}

/** The ids that a search or an autocompletion found. */
function ids(found: any): string[] {
  return found.data.map((each: any) => (typeof each === 'string' ? each : each.id));
}

/** A feed with hosted and mirrored packages; `Merged` has both. */
async function feedOf(t: ExecutionContext) {
  const up = await UpstreamFeed.start(t);
  for (const id of ['Public.One', 'Taken', 'Merged', 'Gone', 'Reserved.Hosted', 'Reserved.Free']) {
    await up.offer({ id, versions: [{ version: '1.0.0' }] });
  }
  const server = await startMirrorOf(t, [up.as('up.test')], {
    anonymousRead: 'mirrored',
    merge: { packages: ['Merged'] },
    reserved: { packages: ['Reserved.*'] },
  });
  const feed = new TestFeed(server);
  await feed.publish(
    { id: 'Contoso.Secret', version: '1.0.0', readme: 'private' },
    { id: 'Taken', version: '2.0.0' },
    { id: 'Merged', version: '2.0.0' },
    { id: 'Gone', version: '2.0.0' },
    { id: 'Reserved.Hosted', version: '1.0.0' },
  );
  t.is((await server.fetch('/v1/packages/Gone/2.0.0', { method: 'DELETE' })).status, 204, 'Gone stays claimed');
  return { up, server, feed };
}

function documentsOf(id: string, version: string): string[] {
  const key = id.toLowerCase();
  return [
    `/v3/package/${key}/index.json`,
    `/v3/package/${key}/${version}/${key}.${version}.nupkg`,
    `/v3/package/${key}/${version}/${key}.nuspec`,
    `/v3/package/${key}/${version}/readme`,
    `/v3/package/${key}/${version}/icon`,
    ...['registration', 'registration-gz-semver2'].flatMap((hive) => [
      `/v3/${hive}/${key}/index.json`,
      `/v3/${hive}/${key}/${version}.json`,
      `/v3/${hive}/${key}/page/${version}/${version}.json`,
    ]),
  ];
}

test('feed: mirrored packages are readable by anyone', async (t) => {
  const { server } = await feedOf(t);
  for (const path of [...documentsOf('Public.One', '1.0.0').slice(0, 3), '/v3/index.json']) {
    t.is((await answerTo(server, path)).status, 200, path);
  }
  t.is((await answerTo(server, '/v3/registration/public.one/index.json')).status, 200);
  t.is((await answerTo(server, '/v3/package/public.none/index.json')).status, 404, 'no package has this name');
  const push = await answerTo(server, '/v3/push', { method: 'PUT' });
  t.is(push.status, 401);
  t.is((JSON.parse(push.body) as { detail: string }).detail, 'Authenticate with an API token with the scope "write".');
  const audit = await answerTo(server, '/v1/audit');
  t.is((JSON.parse(audit.body) as { detail: string }).detail, 'Authenticate with an API token.');
});

test('feed: a hosted, claimed or reserved name answers anonymous readers as if they could read nothing', async (t) => {
  const { up, server } = await feedOf(t);
  const closed = await startTestServer(t);
  const before = up.asked.length;
  for (const [id, version] of [
    ['Contoso.Secret', '1.0.0'],
    ['Contoso.Secret', '9.0.0'],
    ['Taken', '1.0.0'],
    ['Merged', '1.0.0'],
    ['Merged', '2.0.0'],
    ['Gone', '1.0.0'],
    ['Reserved.Hosted', '1.0.0'],
    ['Reserved.Free', '1.0.0'],
  ] as const) {
    for (const path of [...documentsOf(id, version), `/v1/packages/${id}`]) {
      for (const method of ['GET', 'HEAD']) {
        const answer = await answerTo(server, path, { method });
        const expected = await answerTo(closed, path, { method });
        t.deepEqual([answer.status, answer.body], [401, expected.body], `${method} ${path}`);
        t.is(answer.headers.get('www-authenticate'), expected.headers.get('www-authenticate'), path);
      }
    }
    t.is((await server.fetch(`/v3/package/${id.toLowerCase()}/index.json`)).status, /Free|Gone/.test(id) ? 404 : 200);
  }
  t.deepEqual(
    up.asked.slice(before).filter((path) => !path.includes('merged')),
    [],
    'none of these names is sent upstream',
  );
});

test('feed: searches, autocompletion and lists show anonymous readers only mirrored packages', async (t) => {
  const { server, feed } = await feedOf(t);
  await (await feed.fetch('/package/public.one/1.0.0/public.one.1.0.0.nupkg')).arrayBuffer();
  const json = async (path: string, init: object = anonymous) => (await server.fetch(path, init)).json() as any;
  for (const path of ['/v3/search', '/v3/autocomplete']) {
    for (const q of ['', '?q=contoso', '?q=contoso.secret', '?q=taken', '?q=packageid:Contoso.Secret', '?q=public']) {
      const found = await json(path + q);
      t.deepEqual(
        ids(found).filter((id) => id !== 'Public.One'),
        [],
        path + q,
      );
      t.is(found.totalHits, ids(found).length, path + q);
    }
    t.deepEqual(ids(await json(`${path}?q=public`)), ['Public.One']);
    t.deepEqual(ids(await json(`${path}?q=contoso`, {})), ['Contoso.Secret'], 'a token finds hosted packages');
  }
  for (const id of ['Contoso.Secret', 'Taken', 'Merged', 'Reserved.Hosted', 'Reserved.Free']) {
    t.deepEqual((await json(`/v3/autocomplete?id=${id}`)).data, [], id);
  }
  t.deepEqual((await json('/v3/autocomplete?id=Public.One')).data, ['1.0.0']);
  const { items } = await json('/v1/packages');
  t.deepEqual(
    items.map(({ id }: any) => id),
    ['Public.One'],
  );
  t.is((await answerTo(server, '/v1/packages/Public.One')).status, 200);
  t.is((await answerTo(server, '/v1/packages/Nothing')).status, 404);
  t.is((await answerTo(server, '/v1/account')).status, 401);
});

test('feed: a search for the beginning of an id that a reader may not see is sent upstream as any other', async (t) => {
  const { server, up } = await feedOf(t);
  const { value: limited } = await createToken(server, ['read'], 'default', { packages: ['Public.*'] });
  const asked = () => up.upstream.asked.filter(({ path }) => /[?&]q=contoso/.test(path)).map(({ path }) => path);
  for (const token of [null, limited]) {
    const answers = [];
    for (const q of ['contoso.s', 'contoso.x'])
      for (const list of ['search', 'autocomplete']) {
        const ask = () => server.fetch(`/v3/${list}?q=${q}${token === null ? '' : '&skip=1'}`, { token });
        // An answer from upstream can be too late the first time.
        const answer = await eventually(ask, ({ headers }) => headers.get('cache-status') === 'entrepot; hit');
        answers.push(await answer.text());
      }
    t.deepEqual([...new Set(answers)], ['{"totalHits":0,"data":[]}'], 'no difference');
  }
  t.true(asked().some((path) => path.includes('contoso.s')));
  const before = asked().length;
  for (const token of [null, limited, server.token])
    for (const q of token === server.token
      ? ['contoso.s', 'contoso.secret']
      : ['contoso.secret', 'Contoso.Secret.Plans'])
      await (await server.fetch(`/v3/search?q=${q}&take=7`, { token })).arrayBuffer();
  t.is(asked().length, before, 'no whole id, and for a reader that sees it also no beginning');
});

test('feed: hosted symbols are not readable without a token', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')], { anonymousRead: 'mirrored' });
  const open = await startMirrorOf(t, [up.as('up.test')], { anonymousRead: 'all', data: server.data });
  const feed = new TestFeed(server);
  const guid = randomBytes(16);
  await feed.publish({ id: 'Contoso.Secret', version: '1.0.0' });
  const files = { 'lib/net8.0/Contoso.Secret.pdb': makePdb(guid) };
  t.is((await feed.push(await makeSnupkg({ id: 'Contoso.Secret', files }), '/symbols')).status, 201);
  const path = `/v3/symbols/contoso.secret.pdb/${keyOf(guid)}/contoso.secret.pdb`;
  t.is((await server.fetch(path)).status, 200);
  t.is((await answerTo(open, path)).status, 200, 'with anonymousRead: all');
  t.is((await answerTo(server, path)).status, 404);
});

test('registry: mirrored images are readable by anyone, hosted ones by tokens only', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest, layer } = upstream.image('library/alpine', '3');
  upstream.image('team/pushed', 'v1');
  upstream.image('reserved/free', 'v1');
  const server = await startTestServer(t, {
    anonymousRead: 'mirrored',
    upstreams: [upstream.settings('docker.io', { default: true })],
    reserved: { containers: ['reserved/*'] },
  });
  for (const path of [
    'alpine/manifests/3',
    'library/alpine/manifests/3?ns=docker.io',
    `docker.io/library/alpine/manifests/${manifest.digest}`,
    `alpine/blobs/${layer.digest}`,
  ]) {
    t.is((await answerTo(server, `/v2/${path}`)).status, 200, path);
    const authorization = 'Bearer anonymous';
    t.is((await answerTo(server, `/v2/${path}`, { headers: { authorization } })).status, 200, path);
  }
  const hosted = new TestRepository(server, 'team/app');
  const { digest, bytes } = await hosted.image('v1');
  const { config } = JSON.parse(bytes) as { config: { digest: string } };
  await new TestRepository(server, 'reserved/hosted').image('v1');
  await new TestRepository(server, 'reserved/hosted').image('v1');
  const before = upstream.requests().length;
  for (const name of ['team/app', 'docker.io/team/app', 'reserved/hosted', 'reserved/free']) {
    for (const path of [
      'manifests/v1',
      'manifests/none',
      `manifests/${digest}`,
      `blobs/${config.digest}`,
      'tags/list',
      `referrers/${digest}`,
    ]) {
      for (const method of ['GET', 'HEAD']) {
        const answer = await server.fetch(`/v2/${name}/${path}`, { ...anonymous, method });
        t.is(answer.status, 401, `${method} ${name} ${path}`);
        t.regex(answer.headers.get('www-authenticate')!, /^Bearer realm=.*scope="repository:/);
        if (method === 'GET') t.deepEqual(await errorOf(answer), [401, 'UNAUTHORIZED']);
      }
    }
  }
  t.is((await answerTo(server, '/v2/team/app/manifests/v1?ns=docker.io')).status, 401);
  t.is(upstream.requests().length, before, 'none of these names is sent upstream');
  t.is((await hosted.fetch('manifests/v1')).status, 200);
  t.deepEqual(JSON.parse((await answerTo(server, '/v2/_catalog')).body), { repositories: [] });
  const { items } = JSON.parse((await answerTo(server, '/v1/containers')).body) as { items: { name: string }[] };
  t.deepEqual(
    items.map(({ name }) => name),
    ['docker.io/library/alpine'],
  );
  const reader = await tokenOf(server, ['read']);
  t.is((await server.fetch('/v2/team/app/manifests/v1', { token: reader })).status, 200);
});

test('registry: what was pushed to a name before its first manifest is not readable without a token', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    anonymousRead: 'mirrored',
    upstreams: [upstream.settings('docker.io', { default: true })],
  });
  const repository = new TestRepository(server, 'team/new');
  const { digest } = await repository.blob('private bytes');
  t.is((await repository.fetch(`blobs/${digest}`)).status, 200);
  t.is((await answerTo(server, `/v2/team/new/blobs/${digest}`)).status, 404);
});

test('/v1: without a token no operation shows hosted content, its history, or who changed it', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Public.One', versions: [{ version: '1.0.0' }] });
  const hub = await startUpstreamRegistry(t);
  hub.image('library/alpine', '3');
  const server = await startTestServer(t, {
    anonymousRead: 'mirrored',
    upstreams: [up.as('up.test'), hub.settings('docker.io', { default: true })],
  });
  const feed = new TestFeed(server);
  await feed.publish({
    id: 'Contoso.Secret',
    version: '1.0.0',
    dependencies: [{ id: 'Public.One', version: '1.0.0' }],
  });
  const { digest } = await new TestRepository(server, 'team/secret').image('v1');
  for (const path of ['/v3/package/public.one/1.0.0/public.one.1.0.0.nupkg', '/v2/library/alpine/manifests/3']) {
    t.is((await answerTo(server, path)).status, 200, path);
  }
  const hosted: Record<string, string> = { id: 'Contoso.Secret', name: 'team%2Fsecret', reference: 'v1', tag: 'v1' };
  Object.assign(hosted, { version: '1.0.0', digest });
  const mirrored = { ...hosted, id: 'Public.One', name: 'docker.io%2Flibrary%2Falpine', reference: '3' };
  const document = await OpenDocument.of(server);
  const readable = async (values: Record<string, string>) => {
    const found: string[] = [];
    for (const operation of document.operations) {
      const [method = '', path = ''] = operation.split(' ');
      const target = `/v1${path.replace(/\{(\w+)\}/g, (_all, name: string) => values[name] ?? 'x')}`;
      const { status, body } = await answerTo(server, target, { method });
      if (status !== 401) found.push(operation);
      t.notRegex(body, /secret|"hosted"/i, operation);
      if (/^\/(?:packages|containers)\/.*(?:history|dependents)$/.test(path)) {
        t.regex(await (await server.fetch(target)).text(), /"items":\[/, `${target} with a token`);
      }
    }
    return found.sort();
  };
  const always = [
    'GET /clients',
    'GET /clients/{kind}',
    'GET /containers',
    'GET /findings',
    'GET /packages',
    'GET /packages/{id}/dependents',
    'GET /search',
  ];
  always.push('POST /token-exchange');
  t.deepEqual(await readable(hosted), always);
  const details = ['manifests', 'manifests/{reference}', 'tags'].map((each) => `GET /containers/{name}/${each}`);
  details.push('GET /containers/{name}', 'GET /packages/{id}', 'GET /packages/{id}/versions');
  details.push(...['', '/file', '/icon'].map((part) => `GET /packages/{id}/{version}${part}`));
  t.deepEqual(await readable(mirrored), [...always, ...details].sort());
});

/** The key under which debuggers request a portable PDB of this GUID. */
function keyOf(guid: Buffer): string {
  const swapped = [3, 2, 1, 0, 5, 4, 7, 6].map((index) => guid[index]!);
  return `${Buffer.concat([Buffer.from(swapped), guid.subarray(8)]).toString('hex')}ffffffff`;
}
