import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm, TestFeed } from '../support/feed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { tokenOf } from '../support/inside.ts';

const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`;
/** What `curl -u :`, podman without a login, and dotnet with empty credentials send. */
const empty = basic(':');

test('empty Basic credentials are the same as none', async (t) => {
  for (const anonymousRead of ['none', 'mirrored', 'all']) {
    const server = await startTestServer(t, { anonymousRead });
    await new TestRepository(server, 'team/app').image('v1');
    for (const [path, init] of [
      ['/v3/index.json', {}],
      ['/v3/package/a/index.json', {}],
      ['/v3/push', { method: 'PUT' }],
      ['/v2/', {}],
      ['/v2/team/app/manifests/v1', {}],
      ['/v2/team/app/blobs/uploads/', { method: 'POST' }],
      ['/token?service=x', {}],
      ['/v1/packages', {}],
      ['/v1/account', {}],
    ] as const) {
      const none = await server.fetch(path, { token: null, ...init });
      const with0 = await server.fetch(path, { token: null, ...init, headers: { authorization: empty } });
      t.is(with0.status, none.status, `${anonymousRead} ${path}`);
      t.is(with0.headers.get('www-authenticate'), none.headers.get('www-authenticate'), path);
      const [one, other] = [await none.text(), await with0.text()];
      if (path.startsWith('/token') && none.status === 200) {
        t.is((JSON.parse(other) as { token: string }).token, (JSON.parse(one) as { token: string }).token);
      } else {
        t.is(other, one, path);
      }
    }
    const form = new URLSearchParams({ grant_type: 'password', username: '', password: '' });
    const posted = await server.fetch('/token', { token: null, method: 'POST', body: form });
    t.is(posted.status, anonymousRead === 'none' ? 401 : 200);
    for (const wrong of [basic('api:'), basic(':x'), basic('x:'), basic(''), 'Basic', 'Bearer ']) {
      const answer = await server.fetch('/v3/index.json', { token: null, headers: { authorization: wrong } });
      t.is(answer.status, 401, `${anonymousRead} ${wrong}`);
    }
    const key = { authorization: empty, 'x-nuget-apikey': server.token };
    t.is((await server.fetch('/v3/index.json', { token: null, headers: key })).status, 200);
    const none = await server.fetch('/v3/index.json', { token: null });
    const emptyKey = await server.fetch('/v3/index.json', { token: null, headers: { 'x-nuget-apikey': '' } });
    t.deepEqual([emptyKey.status, await emptyKey.text()], [none.status, await none.text()], 'an empty API key is none');
    const wrongKey = { authorization: empty, 'x-nuget-apikey': 'wrong' };
    const refused = await server.fetch('/v3/index.json', { token: null, headers: wrongKey });
    t.is(refused.status, 401, 'a wrong API key is not anonymous');
    t.regex(await refused.text(), /not valid/);
  }
});

test('a container client logs in with any valid token', async (t) => {
  for (const anonymousRead of ['none', 'mirrored', 'all']) {
    const server = await startTestServer(t, { anonymousRead });
    for (const scope of ['read', 'write', 'delete', 'promote', 'admin', 'operate']) {
      const token = await tokenOf(server, [scope]);
      for (const method of ['GET', 'HEAD']) t.is((await server.fetch('/v2/', { token, method })).status, 200, scope);
      const authorization = basic(`api:${token}`);
      t.is((await server.fetch('/v2/', { token: null, headers: { authorization } })).status, 200, scope);
      const given = await server.fetch('/token?service=x', { token: null, headers: { authorization } });
      t.is(((await given.json()) as { token: string }).token, token);
    }
    const writer = new TestRepository(server, 'team/app', await tokenOf(server, ['write']));
    t.is((await writer.fetch('blobs/uploads/', { method: 'POST' })).status, 202);
    t.is((await writer.fetch('tags/list')).status, 403, 'reading still needs its scope');
    t.is((await writer.fetch('/v2/_catalog')).status, 403);
    t.is((await server.fetch('/v2/', { token: null })).status, 401);
    t.is((await server.fetch('/v2/', { token: 'wrong' })).status, 401);
  }
});

test('an invalid API key beside valid credentials is accepted, with a warning to the client and in the log', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const push = async (key: string, version: string) => {
    const headers = { 'x-nuget-apikey': key, authorization: `Bearer ${server.token}` };
    const { body, type } = packageForm(await makeNupkg({ id: 'Keyed', version }));
    return feed.fetch('/push', {
      method: 'PUT',
      headers: { ...headers, 'content-type': type },
      body: new Uint8Array(body),
    });
  };
  const wrong = await push('ent_wrong', '1.0.0');
  t.is(wrong.status, 201);
  t.regex(wrong.headers.get('x-nuget-warning')!, /API key is not valid/);
  t.true(server.lines.some((line) => line.includes('the API key of a request is not valid')));
  t.false(server.lines.some((line) => line.includes('ent_wrong')));
  const right = await push(server.token, '1.0.1');
  t.deepEqual([right.status, right.headers.get('x-nuget-warning')], [201, null]);
});
