import type { NameKind } from '../accounts/names.ts';
import type { Transaction } from '../database/database.ts';
import type { BillComponent } from '../runtime/cyclonedx.ts';
import type { KnownAdvisory } from '../mirror/policy/admission.ts';

/** A name that an advisory concerns. */
interface AffectedName {
  name: string;
  advisory: KnownAdvisory;
}

/** The known vulnerabilities of the names of a protocol: those that accounts tell of their own content, and those of upstreams. */
interface NameAdvisories {
  /** Those of a name. An upstream that fails counts as one that tells none. */
  of(accountId: number, name: string): Promise<readonly KnownAdvisory[]>;
  /** The names that an advisory concerns, by its ID in any letter case. Throws if an upstream fails that told some before. */
  named(accountId: number, id: string): Promise<AffectedName[]>;
}

/** A document about content that accounts host. */
export interface AttachedDocument {
  mediaType: string;
  bytes: Buffer;
  annotations: Readonly<Record<string, string>>;
}

/** What a protocol knows about the content that was pulled from it. */
export interface Exposable {
  readonly kind: NameKind;
  /** Absent if nobody tells vulnerabilities of its names. */
  readonly advisories?: NameAdvisories;
  /** The name under which usage has what clients get as `name`; the same if absent. Throws `Invalid` for a text that is no name. */
  usedName?(accountId: number, name: string): Promise<string>;
  /** All names by which a list can mean what usage has as `name`, or as one of these; only itself if absent. */
  spellings?(name: string): readonly string[];
  /** The digests that a tag has had, the latest first; absent if names have no tags. */
  digestsOfTag?(accountId: number, name: string, tag: string): Promise<string[]>;
  /** How a bill of materials lists content. Absent if it cannot. */
  readonly component?: (name: string, reference: string) => BillComponent;
  /**
   * Adds a document to hosted content, if it is there and is no such document itself; `take` has to agree in the same transaction.
   * Resolves to whether the document was added. Absent if clients cannot read documents of content.
   */
  attach?(
    content: { accountId: number; name: string; reference: string },
    document: AttachedDocument,
    take: (tx: Transaction) => Promise<boolean>,
  ): Promise<boolean>;
}
