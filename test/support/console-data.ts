import { createHash } from 'node:crypto';
import type { ExecutionContext } from 'ava';
import { makeNupkg, type NupkgOptions } from './builders/nupkg.ts';
import { addExtras, extraSettings, type ExtraContent } from './console-extras.ts';
import { TestFeed } from './feed.ts';
import { flushEvents, flushTokens, flushUsage, flushUses, runJob } from './inside.ts';
import { ociManifest, TestRepository } from './registry.ts';
import { testClock } from './clock.ts';
import { startTestServer, type TestServer } from './server.ts';
import { serve, startFaultyUpstream } from './upstreams/faulty-upstream.ts';
import { UpstreamFeed } from './upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from './upstreams/upstream-registry.ts';
import { Visitor } from './visitor.ts';

// A server with content as a team has it: hosted and mirrored packages and images, uses on several days, tokens, sessions,
// events, runs of jobs, an upstream that fails. For the tests in a browser and for the screenshots.

type Test = Pick<ExecutionContext, 'teardown'>;

/** What the pages with a parameter show. */
export interface ShownContent extends ExtraContent {
  package: string;
  version: string;
  image: string;
  tag: string;
  digest: string;
  tokenId: string;
  sessionId: string;
}

export interface ConsoleData extends ShownContent {
  server: TestServer;
}

export interface DataOptions {
  /** Days of use before the last one. */
  days: number;
  /** Milliseconds since 1970 of the last day. */
  now: number;
  settings?: Record<string, unknown>;
}

const day = 86_400_000;

const readme = `# Contoso.Core

The types that all services of Contoso share.

## Use

\`\`\`csharp
var clock = new SystemClock();
await using var lease = await locks.AcquireAsync("billing", clock);
\`\`\`

| Type | For |
| --- | --- |
| \`Result<T>\` | values or errors |
| \`ILease\` | one worker at a time |

- No dependencies outside of .NET
- See [the guide](https://docs.example.com/core)
`;

const hosted: readonly NupkgOptions[] = [
  ...['1.0.0', '1.1.0', '1.2.0', '2.0.0', '2.1.0', '2.1.1', '3.0.0-beta.1'].map((version) => ({
    id: 'Contoso.Core',
    version,
    title: 'Contoso Core',
    authors: 'Platform team',
    description: 'Shared types: results, clocks, leases and retry rules.',
    tags: 'contoso core results locking',
    projectUrl: 'https://docs.example.com/core',
    repository: { type: 'git', url: 'https://git.example.com/platform/core', commit: '5f2c9e1' },
    license: { type: 'expression', value: 'MIT' },
    payloadBytes: 84_000,
    readme,
    dependencyGroups: [
      { targetFramework: 'net8.0', dependencies: [{ id: 'Serilog', version: '4.2.0' }] },
      { targetFramework: 'netstandard2.0', dependencies: [{ id: 'Newtonsoft.Json', version: '13.0.3' }] },
    ],
  })),
  ...['4.2.0', '4.3.0'].map((version) => ({
    id: 'Contoso.Data.SqlServer',
    version,
    authors: 'Platform team',
    description: 'Connections, migrations and outbox tables for SQL Server.',
    tags: 'contoso data sql',
    payloadBytes: 310_000,
    dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Contoso.Core', version: '2.1.0' }] }],
  })),
  { id: 'Contoso.Web.Templates', version: '0.9.2', authors: 'Web team', payloadBytes: 42_000 },
  { id: 'Fabrikam.Billing.Client', version: '7.0.1', authors: 'Billing team', payloadBytes: 128_000 },
];

const mirrored: readonly (readonly [id: string, version: string, bytes: number])[] = [
  ['Newtonsoft.Json', '13.0.3', 760_000],
  ['Serilog', '4.2.0', 390_000],
  ['Polly', '8.5.0', 520_000],
  ['Dapper', '2.1.35', 410_000],
  ['xunit', '2.9.2', 48_000],
];

/** Bytes that are the same in each run, so that digests on screenshots stay. */
function bytesOf(name: string, size: number): Buffer {
  const block = createHash('sha256').update(name).digest();
  return Buffer.alloc(size, block);
}

const images: readonly (readonly [name: string, tag: string, bytes: number])[] = [
  ['billing/worker', 'v7', 420_000],
  ['team/web', '2026-11', 1_900_000],
  ['team/api', '1.4.0', 610_000],
  ['team/api', '1.5.0', 640_000],
  ['team/api', 'latest', 640_000],
];

async function pushImage(server: TestServer, token: string, [name, tag, size]: (typeof images)[number]): Promise<void> {
  const repository = new TestRepository(server, name, token);
  const config = await repository.blob(
    JSON.stringify({ architecture: 'amd64', os: 'linux', config: { User: 'app' }, rootfs: { type: 'layers' } }),
    'application/vnd.oci.image.config.v1+json',
  );
  const layers = [
    await repository.blob(bytesOf('base', 2_400_000), 'application/vnd.oci.image.layer.v1.tar'),
    await repository.blob(bytesOf(`${name} ${size}`, size), 'application/vnd.oci.image.layer.v1.tar'),
  ];
  const annotations = { 'org.opencontainers.image.source': `https://git.example.com/${name}` };
  const response = await repository.put(tag, { schemaVersion: 2, mediaType: ociManifest, config, layers, annotations });
  if (response.status !== 201) throw new Error(`${name}:${tag}: ${response.status} ${await response.text()}`);
}

/** Fills a new server. */
export async function startWithData(t: Test, { days, now, settings }: DataOptions): Promise<ConsoleData> {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const broken = await startFaultyUpstream(t);
  for (const [id, version, bytes] of mirrored) {
    const nupkg = await makeNupkg({ id, version, payloadBytes: bytes });
    await feed.offer({ id, versions: [{ version, nupkg }] });
    const path = `/flat/${id.toLowerCase()}/${version}/${id.toLowerCase()}.${version}.nupkg`;
    feed.upstream.on(path, serve(nupkg));
  }
  for (const name of ['library/alpine', 'library/postgres'])
    registry.image(name, name.endsWith('alpine') ? '3.21' : '17');
  const all = {
    upstreams: [
      feed.as('nuget.org'),
      registry.settings('docker.io'),
      { name: 'ghcr.io', kind: 'registry', url: broken.url.href, allowPrivateNetwork: true, timeout: '2s' },
    ],
    retention: { packages: { keepVersions: 5 } },
    deletedFor: '90d',
    prefetch: { files: ['/etc/entrepot/images.txt'] },
    ...extraSettings,
    ...settings,
  };
  const server = await startTestServer(t, all, {}, testClock(now - (days + 30) * day));
  server.clock.now = now - days * day;
  const tokens = await makeTokens(server, now);
  const feedOfCi = new TestFeed(server, tokens.ci);
  // Its name stays claimed.
  await feedOfCi.publish({ id: 'Contoso.Legacy', version: '1.0.0' });
  const gone = await server.fetch('/v1/packages/Contoso.Legacy/1.0.0', { method: 'DELETE' });
  if (gone.status !== 204) throw new Error(`the deletion answered ${gone.status}`);
  for (let index = 0; index <= days; index += 1) {
    server.clock.now = now - (days - index) * day;
    // All is published in the end, also with few days.
    const isDue = (place: number, all: number) => Math.floor((place * (days + 1)) / all) === index;
    await feedOfCi.publish(...hosted.filter((_, place) => isDue(place, hosted.length)));
    for (const image of images.filter((_, place) => isDue(place, images.length)))
      await pushImage(server, tokens.ci, image);
    await useFor(server, tokens.read, index);
    await flushUsage(server);
    if (index % 7 === 6) await runJob(server, 'scrub');
  }
  broken.unplug();
  for (const tag of ['v2', 'v3']) await pull(server, tokens.read, `ghcr.io/example/tool/manifests/${tag}`);
  for (const job of ['sample', 'gc', 'evict', 'scrub', 'audit']) await runJob(server, job);
  // The file with the list is missing.
  await runJob(server, 'prefetch').catch(() => undefined);
  server.clock.now += 40_000;
  await server.fetch('/v1/packages', { token: 'ent_of_someone_who_left' });
  await server.fetch(`/v1/tokens/${tokens.revokedId}`, { method: 'DELETE' });
  await flushAll(server);
  const sessionId = await openSessions(server);
  const manifest = await server.fetch('/v2/team/api/manifests/1.5.0', {
    method: 'HEAD',
    headers: { accept: ociManifest },
  });
  const digest = manifest.headers.get('docker-content-digest')!;
  const extras = await addExtras(t, server, { packageId: 'Contoso.Core', upstream: 'docker.io' });
  server.clock.now += 200_000;
  return {
    ...extras,
    server,
    package: 'Contoso.Core',
    version: '2.1.1',
    image: 'team/api',
    tag: '1.5.0',
    digest,
    tokenId: tokens.ciId,
    sessionId,
  };
}

async function flushAll(server: TestServer): Promise<void> {
  await flushUsage(server);
  await flushTokens(server);
  await flushUses(server);
  await flushEvents(server, true);
}

/** Creates a token through `/v1`. */
export async function makeToken(server: TestServer, body: object): Promise<{ id: string; token: string }> {
  const response = await server.fetch('/v1/tokens', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (response.status !== 201) throw new Error(`${JSON.stringify(body)}: ${response.status} ${await response.text()}`);
  return (await response.json()) as { id: string; token: string };
}

async function makeTokens(server: TestServer, now: number) {
  const make = (name: string, scopes: string[], more: object = {}) => {
    // Lists are in the order of time.
    server.clock.now! += 1000;
    return makeToken(server, { name, scopes, ...more });
  };
  const in90Days = new Date(now + 90 * day).toISOString();
  const ci = await make('ci of platform', ['read', 'write'], { expires_at: in90Days });
  const read = await make('build agents', ['read']);
  await make('web team', ['read', 'write'], {
    patterns: { packages: ['Contoso.Web.*'], containers: ['team/web'] },
    expires_at: new Date(now + 6 * day).toISOString(),
  });
  await make('contractor', ['read'], { expires_at: new Date(now - 3_600_000).toISOString() });
  const revoked = await make('laptop of Kim', ['read', 'write', 'delete', 'admin']);
  return { ci: ci.token, ciId: ci.id, read: read.token, revokedId: revoked.id };
}

/** Downloads of one day; some days have more. */
async function useFor(server: TestServer, token: string, index: number): Promise<void> {
  const times = [3, 5, 4, 6, 5, 1, 1][index % 7]!;
  const feed = new TestFeed(server, token);
  const packages = [...hosted.slice(1, 4), ...mirrored.map(([id, version]) => ({ id, version }))];
  for (const [place, { id, version }] of packages.entries()) {
    const key = id!.toLowerCase();
    for (let done = 0; done < times - (place % 3); done += 1) {
      await drain(feed.fetch(`/package/${key}/${version}/${key}.${version}.nupkg`));
    }
  }
  for (const image of [
    'docker.io/library/alpine/manifests/3.21',
    'docker.io/library/postgres/manifests/17',
    'team/api/manifests/1.5.0',
  ]) {
    await pull(server, token, image);
  }
}

function pull(server: TestServer, token: string, path: string): Promise<number> {
  return drain(server.fetch(`/v2/${path}`, { token, headers: { accept: ociManifest } }));
}

async function drain(answer: Promise<Response>): Promise<number> {
  const response = await answer;
  await response.arrayBuffer();
  return response.status;
}

/** Two browsers; resolves to the ID of a session. */
async function openSessions(server: TestServer): Promise<string> {
  for (const agent of [
    'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0',
    'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 Safari/605.1.15',
  ]) {
    const visitor = new Visitor(server);
    await visitor.send('/console/sign-in', { token: server.token }, { 'user-agent': agent });
  }
  const response = await server.fetch('/v1/sessions');
  return ((await response.json()) as { items: { id: string }[] }).items[0]!.id;
}
