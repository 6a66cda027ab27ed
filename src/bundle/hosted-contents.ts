import type { NameSet } from '../accounts/names.ts';
import type { Transaction } from '../database/database.ts';
import type { Digest } from '../runtime/digest.ts';
import type { BundleEntry } from './format.ts';

/** A file, manifest or tag that an account hosts, as bundles carry it. */
export type HostedEntry = Pick<
  BundleEntry,
  'kind' | 'name' | 'reference' | 'digest' | 'size' | 'type' | 'attributes' | 'seen'
>;

/** What a protocol does for bundles with content that accounts host. */
export interface HostedContents {
  /** What an account hosts under `names`. */
  entries(accountId: number, names: NameSet): AsyncIterable<HostedEntry>;
  /** Those of `digests` that hosted content of the account has. */
  among(accountId: number, digests: readonly Digest[]): Promise<Set<string>>;
  /**
   * Reads entries whose content is stored; `stage` stores files of them. Throws `Invalid` for entries that are not what their content
   * is, and as a push does.
   */
  prepare(
    accountId: number,
    entries: readonly HostedEntry[],
    stage: (bytes: Buffer) => Promise<Digest>,
  ): Promise<WriteHosted>;
}

/**
 * Shows what was read, as pushes do; resolves to how many entries were new or changed. With `isOlder`, what is here is not changed.
 * Throws `Invalid` where other content has the same name.
 */
export type WriteHosted = (tx: Transaction, options: { isOlder: boolean; from: string }) => Promise<number>;

/** Most bytes of metadata and manifests that an import of hosted content holds in memory. */
export const maxHostedMemory = 64 * 2 ** 20;
