import type { NameKind } from '../../accounts/names.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { MirroredName } from './admission.ts';

/** A name of an upstream, as an account gets it from what is stored. */
interface StoredName {
  /** Its facts are read from what is stored: no request is sent. */
  name: MirroredName;
  /** The same name, whose facts are also asked of the upstream. */
  asking: MirroredName;
  /** The versions that the stored list has, the lowest first, or the tag; undefined if nothing stored says it. */
  references(): Promise<readonly string[] | undefined>;
}

/** Finds the names of a protocol that are stored, for lists of what policies refuse. */
export interface StoredNames {
  readonly kind: NameKind;
  /** The kind of the entries that have a list of versions, or a tag. */
  readonly entryKind: string;
  /** The kind of the entries that are content. */
  readonly contentKind: string;
  /** Whether references are versions. */
  readonly hasVersions: boolean;
  /** The upstreams that serve an account. */
  upstreams(accountId: number): Promise<readonly Upstream[]>;
  /** The name by which clients mean an entry's name. */
  shownName(upstream: Upstream, name: string): string;
  /** Undefined if the account does not get the name from this upstream. */
  find(
    accountId: number,
    upstream: Upstream,
    entry: { name: string; reference: string },
  ): Promise<StoredName | undefined>;
}
