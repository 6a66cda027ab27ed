import { z } from 'zod';
import { bundleInvalid, instant, maxStatement } from './format.ts';
import type { SigningKey } from '../runtime/dsse.ts';
import { readEnvelope, readPublicKey, seal, type Envelope, type PublicKey } from './keys.ts';

// Signed statements about keys. The type of each is in what is signed, so that none of them can stand for another, for a bundle or
// for a receipt.

/** A key signs that another one is to be trusted. */
export const keyStatementType = 'application/vnd.entrepot.bundle-key.v1+json';
/** A key signs that another one must not be trusted any more. */
export const revocationType = 'application/vnd.entrepot.bundle-key-revocation.v1+json';

/** What keys that sign bundles and receipts may sign. */
export const signingRoles = ['bundles', 'receipts', 'both'] as const;
type SigningRole = (typeof signingRoles)[number];

const keySchema = z.strictObject({
  public_key: z.string().max(2000),
  /** null for the role that the key which signs has at the receiver. */
  role: z.enum(signingRoles).nullable(),
  /** Milliseconds since 1970 UTC; null without an end. */
  expires_at: instant.nullable(),
});
const revocationSchema = z.strictObject({ key: z.string().regex(/^[0-9a-f]{64}$/) });

/** The statement of a key that a new one is to be trusted. */
export interface KeyStatement {
  key: PublicKey;
  role: SigningRole | null;
  expiresAt: number | null;
  /** Its signatures are not checked yet. */
  envelope: Envelope;
}

/** The statement of a key that another one is revoked. */
export interface Revocation {
  /** The ID of the revoked key. */
  id: string;
  /** Its signatures are not checked yet. */
  envelope: Envelope;
}

/** A statement by `signer` that `key` is to be trusted. */
export function writeKeyStatement(
  { key, role, expiresAt }: Omit<KeyStatement, 'envelope'>,
  signer: SigningKey,
): string {
  const payload: z.input<typeof keySchema> = { public_key: key.pem, role, expires_at: expiresAt };
  return seal(keyStatementType, Buffer.from(JSON.stringify(payload)), signer);
}

/** A statement by `signer` that the key with this ID is revoked. */
export function writeRevocation(id: string, signer: SigningKey): string {
  const payload: z.input<typeof revocationSchema> = { key: id };
  return seal(revocationType, Buffer.from(JSON.stringify(payload)), signer);
}

/** Whether a text is a statement, and no public key. */
export function isStatement(text: string): boolean {
  return text.trimStart().startsWith('{');
}

/** Reads a statement about a new key. Throws `Invalid`; `place` is for the message. */
export function readKeyStatement(text: string, place: string): KeyStatement {
  const { envelope, stated } = read(keyStatementType, keySchema, text, place, 'signed statement about a new key');
  const { public_key: pem, role, expires_at: expiresAt } = stated;
  return { key: readPublicKey(pem, place), role, expiresAt, envelope };
}

/** Reads a revocation. Throws `Invalid`; `place` is for the message. */
export function readRevocation(text: string, place: string): Revocation {
  const { envelope, stated } = read(revocationType, revocationSchema, text, place, 'signed revocation of a key');
  return { id: stated.key, envelope };
}

function read<T>(type: string, schema: z.ZodType<T>, text: string, place: string, what: string) {
  const wrong = (cause?: unknown) => bundleInvalid(`${place} is no ${what}`, cause);
  if (text.length > maxStatement) throw wrong();
  try {
    const envelope = readEnvelope(type, text, place);
    return { envelope, stated: schema.parse(JSON.parse(envelope.payload.toString())) };
  } catch (error) {
    throw wrong(error);
  }
}
