import { pause } from '../../runtime/event-loop.ts';
import { unusable } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { notAsked } from '../../mirror/stored-only.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { urlBelow } from '../../upstream/url.ts';
import {
  fitIndex,
  inlineBelow,
  paged,
  RangeSize,
  rangeTooLong,
  rangeVersions,
  type RegisteredPage,
  type RegisteredVersion,
  type SizedVersion,
} from '../format/pages.ts';
import { withVersions } from '../format/merge.ts';
import { compareVersions, parseVersion, type Version } from '../format/version.ts';
import { keyOfVersion } from '../hosted/packages.ts';
import type { DocumentReading } from './documents.ts';
import { addressIn, type Owner, type PackageMirror, type UpstreamDocument } from './package-mirror.ts';
import { pageReference } from './reading/registration.ts';
import {
  pagesIn,
  registeredOf,
  versionsIn,
  withKept,
  type ListedPage,
  type ListedVersion,
} from './registration-pages.ts';

/** Types of hives with SemVer 2 versions, and without. The first type that an upstream has is used. */
const hives = {
  semVer2: ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'],
  semVer1: ['RegistrationsBaseUrl/3.4.0'],
};
/** Those without SemVer 2 versions that every server has. */
const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];

/** The types of hives with SemVer 2 versions, then the others. */
export const hiveTypes = [...hives.semVer2, ...plain];

/** Most pages that are fetched from an upstream for one answer; each is its own document. */
const maxTouched = 32;

/**
 * Registrations of upstream packages, converted to the feed's own form, so that documents contain no address of the
 * upstream. A page is fetched when a client requests it.
 */
export class UpstreamRegistrations {
  readonly #packages: PackageMirror;

  constructor(packages: PackageMirror) {
    this.#packages = packages;
  }

  /**
   * The pages of an id's registration. They contain their versions if the upstream's index does and they are few. A
   * page of the upstream that is too long for this feed is split into several.
   */
  async pages(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<RegisteredPage[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    // The bounds of a page are versions, too.
    const isLimited = await this.#packages.isLimited(owner.upstream, key);
    const pages: (RegisteredPage & { versions?: readonly ListedVersion[] })[] = [];
    let fetched = 0;
    for (const page of index.value) {
      const { lower, upper, count } = page;
      const isOpen = !isLimited && !page.kept;
      if (isOpen && !page.versions && (count <= rangeVersions || (fetched += 1) > maxTouched)) {
        pages.push({ lower, upper, count });
        continue;
      }
      const versions = await this.#versions(owner, key, semVer2, page);
      const [first, last] = [versions[0], versions.at(-1)];
      if (!first || !last) continue;
      const bounds = !isOpen ? { lower: first.version, upper: last.version } : { lower, upper };
      pages.push({ ...bounds, count: versions.length, versions });
    }
    if (pages.length === 0) return undefined;
    const value: RegisteredPage[] = [];
    const count = pages.reduce((sum, { versions }) => sum + (versions?.length ?? 0), 0);
    const fit = count < inlineBelow && fitIndex(pages.flatMap(({ versions = [] }) => versions));
    for (const { lower, upper, count, versions } of pages) {
      await pause();
      if (!versions) value.push({ lower, upper, count });
      else if (fit) value.push({ lower, upper, count, items: versions.map(registeredOf) });
      else value.push(...paged(versions));
    }
    return { outcome: index.outcome, value };
  }

  /**
   * The versions from `lower` to `upper`, both included, from the pages that contain them. Throws `Invalid` if they are
   * more than a page can contain.
   */
  async versions(
    owner: Owner,
    key: string,
    semVer2: boolean,
    lower: Version | undefined,
    upper: Version | undefined,
  ): Promise<UpstreamDocument<RegisteredVersion[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    const touched = index.value.filter(
      ({ first, last }) =>
        !((upper && compareVersions(first, upper) > 0) || (lower && compareVersions(last, lower) < 0)),
    );
    if (touched.length > maxTouched) throw rangeTooLong();
    const size = new RangeSize();
    const found: RegisteredVersion[] = [];
    for (const page of touched) {
      const versions = await this.#versions(owner, key, semVer2, page);
      for (let at = lower ? firstFrom(versions, lower) : 0; at < versions.length; at += 1) {
        const version = versions[at]!;
        if (upper && compareVersions(parseVersion(version.version)!, upper) > 0) break;
        size.add(version);
        found.push(registeredOf(version));
        await pause();
      }
    }
    return { outcome: index.outcome, value: found };
  }

  /** All versions, without their metadata. */
  async sizes(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<SizedVersion[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    const sizes: SizedVersion[] = [];
    for (const page of index.value) {
      for (const version of await this.#versions(owner, key, semVer2, page)) sizes.push(version);
      await pause();
    }
    return { outcome: index.outcome, value: sizes };
  }

  /** The SHA-512, in Base64, of a version's nupkg from a stored registration. The upstream is not asked. */
  async storedHash({ upstream }: Owner, key: string, version: string): Promise<string | undefined> {
    const parsed = parseVersion(version);
    for (const semVer2 of [true, false]) {
      try {
        const found = await this.versions({ upstream, silence: notAsked }, key, semVer2, parsed, parsed);
        const hash = found?.value[0]?.sha512;
        if (hash !== undefined) return hash;
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
      }
    }
    return undefined;
  }

  /** The pages of the upstream, with the stored versions that it does not offer any more. */
  async #index(
    owner: Owner,
    key: string,
    semVer2: boolean,
  ): Promise<UpstreamDocument<readonly ListedPage[]> | undefined> {
    const index = await this.index(owner, key, semVer2);
    const { withdrawn } = this.#packages;
    const hasPages = index !== undefined && index.value.length > 0;
    // An upstream that lacks the whole registration is asked for its list of versions, which says what it does not offer.
    const versions = hasPages
      ? await withdrawn.keys(owner.upstream, key)
      : await this.#packages.keptVersions(owner, key);
    const kept = await withdrawn.registered(owner.upstream, key, versions, semVer2);
    if (kept.length === 0) return index;
    return { outcome: hasPages ? index.outcome : 'withdrawn', value: await withKept(index?.value ?? [], kept) };
  }

  /** Whether an upstream has registrations at all. */
  async areOffered(upstream: Upstream): Promise<boolean> {
    const resources = await this.#packages.resources(upstream);
    return hiveTypes.some((type) => resources.has(type));
  }

  /** The pages of an id as the upstream has them, with versions that lists do not show. */
  index(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<readonly ListedPage[]> | undefined> {
    const locate = async () => urlBelow(await this.#hive(owner, semVer2), key, 'index.json');
    const reading = this.#reading(owner, key, semVer2, true, pagesIn);
    return this.#packages.document(owner, hiveName(semVer2), key, 'index', locate, reading);
  }

  /** All versions of a page, also those that lists do not show. */
  async allVersions(owner: Owner, key: string, semVer2: boolean, page: ListedPage): Promise<readonly ListedVersion[]> {
    if (page.versions) return page.versions;
    const document = await this.#packages.document(
      owner,
      hiveName(semVer2),
      key,
      pageReference(page),
      () => addressIn(owner.upstream, page.address),
      this.#reading(owner, key, semVer2, false, versionsIn),
    );
    // The index names this page, so "not found" is a failure of the upstream: the versions exist.
    if (!document) throw unusable(owner.upstream, `has no page that its registration of ${key} names`);
    return document.value;
  }

  /** A version, also one that lists do not show; undefined if the upstream's registration lacks it. */
  async unfiltered(owner: Owner, key: string, version: string): Promise<ListedVersion | undefined> {
    const wanted = parseVersion(version)!;
    const index = await this.index(owner, key, true);
    for (const page of index?.value ?? []) {
      if (compareVersions(page.first, wanted) > 0 || compareVersions(page.last, wanted) < 0) continue;
      const versions = await this.allVersions(owner, key, true, page);
      const found = versions[firstFrom(versions, wanted)];
      if (found && keyOfVersion(found.version) === version) return found;
    }
    return undefined;
  }

  /** Whether the upstream shows a version in lists; undefined if no stored registration says it. The upstream is not asked. */
  async isListed({ upstream }: Owner, key: string, version: string): Promise<boolean | undefined> {
    const found = await unlessUpstreamFails(() => this.unfiltered({ upstream, silence: notAsked }, key, version));
    return found && registeredOf(found).listed;
  }

  /** The versions of a page that lists show. */
  async #versions(owner: Owner, key: string, semVer2: boolean, page: ListedPage): Promise<readonly ListedVersion[]> {
    const offered = await this.allVersions(owner, key, semVer2, page);
    const versions = page.kept ? await withVersions(offered, page.kept, ({ version }) => version) : offered;
    return this.#packages.listed(owner.upstream, key, versions, ({ version }) => keyOfVersion(version) ?? version);
  }

  #reading<T>(
    { upstream }: Owner,
    key: string,
    semVer2: boolean,
    index: boolean,
    make: DocumentReading<T>['make'],
  ): DocumentReading<T, 'registration'> {
    const options = async () => {
      const flat = await this.#packages.flat(upstream);
      return { index, key, semVer2, base: upstream.base.href, flat };
    };
    return { kind: 'registration', options, make };
  }

  async #hive({ upstream }: Owner, semVer2: boolean): Promise<string> {
    const types = semVer2 ? hiveTypes : [...hives.semVer1, ...plain, ...hives.semVer2];
    return this.#packages.resource(upstream, types);
  }
}

/** The position of the first version from `lower` on; the versions are in order. */
function firstFrom(versions: readonly ListedVersion[], lower: Version): number {
  let [start, end] = [0, versions.length];
  while (start < end) {
    const middle = (start + end) >> 1;
    if (compareVersions(parseVersion(versions[middle]!.version)!, lower) < 0) start = middle + 1;
    else end = middle;
  }
  return start;
}

function hiveName(semVer2: boolean): string {
  return semVer2 ? 'registration-semver2' : 'registration';
}
