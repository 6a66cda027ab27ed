import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { algorithmOf, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { whenSilent } from '../../runtime/incoming.ts';
import type { DiskReserve } from '../../storage/files/disk-reserve.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import { OtherBody, type Fetched, type Received, type MirrorResource } from './resource.ts';
import { Tail } from './tail.ts';
import { Closed } from '../../upstream/failures.ts';
import { slownessIn } from '../../upstream/slow-body.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';

/** The most attempts to resume one body: in a row without progress, and in total. */
const fruitless = 3;
const resumptions = 40;
/** Bytes a second. An attempt that got fewer counts as one without progress. */
const minRate = 1024;
/** After this many further bytes the file is synced and the room on the disk is checked. */
const checkEvery = 16 * 2 ** 20;

export type Body = Extract<Fetched, { kind: 'fetched' }>;

interface IntakeParts {
  resource: MirrorResource;
  staged: StagedFile;
  /** As announced by the upstream. */
  size: number | undefined;
  /** The digest that the bytes must have, if it is known. */
  expected: Digest | undefined;
  room: DiskReserve;
  stop: AbortController;
  /** Called when more bytes have arrived. */
  onProgress: () => void;
}

/**
 * Receives the body of one fetch: into the staged file while the disk has room, else straight to the readers (pass
 * through). A body that is cut is resumed.
 */
export class Intake {
  readonly tail: Tail;
  readonly #parts: IntakeParts;
  readonly #expect: (rest: number) => void;
  /** Aborted when the rest of the body is not to be stored. */
  readonly #stopStoring = new AbortController();
  #isStored: boolean;
  #isFull = false;
  #checked: number;
  #checking = false;

  private constructor(parts: IntakeParts, tail: Tail, isStored: boolean) {
    this.tail = tail;
    this.#parts = parts;
    this.#isStored = isStored;
    this.#checked = parts.staged.size;
    if (!isStored && this.#mayPassThrough) tail.passThrough();
    this.#expect = parts.room.expect(tail.isPassThrough ? 0 : (this.#missing ?? 0));
  }

  /** Throws `StorageFull` if the body can neither be stored, not even for a moment, nor be passed through or kept in memory. */
  static async open(parts: IntakeParts): Promise<Intake> {
    const { staged, size, room, resource } = parts;
    const missing = (size ?? staged.size) - staged.size;
    const isStored = !staged.isOffDisk && (await room.has(missing));
    const hasNoFile = staged.isOffDisk || (!isStored && !(await room.hasForAMoment(missing)));
    if (hasNoFile && !mayPassThrough(resource)) {
      if (!staged.continueInMemory(missing)) throw noRoom();
    }
    const file = await staged.follow();
    return new Intake(parts, new Tail(staged, file), isStored);
  }

  /** Whether the body will be stored; else its bytes are removed once the readers have them. */
  get isStored(): boolean {
    return this.#isStored && !this.#parts.staged.isInMemory;
  }

  /** Whether the fetch ended because the disk is full. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /**
   * Whether so little is missing that the fetch continues without readers. `since` is the number of bytes that had arrived
   * when the last reader left.
   */
  isNearlyDone(unreadRest: number, since: number): boolean {
    if (this.tail.isPassThrough) return false;
    const { size } = this.#parts;
    const missing = this.#missing;
    if (size === undefined || missing === undefined) return this.tail.received - since < unreadRest;
    return missing <= unreadRest || missing <= size / 10;
  }

  /** Resolves when the body seems complete; the caller checks its digest. Rejects if the body cannot be completed. */
  async fill(head: Body): Promise<void> {
    const { stop, resource } = this.#parts;
    let { body } = head;
    let failures = 0;
    for (let total = 0; ; total += 1) {
      const before = this.tail.received;
      const startedAt = performance.now();
      const cut = await this.#append(body);
      if (!cut) return;
      if (stop.signal.aborted) throw this.#isFull ? noRoom() : stopped();
      const isProgress = this.tail.received - before > (minRate * (performance.now() - startedAt)) / 1000;
      failures = isProgress ? 0 : failures + 1;
      const mayGoOn = total < resumptions && !(cut.cause instanceof OtherBody || slownessIn(cut));
      const rest = mayGoOn ? await this.#resume(head, failures) : undefined;
      if (!rest) {
        // No length was announced: the body may be complete. The caller's check of the digest decides.
        if (!isDomainError(cut, 'Aborted')) return;
        head.failed?.(slownessIn(cut) ?? cut);
        const { upstreamName: upstream, key } = resource;
        const message = `The upstream ${upstream} stopped in the middle of a body.`;
        throw new UpstreamError('UpstreamUnavailable', message, { upstream, id: key.upstream, cause: cut });
      }
      body = rest;
    }
  }

  /** The bytes that have arrived. */
  get received(): Received {
    const { staged, expected } = this.#parts;
    return { bytes: this.tail.received, digest: expected ? undefined : staged.runningDigest('sha256') };
  }

  /** Gives back the room on the disk that was expected to be used. */
  end(): void {
    this.#expect(0);
  }

  get #missing(): number | undefined {
    const { size } = this.#parts;
    return size === undefined ? undefined : Math.max(0, size - this.tail.received);
  }

  get #mayPassThrough(): boolean {
    return mayPassThrough(this.#parts.resource);
  }

  /** The rest of the body. Waits between attempts, so that the upstream's first pause can end. */
  async #resume(head: Body, failures: number): Promise<Readable | undefined> {
    const { signal } = this.#parts.stop;
    if (!head.resume) return undefined;
    for (let attempt = failures; attempt < fruitless; attempt += 1) {
      if (attempt > failures) await sleep(600 * (attempt - failures), undefined, { signal }).catch(() => undefined);
      try {
        return await head.resume(this.received, signal);
      } catch (error) {
        if (!isDomainError(error) || error.cause instanceof Closed || head.size === undefined) return undefined;
        if (isDomainError(error, 'Aborted')) return undefined;
      }
    }
    return undefined;
  }

  /** Receives one body. Resolves to an error if bytes must be missing, and to undefined if it may be complete. */
  async #append(body: Readable): Promise<Error | undefined> {
    const { staged, size, expected, resource } = this.#parts;
    const { idle } = resource;
    const limit = size ?? resource.limit;
    const { tail } = this;
    try {
      if (!tail.isPassThrough) {
        const until = this.#stopStoring.signal;
        const onFull = this.#mayPassThrough ? (rest: Buffer[]) => this.#passFromHere(rest) : undefined;
        await staged.append(body, {
          limit,
          idle,
          consume: true,
          until,
          onFull,
          atOnce: true,
          progress: () => this.#progress(),
        });
        if (until.aborted) this.#passFromHere([]);
      }
      if (tail.isPassThrough) await this.#passThrough(body, limit);
    } catch (error) {
      body.destroy();
      if (isDomainError(error, 'Aborted')) return error;
      throw error;
    }
    const { received } = tail;
    if (size !== undefined) {
      if (received === size) return undefined;
      return new DomainError('Aborted', `The body ended after ${received} of ${size} bytes.`);
    }
    // Without a length, the end of the connection looks like the end of the body. Only the digest shows a cut.
    const digest = expected && staged.runningDigest(algorithmOf(expected));
    return digest === expected ? undefined : new Error('the body is cut or wrong');
  }

  /** Stores no more of the body. `unwritten` is what the disk did not take. */
  #passFromHere(unwritten: readonly Buffer[]): void {
    this.#isStored = false;
    this.#expect(0);
    this.tail.passThrough();
    for (const piece of unwritten) this.tail.push(piece, () => undefined);
  }

  /** Passes the rest of a body to the readers, at the speed of the slowest of them. */
  #passThrough(body: Readable, limit: number): Promise<void> {
    const { staged, resource } = this.#parts;
    const { tail } = this;
    if (body.readableEnded) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const take = (piece: Buffer) => {
        if (tail.received + piece.length > limit) {
          end(new DomainError('TooLarge', `The body is larger than ${limit} bytes.`));
          return;
        }
        staged.hashOn(piece);
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
      const stopListening = whenSilent(body, resource.idle, (error) => {
        body.destroy();
        end(error);
      });
      body.on('data', take).once('end', finish).once('error', broken).once('close', broken);
      if (body.destroyed) broken();
      else body.resume();
    });
  }

  /** Syncs the file from time to time, so that the sync at the end is short. */
  #progress(): void {
    const { staged, onProgress } = this.#parts;
    this.tail.grown();
    if (this.#missing !== undefined) this.#expect(this.#missing);
    onProgress();
    if (this.#checking || staged.size - this.#checked < checkEvery) return;
    this.#checked = staged.size;
    this.#checking = true;
    // A failure here is ignored: the final sync reports it again.
    Promise.all([staged.sync(), this.#checkRoom()])
      .catch(() => undefined)
      .finally(() => (this.#checking = false));
  }

  async #checkRoom(): Promise<void> {
    const { room, staged, stop } = this.#parts;
    if (await room.has(0)) return;
    if (this.#mayPassThrough) {
      this.#stopStoring.abort();
    } else if (!(await room.hasForAMoment(0)) && !staged.continueInMemory(this.#missing ?? 0)) {
      this.#isFull = true;
      stop.abort();
    }
  }
}

/** Whether the body can be passed through: only its digest is verified. Other checks need the whole file. */
export function mayPassThrough(resource: MirrorResource): boolean {
  return resource.digest !== undefined && !resource.verify && !resource.whole;
}

function stopped(): DomainError {
  return new DomainError('Aborted', 'The fetch was stopped because all of its clients have left.');
}

function noRoom(): DomainError {
  return new DomainError('StorageFull', 'The disk of the server has no room to fetch this. Free some space on it.');
}
