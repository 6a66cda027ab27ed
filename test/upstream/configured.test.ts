import test, { type ExecutionContext } from 'ava';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Cache } from '../../src/cache/cache.ts';
import { schema } from '../../src/config/schema.ts';
import { baseOf, openUpstreams, readProxies } from '../../src/upstream/configured.ts';
import { createAuthority } from '../support/builders/certificates.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { testLog } from '../support/mirror.ts';
import { folderUntilEnd } from '../support/folder.ts';

async function open(t: ExecutionContext, upstreams: Record<string, unknown>[], proxy = {}) {
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  const opened = openUpstreams(schema.parse({ upstreams }), { cache, log: testLog().log, now: Date.now, proxy });
  t.teardown(() => opened.forEach((each) => each.close()));
  return opened;
}

async function file(t: ExecutionContext, content: string): Promise<string> {
  const folder = await folderUntilEnd(t);
  await writeFile(join(folder, 'file'), content);
  return join(folder, 'file');
}

test('the URL of an upstream is derived from its name unless one is set', (t) => {
  t.is(baseOf({ kind: 'nuget', name: 'nuget.test', url: undefined }).href, 'https://api.nuget.test/v3/index.json');
  t.is(baseOf({ kind: 'registry', name: 'quay.test', url: undefined }).href, 'https://quay.test/');
  t.is(baseOf({ kind: 'registry', name: 'docker.io', url: undefined }).host, 'registry-1.docker.io');
  t.is(baseOf({ kind: 'registry', name: 'a.test', url: 'http://b.test:5000' }).href, 'http://b.test:5000/');
});

test('caFile and passwordFile are read at the start, and used', async (t) => {
  const authority = createAuthority();
  const server = await startFaultyUpstream(t, { tls: authority.issue('127.0.0.1') });
  server.on('/thing', answer(200));
  const [upstream] = await open(t, [
    {
      name: 'feed.test',
      kind: 'nuget',
      url: server.url.href,
      allowPrivateNetwork: true,
      caFile: await file(t, authority.ca),
      auth: { username: 'me', passwordFile: await file(t, 'secret\n') },
    },
  ]);
  t.is((await upstream!.send({ subject: 'thing', url: new URL('/thing', server.url) })).status, 200);
  t.is(server.asked[0]!.headers.authorization, `Basic ${Buffer.from('me:secret').toString('base64')}`);
});

for (const [key, settings] of [
  ['upstreams.1.caFile', { caFile: '/nowhere/ca.pem' }],
  ['upstreams.1.auth.passwordFile', { auth: { username: 'me', passwordFile: '/nowhere/p' } }],
  ['upstreams.1.auth.bearerFile', { auth: { bearerFile: '/nowhere/b' } }],
] as const) {
  test(`${key} that cannot be read stops the start with its name`, async (t) => {
    const first = { name: 'a.test', kind: 'nuget' };
    await t.throwsAsync(open(t, [first, { name: 'b.test', kind: 'nuget', ...settings }]), {
      name: 'ConfigError',
      message: new RegExp(`^${key}: cannot read /nowhere/`),
    });
  });
}

test('a proxy may lack a scheme; one that is no HTTP proxy stops the start, and its password is not shown', (t) => {
  t.like(readProxies({ HTTPS_PROXY: 'proxy.test:3128' }), { HTTPS_PROXY: 'http://proxy.test:3128/' });
  t.like(readProxies({ http_proxy: 'http://u:p@proxy.test' }), { http_proxy: 'http://u:p@proxy.test/' });
  t.deepEqual(readProxies({ HTTP_PROXY: '', HTTPS_PROXY: undefined, PATH: '/bin' }), {});
  for (const value of ['socks5://u:secret@proxy.test', 'http://[broken', 'http://']) {
    const error = t.throws(() => readProxies({ HTTPS_PROXY: value }), {
      name: 'ConfigError',
      message: /^HTTPS_PROXY: /,
    });
    t.notRegex(error.message, /secret/);
  }
});

test('a name in NO_PROXY includes its subdomains', async (t) => {
  t.is(
    readProxies({ NO_PROXY: 'corp.test, *.other.test 10.0.0.1,host:8080,.dotted' })['no_proxy'],
    '.corp.test,*.other.test,10.0.0.1,host:8080,.dotted',
  );
  t.is(readProxies({ no_proxy: 'low', NO_PROXY: 'high' })['no_proxy'], '.low');
  const server = await startFaultyUpstream(t);
  const proxy = await startFaultyUpstream(t);
  server.on('/thing', answer(200));
  const [upstream] = await open(
    t,
    [{ name: 'a.test', kind: 'registry', url: `http://localhost:${server.url.port}`, allowPrivateNetwork: true }],
    { HTTP_PROXY: proxy.url.href, NO_PROXY: 'LOCALHOST' },
  );
  t.is(
    (await upstream!.send({ subject: 'thing', url: new URL(`http://localhost:${server.url.port}/thing`) })).status,
    200,
  );
  t.is(proxy.asked.length, 0);
});
