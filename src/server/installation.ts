import type { Config } from '../config/schema.ts';
import { openCore, type Core, type Surroundings } from './core.ts';
import { Jobs } from '../jobs/jobs.ts';
import { Runs } from '../jobs/runs.ts';
import { jobTable } from '../jobs/table.ts';
import { HeldReferences } from '../policy/held.ts';
import { PolicyTrial } from '../policy/trial.ts';
import { Promotions } from '../promotion/promotions.ts';
import { mirrorReferences } from '../mirror/store/references.ts';
import { nuget } from '../nuget/protocol.ts';
import { oci } from '../oci/protocol.ts';
import { Inputs } from '../prefetch/inputs.ts';
import { describeWith, versionReaders, type OpenProtocol, type Protocol } from './protocol.ts';
import { openQuota } from './quota.ts';
import { Collector } from '../storage/upkeep/collector.ts';
import { FilesWithoutRow } from '../storage/upkeep/files-without-row.ts';
import { References } from '../storage/blobs/references.ts';
import { Scrubber } from '../storage/upkeep/scrub.ts';
import { DeletedItems } from '../permanence/deleted.ts';
import { openExposure } from '../exposure/open.ts';
import type { Exposure } from '../exposure/exposure.ts';
import type { ObservedBills } from '../exposure/observed-bills.ts';
import { Takeover } from '../takeover/takeover.ts';
import type { QuotaOwner } from '../usage/quota.ts';
import { StorageMeter } from '../usage/stored.ts';
import { openWebhooks, type OpenWebhooks } from '../webhooks/open.ts';

/** All protocols of this server. */
export const allProtocols: readonly Protocol[] = [nuget, oci];

/** How all tables refer to blobs, for a place that is not opened as an installation. */
export function allReferences(): References {
  return new References([...allProtocols.map((each) => each.references), mirrorReferences([], new Map())]);
}

/** The files that can list what to prefetch. */
export const inputs = new Inputs(allProtocols.map((each) => each.inputs));

/** An installation without its HTTP server. Commands use it, also while a server runs. */
export interface Installation extends AsyncDisposable {
  readonly core: Core;
  readonly protocols: readonly OpenProtocol[];
  readonly describe: ReturnType<typeof describeWith>;
  readonly stored: StorageMeter;
  readonly held: HeldReferences;
  readonly trial: PolicyTrial;
  readonly takeover: Takeover;
  readonly exposure: Exposure;
  readonly bills: ObservedBills;
  readonly promotions: Promotions;
  readonly jobs: Jobs;
  readonly filesWithoutRow: FilesWithoutRow;
  readonly deleted: DeletedItems;
  readonly references: References;
  readonly webhooks: OpenWebhooks;
}

/** Opens the core, then each protocol on it. Closes everything in reverse order, also when this fails in the middle. */
export async function openInstallation(
  config: Config,
  surroundings: Surroundings,
  protocols = allProtocols,
): Promise<Installation> {
  await using stack = new AsyncDisposableStack();
  const downloads = Object.fromEntries(protocols.map((each) => [each.kind, each.addDownloads]));
  const hosted = protocols.map((each) => each.references);
  const tables = { downloads, references: hosted, ...versionReaders(protocols) };
  const core = await openCore(config, surroundings, tables, stack);
  const { database, driver, entries, upstreams, defaultAccount, log, now } = core;
  const opened = protocols.map((each) => each.open(core, stack));
  core.grants.share(opened.map((each) => each.names));
  const accounts = new Map((await core.accounts.list()).map(({ name, id }) => [name, id]));
  const references = new References([...hosted, mirrorReferences(upstreams, accounts)]);
  const rows = protocols.map((each) => each.rowBytes);
  const stored = new StorageMeter(database, { references, rows }, defaultAccount.id, now, core.blobs.added);
  const webhooks = openWebhooks({ ...core, receivers: surroundings.receivers });
  stack.defer(core.closing.part('the webhooks', (milliseconds) => webhooks.close(milliseconds)));
  const quota = openQuota({ core, protocols: opened, stored });
  const takeover = new Takeover({
    ...core,
    proxy: surroundings.proxy,
    offline: config.offline,
    protocols: opened,
    quota,
  });
  stack.defer(core.closing.part('the predecessors', () => takeover.close()));
  const contents = new Map(opened.flatMap(({ kind, deleted: each }) => (each ? [[kind, each] as const] : [])));
  const deleted = new DeletedItems(database, contents, now);
  const admit = (owner: QuotaOwner, bytes: number) => quota.requireRoom(owner, bytes, () => undefined);
  const exposure = openExposure(
    { ...core, admit, secrets: webhooks.secrets, keepPulls: config.usage.keepPulls },
    opened,
    versionReaders(protocols),
  );
  const promotions = new Promotions({
    ...core,
    rules: core.promotionRules,
    protocols: opened,
    admit,
  });
  const table = jobTable({
    config,
    database,
    entries,
    protocols: opened,
    collector: new Collector(database, driver, references, core.deletions),
    driver,
    scrubber: new Scrubber(database, core.damage, config.scrub.rate),
    stored,
    events: core.events,
    deliveredTo: () => webhooks.cursor(),
    deleted,
    listRefresh: core.listRefresh,
    waivers: core.waivers,
    exposure: (work) => exposure.job(work),
    promotions,
    takeover: (work) => takeover.walk(work),
    prefetch: { config, inputs, upstreams, protocols: opened, accountId: defaultAccount.id, now },
    log,
    now,
    deletionTime: core.deletionTime,
  });
  const jobs = new Jobs({ runs: new Runs(database, now, () => core.instances.processes), jobs: table, log, now });
  stack.defer(core.closing.part('the jobs', () => jobs.close()));
  const filesWithoutRow = new FilesWithoutRow(database, driver);
  const rest = stack.move();
  const held = new HeldReferences(core, opened);
  const trial = new PolicyTrial(core, opened);
  const describe = describeWith(opened);
  const parts = {
    core,
    protocols: opened,
    describe,
    stored,
    held,
    trial,
    takeover,
    exposure: exposure.exposure,
    bills: exposure.bills,
    promotions,
    jobs,
    filesWithoutRow,
    references,
    webhooks,
    deleted,
  };
  return { ...parts, [Symbol.asyncDispose]: () => rest.disposeAsync() };
}
