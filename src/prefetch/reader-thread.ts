import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { DomainError } from '../errors.ts';
import { Inputs, type ProtocolInputs } from './inputs.ts';
import type { Input, Requirement } from './requirement.ts';

// Files from users are parsed in a thread of their own: a hostile one may take the parser any time and memory.

/** The most that a thread may use: milliseconds, and MiB of heap. */
const longest = 15_000;
const heap = 512;
/** Most packages and images that files may list together. */
export const mostRequirements = 50_000;

interface ReaderData {
  isInputReader: true;
  /** URLs of the modules whose default exports are the inputs of the protocols. */
  modules: readonly string[];
  inputs: readonly (Pick<Input, 'file' | 'text'> & { kind?: string | undefined })[];
}

type ReaderAnswer = { requirements: Requirement[] } | { refusal: string };

/** The requirements in files. Throws `Invalid` with file, line and reason; also if reading takes too long. */
export function readInThread(
  modules: readonly string[],
  inputs: ReaderData['inputs'],
  limit = longest,
): Promise<Requirement[]> {
  const data: ReaderData = { isInputReader: true, modules, inputs };
  const thread = new Worker(import.meta.filename, {
    workerData: data,
    resourceLimits: { maxOldGenerationSizeMb: heap },
    env: {},
    stdin: false,
  });
  return new Promise<Requirement[]>((resolve, reject) => {
    const refuse = (reason: string) => reject(new DomainError('Invalid', reason));
    const timer = setTimeout(() => refuse(`The files cannot be read within ${limit / 1000} seconds.`), limit);
    thread.on('message', (answer: ReaderAnswer) => {
      if ('refusal' in answer) refuse(answer.refusal);
      else resolve(answer.requirements);
    });
    thread.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ERR_WORKER_OUT_OF_MEMORY') refuse(`The files cannot be read within ${heap} MiB of memory.`);
      else reject(error);
    });
    thread.on('exit', () => {
      clearTimeout(timer);
      reject(new Error('the thread that reads files ended without a result'));
    });
  }).finally(() => thread.terminate());
}

async function readAll({ modules, inputs: files }: ReaderData): Promise<ReaderAnswer> {
  const protocols: ProtocolInputs[] = [];
  for (const each of modules) protocols.push(((await import(each)) as { default: ProtocolInputs }).default);
  const inputs = new Inputs(protocols);
  const requirements: Requirement[] = [];
  for (const { file, text, kind } of files) {
    const input = { file, text, values: new Map<string, string>() };
    try {
      const found = kind ?? inputs.kindOf(input);
      if (found === undefined) return { refusal: `${file}: the kind of this file is unknown. Choose its kind.` };
      for (const each of inputs.read(input, found)) requirements.push(each);
    } catch (error) {
      if (error instanceof DomainError) return { refusal: error.message };
      // A parser may fail in any way for a hostile file, for example with a full stack.
      return { refusal: `${file}: cannot be read: ${(error as Error).message.slice(0, 200)}` };
    }
    if (requirements.length > mostRequirements) {
      return { refusal: `The files list more than ${mostRequirements} packages and images. Send fewer at a time.` };
    }
  }
  return { requirements };
}

const data = workerData as ReaderData | null | undefined;
if (!isMainThread && data?.isInputReader) {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- this is no window
  parentPort!.postMessage(await readAll(data));
}
