import type { Cache } from '../cache/cache.ts';
import { Recent } from '../runtime/recent.ts';

/** So many units in each minute. They may be used at once, and come back evenly. */
export interface Rate {
  quota: number;
}

/** Milliseconds in which a used quota comes back. No request waits longer than that. */
export const period = 60_000;

/** The answer of a bucket to a request for one unit. Times are in milliseconds. */
export interface Taken {
  /** Until the unit is free; 0 for at once. A wait longer than the patience means that no unit was taken. */
  wait: number;
  /** Until the whole quota is free. */
  reset: number;
}

/** Takes one unit of `rate` under `key`, if it is free within `patience` milliseconds. */
export type TakeUnit = (key: string, rate: Rate, patience: number) => Taken | Promise<Taken>;

/** Gives one unit back that was taken. */
export type ReturnUnit = (key: string, rate: Rate) => void | Promise<void>;

/**
 * Most keys in memory. Above it, the key that was unused for longest is forgotten, and gets a whole quota again.
 */
export const maxKeys = 50_000;

/**
 * Buckets in the memory of this process. Each has the time when its whole quota is free again ("theoretical arrival time"
 * of the generic cell rate algorithm, ITU-T I.371), so it needs no timer. `now` is a clock in milliseconds.
 */
export class MemoryBuckets {
  readonly #freeAt = new Recent<string, number>(maxKeys);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  take(key: string, { quota }: Rate, patience: number): Taken {
    const now = this.#now();
    const known = this.#freeAt.get(key) ?? 0;
    // Further away than any limit allows: the clock was set back.
    const freeAt = known > now + 2 * period ? now : Math.max(now, known);
    const next = freeAt + period / quota;
    const wait = next - now - period;
    if (wait > patience) return { wait, reset: freeAt - now };
    this.#freeAt.set(key, next);
    return { wait: Math.max(0, wait), reset: next - now };
  }

  giveBack(key: string, { quota }: Rate): void {
    const known = this.#freeAt.get(key);
    if (known !== undefined) this.#freeAt.set(key, known - period / quota);
  }

  get size(): number {
    return this.#freeAt.size;
  }
}

/** `MemoryBuckets.take` with the clock of Redis. Numbers are texts, because Redis would cut them to integers. */
const script = `
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local period, step, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local free = tonumber(redis.call('GET', KEYS[1]) or '0')
if free < now or free > now + 2 * period then free = now end
local wait = free + step - now - period
if wait <= patience then
  free = free + step
  redis.call('SET', KEYS[1], string.format('%.6f', free), 'PX', math.ceil(free - now))
end
return { string.format('%.6f', wait), string.format('%.6f', free - now) }`;

/** `MemoryBuckets.giveBack`. Without the rest of a bucket its whole quota is free. */
const returning = `
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local free = tonumber(redis.call('GET', KEYS[1]) or '0') - tonumber(ARGV[1])
if free - now < 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], string.format('%.6f', free), 'PX', math.ceil(free - now))
end
return 1`;

/** Buckets that all instances share in Redis; those of `memory` while Redis does not answer, or is not configured. */
export class SharedBuckets {
  readonly #cache: Cache;
  readonly #memory: MemoryBuckets;

  constructor(cache: Cache, memory: MemoryBuckets) {
    this.#cache = cache;
    this.#memory = memory;
  }

  take(key: string, rate: Rate, patience: number): Taken | Promise<Taken> {
    const values = [period, period / rate.quota, patience].map(String);
    const answer = this.#cache.evaluate(script, `limit:${key}`, values);
    if (!answer) return this.#memory.take(key, rate, patience);
    return answer.then((found) => takenOf(found) ?? this.#memory.take(key, rate, patience));
  }

  giveBack(key: string, rate: Rate): void | Promise<void> {
    const answer = this.#cache.evaluate(returning, `limit:${key}`, [String(period / rate.quota)]);
    if (!answer) return this.#memory.giveBack(key, rate);
    return answer.then((found) => (found === 1 ? undefined : this.#memory.giveBack(key, rate)));
  }
}

function takenOf(answer: unknown): Taken | undefined {
  if (!Array.isArray(answer)) return undefined;
  const [wait, reset] = answer.map(Number);
  return Number.isFinite(wait) && Number.isFinite(reset) ? { wait: Math.max(0, wait!), reset: reset! } : undefined;
}
