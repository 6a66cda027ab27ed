import { AsyncLocalStorage } from 'node:async_hooks';
import { DomainError } from './errors.ts';

/** Who causes a change: the bearer of a token, a person in the console, or a rule that gave a token for an identity token. */
export interface Actor {
  kind: 'token' | 'person' | 'rule' | 'anonymous' | 'system';
  /** Of a token or a rule its ID, never the value of a token; of a person a digest of issuer and subject. */
  id: string | null;
  /** Of a token, a person or a rule its name; of the system the job, or `command`. */
  name: string | null;
}

/** Where a change comes from. */
export interface Origin {
  actor: Actor;
  /** The client's address; null if no client caused the change. */
  address: string | null;
  requestId: string | null;
}

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
  /** Notes the counter to which the bytes of the answer are added, because they come from stored content of an upstream. */
  readsFrom?(counter: { sent: number }): void;
  /** The caller that started this work. */
  readonly startedBy?: Caller | undefined;
  /** Where changes by this work come from; undefined if the caller that started it has the answer. */
  readonly origin?: Origin | undefined;
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

/** Runs `work`, and everything that it starts, for a job or a command of this name, or for all readers of a shared value. */
export function runForSystem<T>(name: string | null, work: () => T): T {
  return runFor({ account: undefined, gone: false, whenGone: () => () => undefined, origin: systemOrigin(name) }, work);
}

/** Where changes by the running code come from. */
export function currentOrigin(): Origin {
  for (let caller = current.getStore(); caller; caller = caller.startedBy) if (caller.origin) return caller.origin;
  return systemOrigin(null);
}

/** The origin of changes that no client causes. */
export function systemOrigin(name: string | null): Origin {
  return { actor: { kind: 'system', id: null, name }, address: null, requestId: null };
}

/** For `Semaphore.take`: a wait ends with `Aborted` when `caller` leaves. */
export function endingWait(caller: Pick<Caller, 'whenGone'>): (leave: (error: Error) => void) => () => void {
  return (leave) => caller.whenGone(() => leave(callerLeft()));
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
