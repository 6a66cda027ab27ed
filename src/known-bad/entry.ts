/** What a list names, by ids and ranges of versions or by names of images. */
export type BadKind = 'package' | 'image';

/** An event of a range (OSV schema 1.7, `affected[].ranges[].events`): one of these versions. */
export interface RangeEvent {
  /** The first affected version; `0` stands below every version. */
  introduced?: string;
  /** The first version that is not affected any more. */
  fixed?: string;
  /** The last affected version. */
  last_affected?: string;
  /** Versions from here on are not affected, whatever the other events say; `*` stands above every version. */
  limit?: string;
}

/** What is stored of an entry beside its name. */
export interface BadDetail {
  /** Why it is bad, in one line; can be empty. */
  reason: string;
  /** The events of each range, as written: in any order. */
  ranges?: readonly (readonly RangeEvent[])[];
  /** Affected versions, as written. */
  versions?: readonly string[];
  /** Affected versions as a range in the notation of the protocol, such as `[1.0, 2.0)`. */
  range?: string;
}

/** An entry of a list. Without `ranges`, `versions` and `range`, all versions of its name are bad. */
export interface BadEntry extends BadDetail {
  /** The name of the list. */
  list: string;
  /** The ID of the record, such as `MAL-2026-1`. */
  id: string;
}

/** Whether an entry means a version. A protocol knows how versions are compared. */
export type AffectedTest = (entry: BadDetail, version: string) => boolean;

/** Bounds of one list. A list above one of them is refused as a whole. */
export interface ListLimits {
  /** Bytes of its file or its body. */
  fileBytes: number;
  /** Bytes of all its records together, unpacked. */
  unpackedBytes: number;
  recordBytes: number;
  /** Records that are read. */
  records: number;
  /** Entries that are kept, and their bytes. */
  entries: number;
  entryBytes: number;
  /** Entries that are kept of one name, and their bytes; also patterns of images. */
  entriesOfName: number;
  bytesOfName: number;
}

export const defaultListLimits: ListLimits = {
  fileBytes: 512 * 2 ** 20,
  unpackedBytes: 2 * 2 ** 30,
  recordBytes: 2 ** 20,
  records: 1_000_000,
  entries: 200_000,
  entryBytes: 256 * 2 ** 20,
  entriesOfName: 1000,
  bytesOfName: 2 ** 20,
};

/** A list cannot be used. The message follows the name of the list in a sentence. */
export class ListRefused extends Error {}
