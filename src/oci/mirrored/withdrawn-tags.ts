import { unusable } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { MirrorReader } from '../../mirror/stored-only.ts';
import type { Digest } from '../../runtime/digest.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { discard } from '../../upstream/body.ts';
import { AccessRefused } from '../../upstream/failures.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { listedName, pullScope, resource, type UpstreamRepository } from './upstream-repository.ts';
import { readTags } from './upstream-lists.ts';
import type { Descriptor } from '../format/manifest.ts';
import { readParsedList, referrerLists } from './parsed-lists.ts';

/** Stored references that one statement reads. */
const referencesAtATime = 500;

/** Stored tags that their upstream does not offer any more. They are noticed when it answers for the tag, or lists its tags. */
export class WithdrawnTags {
  readonly #mirror: MirrorReader;

  constructor(mirror: MirrorReader) {
    this.#mirror = mirror;
  }

  /** The stored tags of a repository that its upstream does not offer, in no order. */
  async tags(place: UpstreamRepository): Promise<string[]> {
    return (await this.#mirror.withdrawals.of(manifestsOf(place))).map(({ reference }) => reference);
  }

  /** Those of them that are certain to be withdrawn, and since when. */
  times(place: UpstreamRepository): Promise<ReadonlyMap<string, number>> {
    return this.#mirror.withdrawals.times(manifestsOf(place));
  }

  /** All stored tags of a repository, in byte order. */
  async stored(place: UpstreamRepository): Promise<string[]> {
    const read = (after: string) => this.#mirror.references(manifestsOf(place), referencesAtATime, after);
    const tags: string[] = [];
    for await (const references of pagesOf('', referencesAtATime, read, String)) tags.push(...readTags(references));
    return tags;
  }

  /** The descriptors in the stored list of referrers that are not `seen`, and whose manifests are stored. */
  async referrers(place: UpstreamRepository, digest: Digest, seen: ReadonlySet<string>): Promise<Descriptor[]> {
    const { key } = resource(place, referrerLists.name, digest);
    const stored = await this.#mirror.openStored({ key, lifetime: 'immutable' });
    if (!stored) return [];
    const list = await readParsedList(stored, referrerLists, place.upstream.id);
    const missing = list.filter((each) => !seen.has(each.digest));
    const digests = missing.map((each) => each.digest);
    const kept = await this.#mirror.among(resource(place, 'manifest', '').key, digests);
    return missing.filter((each) => kept.has(each.digest));
  }

  /** Notes what an upstream answered for a stored tag. Throws `UpstreamUnavailable` if it says "not found" but does not work. */
  async sight(place: UpstreamRepository, tag: string, isOffered: boolean, signal: AbortSignal): Promise<void> {
    const { withdrawals } = this.#mirror;
    const name = manifestsOf(place);
    const subject = { kind: 'container', name: listedName(place), upstream: place.upstream.name };
    if (isOffered) return withdrawals.offered(name, (each) => each === tag, subject);
    await refuseBroken(place, signal);
    const [due] = await withdrawals.missing(name, [tag], place.upstream.config.negativeFor);
    if (due !== undefined) await withdrawals.mark({ ...name, reference: tag }, subject);
  }

  /**
   * Notes which stored tags a list of the upstream lacks; undefined if it answers that it has no such repository. Only its
   * answers for a tag itself mark it. An empty list says nothing. Throws as `sight`.
   */
  async compare(
    place: UpstreamRepository,
    listed: ReadonlySet<string> | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    if (listed?.size === 0) return;
    const stored = await this.stored(place);
    if (stored.length === 0) return;
    if (!listed) await refuseBroken(place, signal);
    const { withdrawals } = this.#mirror;
    const name = manifestsOf(place);
    await withdrawals.offered(name, (tag) => listed?.has(tag) ?? false);
    const missing = stored.filter((tag) => !listed?.has(tag));
    await withdrawals.missing(name, missing, place.upstream.config.negativeFor);
  }
}

function manifestsOf(place: UpstreamRepository) {
  const { upstream, kind, name } = resource(place, 'manifest', '').key;
  return { upstream, kind, name };
}

/** Throws `UpstreamUnavailable` if an upstream says "not found" to everything: then it says nothing about a tag. */
async function refuseBroken(place: UpstreamRepository, signal: AbortSignal): Promise<void> {
  const { upstream } = place;
  if (await hasVersionCheck(upstream, pullScope(place), signal)) return;
  throw unusable(upstream, 'answers "not found" to /v2/, so it is no working registry');
}

/** Whether an upstream answers its version check (distribution-spec, end-1), if only with a refusal. */
async function hasVersionCheck(upstream: Upstream, scope: string, signal: AbortSignal): Promise<boolean> {
  try {
    const url = new URL('/v2/', upstream.base.origin);
    const { status, body } = await upstream.send({ url, subject: '/v2/', scope, signal });
    discard(body);
    return status !== 404 && status !== 410;
  } catch (error) {
    if (isUpstreamFailure(error) && (error.denied || error.cause instanceof AccessRefused)) return true;
    throw error;
  }
}
