import type { Upstream } from '../upstream/upstream.ts';
import type { ImportGroup, ImportOptions } from './item.ts';

// The way back: what an account hosts is pushed to another server. The items are those of an import, in the other direction.

/** A server that gets content. */
export interface ExportTarget {
  /** Its base is the address of an index, or that below which the paths of a registry are. */
  remote: Upstream;
  /** The key with which packages are pushed. Only the origin of the index gets it. */
  apiKey?: string | undefined;
}

export interface ExportOptions extends Pick<
  ImportOptions,
  'accountId' | 'dryRun' | 'since' | 'isWanted' | 'moveTags' | 'warn' | 'signal'
> {
  /** Also versions of packages that an import brought. */
  all: boolean;
  /** The name that an image gets there. */
  nameThere: (name: string) => string;
}

/** The part of an export that a protocol implements. */
export interface Exportable {
  /** What an account hosts and a target of this protocol can get, in phases. */
  exportTo(target: ExportTarget, options: ExportOptions): readonly AsyncIterable<ImportGroup>[];
}
