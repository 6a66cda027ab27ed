import type { Transaction } from '../database/database.ts';
import type { Promotion } from './promotion.ts';

/** What a protocol does for promotions of what accounts host. */
export interface PromotableContents {
  /** What a version, tag or digest of an account is now. Throws `NotFound`, and `Invalid` for what is none of these. */
  bind(
    accountId: number,
    name: string,
    reference: string,
  ): Promise<Pick<Promotion, 'reference' | 'digest'> & { name: string }>;
  /** The name `wanted` as it is stored. Throws `Invalid` for a name that content of `name` cannot have. */
  nameFor(name: string, wanted: string): string;
  /** Reads what a promotion carries. Throws `NotFound` if it was deleted since, and `TooLarge`. */
  prepare(promotion: PromotedPlaces): Promise<PreparedPromotion>;
}

export type PromotedPlaces = Pick<Promotion, 'from' | 'reference' | 'digest' | 'to'> & { fromAccount: string };

export interface PreparedPromotion {
  /** Bytes that the account of the target does not store yet. */
  bytes: number;
  /**
   * Shows it under its new name, all of it or nothing. Resolves to whether anything changed. Throws `NotFound` if the source is gone,
   * and `AlreadyExists` for a version with other bytes.
   */
  write(tx: Transaction): Promise<boolean>;
}
