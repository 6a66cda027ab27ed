import type { Logger } from 'pino';
import { unusable } from '../../mirror/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { addressIn, isList, mostListed, type PackageMirror, type UpstreamDocument } from './package-mirror.ts';
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

const types = ['VulnerabilityInfo/6.7.0'];

/** Vulnerability data of the upstreams. */
export class UpstreamVulnerabilities {
  readonly #packages: PackageMirror;
  readonly #log: Logger;

  constructor(packages: PackageMirror, log: Logger) {
    this.#packages = packages;
    this.#log = log;
  }

  /** The pages of all upstreams with vulnerability data. An upstream that fails and has no stored index is left out. */
  async pages(): Promise<VulnerabilityPage[]> {
    const lists = await Promise.all(this.#packages.origin.all.map((upstream) => this.#pagesOf(upstream)));
    return lists.flat();
  }

  /** One page; undefined if there is no page with this name. */
  async page(
    upstreamName: string,
    name: string,
  ): Promise<(UpstreamDocument<Record<string, unknown>> & { upstream: Upstream }) | undefined> {
    const upstream = this.#packages.origin.all.find((each) => each.name === upstreamName);
    const entry = upstream && (await this.#index(upstream)).find((each) => each['@name'] === name);
    if (!upstream || !entry) return undefined;
    // The date is part of the key: otherwise clients would get the stored page for the updated one.
    const page = await this.#packages.document<Record<string, unknown>>(
      { upstream },
      'vulnerability-page',
      name,
      entry['@updated'],
      () => addressIn(upstream, entry['@id']),
      (each) => !Array.isArray(each) && Object.keys(each).length <= mostListed,
    );
    if (!page) throw unusable(upstream, 'has no page that its vulnerability index names');
    return { ...page, upstream };
  }

  async #pagesOf(upstream: Upstream): Promise<VulnerabilityPage[]> {
    try {
      return (await this.#index(upstream)).map((entry) => ({
        upstream: upstream.name,
        name: entry['@name'],
        updated: entry['@updated'],
      }));
    } catch (error) {
      if (!isUpstreamFailure(error)) throw error;
      this.#log.warn(
        { upstream: upstream.id, reason: (error as Error).message },
        'the upstream has no vulnerability data now',
      );
      return [];
    }
  }

  async #index(upstream: Upstream): Promise<IndexEntry[]> {
    const resources = await this.#packages.resources(upstream);
    if (!types.some((type) => resources.has(type))) return [];
    const index = await this.#packages.document<unknown[]>(
      { upstream },
      'vulnerability-index',
      '',
      '',
      async () => addressIn(upstream, await this.#packages.resource(upstream, types)),
      isList,
    );
    return (index?.value ?? []).filter(isEntry);
  }
}

function isEntry(value: unknown): value is IndexEntry {
  const { '@id': id, '@name': name, '@updated': updated } = objectOf(value);
  const isTime = typeof updated === 'string' && updated.length <= 40 && !Number.isNaN(Date.parse(updated));
  return typeof id === 'string' && isTime && typeof name === 'string' && /^[\w.-]{1,100}$/.test(name);
}
