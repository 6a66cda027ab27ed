import { runFor, type Actor, type Origin } from '../../src/runtime/caller.ts';

/** Does `work` for a caller who stays; `more` is what an event says of the request. */
export function asActor<T>(actor: Actor, work: () => T, more: Partial<Origin> = {}): T {
  const origin = { actor, address: null, requestId: null, ...more };
  return runFor({ account: undefined, gone: false, whenGone: () => () => undefined, origin }, work);
}
