import type { Logger } from 'pino';
import type { Readable } from 'node:stream';
import { currentCaller, runFor, untilCallerLeaves, type Caller } from '../caller.ts';
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
      isStored: boolean;
      done: Promise<FlightResult>;
    }
  | { kind: 'stored'; metadata: EntryMetadata; renewed: boolean }
  | { kind: 'absent' };

/** What a flight has brought. `isStored` tells whether it is stored, or was only passed on. */
export interface FlightResult {
  metadata: EntryMetadata;
  isStored: boolean;
}

/** Another instance, or a flight that has just result, may have been there first. */
type Head = Fetched | { kind: 'current'; metadata: EntryMetadata };

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
 * what has come is isStored for a while. Where there is no room to store a blob, it is passed on without being stored.
 */
export class Flight {
  readonly #resource: MirrorResource;
  readonly #parts: FlightParts;
  readonly #id: string;
  readonly #head: Promise<Head>;
  readonly #result: Promise<FlightResult | undefined>;
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
    this.#result = runFor(caller, () => this.#run());
    this.#result.catch(() => undefined);
  }

  /** Ends when the entry is stored, renewed, passed on or known to be absent; rejects when the flight failed. */
  get result(): Promise<FlightResult | undefined> {
    return this.#result;
  }

  /** Whether another reader gets all of the body here. */
  get joinable(): boolean {
    return !this.#over && !this.#stop.signal.aborted && !this.#intake?.tail.isPassThrough;
  }

  /** What a reader gets as soon as the upstream has begun to answer. Rejects when it does not, or the reader leaves. */
  async join(): Promise<JoinResult> {
    // Counted before any waiting, so that the flight goes on for a reader that is still on its way here.
    this.#readers += 1;
    let following = false;
    try {
      const head = await untilCallerLeaves(this.#head);
      if (head.kind === 'current') return { kind: 'stored', metadata: head.metadata, renewed: false };
      // Of an empty body there is no last byte to withhold.
      if (head.kind === 'fetched' && head.size !== 0) {
        following = true;
        const { tail, isStored } = this.#intake!;
        const content = tail.follow(head.size, () => this.#readerLeft());
        return {
          kind: 'tail',
          type: head.type,
          size: head.size,
          content,
          isStored,
          done: this.#result as Promise<FlightResult>,
        };
      }
      const result = await untilCallerLeaves(this.#result);
      if (!result) return { kind: 'absent' };
      return { kind: 'stored', metadata: result.metadata, renewed: head.kind === 'not-modified' };
    } finally {
      if (!following) this.#readerLeft();
    }
  }

  async #start(): Promise<Head> {
    const { entries, partials, now } = this.#parts;
    this.#known = await entries.read(this.#id);
    // Taken only here: a fetch that fails before must leave it where it is.
    const partial = partials.take(this.#id);
    if (this.#known && isFresh(this.#resource.lifetime, this.#known, now())) {
      await partial?.staged.discard();
      return { kind: 'current', metadata: this.#known };
    }
    const resumed = partial && (await this.#resume(partial));
    if (resumed) return resumed;
    const head = await this.#resource.fetch(this.#known, this.#stop.signal);
    if (head.kind !== 'fetched') return head;
    const { size } = head;
    const { limit, digest, algorithms } = this.#resource;
    return this.#openIntake(head, async () => {
      if (size !== undefined && size > limit) {
        throw this.#reject(`announces ${size} bytes; at most ${limit} are taken`);
      }
      this.#expected = digest ?? head.digest;
      const naming = this.#expected ? algorithmOf(this.#expected) : 'sha256';
      return this.#parts.blobs.stage([...new Set<DigestAlgorithm>([naming, ...(algorithms ?? [])])]);
    });
  }

  /** Takes up a body where another flight has left it; undefined when the upstream does not have the rest. */
  async #resume(partial: Partial): Promise<Body | undefined> {
    const { head, staged, received, expected } = partial;
    let body: Readable | undefined;
    try {
      body = await head.resume?.(received, this.#stop.signal);
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
    return this.#openIntake({ ...head, body }, () => Promise.resolve(staged));
  }

  async #openIntake(head: Body, stage: () => Promise<StagedFile>): Promise<Body> {
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
        onProgress: () => this.#stopIfUnneeded(),
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
      if (head.kind === 'current') return { metadata: head.metadata, isStored: true };
      if (head.kind === 'absent') {
        await entries.setAbsent(this.#id, this.#resource.negativeFor);
        return undefined;
      }
      if (head.kind === 'not-modified') {
        return { metadata: await entries.validated(this.#id, this.#known!), isStored: true };
      }
      await this.#intake!.fill(head).catch((error: unknown) => {
        throw isDomainError(error, 'TooLarge') ? this.#reject('sends more bytes than it may', error) : error;
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
      await this.#releaseStaged();
    }
  }

  async #commit(head: Body): Promise<FlightResult> {
    const staged = this.#staged!;
    const resource = this.#resource;
    const { blobs, entries, now } = this.#parts;
    const digest = await staged.digest(this.#expected ? algorithmOf(this.#expected) : 'sha256');
    if (this.#expected && digest !== this.#expected) {
      throw this.#reject(`sent ${digest} where ${this.#expected} was asked for`);
    }
    const attributes =
      (await resource.verify?.(staged).catch((error: Error) => {
        throw this.#reject(`sent something else than was asked for: ${error.message}`, error);
      })) ?? {};
    const at = now();
    const metadata: EntryMetadata = {
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
    const isStored = this.#intake!.isStored || metadata.size === 0;
    const keys = [resource.key, ...(resource.aliases?.(metadata) ?? [])];
    if (isStored) await blobs.commit([{ staged, digest }], (tx) => entries.write(tx, keys, metadata));
    this.#intake!.tail.verified();
    // Under each name: one of them may be in the cache as absent, or as what it was before.
    if (isStored) for (const key of keys) await entries.remember(entryId(key), metadata);
    return { metadata, isStored };
  }

  /** Removes the staged file, unless it is the beginning of a body that no reader waited for. */
  async #releaseStaged(): Promise<void> {
    const staged = this.#staged;
    if (!staged) return;
    const head = await this.#head.catch(() => undefined);
    const isUnread = this.#stop.signal.aborted && this.#intake?.isStored === true && !this.#intake.isFull;
    const isLasting = this.#resource.lifetime === 'immutable' && staged.size > 0;
    if (isUnread && isLasting && head?.kind === 'fetched' && head.resume) {
      const { received } = this.#intake!;
      await this.#parts.partials.keep(this.#id, { head, staged, received, expected: this.#expected });
    } else {
      await staged.discard();
    }
  }

  #readerLeft(): void {
    this.#readers -= 1;
    this.#unreadSince = this.#intake?.tail.received ?? 0;
    if (this.#readers === 0 && this.#over) this.#intake?.tail.close();
    else this.#stopIfUnneeded();
  }

  /** Stops when no reader is left, unless little is missing. */
  #stopIfUnneeded(): void {
    if (this.#readers > 0 || this.#over || this.#stop.signal.aborted) return;
    if (!this.#intake?.isNearlyDone(this.#parts.unreadRest, this.#unreadSince)) this.#stop.abort();
  }

  #reject(what: string, cause?: unknown): UpstreamError {
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
