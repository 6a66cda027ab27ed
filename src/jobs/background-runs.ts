import type { Logger } from 'pino';
import { runForSystem } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { inBackground } from '../database/time-limits.ts';
import type { RunRows } from './run-rows.ts';

/** Milliseconds between two writes of the progress. */
const beatEvery = 1000;

/** What ends the work of a run. */
export interface RunSignals {
  /** Ends it after what it is doing. */
  stop: AbortSignal;
  /** Ends it at once. */
  closing: AbortSignal;
  any: AbortSignal;
}

interface Work<State extends string> {
  /** Rejects with why it failed. */
  run: (signals: RunSignals) => Promise<State>;
  /** Called before each write of the progress. */
  beat?: () => Promise<void>;
  /** An error as its readers know the things in it. */
  explain?: (error: unknown) => unknown;
  /** What the log says of its end, beside the state. */
  facts?: Readonly<Record<string, unknown>>;
  /** Called before and after the end is recorded. Both should not reject. */
  ending?: (state: State | EndState) => Promise<void>;
  ended?: () => Promise<void>;
}

type EndState = 'failed' | 'interrupted' | 'cancelled';

/** Runs that users start by `/v1`. Each runs in the process that got it, and ends with it. */
export class BackgroundRuns {
  readonly #name: string;
  readonly #rows: RunRows;
  readonly #log: Logger;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<void>>();

  /** `name` is the origin of changes that the runs make. */
  constructor(name: string, rows: RunRows, log: Logger) {
    this.#name = name;
    this.#rows = rows;
    this.#log = log;
  }

  /** How many run in this process. */
  get count(): number {
    return this.#running.size;
  }

  /** Starts the work of a run that has a row. `progress` is written while it runs, with the reason of a failure at its end. */
  start<State extends string>(id: string, progress: { error?: string | undefined }, work: Work<State>): void {
    const run = runForSystem(this.#name, () => this.#perform(id, progress, work));
    const tracked = run.finally(() => this.#running.delete(tracked));
    this.#running.add(tracked);
  }

  /** Ends the runs. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#running);
  }

  /** Never rejects. */
  async #perform<State extends string>(
    id: string,
    progress: { error?: string | undefined },
    { run, beat, explain = (error) => error, facts, ending, ended }: Work<State>,
  ): Promise<void> {
    const [rows, log, name] = [this.#rows, this.#log, this.#name];
    const stop = new AbortController();
    const closing = this.#closing.signal;
    const write = async () => {
      await beat?.();
      // While the database cannot be written the run goes on.
      if (!(await rows.beat(id, progress).catch(() => true))) stop.abort();
    };
    let writing: Promise<void> | undefined;
    // Outside of `inBackground`, and one at a time: else beats would hold all connections of a database that does not answer.
    const timer = setInterval(() => {
      writing ??= write()
        .catch(() => undefined)
        .finally(() => (writing = undefined));
    }, beatEvery);
    let state: State | EndState;
    try {
      const signals = { stop: stop.signal, closing, any: AbortSignal.any([stop.signal, closing]) };
      state = await inBackground(() => run(signals));
    } catch (error) {
      const isStopped = stop.signal.aborted || closing.aborted;
      state = isStopped ? 'interrupted' : 'failed';
      const known = explain(error);
      progress.error = known instanceof DomainError ? known.message : 'The server failed. Its log has the details.';
      if (isStopped) progress.error = undefined;
      else if (!(known instanceof DomainError)) log.error({ [name]: id, err: error }, `a run of ${name} failed`);
    } finally {
      clearInterval(timer);
    }
    // A run can end before it notices that a user has cancelled it.
    if (state === 'interrupted' && (await rows.isCancelled(id).catch(() => false))) state = 'cancelled';
    log.info({ [name]: id, state, error: progress.error, ...facts }, name);
    await ending?.(state);
    await rows
      .end(id, state, progress)
      .catch((err: unknown) => log.warn({ [name]: id, err }, `the end of a run of ${name} was not recorded`));
    await ended?.();
  }
}
