import { spawn, type ChildProcess } from 'node:child_process';
import type { CredentialSource } from './credential-source.ts';
import type { UpstreamAuth } from './credentials.ts';
import { Refused } from './failures.ts';
import { pauseAfter, remaining, type Pause } from './pause.ts';

/** Most bytes that the command may write. */
const outputLimit = 64 * 1024;
/** Milliseconds that the command may take. */
const timeLimit = 30_000;
/** Credentials are used for at least this many milliseconds, so that the command does not run for every request. */
const minUse = 10_000;
/** The part of the lifetime after which new credentials are fetched while the old ones are still used. */
const renewAfter = 0.8;

export interface CredentialCommandParts {
  /** The program and its arguments; no shell reads them. */
  command: readonly string[];
  /** The environment of the command. It gets none of this program's settings, because some are secrets. */
  environment: Readonly<Record<string, string | undefined>>;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** Called with the reason when the command fails. The reason contains nothing that the command wrote. */
  onFailure: (reason: string) => void;
  /** Milliseconds. */
  timeLimit?: number;
}

/** What the command wrote, and when. Milliseconds since 1970 UTC. */
interface Printed {
  auth: UpstreamAuth;
  from: number;
  /** When the command runs again in the background. */
  renewAt: number;
  until: number;
}

/**
 * Credentials that a command writes to its standard output: `{"username", "password", "expires_at"}`, the last one a time
 * (RFC 3339) or left out. It runs at the first use, before the credentials expire, and after the upstream refused them; one
 * run at a time. After a failure it is not run again for 1 s, doubled with each failure up to a minute.
 */
export class CredentialCommand implements CredentialSource {
  readonly isBearer = false;
  readonly #parts: CredentialCommandParts;
  #printed: Printed | undefined;
  #running: Promise<UpstreamAuth> | undefined;
  #child: ChildProcess | undefined;
  #pause: Pause | undefined;

  constructor(parts: CredentialCommandParts) {
    this.#parts = parts;
  }

  async get(): Promise<UpstreamAuth> {
    const printed = this.#printed;
    const now = this.#parts.now();
    if (!printed || now < printed.from || now >= printed.until) return this.#run();
    // A failure is logged, and thrown only when the old credentials have expired.
    if (now >= printed.renewAt) this.#run().catch(() => undefined);
    return printed.auth;
  }

  async renew(): Promise<UpstreamAuth> {
    const printed = this.#printed;
    const age = printed ? this.#parts.now() - printed.from : Infinity;
    return printed && age >= 0 && age < minUse ? printed.auth : this.#run();
  }

  /** Ends the command if it runs. */
  close(): void {
    this.#child?.kill('SIGKILL');
  }

  #run(): Promise<UpstreamAuth> {
    this.#running ??= this.#attempt().finally(() => (this.#running = undefined));
    return this.#running;
  }

  async #attempt(): Promise<UpstreamAuth> {
    const { now, onFailure } = this.#parts;
    const rest = remaining(this.#pause, now());
    if (rest > 0) throw noCredentials(this.#pause!.reason, rest);
    try {
      const { auth, expiresAt } = parse(await this.#output());
      const from = now();
      const lifetime = Math.max(expiresAt - from, minUse);
      this.#printed = { auth, from, renewAt: from + lifetime * renewAfter, until: from + lifetime };
      this.#pause = undefined;
      return auth;
    } catch (error) {
      const reason = (error as Error).message;
      this.#pause = pauseAfter(this.#pause, { reason, now: now() });
      onFailure(reason);
      throw noCredentials(reason, remaining(this.#pause, now()));
    }
  }

  /** What the command writes. Rejects if it fails, writes too much or takes too long; then it is killed. */
  #output(): Promise<string> {
    const [program, ...words] = this.#parts.command as [string, ...string[]];
    const limit = this.#parts.timeLimit ?? timeLimit;
    return new Promise((resolve, reject) => {
      const env = withoutSettings(this.#parts.environment);
      const child = spawn(program, words, { env, stdio: ['ignore', 'pipe', 'ignore'] });
      this.#child = child;
      const pieces: Buffer[] = [];
      let size = 0;
      const end = (reason?: string) => {
        clearTimeout(timer);
        this.#child = undefined;
        if (reason === undefined) resolve(Buffer.concat(pieces).toString('utf8'));
        else reject(new Error(`its command for credentials ${reason}`));
        // A child of the command may keep the output open.
        child.kill('SIGKILL');
        child.stdout.destroy();
      };
      const timer = setTimeout(() => end(`did not end in ${limit} ms`), limit);
      child.stdout.on('data', (piece: Buffer) => {
        size += piece.length;
        pieces.push(piece);
        if (size > outputLimit) end(`wrote more than ${outputLimit} bytes`);
      });
      child.stdout.on('error', () => undefined);
      child.once('error', (error: NodeJS.ErrnoException) => end(`cannot be started (${error.code})`));
      child.once('close', (code, signal) =>
        end(code === 0 ? undefined : `ended with ${signal === null ? `code ${code}` : signal}`),
      );
    });
  }
}

function withoutSettings(environment: CredentialCommandParts['environment']): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith('ENTREPOT_')));
}

function noCredentials(reason: string, retryAfter: number): Refused {
  return new Refused(`got no request: ${reason}`, { verdict: 'unsent', retryAfter });
}

/** The error never contains the output. */
function parse(output: string): { auth: UpstreamAuth; expiresAt: number } {
  let document: unknown;
  try {
    document = JSON.parse(output);
  } catch {
    throw new Error('its command for credentials wrote no JSON');
  }
  const { username, password, expires_at: expires } = (document ?? {}) as Record<string, unknown>;
  if (typeof username !== 'string' || username === '' || typeof password !== 'string') {
    throw new Error('its command for credentials wrote no username and password');
  }
  const isLasting = expires === undefined || expires === null;
  const expiresAt = isLasting ? Infinity : Date.parse(typeof expires === 'string' ? expires : '');
  if (Number.isNaN(expiresAt)) throw new Error('its command for credentials wrote an expires_at that is not a time');
  return { auth: { username, password }, expiresAt };
}
