import { AsyncLocalStorage } from 'node:async_hooks';
import { DomainError } from './errors.ts';

/** For whom the running code works: the client of a request, or a fetch that several clients share. */
export interface Caller {
  /** Whose limits count for the work; undefined for work of the server's own. */
  readonly account: string | undefined;
  /** Whether the result is of no use any more, because the client has left. */
  readonly gone: boolean;
  /** Calls `then` once it is gone; returns how to stop listening. */
  whenGone(then: () => void): () => void;
  /** The caller whose work this one is a part of. */
  readonly startedBy?: Caller | undefined;
}

const current = new AsyncLocalStorage<Caller>();

/** Runs `work`; everything that it starts is for `caller`. */
export function runFor<T>(caller: Caller, work: () => T): T {
  return current.run(caller, work);
}

/** The caller that the running code works for, if there is one. */
export function currentCaller(): Caller | undefined {
  return current.getStore();
}

/** Waits for `work`, but no longer than the current caller does: rejects with `Aborted` when that has gone. */
export function untilCallerLeaves<T>(work: Promise<T>): Promise<T> {
  const caller = current.getStore();
  if (!caller) return work;
  return new Promise<T>((resolve, reject) => {
    const leave = () => reject(callerLeft());
    if (caller.gone) {
      work.catch(() => undefined);
      leave();
      return;
    }
    const stopListening = caller.whenGone(leave);
    work.then(resolve, reject).finally(stopListening);
  });
}

/** `Aborted`, for work whose client has left. */
export function callerLeft(): DomainError {
  return new DomainError('Aborted', 'The client left before the answer was there.');
}
