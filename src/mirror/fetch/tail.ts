import { callerLeft, currentCaller } from '../../runtime/caller.ts';
import type { Content } from '../../storage/files/content.ts';
import { UnreadBytes } from './unread-bytes.ts';

/** Milliseconds between two times that the readers are woken, for each reader. */
const wakeEvery = 1.3;
/** Bytes in memory of a body that is not stored. Above this, the upstream waits for the slowest reader. */
const windowLimit = 2 ** 20;
/**
 * A reader gets its first bytes when more than this many have arrived, or all of them, so that an upstream that closes
 * before is an error for the client and not a closed connection.
 */
const firstBytes = 16 * 1024;
/** Milliseconds after which a reader gets its first bytes from a slow upstream, however few they are. */
const firstWait = 10_000;

interface Reader {
  /** Where it reads next. */
  position: number;
  /** When it gets its first bytes at the latest, by `performance.now()`. */
  firstUntil: number;
}

/** The part of the staged file that readers need. */
interface Filling {
  /** Unique among all staged files. */
  readonly id: string;
  readonly size: number;
}

/**
 * The readers' view of a body that is being fetched: the staged file, and a window in memory once the disk has no room.
 * The last byte is held back until the whole body is verified, so that no client receives a complete wrong body.
 */
export class Tail {
  readonly #staged: Filling;
  /** Open until the last reader has left; it stays readable when the file is moved. */
  readonly #file: Content;
  readonly #firstWait: number;
  readonly #readers = new Set<Reader>();
  #window: UnreadBytes | undefined;
  #drained: (() => void) | undefined;
  #verified = false;
  #failure: { error: unknown } | undefined;
  #waiting: (() => void)[] = [];
  #wokeAt = 0;
  #alarm: NodeJS.Timeout | undefined;

  /** `file` is `staged` opened for reading. */
  constructor(staged: Filling, file: Content, wait = firstWait) {
    this.#staged = staged;
    this.#file = file;
    this.#firstWait = wait;
  }

  /** Bytes of the body that have arrived. */
  get received(): number {
    return this.#window?.end ?? this.#staged.size;
  }

  /** Whether the rest of the body is passed through and not stored. */
  get isPassThrough(): boolean {
    return this.#window !== undefined;
  }

  /** One reader's view. `left` is called once, when it is closed or when the current caller has left. */
  follow(size: number | undefined, left: () => void): Content {
    const reader: Reader = { position: 0, firstUntil: performance.now() + this.#firstWait };
    this.#readers.add(reader);
    const caller = currentCaller();
    const leave = () => {
      if (!this.#readers.delete(reader)) return;
      stopListening?.();
      this.#wake();
      this.#release();
      left();
    };
    const stopListening = caller?.whenGone(leave);
    const sourceOf = () => (this.#window ? undefined : this.#staged.id);
    return {
      size,
      /** Undefined for a window: each reader has to read itself, so that its position is known. */
      get source() {
        return sourceOf();
      },
      read: async (target, position) => {
        reader.position = position;
        this.#release();
        for (;;) {
          if (!this.#readers.has(reader)) throw callerLeft();
          const available = this.#verified ? this.received : this.received - 1;
          const held = performance.now() < reader.firstUntil ? firstBytes : 0;
          if (this.#verified || available - position > held) {
            if (position >= available) return 0;
            reader.firstUntil = 0;
            return this.#read(reader, target.subarray(0, available - position), position);
          }
          if (this.#failure) throw this.#failure.error as Error;
          await new Promise<void>((resolve) => this.#waiting.push(resolve));
        }
      },
      close: leave,
    };
  }

  /** More has been written to the file. */
  grown(): void {
    if (this.#alarm) return;
    const rest = this.#wokeAt + wakeEvery * this.#readers.size - performance.now();
    if (rest <= 0) this.#wake();
    else this.#alarm = setTimeout(() => this.#wake(), rest);
  }

  /** Keeps the rest of the body in memory until all readers have it. It is not stored. */
  passThrough(): void {
    this.#window ??= new UnreadBytes(this.#staged.size);
  }

  /** Adds a piece that is passed through. Returns false if the next piece has to wait until `drained` is called. */
  push(piece: Buffer, drained: () => void): boolean {
    const window = this.#window!;
    window.push(piece);
    this.#wake();
    this.#release();
    if (window.size < windowLimit) return true;
    this.#drained = drained;
    return false;
  }

  /** The body is complete and verified: releases the last byte to the readers. */
  verified(): void {
    this.#verified = true;
    this.#wake();
  }

  /** The fetch has ended. After a failure, readers without the whole body get its error. */
  end(failure?: { error: unknown }): void {
    this.#failure = failure;
    this.#wake();
  }

  /** Closes the file. To be called when the fetch has ended and no reader is left or waits. */
  close(): void {
    this.#file.close();
  }

  async #read(reader: Reader, target: Buffer, position: number): Promise<number> {
    const window = this.#window;
    if (!window || position < window.base) {
      const rest = window ? window.base - position : target.length;
      return this.#file.read(target.subarray(0, rest), position);
    }
    const length = window.read(target, position);
    reader.position = position + length;
    this.#release();
    return length;
  }

  /** Frees the part of the window that every reader has read. */
  #release(): void {
    if (!this.#window) return;
    let least = Number.POSITIVE_INFINITY;
    for (const { position } of this.#readers) least = Math.min(least, position);
    this.#window.drop(least);
    if (this.#window.size >= windowLimit) return;
    const drained = this.#drained;
    this.#drained = undefined;
    drained?.();
  }

  /** Wakes the readers that wait. `grown` limits how often, so that many readers read few large pieces. */
  #wake(): void {
    clearTimeout(this.#alarm);
    this.#alarm = undefined;
    this.#wokeAt = performance.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }
}
