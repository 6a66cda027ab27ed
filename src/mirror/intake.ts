import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { algorithmOf, type Digest } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import { whenSilent } from '../incoming.ts';
import type { Room } from '../storage/room.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { OtherBody, type Fetched, type Received, type MirrorResource } from './resource.ts';
import { Tail } from './tail.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';

/** Resumptions of one body: in a row without progress, and in all. */
const fruitless = 3;
const resumptions = 40;
/** Bytes between two requests to make durable what is there, and two looks at the room on the disk. */
const checkEvery = 16 * 2 ** 20;

export type Body = Extract<Fetched, { kind: 'fetched' }>;

export interface IntakeParts {
  resource: MirrorResource;
  staged: StagedFile;
  /** As the upstream has announced it. */
  size: number | undefined;
  /** What the bytes must hash to, where that is known. */
  expected: Digest | undefined;
  room: Room;
  stop: AbortController;
  /** Called when more has come. */
  onProgress: () => void;
}

/**
 * Takes the body of one fetch in: into the staged file while there is room on the disk, else past it to those who read.
 * What breaks off is resumed.
 */
export class Intake {
  readonly tail: Tail;
  readonly #parts: IntakeParts;
  readonly #expect: (rest: number) => void;
  /** Aborted where what still comes is not to be stored. */
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
    if (!isStored && this.#mayPassThrough) {
      this.#stopStoring.abort();
      tail.passThrough();
    }
    this.#expect = parts.room.expect(tail.isPassThrough ? 0 : (this.#missing ?? 0));
  }

  /** Throws `StorageFull` where there is no room even for a moment. */
  static async open(parts: IntakeParts): Promise<Intake> {
    const { staged, size, room, resource } = parts;
    const missing = (size ?? staged.size) - staged.size;
    const isStored = await room.has(missing);
    if (!isStored && !mayPassThrough(resource) && !(await room.hasForAMoment(missing))) throw noRoom();
    const file = await staged.follow();
    return new Intake(parts, new Tail(staged, file), isStored);
  }

  /** Whether the bytes are to be stored, rather than removed when they were sent. */
  get isStored(): boolean {
    return this.#isStored;
  }

  /** Whether it ended for lack of room. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Whether little enough is missing to fetch it for no reader; `since` is how much had come when the last one left. */
  isNearlyDone(unreadRest: number, since: number): boolean {
    if (this.tail.isPassThrough) return false;
    const { size } = this.#parts;
    const missing = this.#missing;
    if (size === undefined || missing === undefined) return this.tail.received - since < unreadRest;
    return missing <= unreadRest || missing <= size / 10;
  }

  /** Resolves when the whole has come, as far as can be told without its digest. Rejects when it cannot be had. */
  async fill(head: Body): Promise<void> {
    const { stop, resource } = this.#parts;
    let { body } = head;
    let failures = 0;
    for (let total = 0; ; total += 1) {
      const before = this.tail.received;
      const cut = await this.#append(body);
      if (!cut) return;
      if (stop.signal.aborted) throw this.#isFull ? noRoom() : stopped();
      failures = this.tail.received > before ? 0 : failures + 1;
      const mayGoOn = total < resumptions && !(cut.cause instanceof OtherBody);
      const rest = mayGoOn ? await this.#resume(head, failures) : undefined;
      if (!rest) {
        // A body whose end was only guessed is complete after all, or wrong; its digest decides.
        if (!isDomainError(cut, 'Aborted')) return;
        head.failed?.(cut);
        const { upstream } = resource.key;
        const message = `The upstream ${upstream} broke off in the middle.`;
        throw new UpstreamError('UpstreamUnavailable', message, { upstream, cause: cut });
      }
      body = rest;
    }
  }

  /** What has come. */
  get received(): Received {
    const { staged, expected } = this.#parts;
    return { bytes: this.tail.received, digest: expected ? undefined : staged.runningDigest('sha256') };
  }

  /** Nothing more is expected. */
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

  /** The rest of the body. An upstream that is gone is given a moment, so that a first pause can pass. */
  async #resume(head: Body, failures: number): Promise<Readable | undefined> {
    const { signal } = this.#parts.stop;
    if (!head.resume) return undefined;
    for (let attempt = failures; attempt < fruitless; attempt += 1) {
      if (attempt > failures) await sleep(600 * (attempt - failures), undefined, { signal }).catch(() => undefined);
      try {
        return await head.resume(this.received, signal);
      } catch (error) {
        if (!isDomainError(error) || isDomainError(error, 'Aborted') || head.size === undefined) return undefined;
      }
    }
    return undefined;
  }

  /** Takes in one body; resolves to what is wrong when there must be more, and to undefined when there may be none. */
  async #append(body: Readable): Promise<Error | undefined> {
    const { staged, size, expected, resource } = this.#parts;
    const { idle } = resource;
    const limit = size ?? resource.limit;
    const { tail } = this;
    try {
      if (!tail.isPassThrough) {
        const until = this.#stopStoring.signal;
        await staged.append(body, { limit, idle, consume: true, until, progress: () => this.#progress() });
        if (until.aborted) {
          this.#isStored = false;
          this.#expect(0);
          tail.passThrough();
        }
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
    // Without a length the end of the connection passes for the end of the body: only the digest can tell.
    const digest = expected && staged.runningDigest(algorithmOf(expected));
    return digest === expected ? undefined : new Error('the body is cut or wrong');
  }

  /** Hands the rest of a body to the readers, no faster than the slowest of them takes it. */
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

  /** Bytes are made durable along the way, so that little is left to wait for at the end. */
  #progress(): void {
    const { staged, onProgress } = this.#parts;
    this.tail.grown();
    if (this.#missing !== undefined) this.#expect(this.#missing);
    onProgress();
    if (this.#checking || staged.size - this.#checked < checkEvery) return;
    this.#checked = staged.size;
    this.#checking = true;
    // What fails here fails again when it counts.
    Promise.all([staged.sync(), this.#checkRoom()])
      .catch(() => undefined)
      .finally(() => (this.#checking = false));
  }

  async #checkRoom(): Promise<void> {
    const { room, stop } = this.#parts;
    if (await room.has(0)) return;
    if (this.#mayPassThrough) {
      this.#stopStoring.abort();
    } else if (!(await room.hasForAMoment(0))) {
      this.#isFull = true;
      stop.abort();
    }
  }
}

/** Whether nothing but its digest has to be right: what is verified in another way needs the whole file. */
function mayPassThrough(resource: MirrorResource): boolean {
  return resource.digest !== undefined && !resource.verify && !resource.whole;
}

function stopped(): DomainError {
  return new DomainError('Aborted', 'This was fetched for clients that have all left.');
}

function noRoom(): DomainError {
  return new DomainError('StorageFull', 'There is no room on the disk of the server to fetch this. Make some there.');
}
