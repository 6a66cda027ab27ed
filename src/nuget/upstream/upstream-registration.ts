import { unusable } from '../../mirror/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { urlBelow } from '../../upstream/url.ts';
import { bytesOfMetadata } from '../format/metadata.ts';
import { packageKey } from '../hosted/packages.ts';
import {
  fitIndex,
  paged,
  RangeSize,
  rangeTooLong,
  rangeVersions,
  type RegisteredPage,
  type RegisteredVersion,
  type SizedVersion,
} from '../format/pages.ts';
import { metadataIn, objectOf, ownLinks, textOf, type Json, type OwnLinks } from './upstream-metadata.ts';
import {
  addressIn,
  isList,
  mostListed,
  type Owner,
  type PackageMirror,
  type UpstreamDocument,
} from './package-mirror.ts';
import { compareVersions, fullString, isSemVer2, normalize, parseVersion, type Version } from '../format/version.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';

/** Types of hives with SemVer 2 versions, and without. The first type that an upstream has is used. */
const hives = {
  semVer2: ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'],
  semVer1: ['RegistrationsBaseUrl/3.4.0'],
};
const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];

/** Most pages that are fetched from an upstream for one answer; each is its own document. */
const mostTouched = 32;
/** Most pages that are fetched to list all versions of a merged package. */
const mostPages = 2000;

/** Used to read only stored documents: a hash is not worth a request to the upstream. */
const notAsked = new UpstreamError('UpstreamUnavailable', 'No upstream was asked.');

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
    const read = await this.#reader(owner, key, semVer2);
    const pages: RegisteredPage[] = [];
    let fetched = 0;
    for (const page of pagesOf(index.value)) {
      const { lower, upper, json } = page;
      const count = typeof json['count'] === 'number' ? json['count'] : 0;
      if (!Array.isArray(json['items']) && (count <= rangeVersions || (fetched += 1) > mostTouched)) {
        pages.push({ lower, upper, count });
        continue;
      }
      const items = read(await this.#items(owner, key, semVer2, page));
      if (items.length > 0) pages.push({ lower, upper, count: items.length, items });
    }
    if (pages.length === 0) return undefined;
    const fit = fitIndex(pages.flatMap(({ items = [] }) => items));
    const value = fit ? pages : pages.flatMap((page) => (page.items ? paged(page.items) : [page]));
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
    const read = await this.#reader(owner, key, semVer2);
    const isWithin = (version: Version) =>
      (!lower || compareVersions(version, lower) >= 0) && (!upper || compareVersions(version, upper) <= 0);
    const touched = pagesOf(index.value).filter((page) => {
      const [first, last] = [parseVersion(page.lower)!, parseVersion(page.upper)!];
      return !((upper && compareVersions(first, upper) > 0) || (lower && compareVersions(last, lower) < 0));
    });
    if (touched.length > mostTouched) throw rangeTooLong();
    const size = new RangeSize();
    const found: RegisteredVersion[] = [];
    for (const page of touched) {
      for (const each of read(await this.#items(owner, key, semVer2, page), isWithin)) {
        size.add(each);
        found.push(each);
      }
    }
    return { outcome: index.outcome, value: found };
  }

  /** All versions, without their metadata. */
  async sizes(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<SizedVersion[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    const read = await this.#reader(owner, key, semVer2);
    const pages = pagesOf(index.value);
    if (pages.length > mostPages) throw unusable(owner.upstream, `has a registration of ${key} with too many pages`);
    const sizes: SizedVersion[] = [];
    for (const page of pages) {
      const versions = read(await this.#items(owner, key, semVer2, page));
      sizes.push(...versions.map(({ version, bytes }) => ({ version, bytes })));
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

  #index(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<Json> | undefined> {
    return this.#packages.document<Json>(
      owner,
      hiveName(semVer2),
      key,
      'index',
      async () => urlBelow(await this.#hive(owner, semVer2), key, 'index.json'),
      isIndex,
    );
  }

  async #items(owner: Owner, key: string, semVer2: boolean, page: Page): Promise<unknown[]> {
    if (Array.isArray(page.json['items'])) return page.json['items'];
    const document = await this.#packages.document<{ items: unknown[] }>(
      owner,
      hiveName(semVer2),
      key,
      `page/${page.lower}/${page.upper}`.toLowerCase(),
      () => addressIn(owner.upstream, page.json['@id']),
      (each) => isList((each as Json)['items']),
    );
    // The index names this page, so "not found" is a failure of the upstream: the versions exist.
    if (!document) throw unusable(owner.upstream, `has no page that its registration of ${key} names`);
    return document.value.items;
  }

  async #hive({ upstream }: Owner, semVer2: boolean): Promise<string> {
    const types = semVer2 ? [...hives.semVer2, ...plain] : [...hives.semVer1, ...plain, ...hives.semVer2];
    return this.#packages.resource(upstream, types);
  }

  /** Makes a reader that converts the leaves of `key`'s registration to versions, in order. */
  async #reader({ upstream }: Owner, key: string, semVer2: boolean): Promise<Reader> {
    const own = ownLinks(upstream.base, await this.#packages.flat(upstream));
    return (items, filter = () => true) => {
      const versions: [Version, RegisteredVersion][] = [];
      for (const item of items) {
        const entry = objectOf(objectOf(item)['catalogEntry']);
        const version = parseVersion(textOf(entry['version']) ?? '');
        if (!version || packageKey(textOf(entry['id']) ?? '') !== key || (!semVer2 && isSemVer2(version))) continue;
        if (filter(version)) versions.push([version, registered(entry, version, own)]);
      }
      return versions.sort(([a], [b]) => compareVersions(a, b)).map(([, each]) => each);
    };
  }
}

type Reader = (items: readonly unknown[], filter?: (version: Version) => boolean) => RegisteredVersion[];

interface Page {
  /** Normalised. */
  lower: string;
  upper: string;
  json: Json;
}

/** Whether a document is an index with at most `mostListed` pages, and as many versions in them. */
function isIndex(document: object): boolean {
  const { items } = document as Json;
  if (!isList(items)) return false;
  const inside = items.map((page) => objectOf(page)['items']);
  return inside.reduce<number>((sum, each) => sum + (Array.isArray(each) ? each.length : 0), 0) <= mostListed;
}

function hiveName(semVer2: boolean): string {
  return semVer2 ? 'registration-semver2' : 'registration';
}

/** The valid pages of an index. */
function pagesOf(index: Json): Page[] {
  return (index['items'] as unknown[]).flatMap((each) => {
    const json = objectOf(each);
    const [lower, upper] = [parseVersion(textOf(json['lower']) ?? ''), parseVersion(textOf(json['upper']) ?? '')];
    if (!lower || !upper || (!Array.isArray(json['items']) && typeof json['@id'] !== 'string')) return [];
    return [{ lower: normalize(lower), upper: normalize(upper), json }];
  });
}

function registered(entry: Json, version: Version, own: OwnLinks): RegisteredVersion {
  const published = textOf(entry['published']) ?? '';
  const time = Date.parse(published);
  const isKnown = !Number.isNaN(time);
  const metadata = metadataIn(entry, own);
  const sha512 = entry['packageHashAlgorithm'] === 'SHA512' ? textOf(entry['packageHash']) : undefined;
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    listed: entry['listed'] !== false && !published.startsWith('1900-'),
    publishedAt: isKnown ? time : 0,
    ...(isKnown && { published }),
    ...(sha512 !== undefined && { sha512 }),
    hasIcon: own.isFlat(entry['iconUrl']),
    hasReadme: textOf(entry['readmeUrl']) !== undefined,
    bytes: bytesOfMetadata(metadata),
    metadata,
  };
}
