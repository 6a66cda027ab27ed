import { createServer as createHttpServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { platform } from 'node:os';
import type { Account } from './accounts/accounts.ts';
import type { Principal } from './accounts/principal.ts';
import { createApi } from './api/routes.ts';
import type { Config } from './config/schema.ts';
import { named, openCore, type Core, type Surroundings } from './core.ts';
import { answerUnhandled, createApp, type Mount } from './http/app.ts';
import { Authenticator } from './http/authenticate.ts';
import { Operations } from './http/operations.ts';
import { AppResponse } from './http/request-context.ts';
import { Urls } from './http/urls.ts';
import { Chores, type Chore } from './jobs/chores.ts';
import { Jobs } from './jobs/jobs.ts';
import { Runs } from './jobs/runs.ts';
import { jobTable } from './jobs/table.ts';
import { mirrorReferences } from './mirror/references.ts';
import { nuget } from './nuget/protocol.ts';
import { oci } from './oci/protocol.ts';
import { Inputs } from './prefetch/inputs.ts';
import type { OpenProtocol, Protocol } from './protocol.ts';
import { Collector } from './storage/collector.ts';
import { References } from './storage/references.ts';
import { Scrubber } from './storage/scrub.ts';
import { Quota } from './usage/quota.ts';
import { StoredBytes } from './usage/stored.ts';

/** Every protocol that this server speaks. */
export const protocols: readonly Protocol[] = [nuget, oci];

/** The files that name what to prefetch. */
export const inputs = new Inputs(protocols.map((each) => each.inputs));

/** An installation without the network: what the command line works with, also beside a running server. */
export interface Installation extends AsyncDisposable {
  readonly core: Core;
  readonly protocols: readonly OpenProtocol[];
  readonly stored: StoredBytes;
  readonly jobs: Jobs;
}

/** Opens the core, then each protocol on it. What it opened is closed in reverse order, also when opening fails. */
export async function openInstallation(config: Config, surroundings: Surroundings): Promise<Installation> {
  await using stack = new AsyncDisposableStack();
  const downloads = Object.fromEntries(protocols.map((each) => [each.kind, each.addDownloads]));
  const core = await openCore(config, surroundings, downloads, stack);
  const { database, driver, entries, upstreams, defaultAccount, log, now } = core;
  const opened = protocols.map((each) => each.open(core, stack));
  const references = new References([...protocols.map((each) => each.references), mirrorReferences]);
  const rows = protocols.map((each) => each.rowBytes);
  const stored = new StoredBytes(database, { references, rows }, defaultAccount.id, now);
  const table = jobTable({
    config,
    database,
    entries,
    protocols: opened,
    collector: new Collector(database, driver, references),
    scrubber: new Scrubber(database, driver, references, config.scrub.rate),
    stored,
    prefetch: { config, inputs, upstreams, protocols: opened, accountId: defaultAccount.id, now },
    log,
    now,
  });
  const jobs = stack.adopt(new Jobs({ runs: new Runs(database, now), jobs: table, log, now }), (each) => each.close());
  const rest = stack.move();
  return { core, protocols: opened, stored, jobs, [Symbol.asyncDispose]: () => rest.disposeAsync() };
}

type AppServer = Server<typeof IncomingMessage, typeof AppResponse>;

export interface RunningServer {
  installation: Installation;
  /** `http://host:port` as listened on. */
  url: string;
  /** The value of the first token, at the first start only. */
  firstToken: string | undefined;
  /** Takes a rejected promise that no code has caught: logs it, and answers the request that it belongs to with 500. */
  answerUnhandled(error: unknown): void;
  /** Stops taking requests, lets those under way end for up to `grace` milliseconds, and writes down what is pending. */
  close(grace?: number): Promise<void>;
}

/** Starts the service. Rejects, with one clear line, when a setting or a service it needs is not right. */
export async function startServer(config: Config, surroundings: Surroundings): Promise<RunningServer> {
  await using stack = new AsyncDisposableStack();
  const installation = stack.use(await openInstallation(config, surroundings));
  const { core, jobs } = installation;
  const { log, now } = core;
  const firstToken = await core.tokens.bootstrap(core.defaultAccount.id, config.bootstrapToken);
  const quota = new Quota({
    database: core.database,
    stored: installation.stored,
    limits: config.limits,
    unfinished: (accountId) => unfinishedBytes(installation, accountId),
    log,
    now,
  });
  const operations = openOperations(core, quota);
  const observers = { log, observe: operations, usage: core.usage, now };
  const servers: AppServer[] = [];
  let grace = 0;
  stack.defer(async () => {
    await Promise.all(servers.map((server) => drain(server, grace)));
  });
  const serve = async (mounts: readonly Mount[], port: number, key: string, amongWorkers = false) => {
    const app = createApp(config, mounts, observers);
    servers.push(await listen(app, config.server.host, port, key, amongWorkers));
  };
  const { port: publicPort, adminPort, workers } = config.server;
  const forOperators: Mount[] = [{ path: '/', router: operations.router }];
  const mounts = mountAll(installation, quota);
  await serve(
    adminPort === undefined ? [...mounts, ...forOperators] : mounts,
    publicPort,
    'ENTREPOT_PORT',
    workers > 1,
  );
  if (adminPort !== undefined) await serve(forOperators, adminPort, 'ENTREPOT_ADMIN_PORT');
  stack.use(new Chores(choresOf(installation, quota), log));
  jobs.start((...run) => operations.countJob(...run));
  const { port } = servers[0]!.address() as AddressInfo;
  const { host } = config.server;
  const rest = stack.move();
  return {
    installation,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    firstToken,
    answerUnhandled: (error) => answerUnhandled(log, error),
    close: (some = 10_000) => {
      grace = some;
      return rest.disposeAsync();
    },
  };
}

async function unfinishedBytes({ protocols: opened }: Installation, accountId: number): Promise<number> {
  let bytes = 0;
  for (const each of opened) bytes += (await each.unfinishedBytes?.(accountId)) ?? 0;
  return bytes;
}

/** The protocols and `/v1`, as they are served together. */
function mountAll({ core, protocols: opened, stored }: Installation, quota: Quota): Mount[] {
  const { config, database, accounts, tokens, usage, defaultAccount, log, now } = core;
  const anonymous = config.anonymousRead ? anonymousOf(defaultAccount) : undefined;
  const web = { authenticator: new Authenticator([tokens], anonymous), quota, urls: new Urls(config.server) };
  const api = createApi({
    ...web,
    operations: opened.flatMap((each) => each.operations),
    database,
    accounts,
    tokens,
    usage,
    stored,
    limits: config.limits,
    log,
    now,
  });
  return [...opened.flatMap((each) => each.mount(web)), { path: '/v1', router: api }];
}

function openOperations({ database, blobs }: Core, quota: Quota): Operations {
  const operations = new Operations(async () => {
    await database.get('SELECT 1 AS one');
    await blobs.check();
  });
  operations.gauge(
    'entrepot_account_limit_ratio',
    'What an account has used of a limit, 1 at the limit',
    ['account', 'limit'],
    () => [...quota.used].map(({ account, limit, ratio }) => [{ account, limit }, ratio]),
  );
  return operations;
}

function choresOf({ core: { tokens, usage, entries }, protocols: opened }: Installation, quota: Quota): Chore[] {
  const soon = 5000;
  return [
    { interval: soon, run: () => tokens.flush(), failure: 'the last uses of tokens were not written' },
    { interval: soon, run: () => usage.flush(), failure: 'usage was not written; it is kept for the next time' },
    {
      interval: soon,
      run: () => entries.flushUses(),
      failure: 'the last uses of mirrored content were not written',
    },
    { interval: 600_000, run: () => quota.review(), failure: 'the limits of accounts were not checked' },
    ...opened.flatMap((each) => each.chores ?? []),
  ];
}

function anonymousOf(account: Account): Principal {
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
    return named(isPort ? key : 'ENTREPOT_HOST', 'cannot listen')(error);
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
