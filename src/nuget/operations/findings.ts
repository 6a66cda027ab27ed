import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { entryNames } from '../../mirror/store/listing.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { placeholders } from '../../database/database.ts';
import { Collected } from '../../runtime/collected.ts';
import { parseRange, satisfies, type VersionRange } from '../format/range.ts';
import { parseVersion, versionKey } from '../format/version.ts';
import { severities } from '../../mirror/policy/severities.ts';
import { listAdvisories, maxOfAccount } from '../hosted/advisories.ts';
import { deprecatedVersions } from '../hosted/deprecations.ts';
import type { FeedContext } from '../hosted/feed-context.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { listVersions } from '../hosted/summary.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import type { MirroredPackages } from '../upstream/mirrored-packages.ts';
import type { StoredRegistrations } from '../upstream/stored-registrations.ts';
import { maxAdvisories, readAdvisories } from '../upstream/known-advisories.ts';

/** A version with a known vulnerability, or a deprecated one. */
export interface Finding {
  key: string;
  id: string;
  version: string;
  /** The name of the upstream of a mirrored version; null for a hosted one. */
  upstream: string | null;
  /** The highest first; `severity` is an index of `severities`. */
  vulnerabilities: readonly { severity: number; url: string }[];
  isDeprecated: boolean;
}

/** The findings of an account. */
export interface FindingsOfAccount {
  /** By package key, then by version. */
  byPackage: ReadonlyMap<string, ReadonlyMap<string, Finding>>;
  /** Whether the vulnerability data of all upstreams is in it, and what all stored registrations say. */
  isComplete: boolean;
}

/** What is warned of in a list: the highest severity of the versions, and whether one is deprecated. */
interface Marks {
  severity: (typeof severities)[number] | null;
  deprecated: boolean;
}

/** How long findings are used at least before they are collected again; milliseconds. Meanwhile the old ones are shown. */
const freshFor = 10_000;
/** Accounts whose findings are in memory. */
const maxAccounts = 100;
/** Most versions of a hosted package that are compared with its advisories, the newest. */
const maxVersions = 10_000;
const atATime = 500;
/** Most vulnerabilities of a package that are read. */
const maxVulnerabilities = 100;

const unknown: FindingsOfAccount = { byPackage: new Map(), isComplete: false };

interface FindingsParts {
  feed: FeedContext;
  mirrored: MirroredPackages;
  views: FeedViews;
  registrations: StoredRegistrations;
}

/** The hosted and stored versions that are vulnerable or deprecated. */
export class Findings {
  readonly #parts: FindingsParts;
  readonly #known: Collected<number, FindingsOfAccount>;

  constructor(parts: FindingsParts) {
    this.#parts = parts;
    this.#known = new Collected({
      collect: (accountId) => this.#collect(accountId),
      maxSize: maxAccounts,
      freshFor,
    });
  }

  /** The findings of an account: those of a moment ago, if they were collected before. */
  of(accountId: number): Promise<FindingsOfAccount> {
    return this.#known.of(accountId);
  }

  /** As `of`; none if they are not collected within `milliseconds`. Those of upstreams may have to be fetched. */
  async within(milliseconds: number, accountId: number): Promise<FindingsOfAccount> {
    return (await this.#known.within(milliseconds, accountId)) ?? unknown;
  }

  /** Those of the last time; none if they were not collected yet. Asks no upstream. */
  known(accountId: number): FindingsOfAccount {
    return this.#known.last(accountId) ?? unknown;
  }

  async #collect(accountId: number): Promise<FindingsOfAccount> {
    const found = new FoundVersions();
    await this.#addHosted(accountId, found);
    const areWarned = await this.#addMirrored(accountId, found);
    const areRead = await this.#addDeprecated(accountId, found);
    return { byPackage: found.byPackage, isComplete: areWarned && areRead };
  }

  async #addHosted(accountId: number, found: FoundVersions): Promise<void> {
    const { database } = this.#parts.feed;
    const advisories = await listAdvisories(database, accountId, maxOfAccount, undefined);
    for (const [id, known] of Map.groupBy(advisories, ({ packageId }) => packageId)) {
      const ranges = known.map((each) => ({ ...each, range: parseRange(each.versions)! }));
      const read = (after: string | undefined) => listVersions(database, accountId, id, atATime, after).catch(() => []);
      let count = 0;
      for await (const page of pagesOf(undefined as string | undefined, atATime, read, ({ order }) => order)) {
        for (const { version } of page) {
          const vulnerabilities = matching(ranges, version);
          if (vulnerabilities.length > 0) found.warn(id, version, null, vulnerabilities);
        }
        count += page.length;
        if (count >= maxVersions) break;
        await pause();
      }
    }
    for await (const { id, version } of deprecatedVersions(database, accountId)) {
      found.at(id, version, null).isDeprecated = true;
    }
  }

  /** Resolves to whether all upstreams gave their data. */
  async #addMirrored(accountId: number, found: FoundVersions): Promise<boolean> {
    const { mirror, vulnerabilities } = await this.#parts.views.of(accountId);
    let isComplete = true;
    try {
      for (const { upstream, name } of await vulnerabilities.pages()) {
        const page = await vulnerabilities.page(upstream, name);
        let some = new Map<string, string>();
        const addSome = async () => {
          isComplete = (await this.#addAmong(accountId, some, mirror.origin.idsIfLimited, found)) && isComplete;
          some = new Map();
          await pause();
        };
        for (const [id, list] of page?.value ?? []) {
          some.set(packageKey(id), list);
          if (some.size === atATime) await addSome();
        }
        if (some.size > 0) await addSome();
      }
    } catch (error) {
      if (!isUpstreamFailure(error)) throw error;
      isComplete = false;
    }
    return isComplete;
  }

  /** Resolves to whether all stored registrations are read. */
  async #addDeprecated(accountId: number, found: FoundVersions): Promise<boolean> {
    const { mirror } = await this.#parts.views.of(accountId);
    const { all, idsIfLimited } = mirror.origin;
    const nameOf = new Map(all.map(({ id, name }) => [id, name]));
    return this.#parts.registrations.deprecated(idsIfLimited, async ({ name, upstream, versions }) => {
      const stored = await this.#parts.mirrored.stored(accountId, name);
      if (!stored || stored.upstream !== nameOf.get(upstream)) return;
      for (const { version } of stored.versions) {
        if (versions.has(keyOfVersion(version)!)) found.at(stored.id, version, stored.upstream).isDeprecated = true;
      }
    });
  }

  /** Adds those of the packages in `lists` that are stored. Resolves to whether no list is too long. */
  async #addAmong(
    accountId: number,
    lists: ReadonlyMap<string, string>,
    upstreams: readonly string[] | undefined,
    found: FoundVersions,
  ): Promise<boolean> {
    const keys = [...lists.keys()];
    const among = { sql: `name IN (${placeholders(keys)})`, values: keys };
    const stored = await entryNames(this.#parts.feed.database, { kind: 'nupkg', upstreams, among }, '', atATime);
    const short = stored.filter((key) => lists.get(key)!.length <= maxAdvisories);
    for (const key of short) await this.#addStored(accountId, key, lists.get(key)!, found);
    return short.length === stored.length;
  }

  async #addStored(accountId: number, key: string, list: string, found: FoundVersions): Promise<void> {
    const ranges = readAdvisories(list).slice(0, maxVulnerabilities);
    const stored = await this.#parts.mirrored.stored(accountId, key);
    for (const { version } of stored?.versions ?? []) {
      const vulnerabilities = matching(ranges, version);
      if (vulnerabilities.length === 0) continue;
      found.warn(stored!.id, version, stored!.upstream, vulnerabilities);
    }
  }
}

/** The known vulnerabilities of a version, which is a key. */
export function vulnerabilitiesOf(
  known: FindingsOfAccount | undefined,
  id: string,
  versionKey: string,
): Finding['vulnerabilities'] {
  const versions = [...(known?.byPackage.get(packageKey(id))?.values() ?? [])];
  return versions.find(({ version }) => keyOfVersion(version) === versionKey)?.vulnerabilities ?? [];
}

/** What is warned of at one version. */
export function marksOfVersion({ byPackage }: FindingsOfAccount, id: string, version: string): Marks {
  const found = byPackage.get(packageKey(id))?.get(version);
  return marksOf(found ? [found] : []);
}

/**
 * What is warned of at the lowest version of a range, which NuGet chooses for a dependency, by the findings that `isKnown` has.
 * Nothing for a range without a lowest version.
 */
export function marksOfRange(
  { byPackage }: FindingsOfAccount,
  id: string,
  text: string,
  isKnown: (finding: Finding) => boolean,
): Marks {
  const found = byPackage.get(packageKey(id));
  const range = found && parseRange(text);
  if (!range?.min || !range.minInclusive) return marksOf([]);
  const lowest = versionKey(range.min);
  return marksOf([...found!.values()].filter((each) => keyOfVersion(each.version) === lowest && isKnown(each)));
}

/** What is warned of at the versions of a package. */
export function marksOfPackage({ byPackage }: FindingsOfAccount, id: string): Marks {
  return marksOf([...(byPackage.get(packageKey(id))?.values() ?? [])]);
}

function marksOf(findings: readonly Finding[]): Marks {
  const highest = Math.max(-1, ...findings.map(({ vulnerabilities: [first] }) => first?.severity ?? -1));
  return { severity: severities[highest] ?? null, deprecated: findings.some(({ isDeprecated }) => isDeprecated) };
}

type Growing = Finding & { vulnerabilities: { severity: number; url: string }[] };

class FoundVersions {
  readonly byPackage = new Map<string, Map<string, Growing>>();

  /** The finding of a version, which is made if it is new. */
  at(id: string, version: string, upstream: string | null): Growing {
    const key = packageKey(id);
    const versions = this.byPackage.get(key) ?? new Map<string, Growing>();
    this.byPackage.set(key, versions);
    const finding = versions.get(version) ?? { key, id, version, upstream, vulnerabilities: [], isDeprecated: false };
    versions.set(version, finding);
    return finding;
  }

  /** Adds vulnerabilities of a version; an upstream can have others on another page. */
  warn(id: string, version: string, upstream: string | null, more: Finding['vulnerabilities']): void {
    const { vulnerabilities } = this.at(id, version, upstream);
    vulnerabilities.push(...more);
    vulnerabilities.sort((one, other) => other.severity - one.severity);
  }
}

function matching(
  ranges: readonly { range: VersionRange; severity: number; url: string }[],
  version: string,
): { severity: number; url: string }[] {
  const parsed = parseVersion(version)!;
  const found = ranges.filter(({ range }) => satisfies(range, parsed));
  return found.map(({ severity, url }) => ({ severity, url }));
}
