import test, { type ExecutionContext } from 'ava';
import type { Verdict } from '../../../src/mirror/policy/admission.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { createToken, databaseOf, tokenOf } from '../../support/inside.ts';
import { ociIndex, TestRepository, type Descriptor } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';

// distribution-spec, extensions/_oci.md with the draft of pull request 606.

const timestamp = 'org.opencontainers.distribution.tag.timestamp';
const event = 'org.opencontainers.distribution.tag.event';

interface Page {
  descriptors: Descriptor[];
  next: string | undefined;
}

async function pageOf(t: ExecutionContext, server: TestServer, path: string, token?: string): Promise<Page> {
  const response = await server.fetch(path, token === undefined ? {} : { token });
  t.is(response.status, 200, path);
  t.is(response.headers.get('content-type'), ociIndex);
  const { schemaVersion, mediaType, manifests } = (await response.json()) as Record<string, unknown>;
  t.deepEqual([schemaVersion, mediaType], [2, ociIndex]);
  const next = /^<(.*)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1];
  return { descriptors: manifests as Descriptor[], next };
}

const short = ({ digest, annotations }: Descriptor) => `${annotations![event]} ${digest}`;

for (const dialect of dialects) {
  test(`${dialect}: a hosted tag tells its manifests and its deletions, the latest first, also after they are gone`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const start = (server.clock.now = Date.UTC(2026, 5, 1));
    const repository = new TestRepository(server, 'team/app');
    const one = await repository.image('v1');
    server.clock.now += 1000;
    const two = await repository.image('v1');
    await repository.image('v2');
    server.clock.now += 1000;
    t.is((await repository.fetch('manifests/v1', { method: 'DELETE' })).status, 202);
    server.clock.now += 1000;
    t.is((await repository.put('v1', one.bytes)).status, 201);
    server.clock.now += 1000;
    t.is((await repository.fetch(`manifests/${one.digest}`, { method: 'DELETE' })).status, 202);
    t.is((await repository.fetch(`manifests/${two.digest}`, { method: 'DELETE' })).status, 202);
    const path = '/v2/team/app/_oci/tag-history/v1';
    const all = [
      `deleted ${one.digest}`,
      `created ${one.digest}`,
      `deleted ${two.digest}`,
      `created ${two.digest}`,
      `created ${one.digest}`,
    ];
    const { descriptors, next } = await pageOf(t, server, path);
    t.deepEqual(descriptors.map(short), all);
    t.is(next, undefined);
    const times = descriptors.map(({ annotations }) => Date.parse(annotations![timestamp]!) - start);
    t.deepEqual(times, [4000, 3000, 2000, 1000, 0]);
    const { mediaType, digest, size } = descriptors.at(-1)!;
    t.deepEqual({ mediaType, digest, size }, { mediaType: one.mediaType, digest: one.digest, size: one.size });

    for (const n of [1, 2, 3, 4, 5]) {
      const found: string[] = [];
      for (let address: string | undefined = `${path}?n=${n}`; address !== undefined;) {
        const page = await pageOf(t, server, address);
        t.true(page.descriptors.length === n || page.next === undefined);
        found.push(...page.descriptors.map(short));
        address = page.next;
      }
      t.deepEqual(found, all, `n=${n}`);
    }
    const at = (offset: number) => encodeURIComponent(new Date(start + offset).toISOString());
    const some = async (query: string) => (await pageOf(t, server, `${path}?${query}`)).descriptors.map(short);
    t.deepEqual(await some('n=0'), []);
    t.deepEqual(await some(`before=${at(3000)}`), all.slice(2));
    t.deepEqual(await some(`since=${at(1000)}&before=${at(4000)}`), all.slice(1, 3));
    t.deepEqual(await some(`digest=${two.digest}`), all.slice(2, 4));
    t.deepEqual(await some('last=&since=&before=&digest=&n='), all, 'what is empty asks for nothing');
    t.deepEqual(await some(`since=${at(3000).toLowerCase()}`), all.slice(0, 1));
    const query = `since=${at(0)}&before=${at(9000)}&digest=${encodeURIComponent(two.digest)}`;
    const answered = await server.fetch(`${path}?n=1&${query}`);
    t.is(answered.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    const link = /^<(.*)\?n=1&last=\d+&(.*)>; rel="next"$/.exec(answered.headers.get('link')!)!;
    t.deepEqual(link.slice(1), [path, query]);
    const filtered = await pageOf(t, server, `${path}?n=1&digest=${two.digest}&since=${at(0)}`);
    t.deepEqual((await pageOf(t, server, filtered.next!)).descriptors.map(short), [all[3]]);

    t.deepEqual((await pageOf(t, server, '/v2/team/app/_oci/tag-history/none')).descriptors, []);
    t.deepEqual((await pageOf(t, server, '/v2/no/such/_oci/tag-history/v1')).descriptors, []);
    t.deepEqual((await pageOf(t, server, path, await tokenOf(server, ['read'], 'other'))).descriptors, []);
  });

  test(`${dialect}: a mirrored tag tells the manifests that were seen here, without those that a policy holds`, async (t) => {
    const hub = await startUpstreamRegistry(t);
    const held = new Set<string>();
    const judge = async () => (reference: string) => (held.has(reference) ? 'hold' : 'allow') as Verdict;
    const server = await startTestServer(
      t,
      {
        database: { url: await temporaryDatabase(t, dialect) },
        upstreams: [hub.settings('hub.test', { freshFor: '1m', default: true })],
      },
      { judge },
    );
    server.clock.now = Date.now();
    const pull = async (reference = 'v1') => {
      const image = hub.image('team/app', reference).manifest;
      await (await server.fetch(`/v2/hub.test/team/app/manifests/${reference}`)).arrayBuffer();
      server.clock.now! += 120_000;
      return image;
    };
    const [one, two] = [await pull(), await pull()];
    const asked = hub.requests().length;
    const path = '/v2/hub.test/team/app/_oci/tag-history/v1';
    const { descriptors } = await pageOf(t, server, path);
    t.deepEqual(descriptors.map(short), [`created ${two.digest}`, `created ${one.digest}`]);
    t.deepEqual(
      descriptors.map(({ mediaType, size }) => [mediaType, size]),
      [two, one].map(({ mediaType, size }) => [mediaType, size]),
    );
    t.deepEqual((await pageOf(t, server, '/v2/team/app/_oci/tag-history/v1')).descriptors, descriptors);
    t.is(hub.requests().length, asked);
    t.is((await server.fetch(path)).headers.get('cache-status'), 'entrepot; hit');
    const ofUpstream = await server.fetch('/v2/team/app/_oci/tag-history/v1?ns=hub.test&n=1');
    t.regex(ofUpstream.headers.get('link')!, /^<\/v2\/team\/app\/_oci\/tag-history\/v1\?n=1&last=\d+&ns=hub\.test>/);

    held.add(two.digest);
    t.deepEqual((await pageOf(t, server, `${path}?n=1`)).descriptors.map(short), [`created ${one.digest}`]);
    held.add('v1');
    t.deepEqual((await pageOf(t, server, path)).descriptors, []);
    held.clear();

    // As an older version of this server wrote them.
    await databaseOf(server).transaction((tx) => tx.run('UPDATE history SET media_type = NULL, size_bytes = NULL'));
    t.deepEqual((await pageOf(t, server, path)).descriptors, descriptors);
    const removed = await server.fetch(`/v1/containers/hub.test/team/app/manifests/${one.digest}`, {
      method: 'DELETE',
    });
    t.is(removed.status, 204);
    t.deepEqual((await pageOf(t, server, path)).descriptors.map(short), [`created ${two.digest}`]);
  });
}

test('lines of a hosted tag without a size are described from its manifests', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'team/app');
  const { digest, size } = await repository.image('v1');
  await databaseOf(server).transaction((tx) => tx.run('UPDATE history SET media_type = NULL, size_bytes = NULL'));
  const { descriptors } = await pageOf(t, server, '/v2/team/app/_oci/tag-history/v1');
  t.deepEqual(
    descriptors.map((each) => [each.digest, each.size]),
    [[digest, size]],
  );
});

test('a page has at most 1000 lines, and the next one begins after them', async (t) => {
  const server = await startTestServer(t);
  await new TestRepository(server, 'team/app').image('v1');
  const columns = 'account_id, upstream, name, kind, reference, digest, seen_at, media_type, size_bytes';
  // The database itself writes a thousand lines like the one of the push.
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
       INSERT INTO history (${columns}) SELECT ${columns.replace('seen_at', 'seen_at + n')}
       FROM history JOIN numbers WHERE kind = 'tag' ORDER BY n`,
    ),
  );
  const path = '/v2/team/app/_oci/tag-history/v1';
  for (const query of ['', '?n=1001', '?n=999999999999999']) {
    const { descriptors, next } = await pageOf(t, server, path + query);
    t.is(descriptors.length, 1000, query);
    const rest = await pageOf(t, server, next!);
    t.deepEqual([rest.descriptors.length, rest.next], [1, undefined]);
  }
});

test('malformed requests, other methods and names of other patterns are refused', async (t) => {
  const server = await startTestServer(t);
  await new TestRepository(server, 'team/app').image('v1');
  const status = async (path: string, init?: Parameters<TestServer['fetch']>[1]) =>
    (await server.fetch(path, init)).status;
  const path = '/v2/team/app/_oci/tag-history/v1';
  for (const query of [
    'n=x',
    'last=x',
    'last=-1',
    'last=1x',
    'last=1234567890123456',
    'since=yesterday',
    'since=x2026-06-01T00:00:00Z',
    'since=2026-06-01T',
    'before=2026',
    'digest=sha256:1',
  ]) {
    t.is(await status(`${path}?${query}`), 400, query);
  }
  t.is(await status('/v2/team/app/_oci/tag-history/.v1'), 400);
  t.is(await status('/v2/Team/_oci/tag-history/v1'), 400);
  t.is(await status('/v2/team/app/_oci/other/v1'), 404);
  t.is(await status('/v2/_oci/ext/other'), 404);
  const deleted = await server.fetch(path, { method: 'DELETE' });
  t.deepEqual([deleted.status, deleted.headers.get('allow')], [405, 'GET, HEAD']);
  t.is(await status(path, { token: null }), 401);
  const patterns = { containers: ['other/*'] };
  const { value: token } = await createToken(server, ['read'], 'default', patterns);
  t.is(await status(path, { token }), 403);
  t.is(await status('/v2/other/app/_oci/tag-history/v1', { token }), 200);
  const head = await server.fetch(path, { method: 'HEAD' });
  t.is(Number(head.headers.get('content-length')), (await (await server.fetch(path)).text()).length);
});

test('the registry and each repository announce the extension', async (t) => {
  const server = await startTestServer(t);
  for (const path of ['/v2/_oci/ext/discover', '/v2/team/app/_oci/ext/discover']) {
    const response = await server.fetch(path);
    t.is(response.headers.get('content-type'), 'application/json');
    t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=hosted');
    const { extensions } = (await response.json()) as { extensions: Record<string, unknown>[] };
    const [{ description, ...extension } = {}, ...others] = extensions;
    t.true((description as string).length > 20);
    t.deepEqual(extension, {
      name: '_oci',
      url: 'https://github.com/opencontainers/distribution-spec/blob/main/extensions/_oci.md',
      endpoints: ['/v2/_oci/ext/discover', '/v2/<name>/_oci/ext/discover', '/v2/<name>/_oci/tag-history/<tag>'],
    });
    t.deepEqual(others, []);
    t.is((await server.fetch(path, { token: null })).status, 401);
  }
});
