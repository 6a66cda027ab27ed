import { DomainError } from '../runtime/errors.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { EntryKey, EntryMetadata } from '../mirror/store/entries.ts';
import { Declined, Gate, type GateOptions } from './gate.ts';
import { Queue } from './queue.ts';
import { PrefetchReport, type Thing } from './report.ts';
import type { ItemLocation } from './item.ts';

/** Attempts for one thing that may reach the upstream and fail. */
const attempts = 4;
/** Attempts that may be refused here because the thing or its upstream is paused. Requests of clients can cause pauses too. */
const refusals = 20;

export interface RunOptions extends GateOptions {
  /** Most things that are fetched at the same time. */
  concurrency: number;
  /** Fetch only manifests and version lists, which show what would be fetched. */
  dryRun: boolean;
  /** Collect the entries that clients need. */
  collect: boolean;
}

/** For content that the mirror has only passed on, because it could not store it. */
export function notStored(): DomainError {
  return new DomainError('StorageFull', 'It was not stored: the disk of the server is full, or cannot be written.');
}

/** A running prefetch. Does each piece of work once, repeats failed work, and collects the results. */
export class PrefetchRun {
  readonly report = new PrefetchReport();
  readonly gate: Gate;
  readonly dryRun: boolean;
  readonly collects: boolean;
  readonly #queue: Queue;
  readonly #signal: AbortSignal;
  readonly #begun = new Set<string>();
  #ended = 0;

  constructor({ concurrency, dryRun, collect, ...gate }: RunOptions) {
    this.gate = new Gate(gate);
    this.dryRun = dryRun;
    this.collects = collect;
    this.#signal = gate.signal;
    this.#queue = new Queue(concurrency);
  }

  /** Number of things that are known so far, and of those that have ended. */
  get progress(): { known: number; ended: number } {
    return { known: this.#begun.size, ended: this.#ended };
  }

  /**
   * Queues `work`, unless work with this key was queued before. If it is declined or finally fails, the report has it as
   * missing, with the name `what`.
   */
  once(key: string, what: string, location: ItemLocation, work: () => Promise<void>): void {
    if (this.#begun.has(key)) return;
    this.#begun.add(key);
    this.#queue.add(() => this.#attempt(what, location, work));
  }

  /** Resolves when all work is done. Rejects with an error that is not a `DomainError` or `Declined`. */
  async done(): Promise<void> {
    await this.#queue.done();
    this.report.interrupted = this.#signal.aborted;
  }

  found(thing: Thing, where: 'fetched' | 'present', bytes: number): void {
    this.report.add(thing, where, bytes);
  }

  /** Clients need this entry. */
  needed(key: EntryKey, metadata: EntryMetadata): void {
    if (this.collects) this.report.need(key, metadata);
  }

  missing(what: string, reason: string, location: ItemLocation): void {
    this.report.missing.push({ what, reason, location });
  }

  async #attempt(
    what: string,
    location: ItemLocation,
    work: () => Promise<void>,
    tried = { failed: 0, refused: 0 },
  ): Promise<void> {
    if (this.#signal.aborted) return this.#end();
    try {
      await work();
      this.gate.succeeded();
    } catch (error) {
      if (this.#signal.aborted) return this.#end();
      if (!(error instanceof Declined || error instanceof DomainError)) throw error;
      // An error without a cause is a refusal by the breaker: no request was sent to the upstream.
      tried[error.cause === undefined ? 'refused' : 'failed'] += 1;
      const mayPass = tried.failed < attempts && tried.refused < refusals;
      const pause = mayPass && isUpstreamFailure(error) ? this.gate.pauseAfter(error) : undefined;
      if (pause !== undefined) {
        // Other pieces run meanwhile, so that one failing thing does not block the rest.
        const again = () => this.#attempt(what, location, work, tried);
        return this.#queue.addLater(again, pause, this.#signal);
      }
      this.missing(what, error.message, location);
    }
    return this.#end();
  }

  #end(): void {
    this.#ended += 1;
  }
}
