import { itemsOfList, ListMissing, readDocument } from '../../import/document.ts';
import { retrying } from '../../import/import.ts';
import { algorithmOf, digestOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { discard } from '../../upstream/body.ts';
import type { UpstreamAnswer, UpstreamRequest } from '../../upstream/answer.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { urlBelow } from '../../upstream/url.ts';
import { manifestTypes } from '../format/manifest.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { readDescriptors, withoutReferrers } from '../mirrored/upstream-lists.ts';
import { pullScope } from '../mirrored/upstream-repository.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from './image-origin.ts';

/** Milliseconds in which something of a blob must come. */
const silence = 60_000;
/** Names on a page of a list. */
const pageSize = 1000;

const accept = `${manifestTypes.join(', ')}, application/json;q=0.5`;

/** A registry that is read as a client reads it (distribution-spec, "Pull"). Nothing that it sends is trusted. */
export class RegistryOrigin implements ImageOrigin {
  readonly #remote: Upstream;
  readonly #manifestLimit: number;
  readonly #signal: AbortSignal;
  /** Whether the registry answered a request for referrers as one that does not know the path: then it has no such list. */
  #lacksReferrers = false;

  constructor(remote: Upstream, manifestLimit: number, signal: AbortSignal) {
    this.#remote = remote;
    this.#manifestLimit = manifestLimit;
    this.#signal = signal;
  }

  /** Whether the registry is known to have no lists of referrers. */
  get lacksReferrers(): boolean {
    return this.#lacksReferrers;
  }

  async *repositories(): AsyncGenerator<string> {
    const first = urlBelow(this.#remote.base, 'v2', '_catalog');
    first.searchParams.set('n', String(pageSize));
    const of = { subject: 'the catalog', scope: 'registry:catalog:*', signal: this.#signal };
    for await (const name of itemsOfList(this.#remote, first, { ...of, field: 'repositories' }))
      if (typeof name === 'string' && isRepositoryName(name)) yield name;
  }

  async *tags(name: string): AsyncGenerator<OriginTag> {
    const first = this.#url(name, 'tags', 'list');
    first.searchParams.set('n', String(pageSize));
    for await (const tag of itemsOfList(this.#remote, first, { ...this.#of(name), field: 'tags' }))
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
    };
    const found = await readDocument(this.#remote, request, this.#manifestLimit);
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
    const asked = { ...this.#of(name), answers: withoutReferrers, field: 'manifests' };
    try {
      for await (const item of itemsOfList(this.#remote, first, asked))
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
    return urlBelow(this.#remote.base, 'v2', ...name.split('/'), ...rest);
  }

  #of(name: string) {
    return { subject: name, scope: pullScope({ upstream: this.#remote, name }), signal: this.#signal };
  }

  #ask(request: UpstreamRequest): Promise<UpstreamAnswer> {
    return retrying(() => this.#remote.send(request), this.#signal);
  }
}

/** `DigestMismatch`, for content of a source that is not what its digest says. */
export function otherContent(digest: Digest): DomainError {
  return new DomainError('DigestMismatch', `The source sent other content under ${digest}.`);
}
