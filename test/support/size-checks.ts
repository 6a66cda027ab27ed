import type { ExecutionContext } from 'ava';
import type { BucketOptions } from '../../src/storage/drivers/s3/bucket.ts';
import { makeNupkg } from './builders/nupkg.ts';
import type { Serving } from './processes/command.ts';
import { startReceiver, verify } from './receiver.ts';
import { digestOf, ociManifest } from './registry.ts';
import { SizeUnderTest } from './size-under-test.ts';
import { Installation, olderToken, type Size } from './sizes.ts';
import { until } from './until.ts';
import { UpstreamFeed } from './upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from './upstreams/upstream-registry.ts';

// What each combination of docs/scaling.md must do. The checks run one after another, and use what earlier ones made.

/** Searches a minute of a token. */
const searches = 5;

/** One thing that each allowed combination must do. */
interface Check {
  name: string;
  /** It also holds after instances have ended and were started again, while the upstreams cannot be reached. */
  remains?: boolean;
  run: (size: SizeUnderTest) => Promise<void>;
}

const config = Buffer.from('{"architecture":"amd64","os":"linux"}');
const layer = Buffer.alloc(200_000, 'layer of a size ');
const resumed = Buffer.alloc(100_000, 'begun here, finished there ');
const described = (mediaType: string, bytes: Buffer) => ({ mediaType, digest: digestOf(bytes), size: bytes.length });
const manifest = (name: string) =>
  JSON.stringify({
    schemaVersion: 2,
    mediaType: ociManifest,
    config: described('application/vnd.oci.image.config.v1+json', config),
    layers: [described('application/vnd.oci.image.layer.v1.tar', layer)],
    annotations: { name },
  });
const [kept, deleted] = [manifest('kept'), manifest('deleted')];

const id = 'Contoso.Size';
const packages = {
  kept: await makeNupkg({ id, version: '1.0.0' }),
  deleted: await makeNupkg({ id, version: '2.0.0' }),
  large: await makeNupkg({ id, version: '3.0.0', payloadBytes: 1_100_000 }),
  mirrored: await makeNupkg({ id: 'Upstream.Size', version: '1.0.0' }),
  wanted: await makeNupkg({ id: 'Wanted.Size', version: '1.0.0', payloadBytes: 300_000 }),
};
const flat = (key: string, version: string) => `/v3/package/${key}/${version}/${key}.${version}.nupkg`;
const upstreamFlat = (key: string, version: string) => `/flat/${key}/${version}/${key}.${version}.nupkg`;

export const checks: readonly Check[] = [
  {
    name: 'readiness',
    remains: true,
    // On a busy machine a request can meet a Redis that answers late, which readiness reports for 30 s.
    run: (size) =>
      until(async () => {
        const answers = await size.everywhere('/readyz');
        const states = await Promise.all(answers.map((each) => each.json() as Promise<{ status: string }>));
        return states.every(({ status }) => status === 'ready');
      }, 300_000),
  },
  {
    name: 'an upgrade at the start',
    remains: true,
    run: async (size) => {
      size.t.deepEqual(await size.installation.missingMigrations(), []);
      await size.answers(200, '/v1/packages', { token: olderToken });
    },
  },
  {
    name: 'push of an image',
    run: async (size) => {
      for (const bytes of [config, layer]) {
        const path = `/v2/team/app/blobs/uploads/?digest=${digestOf(bytes)}`;
        size.t.is((await size.send(size.first, path, { method: 'POST', body: bytes })).status, 201);
      }
      await size.manifest(size.other, '1.0', kept);
    },
  },
  {
    name: 'pull by tag',
    remains: true,
    run: (size) => size.sends(kept, '/v2/team/app/manifests/1.0', { headers: { accept: ociManifest } }),
  },
  {
    name: 'pull by digest',
    remains: true,
    run: async (size) => {
      await size.sends(kept, `/v2/team/app/manifests/${digestOf(kept)}`, { headers: { accept: ociManifest } });
      for (const bytes of [config, layer]) await size.sends(bytes, `/v2/team/app/blobs/${digestOf(bytes)}`);
    },
  },
  {
    name: 'pull of a range',
    remains: true,
    run: (size) => {
      const headers = { range: 'bytes=100000-100999' };
      return size.sends(layer.subarray(100_000, 101_000), `/v2/team/app/blobs/${digestOf(layer)}`, { headers }, 206);
    },
  },
  {
    name: 'push of a package',
    run: async (size) => {
      size.t.is((await size.push(size.other, packages.kept)).status, 201);
    },
  },
  {
    name: 'reads of a restore',
    remains: true,
    run: async (size) => {
      await size.answers(200, '/v3/index.json');
      for (const answer of await size.everywhere('/v3/registration/contoso.size/index.json')) {
        const { items } = (await answer.json()) as { items: { items: { catalogEntry: object }[] }[] };
        size.t.like(items[0]!.items[0]!.catalogEntry, { id, version: '1.0.0' });
      }
      for (const answer of await size.everywhere('/v3/package/contoso.size/index.json'))
        size.t.deepEqual(await answer.json(), { versions: ['1.0.0'] });
      await size.sends(packages.kept, flat('contoso.size', '1.0.0'));
    },
  },
  {
    name: 'a package pushed twice',
    remains: true,
    run: async (size) => {
      for (const server of size.installation.servers) size.t.is((await size.push(server, packages.kept)).status, 409);
    },
  },
  {
    name: 'a token is made, used and revoked',
    run: async (size) => {
      const made = await size.json(size.first, 'POST', '/v1/tokens', { name: 'short', scopes: ['read'] });
      size.t.is(made.status, 201);
      const { id: tokenId, token } = (await made.json()) as { id: string; token: string };
      await size.answers(200, '/v1/packages', { token });
      size.t.is((await size.json(size.other, 'DELETE', `/v1/tokens/${tokenId}`)).status, 204);
      size.revoked = token;
      const { database, redis, instances } = size.installation.size;
      // docs/security.md: only there, another instance can take a fifth of a second.
      if (database === 'MariaDB' && redis === 'no' && instances > 1)
        await until(async () => {
          const answers = await size.everywhere('/v1/packages', { token });
          return answers.every(({ status }) => status === 401);
        });
    },
  },
  {
    name: 'a revoked token',
    remains: true,
    run: (size) => size.answers(401, '/v1/packages', { token: size.revoked }),
  },
  {
    name: 'a mirrored package, fetched once',
    remains: true,
    run: async (size) => {
      await (await size.send(size.first, flat('upstream.size', '1.0.0'))).arrayBuffer();
      await size.sends(packages.mirrored, flat('upstream.size', '1.0.0'));
      size.t.is(size.feed.upstream.count(upstreamFlat('upstream.size', '1.0.0')), 1);
    },
  },
  {
    name: 'a mirrored image, fetched once',
    remains: true,
    run: async (size) => {
      const { manifest: mirrored, layer: its } = size.image;
      const path = '/v2/up.test/library/app';
      for (const [address, bytes] of [
        [`manifests/${mirrored.digest}`, mirrored.bytes],
        [`blobs/${its.digest}`, its.bytes],
      ] as const) {
        await (await size.send(size.first, `${path}/${address}`)).arrayBuffer();
        await size.sends(bytes, `${path}/${address}`);
      }
      size.t.is(size.registry.count(`/v2/library/app/manifests/${mirrored.digest}`), 1);
      size.t.is(size.registry.count(`/v2/library/app/blobs/${its.digest}`), 1);
    },
  },
  {
    name: 'concurrent misses of one process are one fetch',
    run: async (size) => {
      const { servers, processes } = size.installation;
      const all = Array.from({ length: 12 }, async (_, index) => {
        const answer = await size.send(servers[index % servers.length]!, flat('wanted.size', '1.0.0'));
        size.t.is(answer.status, 200);
        size.t.true(packages.wanted.equals(Buffer.from(await answer.arrayBuffer())));
      });
      await Promise.all(all);
      const fetches = size.feed.upstream.count(upstreamFlat('wanted.size', '1.0.0'));
      size.t.true(fetches >= 1 && fetches <= processes, `${fetches} fetches`);
    },
  },
  {
    name: 'hosted wins over upstream',
    remains: true,
    run: async (size) => {
      await size.answers(404, flat('contoso.size', '9.0.0'));
      size.t.is(size.feed.asked.filter((path) => path.includes('contoso.size')).length, 0);
    },
  },
  {
    name: 'an upload begun at one process and finished at others',
    run: async (size) => {
      const { servers } = size.installation;
      await size.upload('team/app', resumed, servers);
    },
  },
  {
    name: 'what was uploaded so',
    remains: true,
    run: (size) => size.sends(resumed, `/v2/team/app/blobs/${digestOf(resumed)}`),
  },
  {
    name: 'a webhook',
    run: async (size) => {
      const events = ['package.published', 'package.deleted'];
      const made = await size.json(size.first, 'POST', '/v1/webhooks', { url: size.receiver.url, events });
      size.t.is(made.status, 201);
      size.webhookSecret = ((await made.json()) as { secret: string }).secret;
      size.t.is((await size.push(size.other, packages.deleted)).status, 201);
      await size.sends(packages.deleted, flat('contoso.size', '2.0.0'));
      await until(() => size.receiver.received.length > 0, 300_000);
    },
  },
  {
    name: 'a deletion',
    run: async (size) => {
      await size.manifest(size.first, 'old', deleted);
      const path = `/v2/team/app/manifests/${digestOf(deleted)}`;
      await size.sends(deleted, path);
      size.t.is((await size.send(size.other, path, { method: 'DELETE' })).status, 202);
      size.t.is((await size.send(size.other, '/v1/packages/Contoso.Size/2.0.0', { method: 'DELETE' })).status, 204);
    },
  },
  {
    name: 'what was deleted',
    remains: true,
    run: async (size) => {
      await size.answers(404, `/v2/team/app/manifests/${digestOf(deleted)}`);
      await size.answers(404, '/v2/team/app/manifests/old');
      await size.answers(404, flat('contoso.size', '2.0.0'));
    },
  },
  {
    name: 'limits',
    run: async (size) => {
      size.t.is((await size.push(size.first, packages.large)).status, 413);
      // A Redis that answers late on a busy machine is not asked for a while: then each process counts for itself.
      let isExact = false;
      for (let attempt = 0; attempt < 10 && !isExact; attempt += 1) isExact = await searchesAreLimited(size);
      size.t.true(isExact);
    },
  },
  {
    name: 'a job runs once',
    run: async (size) => {
      const { servers } = size.installation;
      const asked = await Promise.all(
        [...servers, ...servers].map((server) => size.json(server, 'POST', '/v1/jobs/gc/runs')),
      );
      const begun = asked.filter(({ status }) => status === 204).length;
      size.t.is(asked.filter(({ status }) => status === 400).length, asked.length - begun);
      size.t.true(begun >= 1);
      interface Run {
        outcome: string;
        started_at: string;
        ended_at: string | null;
      }
      const runs = async (server: Serving) =>
        ((await (await size.json(server, 'GET', '/v1/jobs/gc/runs')).json()) as { items: Run[] }).items;
      await until(async () => (await runs(size.first)).every(({ ended_at: end }) => end !== null), 300_000);
      for (const server of servers) {
        const items = (await runs(server)).toReversed();
        size.t.deepEqual(
          items.map(({ outcome }) => outcome),
          Array<string>(begun).fill('done'),
        );
        for (const [index, run] of items.slice(1).entries()) size.t.true(run.started_at >= items[index]!.ended_at!);
      }
    },
  },
];

/** Searches with a new token until one must be refused. Resolves to whether no more were answered than the limit allows. */
async function searchesAreLimited(size: SizeUnderTest): Promise<boolean> {
  const made = await size.json(size.first, 'POST', '/v1/tokens', { name: 'searching', scopes: ['read'] });
  const { token } = (await made.json()) as { token: string };
  const { servers, processes, size: combination } = size.installation;
  const startedAt = performance.now();
  let found = 0;
  let refused = 0;
  while (found + refused < searches * (processes + 1)) {
    const answer = await size.send(servers[(found + refused) % servers.length]!, '/v3/search?q=size', { token });
    await answer.arrayBuffer();
    if (answer.status === 200) found += 1;
    else {
      size.t.is(answer.status, 429);
      size.t.true(Number(answer.headers.get('retry-after')) > 0);
      refused += 1;
    }
  }
  const counts = combination.redis === 'yes' ? 1 : processes;
  // Each count is full again after a minute.
  const refilled = Math.ceil(((performance.now() - startedAt) / 60_000) * searches);
  return found >= searches && found <= counts * (searches + refilled);
}

/** Starts the instances of an allowed combination, and runs all checks. */
export async function checkSize(
  t: ExecutionContext,
  size: Size,
  { schemas, bucket }: { schemas: string; bucket?: BucketOptions },
): Promise<void> {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const image = registry.image('library/app', '1.0');
  const receiver = await startReceiver(t);
  await feed.offer({ id: 'Upstream.Size', versions: [{ version: '1.0.0', nupkg: packages.mirrored }] });
  await feed.offer({ id: 'Wanted.Size', versions: [{ version: '1.0.0', nupkg: packages.wanted }] });
  await feed.offer({ id, versions: [{ version: '9.0.0', nupkg: packages.kept }] });
  const settings = {
    ENTREPOT_UPSTREAMS: JSON.stringify([feed.as('up'), registry.settings('up.test')]),
    ENTREPOT_WEBHOOKS_ALLOW: '["127.0.0.1"]',
    ENTREPOT_JOBS_GC: 'off',
    ENTREPOT_LIMITS_NUPKG: '1MB',
    ENTREPOT_LIMITS_DELAY: '0s',
    ENTREPOT_LIMITS_SEARCHES_PER_MINUTE: `${searches}`,
  };
  const installation = await Installation.create(t, size, { schemas, settings, ...(bucket && { bucket }) });
  t.is((await installation.missingMigrations()).length, 1);
  const indexes = Array.from({ length: size.instances }, (_, index) => index);
  await Promise.all(indexes.map((index) => installation.start(index)));
  const tested = new SizeUnderTest(t, installation, { feed, registry, image, receiver });
  const run = async ({ name, run: check }: Check) => {
    await check(tested).catch((error: Error) => {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    });
  };
  for (const each of checks) await run(each);

  for (const upstream of [feed.upstream, registry]) upstream.unplug();
  await installation.stop(0);
  if (installation.servers.length > 0) for (const each of checks) if (each.remains) await run(each);
  await installation.start(0);
  for (const each of checks) if (each.remains) await run(each);
  await until(() => receiver.received.length >= 2, 300_000);
  for (const index of indexes) await installation.stop(index);

  const told = receiver.received.map(({ event }) => event);
  for (const each of receiver.received) verify(each, tested.webhookSecret);
  t.deepEqual(
    told.map(({ type }) => type).sort(),
    ['entrepot.package.deleted', 'entrepot.package.published'],
    'each event once',
  );
}
