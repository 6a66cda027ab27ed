import test from 'ava';
import { schema } from '../../src/config/schema.ts';
import { Aliases } from '../../src/http/aliases.ts';
import { makeNupkg, makePdb, makeSnupkg } from '../support/builders/nupkg.ts';
import { packageForm } from '../support/feed.ts';
import { tokenOf } from '../support/inside.ts';
import { raw } from '../support/raw.ts';
import { digestOf, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

test('old addresses of a feed: the index, pushes with and without a slash, symbols, unlisting and relisting', async (t) => {
  const aliases = [
    { path: '/repository/nuget-hosted/index.json', to: 'feed' },
    { path: '/nuget/feed', to: 'feed' },
    { path: '/api/v2/package', to: 'feed' },
    { path: '/api/v2/symbol', to: 'feed' },
  ];
  const server = await startTestServer(t, { aliases });
  const own = (await (await server.fetch('/v3/index.json')).json()) as { resources: unknown[] };
  t.true(own.resources.length > 3);
  for (const path of ['/repository/nuget-hosted/index.json', '/nuget/feed/v3/index.json', '/nuget/feed/index.json?x=1'])
    t.deepEqual(await (await server.fetch(path)).json(), own, path);
  const push = async (path: string, bytes: Buffer) => {
    const { body, type } = packageForm(bytes);
    const headers = { 'content-type': type, 'x-nuget-apikey': server.token };
    return (await server.fetch(path, { method: 'PUT', token: null, headers, body: new Uint8Array(body) })).status;
  };
  const places = ['/api/v2/package', '/api/v2/package/', '/repository/nuget-hosted/', '/nuget/feed/package'];
  for (const [at, place] of places.entries())
    t.is(await push(place, await makeNupkg({ id: 'A', version: `${at + 1}.0.0` })), 201, place);
  const files = { 'lib/net8.0/A.pdb': makePdb(Buffer.alloc(16, 3)) };
  t.is(await push('/api/v2/symbol', await makeSnupkg({ id: 'A', version: '1.0.0', files })), 201);
  t.is(await push('/nuget/feed/symbols', await makeSnupkg({ id: 'A', version: '2.0.0', files })), 201);
  const listed = async () => {
    const index = (await (await server.fetch('/v3/registration-gz-semver2/a/index.json')).json()) as any;
    return index.items[0].items.map((each: any) => each.catalogEntry.listed);
  };
  t.is((await server.fetch('/repository/nuget-hosted/A/1.0.0', { method: 'DELETE' })).status, 204);
  t.is((await server.fetch('/api/v2/package/A/2.0.0', { method: 'DELETE' })).status, 204);
  t.is((await server.fetch('/api/v2/package/A/2.0.0', { method: 'POST' })).status, 200);
  t.deepEqual(await listed(), [false, true, true, true]);
  const other = ['/repository/nuget-hosted', '/repository/nuget-hosted2/index.json', '/nuget/other/v3/index.json'];
  for (const path of [...other, '/repository/nuget-hosted/v1/tokens'])
    t.is((await server.fetch(path)).status, 404, path);
  t.is((await server.fetch('/nuget/feed/v3/index.json', { token: null })).status, 401);
});

test('old names of images: push, pull, mount and lists, with addresses at the alias', async (t) => {
  const aliases = [
    { host: 'localhost', to: 'registry', prefix: 'team' },
    { path: '/docker-hosted', to: 'registry' },
    // The closest one counts, wherever it stands.
    { path: '/docker-hosted/old', to: 'registry', prefix: 'kept' },
    { path: '/docker-hosted/old', host: 'localhost', to: 'registry', prefix: 'there' },
  ];
  const server = await startTestServer(t, { aliases, server: { baseUrl: 'https://new.example/' } });
  const at = (url: string) => ({
    ...server,
    fetch: (path: string, init: RequestInit = {}) =>
      fetch(url + path, {
        ...init,
        redirect: 'manual',
        headers: { ...(init.headers as Record<string, string>), authorization: `Bearer ${server.token}` },
      }),
  });
  const old = at(server.url.replace('127.0.0.1', 'localhost'));
  for (const [where, name, here] of [
    [old, 'app', 'team/app'],
    [server, 'docker-hosted/deep/app', 'deep/app'],
  ] as const) {
    const repository = new TestRepository(where, name);
    const session = await repository.start();
    t.true(session.startsWith(`/v2/${name}/blobs/uploads/`), session);
    const bytes = `of ${name}`;
    const ended = await repository.fetch(`${session}?digest=${digestOf(bytes)}`, { method: 'PUT', body: bytes });
    t.is(ended.status, 201);
    t.is(ended.headers.get('location'), `/v2/${name}/blobs/${digestOf(bytes)}`);
    const image = await repository.image('1.0');
    await repository.image('2.0');
    t.is((await server.fetch(`/v2/${here}/manifests/1.0`)).headers.get('docker-content-digest'), image.digest);
    const list = await repository.fetch('tags/list?n=1');
    t.is(list.headers.get('link'), `</v2/${name}/tags/list?n=1&last=1.0>; rel="next"`);
    const to = new TestRepository(where, `${name}-2`);
    const mount = await to.fetch(`blobs/uploads/?mount=${digestOf(bytes)}&from=${name}`, { method: 'POST' });
    t.is(mount.status, 201);
  }
  const repositories = async (where: typeof old) =>
    ((await (await where.fetch('/v2/_catalog')).json()) as any).repositories;
  for (const where of [server, old]) t.deepEqual(await repositories(where), ['deep/app', 'team/app']);
  for (const [host, here] of [
    [server.url.replace('http://127.0.0.1', 'LOCALHOST'), 'there/app'],
    ['localhost', 'there/app'],
    ['127.0.0.1', 'kept/app'],
  ] as const) {
    const headers = { host, authorization: `Bearer ${server.token}` };
    const missing = await raw(server, '/v2/docker-hosted/old/app/manifests/1', { headers });
    t.true(missing.body.toString().includes(here), `${host}: ${missing.body.toString()}`);
    const upload = await raw(server, '/v2/docker-hosted/old/app/blobs/uploads/', { method: 'POST', headers });
    t.true(upload.headers['location']!.startsWith('/v2/docker-hosted/old/app/'), upload.headers['location']);
  }
  // The repository of a mount may be one that is not below the alias.
  const from = `blobs/uploads/?mount=${digestOf('of app')}&from=team/app`;
  t.is((await new TestRepository(server, 'docker-hosted/mounted').fetch(from, { method: 'POST' })).status, 201);
  // Only the old host has addresses of its own.
  const addressAt = async (where: typeof old) =>
    ((await (await where.fetch('/v3/index.json')).json()) as any).resources[0]['@id'];
  t.is(await addressAt(old), `${server.url.replace('127.0.0.1', 'localhost')}/v3/package`);
  t.is(await addressAt(at(server.url)), 'https://new.example/v3/package');
  t.is((await old.fetch('/v2/')).status, 200);
});

test('an alias of an account takes only its credentials', async (t) => {
  const aliases = [
    { path: '/nuget/team', to: 'feed', account: 'team' },
    { host: 'old.test', to: 'feed', account: 'team' },
  ];
  const server = await startTestServer(t, { aliases, anonymousRead: 'all' });
  const token = await tokenOf(server, ['read'], 'team');
  const statusOf = async (who: string | null) =>
    (await server.fetch('/nuget/team/v3/index.json', { token: who })).status;
  t.deepEqual([await statusOf(token), await statusOf(server.token), await statusOf(null)], [200, 403, 401]);
  t.is((await server.fetch('/v3/index.json')).status, 200);
  const atHost = async (path: string, who: string) => {
    const headers = { host: 'old.test', authorization: `Bearer ${who}` };
    return (await raw(server, path, { headers })).status;
  };
  t.deepEqual([await atHost('/v3/index.json', token), await atHost('/v3/index.json', server.token)], [200, 403]);
  t.is(await atHost('/v2/', server.token), 200, 'an alias of the feed is none of the registry');
});

test('an alias that cannot be meant is refused', (t) => {
  for (const [alias, expected] of [
    [{ to: 'feed' }, 'an alias needs a path, a host or both'],
    [{ path: '/v3/index.json', to: 'feed' }, 'is one of this server already, so it needs no alias'],
    [{ path: '/v1', to: 'feed' }, 'is one of this server already, so it needs no alias'],
    [{ path: '/a/../v1', to: 'feed' }, 'a path here has no . or .. in it'],
    [{ path: 'nuget', to: 'feed' }, 'expected a path such as /repository/nuget-hosted/index.json'],
    [
      { host: 'Old.example/x', to: 'registry' },
      'expected a host in lower case, such as old.example or old.example:5000',
    ],
    [{ path: '/nuget', to: 'feed', prefix: 'a' }, 'is only for "to: registry": package IDs have none'],
  ] as const) {
    const parsed = schema.safeParse({ aliases: [alias] });
    t.is(parsed.error?.issues[0]?.message, expected);
  }
});

const allAliases = new Aliases([
  { path: '/nuget/feed', to: 'feed', account: 'team' },
  { path: '/repository/hosted/index.json', to: 'feed' },
  { path: '/slash/', to: 'feed' },
  { path: '/api/v2/symbol', to: 'feed' },
  { path: '/api/v2/symbolpackage', to: 'feed' },
  { host: 'feed.test', to: 'feed' },
  { path: '/old', to: 'registry', prefix: 'kept' },
  { path: '/old/closer', to: 'registry' },
  { host: 'images.test', to: 'registry', prefix: 'there', account: 'other' },
  { host: 'ports.test:5000', path: '/old', to: 'registry', prefix: 'ports' },
]);

test('a request at an alias has one address here, and no other request has', (t) => {
  const feed: [method: string, target: string, own: string | undefined, host?: string][] = [
    ['GET', '/nuget/feed/index.json', '/v3/index.json'],
    ['GET', '/nuget/feed/index.json/', '/v3/index.json'],
    ['GET', '/nuget/feed/index.json?a=1&b=2', '/v3/index.json?a=1&b=2'],
    ['GET', '/nuget/feed/v3/package/a/index.json', '/v3/package/a/index.json'],
    ['GET', '/nuget/feed/v3', undefined],
    ['GET', '/nuget/feed', undefined],
    ['GET', '/nuget/feeds/index.json', undefined],
    ['GET', '/x/nuget/feed/index.json', undefined],
    ['GET', '/repository/hosted/index.json', '/v3/index.json'],
    ['GET', '/slash/index.json', '/v3/index.json'],
    ['PUT', '/nuget/feed', '/v3/push'],
    ['PUT', '/nuget/feed/', '/v3/push'],
    ['PUT', '/nuget/feed/package', '/v3/push'],
    ['PUT', '/nuget/feed/api/v2/package', '/v3/push'],
    ['PUT', '/nuget/feed/api/v2/package/', '/v3/push'],
    ['PUT', '/nuget/feed/package/a', undefined],
    ['PUT', '/nuget/feed/x/package', undefined],
    ['PUT', '/nuget/feed/symbol', '/v3/symbols'],
    ['PUT', '/nuget/feed/symbols', '/v3/symbols'],
    ['PUT', '/nuget/feed/api/v2/symbolpackage', '/v3/symbols'],
    ['PUT', '/nuget/feed/symbols/a', undefined],
    ['PUT', '/nuget/feed/mysymbols', undefined],
    ['PUT', '/api/v2/symbol', '/v3/symbols'],
    ['PUT', '/api/v2/symbolpackage/', '/v3/symbols'],
    ['POST', '/nuget/feed', undefined],
    ['DELETE', '/nuget/feed/App/1.0.0', '/v3/push/App/1.0.0'],
    ['DELETE', '/nuget/feed/package/A/1.0.0?x', '/v3/push/A/1.0.0?x'],
    ['POST', '/nuget/feed/api/v2/package/A/1.0.0', '/v3/push/A/1.0.0'],
    ['GET', '/nuget/feed/A/1.0.0', undefined],
    ['DELETE', '/nuget/feed/A', undefined],
    ['DELETE', '/nuget/feed/A/1.0.0/more', undefined],
    ['DELETE', '/nuget/feed/api/v2/other/A/1.0.0', undefined],
    ['GET', '/v3/index.json', '/v3/index.json', 'feed.test'],
    ['GET', '/v3/index.json', '/v3/index.json', 'FEED.test:8080'],
    ['GET', '/v1/tokens', undefined, 'feed.test'],
    ['GET', '/index.json', undefined, 'feed.test'],
    ['GET', '/v2/', undefined, 'feed.test'],
    ['GET', '/v3/index.json', undefined, 'other.test'],
  ];
  for (const [method, target, own, host = 'any.test'] of feed) {
    const found = allAliases.find(method, host, target);
    const account = target.startsWith('/nuget/feed') ? 'team' : undefined;
    t.deepEqual(
      found,
      own === undefined ? undefined : { target: own, account, renamed: undefined },
      `${method} ${host}${target}`,
    );
  }
  type Found = ReturnType<Aliases['find']>;
  const plain = { account: undefined };
  const registry: [host: string, target: string, found: Found][] = [
    [
      'any.test',
      '/v2/old/app/tags/list',
      { ...plain, target: '/v2/kept/app/tags/list', renamed: ['/v2/kept/', '/v2/old/'] },
    ],
    [
      'any.test',
      '/v2/old/closer/app/x?n=1',
      { ...plain, target: '/v2/app/x?n=1', renamed: ['/v2/', '/v2/old/closer/'] },
    ],
    ['any.test', '/v2/old/', undefined],
    ['any.test', '/v2/older/app/tags/list', undefined],
    ['any.test', '/v2/old/_catalog', undefined],
    ['any.test', '/v2/', undefined],
    ['any.test', '/v1/old/app', undefined],
    [
      'any.test',
      '/v2/old/app/blobs/uploads/?mount=x&from=old%2Flib',
      { ...plain, target: '/v2/kept/app/blobs/uploads/?mount=x&from=kept%2Flib', renamed: ['/v2/kept/', '/v2/old/'] },
    ],
    [
      'any.test',
      '/v2/old/app/blobs/uploads/?mount=x&from=new%2Flib',
      { ...plain, target: '/v2/kept/app/blobs/uploads/?mount=x&from=new%2Flib', renamed: ['/v2/kept/', '/v2/old/'] },
    ],
    ['images.test', '/v2/app/x', { target: '/v2/there/app/x', account: 'other', renamed: ['/v2/there/', '/v2/'] }],
    // A list has parameters, too, and none of them is the repository of a mount.
    [
      'images.test',
      '/v2/app/tags/list?n=1&last=a/b',
      { target: '/v2/there/app/tags/list?n=1&last=a/b', account: 'other', renamed: ['/v2/there/', '/v2/'] },
    ],
    ['images.test', '/v2/old/app/x', { ...plain, target: '/v2/kept/app/x', renamed: ['/v2/kept/', '/v2/old/'] }],
    ['images.test', '/v2/', { target: '/v2/', account: 'other', renamed: undefined }],
    ['images.test', '/v2', { target: '/v2', account: 'other', renamed: undefined }],
    ['images.test:80', '/v2?x', { target: '/v2?x', account: 'other', renamed: undefined }],
    ['images.test', '/v2/_catalog', { target: '/v2/_catalog', account: 'other', renamed: undefined }],
    ['images.test', '/v2x', undefined],
    ['images.test', '/x/v2/', undefined],
    ['ports.test:5000', '/v2/old/app/x', { ...plain, target: '/v2/ports/app/x', renamed: ['/v2/ports/', '/v2/old/'] }],
    ['ports.test', '/v2/old/app/x', { ...plain, target: '/v2/kept/app/x', renamed: ['/v2/kept/', '/v2/old/'] }],
  ];
  for (const [host, target, found] of registry) t.deepEqual(allAliases.find('GET', host, target), found, host + target);
  const same = new Aliases([{ path: '/a', to: 'registry', prefix: 'a' }]);
  t.is(same.find('GET', 'any.test', '/v2/a/app/x')!.renamed, undefined, 'its addresses stay as they are');
  t.is(new Aliases([]).find('GET', 'any.test', '/v2/a/app/x'), undefined);
  t.is(new Aliases([{ path: '/', to: 'feed' }]).find('GET', 'any.test', '/v3/index.json'), undefined);
});

test('of two aliases with one path, with and without a slash at its end, that of the host is taken', (t) => {
  const aliases = new Aliases([
    { path: '/old/', to: 'feed' },
    { path: '/old', host: 'feed.test', to: 'feed', account: 'team' },
  ]);
  t.is(aliases.find('GET', 'feed.test', '/old/index.json')?.account, 'team');
  t.is(aliases.find('GET', 'other.test', '/old/index.json')?.account, undefined);
});

test('a longer path of all hosts is closer than a shorter one of the host', (t) => {
  const aliases = new Aliases([
    { path: '/old', host: 'two.test', to: 'registry', prefix: 'host' },
    { path: '/old/a', to: 'registry', prefix: 'path' },
  ]);
  t.is(aliases.find('GET', 'two.test', '/v2/old/a/app/x')?.target, '/v2/path/app/x');
  t.is(aliases.find('GET', 'two.test', '/v2/old/b/app/x')?.target, '/v2/host/b/app/x');
});

test('a request to a host with several aliases that none of them changes has the account of the closest one', (t) => {
  const aliases = new Aliases([
    { host: 'two.test', path: '/a', to: 'registry', account: 'one' },
    { host: 'two.test', path: '/longer', to: 'registry', account: 'two' },
  ]);
  t.deepEqual(aliases.find('GET', 'two.test', '/v2/'), { target: '/v2/', account: 'two', renamed: undefined });
});

test('a host is an old name of this server with and without its port, in any letter case', (t) => {
  for (const host of ['feed.test', 'Feed.Test', 'feed.test:8080', 'ports.test:5000'])
    t.true(allAliases.isHost(host), host);
  for (const host of ['other.test', 'ports.test', 'ports.test:5001', 'x.feed.test', '', undefined])
    t.false(allAliases.isHost(host), host);
  t.false(new Aliases([{ path: '/a', to: 'feed' }]).isHost('feed.test'));
});
