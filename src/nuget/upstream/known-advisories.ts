import { unusable } from '../../mirror/fetch/fetch.ts';
import type { KnownAdvisory } from '../../mirror/policy/admission.ts';
import { severities } from '../../mirror/policy/severities.ts';
import { Collected } from '../../runtime/collected.ts';
import { pause, withPauses } from '../../runtime/event-loop.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { parseRange, satisfies, type VersionRange } from '../format/range.ts';
import { normalize, parseVersion } from '../format/version.ts';
import { packageKey } from '../hosted/packages.ts';
import { objectOf } from './upstream-metadata.ts';
import type { KnownVulnerabilities, UpstreamVulnerabilities } from './upstream-vulnerabilities.ts';

/** Most characters of the list of a package. */
export const maxAdvisories = 262_144;

/** A vulnerability of a page, as it was read. */
interface ReadAdvisory {
  /** An index of `severities`. */
  severity: number;
  url: string;
  range: VersionRange;
}

/** How long pages are used at least before they are looked up again; milliseconds. */
const freshFor = 10_000;

/** The lists of a page, by the key of their package. */
interface Lists {
  upstream: Upstream;
  lists: ReadonlyMap<string, string>;
}

/** What was read of pages, which stay the same values while they are the same. */
const read = new WeakMap<KnownVulnerabilities, Promise<Lists['lists']>>();

/** The known vulnerabilities of packages, by the data of all upstreams. */
export class KnownAdvisories {
  readonly #pages: Collected<'all', Lists[]>;

  constructor(vulnerabilities: UpstreamVulnerabilities) {
    this.#pages = new Collected({ collect: () => collect(vulnerabilities), maxSize: 1, freshFor });
  }

  /** The advisories with an ID, in any letter case, with the keys of their packages. Throws as `of`. */
  async named(id: string): Promise<{ name: string; advisory: KnownAdvisory }[]> {
    const wanted = id.toLowerCase();
    const found: { name: string; advisory: KnownAdvisory }[] = [];
    for (const { lists } of await this.#pages.of('all')) {
      for await (const [name, list] of withPauses(lists)) {
        if (list.length > maxAdvisories || !list.toLowerCase().includes(wanted)) continue;
        const all = readAdvisories(list).map(advisoryOf);
        found.push(...all.filter((each) => each.id.toLowerCase() === wanted).map((advisory) => ({ name, advisory })));
      }
    }
    return found;
  }

  /**
   * The advisories of a package. An upstream that fails and has never sent any counts as one without. Throws the failure of another
   * one, unless its data was read before.
   */
  async of(key: string): Promise<KnownAdvisory[]> {
    const found: KnownAdvisory[] = [];
    for (const { upstream, lists } of await this.#pages.of('all')) {
      const list = lists.get(key);
      if (list === undefined) continue;
      if (list.length > maxAdvisories) throw unusable(upstream, `has too many vulnerabilities of ${key}`);
      found.push(...readAdvisories(list).map(advisoryOf));
    }
    return found;
  }
}

async function collect(vulnerabilities: UpstreamVulnerabilities): Promise<Lists[]> {
  const found: Lists[] = [];
  for (const { upstream, name } of await vulnerabilities.pages()) {
    const page = await vulnerabilities.page(upstream, name);
    if (!page) continue;
    const lists = read.get(page.value) ?? listsByKey(page.value);
    read.set(page.value, lists);
    found.push({ upstream: page.upstream, lists: await lists });
  }
  return found;
}

/** The vulnerabilities in the list of a package; what cannot be read is left out. */
export function readAdvisories(list: string): ReadAdvisory[] {
  const known: unknown = JSON.parse(list);
  return (Array.isArray(known) ? known : []).flatMap((each: unknown) => {
    const { severity, url, versions } = objectOf(each);
    const range = typeof versions === 'string' ? parseRange(versions) : undefined;
    if (typeof url !== 'string' || url.length > 2048 || !range) return [];
    return [{ severity: Math.min(Math.max(Number(severity) || 0, 0), severities.length - 1), url, range }];
  });
}

async function listsByKey(page: KnownVulnerabilities): Promise<ReadonlyMap<string, string>> {
  const lists = new Map<string, string>();
  for (const [id, list] of page) {
    const pausing = pause();
    if (pausing) await pausing;
    lists.set(packageKey(id), list);
  }
  return lists;
}

/** The ID and the affected versions of a vulnerability. */
export function advisoryOf({ severity, url, range }: ReadAdvisory): KnownAdvisory {
  // Addresses of advisories end with their IDs, such as GHSA-….
  const [, id = url.slice(0, 100)] = /\/([^/?#\s]{1,100})\/?$/.exec(url) ?? [];
  return {
    id,
    severity,
    fixedAt: range.maxInclusive || !range.max ? undefined : normalize(range.max),
    affects: (version) => {
      const parsed = parseVersion(version);
      return parsed !== undefined && satisfies(range, parsed);
    },
  };
}
