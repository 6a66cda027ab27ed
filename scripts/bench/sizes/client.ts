import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
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
  /** The length of the body, if it is known. */
  size?: number;
}

/** A client of many developers, which discards bodies. */
export class Client {
  readonly kinds = new Map<string, Kind>();
  readonly #agent = new Agent({ keepAlive: true });
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  /** Reads `path`; a failure is only counted. */
  async read(kind: string, path: string, { size, due = performance.now(), ...more }: Asked): Promise<void> {
    await this.measure(kind, due, async () => {
      const { status, bytes } = await this.#send(path, more);
      if (status !== 200) throw new Error(String(status));
      if (size !== undefined && bytes !== size) throw new Error('another length');
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

  #send(path: string, { method = 'GET', headers = {} }: Asked): Promise<{ status: number; bytes: number }> {
    return new Promise((resolve, reject) => {
      const asked = request(this.#url + path, { agent: this.#agent, method, headers, timeout: 60_000 }, (response) => {
        let bytes = 0;
        response.on('data', (piece: Buffer) => (bytes += piece.length));
        response.once('end', () => resolve({ status: response.statusCode!, bytes }));
        response.once('error', reject);
      });
      asked.once('timeout', () => asked.destroy(new Error('no answer in 60 s')));
      asked.once('error', reject);
      asked.end();
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** One kind of work, begun so many times an hour. */
export interface Work {
  perHour: number;
  /** `due` is when it should begin. */
  begin: (due: number) => Promise<void>;
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
      const one = begin(due).finally(() => running.delete(one));
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
