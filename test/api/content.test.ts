import { createHash } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { measureStored } from '../../src/usage/stored.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { OpenDocument } from '../support/open-document.ts';
import { TestRepository } from '../support/registry.ts';
import { eventually } from '../support/until.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { createToken, databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { measures } from '../support/store.ts';

type Json = Record<string, unknown>;

async function push(server: TestServer, id: string, version: string, token = server.token): Promise<Buffer> {
  const bytes = await makeNupkg({ id, version });
  const body = new FormData();
  body.append('package', new Blob([new Uint8Array(bytes)]), 'package.nupkg');
  const response = await server.fetch('/v3/push', { method: 'PUT', body, token });
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return bytes;
}

async function other(server: TestServer): Promise<string> {
  return tokenOf(server, ['read', 'write', 'delete', 'admin'], 'other');
}

async function get(server: TestServer, path: string, token?: string): Promise<Json> {
  const response = await server.fetch(path, token === undefined ? {} : { token });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Json;
}

async function stored(server: TestServer, token?: string): Promise<number> {
  return ((await get(server, '/v1/account', token))['usage'] as { storage_bytes: number }).storage_bytes;
}

/** The stored bytes, when they are `expected`: on a busy machine the measurement before is used for a while. */
function storedWhen(expected: number, server: TestServer, token?: string): Promise<number> {
  return eventually(
    () => stored(server, token),
    (found) => found === expected,
  );
}

for (const dialect of dialects) {
  const suite = (title: string, run: (t: ExecutionContext, server: TestServer) => Promise<void>) =>
    test(`${dialect}: ${title}`, async (t) => {
      await run(t, await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } }));
    });

  suite('a package can be listed and described, and its versions can be deleted', async (t, server) => {
    const document = await OpenDocument.of(server);
    const before = Date.now();
    const old = await push(server, 'Contoso.Utility', '1.0.0');
    const bytes = await push(server, 'Contoso.Utility', '2.0.0-beta.1');
    const list = await document.read('GET /packages', await server.fetch('/v1/packages'));
    t.is(list['next_cursor'], null);
    const [summary, ...more] = list['items'] as Json[];
    t.deepEqual(more, []);
    t.like(summary, {
      id: 'Contoso.Utility',
      package_type: 'Dependency',
      origin: 'hosted',
      upstream: null,
      latest_version: '1.0.0',
      version_count: 2,
      size_bytes: old.length + bytes.length,
      download_count: 0,
      last_downloaded_at: null,
    });
    const createdAt = Date.parse(summary!['created_at'] as string);
    t.true(createdAt >= before && createdAt <= Date.now());

    const details = await document.read('GET /packages/{id}', await server.fetch('/v1/packages/contoso.utility'));
    t.deepEqual({ ...details, versions: undefined }, { ...summary!, versions: undefined });
    const versions = details['versions'] as Json[];
    t.deepEqual(
      versions.map((each) => each['version']),
      ['2.0.0-beta.1', '1.0.0'],
    );
    t.like(versions[0], {
      listed: true,
      cached_at: null,
      size_bytes: bytes.length,
      sha512: createHash('sha512').update(bytes).digest('base64'),
    });

    const gone = await server.fetch('/v1/packages/CONTOSO.UTILITY/1.0', { method: 'DELETE' });
    await document.read('DELETE /packages/{id}/{version}', gone.clone());
    t.is(gone.status, 204);
    t.is((await server.fetch('/v1/packages/Contoso.Utility/1.0.0', { method: 'DELETE' })).status, 404);
    t.is((await server.fetch('/v3/package/contoso.utility/1.0.0/contoso.utility.1.0.0.nupkg')).status, 404);
    t.like(await get(server, '/v1/packages/Contoso.Utility'), { latest_version: '2.0.0-beta.1', version_count: 1 });
    t.is((await server.fetch('/v1/packages/Contoso.Utility/2.0.0-BETA.1', { method: 'DELETE' })).status, 204);
    t.is((await server.fetch('/v1/packages/Contoso.Utility')).status, 404);
    t.deepEqual(await get(server, '/v1/packages'), { items: [], next_cursor: null });
  });

  suite(
    'an image is listed with its tags, and a tag can be deleted by either spelling of the image name',
    async (t, server) => {
      const document = await OpenDocument.of(server);
      const repository = new TestRepository(server, 'team/deep/app');
      const image = await repository.image('v1');
      for (const tag of ['v2', 'v3', 'latest']) await repository.put(tag, image.bytes);
      const { items } = (await document.read('GET /containers', await server.fetch('/v1/containers'))) as {
        items: (Json & { tags: Json[] })[];
      };
      t.is(items.length, 1);
      t.like(items[0], { name: 'team/deep/app', origin: 'hosted', upstream: null, tag_count: 4 });
      t.deepEqual(
        items[0]!.tags.map((tag) => tag['name']),
        ['latest', 'v1', 'v2', 'v3'],
      );
      t.like(items[0]!.tags[0], { digest: image.digest, media_type: image.mediaType });
      t.is(
        items[0]!['size_bytes'],
        image.size + 100 + 2,
        'the manifest, a layer of 100 bytes and a configuration of 2 bytes',
      );

      t.is((await server.fetch('/v1/containers/team/deep/app/v1', { method: 'DELETE' })).status, 204);
      t.is((await server.fetch('/v1/containers/team%2Fdeep%2Fapp/v2', { method: 'DELETE' })).status, 204);
      t.is((await server.fetch('/v1/containers/team/deep%2fapp/v3', { method: 'DELETE' })).status, 204);
      t.is((await repository.fetch('manifests/v1')).status, 404);
      t.is((await repository.fetch(`manifests/${image.digest}`)).status, 200, 'the manifest stays');
      t.is((await repository.fetch('manifests/latest')).status, 200);
      for (const path of ['team/deep/app/v1', 'team/deep/none/latest', 'deep/app/latest', 'team/deep/app/LATEST']) {
        const response = await server.fetch(`/v1/containers/${path}`, { method: 'DELETE' });
        t.is(response.status, 404, path);
        t.like(await response.json(), { status: 404, code: 'NotFound' });
      }
    },
  );

  suite('a tag of an image whose name ends with manifests can be deleted', async (t, server) => {
    const outer = await new TestRepository(server, 'team').image('v1');
    const inner = new TestRepository(server, 'team/manifests');
    const image = await inner.image('v1');
    for (const tag of ['v2', 'v3', 'v4']) await inner.put(tag, image.bytes);
    const remove = async (path: string, token = server.token) =>
      (await server.fetch(`/v1/containers/${path}`, { method: 'DELETE', token })).status;
    const limitedTo = async (name: string) =>
      (await createToken(server, ['delete'], 'default', { containers: [name] })).value;
    t.is(await remove('team/manifests/v1'), 204);
    t.is(await remove('team/manifests/v1'), 404);
    t.is(await remove('team%2Fmanifests/v2'), 204);
    t.is(await remove('team/manifests/v3', await limitedTo('team')), 403, 'a token for another image');
    t.is(await remove('team/manifests/v3', await limitedTo('team/manifests')), 204);
    t.deepEqual(((await get(server, '/v1/containers/team%2Fmanifests/tags'))['items'] as Json[]).length, 1);
    t.is(await remove('team/manifests/sha256:short'), 400);
    t.is(await remove(`team/manifests/${image.digest}`), 404, 'a manifest of the image team');
    t.is(await remove(`team/manifests/${outer.digest}`, await limitedTo('team/manifests')), 403);
    t.is(await remove(`team/manifests/${outer.digest}`, await limitedTo('team')), 204);
    t.is((await inner.fetch('manifests/v4')).status, 200);
  });

  suite('an account cannot see the content of another account', async (t, server) => {
    const theirs = await other(server);
    await push(server, 'Secret', '1.0.0');
    await new TestRepository(server, 'secret').image('v1');
    t.deepEqual(await get(server, '/v1/packages', theirs), { items: [], next_cursor: null });
    t.deepEqual(await get(server, '/v1/containers', theirs), { items: [], next_cursor: null });
    t.is((await server.fetch('/v1/packages/Secret', { token: theirs })).status, 404);
    t.is((await server.fetch('/v1/packages/Secret/1.0.0', { method: 'DELETE', token: theirs })).status, 404);
    t.is((await server.fetch('/v1/containers/secret/v1', { method: 'DELETE', token: theirs })).status, 404);
    t.is(await storedWhen(0, server, theirs), 0);
    await push(server, 'Secret', '1.0.0', theirs);
    t.is((await server.fetch('/v1/packages/Secret/1.0.0', { method: 'DELETE', token: theirs })).status, 204);
    t.is((await server.fetch('/v1/packages/Secret')).status, 200, 'another package with the same name');
  });

  suite('long lists can be read page by page while they change', async (t, server) => {
    for (const id of ['b', 'D', 'a', 'C', 'e']) await push(server, `P.${id}`, '1.0.0');
    const pages: string[][] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page = (await get(server, `/v1/packages?limit=2${cursor && `&cursor=${cursor}`}`)) as {
        items: { id: string }[];
        next_cursor: string | null;
      };
      pages.push(page.items.map(({ id }) => id));
      cursor = page.next_cursor;
      // A push or delete before the cursor does not move later entries.
      if (pages.length === 1) {
        await push(server, 'P.0', '1.0.0');
        await server.fetch('/v1/packages/P.b/1.0.0', { method: 'DELETE' });
      }
    }
    t.deepEqual(pages, [['P.a', 'P.b'], ['P.C', 'P.D'], ['P.e']]);
    for (const name of ['x/2', 'x/1', 'x/10']) await new TestRepository(server, name).image('v1');
    const first = await get(server, '/v1/containers?limit=2');
    const second = await get(server, `/v1/containers?limit=2&cursor=${String(first['next_cursor'])}`);
    t.deepEqual(
      [first, second].flatMap((page) => (page['items'] as { name: string }[]).map(({ name }) => name)),
      ['x/1', 'x/10', 'x/2'],
    );
  });

  suite('shared bytes are counted once per account, and only while they are referred to', async (t, server) => {
    const theirs = await other(server);
    const bytes = await push(server, 'Sized', '1.0.0');
    // The package and its stored parts.
    const alone = await eventually(
      () => stored(server),
      (found) => found >= bytes.length,
    );
    const image = await new TestRepository(server, 'one').image('v1');
    const layer = 'x'.repeat(5000);
    const withOne = await storedWhen(alone + image.size + 102, server);
    t.is(withOne, alone + image.size + 102);
    await new TestRepository(server, 'one').blob(layer);
    await new TestRepository(server, 'two').blob(layer);
    t.is(await storedWhen(withOne + 5000, server), withOne + 5000);
    await new TestRepository(server, 'one', theirs).blob(layer);
    t.is(await storedWhen(5000, server, theirs), 5000, 'each account has its own bytes');
    await server.fetch('/v1/packages/Sized/1.0.0', { method: 'DELETE' });
    t.is(await storedWhen(withOne + 5000 - alone, server), withOne + 5000 - alone);
    const usage = await get(server, '/v1/account/usage');
    t.like(usage['storage'], { current_bytes: withOne + 5000 - alone, by_origin: { mirrored: 0 } });
    const account = defaultAccountOf(server);
    t.is(
      (await measureStored(databaseOf(server), measures, account, 1)).get(account)!.hosted,
      withOne + 5000 - alone,
      'in steps of one blob',
    );
  });
}

test('each operation needs its scope', async (t) => {
  const server = await startTestServer(t);
  await push(server, 'Kept', '1.0.0');
  await new TestRepository(server, 'kept').image('v1');
  const token = (...scopes: string[]) => tokenOf(server, scopes);
  const [all, deleter] = [await token('read', 'write', 'admin'), await token('delete')];
  for (const path of ['/v1/packages/Kept/1.0.0', '/v1/containers/kept/v1']) {
    const response = await server.fetch(path, { method: 'DELETE', token: all });
    t.is(response.status, 403, path);
    t.like(await response.json(), { scope: 'delete' });
  }
  for (const path of ['/v1/packages', '/v1/packages/Kept', '/v1/containers']) {
    const response = await server.fetch(path, { token: deleter });
    t.is(response.status, 403, path);
    t.like(await response.json(), { scope: 'read' });
  }
  t.is((await server.fetch('/v1/packages/Kept/1.0.0', { method: 'DELETE', token: deleter })).status, 204);
  t.is((await server.fetch('/v1/containers/kept/v1', { method: 'DELETE', token: deleter })).status, 204);
});

test('anonymous readers see packages and images, and cannot delete them', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  await push(server, 'Open', '1.0.0');
  for (const path of ['/v1/packages', '/v1/packages/Open', '/v1/containers']) {
    t.is((await server.fetch(path, { token: null })).status, 200, path);
    t.is((await server.fetch(path, { token: 'wrong' })).status, 401, path);
  }
  for (const path of ['/v1/packages/Open/1.0.0', '/v1/containers/open/v1']) {
    const response = await server.fetch(path, { method: 'DELETE', token: null });
    t.is(response.status, 401, path);
    t.truthy(response.headers.get('www-authenticate'));
  }
});

test('invalid names are not found or malformed, and never reach other content', async (t) => {
  const server = await startTestServer(t);
  const names = [
    '..',
    '%2e%2e%2f%2e%2e%2fetc%2fpasswd',
    'a%00b',
    '%F0%9F%8E%89',
    'x'.repeat(3000),
    "'%20OR%201=1--",
    '%25',
  ];
  for (const name of names) {
    for (const [path, method] of [
      [`/v1/packages/${name}`, 'GET'],
      [`/v1/packages/${name}/1.0.0`, 'DELETE'],
      [`/v1/packages/a/${name}`, 'DELETE'],
      [`/v1/containers/${name}/latest`, 'DELETE'],
      [`/v1/containers/a/${name}`, 'DELETE'],
    ] as const) {
      const response = await server.fetch(path, { method });
      const text = await response.text();
      t.true([400, 404, 405].includes(response.status), `${method} ${path.slice(0, 60)}: ${response.status}`);
      t.is(response.headers.get('content-type'), 'application/problem+json');
      t.false(/\bat .*\.ts|node_modules/.test(text), text);
    }
  }
  t.is((await server.fetch('/v1/packages/%E0%A4%A')).status, 400);
  t.is((await server.fetch('/v1/account')).status, 200);
});
