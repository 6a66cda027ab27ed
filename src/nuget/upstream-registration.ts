import { DomainError } from '../errors.ts';
import { unusable } from '../mirror/fetch.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import { urlBelow } from '../upstream/url.ts';
import { packageKey } from './packages.ts';
import { metadataIn, objectOf, ownLinks, textOf, type Json, type OwnLinks } from './upstream-metadata.ts';
import { addressIn, type Owner, type PackageMirror, type UpstreamDocument } from './upstream.ts';
import { compareVersions, fullString, isSemVer2, normalize, parseVersion, type Version } from './version.ts';
import type { RegisteredPage, RegisteredVersion } from './versions.ts';

/** The hives with SemVer 2 versions, then those without; the first that an upstream has is read. */
const hives = {
  semVer2: ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'],
  semVer1: ['RegistrationsBaseUrl/3.4.0'],
};
const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];

/** What is looked up on the way to something else is not worth asking anybody for. */
const nobodyAsked = new DomainError('UpstreamUnavailable', 'Nobody was asked.');

/**
 * Registrations of upstream packages in the feed's own shapes, so that what is served is written by one hand and holds
 * no address of the upstream's. Pages are fetched as they are asked for.
 */
export class UpstreamRegistrations {
  readonly #packages: PackageMirror;

  constructor(packages: PackageMirror) {
    this.#packages = packages;
  }

  /** The pages of an id's registration; with their versions where the upstream has them in its index. */
  async pages(owner: Owner, key: string, semVer2: boolean): Promise<UpstreamDocument<RegisteredPage[]> | undefined> {
    const index = await this.#index(owner, key, semVer2);
    if (!index) return undefined;
    const read = await this.#reader(owner, key, semVer2);
    const pages = pagesOf(index.value).flatMap(({ lower, upper, json }): RegisteredPage[] => {
      const { items, count } = json as { items?: unknown; count?: unknown };
      if (!Array.isArray(items)) return [{ lower, upper, count: typeof count === 'number' ? count : 0 }];
      const versions = read(items);
      return versions.length > 0 ? [{ lower, upper, count: versions.length, items: versions }] : [];
    });
    return pages.length > 0 ? { outcome: index.outcome, value: pages } : undefined;
  }

  /** The versions from `lower` to `upper`, both included, from the pages that hold them. */
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
    const found: RegisteredVersion[] = [];
    for (const page of pagesOf(index.value)) {
      const [first, last] = [parseVersion(page.lower)!, parseVersion(page.upper)!];
      if ((upper && compareVersions(first, upper) > 0) || (lower && compareVersions(last, lower) < 0)) continue;
      found.push(...read(await this.#items(owner, key, semVer2, page)));
    }
    const within = found.filter(({ version }) => {
      const each = parseVersion(version)!;
      return (!lower || compareVersions(each, lower) >= 0) && (!upper || compareVersions(each, upper) <= 0);
    });
    return { outcome: index.outcome, value: within };
  }

  /** The SHA-512, in Base64, that a stored registration gives for a version's nupkg; nobody is asked for it. */
  async storedHash({ upstream }: Owner, key: string, version: string): Promise<string | undefined> {
    const wanted = parseVersion(version);
    for (const semVer2 of [true, false]) {
      try {
        const found = await this.versions({ upstream, silence: nobodyAsked }, key, semVer2, wanted, wanted);
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
      (document) => Array.isArray((document as Json)['items']),
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
      (each) => Array.isArray((each as Json)['items']),
    );
    // The index says that there is one: that it is missing does not mean that its versions are.
    if (!document) throw unusable(owner.upstream, `lacks a page of its registration of ${key}`);
    return document.value.items;
  }

  async #hive({ upstream }: Owner, semVer2: boolean): Promise<string> {
    const types = semVer2 ? [...hives.semVer2, ...plain] : [...hives.semVer1, ...plain, ...hives.semVer2];
    return this.#packages.resource(upstream, types);
  }

  /** Makes versions out of the leaves of `key`'s registration. */
  async #reader(
    { upstream }: Owner,
    key: string,
    semVer2: boolean,
  ): Promise<(items: unknown[]) => RegisteredVersion[]> {
    const own = ownLinks(upstream.base, await this.#packages.flat(upstream));
    return (items) => {
      const versions: [Version, RegisteredVersion][] = [];
      for (const item of items) {
        const entry = objectOf(objectOf(item)['catalogEntry']);
        const version = parseVersion(textOf(entry['version']) ?? '');
        if (!version || packageKey(textOf(entry['id']) ?? '') !== key || (!semVer2 && isSemVer2(version))) continue;
        versions.push([version, registered(entry, version, own)]);
      }
      return versions.sort(([a], [b]) => compareVersions(a, b)).map(([, each]) => each);
    };
  }
}

interface Page {
  /** Normalised. */
  lower: string;
  upper: string;
  json: Json;
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
    metadata: metadataIn(entry, own),
  };
}
