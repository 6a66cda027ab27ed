import { itemsOfList, ListMissing } from '../../import/document.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';
import { urlBelow } from '../../upstream/url.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from './image-origin.ts';
import type { RegistryOrigin } from './registry-origin.ts';

/** Projects and repositories, and artifacts, on a page: an artifact has its whole configuration. */
const pageSize = 100;
const artifactsOnPage = 50;

interface HarborParts {
  /** Harbor's own interface. */
  api: Upstream;
  registry: RegistryOrigin;
  signal: AbortSignal;
  /** Gets a sentence about the whole source. */
  warn: (text: string) => void;
}

/** What Harbor's interface says of an artifact. */
interface Artifact {
  digest?: unknown;
  tags?: readonly { name?: unknown; push_time?: unknown }[] | null;
  accessories?: readonly { digest?: unknown }[] | null;
}

/**
 * A Harbor: its repositories, the times of its tags and its accessories by its own interface, which needs no administrator as the
 * catalog does; the rest by its registry. What the interface does not tell, the registry does.
 */
export class HarborOrigin implements ImageOrigin {
  readonly #parts: HarborParts;
  /** The accessories of artifacts, by repository. */
  readonly #accessories = new Map<string, Map<Digest, Digest[]>>();

  constructor(parts: HarborParts) {
    this.#parts = parts;
  }

  async *repositories(): AsyncGenerator<string> {
    const { registry, warn } = this.#parts;
    const projects: string[] = [];
    try {
      for await (const each of this.#list(pageSize, {}, 'projects')) {
        const { name, registry_id: proxied } = (each ?? {}) as { name?: unknown; registry_id?: unknown };
        if (typeof name !== 'string' || name.includes('/') || !isRepositoryName(name)) continue;
        if (typeof proxied === 'number' && proxied > 0)
          warn(
            `The project ${name} is a proxy cache of another registry. It is not read: name that registry as an upstream.`,
          );
        else projects.push(name);
      }
    } catch (error) {
      if (!isNoAnswer(error)) throw error;
      warn('The source does not list its projects as Harbor does, so the catalog of its registry was read.');
      yield* registry.repositories();
      return;
    }
    for (const project of projects)
      for await (const each of this.#list(pageSize, {}, 'projects', project, 'repositories')) {
        const { name } = (each ?? {}) as { name?: unknown };
        if (typeof name === 'string' && name.startsWith(`${project}/`) && isRepositoryName(name)) yield name;
      }
  }

  async *tags(name: string): AsyncGenerator<OriginTag> {
    const told = await this.#artifacts(name);
    for (const [tag, pushedAt] of told ?? []) yield { tag, pushedAt };
    try {
      // Signatures under a tag are not among the artifacts.
      for await (const each of this.#parts.registry.tags(name)) if (!told?.has(each.tag)) yield each;
    } catch (error) {
      if (!told || !(error instanceof ListMissing)) throw error;
    }
  }

  digestOf(name: string, tag: string): Promise<Digest | undefined> {
    return this.#parts.registry.digestOf(name, tag);
  }

  manifest(name: string, reference: string): Promise<OriginManifest | undefined> {
    return this.#parts.registry.manifest(name, reference);
  }

  async referrers(name: string, digest: Digest): Promise<readonly Digest[]> {
    const listed = await this.#parts.registry.referrers(name, digest);
    return [...new Set([...listed, ...(this.#accessories.get(name)?.get(digest) ?? [])])];
  }

  fill(...asked: Parameters<ImageOrigin['fill']>): Promise<void> {
    return this.#parts.registry.fill(...asked);
  }

  /** The tags of a repository with the times of their pushes; undefined if the interface does not tell them. */
  async #artifacts(name: string): Promise<Map<string, number | undefined> | undefined> {
    const slash = name.indexOf('/');
    if (slash === -1) return undefined;
    const tags = new Map<string, number | undefined>();
    const accessories = new Map<Digest, Digest[]>();
    // A slash in a name is encoded twice: here, and as every segment.
    const below = ['projects', name.slice(0, slash), 'repositories', encodeURIComponent(name.slice(slash + 1))];
    const asked = { with_tag: 'true', with_accessory: 'true' };
    try {
      for await (const each of this.#list(artifactsOnPage, asked, ...below, 'artifacts')) {
        const { digest, tags: named, accessories: attached } = (each ?? {}) as Artifact;
        for (const { name: tag, push_time: time } of listIn(named))
          if (typeof tag === 'string' && isTag(tag)) tags.set(tag, timeIn(time));
        const digests = listIn(attached).flatMap(({ digest: own }) => (isDigestText(own) ? [own] : []));
        if (isDigestText(digest) && digests.length > 0) accessories.set(digest, digests);
      }
    } catch (error) {
      if (isNoAnswer(error)) return undefined;
      throw error;
    }
    if (accessories.size > 0) this.#accessories.set(name, accessories);
    return tags;
  }

  #list(size: number, query: Record<string, string>, ...path: string[]): AsyncGenerator {
    const { api, signal } = this.#parts;
    const url = urlBelow(api.base, 'api', 'v2.0', ...path);
    for (const [key, value] of Object.entries({ ...query, page: '1', page_size: String(size) }))
      url.searchParams.set(key, value);
    return itemsOfList(api, url, { subject: path.slice(0, 4).join(' '), signal });
  }
}

/** Whether a server did not answer as Harbor does, or not for these credentials; false while it fails. */
function isNoAnswer(error: unknown): boolean {
  if (error instanceof UpstreamError) return error.denied;
  return error instanceof DomainError && (isDomainError(error, 'NotFound') || isDomainError(error, 'Invalid'));
}

function listIn<T extends object>(value: readonly T[] | null | undefined): T[] {
  return Array.isArray(value) ? value.filter((each) => typeof each === 'object' && each !== null) : [];
}

function isDigestText(value: unknown): value is Digest {
  return typeof value === 'string' && isDigest(value);
}

/** A time, such as `2023-01-31T12:00:00.123Z`; undefined for none, which Harbor writes as the year 1. */
function timeIn(value: unknown): number | undefined {
  const time = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return time > 0 ? time : undefined;
}
