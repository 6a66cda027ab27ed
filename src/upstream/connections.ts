import { Busy, Closed } from './failures.ts';

/** Requests that may wait for a connection to one host. Further ones fail at once. */
const maxQueue = 1024;

interface Waiting {
  group: string;
  /** Ends the wait: with a connection, or with the error that explains why there is none. */
  end: (failure?: Error) => void;
}

interface Host {
  used: number;
  byGroup: Map<string, number>;
  /** In the order of arrival. */
  queue: Set<Waiting>;
}

export interface ConnectionsOptions {
  /** Connections in use at the same time, to each host. */
  max: number;
  /** Milliseconds that a request waits for one. */
  waitLimit: number;
}

/**
 * Limits the connections of an upstream; further requests wait in a queue. A group (one package or repository) gets at
 * most a quarter of the connections, so that a group whose answers hang does not take all of them.
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #share: number;
  readonly #hosts = new Map<string, Host>();
  #closed = false;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#share = Math.max(1, Math.floor(options.max / 4));
  }

  /**
   * Resolves when a connection is free, to a function that releases it (call it once). Rejects with `Busy` if no
   * connection is free in time, and with the reason of `signal` when that is aborted.
   */
  async take(origin: string, group: string, signal?: AbortSignal): Promise<() => void> {
    signal?.throwIfAborted();
    if (this.#closed) throw new Closed();
    const host = this.#hosts.get(origin) ?? { used: 0, byGroup: new Map<string, number>(), queue: new Set<Waiting>() };
    this.#hosts.set(origin, host);
    if (this.#hasRoom(host, group)) this.#use(host, group);
    else await this.#wait(host, group, signal);
    return () => this.#release(origin, host, group);
  }

  /** Requests that wait, and later ones, reject with `Closed`. */
  close(): void {
    this.#closed = true;
    for (const { queue } of this.#hosts.values()) for (const { end } of queue) end(new Closed());
  }

  #wait(host: Host, group: string, signal: AbortSignal | undefined): Promise<void> {
    if (host.queue.size >= maxQueue) return Promise.reject(new Busy());
    return new Promise((resolve, reject) => {
      const end: Waiting['end'] = (failure) => {
        host.queue.delete(waiting);
        clearTimeout(timer);
        signal?.removeEventListener('abort', leave);
        if (failure) reject(failure);
        else resolve();
      };
      const waiting: Waiting = { group, end };
      const leave = () => end(signal!.reason as Error);
      const timer = setTimeout(() => end(new Busy()), this.#options.waitLimit);
      signal?.addEventListener('abort', leave);
      host.queue.add(waiting);
    });
  }

  #hasRoom({ used, byGroup }: Host, group: string): boolean {
    return used < this.#options.max && (byGroup.get(group) ?? 0) < this.#share;
  }

  #use(host: Host, group: string): void {
    host.used += 1;
    host.byGroup.set(group, (host.byGroup.get(group) ?? 0) + 1);
  }

  #release(origin: string, host: Host, group: string): void {
    host.used -= 1;
    const left = host.byGroup.get(group)! - 1;
    if (left > 0) host.byGroup.set(group, left);
    else host.byGroup.delete(group);
    for (const waiting of host.queue) {
      if (host.used >= this.#options.max) break;
      if (!this.#hasRoom(host, waiting.group)) continue;
      this.#use(host, waiting.group);
      waiting.end();
    }
    if (host.used === 0 && host.queue.size === 0 && this.#hosts.get(origin) === host) this.#hosts.delete(origin);
  }
}
