import { open, stat } from 'node:fs/promises';
import { readSecretFile } from '../config/load.ts';
import type { UpstreamAuth } from './credentials.ts';

/** Where the credentials of an upstream come from. */
export interface CredentialSource {
  /** Whether they are a bearer token, and not a user name with a password. */
  readonly isBearer: boolean;
  /** The credentials to send now. Throws `Refused` if there are none. */
  get(): UpstreamAuth | Promise<UpstreamAuth>;
  /** The credentials to send after the upstream refused those of `get`; the same if there are no newer ones. */
  renew(): UpstreamAuth | Promise<UpstreamAuth>;
  close?(): void;
}

/** Credentials that stand in the settings. */
export function fixedCredentials(auth: UpstreamAuth): CredentialSource {
  return { isBearer: 'bearer' in auth, get: () => auth, renew: () => auth };
}

/** A file is looked at again after this many milliseconds. */
const checkEvery = 1000;
/** Most bytes of a file that is read again. */
const fileLimit = 64 * 1024;

interface SecretFileParts {
  file: string;
  /** The setting that names the file. */
  key: string;
  /** The credentials with the secret in the file. */
  authOf: (secret: string) => UpstreamAuth;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** Called with the reason when a changed file cannot be read. The credentials stay as they were. */
  onFailure: (reason: string) => void;
}

/** Credentials with a secret in a file, which is read again when it changes. */
export class SecretFile implements CredentialSource {
  readonly #parts: SecretFileParts;
  #auth: UpstreamAuth;
  #version = '';
  #checkedAt = -Infinity;
  /** The reason that was reported last, so that a failure that lasts is reported once. */
  #reported: string | undefined;
  #checking: Promise<void> | undefined;

  /** Reads the file. Throws `ConfigError` if it cannot be read or is empty. */
  constructor(parts: SecretFileParts) {
    this.#parts = parts;
    this.#auth = parts.authOf(readSecretFile(parts.file, parts.key));
  }

  get isBearer(): boolean {
    return 'bearer' in this.#auth;
  }

  async get(): Promise<UpstreamAuth> {
    // A clock that was set back starts a new period, too.
    if (Math.abs(this.#parts.now() - this.#checkedAt) >= checkEvery) await this.renew();
    return this.#auth;
  }

  async renew(): Promise<UpstreamAuth> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined));
    await this.#checking;
    return this.#auth;
  }

  async #check(): Promise<void> {
    const { file, authOf, now, onFailure } = this.#parts;
    this.#checkedAt = now();
    try {
      const { mtimeMs, ctimeMs, size, ino } = await stat(file);
      const version = [mtimeMs, ctimeMs, size, ino].join();
      if (version === this.#version) return;
      this.#auth = authOf(await readShort(file));
      this.#version = version;
      this.#reported = undefined;
    } catch (error) {
      const reason = (error as Error).message;
      if (reason !== this.#reported) onFailure(reason);
      this.#reported = reason;
    }
  }
}

/** The text of a small file without white space around it. Rejects if it is empty or too large. */
async function readShort(file: string): Promise<string> {
  await using handle = await open(file);
  const bytes = Buffer.alloc(fileLimit + 1);
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
  if (bytesRead > fileLimit) throw new Error(`${file} is larger than ${fileLimit} bytes`);
  const text = bytes.toString('utf8', 0, bytesRead).trim();
  if (text === '') throw new Error(`${file} is empty`);
  return text;
}
