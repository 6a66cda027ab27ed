import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import type { ExecutionContext } from 'ava';
import { pino, type Logger } from 'pino';
import { Cache } from '../../src/cache/cache.ts';
import { schema, type UpstreamConfig } from '../../src/config/schema.ts';
import { openDatabase, type Database } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { digestOf, type Digest, type DigestAlgorithm } from '../../src/runtime/digest.ts';
import { Withdrawals } from '../../src/mirror/withdrawals.ts';
import { Entries } from '../../src/mirror/store/entries.ts';
import { fetchFrom, type FetchOptions } from '../../src/mirror/fetch/fetch.ts';
import { Mirror, type MirrorEntry, type MirrorParts } from '../../src/mirror/mirror.ts';
import type { MirrorResource } from '../../src/mirror/fetch/resource.ts';
import { BlobStore } from '../../src/storage/blobs/blob-store.ts';
import type { Disk } from '../../src/storage/files/disk.ts';
import { FilesystemDriver } from '../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { DiskReserve } from '../../src/storage/files/disk-reserve.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';
import { fixedCredentials } from '../../src/upstream/credential-source.ts';
import type { UpstreamAuth } from '../../src/upstream/credentials.ts';
import { Upstream, type UpstreamParts } from '../../src/upstream/upstream.ts';
import { testClock, type TestClock } from './clock.ts';

type Test = Pick<ExecutionContext, 'teardown'>;

export interface TestLog {
  log: Logger;
  lines: string[];
}

export function testLog(): TestLog {
  const lines: string[] = [];
  const write = (chunk: unknown, _encoding: unknown, done: () => void) => {
    lines.push(String(chunk));
    done();
  };
  return { log: pino({ level: 'debug' }, new Writable({ write })), lines };
}

/** Settings of an upstream on loopback. A test that waits for a time-out sets a shorter one. */
export function upstreamConfig(settings: Record<string, unknown> = {}): UpstreamConfig {
  const upstream = { name: 'up.test', kind: 'registry', allowPrivateNetwork: true, timeout: '60s', ...settings };
  return schema.parse({ upstreams: [upstream] }).upstreams[0]!;
}

export interface UpstreamSetup extends Partial<UpstreamParts> {
  settings?: Record<string, unknown>;
  auth?: UpstreamAuth;
}

/** An upstream as the server makes it, without a server. */
export async function openUpstream(
  t: Test,
  base: URL,
  { settings, auth, ...parts }: UpstreamSetup = {},
): Promise<{ upstream: Upstream; lines: string[]; clock: TestClock }> {
  const clock = testClock();
  const { log, lines } = testLog();
  const cache = await Cache.open(undefined, parts.now ?? clock.time, () => undefined);
  const source = auth && fixedCredentials(auth);
  const upstream = new Upstream(upstreamConfig(settings), base, source, {
    cache,
    log,
    now: clock.time,
    proxy: {},
    offline: false,
    ...parts,
  });
  t.teardown(() => upstream.close());
  return { upstream, lines, clock };
}

export interface TestMirror {
  mirror: Mirror;
  entries: Entries;
  blobs: BlobStore;
  cache: Cache;
  database: Database;
  upstream: Upstream;
  clock: TestClock;
  lines: string[];
  data: string;
  /** The file of a stored blob. */
  pathOf: (digest: Digest) => string;
  /** A resource at `path` of the upstream, named by the path; immutable by default. */
  resource: (path: string, changes?: Partial<MirrorResource>, options?: Partial<FetchOptions>) => MirrorResource;
  /** Names of the files in the staging folder. */
  staged: () => Promise<string[]>;
  /** Number of stored blobs. */
  blobCount: () => Promise<number>;
}

export interface MirrorSetup extends UpstreamSetup {
  databaseUrl?: string;
  redisUrl?: string;
  namespace?: string;
  /** Shares storage and, unless named, the database with another mirror. */
  data?: string;
  /** Parts that differ from the defaults. */
  mirror?: Partial<MirrorParts>;
  /** Changes a staged file before the mirror gets it, to simulate a failing disk. */
  stage?: (staged: StagedFile) => void;
  /** Where files are staged; by default the local disk. */
  disk?: Disk;
  /** Wraps the database for the mirror. */
  wrap?: (database: Database) => Database;
}

class TestBlobStore extends BlobStore {
  staging: ((staged: StagedFile) => void) | undefined;

  override async stage(algorithms?: readonly DigestAlgorithm[], mayOverflow?: boolean): Promise<StagedFile> {
    const staged = await super.stage(algorithms, mayOverflow);
    this.staging?.(staged);
    return staged;
  }
}

/** The mirror as the server sets it up, for an upstream at `base`, without HTTP. */
export async function openMirror(t: Test, base: URL, setup: MirrorSetup = {}): Promise<TestMirror> {
  const data = setup.data ?? (await mkdtemp(join(tmpdir(), 'entrepot-test-')));
  const real = await openDatabase(setup.databaseUrl ?? `sqlite:${join(data, 'entrepot.db')}`);
  await migrate(real);
  const database = setup.wrap?.(real) ?? real;
  const clock = testClock();
  const { log, lines } = testLog();
  const now = clock.time;
  const paths = new Paths(data);
  const driver = new FilesystemDriver(paths);
  const blobs = new TestBlobStore(database, driver, paths, now, { disk: setup.disk });
  blobs.staging = setup.stage;
  await blobs.prepare();
  const cache = await Cache.open(setup.redisUrl, now, () => undefined, setup.namespace);
  const entries = new Entries(database, cache, now);
  const mirror = new Mirror({
    blobs,
    entries,
    room: new DiskReserve(data, 0),
    unreadRest: 16 * 2 ** 20,
    keepPartial: 600_000,
    accountFetches: 128,
    withdrawals: new Withdrawals(database, log, now),
    log,
    now,
    ...setup.mirror,
  });
  const { upstream } = await openUpstream(t, base, { log, cache, now, ...setup });
  t.teardown(async () => {
    upstream.close();
    await mirror.close();
    await driver.close();
    await cache.close();
    await real.close();
    if (setup.data === undefined) await rm(data, { recursive: true, force: true });
  });
  return {
    mirror,
    entries,
    blobs,
    pathOf: (digest) => driver.pathOf(digest),
    cache,
    database,
    upstream,
    clock,
    lines,
    data,
    resource: (path, changes = {}, options = {}) => ({
      key: { upstream: 'up.test', kind: 'thing', name: 'a', reference: path },
      upstreamName: 'up.test',
      upstreamKind: 'registry',
      lifetime: 'immutable',
      negativeFor: 60_000,
      limit: 2 ** 30,
      idle: 400,
      fetch: (known) => fetchFrom(upstream, { url: new URL(path, base), subject: path, known, ...options }),
      ...changes,
    }),
    staged: () => readdir(join(data, 'staging')),
    blobCount: async () => (await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM blobs'))!.n,
  };
}

/** Reads an entry to its end from `start` on, piece by piece, and closes it. */
export async function readEntry(entry: MirrorEntry | undefined, start = 0, end = Infinity): Promise<Buffer> {
  if (!entry) throw new Error('there is no entry');
  const pieces: Buffer[] = [];
  try {
    for (let position = start; position < end;) {
      const piece = Buffer.allocUnsafe(Math.min(65_536, end - position));
      const read = await entry.content.read(piece, position);
      if (read === 0) break;
      pieces.push(piece.subarray(0, read));
      position += read;
    }
  } finally {
    entry.content.close();
  }
  return Buffer.concat(pieces);
}

/** The digest of a whole entry, without keeping it. */
export async function digestEntry(entry: MirrorEntry | undefined): Promise<Digest> {
  return digestOf(await readEntry(entry));
}
