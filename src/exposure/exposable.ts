import type { NameKind } from '../accounts/names.ts';
import type { KnownAdvisory } from '../mirror/policy/admission.ts';

/** A name that an advisory concerns. */
interface AffectedName {
  name: string;
  advisory: KnownAdvisory;
  /** Whether the advisory is one of the account about its own content. */
  isOwn: boolean;
}

/** The known vulnerabilities of the names of a protocol: those that accounts tell of their own content, and those of upstreams. */
interface NameAdvisories {
  /** Those of a name. An upstream that fails counts as one that tells none. */
  of(accountId: number, name: string): Promise<readonly KnownAdvisory[]>;
  /** The names that an advisory concerns, by its ID in any letter case. Throws if an upstream fails that told some before. */
  named(accountId: number, id: string): Promise<AffectedName[]>;
}

/** What a protocol knows about the content that was pulled from it. */
export interface Exposable {
  readonly kind: NameKind;
  /** Absent if nobody tells vulnerabilities of its names. */
  readonly advisories?: NameAdvisories;
  /** The name under which usage has what clients get as `name`; the same if absent. Throws `Invalid` for a text that is no name. */
  usedName?(accountId: number, name: string): Promise<string>;
  /** The digests that a tag has had, the latest first; absent if names have no tags. */
  digestsOfTag?(accountId: number, name: string, tag: string): Promise<string[]>;
}
