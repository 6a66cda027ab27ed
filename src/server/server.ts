import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Api, createOperations } from '../api/operations.ts';
import type { PrefetchOperationParts } from '../api/prefetch/prefetch.ts';
import { createApi } from '../api/routes.ts';
import { createTokenExchange } from '../api/publishers/token-exchange.ts';
import type { Config } from '../config/schema.ts';
import { createConsole, visitors } from '../console/routes.ts';
import { choresOf } from './chores.ts';
import { createFirstToken } from './first-token.ts';
import { nameAddress, type ListenerKeys } from './listener-keys.ts';
import { authenticatorOf, countFailedSignIn, noteFailedSignIn, operatorsOnly } from './authenticator.ts';
import { openOperations } from './checks.ts';
import { type Surroundings } from './core.ts';
import { adminHostAdvice, adminHostOf } from './admin-host.ts';
import { Aliases } from '../http/aliases.ts';
import { answerUnhandled, createApp, type Mount } from '../http/app.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { connectionLimits } from '../http/limit.ts';
import { checkShared, closeGracefully, listen, type AppServer, type ListenOptions } from '../http/listener.ts';
import { currentResponse } from '../http/request-context.ts';
import type { SeesAccounts } from '../http/probes.ts';
import { Sending } from '../http/sending.ts';
import { authorityOf } from '../runtime/authority.ts';
import { Urls } from '../http/urls.ts';
import { othersHaveKey } from '../instances/agreement.ts';
import { openInstances } from '../instances/open.ts';
import { openBundleRuns, type OpenBundles } from '../bundle/runs/open.ts';
import { ImportRuns } from '../import/runs/import-runs.ts';
import { Chores } from '../jobs/repeated-work.ts';
import { openPrefetches } from '../jobs/open-prefetch.ts';
import { addMetrics, figuresOf } from './register-metrics.ts';
import { openOverview } from '../mirror/open.ts';
import type { MirrorOverview } from '../mirror/overview.ts';
import { type Web } from './protocol.ts';
import { openRequirements } from './preflight.ts';
import { openQuota } from './quota.ts';
import { Paths } from '../storage/files/paths.ts';
import { AllAccountsUse } from '../usage/all-accounts.ts';
import type { Quota } from '../usage/quota.ts';
import { ServerCertificate } from '../tls/certificate.ts';
import { allProtocols, inputs, openInstallation, type Installation } from './installation.ts';

const publicKeys: ListenerKeys = { host: 'ENTREPOT_HOST', port: 'ENTREPOT_PORT' };

export interface RunningServer {
  installation: Installation;
  /** `http://host:port` of the socket that listens, or `https://…` with TLS. */
  url: string;
  /** The value of the first token; only at the first start. */
  firstToken: string | undefined;
  /** Handles a promise rejection that no code has caught: logs it, and answers its request with 500. */
  answerUnhandled(error: unknown): void;
  /**
   * Turns readiness red, waits for `server.shutdownDelay`, accepts no more requests, and closes all parts. The delay and
   * the requests that are being answered get up to `grace` milliseconds together, `shutdownGrace` by default; the rest gets
   * `closingTimes` after them. Rejects if a part did not close.
   */
  close(grace?: number): Promise<void>;
  /** The names of the parts that are not closed. */
  readonly unclosed: readonly string[];
}

/** Starts the server. Rejects with one line if a setting is wrong or a service that it needs is unreachable. */
export async function startServer(
  config: Config,
  surroundings: Surroundings,
  protocols = allProtocols,
): Promise<RunningServer> {
  await using stack = new AsyncDisposableStack();
  const certificate = await ServerCertificate.open(config.server.tls, surroundings);
  const installation = stack.use(await openInstallation(config, surroundings, protocols));
  const { core, jobs } = installation;
  const { log, now, closing } = core;
  const requirements = await openRequirements(core, surroundings.requirementBounds);
  stack.defer(closing.part('the requirements', (milliseconds) => requirements.close(milliseconds)));
  await requirements.enforce();
  await installation.webhooks.checkKey();
  await core.unwritten.restore();
  for (const warning of core.identity.warnings) log.warn(warning);
  const isChosen = config.bootstrapToken !== undefined;
  const chosenToken = isChosen ? await createFirstToken(core) : undefined;
  const quota = openQuota(installation);
  const operations = openOperations(installation, quota, certificate, surroundings);
  const others = openInstances(core);
  installation.webhooks.observe(operations);
  addMetrics(operations, { ...installation, certificate }, stack);
  const authenticator = authenticatorOf(core, installation.takeover.adopted);
  const aliases = new Aliases(config.aliases);
  const observers = {
    aliases,
    log,
    observe: operations,
    usage: core.usage,
    failures: core.failures,
    uses: core.uses,
    checks: core.checks,
    limits: core.limits,
    sending: new Sending(),
    now,
  };
  const servers: AppServer[] = [];
  let grace = 0;
  stack.defer(async () => {
    await Promise.all(servers.map((server) => closeGracefully(server, grace)));
  });
  const serve = async (
    mounts: readonly Mount[],
    { host, port }: { host: string; port: number },
    keys: ListenerKeys,
    options: ListenOptions = {},
  ) => {
    const app = createApp(config, mounts, observers);
    const listening = listen(app, host, port, connectionLimits(config, core.limits), options);
    const server = await listening.catch(nameAddress(keys));
    servers.push(server);
    return server;
  };
  const { adminPort, workers } = config.server;
  const advice = adminHostAdvice(config.server);
  if (advice !== undefined) log.warn(advice);
  const kinds = installation.protocols.map((each) => each.upstreams);
  const overview = openOverview(core, kinds, () => operations.upstreams(), stack);
  const prefetches = openPrefetches({ ...core, inputs, protocols: installation.protocols });
  stack.defer(closing.part('the prefetches', () => prefetches.runs.close()));
  const bundles = openBundleRuns({ ...installation, inputs, folder: new Paths(config.data).bundles });
  stack.defer(closing.part('the bundles', () => bundles.runs.close()));
  const admit: ConstructorParameters<typeof ImportRuns>[0]['admit'] = (owner, bytes) =>
    quota.admit(owner, bytes, () => undefined);
  const imports = new ImportRuns({ ...core, protocols: installation.protocols, admit });
  stack.defer(closing.part('the imports', () => imports.close()));
  const mounts = mountAll(installation, authenticator, quota, {
    overview,
    prefetches,
    bundles,
    imports,
    relay: others.relay,
    aliases,
  });
  const forOperators = (seesAccounts: SeesAccounts): Mount[] => [
    { path: '/', router: operations.router(seesAccounts) },
  ];
  const relayed = installation.protocols.flatMap((each) => each.relayed?.(quota) ?? []);
  const internal = await others.join(surroundings.instanceName, relayed);
  if (internal) servers.push(internal);
  await requirements.agree();
  await installation.webhooks.useKey(othersHaveKey(core.instances.id, await core.instances.live()));
  const { http } = await serve(
    adminPort === undefined ? [...mounts, ...forOperators(operatorsOnly(authenticator))] : mounts,
    config.server,
    publicKeys,
    { shared: workers > 1, certificate },
  );
  if (adminPort !== undefined)
    await serve(
      forOperators(() => Promise.resolve(true)),
      { host: adminHostOf(config.server), port: adminPort },
      adminKeys(config.server),
    );
  // A made token is shown only once, so it is created when nothing more can stop the start.
  const firstToken = isChosen ? chosenToken : await createFirstToken(core);
  // Also those of processes that were killed, and of the first token.
  await core.events.dispatch();
  const chores = [
    ...choresOf(installation, quota, certificate),
    ...bundles.chores,
    ...overview.chores(() => figuresOf(core, 0)),
  ];
  stack.use(new Chores([...chores, ...requirements.chores], log));
  jobs.start((...run) => operations.countJob(...run));
  const { port } = http.address() as AddressInfo;
  const { host, shutdownDelay } = config.server;
  const rest = stack.move();
  return {
    installation,
    url: `${certificate ? 'https' : 'http'}://${authorityOf(host, port)}`,
    firstToken,
    answerUnhandled: (error) => answerUnhandled(log, error),
    close: async (time = config.shutdownGrace) => {
      const delay = Math.min(shutdownDelay, time);
      grace = time - delay;
      closing.limit(time);
      operations.shutDown();
      // The runs can end while requests are being answered. The part `jobs` reports a failure.
      jobs.close().catch(() => undefined);
      if (delay > 0) await sleep(delay);
      await rest.disposeAsync();
      if (closing.unclosed.length > 0) throw new Error(`closing: ${closing.unclosed.join(', ')} did not close`);
    },
    get unclosed() {
      return closing.unclosed;
    },
  };
}

/**
 * Rejects with `ConfigError` if workers cannot listen together on the ports of the settings. Call it before they start: each of them
 * would end because of that, again and again.
 */
export async function checkPorts(server: Config['server']): Promise<void> {
  await checkShared(server.host, server.port).catch(nameAddress(publicKeys));
  if (server.adminPort !== undefined)
    await checkShared(adminHostOf(server), server.adminPort).catch(nameAddress(adminKeys(server)));
}

function adminKeys({ adminHost }: Config['server']): ListenerKeys {
  return { host: adminHost === undefined ? 'ENTREPOT_HOST' : 'ENTREPOT_ADMIN_HOST', port: 'ENTREPOT_ADMIN_PORT' };
}

/** The mounts of all protocols and of `/v1`. */
function mountAll(
  {
    core,
    protocols: opened,
    stored,
    held,
    takeover,
    exposure,
    bills,
    promotions,
    jobs,
    webhooks,
    deleted,
  }: Installation,
  authenticator: Authenticator,
  quota: Quota,
  {
    overview,
    prefetches,
    bundles,
    imports,
    relay,
    aliases,
  }: {
    overview: MirrorOverview;
    prefetches: PrefetchOperationParts;
    bundles: OpenBundles;
    imports: ImportRuns;
    relay: Web['relay'];
    aliases: Aliases;
  },
): Mount[] {
  const { config, database, accounts, cookies, sessions, identity, log, now } = core;
  const { limits: clients } = core;
  const web = { authenticator, quota, urls: new Urls(config.server, aliases), relay, takeover };
  const { limits } = config;
  const operations = createOperations({
    ...core,
    urlsNow: () => web.urls.of(currentResponse()!.req),
    operations: opened.flatMap((each) => each.operations),
    searches: opened.flatMap((each) => each.searches),
    claims: opened,
    deleted,
    protocols: opened,
    held,
    exposure,
    bills,
    promotions,
    mirror: config.mirror,
    isAbsent: (key) => core.mirror.isAbsent(key),
    publishers: identity,
    jobs,
    webhooks,
    prefetches,
    bundles,
    imports,
    upstreams: { overview, use: new AllAccountsUse(database, () => accounts.list(), now), now },
    stored,
    limits,
  });
  const api = new Api(operations, quota);
  const visit = { ...web, sessions, clients, onRefused: () => noteFailedSignIn(core) };
  const visitorOf = config.console.enabled ? visitors(visit) : undefined;
  const router = createApi({ ...web, operations, visitorOf, limits, log });
  const consoleMounts = config.console.enabled
    ? createConsole({ ...visit, api, signIn: identity.signIn, cookies, limits, log, now })
    : [];
  const exchange = createTokenExchange({
    exchange: identity.exchange,
    limits,
    clients,
    onRefused: () => countFailedSignIn(core),
    log,
  });
  return [...opened.flatMap((each) => each.mount(web)), exchange, { path: '/v1', router }, ...consoleMounts];
}
