interface Group {
  running: number;
  /** In the order of arrival. */
  waiting: Set<Waiting>;
}

interface Pool {
  running: number;
  groups: Map<string, Group>;
}

interface Waiting {
  arrival: number;
  start: () => void;
}

interface SemaphoreOptions {
  /** Work that may run at the same time under one key. */
  max: number;
  /** Work of one group that may run while `running` pieces run under its key in all; default: as many as there are. */
  maxOfGroup?: (running: number) => number;
  /** Work that may wait under one key; default: any number. */
  maxWaiting?: number;
}

interface Wait {
  /** The group of the work under its key. */
  group?: string;
  /** Milliseconds after which the wait ends; default: never. */
  patience?: number;
  /** Given a function that ends the wait with an error; returns one that is called when the wait is over. */
  whenLeft?: (leave: (error: Error) => void) => () => void;
}

/** Limits the work that runs at the same time under each key. Further work waits in the order of its arrival. */
export class Semaphore {
  readonly #max: number;
  readonly #maxOfGroup: (running: number) => number;
  readonly #maxWaiting: number;
  readonly #pools = new Map<string, Pool>();
  #arrivals = 0;

  constructor({ max, maxOfGroup = () => max, maxWaiting = Infinity }: SemaphoreOptions) {
    this.#max = max;
    this.#maxOfGroup = maxOfGroup;
    this.#maxWaiting = maxWaiting;
  }

  /**
   * Takes a place; the result releases it. It is a promise if the work has to wait. Undefined if too much work waits, or
   * after `patience`. Rejects with the error of `whenLeft`.
   */
  take(
    key: string,
    { group: name = '', patience, whenLeft }: Wait = {},
  ): (() => void) | undefined | Promise<(() => void) | undefined> {
    const pool = this.#pools.get(key) ?? { running: 0, groups: new Map<string, Group>() };
    const group = pool.groups.get(name) ?? { running: 0, waiting: new Set<Waiting>() };
    const fits = this.#fits(pool, group);
    if (!fits && waitingIn(pool) >= this.#maxWaiting) return undefined;
    pool.groups.set(name, group);
    this.#pools.set(key, pool);

    const start = (): (() => void) => {
      pool.running += 1;
      group.running += 1;
      let held = true;
      return () => {
        if (!held) return;
        held = false;
        pool.running -= 1;
        group.running -= 1;
        this.#startWaiting(pool);
        this.#forgetUnused(key, pool, name, group);
      };
    };
    if (fits) return start();
    return new Promise((resolve, reject) => {
      const end = () => {
        group.waiting.delete(waiting);
        clearTimeout(timer);
        stopListening?.();
      };
      const giveUp = (settle: () => void) => {
        end();
        this.#forgetUnused(key, pool, name, group);
        settle();
      };
      const timer = patience === undefined ? undefined : setTimeout(() => giveUp(() => resolve(undefined)), patience);
      const stopListening = whenLeft?.((error) => giveUp(() => reject(error)));
      const waiting: Waiting = {
        arrival: (this.#arrivals += 1),
        start: () => {
          end();
          resolve(start());
        },
      };
      group.waiting.add(waiting);
    });
  }

  /** Runs `work` when a place under `key` is free. */
  async run<T>(work: () => Promise<T>, key = ''): Promise<T> {
    const release = await this.take(key);
    try {
      return await work();
    } finally {
      release?.();
    }
  }

  /** How much work of a group waits, under all keys. */
  waiting(group: string): number {
    let sum = 0;
    for (const { groups } of this.#pools.values()) sum += groups.get(group)?.waiting.size ?? 0;
    return sum;
  }

  #fits({ running }: Pool, group: Group): boolean {
    return running < this.#max && group.running < this.#maxOfGroup(running);
  }

  /** Free places go to the work that has waited longest and whose group may run more. */
  #startWaiting(pool: Pool): void {
    for (;;) {
      let next: Waiting | undefined;
      for (const group of pool.groups.values()) {
        const [first] = group.waiting;
        if (first && this.#fits(pool, group) && (!next || first.arrival < next.arrival)) next = first;
      }
      if (!next) return;
      next.start();
    }
  }

  #forgetUnused(key: string, pool: Pool, name: string, { running, waiting }: Group): void {
    if (running === 0 && waiting.size === 0) pool.groups.delete(name);
    if (pool.groups.size === 0) this.#pools.delete(key);
  }
}

function waitingIn({ groups }: Pool): number {
  let sum = 0;
  for (const { waiting } of groups.values()) sum += waiting.size;
  return sum;
}
