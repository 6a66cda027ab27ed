import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { typed } from '../runtime/command-name.ts';
import { someWantBills } from '../accounts/wanted-bills.ts';
import { ConfigError } from '../config/load.ts';
import { forUpdate, type Database, type Transaction } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { makeFile } from '../storage/files/durable.ts';

const setting = 'ENTREPOT_SECRET_KEY_FILE';
/** A new key is accepted only when nothing needs the old one. */
const remedy = `if the key is lost, delete all webhooks of all accounts with "${typed('webhook delete')}", end the bills of materials of all accounts with "${typed('account bills off')}", and then begin again`;
/** Fewest characters of a key file. */
const min = 32;
/** Bytes of a nonce and of a tag of AES-256-GCM (NIST SP 800-38D). */
const nonceLength = 12;
const tagLength = 16;

/** What is derived from the key file. */
interface Key {
  encryption: Buffer;
  /** Shows whether two keys are the same, and nothing else. */
  proof: string;
  /** A key of some bytes for another use. */
  derive(use: string, length: number): Buffer;
}

/** Encrypts the secrets of webhooks with the key of the setting `secretKeyFile`. */
export class Secrets {
  readonly #database: Database;
  readonly #file: string;
  readonly #isDefault: boolean;
  #key: Key | undefined;

  /** With `isDefault` the file is made when the first secret is stored. */
  constructor(database: Database, file: string, isDefault: boolean) {
    this.#database = database;
    this.#file = file;
    this.#isDefault = isDefault;
  }

  /**
   * Why the stored secrets cannot be decrypted, and what to do; undefined if they can, or if there are none. Rejects with
   * `ConfigError` if a setting names a key file that cannot be read while there are none: then only the setting is wrong.
   */
  async problem(): Promise<string | undefined> {
    const hasSecrets = (await this.#storedProof()) !== undefined;
    if (this.#isDefault && !hasSecrets) return undefined;
    try {
      await this.#open();
      return undefined;
    } catch (error) {
      if (!hasSecrets || !(error instanceof ConfigError)) throw error;
      this.#key = undefined;
      return error.message;
    }
  }

  /**
   * Loads the key for new secrets. Makes the default file if it is missing and there are no secrets. Rejects with
   * `KeyUnavailable` if there is no key, or another one than that of the stored secrets.
   */
  async prepare(): Promise<void> {
    if (this.#isDefault && (await this.#storedProof()) === undefined)
      await makeFile(this.#file, `${randomBytes(32).toString('base64')}\n`);
    // The key of before stays until then: other work uses it meanwhile.
    await this.#open().catch(refuse);
  }

  /** Records which key encrypts the secrets, in the transaction that stores one. Call `prepare` before. As it, rejects with `KeyUnavailable`. */
  async claim(tx: Transaction): Promise<void> {
    const { proof } = this.#key!;
    await tx.insertNew('webhook_key', [{ id: 1, proof }]);
    const row = await tx.get<{ proof: string }>(`SELECT proof FROM webhook_key WHERE id = 1${forUpdate(tx)}`);
    if (row!.proof !== proof) refuse(wrongKey(this.#file));
  }

  /** Makes `claim` of others wait until the end of the transaction. */
  async hold(tx: Transaction): Promise<void> {
    await tx.run('UPDATE webhook_key SET id = 1 WHERE id = 1');
  }

  /** Forgets which key it is if no webhook and no account with bills of materials needs it any more. Call `hold` before. */
  async release(tx: Transaction): Promise<void> {
    if (await tx.get('SELECT id FROM webhooks WHERE deleted_at IS NULL LIMIT 1')) return;
    if (!(await someWantBills(tx))) await tx.run('DELETE FROM webhook_key WHERE id = 1');
  }

  /** Encrypts `secret` for the webhook `id`. Call `prepare` before. */
  encrypt(id: string, secret: string): string {
    const nonce = randomBytes(nonceLength);
    const cipher = createCipheriv('aes-256-gcm', this.#key!.encryption, nonce).setAAD(Buffer.from(id));
    const text = Buffer.concat([cipher.update(secret, 'utf8'), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), text]).toString('base64');
  }

  /** The secret of the webhook `id`. Rejects with `KeyUnavailable` if the key is missing or a wrong one. */
  async decrypt(id: string, encrypted: string): Promise<string> {
    const { encryption } = this.#key ?? (await this.#open().catch(refuse));
    const bytes = Buffer.from(encrypted, 'base64');
    const [nonce, tag] = [bytes.subarray(0, nonceLength), bytes.subarray(nonceLength, nonceLength + tagLength)];
    const decipher = createDecipheriv('aes-256-gcm', encryption, nonce, { authTagLength: tagLength })
      .setAAD(Buffer.from(id))
      .setAuthTag(tag);
    try {
      return decipher.update(bytes.subarray(nonceLength + tagLength), undefined, 'utf8') + decipher.final('utf8');
    } catch (error) {
      // Another instance may have stored new secrets with another key.
      this.#key = undefined;
      return refuse(wrongKey(this.#file, error));
    }
  }

  /**
   * A secret of `length` bytes for another use than webhooks, always the same for one key. Undefined if there is no key yet: `prepare`
   * makes one. Rejects with `KeyUnavailable`.
   */
  async derive(use: string, length: number): Promise<Buffer | undefined> {
    if (!this.#key && this.#isDefault && !existsSync(this.#file) && (await this.#storedProof()) === undefined)
      return undefined;
    const key = await this.#open().catch(refuse);
    return key.derive(use, length);
  }

  /** Rejects with `ConfigError` if secrets cannot be decrypted now. */
  async ready(): Promise<void> {
    if (!this.#key) await this.#open();
  }

  async #open(): Promise<Key> {
    const key = keyOf(await readKeyFile(this.#file));
    const proof = await this.#storedProof();
    if (proof !== undefined && proof !== key.proof) throw wrongKey(this.#file);
    this.#key = key;
    return key;
  }

  async #storedProof(): Promise<string | undefined> {
    return (await this.#database.get<{ proof: string }>('SELECT proof FROM webhook_key WHERE id = 1'))?.proof;
  }
}

/** For a request: the client gets no path. */
function refuse(error: unknown): never {
  if (!(error instanceof ConfigError)) throw error;
  throw new DomainError(
    'KeyUnavailable',
    `The key that encrypts the secrets of webhooks and signs bills of materials is missing on this server, or it is another one. An operator has to put it back ("${typed('doctor')}" names the reason); ${remedy}.`,
    { cause: error },
  );
}

function wrongKey(file: string, cause?: unknown): ConfigError {
  return new ConfigError(
    `${setting}: the key in ${file} is not the one that encrypts the secrets of webhooks and signs bills of materials. Use the same key on all instances; ${remedy}`,
    { cause },
  );
}

function keyOf(text: string): Key {
  const derive = (use: string, length = 32) => Buffer.from(hkdfSync('sha256', text, '', `entrepot ${use}`, length));
  return {
    encryption: derive('webhook secrets'),
    proof: createHmac('sha256', derive('key proof')).update('webhook secrets').digest('base64'),
    derive,
  };
}

/**
 * Shows whether two instances have the same key, and nothing else; undefined if the default file is not made yet. Rejects with
 * `ConfigError` if the file cannot be read.
 */
export async function keyFingerprint(file: string, isDefault: boolean): Promise<string | undefined> {
  if (isDefault && !existsSync(file)) return undefined;
  return keyOf(await readKeyFile(file)).proof.slice(0, 16);
}

async function readKeyFile(file: string): Promise<string> {
  let text: string;
  try {
    text = (await readFile(file, 'utf8')).trim();
  } catch (error) {
    throw new ConfigError(
      `${setting}: cannot read the key that encrypts the secrets of webhooks and signs bills of materials: ${(error as Error).message}. Put the file back; ${remedy}`,
    );
  }
  if (text.length >= min) return text;
  throw new ConfigError(
    `${setting}: ${file} needs at least ${min} characters, for example from "openssl rand -base64 32"; ${remedy}`,
  );
}
