import test from 'ava';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { createToken } from '../../support/inside.ts';

// Tokens that are limited to image repositories, from the view of an attacker with such a token.

async function limit(
  server: TestServer,
  containers: string[] | undefined,
  packages?: string[],
  scopes = ['read', 'write', 'delete'],
): Promise<string> {
  return (await createToken(server, scopes, 'default', { containers, packages })).value;
}

/** Every kind of request to a repository with `digest` and the tag v1. */
function requestsTo(name: string, digest: string, blob: string): [method: string, path: string][] {
  const session = '00000000-0000-4000-8000-000000000000';
  return [
    ...['manifests/v1', `manifests/${digest}`, `blobs/${blob}`, 'tags/list', `referrers/${digest}`].flatMap(
      (path): [string, string][] => [
        ['GET', path],
        ['HEAD', path],
      ],
    ),
    ['PUT', 'manifests/v2'],
    ['DELETE', 'manifests/v1'],
    ['DELETE', `manifests/${digest}`],
    ['DELETE', `blobs/${blob}`],
    ['POST', 'blobs/uploads/'],
    ['POST', `blobs/uploads/?digest=${blob}`],
    ['POST', `blobs/uploads/?mount=${blob}&from=team/app`],
    ...['GET', 'HEAD', 'PATCH', 'PUT', 'DELETE'].map((method): [string, string] => [
      method,
      `blobs/uploads/${session}`,
    ]),
  ].map(([method, path]) => [method!, `/v2/${name}/${path}`]);
}

function blobOf(bytes: string): string {
  return (JSON.parse(bytes) as { layers: { digest: string }[] }).layers[0]!.digest;
}

test('every path of another repository is DENIED, in every spelling, and no upstream is asked', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('docker.io', { default: true }), upstream.settings('other.test')],
  });
  const { digest, bytes } = await new TestRepository(server, 'secret/app').image('v1');
  const blob = blobOf(bytes);
  const token = await limit(server, ['team/*', 'other.test/team/*']);
  for (const name of [
    'secret/app',
    'docker.io/secret/app',
    'index.docker.io/secret/app',
    'registry-1.docker.io/secret/app',
    'secret%2Fapp',
    '%73ecret/app',
    'team/..%2f..%2fsecret/app',
    'other.test/secret/app',
    'other.test/library/alpine',
    'teams/app',
    'team',
    'x/team/app',
  ]) {
    for (const ns of ['', 'docker.io', 'other.test', 'nobody.test']) {
      for (const [method, path] of requestsTo(name, digest, blob)) {
        const query = ns && `${path.includes('?') ? '&' : '?'}ns=${ns}`;
        const response = await server.fetch(path + query, { method, token });
        const what = `${method} ${path}${query}`;
        // An invalid name is malformed, and content of an unknown registry cannot be changed.
        if (name.includes('..')) t.is(response.status, 400, what);
        else if (ns !== 'nobody.test') t.is(response.status, 403, what);
        else t.true(response.status === 403 || response.status === 404, what);
        if (response.status !== 403 || method === 'HEAD') continue;
        t.deepEqual(await errorOf(response), [403, 'DENIED'], what);
      }
    }
  }
  t.deepEqual(upstream.requests(), []);
  t.is((await new TestRepository(server, 'secret/app').fetch('manifests/v1')).status, 200, 'the image still exists');
});

test('all spellings of a repository have the same permission', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  for (const name of ['library/alpine', 'team/app']) upstream.image(name, 'v1');
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('docker.io', { default: true }), upstream.settings('other.test')],
  });
  const alpine = ['alpine', 'library/alpine', 'docker.io/alpine', 'docker.io/library/alpine', 'index.docker.io/alpine'];
  for (const pattern of ['alpine', 'library/*', 'docker.io/alpine', 'docker.io/library/*']) {
    const token = await limit(server, [pattern]);
    for (const name of alpine) {
      const get = async (query = '') => (await server.fetch(`/v2/${name}/manifests/v1${query}`, { token })).status;
      t.is(await get(), 200, `${pattern} opens ${name}`);
      if (name !== 'index.docker.io/alpine') t.is(await get('?ns=docker.io'), 200, `${pattern} opens ${name} by ns`);
      t.is(await get('?ns=other.test'), 403, `${pattern} does not open ${name} elsewhere`);
    }
    t.is((await server.fetch('/v2/other.test/alpine/manifests/v1', { token })).status, 403, pattern);
    t.is((await server.fetch('/v2/team/app/manifests/v1', { token })).status, 403, pattern);
  }
  const team = await limit(server, ['team/*']);
  for (const path of [
    'team/app/manifests/v1',
    'docker.io/team/app/manifests/v1',
    'team/app/manifests/v1?ns=docker.io',
  ]) {
    t.is((await server.fetch(`/v2/${path}`, { token: team })).status, 200, path);
  }
  t.is((await server.fetch('/v2/team/app/manifests/v1?ns=other.test', { token: team })).status, 403);
});

test('a name that starts with the name of another upstream gives no access to the default upstream', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('other.test/team/app', 'v1');
  const server = await startTestServer(t, {
    upstreams: [upstream.settings('up.test', { default: true }), upstream.settings('other.test', { mode: 'offline' })],
  });
  const token = await limit(server, ['other.test/*']);
  t.is((await server.fetch('/v2/other.test/team/app/manifests/v1?ns=up.test', { token })).status, 403);
  t.deepEqual(upstream.requests(), []);
  t.is((await server.fetch('/v2/other.test/team/app/manifests/v1?ns=up.test')).status, 200);
});

test('the hosted name decides about a new repository, also during its first push', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  const hub = await limit(server, ['docker.io/*'], undefined, ['read']);
  const hosted = new TestRepository(server, 'team/app');
  const { digest } = await hosted.blob('of the first push');
  for (const path of [`blobs/${digest}`, 'manifests/v1', 'tags/list']) {
    t.is((await server.fetch(`/v2/docker.io/team/app/${path}`, { token: hub })).status, 403, path);
  }
  await hosted.image('v2');
  for (const name of ['docker.io/team/app', 'team/app']) {
    t.is((await server.fetch(`/v2/${name}/manifests/v2`, { token: hub })).status, 403, name);
  }
  const team = await limit(server, ['team/*'], undefined, ['read']);
  t.is((await server.fetch('/v2/docker.io/team/app/manifests/v2', { token: team })).status, 200);
});

test('allowed names can be pushed, pulled, listed and deleted', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  const token = await limit(server, ['Team/*']);
  const mine = new TestRepository(server, 'team/app', token);
  const { digest, bytes } = await mine.image('v1');
  t.is((await mine.fetch(`blobs/${blobOf(bytes)}`)).status, 200);
  t.is((await mine.fetch(`referrers/${digest}`)).status, 200);
  await new TestRepository(server, 'secret/app').image('v1');
  await new TestRepository(server, 'teams/app').image('v1');
  await new TestRepository(server, 'team/other').image('v1');
  const pages: string[] = [];
  for (let path: string | undefined = '/v2/_catalog?n=1'; path !== undefined;) {
    const response: Response = await server.fetch(path, { token });
    pages.push(...((await response.json()) as { repositories: string[] }).repositories);
    path = /<([^>]+)>/.exec(response.headers.get('link') ?? '')?.[1];
  }
  t.deepEqual(pages, ['team/app', 'team/other']);
  const listed = (await (await server.fetch('/v1/containers', { token })).json()) as { items: { name: string }[] };
  t.deepEqual(
    listed.items.map(({ name }) => name),
    ['team/app', 'team/other'],
  );
  for (const name of ['secret/app', 'secret%2Fapp', 'docker.io/secret/app', 'Team%2Fapp/..%2fsecret']) {
    const response = await server.fetch(`/v1/containers/${name}/v1`, { method: 'DELETE', token });
    t.is(response.status, 403, name);
    t.like(await response.json(), { code: 'NameDenied', kind: 'container' });
  }
  t.is((await server.fetch('/v1/containers/team%2Fother/v1', { method: 'DELETE', token })).status, 204);
  t.is((await mine.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
});

test('a mount from a repository that the token may not read does not work', async (t) => {
  const server = await startTestServer(t);
  const { digest } = await new TestRepository(server, 'secret/app').blob('a secret');
  const open = await new TestRepository(server, 'team/base').blob('open to the team');
  const mine = new TestRepository(server, 'team/app', await limit(server, ['team/*']));
  const mount = async (query: string) => (await mine.fetch(`blobs/uploads/?${query}`, { method: 'POST' })).status;
  for (const from of [
    '&from=secret/app',
    '&from=secret%2Fapp',
    '',
    '&from=Secret/app',
    '&from=team/app&from=secret/app',
  ]) {
    t.is(await mount(`mount=${digest}${from}`), 202, from);
    t.is((await mine.fetch(`blobs/${digest}`)).status, 404, from);
  }
  t.is(await mount(`mount=${open.digest}&from=team/base`), 201);
  t.is(await mount(`mount=${open.digest}`), 201);
  t.is((await mine.fetch(`blobs/${open.digest}`)).status, 200);
});

test('a mount reads with the right to read, and not with that to write', async (t) => {
  const server = await startTestServer(t);
  const { digest } = await new TestRepository(server, 'secret/y').blob('a secret');
  const open = await new TestRepository(server, 'team/base').blob('open to the team');
  const { token, value } = await createToken(server, ['read'], 'default', { containers: ['team/*'] });
  const made = await server.fetch('/v1/grants', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ subject: { kind: 'token', id: token.id }, verbs: ['write'] }),
  });
  t.is(made.status, 201);
  const x = new TestRepository(server, 'team/x', value);
  const mount = async (query: string) => (await x.fetch(`blobs/uploads/?mount=${query}`, { method: 'POST' })).status;
  for (const from of ['&from=secret/y', '']) {
    t.is(await mount(digest + from), 202, from);
    t.is((await x.fetch(`blobs/${digest}`)).status, 404, from);
  }
  t.is(await mount(`${open.digest}&from=team/base`), 201);
  t.is(await mount(open.digest), 201);
  const other = await new TestRepository(server, 'secret/y', value).fetch('blobs/uploads/', { method: 'POST' });
  t.is(other.status, 202, 'it writes all names');
});

test('an upload session works only for its own repository', async (t) => {
  const server = await startTestServer(t);
  const location = await new TestRepository(server, 'secret/app').start();
  const mine = new TestRepository(server, 'team/app', await limit(server, ['team/*']));
  t.is((await mine.fetch(location)).status, 403);
  const id = location.split('/').at(-1)!;
  for (const method of ['GET', 'PATCH', 'PUT', 'DELETE']) {
    const response = await mine.fetch(
      `blobs/uploads/${id}${method === 'PUT' ? '?digest=sha256:' + '0'.repeat(64) : ''}`,
      {
        method,
      },
    );
    t.is(response.status, 404, method);
  }
});

test('lists of mirrored repositories are filtered by every spelling of a name', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  for (const name of ['library/alpine', 'secret/app']) upstream.image(name, 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  for (const name of ['alpine', 'secret/app']) t.is((await server.fetch(`/v2/${name}/manifests/v1`)).status, 200);
  for (const pattern of ['alpine', 'docker.io/library/*']) {
    const token = await limit(server, [pattern]);
    const { items } = (await (await server.fetch('/v1/containers', { token })).json()) as { items: { name: string }[] };
    t.deepEqual(
      items.map(({ name }) => name),
      ['docker.io/library/alpine'],
    );
    for (const query of ['sort=size', 'sort=pulls', 'q=i']) {
      const found = await server.fetch(`/v1/containers?total=1&${query}`, { token });
      const { items: some, total } = (await found.json()) as { items: { name: string }[]; total: { count: number } };
      t.deepEqual([some.map(({ name }) => name), total.count], [['docker.io/library/alpine'], 1], query);
    }
    const other = await server.fetch('/v1/containers/docker.io/secret/app/v1', { method: 'DELETE', token });
    t.is(other.status, 403);
  }
});

test('a spelling with the name of the default upstream shows and deletes nothing of a name that is hosted without it', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('x.test', { default: true })] });
  t.is((await server.fetch('/v2/x.test/team/app/manifests/v1')).status, 200);
  const { digest } = await new TestRepository(server, 'secret/app').image('v1');
  await new TestRepository(server, 'team/app').image('v2');
  const token = await limit(server, ['x.test/*']);
  const read = (name: string) => server.fetch(`/v1/containers/${name}/history`, { token });
  const secret = await read('x.test/secret/app');
  const shown = await secret.text();
  t.false(shown.includes(digest), shown);
  t.deepEqual(JSON.parse(shown), { items: [], next_cursor: null });
  const { items } = (await (await read('x.test/team/app')).json()) as { items: { origin: string }[] };
  t.deepEqual([...new Set(items.map(({ origin }) => origin))], ['mirrored'], 'the hosted part is of another name');
  for (const path of ['v1', `manifests/${digest}`]) {
    const deletion = await server.fetch(`/v1/containers/x.test/secret/app/${path}`, { method: 'DELETE', token });
    t.is(deletion.status, 403, path);
  }
  t.is((await server.fetch('/v2/secret/app/manifests/v1')).status, 200);
  const path = `/v1/containers/x.test/secret/app/manifests/${digest}`;
  t.is((await server.fetch(path, { method: 'DELETE' })).status, 204, 'a token without a limit');
  const both = await limit(server, ['x.test/*', 'team/*']);
  const all = (await (await server.fetch('/v1/containers/x.test/team/app/history', { token: both })).json()) as {
    items: { origin: string }[];
  };
  t.deepEqual([...new Set(all.items.map(({ origin }) => origin))].sort(), ['hosted', 'mirrored']);
});

test('without patterns of a kind, no name of that kind is allowed', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  upstream.on('/v2/team/app/tags/list', answer(200, {}, '{"tags":["v1"]}'));
  const server = await startTestServer(t, { upstreams: [upstream.settings('docker.io', { default: true })] });
  await new TestRepository(server, 'app').image('v1');
  const token = await limit(server, undefined, ['*']);
  for (const name of ['app', 'team/app']) {
    t.deepEqual(await errorOf(await server.fetch(`/v2/${name}/tags/list`, { token })), [403, 'DENIED']);
    const push = await server.fetch(`/v2/${name}/blobs/uploads/`, { method: 'POST', token });
    t.deepEqual(await errorOf(push), [403, 'DENIED']);
  }
  t.deepEqual(await (await server.fetch('/v2/_catalog', { token })).json(), { repositories: [] });
  t.deepEqual(((await (await server.fetch('/v1/containers', { token })).json()) as { items: [] }).items, []);
  t.is((await server.fetch('/v2/', { token })).status, 200, 'the token can still sign in');
  t.is((await server.fetch('/v3/index.json', { token })).status, 200);
  t.deepEqual(upstream.requests(), []);
});

test('the token endpoint does not extend a limited token', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  await new TestRepository(server, 'team/app').image('v1');
  await new TestRepository(server, 'secret/app').image('v1');
  const limited = await limit(server, ['team/*']);
  const authorization = `Basic ${Buffer.from(`api:${limited}`).toString('base64')}`;
  for (const scope of ['repository:secret/app:pull,push', 'repository:team/app:pull', 'registry:catalog:*', '']) {
    const response = await server.fetch(`/token?service=x&scope=${scope}`, { token: null, headers: { authorization } });
    const { token } = (await response.json()) as { token: string };
    t.is((await server.fetch('/v2/team/app/manifests/v1', { token })).status, 200, scope);
    t.is((await server.fetch('/v2/secret/app/manifests/v1', { token })).status, 403, scope);
    t.deepEqual(await (await server.fetch('/v2/_catalog', { token })).json(), { repositories: ['team/app'] }, scope);
  }
});
