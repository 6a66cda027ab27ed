import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Database } from '../database/database.ts';

/** What is signed. */
type Purpose = 'session' | 'sign-in' | 'notice';

/**
 * The key that signs the cookies of the console, the same on all instances. A signature shows without a look-up that a server
 * of this installation made a cookie. It gives no right.
 */
export class CookieKey {
  readonly #database: Database;
  #key: Promise<Buffer> | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  /** The signature of a text, 32 bytes. Texts for another purpose have other signatures. */
  async sign(purpose: Purpose, text: string): Promise<Buffer> {
    this.#key ??= this.#read();
    let key: Buffer;
    try {
      key = await this.#key;
    } catch (error) {
      this.#key = undefined;
      throw error;
    }
    return createHmac('sha256', key).update(`${purpose} ${text}`).digest();
  }

  /** Whether `signature` begins the signature of a text, and has `length` bytes of it. */
  async isSigned(purpose: Purpose, text: string, signature: Buffer, length: number = 32): Promise<boolean> {
    const expected = (await this.sign(purpose, text)).subarray(0, length);
    return signature.length === length && timingSafeEqual(signature, expected);
  }

  /** Makes the key if no instance has made it. */
  async #read(): Promise<Buffer> {
    const known = await this.#stored();
    if (known) return known;
    const value = randomBytes(32).toString('base64');
    await this.#database.transaction((tx) => tx.insertNew('cookie_key', [{ id: 1, value }]), { uncached: true });
    return (await this.#stored())!;
  }

  async #stored(): Promise<Buffer | undefined> {
    const row = await this.#database.get<{ value: string }>('SELECT value FROM cookie_key WHERE id = 1');
    return row && Buffer.from(row.value, 'base64');
  }
}
