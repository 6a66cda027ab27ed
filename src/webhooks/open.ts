import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { Events } from '../events/events.ts';
import { Paths } from '../storage/files/paths.ts';
import type { Resolve } from '../upstream/addresses.ts';
import { Poster } from './post.ts';
import { urlBelow } from '../upstream/url.ts';
import { Deliveries } from './deliveries.ts';
import type { DeliveryAttempt } from './delivery.ts';
import { Receivers } from './receivers.ts';
import { deleteOldDeliveries } from './retention.ts';
import { Secrets } from './secrets.ts';
import { Sender } from './sender.ts';
import { Webhooks } from './webhooks.ts';

/** Milliseconds for all of an attempt. */
const attemptTime = 15_000;
/** Milliseconds between two counts of the deliveries that wait, and between two deletions of old ones. */
const countInterval = 15_000;
const deleteInterval = 60_000;

/** How to reach receivers. Tests replace it. */
export interface ReceiverOptions {
  /** Milliseconds for all of an attempt. */
  timeout?: number | undefined;
  resolve?: Resolve | undefined;
}

interface WebhookParts {
  config: Config;
  database: Database;
  events: Events;
  log: Logger;
  now: () => number;
  /** The same for deletions by age. */
  deletionTime: () => number;
  receivers?: ReceiverOptions | undefined;
}

/** What a server adds the metrics of webhooks to. */
interface Metrics {
  counter(name: string, help: string, labels: readonly string[], read: ReadValues): void;
  gauge(name: string, help: string, labels: readonly string[], read: ReadValues): void;
}
type ReadValues = () => Iterable<[labels: Record<string, string>, value: number]>;

export interface OpenWebhooks {
  readonly webhooks: Webhooks;
  /** Sends a test event to a webhook of the account. Throws `NotFound`, `TooManyRequests` or `KeyUnavailable`. */
  test(accountId: number, accountName: string, id: string): Promise<{ id: string; attempt: DeliveryAttempt }>;
  /** Rejects with `ConfigError` if the setting names a key file that cannot be read, and there are no stored secrets. */
  checkKey(): Promise<void>;
  /** Why the stored secrets cannot be decrypted now, and what to do; undefined if they can. */
  keyProblem(): Promise<string | undefined>;
  /** See `Secrets`: a further use of the key. */
  readonly secrets: Pick<Secrets, 'prepare' | 'claim' | 'hold' | 'release' | 'derive'>;
  /**
   * Call it when this process has joined the instances. Disables all webhooks if their secrets cannot be decrypted, unless
   * `othersHaveKey`, and enables them again as soon as they can.
   */
  useKey(othersHaveKey: boolean): Promise<void>;
  /** Events up to this position are not needed any more; infinite without webhooks. */
  cursor(): Promise<number>;
  /** Gives events their positions, turns them into deliveries, and sends what is due. */
  tick(): Promise<void>;
  deleteOld(): Promise<void>;
  /** Work that each server repeats. */
  readonly chores: readonly { interval: number; run: () => Promise<void>; failure: string }[];
  observe(metrics: Metrics): void;
  close(milliseconds: number): Promise<void>;
}

export function openWebhooks({ config, receivers: options = {}, ...parts }: WebhookParts): OpenWebhooks {
  const { database, events, now, deletionTime, log } = parts;
  const { secretKeyFile } = config;
  const { baseUrl } = config.server;
  const source = baseUrl === undefined ? '/v1/audit' : urlBelow(baseUrl, 'v1', 'audit').href;
  const receivers = new Receivers(config.webhooks.allow);
  const secrets = new Secrets(database, secretKeyFile ?? new Paths(config.data).secretKey, secretKeyFile === undefined);
  const deliveries = new Deliveries({ database, events, now, source });
  const webhooks = new Webhooks({ database, events, deliveries, secrets, receivers, now });
  const { timeout = attemptTime, resolve = receivers.resolve } = options;
  const poster = new Poster({ check: receivers.check, timeout, resolve });
  const sender = new Sender({ events, deliveries, secrets, poster, source, log, now });
  let wasDecryptable = true;
  const useKey = async (othersHaveKey: boolean) => {
    const problem = await secrets.problem();
    wasDecryptable = problem === undefined;
    if (problem !== undefined && othersHaveKey) return;
    const changed = await webhooks.setDecryptable(wasDecryptable);
    if (problem !== undefined)
      log.warn(`all webhooks are disabled, and events of this time will not be delivered: ${problem}`);
    else if (changed > 0) {
      const text =
        'webhooks are enabled again, because their key is back; events of the time between are not delivered';
      log.info({ webhooks: changed }, text);
    }
  };
  // Without a restart, when the key is back.
  const awaitKey = async () => {
    if (!wasDecryptable && (await secrets.problem()) === undefined) await useKey(false);
  };
  let pending = 0;
  const count = async () => {
    pending = await deliveries.pending();
  };
  const stop = new AbortController();
  const deleteOld = () => deleteOldDeliveries({ database, time: deletionTime(), stop: stop.signal });
  return {
    webhooks,
    test: async (accountId, accountName, id) => {
      const message = `test-${randomUUID()}`;
      return { id: message, attempt: await sender.test(await webhooks.row(accountId, id), accountName, message) };
    },
    checkKey: async () => void (await secrets.problem()),
    keyProblem: () => secrets.problem(),
    secrets,
    useKey,
    cursor: () => deliveries.cursor(),
    tick: () => sender.tick(),
    deleteOld,
    chores: [
      {
        interval: 1000,
        run: () => sender.tick(),
        failure: 'events did not get their positions, or webhook deliveries were not sent',
      },
      { interval: countInterval, run: count, failure: 'webhook deliveries were not counted' },
      { interval: countInterval, run: awaitKey, failure: 'the key of webhooks was not checked' },
      { interval: deleteInterval, run: deleteOld, failure: 'old webhook deliveries were not deleted' },
    ],
    observe: (metrics) => {
      metrics.counter(
        'entrepot_webhook_deliveries_total',
        'Finished webhook attempts of this process',
        ['outcome'],
        () => [...sender.outcomes].map(([outcome, number]) => [{ outcome }, number]),
      );
      metrics.gauge('entrepot_webhook_pending', 'Webhook deliveries that wait, of all instances', [], () => [
        [{}, pending],
      ]);
    },
    close: (milliseconds) => {
      stop.abort();
      return sender.close(milliseconds);
    },
  };
}
