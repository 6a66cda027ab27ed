import type { Readable } from 'node:stream';
import type { Digest, DigestAlgorithm } from '../../runtime/digest.ts';
import type { SeenReference } from '../../history/history.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { EntryKey, EntryMetadata } from '../store/entries.ts';

/**
 * How long an entry may be served, in milliseconds: `freshFor` after its last validation, and `staleFor` longer if the
 * upstream fails. `immutable` content is never requested again.
 */
type Lifetime = 'immutable' | { freshFor: number; staleFor: number };

/** Clocks of instances may differ by this many milliseconds. Later times come from a clock that was set back since. */
const clockTolerance = 60_000;

/** Whether an entry may be served now without a request to the upstream. An entry from the future is not fresh. */
export function isFresh(lifetime: Lifetime, { validatedAt }: EntryMetadata, now: number): boolean {
  if (lifetime === 'immutable') return true;
  return validatedAt <= now + clockTolerance && now < validatedAt + lifetime.freshFor;
}

/** Whether an entry may still be served if the upstream fails. */
export function isServableStale(lifetime: Lifetime, { validatedAt }: EntryMetadata, now: number): boolean {
  return lifetime === 'immutable' || now < validatedAt + lifetime.freshFor + lifetime.staleFor;
}

/** The resource, so that its stored entry may be served at any age. */
export function ofAnyAge(resource: MirrorResource): MirrorResource {
  const { lifetime } = resource;
  return lifetime === 'immutable' ? resource : { ...resource, lifetime: { ...lifetime, staleFor: Infinity } };
}

/** Content of an upstream, as a protocol describes it to the mirror: under which key it is stored, and how it is checked. */
export interface EntryDescription {
  key: EntryKey;
  /** The most bytes that it may have. */
  limit: number;
  /** The digest that the bytes must have, if the resource is named by its digest. */
  digest?: Digest;
  /** Hashes to compute besides the one that names the content. */
  algorithms?: readonly DigestAlgorithm[];
  /**
   * Checks the complete bytes before any reader gets the last of them; throws if they are not the requested content. The
   * result is stored as the entry's `attributes`.
   */
  verify?(staged: StagedFile): Promise<Record<string, string>>;
  /** What to record in the history about this content, whether or not it is stored. */
  history?(metadata: EntryMetadata): SeenReference[];
  /** Further keys under which the same bytes are stored as an entry. */
  aliases?(metadata: EntryMetadata): EntryKey[];
}

/** Content of an upstream with the time that it may be served. */
export type DescribedEntry = EntryDescription & { lifetime: Lifetime };

/** A resource of an upstream: content, and how it is fetched. */
export interface MirrorResource extends EntryDescription {
  /** For messages to clients. The key has the ID. */
  upstreamName: string;
  /** For counting. */
  upstreamKind: string;
  lifetime: Lifetime;
  /** How long the answer "not found" is cached, in milliseconds. */
  negativeFor: number;
  /** A body that sends nothing for this many milliseconds is cut. */
  idle: number;
  /** Whether a stored entry is served as `withdrawn` if the upstream answers that it has it no more. */
  keeps?: boolean;
  /** For small documents: served only when stored, so that a stale one can be served instead of a bad new one. */
  whole?: boolean;
  /** Requests it; `known` is the stored entry, for a conditional request. `signal` cancels the request and its body. */
  fetch(known: EntryMetadata | undefined, signal: AbortSignal): Promise<Fetched>;
}

/** The received beginning of a body. */
export interface Received {
  bytes: number;
  /** The digest of these bytes; undefined if the digest of the whole body is known. */
  digest: Digest | undefined;
}

/** After a cut the upstream sends a different body, so that the first one cannot be completed. */
export class OtherBody extends Error {}

export type Fetched =
  | {
      kind: 'fetched';
      body: Readable;
      /** As announced by the upstream; undefined if it is not. */
      size: number | undefined;
      type: string;
      etag: string | null;
      lastModified: string | null;
      /** The digest of the content, as the upstream states it. */
      digest?: Digest;
      /** Requests the rest of the body after `received`; undefined if the upstream cannot send it. */
      resume?: (received: Received, signal: AbortSignal) => Promise<Readable | undefined>;
      /** Called when the body stalled or was cut and cannot be resumed. */
      failed?: (error: unknown) => void;
    }
  | { kind: 'not-modified' }
  | { kind: 'absent' };

/** The fields that all resources of an upstream share, from its settings. */
export function resourceOf(upstream: Upstream, kind: string, name: string, reference: string) {
  const { freshFor, staleFor, negativeFor, timeout } = upstream.config;
  const lifetime: Lifetime = { freshFor, staleFor };
  return {
    key: { upstream: upstream.id, kind, name, reference },
    lifetime,
    negativeFor,
    idle: timeout,
    upstreamName: upstream.name,
    upstreamKind: upstream.config.kind,
  };
}
