import { callerLeft, type Caller } from '../runtime/caller.ts';

/** The caller that a limit holds back, for its time and its departure. */
export type Waiter = Pick<Caller, 'gone' | 'whenGone'>;

/** Resolves after `milliseconds`; rejects with `Aborted` as soon as `waiter` leaves. */
export function waitFor(milliseconds: number, waiter: Waiter): Promise<void> {
  return new Promise((resolve, reject) => {
    if (waiter.gone) {
      reject(callerLeft());
      return;
    }
    const stopListening = waiter.whenGone(() => {
      clearTimeout(timer);
      reject(callerLeft());
    });
    const timer = setTimeout(() => {
      stopListening();
      resolve();
    }, milliseconds);
  });
}
