import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { currentCaller, runFor, whileWanted, type Caller } from '../caller.ts';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import { whenSilent } from '../incoming.ts';
import { openFileContent, type BlobStore } from '../storage/blob-store.ts';
import type { Content } from '../storage/content.ts';
import type { Room } from '../storage/room.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { entryId, type Entries, type Facts } from './entries.ts';
import type { Partial, Partials } from './partials.ts';
import { isFresh, type Fetched, type MirrorResource } from './resource.ts';
import { Tail } from './tail.ts';

/** Resumptions of one body: in a row without progress, and in all. */
const fruitless = 3;
const resumptions = 40;
/** Bytes between two requests to make durable what is there, and two looks at the room on the disk. */
const checkEvery = 16 * 2 ** 20;

export type Landing =
  | {
      kind: 'tail';
      type: string;
      size: number | undefined;
      content: Content;
      /** Whether it is to be stored, as far as is known when it begins. */
      kept: boolean;
      done: Promise<Landed>;
    }
  | { kind: 'stored'; facts: Facts; renewed: boolean }
  | { kind: 'absent' };

/** What a flight has brought. `kept` tells whether it is stored, or was only passed on. */
export interface Landed {
  facts: Facts;
  kept: boolean;
}

type Body = Extract<Fetched, { kind: 'fetched' }>;
/** Another instance, or a flight that has just landed, may have been there first. */
type Head = Fetched | { kind: 'current'; facts: Facts };

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
  readonly #partial: Partial | undefined;
  readonly #head: Promise<Head>;
  readonly #landed: Promise<Landed | undefined>;
  readonly #stop = new AbortController();
  /** Aborted where what still comes is not to be stored. */
  readonly #passOn = new AbortController();
  #known: Facts | undefined;
  #expected: Digest | undefined;
  #staged: StagedFile | undefined;
  #tail: Tail | undefined;
  #size: number | undefined;
  /** Whether the bytes are to be stored, rather than removed when they were sent. */
  #keep = true;
  #expect: ((rest: number) => void) | undefined;
  #readers = 0;
  /** How many bytes had come when the last reader left. */
  #unreadSince = 0;
  #checked = 0;
  #checking = false;
  #isFull = false;
  #over = false;

  /** `partial` is what came of the same entry before. */
  constructor(resource: MirrorResource, parts: FlightParts, partial?: Partial) {
    this.#resource = resource;
    this.#parts = parts;
    this.#id = entryId(resource.key);
    this.#partial = partial;
    // What it asks for on its way is its own: it outlives the request that began it.
    const caller = callerOf(this.#stop.signal, currentCaller());
    this.#head = runFor(caller, () => this.#start());
    this.#landed = runFor(caller, () => this.#run());
    this.#landed.catch(() => undefined);
  }

  /** Ends when the entry is stored, renewed, passed on or known to be absent; rejects when the flight failed. */
  get landed(): Promise<Landed | undefined> {
    return this.#landed;
  }

  /** Whether another reader gets all of the body here. */
  get joinable(): boolean {
    return !this.#over && !this.#stop.signal.aborted && !this.#tail?.passesOn;
  }

  /** What a reader gets as soon as the upstream has begun to answer. Rejects when it does not, or the reader leaves. */
  async join(): Promise<Landing> {
    // Counted before any waiting, so that the flight goes on for a reader that is still on its way here.
    this.#readers += 1;
    let following = false;
    try {
      const head = await whileWanted(this.#head);
      if (head.kind === 'current') return { kind: 'stored', facts: head.facts, renewed: false };
      // Of an empty body there is no last byte to withhold.
      if (head.kind === 'fetched' && head.size !== 0) {
        following = true;
        const content = this.#tail!.follow(head.size, () => this.#left());
        const done = this.#landed as Promise<Landed>;
        return { kind: 'tail', type: head.type, size: head.size, content, kept: this.#keep, done };
      }
      const landed = await whileWanted(this.#landed);
      if (!landed) return { kind: 'absent' };
      return { kind: 'stored', facts: landed.facts, renewed: head.kind === 'not-modified' };
    } finally {
      if (!following) this.#left();
    }
  }

  async #start(): Promise<Head> {
    const { entries, now } = this.#parts;
    this.#known = await entries.read(this.#id);
    if (this.#known && isFresh(this.#resource.lifetime, this.#known, now())) {
      await this.#partial?.staged.discard();
      return { kind: 'current', facts: this.#known };
    }
    const resumed = this.#partial && (await this.#goOn(this.#partial));
    if (resumed) return resumed;
    const head = await this.#resource.fetch(this.#known, this.#stop.signal);
    if (head.kind !== 'fetched') return head;
    try {
      return await this.#prepare(head);
    } catch (error) {
      head.body.destroy();
      throw error;
    }
  }

  /** Takes up a body where another flight has left it; undefined when the upstream does not have the rest. */
  async #goOn({ head, staged, expected }: Partial): Promise<Body | undefined> {
    let body: Readable | undefined;
    try {
      body = await head.resume?.(staged.size, this.#stop.signal);
    } catch (error) {
      // An upstream that cannot be asked now may have the rest later.
      await this.#parts.partials.keep(this.#id, { head, staged, expected });
      throw error;
    }
    if (!body) {
      await staged.discard();
      return undefined;
    }
    body.on('error', () => undefined);
    this.#expected = expected;
    try {
      await this.#openTail(staged, head.size);
    } catch (error) {
      body.destroy();
      throw error;
    }
    return { ...head, body };
  }

  async #prepare(head: Body): Promise<Body> {
    const { size } = head;
    const { limit, digest, algorithms } = this.#resource;
    if (size !== undefined && size > limit) {
      throw this.#invalid(`announces ${size} bytes; at most ${limit} are taken`);
    }
    this.#expected = digest ?? head.digest;
    const wanted = new Set<DigestAlgorithm>([
      this.#expected ? algorithmOf(this.#expected) : 'sha256',
      ...(algorithms ?? []),
    ]);
    // The stream must not lose its error between here and the first reading.
    head.body.on('error', () => undefined);
    await this.#openTail(await this.#parts.blobs.stage([...wanted]), size);
    return head;
  }

  async #openTail(staged: StagedFile, size: number | undefined): Promise<void> {
    this.#staged = staged;
    this.#size = size;
    const { room } = this.#parts;
    const rest = (size ?? staged.size) - staged.size;
    if (!(await room.has(rest))) {
      if (this.#canPassOn) this.#passOn.abort();
      else if (!(await room.hasForAMoment(rest))) throw noRoom();
      this.#keep = false;
    }
    if (!this.#passOn.signal.aborted) this.#expect = room.expect(rest);
    this.#tail = new Tail(staged, await openFileContent(staged.path, Number.MAX_SAFE_INTEGER));
    if (this.#passOn.signal.aborted) this.#tail.passOn();
  }

  /** Whether nothing but its digest has to be right: what is verified in another way needs the whole file. */
  get #canPassOn(): boolean {
    return this.#resource.digest !== undefined && !this.#resource.verify && !this.#resource.whole;
  }

  async #run(): Promise<Landed | undefined> {
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
      await this.#fill(head);
      return await this.#commit(head);
    } catch (error) {
      failure = { error };
      if (!isDomainError(error)) log.error({ ...this.#resource.key, err: error }, 'a fetch failed here');
      throw error;
    } finally {
      this.#over = true;
      this.#expect?.(0);
      this.#tail?.end(failure);
      if (this.#readers === 0) this.#tail?.close();
      await this.#putAway();
    }
  }

  async #fill(head: Body): Promise<void> {
    const tail = this.#tail!;
    let { body } = head;
    let failures = 0;
    for (let total = 0; ; total += 1) {
      const before = tail.received;
      const cut = await this.#append(body, head.size);
      if (!cut) return;
      if (this.#stop.signal.aborted) throw this.#isFull ? noRoom() : stopped();
      failures = tail.received > before ? 0 : failures + 1;
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
    const { signal } = this.#stop;
    for (let attempt = failures; attempt < fruitless; attempt += 1) {
      if (attempt > failures) await sleep(600 * (attempt - failures), undefined, { signal }).catch(() => undefined);
      try {
        return await head.resume!(this.#tail!.received, signal);
      } catch (error) {
        if (!isDomainError(error) || isDomainError(error, 'Aborted') || head.size === undefined) return undefined;
      }
    }
    return undefined;
  }

  /** Takes in one body; resolves to what is wrong when there must be more, and to undefined when there may be none. */
  async #append(body: Readable, size: number | undefined): Promise<Error | undefined> {
    const staged = this.#staged!;
    const tail = this.#tail!;
    const { idle } = this.#resource;
    const limit = size ?? this.#resource.limit;
    try {
      if (!tail.passesOn) {
        const until = this.#passOn.signal;
        await staged.append(body, { limit, idle, consume: true, until, progress: () => this.#progress() });
        if (until.aborted) {
          this.#keep = false;
          this.#expect?.(0);
          tail.passOn();
        }
      }
      if (tail.passesOn) await this.#passAlong(body, limit, idle);
    } catch (error) {
      body.destroy();
      if (isDomainError(error, 'TooLarge')) throw this.#invalid('sends more bytes than it may', error);
      if (isDomainError(error, 'Aborted')) return error;
      throw error;
    }
    const { received } = tail;
    if (size !== undefined) {
      if (received === size) return undefined;
      return new DomainError('Aborted', `The body ended after ${received} of ${size} bytes.`);
    }
    // Without a length the end of the connection passes for the end of the body: only the digest can tell.
    const digest = this.#expected && staged.runningDigest(algorithmOf(this.#expected));
    return digest === this.#expected ? undefined : new Error('the body is cut or wrong');
  }

  /** Hands the rest of a body to the readers, no faster than the slowest of them takes it. */
  #passAlong(body: Readable, limit: number, idle: number): Promise<void> {
    const tail = this.#tail!;
    if (body.readableEnded) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const take = (piece: Buffer) => {
        if (tail.received + piece.length > limit) {
          end(new DomainError('TooLarge', `The body is larger than ${limit} bytes.`));
          return;
        }
        this.#staged!.hashOn(piece);
        if (!tail.push(piece, () => body.resume())) body.pause();
      };
      const end = (error?: Error) => {
        stopListening();
        body.off('data', take).off('end', finish).off('error', broken).off('close', broken);
        if (error) reject(error);
        else resolve();
      };
      const finish = () => end();
      const broken = (cause?: Error) =>
        end(new DomainError('Aborted', 'The connection closed before the body was complete.', { cause }));
      const stopListening = whenSilent(body, idle, (error) => {
        body.destroy();
        end(error);
      });
      body.on('data', take).once('end', finish).once('error', broken).once('close', broken);
      if (body.destroyed) broken();
      else body.resume();
    });
  }

  /** Pieces of two versions must not be put together: a digest shows it, or a validator keeps the upstream from it. */
  #canResume({ resume, etag, lastModified }: Body): boolean {
    const isStrong = (etag !== null && !etag.startsWith('W/')) || lastModified !== null;
    return resume !== undefined && (this.#expected !== undefined || isStrong || this.#tail!.received === 0);
  }

  async #commit(head: Body): Promise<Landed> {
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
    const facts: Facts = {
      digest,
      size: this.#tail!.received,
      type: head.type.slice(0, 255),
      etag: short(head.etag, 255),
      lastModified: short(head.lastModified, 64),
      attributes,
      storedAt: at,
      validatedAt: at,
    };
    // An empty file takes no room, and its readers have nothing else to follow.
    const kept = this.#keep || facts.size === 0;
    const keys = [resource.key, ...(resource.aliases?.(facts) ?? [])];
    if (kept) await blobs.commit([{ staged, digest }], (tx) => entries.write(tx, keys, facts));
    this.#tail!.verified();
    // Under each name: one of them may be in the cache as absent, or as what it was before.
    if (kept) for (const key of keys) await entries.remember(entryId(key), facts);
    return { facts, kept };
  }

  /** Removes the staged file, unless it is the beginning of a body that no reader waited for. */
  async #putAway(): Promise<void> {
    const staged = this.#staged;
    if (!staged) return;
    const head = await this.#head.catch(() => undefined);
    const isUnread =
      this.#stop.signal.aborted && this.#keep && !this.#isFull && this.#resource.lifetime === 'immutable';
    if (isUnread && head?.kind === 'fetched' && staged.size > 0 && this.#canResume(head)) {
      await this.#parts.partials.keep(this.#id, { head, staged, expected: this.#expected });
    } else {
      await staged.discard();
    }
  }

  #left(): void {
    this.#readers -= 1;
    this.#unreadSince = this.#tail?.received ?? 0;
    if (this.#readers === 0 && this.#over) this.#tail?.close();
    else this.#reconsider();
  }

  /** Stops when no reader is left, unless little is missing. */
  #reconsider(): void {
    if (this.#readers > 0 || this.#over || this.#stop.signal.aborted || this.#isWorthwhile()) return;
    this.#stop.abort();
  }

  #isWorthwhile(): boolean {
    const tail = this.#tail;
    if (!tail || tail.passesOn) return false;
    const { unreadRest } = this.#parts;
    if (this.#size === undefined) return tail.received - this.#unreadSince < unreadRest;
    const rest = this.#size - tail.received;
    return rest <= unreadRest || rest <= this.#size / 10;
  }

  /** Bytes are made durable along the way, so that little is left to wait for at the end. */
  #progress(): void {
    const staged = this.#staged!;
    this.#tail!.grown();
    if (this.#size !== undefined) this.#expect?.(Math.max(0, this.#size - staged.size));
    if (this.#readers === 0) this.#reconsider();
    if (this.#checking || staged.size - this.#checked < checkEvery) return;
    this.#checked = staged.size;
    this.#checking = true;
    // What fails here fails again when it counts.
    Promise.all([staged.sync(), this.#checkRoom()])
      .catch(() => undefined)
      .finally(() => (this.#checking = false));
  }

  async #checkRoom(): Promise<void> {
    const { room } = this.#parts;
    if (await room.has(0)) return;
    if (this.#canPassOn) {
      this.#passOn.abort();
    } else if (!(await room.hasForAMoment(0))) {
      this.#isFull = true;
      this.#stop.abort();
    }
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

function stopped(): DomainError {
  return new DomainError('Aborted', 'This was fetched for clients that have all left.');
}

function noRoom(): DomainError {
  return new DomainError('StorageFull', 'There is no room on the disk of the server to fetch this. Make some there.');
}

function short(text: string | null, length: number): string | null {
  return text === null || text.length > length ? null : text;
}
