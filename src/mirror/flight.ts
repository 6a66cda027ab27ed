import type { Logger } from 'pino';
import type { Readable } from 'node:stream';
import { currentCaller, runFor, whileWanted, type Caller } from '../caller.ts';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import { isDomainError } from '../errors.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { Content } from '../storage/content.ts';
import type { Room } from '../storage/room.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { entryId, type Entries, type EntryMetadata } from './entries.ts';
import { Intake, type Body } from './intake.ts';
import type { Partial, Partials } from './partials.ts';
import { isFresh, type Fetched, type MirrorResource } from './resource.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';

export type JoinResult =
  | {
      kind: 'tail';
      type: string;
      size: number | undefined;
      content: Content;
      /** Whether it is to be stored, as far as is known when it begins. */
      kept: boolean;
      done: Promise<FlightResult>;
    }
  | { kind: 'stored'; facts: EntryMetadata; renewed: boolean }
  | { kind: 'absent' };

/** What a flight has brought. `kept` tells whether it is stored, or was only passed on. */
export interface FlightResult {
  facts: EntryMetadata;
  kept: boolean;
}

/** Another instance, or a flight that has just landed, may have been there first. */
type Head = Fetched | { kind: 'current'; facts: EntryMetadata };

export interface FlightParts {
  blobs: BlobStore;
  entries: Entries;
  partials: Partials;
  room: Room;
  /** A body that no reader follows any more is fetched to its end if at most so many bytes are missing. */
  unreadRest: number;
  log: Logger;
  now: () => number;
}

/**
 * One fetch from an upstream for one key. It fills one staged file, which every reader follows, the first included; a
 * reader that leaves stops no other. When the last one has left, it goes on only if little is missing; else it stops, and
 * what has come is kept for a while. Where there is no room to store a blob, it is passed on without being stored.
 */
export class Flight {
  readonly #resource: MirrorResource;
  readonly #parts: FlightParts;
  readonly #id: string;
  readonly #head: Promise<Head>;
  readonly #landed: Promise<FlightResult | undefined>;
  readonly #stop = new AbortController();
  #known: EntryMetadata | undefined;
  #expected: Digest | undefined;
  #staged: StagedFile | undefined;
  #intake: Intake | undefined;
  #readers = 0;
  /** How many bytes had come when the last reader left. */
  #unreadSince = 0;
  #over = false;

  constructor(resource: MirrorResource, parts: FlightParts) {
    this.#resource = resource;
    this.#parts = parts;
    this.#id = entryId(resource.key);
    // What it asks for on its way is its own: it outlives the request that began it.
    const caller = callerOf(this.#stop.signal, currentCaller());
    this.#head = runFor(caller, () => this.#start());
    this.#landed = runFor(caller, () => this.#run());
    this.#landed.catch(() => undefined);
  }

  /** Ends when the entry is stored, renewed, passed on or known to be absent; rejects when the flight failed. */
  get landed(): Promise<FlightResult | undefined> {
    return this.#landed;
  }

  /** Whether another reader gets all of the body here. */
  get joinable(): boolean {
    return !this.#over && !this.#stop.signal.aborted && !this.#intake?.tail.passesOn;
  }

  /** What a reader gets as soon as the upstream has begun to answer. Rejects when it does not, or the reader leaves. */
  async join(): Promise<JoinResult> {
    // Counted before any waiting, so that the flight goes on for a reader that is still on its way here.
    this.#readers += 1;
    let following = false;
    try {
      const head = await whileWanted(this.#head);
      if (head.kind === 'current') return { kind: 'stored', facts: head.facts, renewed: false };
      // Of an empty body there is no last byte to withhold.
      if (head.kind === 'fetched' && head.size !== 0) {
        following = true;
        const { tail, kept } = this.#intake!;
        const content = tail.follow(head.size, () => this.#left());
        return {
          kind: 'tail',
          type: head.type,
          size: head.size,
          content,
          kept,
          done: this.#landed as Promise<FlightResult>,
        };
      }
      const landed = await whileWanted(this.#landed);
      if (!landed) return { kind: 'absent' };
      return { kind: 'stored', facts: landed.facts, renewed: head.kind === 'not-modified' };
    } finally {
      if (!following) this.#left();
    }
  }

  async #start(): Promise<Head> {
    const { entries, partials, now } = this.#parts;
    this.#known = await entries.read(this.#id);
    // Taken only here: a fetch that fails before must leave it where it is.
    const partial = partials.take(this.#id);
    if (this.#known && isFresh(this.#resource.lifetime, this.#known, now())) {
      await partial?.staged.discard();
      return { kind: 'current', facts: this.#known };
    }
    const resumed = partial && (await this.#goOn(partial));
    if (resumed) return resumed;
    const head = await this.#resource.fetch(this.#known, this.#stop.signal);
    if (head.kind !== 'fetched') return head;
    const { size } = head;
    const { limit, digest, algorithms } = this.#resource;
    return this.#takeIn(head, async () => {
      if (size !== undefined && size > limit) {
        throw this.#invalid(`announces ${size} bytes; at most ${limit} are taken`);
      }
      this.#expected = digest ?? head.digest;
      const naming = this.#expected ? algorithmOf(this.#expected) : 'sha256';
      return this.#parts.blobs.stage([...new Set<DigestAlgorithm>([naming, ...(algorithms ?? [])])]);
    });
  }

  /** Takes up a body where another flight has left it; undefined when the upstream does not have the rest. */
  async #goOn(partial: Partial): Promise<Body | undefined> {
    const { head, staged, had, expected } = partial;
    let body: Readable | undefined;
    try {
      body = await head.resume?.(had, this.#stop.signal);
    } catch (error) {
      // An upstream that cannot be asked now may have the rest later.
      await this.#parts.partials.keep(this.#id, partial);
      throw error;
    }
    if (!body) {
      await staged.discard();
      return undefined;
    }
    this.#expected = expected;
    return this.#takeIn({ ...head, body }, () => Promise.resolve(staged));
  }

  async #takeIn(head: Body, stage: () => Promise<StagedFile>): Promise<Body> {
    // The stream must not lose its error between here and the first reading.
    head.body.on('error', () => undefined);
    try {
      const staged = await stage();
      this.#staged = staged;
      this.#intake = await Intake.open({
        resource: this.#resource,
        staged,
        size: head.size,
        expected: this.#expected,
        room: this.#parts.room,
        stop: this.#stop,
        grown: () => this.#reconsider(),
      });
      return head;
    } catch (error) {
      head.body.destroy();
      throw error;
    }
  }

  async #run(): Promise<FlightResult | undefined> {
    const { entries, log } = this.#parts;
    let failure: { error: unknown } | undefined;
    try {
      const head = await this.#head;
      if (head.kind === 'current') return { facts: head.facts, kept: true };
      if (head.kind === 'absent') {
        await entries.setAbsent(this.#id, this.#resource.negativeFor);
        return undefined;
      }
      if (head.kind === 'not-modified') {
        return { facts: await entries.validated(this.#id, this.#known!), kept: true };
      }
      await this.#intake!.fill(head).catch((error: unknown) => {
        throw isDomainError(error, 'TooLarge') ? this.#invalid('sends more bytes than it may', error) : error;
      });
      return await this.#commit(head);
    } catch (error) {
      failure = { error };
      if (!isDomainError(error)) log.error({ ...this.#resource.key, err: error }, 'a fetch failed here');
      throw error;
    } finally {
      this.#over = true;
      this.#intake?.end();
      this.#intake?.tail.end(failure);
      if (this.#readers === 0) this.#intake?.tail.close();
      await this.#putAway();
    }
  }

  async #commit(head: Body): Promise<FlightResult> {
    const staged = this.#staged!;
    const resource = this.#resource;
    const { blobs, entries, now } = this.#parts;
    const digest = await staged.digest(this.#expected ? algorithmOf(this.#expected) : 'sha256');
    if (this.#expected && digest !== this.#expected) {
      throw this.#invalid(`sent ${digest} where ${this.#expected} was asked for`);
    }
    const attributes =
      (await resource.verify?.(staged).catch((error: Error) => {
        throw this.#invalid(`sent something else than was asked for: ${error.message}`, error);
      })) ?? {};
    const at = now();
    const facts: EntryMetadata = {
      digest,
      size: this.#intake!.tail.received,
      type: head.type.slice(0, 255),
      etag: short(head.etag, 255),
      lastModified: short(head.lastModified, 64),
      attributes,
      storedAt: at,
      validatedAt: at,
    };
    // An empty file takes no room, and its readers have nothing else to follow.
    const kept = this.#intake!.kept || facts.size === 0;
    const keys = [resource.key, ...(resource.aliases?.(facts) ?? [])];
    if (kept) await blobs.commit([{ staged, digest }], (tx) => entries.write(tx, keys, facts));
    this.#intake!.tail.verified();
    // Under each name: one of them may be in the cache as absent, or as what it was before.
    if (kept) for (const key of keys) await entries.remember(entryId(key), facts);
    return { facts, kept };
  }

  /** Removes the staged file, unless it is the beginning of a body that no reader waited for. */
  async #putAway(): Promise<void> {
    const staged = this.#staged;
    if (!staged) return;
    const head = await this.#head.catch(() => undefined);
    const isUnread = this.#stop.signal.aborted && this.#intake?.kept === true && !this.#intake.isFull;
    const isLasting = this.#resource.lifetime === 'immutable' && staged.size > 0;
    if (isUnread && isLasting && head?.kind === 'fetched' && head.resume) {
      const { had } = this.#intake!;
      await this.#parts.partials.keep(this.#id, { head, staged, had, expected: this.#expected });
    } else {
      await staged.discard();
    }
  }

  #left(): void {
    this.#readers -= 1;
    this.#unreadSince = this.#intake?.tail.received ?? 0;
    if (this.#readers === 0 && this.#over) this.#intake?.tail.close();
    else this.#reconsider();
  }

  /** Stops when no reader is left, unless little is missing. */
  #reconsider(): void {
    if (this.#readers > 0 || this.#over || this.#stop.signal.aborted) return;
    if (!this.#intake?.isNearlyDone(this.#parts.unreadRest, this.#unreadSince)) this.#stop.abort();
  }

  #invalid(what: string, cause?: unknown): UpstreamError {
    const { upstream } = this.#resource.key;
    this.#parts.log.error({ ...this.#resource.key, reason: what }, 'an upstream sent what must not be stored');
    return new UpstreamError('UpstreamUnavailable', `The upstream ${upstream} ${what}.`, { upstream, cause });
  }
}

/** A flight as the caller of what it asks for: no account's limits count again, and it has gone when it is stopped. */
function callerOf(signal: AbortSignal, startedBy: Caller | undefined): Caller {
  return {
    account: undefined,
    startedBy,
    get gone() {
      return signal.aborted;
    },
    whenGone: (then) => {
      signal.addEventListener('abort', then, { once: true });
      return () => signal.removeEventListener('abort', then);
    },
  };
}

function short(text: string | null, length: number): string | null {
  return text === null || text.length > length ? null : text;
}
