import { setTimeout as sleep } from 'node:timers/promises';
import { authorization, Pushes } from '../../test/faults/pushes.ts';
import type { Teardown } from '../../test/faults/teardown.ts';
import { startEntrepot, type Entrepot } from '../../test/support/processes/entrepot.ts';

/** Packages, images and readers at the same time. */
const [packageClients, imageClients, readers] = [4, 2, 2];

/** What clients saw; times in milliseconds. */
export interface Figures {
  acknowledged: number;
  lost: number;
  halfVisible: number;
  /** The longest time without an acknowledged push. */
  writeGap: number;
  /** The longest time without a successful read. */
  readGap: number;
  /** Statuses of failed pushes of packages and how often each came; 0 without an answer. */
  failedPushes: string;
  failedReads: string;
  /** Examples of what is lost. */
  defects: string[];
}

/** Starts two servers on one data folder, and clients that use both. */
export async function startTraffic(
  t: Pick<Teardown, 'teardown'>,
  folder: string,
  environment: Record<string, string>,
): Promise<{ servers: Entrepot[]; traffic: Traffic }> {
  const servers: Entrepot[] = [];
  for (let each = 0; each < 2; each += 1) {
    const server = await startEntrepot(folder, environment);
    t.teardown(() => server.stop());
    servers.push(server);
  }
  const traffic = new Traffic(servers.map(({ url }) => url));
  await traffic.start();
  return { servers, traffic };
}

/** Clients that push to and read from several servers until `stop`. */
export class Traffic {
  readonly pushes = new Pushes();
  readonly #urls: readonly string[];
  readonly #controller = new AbortController();
  readonly #running: Promise<unknown>[] = [];
  readonly #writes = new Gap();
  readonly #reads = new Gap();

  constructor(urls: readonly string[]) {
    this.#urls = urls;
  }

  /** Pushes some content first, which the readers read. */
  async start(): Promise<void> {
    await this.pushes.push(this.#urls[0]!, 5);
    const known = this.pushes.addresses();
    const { signal } = this.#controller;
    this.#writes.begin();
    this.#reads.begin();
    for (let client = 0; client < packageClients; client += 1) this.#running.push(this.#push(client));
    for (let client = 0; client < readers; client += 1) this.#running.push(this.#read(client, known));
    this.#running.push(this.pushes.run(this.#urls, imageClients, signal));
  }

  /** Ends the clients, and reads everything that was acknowledged from each server. */
  async stop(): Promise<Figures> {
    this.#controller.abort();
    await Promise.all(this.#running);
    this.#writes.end();
    this.#reads.end();
    let [lost, halfVisible] = [0, 0];
    const defects: string[] = [];
    for (const url of this.#urls) {
      const checked = await this.pushes.check(url);
      lost += checked.lost;
      halfVisible += checked.halfVisible;
      defects.push(...checked.defects);
    }
    return {
      acknowledged: this.pushes.acknowledged,
      lost,
      halfVisible,
      writeGap: this.#writes.longest,
      readGap: this.#reads.longest,
      failedPushes: this.#writes.failures,
      failedReads: this.#reads.failures,
      defects,
    };
  }

  async #push(client: number): Promise<void> {
    for (let turn = client; !this.#controller.signal.aborted; turn += 1) {
      const { status } = await this.pushes.attempt(this.#urls[turn % this.#urls.length]!).catch(() => ({ status: 0 }));
      this.#writes.note(status, 201);
      if (status !== 201) await sleep(100);
    }
  }

  async #read(client: number, known: readonly string[]): Promise<void> {
    for (let turn = client; !this.#controller.signal.aborted; turn += 1) {
      const url = this.#urls[turn % this.#urls.length]! + known[turn % known.length]!;
      const status = await statusOf(url);
      this.#reads.note(status, 200);
      await sleep(20);
    }
  }
}

async function statusOf(url: string): Promise<number> {
  try {
    const response = await fetch(url, { headers: { authorization }, signal: AbortSignal.timeout(60_000) });
    await response.arrayBuffer();
    return response.status;
  } catch {
    return 0;
  }
}

/** The longest time between two successes. */
class Gap {
  longest = 0;
  #last = 0;
  readonly #failed = new Map<number, number>();

  begin(): void {
    this.#last = performance.now();
  }

  note(status: number, success: number): void {
    if (status === success) this.end();
    else this.#failed.set(status, (this.#failed.get(status) ?? 0) + 1);
  }

  end(): void {
    this.longest = Math.max(this.longest, performance.now() - this.#last);
    this.#last = performance.now();
  }

  get failures(): string {
    return [...this.#failed].map(([status, count]) => `${count} × ${status}`).join(', ') || 'none';
  }
}

/** A table for the terminal and for the documents. */
export function table(title: string, figures: Figures, more: readonly [string, string][] = []): string {
  const rows: [string, string][] = [
    ...more,
    ['acknowledged pushes', String(figures.acknowledged)],
    ['of them missing or different afterwards', String(figures.lost)],
    ['listed content that cannot be read whole', String(figures.halfVisible)],
    ['longest time without a successful push', seconds(figures.writeGap)],
    ['failed pushes of packages, by status', figures.failedPushes],
    ['longest time without a successful read', seconds(figures.readGap)],
    ['failed reads, by status', figures.failedReads],
  ];
  return `| ${title} | |\n|---|---|\n${rows.map(([name, value]) => `| ${name} | ${value} |`).join('\n')}\n`;
}

export function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
