import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  verify,
  type KeyObject,
} from 'node:crypto';
import { z } from 'zod';
import { envelopeOf, signedBytes, type SigningKey } from '../runtime/dsse.ts';
import { bundleInvalid } from './format.ts';

// Signatures of bundles and receipts: a DSSE envelope over Ed25519.

const envelopeSchema = z.object({
  payloadType: z.string().max(200),
  payload: z.base64().max(16_384),
  signatures: z.array(z.object({ keyid: z.string().max(200), sig: z.base64().max(200) })).max(10),
});

/** A public key. `id` is the SHA-256 of its DER form, in hexadecimal digits. */
export interface PublicKey {
  id: string;
  pem: string;
}

/** What an envelope says, and the keys whose signatures it claims to have. */
export interface Envelope {
  payload: Buffer;
  signatures: readonly { keyId: string; signature: Buffer }[];
}

/** A new pair, as PEM. */
export function newKeyPair(): { privateKey: string; publicKey: PublicKey } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return { privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), publicKey: publicOf(publicKey) };
}

/** Reads a private key. Throws `Invalid`; `file` is for the message, which has nothing of the key. */
export function readSigningKey(pem: string, file: string): SigningKey {
  let key: KeyObject;
  try {
    key = createPrivateKey(pem);
  } catch {
    throw bundleInvalid(`${file}: this is no private key in PEM`);
  }
  if (key.asymmetricKeyType !== 'ed25519') throw bundleInvalid(`${file}: this is no Ed25519 key`);
  return { id: publicOf(createPublicKey(key)).id, key };
}

/** Reads a public key. Throws `Invalid`. A private key is refused: only its owner may have it. */
export function readPublicKey(pem: string, file: string): PublicKey {
  if (pem.includes('PRIVATE KEY'))
    throw bundleInvalid(`${file}: this is a private key; give the public key, and keep the private one to yourself`);
  let key: KeyObject;
  try {
    key = createPublicKey(pem);
  } catch {
    throw bundleInvalid(`${file}: this is no public key in PEM`);
  }
  if (key.asymmetricKeyType !== 'ed25519') throw bundleInvalid(`${file}: this is no Ed25519 key`);
  return publicOf(key);
}

function publicOf(key: KeyObject): PublicKey {
  const der = key.export({ type: 'spki', format: 'der' });
  const id = createHash('sha256').update(der).digest('hex');
  return { id, pem: key.export({ type: 'spki', format: 'pem' }).toString() };
}

/** An envelope with `payload` as a line of a file, signed with `key`; without a key it has no signature. */
export function seal(type: string, payload: Buffer, key: SigningKey | undefined): string {
  return `${JSON.stringify(envelopeOf(type, payload, key))}\n`;
}

/** Reads an envelope of `type`, without a check of its signatures. Throws `Invalid`; `place` is for the message. */
export function readEnvelope(type: string, text: string, place: string): Envelope {
  const { data } = envelopeSchema.safeParse(jsonOf(text));
  if (data?.payloadType !== type) throw bundleInvalid(`${place}: the statement that is signed cannot be read`);
  const signatures = data.signatures.map(({ keyid, sig }) => ({ keyId: keyid, signature: Buffer.from(sig, 'base64') }));
  return { payload: Buffer.from(data.payload, 'base64'), signatures };
}

/** Whether `envelope` has a signature by `key`. */
export function isSealedBy(type: string, { payload, signatures }: Envelope, key: PublicKey): boolean {
  const publicKey = createPublicKey(key.pem);
  const bytes = signedBytes(type, payload);
  return signatures.some(({ keyId, signature }) => keyId === key.id && verify(null, bytes, publicKey, signature));
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
