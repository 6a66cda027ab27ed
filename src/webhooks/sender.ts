import type { Logger } from 'pino';
import { inTime } from '../runtime/in-time.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Events } from '../events/events.ts';
import { AddressRefused } from '../upstream/addresses.ts';
import type { Poster } from './post.ts';
import { testBody } from './cloud-event.ts';
import { deliveryOutcomes, type Claimed, type Deliveries, type Due, type DeliveryOutcome } from './deliveries.ts';
import type { DeliveryAttempt } from './delivery.ts';
import type { Secrets } from './secrets.ts';
import { headersOf, secondsOf, signatureOf } from './signature.ts';
import type { WebhookRow } from './webhook.ts';

/** Deliveries that a process sends at the same time: in all, of an account, and of a webhook. */
const maxAtOnce = 64;
const maxOfAccount = 16;
const maxOfWebhook = 4;
/** Test events that a process sends at the same time: in all, and of an account. */
const maxTests = 32;
const maxTestsOfAccount = 2;
/** Failing webhooks that a process remembers. */
const maxFailing = 10_000;
/** Bytes of an answer that are kept. */
const keptAnswer = 1024;

interface SenderParts {
  events: Events;
  deliveries: Deliveries;
  secrets: Secrets;
  poster: Poster;
  source: string;
  log: Logger;
  now: () => number;
}

interface Running {
  claimed: Claimed;
  accountId: number;
  done: Promise<void>;
}

/**
 * Sends deliveries. The fewer deliveries of an account are being sent, the sooner its next one is, so that slow receivers
 * of one account delay no others.
 */
export class Sender {
  readonly #parts: SenderParts;
  readonly #running = new Set<Running>();
  /** The accounts of the tests that are being sent. */
  readonly #tests: number[] = [];
  /** Webhooks whose last attempt failed: each gets one delivery at a time. */
  readonly #failing = new Set<string>();
  readonly #stop = new AbortController();
  /** From 0, because Prometheus cannot see the growth to a first value. */
  readonly #outcomes = new Map<DeliveryOutcome, number>(deliveryOutcomes.map((each) => [each, 0]));
  #ticking: Promise<void> | undefined;
  #filling: Promise<void> | undefined;
  #fillAgain = false;
  #hadKey = true;

  constructor(parts: SenderParts) {
    this.#parts = parts;
  }

  /** Finished attempts of this process, by outcome. */
  get outcomes(): ReadonlyMap<DeliveryOutcome, number> {
    return this.#outcomes;
  }

  /** Gives new events their positions, turns them into deliveries, and begins to send those that are due. Called every second. */
  tick(): Promise<void> {
    this.#ticking ??= this.#tick().finally(() => (this.#ticking = undefined));
    return this.#ticking;
  }

  async #tick(): Promise<void> {
    const { events, deliveries } = this.#parts;
    await events.dispatch();
    await deliveries.make();
    await this.#fill();
  }

  /** Sends a test event, and resolves to what happened. Throws `TooManyRequests` while too many tests run. */
  async test(webhook: WebhookRow, accountName: string, id: string): Promise<DeliveryAttempt> {
    const account = webhook.account_id;
    const own = this.#tests.filter((each) => each === account).length;
    if (own >= maxTestsOfAccount || this.#tests.length >= maxTests) {
      throw new DomainError('TooManyRequests', 'Other tests are being sent. Try again later.', { retryAfter: 15 });
    }
    this.#tests.push(account);
    try {
      const { now, source } = this.#parts;
      return await this.#attempt(webhook, id, testBody(id, accountName, now(), source));
    } finally {
      this.#tests.splice(this.#tests.indexOf(account), 1);
    }
  }

  /** Breaks off what is being sent, and makes it due again. Takes at most `milliseconds`. */
  async close(milliseconds: number): Promise<void> {
    const { deliveries, poster, log } = this.#parts;
    this.#stop.abort(new Error('this server is stopping'));
    const broken = [...this.#running];
    try {
      await inTime(async () => {
        await this.#filling?.catch(() => undefined);
        if (broken.length === 0) return;
        await Promise.all(broken.map(({ done }) => done));
        await deliveries.release(broken.map(({ claimed }) => claimed));
      }, milliseconds);
    } catch (error) {
      log.warn({ err: error }, 'webhook deliveries were broken off; they are repeated after a minute');
    } finally {
      poster.close();
    }
  }

  /** Begins to send as many due deliveries as possible. One call at a time works; the others make it look again. */
  #fill(): Promise<void> {
    this.#fillAgain = true;
    this.#filling ??= this.#fillAll().finally(() => (this.#filling = undefined));
    return this.#filling;
  }

  async #fillAll(): Promise<void> {
    const { deliveries } = this.#parts;
    while (this.#fillAgain && !this.#stop.signal.aborted) {
      this.#fillAgain = false;
      if (this.#running.size >= maxAtOnce) continue;
      const due = await deliveries.due();
      const wanted = this.#choose(due);
      // Without the key this instance would only take deliveries away from others.
      if (wanted.length === 0 || !(await this.#hasKey())) continue;
      const webhooks = new Map(due.map(({ webhook }) => [webhook.id, webhook]));
      const claimed = await deliveries.claim(wanted);
      if (this.#stop.signal.aborted) return deliveries.release(claimed);
      for (const each of claimed) this.#start(each, webhooks.get(each.webhookId)!);
    }
  }

  /** A missing or wrong key is logged once. */
  async #hasKey(): Promise<boolean> {
    const { secrets, log } = this.#parts;
    try {
      await secrets.ready();
      this.#hadKey = true;
    } catch (error) {
      if (this.#hadKey) log.error({ err: error }, 'this instance cannot sign webhook deliveries');
      this.#hadKey = false;
    }
    return this.#hadKey;
  }

  /** How many deliveries of each webhook may begin now. Accounts take turns, beginning with the one that has fewest. */
  #choose(due: readonly Due[]): { webhookId: string; count: number }[] {
    const ofAccount = new Map<number, number>();
    const ofWebhook = new Map<string, number>();
    for (const { accountId, claimed } of this.#running) {
      add(ofAccount, accountId);
      add(ofWebhook, claimed.webhookId);
    }
    const chosen = new Map<string, number>();
    const used = (webhook: WebhookRow) => ofWebhook.get(webhook.id) ?? 0;
    const usedBy = ({ account_id: account }: WebhookRow) => ofAccount.get(account) ?? 0;
    for (let free = maxAtOnce - this.#running.size; free > 0; free -= 1) {
      let next: WebhookRow | undefined;
      for (const { webhook } of due) {
        const most = this.#failing.has(webhook.id) ? 1 : maxOfWebhook;
        if (used(webhook) >= most || usedBy(webhook) >= maxOfAccount) continue;
        if (!next || usedBy(webhook) < usedBy(next) || (usedBy(webhook) === usedBy(next) && used(webhook) < used(next)))
          next = webhook;
      }
      if (!next) break;
      add(ofAccount, next.account_id);
      add(ofWebhook, next.id);
      add(chosen, next.id);
    }
    return [...chosen].map(([webhookId, count]) => ({ webhookId, count }));
  }

  #start(claimed: Claimed, webhook: WebhookRow): void {
    const running: Running = { claimed, accountId: webhook.account_id, done: Promise.resolve() };
    this.#running.add(running);
    running.done = this.#send(claimed, webhook)
      .catch((error: unknown) =>
        this.#parts.log.warn(
          { err: error, webhook: webhook.id },
          'a webhook delivery was not recorded; it is repeated',
        ),
      )
      .finally(() => {
        this.#running.delete(running);
        // A failure here also fails the next tick, which is logged.
        this.#fill().catch(() => undefined);
      });
  }

  async #send(claimed: Claimed, webhook: WebhookRow): Promise<void> {
    const { deliveries } = this.#parts;
    const attempt = await this.#attempt(webhook, claimed.id, claimed.body);
    if (attempt.failure !== null && this.#stop.signal.aborted) return;
    if (attempt.failure === null) this.#failing.delete(webhook.id);
    else this.#noteFailing(webhook.id);
    const outcome = await deliveries.finish(claimed, webhook.url, attempt);
    add(this.#outcomes, outcome);
  }

  #noteFailing(id: string): void {
    if (this.#failing.size >= maxFailing) this.#failing.clear();
    this.#failing.add(id);
  }

  /** Sends one request. Rejects only if the secret cannot be decrypted. */
  async #attempt(webhook: WebhookRow, id: string, text: string): Promise<DeliveryAttempt> {
    const { secrets, poster, now } = this.#parts;
    const at = now();
    const keys = [await secrets.decrypt(webhook.id, webhook.secret)];
    if (webhook.old_secret !== null && at < webhook.old_until!) {
      keys.push(await secrets.decrypt(webhook.id, webhook.old_secret));
    }
    const body = Buffer.from(text);
    const headers = {
      ...headersOf(id, at),
      'webhook-signature': signatureOf(keys, id, secondsOf(at), body),
    };
    const startedAt = performance.now();
    const took = () => Math.round(performance.now() - startedAt);
    try {
      const { status, retryAfter, start } = await poster.post(new URL(webhook.url), headers, body, this.#stop.signal);
      const answer = start.subarray(0, keptAnswer).toString().replaceAll('\0', '\uFFFD');
      return { at, duration: took(), status, answer, failure: failureOf(status), retryAfter };
    } catch (error) {
      return { at, duration: took(), status: null, answer: null, failure: explain(error) };
    }
  }
}

function add<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function failureOf(status: number): string | null {
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400) return `answered ${status}; redirects are not followed`;
  return `answered ${status}`;
}

function explain(error: unknown): string {
  if (error instanceof AddressRefused) return error.message;
  const { name, code, message } = error as { name?: string; code?: string; message?: string };
  if (name === 'TimeoutError') return 'did not answer in time';
  return `cannot be reached: ${code ?? message ?? ''}`.slice(0, 255);
}
