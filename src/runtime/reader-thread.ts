import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { DomainError, type ErrorName } from './errors.ts';
import { pause } from './event-loop.ts';
import { inTime } from './in-time.ts';
import { programFile } from './program-file.ts';
import { Semaphore } from './semaphore.ts';
import { threadEnvironment } from './thread-environment.ts';

// Bytes from others that take long are read in a thread, so that no request waits for them.

/** The most that a thread may use for one reading: milliseconds by default, and MiB of heap. */
const usualTime = 15_000;
/** Milliseconds for its start. */
const longestStart = 60_000;
const heap = 512;
/** Seconds after which a reading may be tried again if the thread failed. */
const retryAfter = 15;
/** A thread without work ends after this many milliseconds, because it takes some MiB of memory. */
const idle = 10_000;
/** Bytes of a text that become lines in one step. */
const step = 16 * 1024;

/**
 * Reads bytes that others made. The result depends only on the arguments, and is one text, because a thread can pass on its bytes.
 * Throws a `DomainError`, or another error with the reason, for bytes of another form.
 */
export type ReadBytes<Options extends object> = (bytes: Buffer, options: Options) => string;

interface ThreadData {
  readerModule: string;
}
interface Question {
  bytes: Uint8Array;
  options: object;
}
/** What the thread sends when it can read. */
const ready = 'ready';
type Answer = { text: Uint8Array<ArrayBuffer> } | { message: string; name: ErrorName | undefined };

interface Thread {
  worker: Worker;
  /** Resolves when it can read. */
  ready: Promise<void>;
}

interface ReaderThreadOptions {
  /** Milliseconds for one reading. */
  longest?: number;
  /** Readings of one group that may wait; default: any number. */
  maxWaiting?: number;
}

/** Reads one after the other in a thread that it starts when it is needed. */
export class ReaderThread {
  readonly #module: string;
  readonly #longest: number;
  readonly #turns = new Semaphore({ max: 1 });
  /** One reading of each group at a time takes its turn, so that a group with many does not stand before the others. */
  readonly #groups: Semaphore;
  #thread: Thread | undefined;
  #answer: PromiseWithResolvers<Answer> | undefined;
  #ending: NodeJS.Timeout | undefined;

  /** `module` is the URL of a module whose default export is a `ReadBytes`. */
  constructor(module: string, { longest = usualTime, maxWaiting = Infinity }: ReaderThreadOptions = {}) {
    this.#module = module;
    this.#longest = longest;
    this.#groups = new Semaphore({ max: 1, maxWaiting });
  }

  /**
   * The lines of what the module's function returns. Groups take turns. Throws what the function throws, or `TooManyRequests` if
   * the thread fails or takes too much time or memory, or if too many of the group wait. The caller must not use `bytes` any more:
   * their memory is given to the thread, because a copy of many bytes would hold other requests. A function is called for them
   * when it is the turn of the reading in its group.
   */
  async read(bytes: Buffer | (() => Promise<Buffer>), options: object, group = ''): Promise<string[]> {
    const release = await this.#groups.take(group);
    if (!release) throw new DomainError('TooManyRequests', 'Too much waits to be read. Try again.', { retryAfter });
    try {
      // Before the turn, so that a storage that sends them slowly does not hold other groups.
      const given = typeof bytes === 'function' ? await bytes() : bytes;
      return await this.#turns.run(() => this.#next({ bytes: given, options }));
    } finally {
      release();
    }
  }

  async #next(question: Question): Promise<string[]> {
    clearTimeout(this.#ending);
    try {
      return await this.#ask(question);
    } finally {
      this.#ending = setTimeout(() => this.#end(), idle).unref();
    }
  }

  async #ask(question: Question): Promise<string[]> {
    const { promise } = (this.#answer = Promise.withResolvers<Answer>());
    const { worker, ready } = (this.#thread ??= this.#start());
    // On a busy machine the start takes long, too, and no content is the reason.
    await this.#inTime(() => Promise.race([ready, promise]), longestStart, 'no thread has started');
    const { buffer } = question.bytes;
    // Few bytes can share their memory with others.
    const given = buffer instanceof ArrayBuffer && buffer.byteLength === question.bytes.length ? [buffer] : [];
    worker.postMessage(question, given);
    const result = await this.#inTime(() => promise, this.#longest, 'it cannot be read');
    if ('text' in result) return linesOf(Buffer.from(result.text.buffer));
    throw result.name ? new DomainError(result.name, result.message) : new Error(result.message);
  }

  /** Ends the thread if `work` takes too long. Keeps the process running meanwhile. */
  #inTime<T>(work: () => Promise<T>, milliseconds: number, failure: string): Promise<T> {
    const late = () => {
      this.#end();
      throw unread(`${failure} within ${milliseconds / 1000} seconds`);
    };
    return inTime(work, milliseconds, { late });
  }

  #start(): Thread {
    const worker = new Worker(programFile('runtime/reader-thread.ts'), {
      workerData: { readerModule: this.#module } satisfies ThreadData,
      resourceLimits: { maxOldGenerationSizeMb: heap },
      env: threadEnvironment(),
      stdin: false,
    });
    const started = Promise.withResolvers<void>();
    const thread = { worker, ready: started.promise };
    const failed = (reason: string, cause?: unknown) => this.#thread === thread && this.#fail(reason, cause);
    worker.on('message', (answer: Answer | typeof ready) => {
      if (this.#thread !== thread) return;
      if (answer === ready) started.resolve();
      else this.#answer?.resolve(answer);
    });
    worker.on('error', (error: NodeJS.ErrnoException) =>
      failed(
        error.code === 'ERR_WORKER_OUT_OF_MEMORY'
          ? `it cannot be read within ${heap} MiB of memory`
          : 'the thread that reads failed',
        error,
      ),
    );
    worker.on('exit', () => failed('the thread that reads ended without a result'));
    // A request that waits for an answer keeps the process running by itself.
    worker.unref();
    return thread;
  }

  #fail(reason: string, cause?: unknown): void {
    this.#end();
    this.#answer?.reject(unread(reason, cause));
  }

  #end(): void {
    void this.#thread?.worker.terminate();
    this.#thread = undefined;
  }
}

/** Tells the client to try again, because the reader has not refused the bytes. */
function unread(reason: string, cause?: unknown): DomainError {
  const message = `The content could not be read: ${reason}. Try again.`;
  return new DomainError('TooManyRequests', message, { cause, retryAfter });
}

const data = workerData as Partial<ThreadData> | null | undefined;
// The module imports this one, so this one does not wait for it.
if (!isMainThread && data?.readerModule !== undefined) void answerWith(data.readerModule);

async function answerWith(module: string): Promise<void> {
  const { default: read } = (await import(module)) as { default: ReadBytes<object> };
  parentPort!.on('message', (question: Question) => {
    const answer = answerTo(read, question);
    parentPort!.postMessage(answer, 'text' in answer ? [answer.text.buffer] : []);
  });
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- this is no window
  parentPort!.postMessage(ready);
}

function answerTo(read: ReadBytes<object>, { bytes, options }: Question): Answer {
  try {
    const text = read(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), options);
    return { text: new TextEncoder().encode(text) };
  } catch (error) {
    const { message } = error as Error;
    return { message, name: error instanceof DomainError ? error.name : undefined };
  }
}

async function linesOf(text: Buffer): Promise<string[]> {
  const lines: string[] = [];
  for (let start = 0; start < text.length;) {
    const newline = start + step < text.length ? text.indexOf('\n', start + step) : -1;
    const end = newline === -1 ? text.length : newline;
    for (const line of text.toString('utf8', start, end).split('\n')) lines.push(line);
    start = end + 1;
    await pause();
  }
  return lines;
}
