import { AsyncLocalStorage } from 'node:async_hooks';
import { DomainError } from './errors.ts';

/** The caller that the running code works for: the client of a request, or a fetch that several clients share. */
export interface Caller {
  /** The account whose limits count for the work; undefined for work that no client started. */
  readonly account: string | undefined;
  /** Whether the client wants to change something. */
  readonly writes?: boolean;
  /** Whether the client has left, so that the result is not needed any more. */
  readonly gone: boolean;
  /** Calls `then` once when the client has left. Returns a function that cancels this. */
  whenGone(then: () => void): () => void;
  /** The caller that started this work. */
  readonly startedBy?: Caller | undefined;
}

const current = new AsyncLocalStorage<Caller>();

/** Runs `work`, and everything that it starts, for `caller`. */
export function runFor<T>(caller: Caller, work: () => T): T {
  return current.run(caller, work);
}

/** The caller that the running code works for; undefined if there is none. */
export function currentCaller(): Caller | undefined {
  return current.getStore();
}

/** Waits for `work`. Rejects with `Aborted` as soon as the current caller has left. */
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
  return new DomainError('Aborted', 'The client closed the connection before the answer was complete.');
}
