import { z } from 'zod';
import { DomainError, errorNames } from '../runtime/errors.ts';

// What instances send to each other. A call is one POST to `/relay`: the header `Entrepot-Call` has the call as base64url of
// JSON, `Authorization` its signature. The body of an upload follows as it arrives. The answer is JSON, and is signed too.

export const relayPath = '/relay';
export const callHeader = 'entrepot-call';
export const answerHeader = 'entrepot-answer';
export const scheme = 'Entrepot';

/** Largest answer in bytes. */
export const maxAnswer = 64 * 1024;

const text = z.string().nullable();

/** Only an instance with the secret can make one, so its values are those that the sender has checked. */
const relayCall = z.strictObject({
  /** The data folder for which it is: another instance may have the address by now. */
  to: z.string(),
  /** When it was sent, in milliseconds since 1970 UTC. */
  at: z.int(),
  /** The handler. */
  name: z.string(),
  /** The client for whom it is. See `Origin`. */
  origin: z.strictObject({
    actor: z.strictObject({ kind: z.enum(['token', 'person', 'rule', 'anonymous', 'system']), id: text, name: text }),
    address: text,
    requestId: text,
  }),
  /** Checked by the handler. */
  work: z.unknown(),
});

export type RelayCall = z.output<typeof relayCall>;

/** A call in the form of its header. */
export function encodeCall(call: RelayCall): string {
  return Buffer.from(JSON.stringify(call)).toString('base64url');
}

/** Undefined if it is malformed. */
export function decodeCall(header: string): RelayCall | undefined {
  try {
    return relayCall.parse(JSON.parse(Buffer.from(header, 'base64url').toString()));
  } catch {
    return undefined;
  }
}

const answer = z.union([
  z.strictObject({ result: z.unknown() }),
  z.strictObject({
    error: z.strictObject({
      name: z.enum(errorNames),
      message: z.string(),
      detail: z.record(z.string(), z.unknown()).optional(),
      retryAfter: z.number().optional(),
    }),
  }),
]);

export function encodeResult(result: unknown): string {
  return JSON.stringify({ result: result ?? null });
}

export function encodeError({ name, message, detail, retryAfter }: DomainError): string {
  return JSON.stringify({ error: { name, message, detail, retryAfter } });
}

/** The result in an answer. Throws the domain error in it; any other error if it is malformed. */
export function resultIn(body: string): unknown {
  const parsed = answer.parse(JSON.parse(body));
  if ('result' in parsed) return parsed.result;
  const { name, message, ...options } = parsed.error;
  throw new DomainError(name, message, options);
}
