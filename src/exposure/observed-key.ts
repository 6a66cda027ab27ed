import { createECDH, createHash, createPrivateKey, createPublicKey, type JsonWebKey } from 'node:crypto';
import type { SigningKey } from '../runtime/dsse.ts';

/** Bytes of a seed: 64 bits more than a private key has, so that all keys are as likely (FIPS 186-5, A.2.1). */
export const seedLength = 40;

/** The order of the curve P-256 (SP 800-186, 3.2.1.3). */
const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** A key that signs, and the public one as PEM. */
export interface ObservedKey extends SigningKey {
  publicKey: string;
}

/** The ECDSA key on P-256 of a secret seed. Its ID is what cosign calls the hint of a public key: the digest of its DER form. */
export function observedKeyOf(seed: Buffer): ObservedKey {
  const number = (BigInt(`0x${seed.toString('hex')}`) % (order - 1n)) + 1n;
  const secret = Buffer.from(number.toString(16).padStart(64, '0'), 'hex');
  const pair = createECDH('prime256v1');
  pair.setPrivateKey(secret);
  // Uncompressed: a byte that says so, then both coordinates (SEC 1, 2.3.3).
  const point = pair.getPublicKey();
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map((each) => each.toString('base64url'));
  const jwk: JsonWebKey = { kty: 'EC', crv: 'P-256', d: secret.toString('base64url'), x: x!, y: y! };
  const key = createPrivateKey({ format: 'jwk', key: jwk });
  const open = createPublicKey(key);
  const id = createHash('sha256')
    .update(open.export({ type: 'spki', format: 'der' }))
    .digest('base64');
  return { id, key, publicKey: open.export({ type: 'spki', format: 'pem' }).toString() };
}
