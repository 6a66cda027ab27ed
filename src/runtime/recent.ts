import { LRUCache } from 'lru-cache';

/**
 * At most `max` values, those that were used last. It takes memory for the values that it has; an `LRUCache` with `max` takes it
 * for all of them at its start, which then takes twice as long.
 */
export class Recent<Key extends string | number, Value extends {}> extends LRUCache<Key, Value> {
  constructor(
    max: number,
    options: Pick<LRUCache.Options<Key, Value, unknown>, 'ttl' | 'ttlResolution' | 'perf'> = {},
  ) {
    super({ ...options, maxSize: max, sizeCalculation: () => 1 });
  }
}
