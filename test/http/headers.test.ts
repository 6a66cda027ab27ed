import test from 'ava';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { packageForm, TestFeed } from '../support/feed.ts';
import { digestOf, ociManifest, TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';

// What every answer says to caches and browsers, and where exactly the limits of bodies are.

/** Headers that differ in each answer. */
const changing = new Set(['date', 'x-request-id', 'connection', 'keep-alive']);

test('GET and HEAD have the same status and headers, and each answer says what a cache and a browser may do', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Some.Lib', version: '1.0.0', readme: 'text' });
  const { digest, bytes } = await new TestRepository(server, 'team/app').image('v1');
  const { config } = JSON.parse(bytes) as { config: { digest: string } };
  const json = 'application/json';
  const problem = 'application/problem+json';
  const fresh = 'private, no-cache';
  const forever = 'private, max-age=31536000, immutable';
  const answers: [path: string, status: number, type: string, cache: string | null][] = [
    ['/livez', 200, json, null],
    ['/readyz', 200, json, null],
    ['/v3/index.json', 200, json, fresh],
    ['/v3/package/some.lib/index.json', 200, json, fresh],
    ['/v3/package/some.lib/1.0.0/some.lib.1.0.0.nupkg', 200, 'application/octet-stream', forever],
    ['/v3/package/some.lib/1.0.0/some.lib.nuspec', 200, 'text/plain', forever],
    ['/v3/package/some.lib/1.0.0/readme', 200, 'text/markdown; charset=utf-8', forever],
    ['/v3/registration/some.lib/index.json', 200, json, fresh],
    ['/v3/registration-gz-semver2/some.lib/index.json', 200, json, fresh],
    ['/v3/search', 200, json, fresh],
    ['/v3/autocomplete', 200, json, fresh],
    ['/v3/vulnerabilities/index.json', 200, json, fresh],
    ['/v3/package/none/index.json', 404, problem, 'no-store'],
    ['/v3/nowhere', 404, problem, 'no-store'],
    ['/v2/', 200, json, null],
    ['/v2/_catalog', 200, json, null],
    ['/v2/team/app/tags/list', 200, json, null],
    ['/v2/team/app/manifests/v1', 200, ociManifest, null],
    [`/v2/team/app/manifests/${digest}`, 200, ociManifest, null],
    [`/v2/team/app/blobs/${config.digest}`, 200, 'application/octet-stream', null],
    [`/v2/team/app/referrers/${digest}`, 200, 'application/vnd.oci.image.index.v1+json', null],
    ['/v2/team/none/manifests/v1', 404, json, null],
    ['/v2/nowhere', 404, json, null],
    ['/v1/account', 200, json, 'no-store'],
    ['/v1/packages', 200, json, 'no-store'],
    ['/v1/packages/none', 404, problem, 'no-store'],
    ['/nowhere', 404, problem, 'no-store'],
  ];
  const ask = async (path: string, method: string, token?: string) => {
    const response = await server.fetch(path, { method, ...(token !== undefined && { token }) });
    const body = await response.text();
    const headers = Object.fromEntries([...response.headers].filter(([name]) => !changing.has(name)));
    return { status: response.status, headers, body };
  };
  for (const [path, status, type, cache] of answers) {
    const got = await ask(path, 'GET');
    const { 'content-type': foundType, 'cache-control': foundCache = null } = got.headers;
    t.deepEqual([got.status, foundType, foundCache], [status, type, cache], path);
    t.is(got.headers['x-content-type-options'], 'nosniff', path);
    t.is(got.headers['content-security-policy'], "default-src 'none'; sandbox", path);
    t.true(Number(got.headers['content-length']) > 0, path);
    t.deepEqual(await ask(path, 'HEAD'), { ...got, body: '' }, path);
    const refused = await ask(path, 'GET', 'wrong');
    t.is(refused.status, /^\/(?:livez|readyz|nowhere|v3\/nowhere)/.test(path) ? status : 401, path);
    t.is(refused.headers['x-content-type-options'], 'nosniff', path);
    t.notRegex(refused.headers['cache-control'] ?? '', /max-age|public/, path);
    t.deepEqual(await ask(path, 'HEAD', 'wrong'), { ...refused, body: '' }, path);
  }
});

const KiB = 1024;
const spaces = (text: string) => (size: number) => Buffer.from(text.padEnd(size));
const blob = (size: number) => Buffer.alloc(size, 'b');

interface Sent {
  method?: string;
  path: (body: Buffer) => string;
  type?: string;
  limit?: number;
  /** A body of this size. */
  body: (size: number) => Buffer;
  statuses: [whole: number, larger: number];
}

test('a body as large as its limit is accepted and one more byte is refused, with and without an announced length', async (t) => {
  const nupkg = await makeNupkg();
  const server = await startTestServer(t, { limits: { manifest: 2 * KiB, blob: 2 * KiB, nupkg: nupkg.length } });
  const form = 'application/x-www-form-urlencoded';
  const manifest = JSON.stringify(await new TestRepository(server, 'app').manifest());
  const feed = { method: 'PUT', path: () => '/v3/push', limit: nupkg.length };
  const larger = Buffer.concat([nupkg, Buffer.from('.')]);
  const pushed = (size: number) => (size === nupkg.length ? nupkg : larger);
  const cases: Record<string, Sent> = {
    management: {
      path: () => '/v1/tokens',
      type: 'application/json',
      body: spaces('{"name":"made","scopes":["read"]}'),
      statuses: [201, 413],
    },
    exchange: { path: () => '/v1/token-exchange', type: form, body: blob, statuses: [400, 413] },
    // Its errors have no code for this.
    token: { path: () => '/token', type: form, body: blob, statuses: [200, 400] },
    manifest: {
      method: 'PUT',
      path: () => '/v2/app/manifests/v1',
      type: ociManifest,
      limit: 2 * KiB,
      body: spaces(manifest),
      statuses: [201, 413],
    },
    blob: {
      path: (body) => `/v2/app/blobs/uploads/?digest=${digestOf(body)}`,
      limit: 2 * KiB,
      body: blob,
      statuses: [201, 413],
    },
    package: { ...feed, body: pushed, statuses: [201, 413] },
    'package in a form': {
      ...feed,
      type: packageForm(nupkg).type,
      body: (size) => packageForm(pushed(size)).body,
      statuses: [201, 413],
    },
  };
  for (const [name, { method = 'POST', path, type, limit = 64 * KiB, body, statuses }] of Object.entries(cases)) {
    for (const [index, size] of [limit, limit + 1].entries()) {
      for (const announced of [true, false]) {
        const bytes = body(size);
        const sent = announced
          ? { body: new Uint8Array(bytes) }
          : { body: new Blob([new Uint8Array(bytes)]).stream(), duplex: 'half' as const };
        const headers = type === undefined ? {} : { 'content-type': type };
        const { status } = await server.fetch(path(bytes), { method, headers, ...sent });
        // A package can be pushed once.
        t.is(status === 409 ? 201 : status, statuses[index]!, `${name}, ${size} bytes, announced: ${announced}`);
      }
    }
  }
});
