import { unusable } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { pause } from '../../runtime/event-loop.ts';
import { isList } from './reading/json.ts';
import type { DocumentReading } from './documents.ts';
import { addressIn, type PackageMirror, type UpstreamDocument } from './package-mirror.ts';
import { objectOf } from './upstream-metadata.ts';

/** A page of vulnerability data that an index names (vulnerability-info, "Vulnerability index"). */
export interface VulnerabilityPage {
  upstream: string;
  name: string;
  updated: string;
}

interface IndexEntry {
  '@id': string;
  '@name': string;
  '@updated': string;
}

const kind = 'vulnerability-index';
const types = ['VulnerabilityInfo/6.7.0'];

const vulnerabilityIndex: DocumentReading<readonly IndexEntry[], 'short'> = {
  kind: 'short',
  options: () => ({ of: kind }),
  make: ([text]) => {
    const list: unknown = JSON.parse(text!);
    if (!isList(list)) throw new Error('it is no index of vulnerability data');
    const entries = list.filter(isEntry);
    return { value: entries, items: 4 * entries.length };
  },
};

/** The ids of a page as written, each with the JSON of its list. A Map of so many would be made anew in long turns as it grows. */
export type KnownVulnerabilities = readonly (readonly [id: string, list: string])[];

const vulnerabilityPage: DocumentReading<KnownVulnerabilities, 'vulnerabilities'> = {
  kind: 'vulnerabilities',
  options: () => ({}),
  make: async (lines) => {
    const lists: [string, string][] = [];
    for (let line = 0; line < lines.length; line += 2) {
      if (line % 1000 === 0) await pause();
      lists.push([JSON.parse(lines[line]!) as string, lines[line + 1]!]);
    }
    return { value: lists, items: lines.length };
  },
};

/** Vulnerability data of the upstreams. */
export class UpstreamVulnerabilities {
  readonly #packages: PackageMirror;

  constructor(packages: PackageMirror) {
    this.#packages = packages;
  }

  /**
   * The pages of all upstreams with vulnerability data. An upstream that fails and has never sent any counts as one without,
   * so that it does not take the data of the others from the clients. Throws the failure of another upstream whose stored
   * index is too old: clients must warn (NU1900), because a shorter list would say that packages have no known
   * vulnerabilities.
   */
  async pages(): Promise<VulnerabilityPage[]> {
    const lists = await Promise.all(this.#packages.origin.all.map((upstream) => this.#pagesOf(upstream)));
    return lists.flat();
  }

  /** One page; undefined if there is no page with this name. */
  async page(
    upstreamName: string,
    name: string,
  ): Promise<(UpstreamDocument<KnownVulnerabilities> & { upstream: Upstream }) | undefined> {
    const upstream = this.#packages.origin.all.find((each) => each.name === upstreamName);
    const entry = upstream && (await this.#index(upstream)).find((each) => each['@name'] === name);
    if (!upstream || !entry) return undefined;
    // The date is part of the key: otherwise clients would get the stored page for the updated one.
    const page = await this.#packages.document(
      { upstream },
      'vulnerability-page',
      name,
      entry['@updated'],
      () => addressIn(upstream, entry['@id']),
      vulnerabilityPage,
    );
    if (!page) throw unusable(upstream, 'has no page that its vulnerability index names');
    return { ...page, upstream };
  }

  async #pagesOf(upstream: Upstream): Promise<VulnerabilityPage[]> {
    return (await this.#index(upstream)).map((entry) => ({
      upstream: upstream.name,
      name: entry['@name'],
      updated: entry['@updated'],
    }));
  }

  async #index(upstream: Upstream): Promise<readonly IndexEntry[]> {
    if (!(await this.#offers(upstream))) return [];
    const index = await this.#packages.document(
      { upstream },
      kind,
      '',
      '',
      async () => addressIn(upstream, await this.#packages.resource(upstream, types)),
      vulnerabilityIndex,
    );
    return index?.value ?? [];
  }

  /** Whether an upstream has vulnerability data, or had some before it failed. */
  async #offers(upstream: Upstream): Promise<boolean> {
    try {
      const resources = await this.#packages.resources(upstream);
      return types.some((type) => resources.has(type));
    } catch (error) {
      if (!isUpstreamFailure(error)) throw error;
      const offers = await this.#packages.hasDocument(upstream, kind);
      if (!offers) upstream.counts.auditsWithout += 1;
      return offers;
    }
  }
}

function isEntry(value: unknown): value is IndexEntry {
  const { '@id': id, '@name': name, '@updated': updated } = objectOf(value);
  const isTime = typeof updated === 'string' && updated.length <= 40 && !Number.isNaN(Date.parse(updated));
  return typeof id === 'string' && isTime && typeof name === 'string' && /^[\w.-]{1,100}$/.test(name);
}
