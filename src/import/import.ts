import { setTimeout as sleep } from 'node:timers/promises';
import { BackgroundTask } from '../runtime/background-task.ts';
import { isDomainError } from '../runtime/errors.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import { AccessRefused } from '../upstream/failures.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import { sourceId, type ImportGroup, type ImportItem } from './item.ts';
import { ImportReport, type ImportLine } from './report.ts';

/** Attempts for one item, and the longest wait between two of them in milliseconds. */
const attempts = 4;
const longestWait = 30_000;
/** After so many failures of the source in a row, nothing more is tried. */
const maxFailuresInRow = 20;

interface ImportRunOptions {
  /** Items that are brought in at the same time. */
  concurrency: number;
  /** Bytes per second from the source; undefined for no limit. */
  rate?: number | undefined;
  signal: AbortSignal;
  /** What messages call the other server: the source by default. */
  other?: string | undefined;
  /** Called several times per second. */
  watch?: ((progress: ImportProgress) => void) | undefined;
  /** Called with each result, as soon as it is known. */
  onLine?: ((line: ImportLine) => void) | undefined;
}

interface ImportProgress {
  /** Items that are known so far, and those that have ended. */
  known: number;
  ended: number;
  /** Bytes from the source. */
  received: number;
}

/**
 * Brings in all items of all phases. What is here already is skipped, so that an import that was stopped or killed continues where
 * it was. `begin` gets the signal that ends the work and where to report about the whole source. Rejects only with programming
 * errors; what an item fails with is in the report.
 */
export async function runImport(
  begin: (signal: AbortSignal, warn: (text: string) => void) => readonly AsyncIterable<ImportGroup>[],
  options: ImportRunOptions,
): Promise<ImportReport> {
  const run = new ImportRun(options);
  return run.all(begin);
}

class ImportRun {
  readonly #report = new ImportReport();
  readonly #options: ImportRunOptions;
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  readonly #places: Semaphore;
  #known = 0;
  #failuresInRow = 0;

  constructor(options: ImportRunOptions) {
    this.#options = options;
    this.#signal = AbortSignal.any([options.signal, this.#stop.signal]);
    this.#places = new Semaphore({ max: options.concurrency });
  }

  async all(begin: Parameters<typeof runImport>[0]): Promise<ImportReport> {
    const { rate, watch, concurrency } = this.#options;
    const task = new BackgroundTask(this.#signal, rate);
    const show = () => watch?.({ known: this.#known, ended: this.#report.ended, received: task.received });
    const timer = watch && setInterval(show, 200);
    try {
      await task.run(async () => {
        const warn = (text: string) => void this.#report.warnings.push(text);
        for (const phase of begin(this.#signal, warn))
          await inParallel(phase, namesAtOnce(concurrency), (group) => this.#group(group), this.#signal).catch(
            (error: unknown) => this.#ended('the list of names', '', error),
          );
      });
    } finally {
      clearInterval(timer);
      show();
    }
    if (this.#options.signal.aborted) this.#report.stopped ??= 'it was stopped';
    return this.#report;
  }

  async #group({ name, items }: ImportGroup): Promise<void> {
    const running = new Set<Promise<void>>();
    try {
      for await (const item of items()) {
        if (this.#signal.aborted) break;
        this.#known += 1;
        const release = await this.#places.take('');
        const work = this.#item(item).finally(() => {
          release!();
          running.delete(work);
        });
        running.add(work);
      }
    } catch (error) {
      this.#ended(name, '', error);
    }
    await Promise.all(running);
  }

  async #item({ name, reference, run }: ImportItem): Promise<void> {
    if (this.#signal.aborted) return;
    try {
      const result = await retrying(run, this.#signal);
      this.#failuresInRow = 0;
      this.#add({ name, reference, ...result });
    } catch (error) {
      this.#ended(name, reference, error);
    }
  }

  /** Reports a failure, and ends the import if it would be that of everything that follows. */
  #ended(name: string, reference: string, error: unknown): void {
    if (this.#signal.aborted) return;
    const note = sourceReason(error, this.#options.other);
    this.#add({ name, reference, outcome: 'failed', bytes: 0, note });
    if (!(error instanceof UpstreamError)) this.#failuresInRow = 0;
    else if (!error.denied) this.#failuresInRow += 1;
    const isFinal =
      finalErrors.some((each) => isDomainError(error, each)) ||
      (error as Error).cause instanceof AccessRefused ||
      this.#failuresInRow >= maxFailuresInRow;
    if (!isFinal) return;
    this.#report.stopped ??= note;
    this.#stop.abort();
  }

  #add(line: ImportLine): void {
    this.#report.add(line);
    this.#options.onLine?.(line);
  }
}

/** Lists of names are read ahead of their content, so that they are there when a version has its turn; one by one if that is wanted. */
function namesAtOnce(concurrency: number): number {
  return concurrency === 1 ? 1 : Math.max(concurrency, Math.min(2 * concurrency, 16));
}

/** Everything that follows would fail with these, too. */
const finalErrors = ['QuotaExceeded', 'StorageFull', 'StorageUnavailable', 'DatabaseUnavailable'] as const;

/** Does `work`, and again after failures of a server or of the connection to it, when the server may be asked again; `most` times. */
export async function retrying<T>(work: () => Promise<T>, signal: AbortSignal, most = attempts): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      const isBroken = error instanceof UpstreamError && !error.denied && !error.offline;
      const mayPass = (isBroken && !(error.cause instanceof AccessRefused)) || isDomainError(error, 'Aborted');
      if (!mayPass || attempt === most || signal.aborted) throw error;
      const wait = Math.min((error as UpstreamError).retryAfter ?? attempt, longestWait / 1000) * 1000;
      await sleep(wait, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) throw error;
    }
  }
}

/** Runs `work` for each of `items`, up to `width` at the same time. Rejects if the items or a work do. */
async function inParallel<T>(
  items: AsyncIterable<T>,
  width: number,
  work: (item: T) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const iterator = items[Symbol.asyncIterator]();
  const next = async (): Promise<void> => {
    for (;;) {
      if (signal.aborted) return;
      const { done, value } = await iterator.next();
      if (done) return;
      await work(value);
    }
  };
  const results = await Promise.allSettled(Array.from({ length: width }, next));
  for (const each of results) if (each.status === 'rejected') throw each.reason;
}

/** One line. A source is reached as an upstream is, so an error calls it that. */
export function sourceReason(error: unknown, other = 'source'): string {
  const message = (error as Error).message.split('\n', 1)[0]!;
  if (!(error instanceof UpstreamError) || error.id !== sourceId)
    return message.replace(/^The source\b/, `The ${other}`);
  return message.replace(/^The upstream/, `The ${other}`).replace(/; set allowPrivateNetwork .*$/, '');
}
