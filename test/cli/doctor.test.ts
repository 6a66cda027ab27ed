import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import test from 'ava';
import { redirectState } from '../../src/cli/doctor-redirect.ts';
import type { Config } from '../../src/config/schema.ts';
import type { StorageDescription } from '../../src/storage/drivers/driver.ts';
import { execute } from '../support/clients/clients.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { freePort } from '../support/processes/services.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { answer, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';

const main = join(import.meta.dirname, '../../bin/entrepot.js');

/** `state name` of each upstream in the output. */
function statesIn(stdout: string): string[] {
  return [...stdout.matchAll(/^(\S+) +upstream (\S+): /gm)].map(([, state, name]) => `${state} ${name}`);
}

test('doctor proposes to reserve hosted names that could be sent to an upstream', async (t) => {
  const feed = await UpstreamFeed.start(t);
  await feed.offer({ id: 'Public.Theirs', versions: [{ version: '1.0.0' }] });
  const registry = await startUpstreamRegistry(t);
  registry.image('shared/theirs', 'v1');
  const upstreams = [feed.as('up.test'), registry.settings('reg.test', { default: true })];
  const data = join(await folderUntilEnd(t), 'data');
  const server = await startTestServer(t, { data, upstreams });
  for (const id of ['Contoso.Billing', 'Contoso.Web', 'Public.Ours', 'Alone', 'Kept.Back']) {
    await new TestFeed(server).publish({ id, version: '1.0.0' });
  }
  for (const name of ['team/app', 'team/other', 'shared/ours', 'alone', 'reg.test/named']) {
    await new TestRepository(server, name).image('v1');
  }
  const nupkg = await server.fetch('/v3/package/public.theirs/1.0.0/public.theirs.1.0.0.nupkg');
  t.is(nupkg.status, 200);
  await nupkg.arrayBuffer();
  t.is((await server.fetch('/v2/shared/theirs/manifests/v1')).status, 200);
  const other = await TestFeed.ofAccount(server, 'other');
  await other.publish({ id: 'Fabrikam.Secret', version: '1.0.0' });
  await server.close();

  const line = async (more: Record<string, string> = {}) => {
    const environment = { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: JSON.stringify(upstreams), ...more };
    const { stdout } = await entrepot(environment, 'doctor');
    return stdout.split('\n').find((each) => each.includes('private names'));
  };
  const reserved = {
    ENTREPOT_RESERVED_PACKAGES: '["kept.*"]',
    ENTREPOT_RESERVED_CONTAINERS: '["reg.test/named"]',
  };
  t.is(
    await line(reserved),
    'ok    private names: searches, and requests before a first push, can send hosted names to an upstream; to keep them private, set reserved: { packages: ["Alone","Contoso.*","Public.Ours","Fabrikam.*"], containers: ["alone","shared/ours","team/*"] }',
  );
  const all = {
    ENTREPOT_RESERVED_PACKAGES: '["*"]',
    ENTREPOT_RESERVED_CONTAINERS: '["*"]',
  };
  t.is(await line(all), 'ok    private names: no hosted name can be sent to an upstream');
  t.is(await line({ ENTREPOT_UPSTREAMS: '[]' }), 'ok    private names: no hosted name can be sent to an upstream');
});

/** What doctor says of redirects to a host, for a server with these addresses. */
const redirectsTo = (redirectHost: string | undefined, ...urls: (string | undefined)[]) => {
  const [baseUrl, feedUrl, registryUrl] = urls;
  const server = { baseUrl, feedUrl, registryUrl };
  return redirectState({ server } as Config, { redirectHost } as StorageDescription);
};

test('a host of redirects to which clients would send their token is a problem', (t) => {
  t.is(redirectsTo(undefined, 'https://hub.test'), undefined);
  const text = 'large downloads are redirected to s3.hub.test, and their egress is an estimate';
  t.deepEqual(redirectsTo('s3.hub.test', 'https://other.test', undefined, 'https://3.hub.test'), { text });
  t.deepEqual(redirectsTo('s3.hub.test'), {
    text: `${text}; set ENTREPOT_BASE_URL to check that this host is not below the one of this server`,
  });
  const advice =
    'of this server, and S3 then refuses them: set ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT to another host name, or ENTREPOT_STORAGE_S3_REDIRECT to false';
  const all = 'Docker and other clients send their token also to s3.hub.test, because it is';
  for (const urls of [
    ['https://hub.test:8080/x'],
    [undefined, 'https://hub.test'],
    ['https://a.test', undefined, 'https://hub.test'],
  ])
    t.deepEqual(redirectsTo('s3.hub.test', ...urls), { text, problem: `${all} below the host hub.test ${advice}` });
  t.deepEqual(redirectsTo('s3.hub.test', 'https://s3.hub.test'), {
    text,
    problem: `${all} the host s3.hub.test ${advice}`,
  });
});

test('doctor fails for a part that cannot be read or written', async (t) => {
  const data = join(await folderUntilEnd(t), 'data');
  const server = await startTestServer(t, { data });
  await new TestFeed(server).publish({ id: 'A', version: '1.0.0' });
  await server.close();
  const environment = { ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' };
  const finding = async (subject: string, more: Record<string, string> = {}) => {
    const { code, stdout } = await entrepot({ ...environment, ...more }, 'doctor');
    return { code, line: stdout.split('\n').find((each) => each.includes(` ${subject}:`))! };
  };
  t.regex((await finding('database')).line, /^ok /);
  t.regex((await finding('storage')).line, /^ok /);
  const redis = await finding('redis', { ENTREPOT_REDIS_URL: `redis://127.0.0.1:${await freePort()}` });
  t.is(redis.code, 1);
  t.regex(redis.line, /^FAIL .*Redis does not answer.*ENTREPOT_REDIS_URL/);
  t.regex((await finding('webhooks')).line, /^ok /);
  const key = { ENTREPOT_SECRET_KEY_FILE: join(data, 'missing') };
  const webhooks = await finding('webhooks', key);
  t.is(webhooks.code, 1);
  t.regex(webhooks.line, /^FAIL .*ENTREPOT_SECRET_KEY_FILE: cannot read the key/);
  t.regex((await finding('upstreams', { ...key, ENTREPOT_OFFLINE: 'true' })).line, /^ok /, 'later checks run');

  // The pages of one table that the start does not read are damaged.
  const path = join(data, 'entrepot.db');
  const database = new DatabaseSync(path);
  const { rootpage } = database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'tags'").get() as {
    rootpage: number;
  };
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  database.close();
  const file = await open(path, 'r+');
  await file.write(Buffer.alloc(4096, 'x'), 0, 4096, (rootpage - 1) * 4096);
  await file.close();
  const damaged = await finding('database');
  t.is(damaged.code, 1);
  t.regex(damaged.line, /^FAIL .*The database cannot be read\..*damaged.*ENTREPOT_DATABASE_URL/);
});

test('doctor says whether an upstream got its credentials, and which host did not', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const realm = await startFaultyUpstream(t);
  const { host } = realm.url;
  const challenge = `Bearer realm="${realm.url.href}token",service="s"`;
  registry.on('/v2/', (request, response) => {
    const isKnown = request.headers.authorization === 'Bearer one';
    (isKnown ? answer(200) : answer(401, { 'www-authenticate': challenge }))(request, response);
  });
  realm.on('/token', answer(200, {}, JSON.stringify({ token: 'one' })));
  const open = await startUpstreamRegistry(t);
  const auth = { username: 'me', password: 'secret' };
  const line = async (upstream: Record<string, unknown>) => {
    const environment = {
      ENTREPOT_DATA: join(await folderUntilEnd(t), 'data'),
      ENTREPOT_UPSTREAMS: JSON.stringify([upstream]),
    };
    await entrepot(environment, 'account', 'create', 'team');
    const { stdout, stderr } = await entrepot(environment, 'doctor');
    t.notRegex(stdout + stderr, /secret/);
    return stdout.split('\n').find((each) => each.includes('upstream up.test'));
  };
  t.regex(
    (await line(registry.settings('up.test', { auth })))!,
    new RegExp(`^FAIL .*${host} got no credentials.*add ${host} to credentialHosts`),
  );
  t.is(realm.asked[0]!.headers.authorization, undefined);
  t.regex(
    (await line(registry.settings('up.test', { auth, credentialHosts: [host] })))!,
    /^ok .*its credentials are accepted/,
  );
  t.regex((await line(open.settings('up.test', { auth })))!, /^ok .*it did not ask for credentials/);
});

test('doctor names the rate limit that an upstream announces', async (t) => {
  const registry = await startUpstreamRegistry(t);
  const data = join(await folderUntilEnd(t), 'data');
  await (await startTestServer(t, { data })).close();
  const upstreams = JSON.stringify([registry.settings('up.test')]);
  const factsWith = async (headers: Record<string, string>) => {
    registry.on('/v2/', answer(200, headers));
    const { stdout } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: upstreams }, 'doctor');
    return stdout.split('\n').find((line) => line.includes('upstream up.test'))!;
  };
  const remaining = { 'ratelimit-remaining': '76;w=21600' };
  t.regex(await factsWith({ ...remaining, 'ratelimit-limit': '100;w=21600' }), /; rate limit: 76 left of 100$/);
  t.regex(await factsWith(remaining), /; rate limit: 76 left$/);
  t.notRegex(await factsWith({ 'ratelimit-remaining': 'many' }), /rate limit/);
});

test('doctor notes a public upstream that nobody set or used; one that is set or used fails, and each is printed once', async (t) => {
  const registry = await startUpstreamRegistry(t);
  registry.image('library/alpine', '1');
  const data = join(await folderUntilEnd(t), 'data');
  const server = await startTestServer(t, { data, upstreams: [registry.settings('docker.io', { default: true })] });
  const environment = {
    ENTREPOT_DATA: data,
    // No public host is asked: no proxy answers here.
    HTTPS_PROXY: `http://127.0.0.1:${await freePort()}`,
  };
  const notes = ['nuget.org', 'docker.io', 'ghcr.io', 'quay.io', 'mcr.microsoft.com', 'registry.k8s.io'].map(
    (name) => `note ${name}`,
  );
  const unused = await entrepot(environment, 'doctor');
  t.deepEqual([unused.code, unused.stderr, statesIn(unused.stdout)], [0, '', notes]);
  t.regex(
    unused.stdout,
    /^note {2}upstream ghcr\.io: .*cannot be reached.*default.*nothing.*ENTREPOT_UPSTREAMS.*ENTREPOT_OFFLINE/m,
  );
  const one = { ENTREPOT_UPSTREAMS: '[{"name":"ghcr.io","kind":"registry"}]' };
  const set = await entrepot({ ...environment, ...one }, 'doctor');
  t.deepEqual([set.code, statesIn(set.stdout)], [1, ['FAIL ghcr.io']]);

  t.is((await server.fetch('/v2/library/alpine/manifests/1')).status, 200);
  // A process of its own, because its log does not go to the terminal of a test.
  const env = { PATH: process.env['PATH'], ...environment };
  const used = await execute(process.execPath, [main, 'doctor'], { env });
  t.deepEqual(
    [used.code, statesIn(used.stdout)],
    [1, notes.map((each) => each.replace('note docker.io', 'FAIL docker.io'))],
  );
  t.regex(used.stderr, /^entrepot: 1 of \d+ checks failed\n$/, 'printed once');
});

test('doctor says what follows while a feed fails that has never sent vulnerability data', async (t) => {
  const up = await UpstreamFeed.start(t);
  const data = join(await folderUntilEnd(t), 'data');
  const upstreams = [up.as('feeds.corp')];
  const server = await startTestServer(t, { data, upstreams });
  const finding = async () => {
    const { stdout } = await entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: JSON.stringify(upstreams) }, 'doctor');
    return stdout.split('\n').find((each) => each.includes('upstream feeds.corp'))!;
  };
  up.upstream.on('/index.json', answer(401));
  t.regex(
    await finding(),
    /^FAIL .*refused access.*\. While it fails, audits of packages go without its vulnerability data$/,
  );
  up.announce();
  t.notRegex(await finding(), /audits/);
  t.is((await server.fetch('/v3/vulnerabilities/index.json')).status, 200);
  up.upstream.on('/index.json', answer(401));
  t.regex(await finding(), /refused access/);
  t.notRegex(await finding(), /audits/, 'its data is stored');
});
