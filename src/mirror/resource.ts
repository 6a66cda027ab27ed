import type { Readable } from 'node:stream';
import type { Digest, DigestAlgorithm } from '../digest.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { EntryKey, EntryMetadata } from './entries.ts';

/** Milliseconds; `immutable` content is never asked for again. */
export type Lifetime = 'immutable' | { freshFor: number; staleFor: number };

/** Whether what was validated then may be served now without asking. */
export function isFresh(lifetime: Lifetime, { validatedAt }: EntryMetadata, now: number): boolean {
  return lifetime === 'immutable' || now < validatedAt + lifetime.freshFor;
}

/** Whether it may still stand in for an upstream that fails. */
export function isServableStale(lifetime: Lifetime, { validatedAt }: EntryMetadata, now: number): boolean {
  return lifetime === 'immutable' || now < validatedAt + lifetime.freshFor + lifetime.staleFor;
}

/** What a protocol tells the mirror about something an upstream may have. */
export interface MirrorResource {
  key: EntryKey;
  lifetime: Lifetime;
  /** How long "not found" is believed, in milliseconds. */
  negativeFor: number;
  /** Bytes at most. */
  limit: number;
  /** A body that is silent for so many milliseconds is cut. */
  idle: number;
  /** For small documents: nobody gets one before it is stored, so that a stale one can stand in for a bad new one. */
  whole?: boolean;
  /** What the bytes must hash to, where the name says so. */
  digest?: Digest;
  /** Hashes wanted besides the one that names the content. */
  algorithms?: readonly DigestAlgorithm[];
  /**
   * Looks at the complete bytes before anybody gets the last of them; throws when they are not what was asked for.
   * What it resolves to is kept with the entry.
   */
  verify?(staged: StagedFile): Promise<Record<string, string>>;
  /** Further names under which the same bytes are an entry. */
  aliases?(metadata: EntryMetadata): EntryKey[];
  /** Asks the upstream; `known` is what is stored, to ask conditionally. `signal` calls it off, the body included. */
  fetch(known: EntryMetadata | undefined, signal: AbortSignal): Promise<Fetched>;
}

/** What has come of a body. */
export interface Received {
  bytes: number;
  /** Of these bytes, where the digest of the whole is not known. */
  digest: Digest | undefined;
}

/** After a cut the upstream sends another body than before, so that the first one cannot be completed. */
export class OtherBody extends Error {}

export type Fetched =
  | {
      kind: 'fetched';
      body: Readable;
      /** As announced; undefined when the upstream has not said. */
      size: number | undefined;
      type: string;
      etag: string | null;
      lastModified: string | null;
      /** What the upstream says the bytes hash to. */
      digest?: Digest;
      /** The rest of the body after `received`; undefined when the upstream cannot give it. */
      resume?: (received: Received, signal: AbortSignal) => Promise<Readable | undefined>;
      /** Hears of a body that stalled or broke for good. */
      failed?: (error: unknown) => void;
    }
  | { kind: 'not-modified' }
  | { kind: 'absent' };

/** What every resource of an upstream's has, as the upstream is configured. */
export function resourceOf(upstream: Upstream, kind: string, name: string, reference: string) {
  const { freshFor, staleFor, negativeFor, timeout } = upstream.config;
  const lifetime: Lifetime = { freshFor, staleFor };
  return { key: { upstream: upstream.name, kind, name, reference }, lifetime, negativeFor, idle: timeout };
}
