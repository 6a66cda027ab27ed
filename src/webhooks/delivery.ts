import { headersOf } from './signature.ts';

/** `pending` until an attempt succeeds, or until all attempts have failed. */
export const deliveryStates = ['pending', 'delivered', 'failed'] as const;
type DeliveryState = (typeof deliveryStates)[number];

export interface DeliveryRow {
  number: number;
  id: string;
  webhook_id: string;
  event_position: number;
  type: string;
  body: string;
  state: DeliveryState;
  attempts: number;
  /** When the next attempt is due. While an attempt is being made: when its lease ends. */
  next_at: number;
  lease: string | null;
  created_at: number;
  attempted_at: number | null;
  duration: number | null;
  status: number | null;
  failure: string | null;
  answer: string | null;
}

/** One request to a receiver. Times are in milliseconds. */
export interface DeliveryAttempt {
  /** Since 1970 UTC. */
  at: number;
  duration: number;
  status: number | null;
  /** The first KiB of the answer's body. */
  answer: string | null;
  /** Why it failed; null if it succeeded. */
  failure: string | null;
  /** The header `Retry-After` of the answer. */
  retryAfter?: string | undefined;
}

/** A delivery as readers get it. */
export function deliveryItem(row: DeliveryRow) {
  return {
    id: row.id,
    event_id: String(row.event_position),
    type: row.type,
    state: row.state,
    attempts: row.attempts,
    created_at: new Date(row.created_at).toISOString(),
    next_attempt_at: row.state === 'pending' ? new Date(row.next_at).toISOString() : null,
    last_attempt:
      row.attempted_at === null
        ? null
        : attemptItem(row.id, {
            at: row.attempted_at,
            duration: row.duration!,
            status: row.status,
            answer: row.answer,
            failure: row.failure,
          }),
  };
}

/** An attempt as readers get it, without its signature. `id` is that of its message. */
export function attemptItem(id: string, { at, duration, status, answer, failure }: DeliveryAttempt) {
  return {
    at: new Date(at).toISOString(),
    duration_ms: duration,
    request_headers: headersOf(id, at),
    status,
    answer,
    error: failure,
  };
}

export type AttemptItem = ReturnType<typeof attemptItem>;
export type DeliveryItem = ReturnType<typeof deliveryItem>;
