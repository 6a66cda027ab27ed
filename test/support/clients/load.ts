import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../until.ts';

/** Clients that run one command after another until they are stopped. */
export class Load {
  /** Commands that have ended, by kind, failed ones included. */
  readonly ended = new Map<string, number>();
  /** The outputs of the commands that failed. */
  readonly failures: string[] = [];
  readonly #loops: Promise<void>[] = [];
  #isStopped = false;
  #defect: unknown;

  /**
   * Repeats `round`, which gets the number of the round, from 0, and `command`, which counts one command of `kind`. A command
   * that fails ends the round, and not the load. A round that fails without a command fails `haveRun` and `stop`.
   */
  repeat(kind: string, round: (index: number, command: Command) => Promise<void>): void {
    this.ended.set(kind, 0);
    const command: Command = async (work) => {
      try {
        return await work();
      } catch (error) {
        this.failures.push(`${kind}: ${String(error)}`);
        throw new CommandFailed();
      } finally {
        this.ended.set(kind, this.ended.get(kind)! + 1);
      }
    };
    const loop = async (): Promise<void> => {
      for (let index = 0; !this.#isStopped; index += 1) {
        await round(index, command).catch((error: unknown) => {
          if (!(error instanceof CommandFailed)) throw error;
        });
        // Quick clients leave processor time to the others.
        await sleep(200);
      }
    };
    const running = loop();
    running.catch((error: unknown) => (this.#defect ??= error));
    this.#loops.push(running);
  }

  /** Resolves when each kind of client has ended this many more commands. */
  async haveRun(more: number, milliseconds: number): Promise<void> {
    const goals = [...this.ended].map(([kind, before]) => [kind, before + more] as const);
    const areReached = (): boolean => {
      if (this.#defect !== undefined) throw this.#defect;
      return goals.every(([kind, goal]) => this.ended.get(kind)! >= goal);
    };
    await until(areReached, milliseconds);
  }

  /** Resolves when the last commands have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.allSettled(this.#loops);
    if (this.#defect !== undefined) throw this.#defect;
  }
}

export type Command = <T>(work: () => Promise<T>) => Promise<T>;

class CommandFailed extends Error {}
