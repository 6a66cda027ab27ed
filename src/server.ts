import { createServer as createHttpServer, type IncomingMessage, type Server } from 'node:http';
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import { platform } from 'node:os';
import type { Logger } from 'pino';
import { Accounts, type Account } from './accounts/accounts.ts';
import type { Principal } from './accounts/principal.ts';
import { Tokens } from './accounts/tokens.ts';
import { createApi } from './api/routes.ts';
import { Cache } from './cache/cache.ts';
import { ConfigError } from './config/load.ts';
import type { Config } from './config/schema.ts';
import { digestOf } from './digest.ts';
import { openDatabase, type WriteSignal, type Database } from './database/database.ts';
import { migrate } from './database/migrate.ts';
import { answerUnhandled, createApp, type Interfaces } from './http/app.ts';
import { Authenticator } from './http/authenticate.ts';
import { AppResponse, countFetched } from './http/request-context.ts';
import { Operations } from './http/operations.ts';
import { createTokenEndpoint } from './http/token.ts';
import { Urls } from './http/urls.ts';
import { Jobs } from './jobs/jobs.ts';
import { Runs } from './jobs/runs.ts';
import { jobTable } from './jobs/table.ts';
import type { EmptyClaims } from './mirror/claims.ts';
import { Entries } from './mirror/entries.ts';
import { Mirror } from './mirror/mirror.ts';
import { UpstreamPolicy } from './mirror/upstream-policy.ts';
import { emptyPackageClaims, releasePackageClaim } from './nuget/hosted/claims.ts';
import { addDownloads } from './nuget/hosted/downloads.ts';
import type { FeedContext } from './nuget/hosted/feed-context.ts';
import { createFeed } from './nuget/http/routes.ts';
import { MergedSearch } from './nuget/search/merged-search.ts';
import { MirroredPackages } from './nuget/upstream/mirrored-packages.ts';
import { PackageSource } from './nuget/package-source.ts';
import { PackageMirror } from './nuget/upstream/package-mirror.ts';
import { UpstreamRegistrations } from './nuget/upstream/upstream-registration.ts';
import { UpstreamSearch } from './nuget/upstream/upstream-search.ts';
import { UpstreamSymbols } from './nuget/upstream/upstream-symbols.ts';
import { UpstreamVulnerabilities } from './nuget/upstream/upstream-vulnerabilities.ts';
import { emptyContainerClaims, releaseContainerClaim } from './oci/claims.ts';
import { Images } from './oci/images.ts';
import { MirroredImages } from './oci/mirrored-images.ts';
import { Pushes } from './oci/pushes.ts';
import { addPulls } from './oci/repositories.ts';
import { createRegistry } from './oci/routes.ts';
import { ImageSource } from './oci/image-source.ts';
import { ImageMirror } from './oci/image-mirror.ts';
import { BlobStore } from './storage/blob-store.ts';
import { Collector } from './storage/collector.ts';
import type { Driver } from './storage/driver.ts';
import { FilesystemDriver } from './storage/filesystem.ts';
import { Paths } from './storage/paths.ts';
import { Room } from './storage/room.ts';
import { Scrubber } from './storage/scrub.ts';
import type { ProxyEnvironment } from './upstream/addresses.ts';
import { openUpstreams } from './upstream/configured.ts';
import type { Upstream } from './upstream/upstream.ts';
import { Quota } from './usage/quota.ts';
import { UsageRecord } from './usage/record.ts';
import { StoredBytes } from './usage/stored.ts';

/** What comes from outside the program, so that a test can replace it. */
export interface Surroundings {
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** Outgoing proxies. */
  proxy: ProxyEnvironment;
  /** Where committed bytes are kept; else in the data folder. */
  driver?: Driver | undefined;
}

/** The parts without the network: what the command line works with, beside a running server too. */
export interface Core {
  config: Config;
  database: Database;
  blobs: BlobStore;
  accounts: Accounts;
  tokens: Tokens;
  feed: FeedContext;
  images: Images;
  upstreams: readonly Upstream[];
  entries: Entries;
  mirror: Mirror;
  packageMirror: PackageMirror;
  packageSource: PackageSource;
  packageSearch: MergedSearch;
  vulnerabilities: UpstreamVulnerabilities;
  emptyClaims: Record<'package' | 'container', EmptyClaims>;
  mirroredPackages: MirroredPackages;
  mirroredImages: MirroredImages;
  imageMirror: ImageMirror;
  imageSource: ImageSource;
  pushes: Pushes;
  jobs: Jobs;
  usage: UsageRecord;
  stored: StoredBytes;
  defaultAccount: Account;
  close(): Promise<void>;
}

type AppServer = Server<typeof IncomingMessage, typeof AppResponse>;

export interface RunningServer {
  core: Core;
  /** `http://host:port` as listened on. */
  url: string;
  /** The value of the first token, at the first start only. */
  firstToken: string | undefined;
  /** Takes a rejected promise that no code has caught: logs it, and answers the request that it belongs to with 500. */
  answerUnhandled(error: unknown): void;
  /** Stops taking requests, lets those under way end for up to `grace` milliseconds, and writes down what is pending. */
  close(grace?: number): Promise<void>;
}

/** Opens database and storage, migrates, and makes the account `default`. */
export async function openCore(config: Config, { now, log, proxy, driver: given }: Surroundings): Promise<Core> {
  const paths = new Paths(config.data);
  const driver = given ?? new FilesystemDriver(paths);
  const onRedis = (error: unknown) => log.warn({ err: error }, 'Redis is out of reach');
  const cache = await Cache.open(config.redis.url, now, onRedis, `entrepot-${installationOf(config)}`);
  const database = await openNamed(config, cache.changes).catch(async (error: unknown) => {
    await cache.close();
    throw error;
  });
  try {
    await migrate(database);
    const blobs = new BlobStore(database, driver, paths, now);
    await blobs.prepare().catch(namely('ENTREPOT_DATA', 'the data folder cannot be written'));
    const images = new Images(database, blobs, config.limits, now);
    const accounts = new Accounts(database, now);
    const tokens = new Tokens(database, now);
    const { account: defaultAccount } = await accounts.ensureDefault();
    const feed: FeedContext = { database, blobs, limits: config.limits, now };
    const entries = new Entries(database, cache, now);
    const room = new Room(config.data, config.storage.reserve);
    const { unreadRest, keepPartial } = config.mirror;
    const { accountFetches } = config.limits;
    const mirror = new Mirror({ blobs, entries, room, unreadRest, keepPartial, accountFetches, log, now });
    const upstreams = openUpstreams(config, { cache, log, now, proxy, meter: countFetched });
    const usage = new UsageRecord(database, now, { package: addDownloads, container: addPulls });
    const ofKind = (kind: Upstream['config']['kind']) => upstreams.filter((each) => each.config.kind === kind);
    const packageOrigin = new UpstreamPolicy(ofKind('nuget'), config.reserved.packages, config.merge.packages);
    const imageOrigin = new UpstreamPolicy(ofKind('registry'), config.reserved.containers);
    const packageMirror = new PackageMirror(mirror, packageOrigin, config.limits);
    const registrations = new UpstreamRegistrations(packageMirror);
    const packageSource = new PackageSource({ feed, mirror: packageMirror, registrations });
    const imageMirror = new ImageMirror(mirror, imageOrigin, config.limits);
    const imageSource = new ImageSource({ database, images, mirror: imageMirror, limits: config.limits, now });
    const collector = new Collector(database, driver);
    const scrubber = new Scrubber(database, driver, config.scrub.rate);
    const stored = new StoredBytes(database, defaultAccount.id, now);
    const vulnerabilities = new UpstreamVulnerabilities(packageMirror, log);
    const prefetch = {
      config,
      database,
      mirror,
      upstreams,
      packageMirror,
      packageSource,
      vulnerabilities,
      imageMirror,
      accountId: defaultAccount.id,
      now,
    };
    const { uploads } = images;
    const table = jobTable({ config, database, entries, uploads, collector, scrubber, stored, prefetch, log, now });
    const jobs = new Jobs({ runs: new Runs(database, now), jobs: table, log, now });
    return {
      config,
      database,
      blobs,
      accounts,
      tokens,
      feed,
      images,
      upstreams,
      entries,
      mirror,
      packageMirror,
      packageSource,
      packageSearch: new MergedSearch(database, packageSource, new UpstreamSearch(packageMirror, cache, log)),
      vulnerabilities,
      emptyClaims: {
        package: {
          list: (account, after, limit) => emptyPackageClaims(database, account, after, limit),
          release: (account, id) => releasePackageClaim(database, account, id),
        },
        container: {
          list: (account, after, limit) => emptyContainerClaims(database, account, after, limit),
          release: (account, name) => releaseContainerClaim(database, account, name),
        },
      },
      mirroredPackages: new MirroredPackages(database, packageMirror),
      mirroredImages: new MirroredImages(database, imageMirror),
      imageMirror,
      imageSource,
      pushes: new Pushes({ images, source: imageSource, mirror: imageMirror, log }),
      jobs,
      usage,
      stored,
      defaultAccount,
      close: async () => {
        await jobs.close();
        await tokens.flush();
        await images.close();
        for (const upstream of upstreams) upstream.close();
        await mirror.close();
        await entries.flushUses();
        await usage.close();
        await cache.close();
        await database.close();
      },
    };
  } catch (error) {
    await cache.close();
    await database.close();
    throw error;
  }
}

/** What tells this installation from others that use the same Redis: instances of one share their database. */
function installationOf({ data, database: { url } }: Config): string {
  return digestOf(url ?? data).slice('sha256:'.length, 'sha256:'.length + 12);
}

function openNamed({ data, database: { url } }: Config, changes: WriteSignal | undefined): Promise<Database> {
  const key = url === undefined ? 'ENTREPOT_DATA' : 'ENTREPOT_DATABASE_URL';
  const opening = openDatabase(url ?? `sqlite:${join(data, 'entrepot.db')}`, changes);
  return opening.catch(namely(key, 'the database cannot be opened'));
}

/** For `catch`: the same failure as one line that names the setting to look at. */
function namely(key: string, failure: string): (error: unknown) => never {
  return (error) => {
    throw new ConfigError(`${key}: ${failure}: ${(error as Error).message.split('\n', 1)[0]}`, { cause: error });
  };
}

/** Starts the service. Rejects, with one clear line, when a setting or a service it needs is not right. */
export async function startServer(config: Config, surroundings: Surroundings): Promise<RunningServer> {
  const { log } = surroundings;
  const core = await openCore(config, surroundings);
  const servers: AppServer[] = [];
  try {
    const firstToken = await core.tokens.bootstrap(core.defaultAccount.id, config.bootstrapToken);
    const authenticator = new Authenticator(
      [core.tokens],
      config.anonymousRead ? anonymous(core.defaultAccount) : undefined,
    );
    const urls = new Urls(config.server);
    const operations = new Operations(async () => {
      await core.database.get('SELECT 1 AS one');
      await core.blobs.check();
    });
    const { now } = surroundings;
    const quota = new Quota({ ...core, limits: config.limits, log, now });
    operations.gauge(
      'entrepot_account_limit_ratio',
      'What an account has used of a limit, 1 at the limit',
      ['account', 'limit'],
      () => [...quota.used].map(({ account, limit, ratio }) => [{ account, limit }, ratio]),
    );
    const shared = { authenticator, quota, urls, limits: config.limits, log };
    const interfaces: Interfaces = {
      api: createApi({
        ...shared,
        ...core,
        now,
      }),
      registry: createRegistry({ ...shared, images: core.images, source: core.imageSource, pushes: core.pushes }),
      token: createTokenEndpoint(authenticator, now),
      feed: createFeed({
        ...shared,
        feed: core.feed,
        mirror: core.packageMirror,
        source: core.packageSource,
        search: core.packageSearch,
        vulnerabilities: core.vulnerabilities,
        symbols: new UpstreamSymbols(core.mirror, core.packageSource, config.limits),
      }),
    };
    const { host, port: publicPort, adminPort } = config.server;
    const serve = async (served: Interfaces, port: number, key: string, amongWorkers = false) => {
      const app = createApp(config, served, { log, observe: operations, usage: core.usage, now });
      servers.push(await listen(app, host, port, key, amongWorkers));
    };
    const forOperators = { operations: operations.router };
    const all = adminPort === undefined ? { ...interfaces, ...forOperators } : interfaces;
    await serve(all, publicPort, 'ENTREPOT_PORT', config.server.workers > 1);
    if (adminPort !== undefined) await serve(forOperators, adminPort, 'ENTREPOT_ADMIN_PORT');
    const attempt = (work: Promise<unknown>, failure: string) => {
      work.catch((error: unknown) => log.warn({ err: error }, failure));
    };
    const chores = setInterval(() => {
      attempt(core.tokens.flush(), 'the last uses of tokens were not written');
      attempt(core.images.flush(), 'quiet uploads were not closed');
      attempt(core.usage.flush(), 'usage was not written; it is kept for the next time');
      attempt(core.entries.flushUses(), 'the last uses of mirrored content were not written');
    }, 5000);
    const reviews = setInterval(() => {
      attempt(quota.review(), 'the limits of accounts were not looked at');
    }, 600_000);
    core.jobs.start((...run) => operations.countJob(...run));
    const { port } = servers[0]!.address() as AddressInfo;
    return {
      core,
      url: `http://${config.server.host.includes(':') ? `[${config.server.host}]` : config.server.host}:${port}`,
      firstToken,
      answerUnhandled: (error) => answerUnhandled(log, error),
      close: async (grace = 10_000) => {
        clearInterval(chores);
        clearInterval(reviews);
        await Promise.all(servers.map((server) => drain(server, grace)));
        await core.close();
      },
    };
  } catch (error) {
    await Promise.all(servers.map((server) => drain(server, 0)));
    await core.close();
    throw error;
  }
}

function anonymous(account: Account): Principal {
  return {
    kind: 'anonymous',
    accountId: account.id,
    accountName: account.name,
    scopes: new Set(['read']),
    names: undefined,
  };
}

/**
 * No limit on a request's whole time, because an upload may take hours; silence is timed where bodies are read. With
 * `shared`, the system deals out the port's connections to the processes: where the first process hands them over, those
 * on their way to one that is killed are never answered.
 */
async function listen(
  listener: ReturnType<typeof createApp>,
  host: string,
  port: number,
  key: string,
  shared: boolean,
): Promise<AppServer> {
  const times = { requestTimeout: 0, keepAliveTimeout: 75_000, headersTimeout: 60_000 };
  const server = createHttpServer({ ...times, ServerResponse: AppResponse }, listener);
  const listening = new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host, reusePort: shared && platform() === 'linux' }, resolve);
  });
  await listening.catch((error: NodeJS.ErrnoException) => {
    const isPort = error.code === 'EADDRINUSE' || error.code === 'EACCES';
    return namely(isPort ? key : 'ENTREPOT_HOST', 'cannot listen')(error);
  });
  return server;
}

async function drain(server: AppServer, grace: number): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  const idle = setInterval(() => server.closeIdleConnections(), 50);
  const last = setTimeout(() => server.closeAllConnections(), grace);
  server.closeIdleConnections();
  await closed;
  clearInterval(idle);
  clearTimeout(last);
}
