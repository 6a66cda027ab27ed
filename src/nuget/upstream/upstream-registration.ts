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

/** The hives with SemVer 2 versions, then those without; the first that an upstream has is read. */
const hives = {
  semVer2: ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'],
  semVer1: ['RegistrationsBaseUrl/3.4.0'],
};
const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];

/** Pages of an upstream that are read for one answer, each with a document of its own. */
const mostTouched = 32;
/** Pages that are read to find all versions of a merged package. */
const mostPages = 2000;

/** What is looked up on the way to something else is not worth asking anybody for. */
const notAsked = new UpstreamError('UpstreamUnavailable', 'Nobody was asked.');

/**
 * Registrations of upstream packages in the feed's own shapes, so that what is served is written by one hand and holds
 * no address of the upstream's. Pages are fetched as they are asked for.
 */
export class UpstreamRegistrations {
  readonly #packages: PackageMirror;

  constructor(packages: PackageMirror) {
    this.#packages = packages;
  }

  /**
   * The pages of an id's registration; with their versions where the upstream has them in its index and they are few.
   * What is too long for a page here, wherever the upstream has it, is cut into several.
   */
  async pages(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<RegisteredPage[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    const read = await this.#reader(owner, key, semVer2);
    const pages: RegisteredPage[] = [];
    let apart = 0;
    for (const page of pagesOf(index.value)) {
      const { lower, upper, json } = page;
      const count = typeof json['count'] === 'number' ? json['count'] : 0;
      if (!Array.isArray(json['items']) && (count <= rangeVersions || (apart += 1) > mostTouched)) {
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
   * The versions from `lower` to `upper`, both included, from the pages that hold them. Throws `Invalid` for more than a
   * page can hold.
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
    if (pages.length > mostPages) throw unusable(owner.upstream, `has too long a registration of ${key}`);
    const sizes: SizedVersion[] = [];
    for (const page of pages) {
      const versions = read(await this.#items(owner, key, semVer2, page));
      sizes.push(...versions.map(({ version, bytes }) => ({ version, bytes })));
    }
    return { outcome: index.outcome, value: sizes };
  }

  /** The SHA-512, in Base64, that a stored registration gives for a version's nupkg; nobody is asked for it. */
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
    // The index says that there is one: that it is missing does not mean that its versions are.
    if (!document) throw unusable(owner.upstream, `lacks a page of its registration of ${key}`);
    return document.value.items;
  }

  async #hive({ upstream }: Owner, semVer2: boolean): Promise<string> {
    const types = semVer2 ? [...hives.semVer2, ...plain] : [...hives.semVer1, ...plain, ...hives.semVer2];
    return this.#packages.resource(upstream, types);
  }

  /** Makes versions out of the leaves of `key`'s registration, of those that are wanted. */
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

/** Whether a document is an index whose versions can be worked with, those that are in it. */
function isIndex(document: object): boolean {
  const { items } = document as Json;
  if (!isList(items)) return false;
  const inside = items.map((page) => objectOf(page)['items']);
  return inside.reduce<number>((sum, each) => sum + (Array.isArray(each) ? each.length : 0), 0) <= mostListed;
}

function hiveName(semVer2: boolean): string {
  return semVer2 ? 'registration-semver2' : 'registration';
}

/** The pages of an index that can be made sense of. */
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
