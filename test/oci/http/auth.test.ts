import test from 'ava';
import { DomainError } from '../../../src/runtime/errors.ts';
import { digestOf, errorOf, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { failTokens, tokenOf } from '../../support/inside.ts';

const basic = (password: string, user = 'api') => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

const bearer = (scope: string) =>
  `Bearer realm="https://images.example:8443/token",service="images.example:8443"${scope && `,scope="${scope}"`}`;
const form = (fields: Record<string, string>, authorization?: string) => ({
  method: 'POST',
  body: new URLSearchParams(fields),
  ...(authorization !== undefined && { headers: { authorization } }),
});

test('every path needs credentials, Basic as user "api" or Bearer, and the 401 asks for Basic', async (t) => {
  const server = await startTestServer(t);
  for (const path of ['/v2/', '/v2/_catalog', '/v2/app/manifests/latest', '/v2/nonsense', '/v2/A/tags/list']) {
    for (const authorization of ['', basic('wrong'), basic(server.token, 'root'), 'Bearer wrong', 'Bearer anonymous']) {
      const response = await server.fetch(path, { token: null, ...(authorization && { headers: { authorization } }) });
      t.is(response.headers.get('www-authenticate'), 'Basic realm="Entrepot"');
      t.deepEqual(await errorOf(response), [401, 'UNAUTHORIZED']);
    }
  }
  for (const authorization of [basic(server.token), `Bearer ${server.token}`, `bearer ${server.token}`]) {
    const response = await server.fetch('/v2/', { token: null, headers: { authorization } });
    t.is(response.status, 200);
    t.is(response.headers.get('docker-distribution-api-version'), 'registry/2.0');
    t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  }
});

test('reads, writes and deletions each need their scope, and the answer names it', async (t) => {
  const server = await startTestServer(t);
  const all = new TestRepository(server, 'app');
  const { digest, bytes } = await all.image('v1');
  const session = await all.start();
  const requests: Record<string, [method: string, path: string, body?: string][]> = {
    read: [
      ['GET', 'manifests/v1'],
      ['HEAD', `blobs/${digest}`],
      ['GET', 'tags/list'],
      ['GET', '/v2/_catalog'],
      ['GET', `referrers/${digest}`],
    ],
    write: [
      ['POST', 'blobs/uploads/'],
      ['PUT', 'manifests/v1', bytes],
      ['GET', session],
      ['PATCH', session],
      ['PUT', `${session}?digest=${digest}`],
      ['DELETE', session],
    ],
    delete: [
      ['DELETE', 'manifests/v1'],
      ['DELETE', `blobs/${digest}`],
    ],
  };
  for (const [scope, list] of Object.entries(requests)) {
    const scopes = ['read', 'write', 'delete', 'admin'].filter((each) => each !== scope);
    const value = await tokenOf(server, scopes);
    const repository = new TestRepository(server, 'app', value);
    for (const [method, path, body] of list) {
      const response = await repository.fetch(path, { method, ...(body && { body }) });
      t.is(response.status, 403, `${method} ${path}`);
      if (method === 'HEAD') continue;
      const { errors } = (await response.json()) as { errors: { code: string; message: string; detail: object }[] };
      t.is(errors[0]!.code, 'DENIED');
      t.deepEqual(errors[0]!.detail, { scope });
      t.true(errors[0]!.message.includes(scope));
    }
  }
  t.is((await all.fetch('manifests/v1')).status, 200);
});

test('an account cannot see or change the content of another one', async (t) => {
  const server = await startTestServer(t);
  const mine = new TestRepository(server, 'app');
  const { digest, bytes } = await mine.image('v1');
  const { config } = JSON.parse(bytes) as { config: { digest: string } };
  const value = await tokenOf(server, ['read', 'write', 'delete'], 'other');
  const theirs = new TestRepository(server, 'app', value);
  for (const path of ['manifests/v1', `manifests/${digest}`, `blobs/${config.digest}`, 'tags/list']) {
    t.is((await theirs.fetch(path)).status, 404, path);
    t.is((await theirs.fetch(path, { method: 'HEAD' })).status, 404, path);
  }
  for (const path of ['manifests/v1', `manifests/${digest}`, `blobs/${config.digest}`]) {
    t.is((await theirs.fetch(path, { method: 'DELETE' })).status, 404, path);
  }
  t.deepEqual(await (await theirs.fetch('/v2/_catalog')).json(), { repositories: [] });
  t.is((await theirs.put('v1', bytes)).status, 400, 'the blobs of another account are not there');
  await theirs.image('v1');
  t.is((await mine.fetch('manifests/v1')).headers.get('docker-content-digest'), digest);
});

test('unknown paths are 404, wrong methods 405 with the allowed ones, malformed names 400', async (t) => {
  const repository = new TestRepository(await startTestServer(t), 'app');
  for (const path of [
    '/v2/app',
    '/v2/app/manifests',
    '/v2/app/tags',
    '/v2/app/blobs/',
    '/v2/%ff/tags/list',
    '/v2/x/y/z',
  ]) {
    t.deepEqual(await errorOf(await repository.fetch(path)), [404, 'UNSUPPORTED'], path);
  }
  for (const [method, path, allowed] of [
    ['POST', '/v2/', 'GET, HEAD'],
    ['DELETE', '/v2/_catalog', 'GET, HEAD'],
    ['PUT', 'tags/list', 'GET, HEAD'],
    ['PATCH', 'manifests/latest', 'GET, HEAD, PUT, DELETE'],
    ['PUT', `blobs/${digestOf('x')}`, 'GET, HEAD, DELETE'],
    ['GET', 'blobs/uploads/', 'POST'],
    ['POST', 'blobs/uploads/00000000-0000-4000-8000-000000000000', 'GET, HEAD, PATCH, PUT, DELETE'],
    ['DELETE', `referrers/${digestOf('x')}`, 'GET, HEAD'],
  ] as const) {
    const response = await repository.fetch(path, { method });
    t.is(response.headers.get('allow'), allowed);
    t.deepEqual(await errorOf(response), [405, 'UNSUPPORTED']);
  }
  for (const name of [
    'A',
    'a//b',
    '-a',
    'a%2F..%2Fb',
    '..%2f..%2fetc',
    'a%00b',
    'é',
    'a'.repeat(256),
    'a%20b',
    'a%5cb',
  ]) {
    const response = await repository.fetch(`/v2/${name}/tags/list`);
    t.deepEqual(await errorOf(response), [400, 'NAME_INVALID'], name);
    const push = await repository.fetch(`/v2/${name}/blobs/uploads/`, { method: 'POST' });
    t.deepEqual(await errorOf(push), [400, 'NAME_INVALID'], name);
  }
  const encoded = new TestRepository(repository.server, 'team%2Fapp');
  t.is((await encoded.put('v1', await new TestRepository(repository.server, 'team/app').manifest())).status, 201);
  t.is((await repository.fetch('/v2/team/app/manifests/v1')).status, 200);
});

test('with anonymous reads the 401 names the token endpoint, and pushes still need credentials', async (t) => {
  const server = await startTestServer(t, {
    anonymousRead: true,
    server: { registryUrl: 'https://images.example:8443' },
  });
  await new TestRepository(server, 'team/app').image('v1');
  const ask = (path: string, method = 'GET', headers: Record<string, string> = {}) =>
    server.fetch(path, { token: null, method, headers });
  const challenge = async (response: Response, scope: string) => {
    t.is(response.headers.get('www-authenticate'), bearer(scope));
    t.deepEqual(await errorOf(response), [401, 'UNAUTHORIZED']);
  };
  await challenge(await ask('/v2/'), '');
  t.is((await ask('/v2/', 'GET', { authorization: 'Bearer anonymous' })).status, 200);
  t.is((await ask('/v2/team/app/manifests/v1')).status, 200);
  t.is((await ask('/v2/team/app/manifests/v1', 'GET', { authorization: 'Bearer anonymous' })).status, 200);
  await challenge(await ask('/v2/team/app/blobs/uploads/', 'POST'), 'repository:team/app:pull,push');
  const anonymous = { authorization: 'Bearer anonymous' };
  await challenge(await ask('/v2/team/app/manifests/v1', 'DELETE', anonymous), 'repository:team/app:delete');
  const session = '/v2/team/app/blobs/uploads/00000000-0000-4000-8000-000000000000';
  await challenge(await ask(session, 'PATCH', anonymous), 'repository:team/app:pull,push');
  await challenge(await ask(session, 'PUT', anonymous), 'repository:team/app:pull,push');
  await challenge(await ask('/v2/_catalog', 'GET', { authorization: 'Bearer wrong' }), 'registry:catalog:*');
  const head = await ask('/v2/team/app/manifests/v1', 'HEAD', { authorization: 'Bearer wrong' });
  t.is(head.headers.get('www-authenticate'), bearer('repository:team/app:pull'));
  await challenge(
    await ask('/v2/team/app/tags/list', 'GET', { authorization: 'Bearer wrong' }),
    'repository:team/app:pull',
  );
  await challenge(await ask('/v2/a%22b/tags/list', 'GET', { authorization: 'Bearer wrong' }), '');
  const value = await tokenOf(server, ['read', 'write'], 'other');
  await new TestRepository(server, 'private', value).image('v1');
  t.is((await ask('/v2/private/manifests/v1')).status, 404, 'of account "default" alone');
});

test('the token endpoint returns the API token of the client, or an anonymous token', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  const ask = async (init: RequestInit = {}, path = '/token?service=x&scope=repository:app:pull') => {
    const response = await server.fetch(path, { token: null, ...init });
    t.is(response.headers.get('cache-control'), 'no-store', 'the answer has a token');
    return [response.status, (await response.json()) as Record<string, unknown>] as const;
  };
  for (const [init, expected] of [
    [{ headers: { authorization: basic(server.token) } }, server.token],
    [form({ grant_type: 'password', username: 'api', password: server.token, service: 'x' }), server.token],
    [form({ grant_type: 'refresh_token', refresh_token: server.token }), server.token],
    // The credentials in the form win, and without any in it those in the header count.
    [form({ grant_type: 'refresh_token', refresh_token: server.token }, basic('wrong')), server.token],
    [form({ service: 'x' }, basic(server.token)), server.token],
    [form({ grant_type: 'password', password: server.token }), server.token],
    [form({ grant_type: 'password', username: 'api', password: server.token, refresh_token: 'old' }), server.token],
    [{ headers: { authorization: basic(server.token).replace('Basic', 'bASIC') } }, server.token],
    [{ headers: { authorization: `bEARER  ${server.token}` } }, server.token],
    [{}, 'anonymous'],
  ] as const) {
    const [status, body] = await ask(init);
    t.is(status, 200);
    t.is(body['token'], expected);
    t.is(body['access_token'], expected);
    t.true((body['expires_in'] as number) >= 60);
    t.true(Math.abs(Date.parse(body['issued_at'] as string) - Date.now()) < 60_000);
    const used = await server.fetch('/v2/', { token: body['token'] as string });
    t.is(used.status, 200);
  }
  const put = await server.fetch('/token', { method: 'PUT', token: null });
  t.deepEqual([put.status, put.headers.get('allow')], [405, 'GET, POST']);
  for (const init of [
    { headers: { authorization: basic('wrong') } },
    { headers: { authorization: basic(server.token, 'root') } },
    form({ grant_type: 'password', username: 'api', password: 'wrong' }),
    form({ grant_type: 'password', username: 'root', password: server.token }),
    form({ grant_type: 'refresh_token', refresh_token: 'wrong' }),
  ]) {
    const [status, body] = await ask(init);
    t.is(status, 401);
    t.is((body['errors'] as { code: string }[])[0]!.code, 'UNAUTHORIZED');
  }
  for (const [init, status] of [
    [{ method: 'PUT' }, 405],
    [{ method: 'POST', body: 'x'.repeat(100_000) }, 400],
  ] as const) {
    const [found, body] = await ask(init);
    t.deepEqual([found, (body['errors'] as { code: string }[])[0]!.code], [status, 'UNSUPPORTED']);
  }
  const refused = await server.fetch('/token', { token: 'wrong' });
  t.is(refused.headers.get('www-authenticate'), 'Basic realm="Entrepot"');
  const closed = await startTestServer(t);
  t.is((await closed.fetch('/token', { token: null })).status, 401);
});

test('the token endpoint refuses with the codes of the registry', async (t) => {
  const server = await startTestServer(t);
  for (const [name, status, code] of [
    ['TooManyRequests', 429, 'TOOMANYREQUESTS'],
    ['Aborted', 400, 'UNSUPPORTED'],
    ['DatabaseUnavailable', 503, 'UNAVAILABLE'],
    ['StorageUnavailable', 503, 'UNAVAILABLE'],
    ['StorageFull', 507, 'UNAVAILABLE'],
    ['UpstreamUnavailable', 502, 'UNAVAILABLE'],
    ['UpstreamTimeout', 504, 'UNAVAILABLE'],
    ['QuotaExceeded', 403, 'DENIED'],
  ] as const) {
    failTokens(server, () => Promise.reject(new DomainError(name, 'This is why.')));
    const response = await server.fetch('/token');
    t.deepEqual(
      [response.status, await response.json()],
      [status, { errors: [{ code, message: 'This is why.' }] }],
      name,
    );
  }
  failTokens(server, () => Promise.reject(new DomainError('TagInvalid', 'A defect.')));
  const defect = await server.fetch('/token');
  const message = 'An error occurred in this server. Its log has the details.';
  t.deepEqual([defect.status, await defect.json()], [500, { errors: [{ code: 'UNKNOWN', message }] }]);
});
