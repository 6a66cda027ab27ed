import { pluralOf } from '../config/protocols.ts';
import { packageComponent } from '../runtime/cyclonedx.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import { Router } from 'express';
import { noAccount } from '../accounts/principal.ts';
import type { NameSet } from '../accounts/names.ts';
import type { Core } from '../server/core.ts';
import type { RepeatedWork } from '../jobs/repeated-work.ts';
import type { Work } from '../jobs/jobs.ts';
import type { Counts } from '../jobs/runs.ts';
import { Admission, noJudge } from '../mirror/policy/admission.ts';
import type { MirrorReader } from '../mirror/stored-only.ts';
import { AccountViews } from '../mirror/policy/account-views.ts';
import { UpstreamPolicy, type NameStory } from '../mirror/policy/upstream-policy.ts';
import type { OpenProtocol, PrivateNames, Protocol, Web } from '../server/protocol.ts';
import { baseOf } from '../upstream/configured.ts';
import { carriedPackages } from './hosted/carried.ts';
import { claimedAmong, packageClaims } from './hosted/claims.ts';
import { deletedVersions } from './hosted/deletion.ts';
import { addDownloads } from './hosted/downloads.ts';
import type { FeedContext } from './hosted/feed-context.ts';
import { packageReferences, packageRowBytes } from './hosted/references.ts';
import { retainPackages } from './hosted/retention.ts';
import { packageNotices } from './hosted/notices.ts';
import { promotablePackages } from './hosted/promotable.ts';
import { largestPackages, listPackages } from './hosted/summary.ts';
import { packageChanges } from './operations/change-operations.ts';
import { isPackageId } from './format/nuspec.ts';
import { keyOfVersion, packageKey } from './hosted/packages.ts';
import { firstPublished } from './hosted/versions.ts';
import { findingOperations } from './operations/finding-operations.ts';
import { Findings } from './operations/findings.ts';
import { packageOperations } from './operations/management.ts';
import { versionFileOperations } from './operations/version-files.ts';
import { packageSearches } from './operations/search-sources.ts';
import { noticeOperations } from './operations/management-deprecation.ts';
import { publishOperation } from './operations/publish-operation.ts';
import { createPastFeed, pastFeedPath } from './feed/past-routes.ts';
import { createFeed } from './feed/routes.ts';
import { otherFeedPaths, wrongAddress } from './feed/wrong-address.ts';
import { PackageSource } from './source/package-source.ts';
import { versionTest } from './format/range.ts';
import { PastPackages } from './source/past-packages.ts';
import { comparePackages, exportPackages, importPackages } from './import/sources.ts';
import { packageInputs } from './prefetch/inputs.ts';
import { packageMeaning } from './prefetch/item-meaning.ts';
import { plainPackages } from './prefetch/plain.ts';
import { prefetchPackages } from './prefetch/packages.ts';
import { MergedSearch } from './source/merged-search.ts';
import { Reindexing } from './search/reindex.ts';
import { MirroredPackages } from './upstream/mirrored-packages.ts';
import { describePackageEntry, packageEntries } from './upstream/entries.ts';
import type { FeedViews } from './upstream/feed-view.ts';
import { datesOf } from './upstream/package-dates.ts';
import type { PackageGate } from './upstream/package-gate.ts';
import { PackageMirror } from './upstream/package-mirror.ts';
import { partsOfStored, storedLists } from './upstream/stored-lists.ts';
import { StoredRegistrations } from './upstream/stored-registrations.ts';
import { UpstreamRegistrations } from './upstream/upstream-registration.ts';
import { UpstreamSearch, type SearchesUnderWay } from './upstream/upstream-search.ts';
import { isAffected } from './upstream/affected.ts';
import { siblingsOf } from './upstream/fixes.ts';
import { KnownAdvisories } from './upstream/known-advisories.ts';
import { NamedAdvisories } from './upstream/name-advisories.ts';
import { UpstreamSymbols } from './source/symbols.ts';
import { UpstreamVulnerabilities } from './upstream/upstream-vulnerabilities.ts';

/** NuGet V3: the package feed under `/v3`. */
export const nuget: Protocol = {
  kind: 'package',
  references: packageReferences,
  rowBytes: packageRowBytes,
  addDownloads,
  inputs: packageInputs,
  readRange: versionTest,
  isAffected,
  open: (core, stack) => {
    const feed = new PackageFeed(core);
    stack.defer(() => feed.reindexing.close());
    return feed;
  },
};

/** The package feed on an open core. */
export class PackageFeed implements OpenProtocol {
  readonly kind = 'package';
  readonly component = (id: string, version: string) => packageComponent(id, version);
  readonly jobs = [];
  readonly source: PackageSource;
  readonly #core: Core;
  readonly #context: FeedContext;
  readonly views: FeedViews;
  readonly reindexing: Reindexing;
  readonly #storedViews: FeedViews;
  readonly #viewsOver: (mirror: MirrorReader) => FeedViews;
  /** What a policy holds or denies is compared, too. */
  readonly #comparedViews: FeedViews;
  readonly #mirrored: MirroredPackages;
  readonly #past: PastPackages;
  readonly #policy: UpstreamPolicy;
  readonly #findings: Findings;

  constructor(core: Core) {
    const { config, database, blobs, accounts, cache, mirror, admission, sightings, upstreams, log, now } = core;
    const { limits, reserved, merge } = config;
    const ours = upstreams.filter((each) => each.config.kind === this.upstreams.kind);
    this.#core = core;
    this.#context = { database, blobs, limits, now, deletedFor: core.deletedFor };
    this.reindexing = new Reindexing(database);
    const policyOf = (account?: string) =>
      new UpstreamPolicy(ours, account, reserved[pluralOf(this.kind)] ?? [], merge.packages);
    // Anonymous readers of mirrored content have no hosted packages, and the upstreams of the default account.
    const nameOf = async (accountId: number) =>
      accountId === noAccount ? core.defaultAccount.name : (await accounts.get(accountId))?.name;
    const viewsWith = (admitting: Admission, isStoredOnly = false, reader: MirrorReader = mirror) => {
      const searches: SearchesUnderWay = new Map();
      return new AccountViews(ours, nameOf, (account, accountId) => {
        const dates: PackageGate['datesOf'] = (owner, key, settled) =>
          datesOf(packages, registrations, owner, key, settled);
        const advisoriesOf = (key: string) => advisories.of(key);
        const siblings: PackageGate['siblingsOf'] = (...asked) => siblingsOf(registrations, ...asked);
        const gate = {
          admission: admitting,
          sightings,
          accountId,
          datesOf: dates,
          advisoriesOf,
          siblingsOf: siblings,
        };
        const parts = isStoredOnly ? partsOfStored(mirror, gate) : { mirror: reader, gate };
        const packages = new PackageMirror(parts.mirror, policyOf(account), parts.gate, limits);
        const registrations = new UpstreamRegistrations(packages);
        const vulnerabilities = new UpstreamVulnerabilities(packages);
        const advisories = new KnownAdvisories(vulnerabilities);
        return {
          mirror: packages,
          registrations,
          search: new UpstreamSearch(packages, cache, searches, log, core.searchWait),
          vulnerabilities,
          advisories,
        };
      });
    };
    this.#viewsOver = (reader) => viewsWith(new Admission(noJudge), false, reader);
    this.#comparedViews = this.#viewsOver(mirror);
    this.views = viewsWith(admission);
    this.#storedViews = viewsWith(admission, true);
    const registrations = new StoredRegistrations(this.#context);
    this.#mirrored = new MirroredPackages(database, this.views, registrations, now);
    this.#findings = new Findings({
      feed: this.#context,
      mirrored: this.#mirrored,
      views: this.views,
      registrations,
    });
    const policy = policyOf();
    this.#policy = policy;
    const sourceWith = (views: FeedViews, until?: number) => {
      const parts = { feed: this.#context, views, policy, ...(until !== undefined && { until }) };
      return new PackageSource({ ...parts, hostedOnly: new PackageSource({ ...parts, isHostedOnly: true }) });
    };
    this.source = sourceWith(this.views);
    this.#past = new PastPackages({
      feed: this.#context,
      source: this.source,
      views: this.views,
      open: (until, judge) => sourceWith(viewsWith(new Admission(admission.and(judge))), until),
    });
  }

  mount(web: Web) {
    const { config, database, mirror, admission, log } = this.#core;
    const parts = {
      ...web,
      feed: this.#context,
      views: this.views,
      source: this.source,
      search: new MergedSearch(database, this.source, this.views),
      symbols: new UpstreamSymbols(mirror, this.source, admission, config.limits),
      log,
    };
    const elsewhere = Router().use(wrongAddress(web.urls));
    return [
      { path: '/v3', router: createFeed(parts) },
      { path: pastFeedPath, router: createPastFeed(parts, this.#past) },
      ...otherFeedPaths.map((path) => ({ path, router: elsewhere })),
    ];
  }

  get operations() {
    const findings = this.#findings;
    const described = packageOperations({
      feed: this.#context,
      mirrored: this.#mirrored,
      source: this.source,
      views: this.views,
      findings,
    });
    const publishing = { feed: this.#context, views: this.views, log: this.#core.log };
    const changes = [...noticeOperations(this.#context), ...packageChanges(this.#context, findings)];
    return [
      ...changes,
      ...findingOperations(findings, this.#core),
      ...described,
      ...versionFileOperations({ feed: this.#context, mirrored: this.#mirrored }),
      publishOperation(publishing),
    ];
  }

  get searches() {
    return packageSearches(this.#context, this.#mirrored, this.#findings);
  }

  get claims() {
    const { database, now } = this.#core;
    return packageClaims(database, now);
  }

  get deleted() {
    return deletedVersions(this.#context);
  }

  get names() {
    return {
      kind: this.kind,
      hostedAs: async (accountId: number, id: string) =>
        (await this.source.revisionOf(accountId, id)) === undefined ? undefined : packageKey(id),
      mirroredAmong: async (accountId: number, only: NameSet, limit: number) =>
        (await this.#mirrored.list(accountId, limit, undefined, only)).map(({ id }) => id),
    };
  }

  get stored() {
    return storedLists(this.#core.database, this.#storedViews, this.views);
  }

  get carried() {
    return carriedPackages(this.#context, this.#mirroredFrom);
  }

  get advisories() {
    return new NamedAdvisories(this.#core.database, this.views);
  }

  usedName(_accountId: number, id: string): Promise<string> {
    if (!isPackageId(id))
      throw new DomainError('Invalid', `${id.slice(0, 100)}: expected a package ID, such as Contoso.Core`);
    return Promise.resolve(packageKey(id));
  }

  get promotable() {
    return promotablePackages(this.#context, this.#mirroredFrom);
  }

  /** The upstream that a first push takes an id over from. */
  readonly #mirroredFrom = async (accountId: number, id: string): Promise<string | undefined> => {
    const isClaimed = (await claimedAmong(this.#core.database, accountId, [id])).size > 0;
    return isClaimed ? undefined : (await this.views.of(accountId)).mirror.mirroredFrom(id);
  };

  get notices() {
    return packageNotices(this.#context);
  }

  get chores(): RepeatedWork[] {
    return [
      { interval: 5000, run: () => this.reindexing.run(), failure: 'packages were not indexed for search again' },
    ];
  }

  async retain(work: Work): Promise<Counts> {
    const { config, database, deletedFor, now } = this.#core;
    const { packages, protect } = config.retention;
    const { keepVersions } = packages;
    if (keepVersions === undefined) return {};
    return retainPackages(database, { ...work, now: now(), keepVersions, protect, deletedFor });
  }

  prefetch(...asked: Parameters<OpenProtocol['prefetch']>): Promise<void> {
    const { database, mirror } = this.#core;
    const parts = {
      database,
      mirror,
      views: this.views,
      packageSource: this.source,
    };
    return prefetchPackages(parts, ...asked);
  }

  async wantedLine(accountId: number, id: string, version: string): Promise<string | undefined> {
    const { mirror } = await this.views.of(accountId);
    if (!isPackageId(id) || mirror.origin.candidates(id).length === 0) return undefined;
    if (version === '') return (await mirror.mirroredFrom(id)) === undefined ? `${id}@*` : undefined;
    const key = keyOfVersion(version);
    return key === undefined || (await mirror.storedAt(id, key)) ? undefined : `${id}@${key}`;
  }

  async *plainEntries(...[source, options]: Parameters<NonNullable<OpenProtocol['plainEntries']>>) {
    yield* plainPackages(this.#core.mirror, await this.views.of(options.accountId), source, options);
  }

  importFrom(...[source, options]: Parameters<NonNullable<OpenProtocol['importFrom']>>) {
    return importPackages({ feed: this.#context, views: this.#comparedViews }, source, options);
  }

  exportTo(...asked: Parameters<NonNullable<OpenProtocol['exportTo']>>) {
    return exportPackages(this.#context, ...asked);
  }

  compare(...asked: Parameters<NonNullable<OpenProtocol['compare']>>) {
    return comparePackages({ feed: this.#context, views: this.#comparedViews }, ...asked);
  }

  async holds(accountId: number, id: string, version?: string): Promise<boolean> {
    const { database } = this.#core;
    return (await firstPublished(database, accountId, id, version && keyOfVersion(version))) !== undefined;
  }

  prefetchOver(mirror: MirrorReader) {
    const views = this.#viewsOver(mirror);
    const source = new PackageSource({ feed: this.#context, views, policy: this.#policy });
    const parts = { database: this.#core.database, mirror, views, packageSource: source };
    return { prefetch: (...asked: Parameters<OpenProtocol['prefetch']>) => prefetchPackages(parts, ...asked) };
  }

  async meaningOf(...[accountId, item]: Parameters<NonNullable<OpenProtocol['meaningOf']>>) {
    return packageMeaning((await this.views.of(accountId)).mirror, item);
  }

  readonly upstreams = {
    kind: 'nuget',
    entries: packageEntries,
    probe: ({ config }) => baseOf(config),
    consequence: async ({ id }) => {
      const index = { upstream: id, kind: 'vulnerability-index', name: '' };
      const [known] = await this.#core.mirror.references(index, 1);
      return known === undefined ? 'audits of packages go without its vulnerability data' : undefined;
    },
    describe: (upstream, key, attributes) => describePackageEntry(upstream, key, attributes, this.#core.config.limits),
    saysDates: async (upstream) => (await this.views.of(noAccount)).registrations.areOffered(upstream),
  } satisfies OpenProtocol['upstreams'];

  async explain(accountId: number, id: string): Promise<NameStory> {
    if (!isPackageId(id)) throw new DomainError('Invalid', 'name: expected a package ID, such as Contoso.Core');
    const { mirror, registrations } = await this.views.of(accountId);
    const { origin } = mirror;
    const isHosted = (await claimedAmong(this.#core.database, accountId, [id])).size > 0;
    const { reservedBy, upstreams } = origin.explain(id);
    const isKept = isHosted && !origin.isMerged(id);
    return {
      isHosted,
      reservedBy,
      upstreams: upstreams.map((each) => (isKept && each.rule === 'asked' ? { ...each, rule: 'hosted' } : each)),
      spellings: [packageKey(id)],
      nameThere: packageKey(id),
      document: { kind: 'flat', reference: '' },
      policyName: isKept || origin.candidates(id).length === 0 ? undefined : packageKey(id),
      referenceTo: async (text) => {
        const reference = keyOfVersion(text);
        const owner = isKept || reference === undefined ? undefined : await mirror.owner(id);
        if (!owner) return undefined;
        const key = packageKey(id);
        const isListed = () => registrations.isListed(owner, key, reference!);
        return { name: mirror.nameOf(owner.upstream, key), reference: reference!, isListed };
      },
    };
  }

  largest(accountId: number, limit: number) {
    return largestPackages(this.#core.database, accountId, limit);
  }

  get privateNames(): PrivateNames {
    return {
      setting: 'packages',
      separator: '.',
      isAsked: this.#core.upstreams.some(({ config }) => config.kind === this.upstreams.kind),
      hosted: () => this.#hostedNames(),
      isMirrored: async (prefix) => {
        const [next] = await this.#mirrored.list(this.#core.defaultAccount.id, 1, prefix.toLowerCase());
        return next?.key.startsWith(prefix.toLowerCase()) ?? false;
      },
    };
  }

  async *#hostedNames(): AsyncGenerator<string> {
    const { accounts, database } = this.#core;
    for (const { id: accountId } of await accounts.list()) {
      const { mirror } = await this.views.of(accountId);
      const read = (after: string) => listPackages(database, accountId, namesAtATime, after);
      for await (const page of pagesOf('', namesAtATime, read, ({ key }) => key))
        for (const { id } of page) if (mirror.origin.candidates(id).length > 0) yield id;
    }
  }
}

const namesAtATime = 200;
