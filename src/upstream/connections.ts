import { Semaphore } from '../runtime/semaphore.ts';
import { Busy, Closed } from './failures.ts';

/** Requests that may wait for a connection to one host. Further ones fail at once. */
const maxWaiting = 1024;

interface ConnectionsOptions {
  /** Connections in use at the same time, to each host. */
  max: number;
  /** Milliseconds that a request waits for one. */
  waitLimit: number;
}

/**
 * Limits the connections of an upstream; further requests wait in a queue. A group (one package or repository) gets at
 * most a quarter of the connections, so that a group whose answers hang does not take all of them.
 */
export class HostConnections {
  readonly #semaphore: Semaphore;
  readonly #waitLimit: number;
  readonly #closing = new AbortController();

  constructor({ max, waitLimit }: ConnectionsOptions) {
    const share = Math.max(1, Math.floor(max / 4));
    this.#semaphore = new Semaphore({ max, maxOfGroup: () => share, maxWaiting });
    this.#waitLimit = waitLimit;
  }

  /**
   * Resolves when a connection is free, to a function that releases it. Rejects with `Busy` if no connection is free in
   * time, and with the reason of `signal` when that is aborted.
   */
  async take(origin: string, group: string, signal?: AbortSignal): Promise<() => void> {
    const ends = signal ? [signal, this.#closing.signal] : [this.#closing.signal];
    for (const each of ends) each.throwIfAborted();
    const release = await this.#semaphore.take(origin, {
      group,
      patience: this.#waitLimit,
      whenLeft: (leave) => {
        const end = AbortSignal.any(ends);
        const abort = () => leave(end.reason as Error);
        end.addEventListener('abort', abort);
        return () => end.removeEventListener('abort', abort);
      },
    });
    if (!release) throw new Busy();
    return release;
  }

  /** Requests that wait, and later ones, reject with `Closed`. */
  close(): void {
    this.#closing.abort(new Closed());
  }
}
