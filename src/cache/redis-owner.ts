import { randomUUID } from 'node:crypto';
import type { Cache } from './cache.ts';

const key = 'installation';
/** Milliseconds after which Redis forgets an installation whose servers have all ended. */
const lifetime = 60_000;
/** Milliseconds between two claims of a running server: three may fail. */
export const claimInterval = 15_000;

// The value is the installation, a space, and the random identity of this Redis.
const claimScript = `
local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then return found end
local value = found or (ARGV[1] .. ' ' .. ARGV[2])
redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
return value`;
const releaseScript = `
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`;

/** What a claim found. `unknown`: Redis did not answer, or its user may not run scripts. */
export type Claim = 'own' | 'other' | 'unknown';

/**
 * The mark of an installation in its Redis. It shows whether another installation uses the same keys, and whether two
 * instances use the same Redis: the mark has a random value, which a replica that becomes the primary has too.
 */
export class RedisOwner {
  readonly #cache: Cache;
  readonly #installation: string;
  #identity = randomUUID() as string;
  #isKnown = false;

  /** `installation` identifies the database. */
  constructor(cache: Cache, installation: string) {
    this.#cache = cache;
    this.#installation = installation;
  }

  /** The random value of this Redis; undefined before a claim has succeeded. */
  get identity(): string | undefined {
    return this.#isKnown ? this.#identity : undefined;
  }

  /** Marks the Redis for `lifetime`, unless another installation has marked it. */
  async claim(): Promise<Claim> {
    const values = [this.#installation, this.#identity, String(lifetime)];
    const found = await this.#cache.evaluate(claimScript, key, values);
    if (typeof found !== 'string') return 'unknown';
    if (!found.startsWith(`${this.#installation} `)) return 'other';
    this.#identity = found.slice(this.#installation.length + 1);
    this.#isKnown = true;
    return 'own';
  }

  /** Removes the mark, so that a restored database can use this Redis at once. Other instances mark it again. */
  async release(): Promise<void> {
    if (!this.#isKnown) return;
    this.#isKnown = false;
    await this.#cache.evaluate(releaseScript, key, [`${this.#installation} ${this.#identity}`]);
  }
}
