import test from 'ava';
import { OpenDocument } from '../support/open-document.ts';
import { TestFeed } from '../support/feed.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { createToken, tokenOf } from '../support/inside.ts';

// The scope `operate`: what concerns all accounts.

const ownScopes = ['read', 'write', 'delete', 'admin'];

test('a mirrored version is dropped only with the scope operate', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')], { merge: { packages: ['Merged'] } });
  const feed = new TestFeed(server);
  for (const id of ['Shared', 'Merged']) {
    await up.offer({ id, versions: [{ version: '1.0.0' }] });
    const key = id.toLowerCase();
    t.is((await feed.fetch(`/package/${key}/1.0.0/${key}.1.0.0.nupkg`)).status, 200);
  }
  for (const account of ['default', 'other']) {
    const token = await tokenOf(server, ownScopes, account);
    const remove = (path: string) => server.fetch(`/v1/packages/${path}`, { method: 'DELETE', token });
    const refused = await remove('Shared/1.0.0');
    t.is(refused.status, 403, account);
    t.regex(refused.headers.get('www-authenticate')!, /scope="operate"/);
    t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' });
    t.is((await remove('Shared/2.0.0')).status, 404, 'a version that is not stored');
    t.is((await remove('Nothing/1.0.0')).status, 404);
    await new TestFeed(server, token).publish({ id: 'Merged', version: '1.0.0' });
    t.is((await remove('Merged/1.0.0')).status, 204, 'the hosted version');
    t.is((await remove('Merged/1.0.0')).status, 403, 'the mirrored version of the same number');
    // The protocol changes hosted versions only.
    t.is((await new TestFeed(server, token).fetch('/push/Shared/1.0.0', { method: 'DELETE' })).status, 404);
  }
  t.like(await (await server.fetch('/v1/packages/Shared')).json(), { version_count: 1 });
  const operator = await tokenOf(server, ['delete', 'operate'], 'other');
  t.is((await server.fetch('/v1/packages/Shared/1.0.0', { method: 'DELETE', token: operator })).status, 204);
  t.is((await server.fetch('/v1/packages/Shared')).status, 404);
});

test('a mirrored tag is dropped only with the scope operate', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest, layer } = upstream.image('team/app', 'v1');
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { default: true })] });
  t.is((await server.fetch('/v2/up.test/team/app/manifests/v1')).status, 200);
  t.is((await server.fetch(`/v2/up.test/team/app/blobs/${layer.digest}`)).status, 200);
  const asked = upstream.asked.length;
  for (const account of ['default', 'other']) {
    const token = await tokenOf(server, ownScopes, account);
    const remove = (path: string) => server.fetch(`/v1/containers/${path}`, { method: 'DELETE', token });
    const refused = await remove('up.test/team/app/v1');
    t.is(refused.status, 403, account);
    t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' });
    t.is((await remove('up.test/team/app/v2')).status, 404, 'a tag that is not stored');
    const repository = new TestRepository(server, 'up.test/team/app', token);
    for (const path of ['manifests/v1', `manifests/${manifest.digest}`, `blobs/${layer.digest}`]) {
      t.is(
        (await repository.fetch(path, { method: 'DELETE' })).status,
        404,
        'the protocol deletes hosted content only',
      );
    }
  }
  t.is((await server.fetch('/v2/up.test/team/app/manifests/v1')).status, 200);
  t.is(upstream.asked.length, asked, 'all of it is still stored');
  const operator = await tokenOf(server, ['delete', 'operate'], 'other');
  const dropped = await server.fetch('/v1/containers/up.test/team/app/v1', { method: 'DELETE', token: operator });
  t.is(dropped.status, 204);
});

test('only a token with the scope operate creates another one with it', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const create = (token: string, scopes: string[]) =>
    server.fetch('/v1/tokens', {
      method: 'POST',
      token,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'x', scopes }),
    });
  const made = await document.read('POST /tokens', await create(server.token, ['operate', 'read']));
  t.deepEqual(made['scopes'], ['read', 'operate']);
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { scopes: string[] }[] };
  t.deepEqual(
    items.at(-1)!.scopes,
    ['read', 'write', 'delete', 'promote', 'admin', 'operate'],
    'the first token has every scope',
  );
  for (const account of ['default', 'other']) {
    const token = await tokenOf(server, ownScopes, account);
    const refused = await create(token, ['read', 'operate']);
    t.is(refused.status, 403, account);
    t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' });
    t.is((await create(token, ownScopes)).status, 201, 'scopes inside of the account are free');
  }
  const { value } = await createToken(server, [...ownScopes, 'operate'], 'default', { packages: ['A'] });
  t.is((await create(value, ['operate'])).status, 403, 'a limited token creates only limited tokens');
});
