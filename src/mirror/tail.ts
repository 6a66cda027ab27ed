import { callerLeft, currentCaller } from '../caller.ts';
import type { Content } from '../storage/content.ts';
import { Window } from './window.ts';

/** Milliseconds for each reader between two times that they hear of more bytes. */
const wakeEvery = 1.3;
/** Bytes held in memory of a body that is not stored; at more, the upstream waits for the slowest reader. */
const windowLimit = 2 ** 20;

interface Reader {
  /** Where it reads next. */
  position: number;
}

/** The file that is being filled, as readers need it. */
interface Filling {
  /** Names the file among all that are being filled. */
  readonly id: string;
  readonly size: number;
}

/**
 * What the readers of a body follow while it comes: the file that it fills and, once there is no room to store more, a
 * window in memory. The last byte is withheld until the whole is verified, so that a wrong body completes at no client.
 */
export class Tail {
  readonly #staged: Filling;
  /** Open until the last reader has left, wherever the file is moved meanwhile. */
  readonly #file: Content;
  readonly #readers = new Set<Reader>();
  #window: Window | undefined;
  #drained: (() => void) | undefined;
  #verified = false;
  #failure: { error: unknown } | undefined;
  #waiting: (() => void)[] = [];
  #wokeAt = 0;
  #alarm: NodeJS.Timeout | undefined;

  /** `file` is `staged` opened for reading. */
  constructor(staged: Filling, file: Content) {
    this.#staged = staged;
    this.#file = file;
  }

  /** Bytes of the body that have come. */
  get received(): number {
    return this.#window?.end ?? this.#staged.size;
  }

  /** Whether what comes is passed on and not stored. */
  get isPassThrough(): boolean {
    return this.#window !== undefined;
  }

  /** One reader's view. It ends when it is closed, or when the client has left for whom it was opened; then `left`. */
  follow(size: number | undefined, left: () => void): Content {
    const reader: Reader = { position: 0 };
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
      /** Of a window each reader has its own reads, which tell how far it has got. */
      get source() {
        return sourceOf();
      },
      read: async (target, position) => {
        reader.position = position;
        this.#release();
        for (;;) {
          if (!this.#readers.has(reader)) throw callerLeft();
          const available = this.#verified ? this.received : this.received - 1;
          if (position < available) return this.#read(reader, target.subarray(0, available - position), position);
          if (this.#verified) return 0;
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

  /** From here on what comes is held in memory until all readers have had it, and is not stored. */
  passThrough(): void {
    this.#window ??= new Window(this.#staged.size);
  }

  /** Takes a piece that is passed on; false when the next one has to wait until `drained` is called. */
  push(piece: Buffer, drained: () => void): boolean {
    const window = this.#window!;
    window.push(piece);
    this.#wake();
    this.#release();
    if (window.size < windowLimit) return true;
    this.#drained = drained;
    return false;
  }

  /** The whole has come and is verified: readers get the last byte. */
  verified(): void {
    this.#verified = true;
    this.#wake();
  }

  /** Nothing more comes. Readers that lack something get the error of a failed fetch. */
  end(failure?: { error: unknown }): void {
    this.#failure = failure;
    this.#wake();
  }

  /** Lets go of the file; for when it has ended and no reader is left or on its way. */
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

  /** Lets go of what every reader has had. */
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

  /** At once after a pause, else once in a while, so that many readers move few large pieces. */
  #wake(): void {
    clearTimeout(this.#alarm);
    this.#alarm = undefined;
    this.#wokeAt = performance.now();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each();
  }
}
