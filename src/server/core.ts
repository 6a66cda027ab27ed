import type { Logger } from 'pino';
import { Accounts, type Account } from '../accounts/accounts.ts';
import { Access } from '../accounts/access.ts';
import { CookieKey } from '../accounts/cookie-key.ts';
import { Grants } from '../accounts/grants.ts';
import { KnownPeople } from '../accounts/known-people.ts';
import { People } from '../accounts/people.ts';
import { PersonalTokenLimits } from '../accounts/personal-limits.ts';
import { Sessions } from '../accounts/sessions.ts';
import { Tokens } from '../accounts/tokens.ts';
import { Cache } from '../cache/cache.ts';
import { systemOrigin } from '../runtime/caller.ts';
import { deletionClock } from '../runtime/clock.ts';
import { Closing } from '../runtime/closing.ts';
import { inTime } from '../runtime/in-time.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { Digest } from '../runtime/digest.ts';
import type { NewEvent } from '../events/event.ts';
import { Events } from '../events/events.ts';
import { RepeatedEvents } from '../events/repeated.ts';
import type { HealthTimes } from '../http/health.ts';
import { limitMiss } from '../http/limit.ts';
import { countFetched } from '../http/request-context.ts';
import { openIdentity, type Identity } from '../identity/open.ts';
import type { RequirementBounds } from '../instances/agreement.ts';
import { folderIdentity } from '../instances/folder.ts';
import { Instances, type InstanceTimes } from '../instances/instances.ts';
import { addressKey } from '../limits/address.ts';
import { Limits } from '../limits/limits.ts';
import { Entries, type EntryKey } from '../mirror/store/entries.ts';
import type { ReportExchange } from '../metrics/report.ts';
import { Sightings } from '../mirror/store/sightings.ts';
import type { AffectedTest } from '../known-bad/entry.ts';
import { KnownBad } from '../known-bad/known-bad.ts';
import { ListRefresh } from '../known-bad/refresh.ts';
import { Withdrawals } from '../mirror/withdrawals.ts';
import { Mirror } from '../mirror/mirror.ts';
import { mirrorReferences } from '../mirror/store/references.ts';
import { BlobStore } from '../storage/blobs/blob-store.ts';
import { DamageCheck, examineWith } from '../storage/blobs/damage.ts';
import { localDisk } from '../storage/files/disk.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { checkPair } from '../storage/upkeep/identity.ts';
import { References, type BlobReferences } from '../storage/blobs/references.ts';
import { DiskReserve } from '../storage/files/disk-reserve.ts';
import { deletionTimes, type DeletionTimes } from '../storage/blobs/states.ts';
import type { ProxyEnvironment } from '../upstream/addresses.ts';
import { named, nameSides, nameStorage, openData, type DataSurroundings } from './place.ts';
import { Admission, type Judge } from '../mirror/policy/admission.ts';
import type { RangeReader } from '../policy/compile.ts';
import { FixesPass } from '../policy/fixes-pass.ts';
import { PolicyGate } from '../policy/gate.ts';
import { VerdictCache } from '../policy/kept-verdicts.ts';
import { PolicyRefusals } from '../policy/refusals.ts';
import { ListedNames } from '../policy/listed-names.ts';
import { Releases } from '../policy/releases.ts';
import { Policies } from '../policy/policies.ts';
import { WaivedNames } from '../policy/waived-names.ts';
import { Waivers } from '../policy/waivers.ts';
import { deletionWindow, Permanence } from '../permanence/permanence.ts';
import { PromotionRules } from '../promotion/rules.ts';
import { openUpstreams, readProxies } from '../upstream/configured.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { SubjectKind } from '../usage/counters.ts';
import { ClientChecks } from '../usage/client-checks.ts';
import { FailedRequests } from '../usage/failed-requests.ts';
import { TokenUses } from '../usage/token-uses.ts';
import { Pulls } from '../usage/pulls.ts';
import { UsageRecord, type AddDownloads } from '../usage/record.ts';
import { Unwritten } from '../usage/unwritten.ts';
import type { ReceiverOptions } from '../webhooks/open.ts';

// For commands.
export { runForSystem } from '../runtime/caller.ts';
export { inBackground } from '../database/time-limits.ts';

/** Dependencies from outside the program. Tests replace them. */
export interface Surroundings extends DataSurroundings {
  /** A monotonic clock in milliseconds. Without it, `now` is trusted also when it jumps. */
  watch?: (() => number) | undefined;
  requirementBounds?: RequirementBounds | undefined;
  /** Outgoing proxies. */
  proxy: ProxyEnvironment;
  /** Number of lines that the log could not write, and dropped. */
  droppedLines?: (() => number) | undefined;
  healthTimes?: HealthTimes | undefined;
  receivers?: ReceiverOptions | undefined;
  /** Milliseconds after which a search leaves out a slow upstream. */
  searchWait?: number | undefined;
  /** Hides and refuses content of upstreams. */
  judge?: Judge | undefined;
  /** Connects the metrics of the processes that serve one port; undefined for one process. */
  exchange?: ReportExchange | undefined;
  /** The name of this process among the instances; by default the host name. */
  instanceName?: string | undefined;
  instanceTimes?: Partial<InstanceTimes> | undefined;
}

/** How the protocols count downloads in their own tables. */
type CountDownloads = Partial<Record<SubjectKind, AddDownloads>>;

/** What the core needs of the protocols. */
interface ProtocolTables {
  /** They count downloads in the tables of protocols. */
  downloads: CountDownloads;
  /** How those tables refer to blobs. */
  references: readonly BlobReferences[];
  /** Reads ranges of versions in policies. */
  readRange: RangeReader;
  /** Compares versions with entries of lists of known bad content. */
  isAffected: AffectedTest;
}

/** The parts that all protocols share. */
export interface Core {
  readonly config: Config;
  readonly log: Logger;
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
  /** Milliseconds after which a search leaves out a slow upstream; undefined for the time of the product. */
  readonly searchWait: number | undefined;
  /** The same for deletions by age. See `deletionClock`. */
  readonly deletionTime: () => number;
  /** How unfinished deletions of bytes are taken over. */
  readonly deletions: DeletionTimes;
  /** How long a deletion of hosted content can be undone; milliseconds. */
  readonly deletedFor: number;
  readonly permanence: Permanence;
  /** Bounds the time for closing each part. */
  readonly closing: Closing;
  readonly cache: Cache;
  readonly database: Database;
  readonly driver: Driver;
  readonly blobs: BlobStore;
  readonly room: DiskReserve;
  readonly damage: DamageCheck;
  readonly instances: Instances;
  readonly accounts: Accounts;
  readonly defaultAccount: Account;
  readonly tokens: Tokens;
  readonly people: People;
  readonly grants: Grants;
  readonly knownPeople: KnownPeople;
  readonly access: Access;
  readonly personalLimits: PersonalTokenLimits;
  readonly cookies: CookieKey;
  readonly sessions: Sessions;
  readonly identity: Identity;
  readonly events: Events;
  readonly repeatedEvents: RepeatedEvents;
  readonly limits: Limits;
  readonly usage: UsageRecord;
  readonly pulls: Pulls;
  readonly failures: FailedRequests;
  readonly uses: TokenUses;
  readonly checks: ClientChecks;
  readonly unwritten: Unwritten;
  readonly entries: Entries;
  readonly mirror: Mirror;
  readonly admission: Admission;
  readonly sightings: Sightings;
  readonly policies: Policies;
  readonly gate: PolicyGate;
  readonly refusals: PolicyRefusals;
  readonly releases: Releases;
  readonly waivers: Waivers;
  readonly promotionRules: PromotionRules;
  readonly knownBad: KnownBad;
  readonly listed: ListedNames;
  readonly listRefresh: ListRefresh;
  readonly upstreams: readonly Upstream[];
}

/**
 * Opens the database and the storage, migrates, checks that they belong together, and creates the account `default`.
 * `stack` closes everything that was opened, also when this fails in the middle.
 */
export async function openCore(
  config: Config,
  surroundings: Surroundings,
  { downloads, references, readRange, isAffected }: ProtocolTables,
  stack: AsyncDisposableStack,
): Promise<Core> {
  const { now, watch, log, proxy } = surroundings;
  const { closing, paths, cache, database, driver } = await openData(config, surroundings, stack);
  // Who pays for mirrored content does not matter here, so the upstreams and accounts are left out.
  const damage = new DamageCheck(database, driver, new References([...references, mirrorReferences([], new Map())]));
  const { disk = localDisk } = surroundings;
  const room = new DiskReserve(config.data, config.storage.reserve, (path) => disk.free(path), logRoom(log));
  const folder = await folderIdentity(paths.folderId).catch(named('ENTREPOT_DATA', 'the data folder cannot be used'));
  const instances = new Instances(database, folder, log, surroundings.instanceTimes);
  // A request to another machine may be in progress after its process has ended.
  const times: DeletionTimes = { ...deletionTimes, ...(!driver.isRemote && { processes: () => instances.processes }) };
  // A command reads what it carries once, often beside a server.
  const smallBytes = surroundings.command ? 4 * 2 ** 20 : undefined;
  const examine = examineWith(damage, log);
  const blobs = new BlobStore(database, driver, paths, now, { times, examine, disk, room, smallBytes });
  await blobs.prepare().catch(nameStorage);
  await checkPair(database, driver).catch(nameSides(config, driver));
  stack.defer(closing.part('the instance', (milliseconds) => instances.leave(milliseconds)));
  const accounts = new Accounts(database, now);
  const { account: defaultAccount } = await accounts.ensureDefault();
  const grants = new Grants({ database, accounts, now }, config.signIn.oidc.issuer);
  const people = new People({ database, accounts, grants, now }, config.signIn.oidc, config.signIn.tokens);
  const tokens = new Tokens(database, now, { people, grants });
  const cookies = new CookieKey(database);
  const sessions = new Sessions(database, { tokens, people, cookies }, config.signIn.session, now);
  const identity = await openIdentity({ config, database, accounts, tokens, people, proxy, log, now, watch });
  stack.defer(closing.part('the issuers', () => identity.close()));
  const events = new Events(database, (id) => accounts.nameOf(id));
  const repeatedEvents = new RepeatedEvents(database, now, addressKey);
  // Closed after all that note events.
  stack.defer(closing.part('the events', (milliseconds) => writeLast(repeatedEvents, milliseconds, log)));
  const limits = new Limits({ settings: config.limits, cache, events: repeatedEvents, now: watch ?? now });
  const pulls = new Pulls(database, config.usage.keepPulls);
  const usage = new UsageRecord(database, now, downloads, pulls);
  const failures = new FailedRequests(database, now, offlineIn(config));
  const uses = new TokenUses(database, now);
  const checks = new ClientChecks(database, now);
  const unwritten = new Unwritten({ usage, tokens, folder: paths.unwritten, log });
  // The mirror is closed before this, because its fetches count their bytes when they end.
  stack.defer(closing.part('usage', (milliseconds) => unwritten.close(milliseconds)));
  const entries = new Entries(database, cache, now);
  stack.defer(closing.part('the uses of mirrored content', () => entries.flushUses()));
  const { unreadRest, keepPartial } = config.mirror;
  const { accountFetches } = config.limits;
  const onMismatch = ({ upstream, kind, name, reference }: EntryKey, expected: Digest, received: Digest) =>
    repeatedEvents.note({
      type: 'upstream.digest_mismatch',
      ...aboutUpstream(upstream),
      details: { kind, name, reference, expected, received },
    });
  const admit = () => limitMiss(limits);
  const bounds = { unreadRest, keepPartial, accountFetches, admit };
  const withdrawals = new Withdrawals(database, log, now);
  const mirror = new Mirror({ blobs, entries, withdrawals, room, ...bounds, onMismatch, log, now });
  stack.defer(closing.part('the mirror', () => mirror.close()));
  const onChange = (id: string, state: 'opened' | 'closed', reason: string) =>
    repeatedEvents.note(
      { type: `upstream.${state}`, ...aboutUpstream(id), details: { reason: reason.slice(0, 500) } },
      systemOrigin(null),
    );
  const upstreams = openUpstreams(config, { cache, log, now, proxy, meter: countFetched, onChange });
  const accountName = (id: number) => accounts.nameOf(id);
  const policies = new Policies({ database, readRange, accountName, now });
  const lists = () => policies.lists();
  const knownBad = new KnownBad(database, lists);
  const listRefresh = new ListRefresh({
    database,
    lists,
    stage: (bytes) => blobs.stageHosted(bytes),
    proxy: readProxies(proxy),
    offline: config.offline,
    isAffected,
    log,
    now,
  });
  for (const upstream of upstreams) {
    const unknown = await unknownAccounts(accounts, upstream);
    if (unknown.length > 0) {
      log.warn({ upstream: upstream.id, accounts: unknown }, 'an upstream names accounts that do not exist');
    }
  }
  // Closed before the mirror, whose fetches end when their upstreams are closed.
  const closeUpstreams = () => {
    for (const upstream of upstreams) upstream.close();
  };
  stack.defer(closing.part('the upstreams', closeUpstreams));
  const listed = new ListedNames(knownBad, isAffected);
  const waivers = new Waivers({ database, readRange, now, longest: config.waivers.longest });
  const waived = new WaivedNames(waivers, readRange);
  const releases = new Releases(database, now);
  const fixesPass = new FixesPass(releases);
  const kept = new VerdictCache(database);
  const refusals = new PolicyRefusals((event) => repeatedEvents.note(event));
  const gate = new PolicyGate({ policies, listed, waived, fixesPass, kept, refusals, accountName, now });
  const knownPeople = new KnownPeople(database, people, now);
  const personalLimits = new PersonalTokenLimits(database, people, now);
  return {
    config,
    log,
    now,
    searchWait: surroundings.searchWait,
    deletionTime: watch ? deletionClock(now, watch) : now,
    deletions: times,
    deletedFor: await deletionWindow(database, config.deletedFor),
    permanence: new Permanence(database, now),
    closing,
    cache,
    database,
    driver,
    blobs,
    room,
    damage,
    instances,
    accounts,
    defaultAccount,
    tokens,
    people,
    grants,
    knownPeople,
    personalLimits,
    access: new Access({ grants, people, knownPeople, personalLimits, tokens, now }),
    cookies,
    sessions,
    identity,
    events,
    repeatedEvents,
    limits,
    usage,
    pulls,
    failures,
    uses,
    checks,
    unwritten,
    entries,
    mirror,
    admission: new Admission(surroundings.judge ?? gate.judge),
    sightings: new Sightings(database, now),
    policies,
    gate,
    refusals,
    releases,
    waivers,
    promotionRules: new PromotionRules(database, now),
    knownBad,
    listed,
    listRefresh,
    upstreams,
  };
}

function logRoom(log: Logger): (isFull: boolean) => void {
  return (isFull) => {
    if (isFull) log.warn('the disk has less free space than the setting storage.reserve: uploads are refused with 507');
    else log.info('the disk has free space again: uploads are accepted');
  };
}

/** An event about an upstream concerns no account. */
function aboutUpstream(id: string): Pick<NewEvent, 'accountId' | 'subject'> {
  return { accountId: 0, subject: { kind: 'upstream', name: id } };
}

/** Writes the events that are in memory. If that fails they are lost, which the log says. */
async function writeLast(repeated: RepeatedEvents, milliseconds: number, log: Logger): Promise<void> {
  await inTime(() => repeated.flush(true), milliseconds).catch((error: unknown) =>
    log.warn({ err: error }, 'the last repeated events, such as failed sign-ins, were not written'),
  );
}

/** The accounts that an upstream is limited to and that do not exist. */
export async function unknownAccounts(accounts: Accounts, { config }: Upstream): Promise<string[]> {
  const unknown: string[] = [];
  for (const name of config.accounts ?? []) if (!(await accounts.named(name))) unknown.push(name);
  return unknown;
}

/** The names of the upstreams that are never asked. */
function offlineIn({ upstreams, offline }: Config): string[] {
  return upstreams.filter(({ mode }) => offline || mode === 'offline').map(({ name }) => name);
}
