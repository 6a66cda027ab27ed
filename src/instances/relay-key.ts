import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { ConfigError, readSecretFile } from '../config/load.ts';

const setting = 'ENTREPOT_INTERNAL_SECRET_FILE';
/** Fewest characters of the file. */
const min = 32;

/** Signs what instances send to each other. The secret itself is never sent. */
export class RelayKey {
  readonly #key: Buffer;

  constructor(secret: string) {
    this.#key = Buffer.from(hkdfSync('sha256', secret, '', 'entrepot relay between instances, version 1', 32));
  }

  /** Throws `ConfigError` if the file cannot be read or is too short. */
  static read(file: string): RelayKey {
    const secret = readSecretFile(file, setting);
    if (secret.length >= min) return new RelayKey(secret);
    throw new ConfigError(
      `${setting}: ${file} needs at least ${min} characters, for example from "openssl rand -base64 32"`,
    );
  }

  /** Shows whether two instances have the same secret, and nothing else. */
  get fingerprint(): string {
    return this.#sign('fingerprint', '').slice(0, 16);
  }

  /** The signature of a call, from its header. */
  ofCall(call: string): string {
    return this.#sign('call', call);
  }

  /** The signature of the answer to the call with the signature `call`. */
  ofAnswer(call: string, body: string): string {
    return this.#sign('answer', `${call}\n${body}`);
  }

  #sign(use: string, text: string): string {
    return createHmac('sha256', this.#key).update(`${use}\n${text}`).digest('hex');
  }
}

/** Compares two signatures in a time that does not depend on where they differ. */
export function isSameSignature(expected: string, given: string): boolean {
  const [one, other] = [Buffer.from(expected), Buffer.from(given)];
  return one.length === other.length && timingSafeEqual(one, other);
}
