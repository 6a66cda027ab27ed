import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { digestOf, type Digest } from '../../src/runtime/digest.ts';
import { readAll } from '../../src/storage/files/content.ts';
import { Collector } from '../../src/storage/upkeep/collector.ts';
import type { Driver } from '../../src/storage/drivers/driver.ts';
import { FilesystemDriver } from '../../src/storage/drivers/filesystem.ts';
import { Paths } from '../../src/storage/files/paths.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { until } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { MemoryDriver } from '../support/memory-driver.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { ociManifest, TestRepository, type Descriptor } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { references } from '../support/store.ts';
import { databaseOf, flushUses, rowsOf, runJob } from '../support/inside.ts';

// Concurrent pushes, deletes, pulls, retention, eviction and collection, without a grace, on two instances. Clients push
// few different contents, so that collected content is pushed again all the time.
// ENTREPOT_TEST_STRESS_SECONDS sets its duration: 60 for a full run.

const seconds = Number(process.env['ENTREPOT_TEST_STRESS_SECONDS'] ?? 4);
const layers = Array.from({ length: 12 }, (_, index) => Buffer.alloc(1000 + index * 3000, `layer ${index} `));

interface Tally {
  pushes: number;
  /** Pushes whose blobs existed at first but were collected before the manifest was pushed. */
  again: number;
  mounts: number;
  pulls: number;
  deletes: number;
  packages: number;
  mirrored: number;
  collections: number;
  blobs: number;
  links: number;
  evicted: number;
  manifests: number;
  wrong: string[];
}

interface Image {
  digest: string;
  parts: Descriptor[];
}

async function expectContent(tally: Tally, what: string, response: Response, digest: string): Promise<void> {
  const bytes = Buffer.from(await response.arrayBuffer());
  if (response.status !== 200 || digestOf(bytes) !== digest) tally.wrong.push(`${what}: ${response.status} ${digest}`);
}

/** A client that is the only writer of its repository, so it knows the expected content. */
class Client {
  readonly #servers: TestServer[];
  readonly #tally: Tally;
  readonly name: string;
  readonly images = new Map<string, Image>();
  #turn = 0;

  constructor(servers: TestServer[], tally: Tally, name: string) {
    this.#servers = servers;
    this.#tally = tally;
    this.name = name;
  }

  async work(ended: () => boolean): Promise<void> {
    while (!ended()) {
      await this.#push();
      if (randomInt(2) === 0) await this.#pull();
      if (this.images.size > 3) await this.#delete();
    }
  }

  /** Checks all content whose push was acknowledged. */
  async verify(): Promise<void> {
    const repository = this.#repository();
    for (const [tag, { digest, parts }] of this.images) {
      await expectContent(this.#tally, `${this.name}:${tag}`, await repository.fetch(`manifests/${tag}`), digest);
      for (const part of parts) {
        await expectContent(
          this.#tally,
          `${this.name}:${tag}`,
          await repository.fetch(`blobs/${part.digest}`),
          part.digest,
        );
      }
    }
  }

  #repository(): TestRepository {
    return new TestRepository(this.#servers[randomInt(this.#servers.length)]!, this.name);
  }

  async #push(): Promise<void> {
    this.#turn += 1;
    const tag = `v${randomInt(6)}`;
    const contents = [layers[randomInt(layers.length)]!, layers[randomInt(layers.length)]!];
    const config = Buffer.from(JSON.stringify({ client: this.name, turn: this.#turn % 3 }));
    for (let attempt = 1; ; attempt += 1) {
      // After a refusal, the client sends everything.
      const parts = [];
      for (const bytes of [config, ...contents]) parts.push(await this.#send(bytes, attempt > 1));
      const [first, ...rest] = parts;
      const manifest = { schemaVersion: 2, mediaType: ociManifest, config: first, layers: rest };
      const response = await this.#repository().put(tag, manifest);
      const answer = await response.text();
      if (response.status === 201) {
        this.#tally.pushes += 1;
        this.images.set(tag, { digest: digestOf(JSON.stringify(manifest)), parts });
        return;
      }
      this.#tally.again += 1;
      if (answer.includes('MANIFEST_BLOB_UNKNOWN') && attempt < 50) continue;
      this.#tally.wrong.push(`push ${attempt}: ${response.status} ${answer}`);
      return;
    }
  }

  async #send(bytes: Buffer, whole: boolean): Promise<Descriptor> {
    const [repository, digest] = [this.#repository(), digestOf(bytes)];
    const descriptor = { mediaType: 'application/vnd.oci.image.layer.v1.tar', digest, size: bytes.length };
    if (whole) return { ...descriptor, ...(await repository.blob(bytes, descriptor.mediaType)) };
    if ((await repository.fetch(`blobs/${digest}`, { method: 'HEAD' })).status === 200) return descriptor;
    if (randomInt(2) === 0) {
      const mounted = await repository.fetch(`blobs/uploads/?mount=${digest}`, { method: 'POST' });
      if (mounted.status === 201) {
        this.#tally.mounts += 1;
        return descriptor;
      }
    }
    await repository.blob(bytes);
    return descriptor;
  }

  async #pull(): Promise<void> {
    const tags = [...this.images.keys()];
    const tag = tags[randomInt(tags.length || 1)];
    if (tag === undefined) return;
    const { digest, parts } = this.images.get(tag)!;
    const repository = this.#repository();
    await expectContent(this.#tally, 'pull', await repository.fetch(`manifests/${tag}`), digest);
    for (const part of parts) {
      await expectContent(this.#tally, 'pull', await repository.fetch(`blobs/${part.digest}`), part.digest);
    }
    this.#tally.pulls += 1;
  }

  async #delete(): Promise<void> {
    const [[tag, { digest }]] = [...this.images] as [[string, Image]];
    const byTag = randomInt(3) === 0;
    const response = await this.#repository().fetch(`manifests/${byTag ? tag : digest}`, { method: 'DELETE' });
    if (response.status !== 202) this.#tally.wrong.push(`a delete answered ${response.status}`);
    for (const [other, image] of this.images) {
      if (byTag ? other === tag : image.digest === digest) this.images.delete(other);
    }
    this.#tally.deletes += 1;
  }
}

/** Publishes, reads and deletes the same few versions. */
async function publish(servers: TestServer[], tally: Tally, ended: () => boolean): Promise<void> {
  const made = await Promise.all(
    [1, 2, 3].map((minor) => makeNupkg({ id: 'Stress', version: `1.${minor}.0`, payloadBytes: 5000 })),
  );
  for (let turn = 0; !ended(); turn += 1) {
    const server = servers[turn % servers.length]!;
    const version = `1.${(turn % 3) + 1}.0`;
    const bytes = made[turn % 3]!;
    const pushed = await new TestFeed(server).push(bytes);
    if (pushed.status !== 201) tally.wrong.push(`a package was refused with ${pushed.status}`);
    const path = `/v3/package/stress/${version}/stress.${version}.nupkg`;
    await expectContent(tally, 'package', await server.fetch(path), digestOf(bytes));
    await server.fetch(`/v1/packages/Stress/${version}`, { method: 'DELETE' });
    tally.packages += 1;
  }
}

async function collect(servers: TestServer[], driver: Driver, tally: Tally, ended: () => boolean): Promise<void> {
  const [first, second] = servers as [TestServer, TestServer];
  const collector = new Collector(databaseOf(second), driver, references);
  const byJobs = async () => {
    while (!ended()) {
      // Without a grace, back-to-back collections would make every push fail.
      const before = tally.pushes + tally.again;
      await until(() => ended() || tally.pushes + tally.again > before + 3);
      for (const server of servers) await flushUses(server);
      const evicted = await runJob(first, 'evict');
      const retained = await runJob(first, 'retention');
      const counts = await runJob(second, 'gc');
      tally.evicted += evicted['entries'] ?? 0;
      tally.manifests += retained['manifests'] ?? 0;
      tally.links += counts['layers'] ?? 0;
      tally.blobs += counts['blobs'] ?? 0;
      tally.collections += 1;
    }
  };
  const byItself = async () => {
    while (!ended())
      tally.blobs += (await collector.collect({ before: Date.now() + 1, pendingBefore: Date.now() - 1000 })).blobs;
  };
  await Promise.all([byJobs(), byItself(), byItself(), byItself()]);
}

/** Checks that each reference has a row, each row has a file with the right bytes, and nothing else is left. */
async function expectWhole(t: ExecutionContext, server: TestServer, driver: Driver): Promise<number> {
  const rows = await rowsOf<{ digest: Digest; size: number }>(server, 'SELECT digest, size FROM blobs');
  const stored = new Set(rows.map(({ digest }) => digest));
  for (const table of ['repository_blobs', 'manifests', 'manifest_references', 'package_blobs', 'mirror_entries']) {
    const references = await rowsOf<{ digest: Digest }>(server, `SELECT DISTINCT digest FROM ${table}`);
    for (const { digest } of references) t.true(stored.has(digest), `${table} refers to ${digest}`);
  }
  for (const { digest, size } of rows) {
    const bytes = await readAll(await driver.open(digest, size), size);
    t.true(bytes.length === size && digestOf(bytes) === digest, digest);
  }
  if (driver instanceof MemoryDriver) driver.faults = {};
  for await (const listed of driver.list()) {
    for (const { digest } of listed) t.true(stored.has(digest), `no row knows ${digest}`);
  }
  return rows.length;
}

/** What each run must have done. */
const needed = ['pushes', 'pulls', 'deletes', 'mirrored', 'collections', 'blobs'] as const;

for (const dialect of dialects) {
  const suite = async (t: ExecutionContext, open: (paths: Paths) => Driver) => {
    t.timeout((seconds + 210) * 1000);
    const data = await folderUntilEnd(t);
    const driver = open(new Paths(data));
    const upstream = await startUpstreamRegistry(t);
    const off = { uploads: 'off', retention: 'off', evict: 'off', gc: 'off', sample: 'off', scrub: 'off' };
    const settings = {
      data,
      database: { url: await temporaryDatabase(t, dialect) },
      jobs: off,
      gc: { grace: '0s' },
      retention: { containers: { untaggedAfter: '0s' } },
      mirror: { maxSize: '20kB' },
      upstreams: [upstream.settings('up.test')],
      log: { level: 'warn' },
    };
    const servers = [await startTestServer(t, settings, { driver }), await startTestServer(t, settings, { driver })];
    const tally: Tally = {
      pushes: 0,
      again: 0,
      mounts: 0,
      pulls: 0,
      deletes: 0,
      packages: 0,
      mirrored: 0,
      collections: 0,
      blobs: 0,
      links: 0,
      evicted: 0,
      manifests: 0,
      wrong: [],
    };
    const started = performance.now();
    const isDone = () => {
      const milliseconds = performance.now() - started;
      return (milliseconds > seconds * 1000 && needed.every((each) => tally[each] > 0)) || milliseconds > 100_000;
    };
    const ended = () => isDone() || tally.wrong.length > 20;
    const clients = ['one', 'two', 'three', 'four'].map((name) => new Client(servers, tally, `stress/${name}`));
    // The mirror stores the same bytes, and evicts them.
    const fromUpstream = layers.slice(0, 6).map((bytes) => upstream.blob('app', bytes));
    const pullMirrored = async () => {
      while (!ended()) {
        // Each is pulled for a while, so that the others become the least recently used.
        const { digest } = fromUpstream[Math.floor(tally.mirrored / 20) % fromUpstream.length]!;
        const repository = new TestRepository(servers[randomInt(2)]!, 'up.test/app');
        await expectContent(tally, 'mirrored', await repository.fetch(`blobs/${digest}`), digest);
        tally.mirrored += 1;
      }
    };
    await Promise.all([
      ...clients.map((client) => client.work(ended)),
      publish(servers, tally, ended),
      pullMirrored(),
      collect(servers, driver, tally, ended),
    ]);
    for (const client of clients) await client.verify();
    const { wrong, ...figures } = tally;
    t.deepEqual(wrong, []);
    const kept = await expectWhole(t, servers[0]!, driver);
    t.log(`${dialect}, ${seconds} s: ${JSON.stringify({ ...figures, kept })}`);
    for (const what of needed) t.true(figures[what] > 0, `no ${what}`);
  };

  const title = 'concurrent pushes, deletes, pulls and collection lose no referenced content';
  test.serial(`${dialect}, on a folder: ${title}`, (t) => suite(t, (paths) => new FilesystemDriver(paths)));
  test.serial(`${dialect}, on a slow storage: ${title}`, (t) =>
    suite(t, () => {
      const driver = new MemoryDriver();
      driver.faults = { listLag: 20, before: () => sleep(randomInt(5)), after: () => sleep(randomInt(5)) };
      return driver;
    }),
  );
}
