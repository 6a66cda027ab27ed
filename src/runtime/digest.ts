import { createHash, type Hash } from 'node:crypto';
import { DomainError } from './errors.ts';

/** `algorithm:hex`, lower case (OCI image-spec "Digests"), with one of the two registered algorithms. */
export type Digest = `${'sha256' | 'sha512'}:${string}`;
export type DigestAlgorithm = 'sha256' | 'sha512';

const pattern = /^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/;

/** Whether `text` is a well-formed digest. */
export function isDigest(text: string): text is Digest {
  return pattern.test(text);
}

/** Whether `text` is a digest or at least eight characters of its value. */
export function isDigestBeginning(text: string): boolean {
  return /^sha(?:256:[0-9a-f]{8,64}|512:[0-9a-f]{8,128})$/.test(text);
}

/** The digest in `text`; throws `DigestInvalid` if it is malformed or has an unknown algorithm. */
export function parseDigest(text: string): Digest {
  if (isDigest(text)) return text;
  throw new DomainError('DigestInvalid', 'A digest has to be sha256:<64 hex> or sha512:<128 hex>, in lower case.', {
    detail: { digest: text.slice(0, 160) },
  });
}

/** The algorithm of a digest. */
export function algorithmOf(digest: Digest): DigestAlgorithm {
  return digest.startsWith('sha512:') ? 'sha512' : 'sha256';
}

/** The hexadecimal part of a digest. */
export function hexOf(digest: Digest): string {
  return digest.slice(7);
}

/** A running hash of the given algorithm. */
export function startHash(algorithm: DigestAlgorithm): Hash {
  return createHash(algorithm);
}

/** The digest of everything hashed so far; the hash can be updated further. */
export function digestSoFar(hash: Hash, algorithm: DigestAlgorithm): Digest {
  return `${algorithm}:${hash.copy().digest('hex')}`;
}

/** The digest of bytes in memory. */
export function digestOf(bytes: Uint8Array | string, algorithm: DigestAlgorithm = 'sha256'): Digest {
  return `${algorithm}:${createHash(algorithm).update(bytes).digest('hex')}`;
}
