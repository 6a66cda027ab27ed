import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import { pairFiles, readPair, type Pair, type PairFiles } from './pair.ts';

/**
 * The certificate that a server uses, and its files. Changed files replace it if they can be used; otherwise the certificate
 * stays as it is.
 */
export class ServerCertificate {
  readonly #files: PairFiles;
  readonly #log: Logger;
  readonly #now: () => number;
  #pair: Pair;
  #problem: string | undefined;
  #refreshing: Promise<void> | undefined;
  #onChange: ((pair: Pair) => void) | undefined;

  private constructor(files: PairFiles, pair: Pair, log: Logger, now: () => number) {
    this.#files = files;
    this.#pair = pair;
    this.#log = log;
    this.#now = now;
  }

  /** Undefined without TLS. Rejects with a `ConfigError` if the files cannot be used. `now` is milliseconds since 1970 UTC. */
  static async open(
    tls: Config['server']['tls'],
    { log, now }: { log: Logger; now: () => number },
  ): Promise<ServerCertificate | undefined> {
    const files = pairFiles(tls);
    return files && new ServerCertificate(files, await readPair(files), log, now);
  }

  get pair(): Pair {
    return this.#pair;
  }

  /** When the certificate expires; milliseconds since 1970. */
  get expires(): number {
    return this.#pair.leaf.validToDate.getTime();
  }

  /** Calls `listener` with each pair that replaces the current one. */
  onChange(listener: (pair: Pair) => void): void {
    this.#onChange = listener;
  }

  /**
   * Reads the files. It compares contents, because the time of a file can stay the same while it changes, or change without
   * a new content. Never rejects.
   */
  refresh(): Promise<void> {
    this.#refreshing ??= this.#refresh().finally(() => (this.#refreshing = undefined));
    return this.#refreshing;
  }

  /** Rejects while the files cannot be used, and while the certificate is not valid any more, or not yet. */
  async check(): Promise<void> {
    if (this.#problem !== undefined) throw new Error(this.#problem);
    checkTimes(this.#pair, this.#now());
  }

  async #refresh(): Promise<void> {
    try {
      const pair = await readPair(this.#files);
      if (!pair.cert.equals(this.#pair.cert) || !pair.key.equals(this.#pair.key)) {
        // Such as an old copy, or one from a machine whose clock is ahead: no client would accept it.
        const problem = problemOfTimes(pair, this.#now());
        if (problem !== undefined && problemOfTimes(this.#pair, this.#now()) === undefined) throw new Error(problem);
        this.#use(pair);
      }
      this.#problem = undefined;
    } catch (error) {
      const { message } = error as Error;
      if (message !== this.#problem) this.#log.error(`the previous certificate stays in use: ${message}`);
      this.#problem = message;
    }
  }

  #use(pair: Pair): void {
    this.#onChange?.(pair);
    this.#pair = pair;
    this.#log.info(
      { subject: pair.leaf.subjectAltName, expires: pair.leaf.validToDate },
      'using a changed certificate',
    );
  }
}

/** Throws if the certificate has expired, or is not valid yet; `now` is milliseconds since 1970 UTC. */
export function checkTimes(pair: Pair, now: number): void {
  const problem = problemOfTimes(pair, now);
  if (problem !== undefined) throw new Error(problem);
}

function problemOfTimes({ leaf: { validFromDate, validToDate } }: Pair, now: number): string | undefined {
  if (validToDate.getTime() < now) return `the certificate expired at ${validToDate.toISOString()}`;
  return validFromDate.getTime() > now
    ? `the certificate is not valid before ${validFromDate.toISOString()}`
    : undefined;
}
