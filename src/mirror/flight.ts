import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { algorithmOf, type DigestAlgorithm } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import { openFileContent, type BlobStore } from '../storage/blob-store.ts';
import type { Content } from '../storage/content.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { entryId, type Entries, type Facts } from './entries.ts';
import type { Fetched, MirrorResource } from './resource.ts';

/** Resumptions of one body: without progress, and in all. */
const fruitless = 3;
const resumptions = 40;

export type Landing =
  | { kind: 'tail'; type: string; size: number | undefined; content: Content; done: Promise<Facts> }
  | { kind: 'revalidated'; facts: Facts }
  | { kind: 'absent' };

type Body = Extract<Fetched, { kind: 'fetched' }>;

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
  readonly #head: Promise<Fetched>;
  readonly #landed: Promise<Facts | undefined>;
  #staged: StagedFile | undefined;
  #committed = false;
  #failure: unknown;
  #waiting: (() => void)[] = [];

  constructor(resource: MirrorResource, known: Facts | undefined, parts: FlightParts) {
    this.#resource = resource;
    this.#parts = parts;
    this.#head = this.#takeOff(known);
    this.#landed = this.#fly(known);
    this.#landed.catch(() => undefined);
  }

  /** Ends when the entry is stored, renewed or known to be absent; rejects when the flight failed. */
  get landed(): Promise<Facts | undefined> {
    return this.#landed;
  }

  /** What a reader gets as soon as the upstream has begun to answer. Rejects when it does not. */
  async join(): Promise<Landing> {
    const head = await this.#head;
    if (head.kind === 'absent') {
      await this.#landed;
      return { kind: 'absent' };
    }
    if (head.kind === 'not-modified') return { kind: 'revalidated', facts: (await this.#landed)! };
    const done = this.#landed as Promise<Facts>;
    const content = await this.#follow(head.size);
    return { kind: 'tail', type: head.type, size: head.size, content, done };
  }

  async #takeOff(known: Facts | undefined): Promise<Fetched> {
    const head = await this.#resource.fetch(known);
    if (head.kind !== 'fetched') return head;
    if (head.size !== undefined && head.size > this.#resource.limit) {
      head.body.destroy();
      throw this.#invalid(`announces ${head.size} bytes; at most ${this.#resource.limit} are taken`);
    }
    const expected = this.#resource.digest ?? head.digest;
    const algorithms = new Set<DigestAlgorithm>([
      expected ? algorithmOf(expected) : 'sha256',
      ...(this.#resource.algorithms ?? []),
    ]);
    // The stream must not lose its error between here and the first reading.
    head.body.on('error', () => undefined);
    this.#staged = await this.#parts.blobs.stage([...algorithms]);
    return head;
  }

  async #fly(known: Facts | undefined): Promise<Facts | undefined> {
    const { entries } = this.#parts;
    const id = entryId(this.#resource.key);
    try {
      const head = await this.#head;
      if (head.kind === 'absent') {
        await entries.setAbsent(id, this.#resource.negativeFor);
        return undefined;
      }
      if (head.kind === 'not-modified') return await entries.validated(id, known!);
      await this.#fill(head);
      return await this.#land(head, id);
    } catch (error) {
      this.#failure = error;
      throw error;
    } finally {
      this.#wake();
      await this.#staged?.discard();
    }
  }

  async #fill(head: Body): Promise<void> {
    const staged = this.#staged!;
    const limit = head.size ?? this.#resource.limit;
    let body: Readable = head.body;
    let failures = 0;
    for (let total = 0; ; total += 1) {
      const before = staged.size;
      try {
        await staged.append(body, { limit, idle: this.#resource.idle, progress: () => this.#wake() });
        if (head.size === undefined || staged.size === head.size) return;
        throw new DomainError('Aborted', `The body ended after ${staged.size} of ${head.size} bytes.`);
      } catch (error) {
        body.destroy();
        if (isDomainError(error, 'TooLarge')) throw this.#invalid('sends more bytes than it may', error);
        if (!isDomainError(error, 'Aborted')) throw error;
        failures = staged.size > before ? 0 : failures + 1;
        const rest = failures < fruitless && total < resumptions ? await head.resume?.(staged.size) : undefined;
        if (!rest) {
          head.failed?.(error);
          throw new DomainError(
            'UpstreamUnavailable',
            `The upstream ${this.#resource.key.upstream} broke off in the middle.`,
            {
              detail: { upstream: this.#resource.key.upstream },
              cause: error,
            },
          );
        }
        body = rest;
      }
    }
  }

  async #land(head: Body, id: string): Promise<Facts> {
    const staged = this.#staged!;
    const resource = this.#resource;
    const expected = resource.digest ?? head.digest;
    const digest = await staged.digest(expected ? algorithmOf(expected) : 'sha256');
    if (expected && digest !== expected) throw this.#invalid(`sent ${digest} where ${expected} was asked for`);
    const attributes =
      (await resource.verify?.(staged).catch((error: Error) => {
        throw this.#invalid(`sent something else than was asked for: ${error.message}`, error);
      })) ?? {};
    const now = this.#parts.now();
    const facts: Facts = {
      digest,
      size: staged.size,
      type: head.type,
      etag: head.etag,
      lastModified: head.lastModified,
      attributes,
      storedAt: now,
      validatedAt: now,
    };
    const keys = [resource.key, ...(resource.aliases?.(facts) ?? [])];
    await this.#parts.blobs.commit([{ staged, digest }], (tx) => this.#parts.entries.write(tx, keys, facts));
    this.#committed = true;
    await this.#parts.entries.remember(id, facts);
    return facts;
  }

  /** A reader's own view of the staged file: it stays valid when the file is moved into place. */
  async #follow(size: number | undefined): Promise<Content> {
    const staged = this.#staged!;
    const file = await openFileContent(staged.path, Number.MAX_SAFE_INTEGER);
    return {
      size,
      read: async (target, position) => {
        for (;;) {
          const available = this.#committed ? staged.size : staged.size - 1;
          if (position < available)
            return file.read(target.subarray(0, Math.min(target.length, available - position)), position);
          if (this.#committed) return 0;
          if (this.#failure !== undefined) throw this.#failure as Error;
          await new Promise<void>((resolve) => this.#waiting.push(resolve));
        }
      },
      close: () => file.close(),
    };
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }

  #invalid(what: string, cause?: unknown): DomainError {
    const { upstream } = this.#resource.key;
    this.#parts.log.error({ ...this.#resource.key, reason: what }, 'an upstream sent what must not be stored');
    return new DomainError('UpstreamUnavailable', `The upstream ${upstream} ${what}.`, { detail: { upstream }, cause });
  }
}
