import { DomainError } from '../runtime/errors.ts';

/** The header fields of draft-ietf-httpapi-ratelimit-headers-10, with the name of the limit as the name of the policy. */
export type RateLimitFields = Readonly<Record<'RateLimit-Policy' | 'RateLimit', string>>;

/** `reset` is the number of milliseconds until the whole quota of a minute is free. */
export function rateFields(limit: string, quota: number, reset: number): RateLimitFields {
  const remaining = Math.max(0, Math.floor((1 - reset / 60_000) * quota));
  return {
    'RateLimit-Policy': `"${limit}";q=${quota};w=60`,
    RateLimit: `"${limit}";r=${remaining};t=${Math.ceil(reset / 1000)}`,
  };
}

/** For a limit of requests at the same time. Nothing says when one of them ends. */
export function concurrencyFields(limit: string, quota: number): RateLimitFields {
  return { 'RateLimit-Policy': `"${limit}";q=${quota};qu="concurrent-requests"`, RateLimit: `"${limit}";r=0` };
}

/** `TooManyRequests` because of a limit, with the header fields of its answer. */
export class LimitExceeded extends DomainError {
  readonly fields: RateLimitFields;

  /** `retryAfter` is in seconds. */
  constructor(message: string, limit: string, retryAfter: number, fields: RateLimitFields) {
    const seconds = retryAfter === 1 ? '1 second' : `${retryAfter} seconds`;
    super('TooManyRequests', `${message} Try again in ${seconds}.`, { detail: { limit }, retryAfter });
    this.fields = fields;
  }
}
