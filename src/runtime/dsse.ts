import { sign, type KeyObject } from 'node:crypto';

// A DSSE envelope: secure-systems-lab/dsse, "Envelope".

/** A key that signs: Ed25519, or ECDSA with SHA-256. `id` says to readers which one it is; empty if something else does. */
export interface SigningKey {
  id: string;
  key: KeyObject;
}

/** The envelope of a payload. */
interface DsseEnvelope {
  payloadType: string;
  /** Base64, as `sig`. */
  payload: string;
  signatures: { keyid: string; sig: string }[];
}

/** An envelope with `payload`, signed with `key`; without a key it has no signature. */
export function envelopeOf(payloadType: string, payload: Buffer, key: SigningKey | undefined): DsseEnvelope {
  const signatures = key ? [{ keyid: key.id, sig: signatureOf(payloadType, payload, key.key) }] : [];
  return { payloadType, payload: payload.toString('base64'), signatures };
}

function signatureOf(type: string, payload: Buffer, key: KeyObject): string {
  const algorithm = key.asymmetricKeyType === 'ec' ? 'sha256' : null;
  return sign(algorithm, signedBytes(type, payload), key).toString('base64');
}

/** What is signed: the pre-authentication encoding, PAE (dsse "Protocol"). */
export function signedBytes(type: string, payload: Buffer): Buffer {
  const head = `DSSEv1 ${Buffer.byteLength(type)} ${type} ${payload.length} `;
  return Buffer.concat([Buffer.from(head), payload]);
}
