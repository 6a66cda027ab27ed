import type { Actor } from '../runtime/caller.ts';
import type { Layer, PolicySubject } from './decide.ts';

export const waiverStates = ['requested', 'approved', 'rejected', 'ended'] as const;
export type WaiverState = (typeof waiverStates)[number];

/** The state at a time: a waiver whose time has passed has ended, also before the job notes it. */
export function stateAt({ state, expiresAt }: Waiver, time: number): WaiverState {
  return expiresAt <= time && state !== 'rejected' ? 'ended' : state;
}

/** A wish to let something through that a policy refuses, or the permission. Times are in milliseconds since 1970 UTC. */
export interface Waiver {
  id: number;
  accountId: number;
  state: WaiverState;
  /** The policy of which it lifts something; null before it was approved. */
  layer: Layer['scope'] | null;
  kind: PolicySubject['kind'];
  name: string;
  /** The name by which policies mean it, in lower case. */
  key: string;
  /** Versions, ranges of versions, tags, and digests, in the form that policies see. */
  references: readonly string[];
  /** `age`, `withdrawn`, `republished`, the name of a rule, or the ID of an advisory or of an entry of a list. */
  lifts: string;
  reason: string;
  /** The person, rule or token that asked, as one text. */
  requester: string;
  requestedBy: Actor;
  requestedAt: number;
  decidedBy: Actor | null;
  decidedAt: number | null;
  expiresAt: number;
  endedAt: number | null;
}

/** A row of the table `waivers`. */
export interface WaiverRow {
  id: number;
  account_id: number;
  state: WaiverState;
  layer: Waiver['layer'];
  kind: Waiver['kind'];
  name: string;
  name_key: string;
  reference_list: string;
  lifts: string;
  reason: string;
  requester: string;
  requested_by: string;
  requested_at: number;
  decided_by: string | null;
  decided_at: number | null;
  expires_at: number;
  ended_at: number | null;
}

export function toWaiver(row: WaiverRow): Waiver {
  return {
    id: row.id,
    accountId: row.account_id,
    state: row.state,
    layer: row.layer,
    kind: row.kind,
    name: row.name,
    key: row.name_key,
    references: JSON.parse(row.reference_list) as string[],
    lifts: row.lifts,
    reason: row.reason,
    requester: row.requester,
    requestedBy: JSON.parse(row.requested_by) as Waiver['requestedBy'],
    requestedAt: row.requested_at,
    decidedBy: row.decided_by === null ? null : (JSON.parse(row.decided_by) as Waiver['decidedBy']),
    decidedAt: row.decided_at,
    expiresAt: row.expires_at,
    endedAt: row.ended_at,
  };
}
