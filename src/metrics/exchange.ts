import { inTurnShared } from '../runtime/in-turn.ts';
import { countersOf, mergeFamilies, type ReportExchange, type MetricsReport } from './report.ts';
import { mergeUpstreams } from './upstreams.ts';

// The metrics of several processes that serve one port. Each sends its report to the first process: regularly, when it is
// asked for one, and at its end. The first process keeps the last report of each, and adds up the counters of those that
// have ended.

/** Milliseconds between two regular reports. A process that is killed loses what it counted since its last. */
const reportEvery = 5000;
/** How long the first process waits for the reports of the others; milliseconds. */
const patience = 1000;
/** How long a process waits for the first one; milliseconds. */
const maxWait = 2000;
/** `/metrics` needs no token, so a process makes a report, and asks the others, at most once in this time; milliseconds. */
export const reportPause = 100;

/** Messages between two processes. */
export interface Channel {
  /** Ignores a failure: the other process has ended then. */
  send(message: Message): void;
  onMessage(listener: (message: unknown) => void): void;
}

export type Message =
  /** To the first process: `answers` if it asked, `wants` if the others are wanted in return. */
  | { entrepot: 'report'; report: MetricsReport; answers?: boolean; wants?: boolean }
  /** From the first process. */
  | { entrepot: 'asked' }
  | { entrepot: 'others'; reports: MetricsReport[] };

/** The side of each process that serves. */
export class WorkerExchange implements ReportExchange, Disposable {
  readonly #channel: Channel;
  readonly #every: number;
  readonly #wait: number;
  #own: (() => Promise<MetricsReport>) | undefined;
  #timer: NodeJS.Timeout | undefined;
  #waiting: ((reports: MetricsReport[] | undefined) => void) | undefined;
  /** One exchange at a time, so that an answer cannot be taken for that to another question. */
  readonly #exchanges = inTurnShared(() => this.#ask(), reportPause);

  constructor(channel: Channel, every = reportEvery, wait = maxWait) {
    this.#channel = channel;
    this.#every = every;
    this.#wait = wait;
  }

  start(own: () => Promise<MetricsReport>): void {
    this.#own = own;
    this.#channel.onMessage((message) => {
      if (!isMessage(message)) return;
      if (message.entrepot === 'asked') void this.report({ answers: true });
      if (message.entrepot === 'others') this.#waiting?.(message.reports);
    });
    this.#timer = setInterval(() => void this.report(), this.#every).unref();
  }

  others(): Promise<MetricsReport[] | undefined> {
    return this.#exchanges();
  }

  /** Sends the report of this process. Never rejects. */
  async report(fields: { answers?: boolean; wants?: boolean } = {}): Promise<void> {
    const report = await this.#own?.().catch(() => undefined);
    if (report) this.#channel.send({ entrepot: 'report', report, ...fields });
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  async #ask(): Promise<MetricsReport[] | undefined> {
    const { promise, resolve } = Promise.withResolvers<MetricsReport[] | undefined>();
    this.#waiting = resolve;
    const timer = setTimeout(() => resolve(undefined), this.#wait);
    await this.report({ wants: true });
    return promise.finally(() => clearTimeout(timer));
  }
}

interface Peer {
  channel: Channel;
  report: MetricsReport | undefined;
  /** Whether it has not answered yet. A process that hangs is asked and waited for only once. */
  isAsked: boolean;
}

/** The side of the first process. */
export class WorkerReports {
  readonly #peers = new Set<Peer>();
  readonly #patience: number;
  #ended: Promise<MetricsReport | undefined> = Promise.resolve(undefined);
  #arrived = new Set<() => void>();

  constructor(wait = patience) {
    this.#patience = wait;
  }

  /** Adds a process. Call the returned function when it has ended. */
  add(channel: Channel): () => void {
    const peer: Peer = { channel, report: undefined, isAsked: false };
    this.#peers.add(peer);
    channel.onMessage((message) => {
      if (!isMessage(message) || message.entrepot !== 'report') return;
      peer.report = message.report;
      if (message.answers) {
        peer.isAsked = false;
        for (const each of this.#arrived) each();
      }
      if (message.wants) void this.#answer(peer);
    });
    return () => {
      if (!this.#peers.delete(peer)) return;
      if (peer.report) this.#ended = this.#ended.then((before) => addUp(before, peer.report!));
      for (const each of this.#arrived) each();
    };
  }

  async #answer(asker: Peer): Promise<void> {
    const asked = this.#others(asker).filter(({ isAsked }) => !isAsked);
    for (const peer of asked) {
      peer.isAsked = true;
      peer.channel.send({ entrepot: 'asked' });
    }
    await this.#until(() => asked.every((peer) => !peer.isAsked || !this.#peers.has(peer)));
    const ended = await this.#ended;
    const reports = [ended, ...this.#others(asker).map(({ report }) => report)].filter((each) => each !== undefined);
    asker.channel.send({ entrepot: 'others', reports });
  }

  #others(peer: Peer): Peer[] {
    return [...this.#peers].filter((each) => each !== peer);
  }

  /** Resolves when `isDone`, or when the time is over. */
  async #until(isDone: () => boolean): Promise<void> {
    if (isDone()) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = () => {
      if (isDone()) resolve();
    };
    this.#arrived.add(check);
    const timer = setTimeout(resolve, this.#patience);
    await promise;
    clearTimeout(timer);
    this.#arrived.delete(check);
  }
}

async function addUp(before: MetricsReport | undefined, last: MetricsReport): Promise<MetricsReport> {
  const counters = countersOf(last);
  if (!before) return counters;
  const [metrics, accounts] = await Promise.all([
    mergeFamilies([before.metrics, counters.metrics]),
    mergeFamilies([before.accounts, counters.accounts]),
  ]);
  return { metrics, accounts, upstreams: mergeUpstreams([before.upstreams, counters.upstreams]) };
}

function isMessage(message: unknown): message is Message {
  return typeof message === 'object' && message !== null && 'entrepot' in message;
}
