import { once } from 'node:events';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { DomainError } from '../runtime/errors.ts';
import { programFile } from '../runtime/program-file.ts';
import { threadEnvironment } from '../runtime/thread-environment.ts';
import { prefetchItemsIn } from './folders.ts';
import { Inputs, type ProtocolInputs } from './inputs.ts';
import type { Input, PrefetchItem } from './item.ts';

// Files from users are parsed in a thread of their own: a hostile one may take the parser any time and memory.

/** The most that a thread may use: milliseconds for files and for a path, and MiB of heap. */
const max = 15_000;
const maxPathTime = 600_000;
const heap = 512;
/** Most packages and images that files may list together. */
export const maxItems = 50_000;
/** The same for the files of a path. */
const maxPathItems = 500_000;
/** Items in one message, so that their receiver can do other work in between. */
const piece = 2000;

type Sent = readonly (Pick<Input, 'file' | 'text'> & { kind?: string | undefined })[];

interface ReaderData {
  isInputReader: true;
  /** URLs of the modules whose default exports are the inputs of the protocols. */
  modules: readonly string[];
  /** Files, or a path as for `prefetchItemsIn`. */
  source: Sent | string;
}

type Outcome = { items: PrefetchItem[] } | { refusal: string };
/** The thread waits for a message after each piece but the last. */
type ReaderAnswer = { items: PrefetchItem[]; isLast: boolean } | { refusal: string };

/** The items in files. Throws `Invalid` with file, line and reason; also if reading takes too long. */
export function readInThread(modules: readonly string[], inputs: Sent, limit = max): Promise<PrefetchItem[]> {
  return runThread(limit, { isInputReader: true, modules, source: inputs });
}

/**
 * The same as `prefetchItemsIn` with a path and no values. Throws `Invalid` also if reading takes too long; when `signal` is
 * aborted, ends at once and throws its reason.
 */
export async function readPathInThread(
  modules: readonly string[],
  path: string,
  signal: AbortSignal,
): Promise<PrefetchItem[]> {
  signal.throwIfAborted();
  return runThread(maxPathTime, { isInputReader: true, modules, source: path }, signal);
}

async function runThread(limit: number, data: ReaderData, signal?: AbortSignal): Promise<PrefetchItem[]> {
  const items: PrefetchItem[] = [];
  let abort: (() => void) | undefined;
  const thread = new Worker(programFile('prefetch/reader-thread.ts'), {
    workerData: data,
    resourceLimits: { maxOldGenerationSizeMb: heap },
    env: threadEnvironment(),
    stdin: false,
  });
  return new Promise<PrefetchItem[]>((resolve, reject) => {
    abort = () => reject(signal!.reason as Error);
    signal?.addEventListener('abort', abort);
    const refuse = (reason: string) => reject(new DomainError('Invalid', reason));
    const timer = setTimeout(() => refuse(`The files cannot be read within ${limit / 1000} seconds.`), limit);
    thread.on('message', (answer: ReaderAnswer) => {
      if ('refusal' in answer) {
        refuse(answer.refusal);
        return;
      }
      for (const each of answer.items) items.push(each);
      if (answer.isLast) resolve(items);
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- this is no window
      else thread.postMessage('next');
    });
    thread.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') refuse(`The files cannot be read within ${heap} MiB of memory.`);
      else reject(error);
    });
    thread.on('exit', () => {
      clearTimeout(timer);
      reject(new Error('the thread that reads files ended without a result'));
    });
  }).finally(() => {
    if (abort) signal?.removeEventListener('abort', abort);
    return thread.terminate();
  });
}

async function readAll({ modules, source }: ReaderData): Promise<Outcome> {
  const protocols: ProtocolInputs[] = [];
  for (const each of modules) protocols.push(((await import(each)) as { default: ProtocolInputs }).default);
  const inputs = new Inputs(protocols);
  return typeof source === 'string' ? readPath(inputs, source) : readSent(inputs, source);
}

async function readPath(inputs: Inputs, path: string): Promise<Outcome> {
  try {
    const items = await prefetchItemsIn(path, { inputs, values: new Map() });
    if (items.length <= maxPathItems) return { items };
    return {
      refusal: `${path}: lists more than ${maxPathItems} packages and images; name folders below it, or files`,
    };
  } catch (error) {
    return refusalOf(path, error);
  }
}

/** A parser may fail in any way for a hostile file, for example with a full stack. */
function refusalOf(file: string, error: unknown): { refusal: string } {
  if (error instanceof DomainError) return { refusal: error.message };
  return { refusal: `${file}: cannot be read: ${(error as Error).message.slice(0, 200)}` };
}

function readSent(inputs: Inputs, files: Sent): Outcome {
  const items: PrefetchItem[] = [];
  for (const { file, text, kind } of files) {
    const input = { file, text, values: new Map<string, string>() };
    try {
      const found = kind ?? inputs.kindOf(input);
      if (found === undefined) {
        const reason = inputs.solutionOf(file)
          ? 'a solution lists no packages; send the lock files or projects that it names'
          : `the kind of this file is unknown; known are ${inputs.contentNames}; choose its kind`;
        return { refusal: `${file}: ${reason}.` };
      }
      for (const each of inputs.read(input, found)) items.push(each);
    } catch (error) {
      return refusalOf(file, error);
    }
    if (items.length > maxItems) {
      return { refusal: `The files list more than ${maxItems} packages and images. Send fewer at a time.` };
    }
  }
  return { items };
}

function send(answer: ReaderAnswer): void {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- this is no window
  parentPort!.postMessage(answer);
}

async function answer(outcome: Outcome): Promise<void> {
  if ('refusal' in outcome) {
    send(outcome);
    return;
  }
  const { items } = outcome;
  let from = 0;
  for (; from + piece < items.length; from += piece) {
    send({ items: items.slice(from, from + piece), isLast: false });
    await once(parentPort!, 'message');
  }
  send({ items: items.slice(from), isLast: true });
}

const data = workerData as ReaderData | null | undefined;
if (!isMainThread && data?.isInputReader) {
  void readAll(data).then(answer);
}
