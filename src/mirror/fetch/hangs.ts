import { Recent } from '../../runtime/recent.ts';

/** Entries and upstreams that are remembered; when the list is full, the oldest is dropped. */
const most = 4096;

/** Entries and upstreams whose last request got no answer in time. */
export class Hangs {
  readonly #now: () => number;
  /** When the last request ended, by entry and by upstream; milliseconds since 1970 UTC. */
  readonly #since = new Recent<string, number>(most);

  constructor(now: () => number) {
    this.#now = now;
  }

  hung(id: string, upstream: string): void {
    this.#since.set(id, this.#now());
    this.#since.set(keyOf(upstream), this.#now());
  }

  answered(id: string, upstream: string): void {
    this.#since.delete(id);
    this.#since.delete(keyOf(upstream));
  }

  /** Whether the entry's request, or the last one to its upstream, hung in the last `period` milliseconds. */
  isRecent(id: string, upstream: string, period: number): boolean {
    const now = this.#now();
    return [id, keyOf(upstream)].some((key) => {
      const since = this.#since.get(key);
      return since !== undefined && now >= since && now < since + period;
    });
  }
}

function keyOf(upstream: string): string {
  return `upstream ${upstream}`;
}
