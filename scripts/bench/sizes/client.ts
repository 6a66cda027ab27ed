import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Discarding } from '../bodies.ts';
import { numbers } from '../store/words.ts';

/** The answers to one kind of request. */
export interface Kind {
  /** Milliseconds of each success. */
  times: number[];
  /** How many requests failed, by the status or the error. */
  failures: Map<string, number>;
}

interface Asked {
  method?: string;
  headers?: Record<string, string>;
  /** When the request should begin, by `performance.now()`: its time counts from then. */
  due?: number;
}

/** The server closes connections that are idle for longer than this, in milliseconds, at the earliest. */
const longestIdle = 60_000;
const longestAnswer = 60_000;

/** A client of many developers, which discards bodies. */
export class Client {
  readonly kinds = new Map<string, Kind>();
  readonly #agent = new Agent({ keepAlive: true });
  /** Connections for files, and since when each is idle. */
  #idle: { connection: Discarding; since: number }[] = [];
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  /** Reads `path`; a failure is only counted. */
  async read(kind: string, path: string, { due = performance.now(), ...more }: Asked): Promise<void> {
    await this.measure(kind, due, async () => {
      const status = await this.#send(path, more);
      if (status !== 200) throw new Error(String(status));
    });
  }

  /** Reads a file, of this many bytes if they are known; a failure is only counted. */
  async download(kind: string, path: string, headers: Record<string, string>, bytes?: number): Promise<void> {
    await this.measure(kind, performance.now(), async () => {
      const open = this.#idle.pop();
      const isUsable = open && !open.connection.isClosed && performance.now() - open.since < longestIdle;
      // Those below it are idle for longer.
      if (!isUsable)
        for (const { connection } of [...this.#idle.splice(0), ...(open ? [open] : [])]) connection.close();
      const connection = isUsable ? open.connection : new Discarding(this.#url);
      const timer = setTimeout(() => connection.close(), longestAnswer);
      try {
        const length = await connection.read(path, headers);
        if (bytes !== undefined && length !== bytes) throw new Error('another length');
        this.#idle.push({ connection, since: performance.now() });
      } finally {
        clearTimeout(timer);
      }
    });
  }

  /** Counts what `run` does as one of `kind`, which took the time since `due`. */
  async measure(kind: string, due: number, run: () => Promise<unknown>): Promise<void> {
    const found: Kind = this.kinds.get(kind) ?? { times: [], failures: new Map() };
    this.kinds.set(kind, found);
    try {
      await run();
      found.times.push(performance.now() - due);
    } catch (error) {
      const reason = (error as Error).message;
      found.failures.set(reason, (found.failures.get(reason) ?? 0) + 1);
    }
  }

  #send(path: string, { method = 'GET', headers = {} }: Asked): Promise<number> {
    return new Promise((resolve, reject) => {
      const options = { agent: this.#agent, method, headers, timeout: longestAnswer };
      const asked = request(this.#url + path, options, (response) => {
        response.once('end', () => resolve(response.statusCode!));
        response.once('error', reject).resume();
      });
      asked.once('timeout', () => asked.destroy(new Error('no answer')));
      asked.once('error', reject);
      asked.end();
    });
  }

  close(): void {
    this.#agent.destroy();
    for (const { connection } of this.#idle) connection.close();
  }
}

/** One kind of work, begun so many times an hour. */
export interface Work {
  perHour: number;
  /** `due` is when it should begin. Its choices are from `random`, before it waits for anything, so that they are the same in each run. */
  begin: (due: number, random: () => number) => Promise<void>;
}

/**
 * Begins each work at times that are fixed before, and random (Poisson), whether earlier work has ended or not. Resolves when
 * all that was begun in `seconds` has ended; to how late this process was with each, in milliseconds.
 */
export async function beginAll(all: readonly Work[], seconds: number): Promise<number[]> {
  const start = performance.now();
  const late: number[] = [];
  const beginEach = async ({ perHour, begin }: Work, index: number) => {
    const random = numbers(100 + index);
    const gap = () => (-Math.log(1 - random()) * 3_600_000) / perHour;
    const running = new Set<Promise<void>>();
    for (let due = start + gap(); due < start + seconds * 1000; due += gap()) {
      const wait = due - performance.now();
      if (wait > 0) await sleep(wait);
      late.push(performance.now() - due);
      const one = begin(due, random).finally(() => running.delete(one));
      running.add(one);
    }
    await Promise.all(running);
  };
  await Promise.all(all.map(beginEach));
  return late;
}

/** Runs `run` for each item, `atOnce` at a time. */
export async function eachOf<T>(items: readonly T[], atOnce: number, run: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < items.length) await run(items[next++]!);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
