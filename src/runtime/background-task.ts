import { AsyncLocalStorage } from 'node:async_hooks';
import { Duplex, pipeline, type Readable } from 'node:stream';
import { Throttle } from './incoming.ts';

const current = new AsyncLocalStorage<BackgroundTask>();
/** Pieces a second of a slowed body, so that the reader's check for silence does not cut it. */
const piecesPerSecond = 20;
const maxPiece = 65_536;

/** A part of a task, such as the fetch of one body. */
interface TaskPart {
  task: BackgroundTask;
  /** A client or another task waits for the part, too. Then the rate and the end of its own task do not apply to it any more. */
  release: () => void;
  end: () => void;
}

/**
 * Work that no client waits for: its rate is limited, it can be cancelled, and the entries that it reads do not count as
 * used. This applies to everything that starts inside `run`. A fetch that a client started is not slowed.
 */
export class BackgroundTask {
  readonly signal: AbortSignal;
  readonly #rate: number | undefined;
  readonly #throttle: Throttle | undefined;
  #received = 0;
  readonly #whole: BackgroundTask | undefined;
  #isReleased = false;

  /** `rate` in bytes a second, over all upstreams together; undefined for no limit. */
  constructor(signal: AbortSignal, rate?: number, whole?: BackgroundTask) {
    this.signal = signal;
    this.#whole = whole;
    this.#rate = rate;
    this.#throttle = rate === undefined || whole ? undefined : new Throttle(rate, signal);
  }

  /** The task that the running code belongs to. */
  static get current(): BackgroundTask | undefined {
    return current.getStore();
  }

  /** Runs `work` outside of any task, for a result that clients wait for too: not slowed, and not cancelled. */
  static outside<T>(work: () => Promise<T>): Promise<T> {
    return current.exit(work);
  }

  /** Bytes of bodies that upstreams have sent. */
  get received(): number {
    return this.#received;
  }

  /** The task of which this is a part, at any depth; itself if it is none. */
  get root(): BackgroundTask {
    return this.#whole?.root ?? this;
  }

  /** A part of this task for work that clients can come to wait for. It must be ended. */
  part(): TaskPart {
    const stop = new AbortController();
    const task = new BackgroundTask(stop.signal, this.#rate, this);
    const cancel = () => stop.abort(this.signal.reason);
    const end = () => this.signal.removeEventListener('abort', cancel);
    this.signal.addEventListener('abort', cancel);
    if (this.signal.aborted) cancel();
    const release = () => {
      end();
      task.#isReleased = true;
    };
    return { task, release, end };
  }

  /** Runs `work` as part of this task. */
  run<T>(work: () => Promise<T>): Promise<T> {
    return current.run(this, work);
  }

  /** The same body at the rate of the task. */
  pace(body: Readable): Readable {
    const size = Math.floor((this.#rate ?? Number.POSITIVE_INFINITY) / piecesPerSecond);
    const step = Math.max(1, Math.min(maxPiece, size));
    const take = (bytes: number) => this.#take(bytes);
    const paced = Duplex.from(async function* (source: AsyncIterable<Buffer>) {
      for await (const chunk of source) {
        for (let at = 0; at < chunk.length; at += step) {
          const piece = chunk.subarray(at, at + step);
          await take(piece.length);
          yield piece;
        }
      }
    });
    pipeline(body, paced, () => undefined);
    // The reader gets the error; without a reader it must not end the process.
    paced.on('error', () => undefined);
    return paced;
  }

  /** Counts received bytes, and waits as long as their rate demands. */
  async #take(bytes: number): Promise<void> {
    this.#received += bytes;
    if (!this.#whole) return this.#throttle?.spend(bytes);
    if (this.#isReleased) {
      for (let each: BackgroundTask | undefined = this.#whole; each; each = each.#whole) each.#received += bytes;
      return;
    }
    try {
      await this.#whole.#take(bytes);
    } catch (error) {
      // The whole task was cancelled while a client waits for this part.
      if (!this.#isReleased) throw error;
    }
  }
}
