import type { Upstream } from '../upstream/upstream.ts';
import { linkOf, metadataIn, objectOf, textOf, type Json } from './upstream-metadata.ts';
import { folder, type PackageMirror, type UpstreamDocument } from './upstream.ts';
import { compareVersions, fullString, isSemVer2, normalize, parseVersion, type Version } from './version.ts';
import type { RegisteredPage, RegisteredVersion } from './versions.ts';

/** The hives with SemVer 2 versions, then those without; the first that an upstream has is read. */
const hives = {
  semVer2: ['RegistrationsBaseUrl/3.6.0', 'RegistrationsBaseUrl/Versioned', 'RegistrationsBaseUrl/3.4.0'],
  semVer1: ['RegistrationsBaseUrl/3.4.0'],
};
const plain = ['RegistrationsBaseUrl/3.0.0-rc', 'RegistrationsBaseUrl/3.0.0-beta', 'RegistrationsBaseUrl'];

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
  async pages(
    upstream: Upstream,
    key: string,
    semVer2: boolean,
  ): Promise<UpstreamDocument<RegisteredPage[]> | undefined> {
    const index = await this.#index(upstream, key, semVer2);
    if (!index) return undefined;
    const flat = await this.#flat(upstream);
    const pages = pagesOf(index.value).map(({ lower, upper, json }) => {
      const { items, count } = json as { items?: unknown; count?: unknown };
      if (!Array.isArray(items)) return { lower, upper, count: typeof count === 'number' ? count : 0 };
      const versions = versionsOf(items, flat, semVer2);
      return { lower, upper, count: versions.length, items: versions };
    });
    return { ...index, value: pages.filter(({ count }) => count > 0) };
  }

  /** The versions from `lower` to `upper`, both included, from the pages that hold them. */
  async versions(
    upstream: Upstream,
    key: string,
    semVer2: boolean,
    lower: Version | undefined,
    upper: Version | undefined,
  ): Promise<UpstreamDocument<RegisteredVersion[]> | undefined> {
    const index = await this.#index(upstream, key, semVer2);
    if (!index) return undefined;
    const flat = await this.#flat(upstream);
    const found: RegisteredVersion[] = [];
    for (const page of pagesOf(index.value)) {
      const [first, last] = [parseVersion(page.lower)!, parseVersion(page.upper)!];
      if ((upper && compareVersions(first, upper) > 0) || (lower && compareVersions(last, lower) < 0)) continue;
      found.push(...versionsOf(await this.#items(upstream, key, semVer2, page), flat, semVer2));
    }
    const within = found.filter(({ version }) => {
      const each = parseVersion(version)!;
      return (!lower || compareVersions(each, lower) >= 0) && (!upper || compareVersions(each, upper) <= 0);
    });
    return { ...index, value: within };
  }

  async #index(upstream: Upstream, key: string, semVer2: boolean): Promise<UpstreamDocument<Json> | undefined> {
    return this.#packages.document<Json>(
      upstream,
      hiveName(semVer2),
      key,
      'index',
      async () => new URL(`${encodeURIComponent(key)}/index.json`, await this.#hive(upstream, semVer2)),
      (document) => Array.isArray((document as Json)['items']),
    );
  }

  async #items(upstream: Upstream, key: string, semVer2: boolean, page: Page): Promise<unknown[]> {
    if (Array.isArray(page.json['items'])) return page.json['items'];
    const reference = `page/${page.lower}/${page.upper}`.toLowerCase();
    const locate = () => new URL(String(page.json['@id']), upstream.base);
    const document = await this.#packages.document<{ items: unknown[] }>(
      upstream,
      hiveName(semVer2),
      key,
      reference,
      locate,
      (each) => Array.isArray((each as Json)['items']),
    );
    return document?.value.items ?? [];
  }

  async #hive(upstream: Upstream, semVer2: boolean): Promise<string> {
    const types = semVer2 ? [...hives.semVer2, ...plain] : [...hives.semVer1, ...plain, ...hives.semVer2];
    return folder(await this.#packages.resource(upstream, types));
  }

  async #flat(upstream: Upstream): Promise<string> {
    return folder(await this.#packages.resource(upstream, ['PackageBaseAddress/3.0.0']));
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

function versionsOf(items: readonly unknown[], flat: string, semVer2: boolean): RegisteredVersion[] {
  const versions: [Version, RegisteredVersion][] = [];
  for (const item of items) {
    const entry = objectOf(objectOf(item)['catalogEntry']);
    const version = parseVersion(textOf(entry['version']) ?? '');
    if (!version || (!semVer2 && isSemVer2(version))) continue;
    versions.push([version, registered(entry, version, flat)]);
  }
  return versions.sort(([a], [b]) => compareVersions(a, b)).map(([, each]) => each);
}

function registered(entry: Json, version: Version, flat: string): RegisteredVersion {
  const published = textOf(entry['published']) ?? '';
  const icon = linkOf(entry['iconUrl']);
  const time = Date.parse(published);
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    listed: entry['listed'] !== false && !published.startsWith('1900-'),
    publishedAt: Number.isNaN(time) ? 0 : time,
    published: Number.isNaN(time) ? undefined : published,
    hasIcon: icon?.startsWith(flat) ?? false,
    hasReadme: typeof entry['readmeUrl'] === 'string' && entry['readmeUrl'] !== '',
    metadata: metadataIn(entry, icon),
  };
}
