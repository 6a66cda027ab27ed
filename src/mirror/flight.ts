import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import { openFileContent, type BlobStore } from '../storage/blob-store.ts';
import type { Content } from '../storage/content.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { entryId, type Entries, type Facts } from './entries.ts';
import { isFresh, type Fetched, type MirrorResource } from './resource.ts';

/** Resumptions of one body: in a row without progress, and in all. */
const fruitless = 3;
const resumptions = 40;
/** Milliseconds for each reader between two times that they hear of more bytes. */
const wakeEvery = 1.3;
/** Bytes between two requests to make durable what is there. */
const syncEvery = 16 * 2 ** 20;

export type Landing =
  | { kind: 'tail'; type: string; size: number | undefined; content: Content; done: Promise<Facts> }
  | { kind: 'stored'; facts: Facts; renewed: boolean }
  | { kind: 'absent' };

type Body = Extract<Fetched, { kind: 'fetched' }>;
/** Another instance, or a flight that has just landed, may have been there first. */
type Head = Fetched | { kind: 'current'; facts: Facts };

export interface FlightParts {
  blobs: BlobStore;
  entries: Entries;
  log: Logger;
  now: () => number;
}

/**
 * One journey to the upstream for one key. It fills one staged file, which every reader follows, the first included; a
 * reader that leaves stops nobody. The last byte is withheld until the whole is verified and committed, so that a wrong
 * body can never complete at a client.
 */
export class Flight {
  readonly #resource: MirrorResource;
  readonly #parts: FlightParts;
  readonly #id: string;
  readonly #head: Promise<Head>;
  readonly #landed: Promise<Facts | undefined>;
  #known: Facts | undefined;
  #expected: Digest | undefined;
  #staged: StagedFile | undefined;
  /** The staged file as all readers see it: open until the last has left, wherever the file is moved meanwhile. */
  #file: Content | undefined;
  #readers = 0;
  #committed = false;
  #synced = 0;
  #syncing = false;
  #over = false;
  #failure: { error: unknown } | undefined;
  #waiting: (() => void)[] = [];
  #wokeAt = 0;
  #alarm: NodeJS.Timeout | undefined;

  constructor(resource: MirrorResource, parts: FlightParts) {
    this.#resource = resource;
    this.#parts = parts;
    this.#id = entryId(resource.key);
    this.#head = this.#takeOff();
    this.#landed = this.#fly();
    this.#landed.catch(() => undefined);
  }

  /** Ends when the entry is stored, renewed or known to be absent; rejects when the flight failed. */
  get landed(): Promise<Facts | undefined> {
    return this.#landed;
  }

  /** Whether it has failed, so that there is no use in joining it. */
  get failed(): boolean {
    return this.#failure !== undefined;
  }

  /** What a reader gets as soon as the upstream has begun to answer. Rejects when it does not. */
  async join(): Promise<Landing> {
    // Counted before any waiting, so that the file stays open for a reader that is still on its way here.
    this.#readers += 1;
    let following = false;
    try {
      const head = await this.#head;
      if (head.kind === 'current') return { kind: 'stored', facts: head.facts, renewed: false };
      // Of an empty body there is no last byte to withhold.
      if (head.kind === 'fetched' && head.size !== 0) {
        if (this.#failure) throw this.#failure.error as Error;
        following = true;
        const done = this.#landed as Promise<Facts>;
        return { kind: 'tail', type: head.type, size: head.size, content: this.#follow(head.size), done };
      }
      const facts = await this.#landed;
      return facts ? { kind: 'stored', facts, renewed: head.kind === 'not-modified' } : { kind: 'absent' };
    } finally {
      if (!following) this.#leave();
    }
  }

  async #takeOff(): Promise<Head> {
    this.#known = await this.#parts.entries.read(this.#id);
    if (this.#known && isFresh(this.#resource.lifetime, this.#known, this.#parts.now())) {
      return { kind: 'current', facts: this.#known };
    }
    const head = await this.#resource.fetch(this.#known);
    if (head.kind !== 'fetched') return head;
    try {
      if (head.size !== undefined && head.size > this.#resource.limit) {
        throw this.#invalid(`announces ${head.size} bytes; at most ${this.#resource.limit} are taken`);
      }
      this.#expected = this.#resource.digest ?? head.digest;
      const naming = this.#expected ? algorithmOf(this.#expected) : 'sha256';
      const algorithms = new Set<DigestAlgorithm>([naming, ...(this.#resource.algorithms ?? [])]);
      // The stream must not lose its error between here and the first reading.
      head.body.on('error', () => undefined);
      this.#staged = await this.#parts.blobs.stage([...algorithms]);
      this.#file = await openFileContent(this.#staged.path, Number.MAX_SAFE_INTEGER);
      return head;
    } catch (error) {
      head.body.destroy();
      throw error;
    }
  }

  async #fly(): Promise<Facts | undefined> {
    const { entries } = this.#parts;
    try {
      const head = await this.#head;
      if (head.kind === 'current') return head.facts;
      if (head.kind === 'absent') {
        await entries.setAbsent(this.#id, this.#resource.negativeFor);
        return undefined;
      }
      if (head.kind === 'not-modified') return await entries.validated(this.#id, this.#known!);
      await this.#fill(head);
      return await this.#land(head);
    } catch (error) {
      this.#failure = { error };
      if (!isDomainError(error)) this.#parts.log.error({ ...this.#resource.key, err: error }, 'a fetch failed here');
      throw error;
    } finally {
      await this.#staged?.discard();
      this.#over = true;
      this.#wake();
      if (this.#readers === 0) this.#file?.close();
    }
  }

  async #fill(head: Body): Promise<void> {
    const staged = this.#staged!;
    let body = head.body;
    let failures = 0;
    for (let total = 0; ; total += 1) {
      const before = staged.size;
      const cut = await this.#append(body, head.size);
      if (!cut) return;
      failures = staged.size > before ? 0 : failures + 1;
      const rest = total < resumptions ? await this.#resume(head, failures) : undefined;
      if (!rest) {
        // A body whose end was only guessed is complete after all, or wrong; its digest decides.
        if (!isDomainError(cut, 'Aborted')) return;
        head.failed?.(cut);
        throw this.#broken(cut);
      }
      body = rest;
    }
  }

  /** The rest of the body. An upstream that is gone is given a moment, so that a breaker's first pause can pass. */
  async #resume(head: Body, failures: number): Promise<Readable | undefined> {
    if (!this.#canResume(head)) return undefined;
    for (let attempt = failures; attempt < fruitless; attempt += 1) {
      if (attempt > failures) await sleep(600 * (attempt - failures));
      try {
        return await head.resume!(this.#staged!.size);
      } catch (error) {
        if (!isDomainError(error) || isDomainError(error, 'Aborted') || head.size === undefined) return undefined;
      }
    }
    return undefined;
  }

  /** Takes in one body; resolves to what is wrong when there must be more, and to undefined when there may be none. */
  async #append(body: Readable, size: number | undefined): Promise<Error | undefined> {
    const staged = this.#staged!;
    const { limit, idle } = this.#resource;
    try {
      await staged.append(body, { limit: size ?? limit, idle, consume: true, progress: () => this.#progress() });
    } catch (error) {
      body.destroy();
      if (isDomainError(error, 'TooLarge')) throw this.#invalid('sends more bytes than it may', error);
      if (isDomainError(error, 'Aborted')) return error;
      throw error;
    }
    if (size !== undefined) {
      return staged.size === size
        ? undefined
        : new DomainError('Aborted', `The body ended after ${staged.size} of ${size} bytes.`);
    }
    // Without a length the end of the connection passes for the end of the body: only the digest can tell.
    const digest = this.#expected && staged.runningDigest(algorithmOf(this.#expected));
    return digest === this.#expected ? undefined : new Error('the body is cut or wrong');
  }

  /** Pieces of two versions must not be put together: a digest shows it, or a validator keeps the upstream from it. */
  #canResume({ resume, etag, lastModified }: Body): boolean {
    const isStrong = (etag !== null && !etag.startsWith('W/')) || lastModified !== null;
    return resume !== undefined && (this.#expected !== undefined || isStrong || this.#staged!.size === 0);
  }

  async #land(head: Body): Promise<Facts> {
    const staged = this.#staged!;
    const resource = this.#resource;
    const digest = await staged.digest(this.#expected ? algorithmOf(this.#expected) : 'sha256');
    if (this.#expected && digest !== this.#expected) {
      throw this.#invalid(`sent ${digest} where ${this.#expected} was asked for`);
    }
    const attributes =
      (await resource.verify?.(staged).catch((error: Error) => {
        throw this.#invalid(`sent something else than was asked for: ${error.message}`, error);
      })) ?? {};
    const now = this.#parts.now();
    const facts: Facts = {
      digest,
      size: staged.size,
      type: head.type.slice(0, 255),
      etag: short(head.etag, 255),
      lastModified: short(head.lastModified, 64),
      attributes,
      storedAt: now,
      validatedAt: now,
    };
    const keys = [resource.key, ...(resource.aliases?.(facts) ?? [])];
    await this.#parts.blobs.commit([{ staged, digest }], (tx) => this.#parts.entries.write(tx, keys, facts));
    this.#committed = true;
    this.#wake();
    // Under each name: one of them may be in the cache as absent, or as what it was before.
    for (const key of keys) await this.#parts.entries.remember(entryId(key), facts);
    return facts;
  }

  /** One reader's view of what is there. */
  #follow(size: number | undefined): Content {
    const staged = this.#staged!;
    const file = this.#file!;
    let left = false;
    return {
      size,
      source: staged.path,
      read: async (target, position) => {
        for (;;) {
          const available = this.#committed ? staged.size : staged.size - 1;
          if (position < available) {
            return file.read(target.subarray(0, Math.min(target.length, available - position)), position);
          }
          if (this.#committed) return 0;
          if (this.#failure) throw this.#failure.error as Error;
          await new Promise<void>((resolve) => this.#waiting.push(resolve));
        }
      },
      close: () => {
        if (left) return;
        left = true;
        this.#leave();
      },
    };
  }

  #leave(): void {
    this.#readers -= 1;
    if (this.#readers === 0 && this.#over) this.#file?.close();
  }

  /** Bytes are made durable along the way, so that little is left to wait for at the end. */
  #progress(): void {
    this.#wakeSoon();
    const staged = this.#staged!;
    if (this.#syncing || staged.size - this.#synced < syncEvery) return;
    this.#synced = staged.size;
    this.#syncing = true;
    // What fails here fails again when it counts.
    staged
      .sync()
      .catch(() => undefined)
      .finally(() => (this.#syncing = false));
  }

  /** At once after a pause, else once in a while, so that many readers move few large pieces. */
  #wakeSoon(): void {
    if (this.#alarm) return;
    const rest = this.#wokeAt + wakeEvery * this.#readers - performance.now();
    if (rest <= 0) this.#wake();
    else this.#alarm = setTimeout(() => this.#wake(), rest);
  }

  #wake(): void {
    clearTimeout(this.#alarm);
    this.#alarm = undefined;
    this.#wokeAt = performance.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }

  #broken(cause: unknown): DomainError {
    const { upstream } = this.#resource.key;
    const message = `The upstream ${upstream} broke off in the middle.`;
    return new DomainError('UpstreamUnavailable', message, { detail: { upstream }, cause });
  }

  #invalid(what: string, cause?: unknown): DomainError {
    const { upstream } = this.#resource.key;
    this.#parts.log.error({ ...this.#resource.key, reason: what }, 'an upstream sent what must not be stored');
    return new DomainError('UpstreamUnavailable', `The upstream ${upstream} ${what}.`, { detail: { upstream }, cause });
  }
}

function short(text: string | null, length: number): string | null {
  return text === null || text.length > length ? null : text;
}
