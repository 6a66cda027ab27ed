import { LRUCache } from 'lru-cache';
import { inTime } from './in-time.ts';
import { BackgroundTask } from './background-task.ts';
import { runForSystem } from './caller.ts';

interface CollectedParts<Key extends string | number, Value extends object> {
  collect: (key: Key) => Promise<Value>;
  /** How large a value is; 1 by default. */
  sizeOf?: (value: Value) => number;
  /** The size of all values that stay in memory. */
  maxSize: number;
  /** How long a value is used at least; milliseconds. */
  freshFor: number;
}

/** Collecting takes at most this share of the time. */
const share = 1 / 20;
/** How long a reader waits for a new value when there is an old one; milliseconds. */
const patience = 100;

/**
 * What is collected from many rows for a key, such as an account, and then used for a while: for longer, if it takes long. It is collected
 * again when somebody asks for it. It does not count as a use of what it reads. It goes on when the reader who began it leaves.
 */
export class Collected<Key extends string | number, Value extends object> {
  readonly #values: LRUCache<Key, Value>;

  constructor({ collect, sizeOf = () => 1, maxSize, freshFor }: CollectedParts<Key, Value>) {
    this.#values = new LRUCache({
      maxSize,
      sizeCalculation: sizeOf,
      ttl: freshFor,
      noDeleteOnFetchRejection: true,
      fetchMethod: async (key, _known, { signal, options }) => {
        const began = performance.now();
        const value = await runForSystem(null, () => new BackgroundTask(signal).run(() => collect(key)));
        options.ttl = Math.max(freshFor, (performance.now() - began) / share);
        return value;
      },
    });
  }

  /** The value of a key. If it takes long to collect it again, the one that was collected before. */
  async of(key: Key): Promise<Value> {
    const known = this.#values.peek(key, { allowStale: true });
    const collected = () => this.#values.fetch(key, { allowStaleOnFetchRejection: known !== undefined });
    return (await (known ? inTime(collected, patience, { late: () => known, ref: false }) : collected()))!;
  }

  /** The value that was collected last, of any age; undefined without one. */
  last(key: Key): Value | undefined {
    return this.#values.peek(key, { allowStale: true });
  }

  /** As `of`; undefined if it is not collected within `milliseconds`. */
  within(milliseconds: number, key: Key): Promise<Value | undefined> {
    return inTime(() => this.of(key), milliseconds, { late: () => undefined, ref: false });
  }
}
