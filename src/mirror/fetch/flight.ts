import type { Logger } from 'pino';
import type { Readable } from 'node:stream';
import { BackgroundTask } from '../../runtime/background-task.ts';
import { currentCaller, runFor, untilCallerLeaves, type Caller } from '../../runtime/caller.ts';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { storageFull } from '../../storage/files/disk.ts';
import type { DiskReserve } from '../../storage/files/disk-reserve.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { MirrorCounts } from '../store/counts.ts';
import { entryId, type DropMark, type Entries, type EntryKey, type EntryMetadata } from '../store/entries.ts';
import { checkEntry, rememberEntry, storeEntry, WrongDigest } from './checked-entry.ts';
import { Intake, mayPassThrough, type Body } from './intake.ts';
import type { Partial, Partials } from './partials.ts';
import { isFresh, type Fetched, type MirrorResource } from './resource.ts';
import { orAbort } from '../../upstream/failures.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';

/** What a reader gets: a body that is being fetched (`tail`), a stored entry, or nothing. */
export type JoinResult =
  | {
      kind: 'tail';
      type: string;
      size: number | undefined;
      content: Content;
      /** Whether the body will be stored, as known at its beginning. */
      isStored: boolean;
      done: Promise<FlightResult>;
    }
  | { kind: 'stored'; metadata: EntryMetadata; outcome: 'hit' | 'revalidated' | 'withdrawn' }
  | { kind: 'absent' };

/** Milliseconds that a body without readers is still fetched. */
const maxUnread = 60_000;

/** The result of a fetch. Without `isStored` the body was passed through to the readers and not stored. */
interface FlightResult {
  metadata: EntryMetadata;
  isStored: boolean;
}

/** The beginning of the upstream's answer. `current`: another fetch has stored a fresh entry meanwhile. */
type Head = Fetched | { kind: 'current'; metadata: EntryMetadata };

export interface FlightParts {
  blobs: BlobStore;
  entries: Entries;
  partials: Partials;
  counts: MirrorCounts;
  room: DiskReserve;
  /** A body without readers is still fetched to its end if at most this many bytes are missing. */
  unreadRest: number;
  /** Milliseconds that the fetch of a body without readers may still take; a minute by default. */
  unreadTime?: number | undefined;
  /** Called when a body does not have the digest that its name or the upstream promised. */
  onMismatch?: ((key: EntryKey, expected: Digest, received: Digest) => void) | undefined;
  log: Logger;
  now: () => number;
}

/**
 * One fetch from an upstream for one key, shared by all readers of that key. It writes one staged file, and every reader
 * reads from that file. A reader that leaves does not stop the others. After the last one has left, the fetch continues
 * only if little is missing, and no longer than a minute; else it stops, and the received beginning is kept for a while. If the disk has no room for a
 * blob, the bytes are passed through to the readers and not stored. Content that is verified as a whole is kept in memory
 * then, and not stored either.
 */
export class Flight {
  readonly #resource: MirrorResource;
  readonly #parts: FlightParts;
  readonly #id: string;
  readonly #startedAt: number;
  readonly #head: Promise<Head>;
  readonly #result: Promise<FlightResult | undefined>;
  readonly #stop = new AbortController();
  /** The part of the background task that started it. */
  readonly #part = BackgroundTask.current?.part();
  #known: EntryMetadata | undefined;
  #expected: Digest | undefined;
  #staged: StagedFile | undefined;
  #intake: Intake | undefined;
  #readers = 0;
  /** How many bytes had come when the last reader left. */
  #unreadSince = 0;
  #unread: NodeJS.Timeout | undefined;
  /** The body has arrived: it is stored or refused, also without readers. */
  #isComplete = false;
  #over = false;

  constructor(resource: MirrorResource, parts: FlightParts) {
    this.#resource = resource;
    this.#parts = parts;
    this.#id = entryId(resource.key);
    this.#startedAt = parts.now();
    // The fetch is a caller of its own, because it may outlive the request that started it.
    const caller = callerOf(this.#stop.signal, currentCaller());
    const run = <T>(work: () => Promise<T>) => runFor(caller, () => this.#part?.task.run(work) ?? work());
    this.#head = run(() => this.#start());
    this.#result = run(() => this.#run());
    this.#result.catch(() => undefined);
  }

  /** Resolves when the entry is stored, renewed, passed through or known to be absent; rejects when the fetch failed. */
  get result(): Promise<FlightResult | undefined> {
    return this.#result;
  }

  /** Milliseconds since the fetch started. */
  get age(): number {
    return this.#parts.now() - this.#startedAt;
  }

  /** Whether the upstream has begun to send a body. */
  get hasBody(): boolean {
    return this.#intake !== undefined;
  }

  /** Whether a further reader could still get the whole body here. */
  get joinable(): boolean {
    const isStopped = this.#stop.signal.aborted || this.#part?.task.signal.aborted === true;
    return !this.#over && !isStopped && !this.#intake?.tail.isPassThrough;
  }

  /** Adds a reader; resolves when the upstream has begun to answer. Rejects if it does not, or if the reader leaves. */
  async join(): Promise<JoinResult> {
    // Counted before the first await, so that the fetch does not stop while this reader waits.
    this.#readers += 1;
    clearTimeout(this.#unread);
    const task = BackgroundTask.current;
    if (task?.root !== this.#part?.task.root) this.#part?.release();
    const wait = <T>(work: Promise<T>) => untilCancelled(task, untilCallerLeaves(work));
    let following = false;
    try {
      const head = await wait(this.#head);
      if (head.kind === 'current') return { kind: 'stored', metadata: head.metadata, outcome: 'hit' };
      // An empty body has no last byte to hold back until it is verified, so it is served only when it is stored.
      if (head.kind === 'fetched' && head.size !== 0) {
        following = true;
        const { tail, isStored } = this.#intake!;
        const content = tail.follow(head.size, () => this.#readerLeft());
        return {
          kind: 'tail',
          type: head.type,
          size: head.size,
          content: task ? cancelledWith(task, content) : content,
          isStored,
          done: untilCancelled(task, this.#result as Promise<FlightResult>),
        };
      }
      const result = await wait(this.#result);
      if (!result) return { kind: 'absent' };
      const outcomes = { fetched: 'hit', 'not-modified': 'revalidated', absent: 'withdrawn' } as const;
      return { kind: 'stored', metadata: result.metadata, outcome: outcomes[head.kind] };
    } finally {
      if (!following) this.#readerLeft();
    }
  }

  async #start(): Promise<Head> {
    const { entries, partials, now } = this.#parts;
    this.#known = await entries.read(this.#id);
    // Taken only after the read above: if that fails, the partial body must stay.
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
        throw this.#reject(`announces ${size} bytes; the limit is ${limit} bytes`);
      }
      this.#expected = digest ?? head.digest;
      const naming = this.#expected ? algorithmOf(this.#expected) : 'sha256';
      const all = [...new Set<DigestAlgorithm>([naming, ...(algorithms ?? [])])];
      return this.#parts.blobs.stage(all, !mayPassThrough(this.#resource));
    });
  }

  /** Resumes a body that an earlier fetch has left incomplete; undefined if the upstream does not send the rest. */
  async #resume(partial: Partial): Promise<Body | undefined> {
    const { head, staged, received, expected } = partial;
    let body: Readable | undefined;
    try {
      body = await head.resume?.(received, this.#stop.signal);
    } catch (error) {
      // The upstream may send the rest later.
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
    // Without a listener, an error before the first read would end the process.
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
        const kept = this.#resource.keeps ? this.#known : undefined;
        await entries.setAbsent(this.#id, this.#resource.negativeFor, kept !== undefined);
        return kept && { metadata: kept, isStored: true };
      }
      if (head.kind === 'not-modified') {
        const { upstreamKind, key } = this.#resource;
        this.#parts.counts.of(upstreamKind, key.upstream).saved += this.#known!.size;
        return { metadata: await this.#validated(this.#known!), isStored: true };
      }
      await this.#intake!.fill(head).catch((error: unknown) => {
        throw isDomainError(error, 'TooLarge') ? this.#reject('sends more bytes than allowed', error) : error;
      });
      this.#isComplete = true;
      clearTimeout(this.#unread);
      return await this.#commit(head);
    } catch (error) {
      failure = { error };
      if (!isDomainError(error))
        log.error({ ...this.#resource.key, err: error }, 'a fetch failed because of an error in this server');
      throw error;
    } finally {
      this.#over = true;
      this.#part?.end();
      clearTimeout(this.#unread);
      this.#intake?.end();
      this.#intake?.tail.end(failure);
      if (this.#readers === 0) this.#intake?.tail.close();
      await this.#releaseStaged();
    }
  }

  /** Records that the upstream still has the stored content. If that cannot be written, it is served all the same. */
  async #validated(known: EntryMetadata): Promise<EntryMetadata> {
    try {
      return await this.#parts.entries.validated(this.#id, known);
    } catch (error) {
      if (!storageFull(error) && !cannotWrite(error)) throw error;
      this.#parts.log.warn({ ...this.#resource.key, err: error }, 'a validation was not recorded');
      return known;
    }
  }

  async #commit(head: Body): Promise<FlightResult> {
    const resource = this.#resource;
    const { entries, log, now, onMismatch } = this.#parts;
    const stated = { ...head, digest: this.#expected, size: this.#intake!.tail.received };
    const checked = await checkEntry(resource, this.#staged!, stated, now()).catch((error: Error) => {
      if (!(error instanceof WrongDigest)) throw this.#reject(`sent the wrong content: ${error.message}`, error);
      onMismatch?.(resource.key, error.expected, error.received);
      throw this.#reject(`sent ${error.received} instead of ${error.expected}`);
    });
    const { metadata, seen } = checked;
    // An empty file takes no room, and must be stored because its readers wait for the stored entry.
    let isStored = this.#intake!.isStored || metadata.size === 0;
    let mark: DropMark = null;
    try {
      if (isStored) mark = await storeEntry(this.#parts, checked);
      else if (seen.length > 0) await entries.record(resource.key, seen);
    } catch (error) {
      // The body is verified, and its readers still have its file. So only storing it has failed.
      const isFull = storageFull(error) !== undefined;
      if ((!isFull && !cannotWrite(error)) || metadata.size === 0) throw error;
      const reason = isFull ? 'the disk is full' : 'the storage or the database cannot be written';
      log.warn({ ...resource.key, err: error }, `${reason}: fetched content was not stored`);
      isStored = false;
    }
    this.#intake!.tail.verified();
    if (isStored) await rememberEntry(entries, checked, mark);
    return { metadata, isStored };
  }

  /** Removes the staged file, or keeps it for a later fetch if the fetch stopped because no reader was left. */
  async #releaseStaged(): Promise<void> {
    const staged = this.#staged;
    if (!staged) return;
    const head = await this.#head.catch(() => undefined);
    const isUnread =
      this.#stop.signal.aborted && !this.#isComplete && this.#intake?.isStored === true && !this.#intake.isFull;
    const isLasting = this.#resource.lifetime === 'immutable' && staged.size > 0 && !staged.isLost;
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
    if (!this.#mayStop) return;
    this.#unread = setTimeout(() => this.#stop.abort(), this.#parts.unreadTime ?? maxUnread);
  }

  get #mayStop(): boolean {
    return this.#readers === 0 && !this.#isComplete && !this.#over && !this.#stop.signal.aborted;
  }

  /** Stops the fetch if no reader is left, unless little is missing. */
  #stopIfUnneeded(): void {
    if (!this.#mayStop) return;
    if (!this.#intake?.isNearlyDone(this.#parts.unreadRest, this.#unreadSince)) this.#stop.abort();
  }

  #reject(what: string, cause?: unknown): UpstreamError {
    const { key, upstreamName: upstream } = this.#resource;
    this.#parts.log.error({ ...key, reason: what }, 'an upstream sent content that must not be stored');
    const message = `The upstream ${upstream} ${what}.`;
    return new UpstreamError('UpstreamUnavailable', message, { upstream, id: key.upstream, cause });
  }
}

/** Content for a reader in the background. Its reads fail as soon as its task is cancelled, also if the fetch goes on for clients. */
function cancelledWith(task: BackgroundTask, content: Content): Content {
  return { ...content, read: (target, position) => untilCancelled(task, content.read(target, position)) };
}

/** Waits for `work`. Rejects with `Aborted` as soon as the task is cancelled. */
async function untilCancelled<T>(task: BackgroundTask | undefined, work: Promise<T>): Promise<T> {
  try {
    return await orAbort(work, task?.signal);
  } catch (error) {
    if (!task || error !== task.signal.reason) throw error;
    throw new DomainError('Aborted', 'The fetch was cancelled.', { cause: error });
  }
}

/** The caller that a fetch works for: no account's limits count a second time, and it has left when the fetch is stopped. */
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

/** Whether the storage or the database cannot be written now, for example because their disk is read-only. */
function cannotWrite(error: unknown): boolean {
  return isDomainError(error, 'StorageUnavailable') || isDomainError(error, 'DatabaseUnavailable');
}
