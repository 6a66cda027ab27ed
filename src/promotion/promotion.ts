import type { NameKind } from '../accounts/names.ts';
import type { Actor } from '../runtime/caller.ts';
import type { Digest } from '../runtime/digest.ts';

export const promotionStates = ['requested', 'done', 'rejected'] as const;
export type PromotionState = (typeof promotionStates)[number];

/** Most characters of the reason of a promotion. */
export const maxPromotionReason = 500;

/** Content of an account that appears, or shall appear, in another account or under another name. */
export interface Promotion {
  id: number;
  state: PromotionState;
  kind: NameKind;
  from: { accountId: number; name: string };
  /** The version, tag or digest that was named. */
  reference: string;
  /** What it meant then, and what is promoted: the digest of the nupkg or of the manifest. */
  digest: Digest;
  to: { accountId: number; name: string };
  reason: string;
  /** The person, rule or token that asked, as one text. */
  requester: string;
  requestedBy: Actor;
  /** Milliseconds since 1970 UTC. */
  requestedAt: number;
  decidedBy: Actor | null;
  decidedAt: number | null;
}

/** A row of the table `promotions`. */
export interface PromotionRow {
  id: number;
  state: PromotionState;
  kind: NameKind;
  from_account: number;
  from_name: string;
  reference: string;
  digest: Digest;
  to_account: number;
  to_name: string;
  reason: string;
  requester: string;
  requested_by: string;
  requested_at: number;
  decided_by: string | null;
  decided_at: number | null;
}

export function toPromotion(row: PromotionRow): Promotion {
  return {
    id: row.id,
    state: row.state,
    kind: row.kind,
    from: { accountId: row.from_account, name: row.from_name },
    reference: row.reference,
    digest: row.digest,
    to: { accountId: row.to_account, name: row.to_name },
    reason: row.reason,
    requester: row.requester,
    requestedBy: JSON.parse(row.requested_by) as Actor,
    requestedAt: row.requested_at,
    decidedBy: row.decided_by === null ? null : (JSON.parse(row.decided_by) as Actor),
    decidedAt: row.decided_at,
  };
}
