import { DomainError } from '../errors.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import { Declined, Gate, type GateOptions } from './gate.ts';
import { Queue } from './queue.ts';
import { Report, type Thing } from './report.ts';
import type { Spot } from './requirement.ts';

/** Attempts for one thing that reach the upstream and fail. */
const attempts = 4;
/** Attempts that are refused here, because the thing or its upstream is paused: requests of clients can cause that too. */
const refusals = 20;

export interface RunOptions extends GateOptions {
  /** Things under way at the same time. */
  concurrency: number;
  /** Fetch only what tells what there would be to fetch. */
  dryRun: boolean;
}

/** One prefetch under way: what is done once, at the gate's leave, and how it comes out. */
export class PrefetchRun {
  readonly report = new Report();
  readonly gate: Gate;
  readonly dryRun: boolean;
  readonly #queue: Queue;
  readonly #signal: AbortSignal;
  readonly #begun = new Set<string>();
  #ended = 0;

  constructor({ concurrency, dryRun, ...gate }: RunOptions) {
    this.gate = new Gate(gate);
    this.dryRun = dryRun;
    this.#signal = gate.signal;
    this.#queue = new Queue(concurrency);
  }

  /** Things begun or waiting, and those that have ended. */
  get progress(): { known: number; ended: number } {
    return { known: this.#begun.size, ended: this.#ended };
  }

  /**
   * Does `work` when its turn comes, unless it was given under this key before. What it declines, or fails at for good,
   * is missing under the name `what`.
   */
  once(key: string, what: string, spot: Spot, work: () => Promise<void>): void {
    if (this.#begun.has(key)) return;
    this.#begun.add(key);
    this.#queue.add(() => this.#attempt(what, spot, work));
  }

  /** Resolves when there is nothing more to do. Rejects with what is no fault of an upstream's. */
  async done(): Promise<void> {
    await this.#queue.done();
    this.report.interrupted = this.#signal.aborted;
  }

  found(thing: Thing, where: 'fetched' | 'present', bytes: number): void {
    this.report.add(thing, where, bytes);
  }

  missing(what: string, reason: string, spot: Spot): void {
    this.report.missing.push({ what, reason, spot });
  }

  async #attempt(
    what: string,
    spot: Spot,
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
      // An error without a cause is a refusal by the breaker: the upstream was not asked.
      tried[error.cause === undefined ? 'refused' : 'failed'] += 1;
      const mayPass = tried.failed < attempts && tried.refused < refusals;
      const pause = mayPass && isUpstreamFailure(error) ? this.gate.pauseAfter(error) : undefined;
      if (pause !== undefined) {
        // Other pieces run in the meantime: one thing that fails must not hold up the rest.
        const again = () => this.#attempt(what, spot, work, tried);
        return this.#queue.addLater(again, pause, this.#signal);
      }
      this.missing(what, error.message, spot);
    }
    return this.#end();
  }

  #end(): void {
    this.#ended += 1;
  }
}
