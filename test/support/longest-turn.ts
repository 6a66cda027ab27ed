import { constants, PerformanceObserver, type PerformanceEntry } from 'node:perf_hooks';
import { collectYoungGarbage } from './garbage.ts';
import { isMeasuring } from './measures.ts';

/** The most milliseconds that one turn of the event loop may take: see SECURITY.md. */
export const longestAllowed = 50;

/**
 * The processor time that the longest turn of this process's event loop took while `work` ran, in milliseconds. That is how long
 * one request holds all others. A busy machine makes each run slower: so `work` runs until a result is allowed, at most thirty
 * times, and the least result counts. A client in the same process counts too, so `work` should send bytes that were made
 * before, by `inParts` if they are many.
 */
export async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let least = Infinity;
  for (let run = 0; run < 30 && least >= longestAllowed; run += 1) least = Math.min(least, await longestTurnOf(work));
  return least;
}

/** `bytes` as a stream. `fetch` would copy them at once. */
export function inParts(bytes: Buffer): ReadableStream<Buffer> {
  const size = 64 * 1024;
  return ReadableStream.from(
    Array.from({ length: Math.ceil(bytes.length / size) }, (_, part) => bytes.subarray(part * size, (part + 1) * size)),
  );
}

interface Turn {
  start: number;
  end: number;
  milliseconds: number;
}

/** As above, but in one run, for work that cannot be repeated. 0 without measures. */
export async function longestTurnOf(work: () => Promise<unknown>): Promise<number> {
  if (!isMeasuring) {
    await work();
    return 0;
  }
  // Else the first collection of the young garbage would copy what the test has made before.
  collectYoungGarbage();
  const long: Turn[] = [];
  let longest = 0;
  let last = threadTime();
  let start = performance.now();
  let running = true;
  const endTurn = () => {
    const [now, end] = [threadTime(), performance.now()];
    const milliseconds = now - last;
    if (milliseconds >= longestAllowed) long.push({ start, end, milliseconds });
    else longest = Math.max(longest, milliseconds);
    [last, start] = [now, end];
    if (running) setImmediate(endTurn);
  };
  const collections = new Collections();
  setImmediate(endTurn);
  try {
    await work();
    // The last turn of `work` has not ended yet, and collections are reported later.
    for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  } finally {
    running = false;
    collections.end();
  }
  return Math.max(longest, ...long.map((turn) => turn.milliseconds - collections.within(turn)));
}

/**
 * The collections of the old garbage. They do not count, because they take as long as the memory of the test is large: it has
 * the server, its clients, its upstreams and all their content.
 */
class Collections {
  readonly #found: { start: number; end: number }[] = [];
  readonly #observer = new PerformanceObserver((list) => this.#add(list.getEntries()));

  constructor() {
    this.#observer.observe({ entryTypes: ['gc'] });
  }

  /** The milliseconds of collections within a turn. */
  within({ start, end }: Turn): number {
    return this.#found.reduce(
      (sum, each) => sum + Math.max(0, Math.min(end, each.end) - Math.max(start, each.start)),
      0,
    );
  }

  end(): void {
    this.#add(this.#observer.takeRecords());
    this.#observer.disconnect();
  }

  #add(entries: readonly PerformanceEntry[]): void {
    for (const each of entries) {
      const { startTime, duration, detail } = each as PerformanceEntry & { detail: unknown };
      const { kind } = detail as { kind: number };
      if (kind !== constants.NODE_PERFORMANCE_GC_MINOR)
        this.#found.push({ start: startTime, end: startTime + duration });
    }
  }
}

function threadTime(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
