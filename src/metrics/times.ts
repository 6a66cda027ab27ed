/** Counts durations by size, as a histogram of Prometheus does. Cheap enough for every statement of the database. */
export class Times {
  /** The upper bounds of the buckets, in seconds and ascending. The last bucket has no bound. */
  readonly bounds: readonly number[];
  /** How many durations fell into each bucket; one number more than there are bounds. */
  readonly counts: number[];
  /** Sum of all durations, in seconds. */
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  observe(seconds: number): void {
    let bucket = 0;
    while (bucket < this.bounds.length && seconds > this.bounds[bucket]!) bucket += 1;
    this.counts[bucket]! += 1;
    this.sum += seconds;
  }

  /** Counts the time since `startedAt`, by `performance.now()`. */
  since(startedAt: number): void {
    this.observe((performance.now() - startedAt) / 1000);
  }
}
