import { retrying } from '../../import/import.ts';
import { algorithmOf, digestOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { discard, readUpstreamBody } from '../../upstream/body.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../../upstream/answer.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { urlBelow } from '../../upstream/url.ts';
import { itemsIn } from '../format/json-items.ts';
import { mediaTypes } from '../format/manifest.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { listLimit, readDescriptors } from '../mirrored/upstream-lists.ts';
import { pullScope, urlOf } from '../mirrored/upstream-repository.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from './image-origin.ts';

/** Milliseconds in which a document must be there, and in which something of a blob must come. */
const documentTime = 60_000;
const silence = 60_000;
/** Most pages of a list, names on one, and most items of a list. */
const maxPages = 10_000;
const pageSize = 1000;
const maxItems = 1_000_000;

const accept = `${Object.values(mediaTypes).join(', ')}, application/json;q=0.5`;

/** A registry that is read as a client reads it (distribution-spec, "Pull"). Nothing that it sends is trusted. */
export class RegistryOrigin implements ImageOrigin {
  readonly #remote: Upstream;
  readonly #manifestLimit: number;
  readonly #signal: AbortSignal;
  /** Whether the registry answered a request for referrers with "not found": then it has no such list. */
  #lacksReferrers = false;

  constructor(remote: Upstream, manifestLimit: number, signal: AbortSignal) {
    this.#remote = remote;
    this.#manifestLimit = manifestLimit;
    this.#signal = signal;
  }

  async *repositories(): AsyncGenerator<string> {
    const first = urlBelow(this.#remote.base.origin, 'v2', '_catalog');
    first.searchParams.set('n', String(pageSize));
    const scope = 'registry:catalog:*';
    for await (const name of this.#list(first, 'repositories', { subject: 'the catalog', scope }))
      if (typeof name === 'string' && isRepositoryName(name)) yield name;
  }

  async *tags(name: string): AsyncGenerator<OriginTag> {
    const first = this.#url(name, 'tags', 'list');
    first.searchParams.set('n', String(pageSize));
    for await (const tag of this.#list(first, 'tags', this.#of(name)))
      if (typeof tag === 'string' && isTag(tag)) yield { tag };
  }

  async digestOf(name: string, tag: string): Promise<Digest | undefined> {
    const answer = await this.#ask({
      ...this.#of(name),
      method: 'HEAD',
      url: this.#url(name, 'manifests', tag),
      headers: { accept },
    });
    discard(answer.body);
    return answer.status === 200 ? answer.digest : undefined;
  }

  async manifest(name: string, reference: string): Promise<OriginManifest | undefined> {
    const request = {
      ...this.#of(name),
      url: this.#url(name, 'manifests', reference),
      headers: { accept },
      isDocument: true,
    };
    const found = await this.#document(request, this.#manifestLimit);
    if (!found) return undefined;
    const { bytes, headers } = found;
    const digest = digestOf(bytes, isDigest(reference) ? algorithmOf(reference) : 'sha256');
    if (isDigest(reference) && digest !== reference) throw otherContent(reference);
    return { digest, bytes, mediaType: headers['content-type'] };
  }

  async referrers(name: string, digest: Digest): Promise<readonly Digest[]> {
    if (this.#lacksReferrers) return [];
    const found: Digest[] = [];
    const first = this.#url(name, 'referrers', digest);
    try {
      for await (const item of this.#list(first, 'manifests', this.#of(name)))
        found.push(...readDescriptors([item]).map((each) => each.digest));
    } catch (error) {
      if (!(error instanceof ListMissing)) throw error;
      this.#lacksReferrers = true;
    }
    return found;
  }

  async fill(name: string, digest: Digest, staged: Parameters<ImageOrigin['fill']>[2], limit: number): Promise<void> {
    const { status, body } = await this.#remote.send({ ...this.#of(name), url: this.#url(name, 'blobs', digest) });
    if (status !== 200) {
      discard(body);
      throw new DomainError('NotFound', `The source does not have ${digest}, which the image needs.`);
    }
    await staged.append(body, { limit, idle: silence }).catch((error: unknown) => {
      // Otherwise the source would go on sending.
      body.destroy();
      throw error;
    });
  }

  #url(name: string, ...rest: string[]): URL {
    return urlOf({ upstream: this.#remote, name }, ...rest);
  }

  #of(name: string): Pick<UpstreamRequest, 'subject' | 'scope' | 'signal'> {
    return { subject: name, scope: pullScope({ upstream: this.#remote, name }), signal: this.#signal };
  }

  #ask(request: UpstreamRequest): Promise<UpstreamAnswer> {
    return retrying(() => this.#remote.send(request), this.#signal);
  }

  /** The bytes of a document; undefined if there is none. */
  #document(request: UpstreamRequest, limit: number) {
    return retrying(async () => {
      const answer = await this.#remote.send(request);
      if (answer.status !== 200) {
        discard(answer.body);
        return undefined;
      }
      const bytes = await readUpstreamBody(answer.body, limit, documentTime).catch((error: unknown) => {
        throw this.#remote.bodyFailed(error, request);
      });
      return { bytes, headers: answer.headers };
    }, this.#signal);
  }

  /** The items of a list, which may have pages (`Link`, RFC 8288). Throws `ListMissing` if there is no such list. */
  async *#list(first: URL, field: string, of: Pick<UpstreamRequest, 'subject' | 'scope'>): AsyncGenerator {
    const seen = new Set<string>();
    let items = 0;
    for (let url: URL | undefined = first; url;) {
      if (seen.size >= maxPages || seen.has(url.href))
        throw new DomainError('TooLarge', 'The source sends a list without an end.');
      seen.add(url.href);
      const request = { ...of, url, headers: { accept: 'application/json' }, isDocument: true, signal: this.#signal };
      const page = await this.#document(request, listLimit);
      if (!page) throw new ListMissing('NotFound', `The source has no list of ${field}.`);
      try {
        for await (const some of itemsIn(page.bytes, field)) {
          items += some.length;
          if (items > maxItems) throw new DomainError('TooLarge', `The source lists more than ${maxItems} ${field}.`);
          yield* some;
        }
      } catch (error) {
        throw error instanceof SyntaxError
          ? new DomainError('Invalid', 'The source sent a list that cannot be read.')
          : error;
      }
      const next = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(String(page.headers.link ?? ''))?.[1];
      const following: URL | null = next === undefined ? null : URL.parse(next, url.href);
      url = following?.origin === url.origin ? following : undefined;
    }
  }
}

class ListMissing extends DomainError {}

/** `DigestMismatch`, for content of a source that is not what its digest says. */
export function otherContent(digest: Digest): DomainError {
  return new DomainError('DigestMismatch', `The source sent other content under ${digest}.`);
}
