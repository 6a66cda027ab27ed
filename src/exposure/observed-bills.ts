import type { Logger } from 'pino';
import { WantedBills } from '../accounts/wanted-bills.ts';
import type { Database, Transaction } from '../database/database.ts';
import { runForSystem } from '../runtime/caller.ts';
import type { Digest } from '../runtime/digest.ts';
import type { BillComponent } from '../runtime/cyclonedx.ts';
import { DomainError, isDomainError, type ErrorName } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import { pagesOf } from '../runtime/pages.ts';
import { ObservedPushes, type ObservedPush } from '../usage/observed-pushes.ts';
import type { PullList, UsedContent } from '../usage/pull-list.ts';
import type { QuotaOwner } from '../usage/quota.ts';
import type { Exposable } from './exposable.ts';
import { observedBill } from './observed-bill.ts';
import { observedKeyOf, seedLength, type ObservedKey } from './observed-key.ts';

/** The key that all instances share. All methods reject with `KeyUnavailable`. */
export interface SharedSecrets {
  /** Makes the key if it may be made here. */
  prepare(): Promise<void>;
  /** Notes which key it is, so that no instance uses another one. */
  claim(tx: Transaction): Promise<void>;
  /** Makes `claim` of others wait until the end of the transaction. */
  hold(tx: Transaction): Promise<void>;
  /** Forgets which key it is if nothing needs it any more, so that another one can be used. Call `hold` before. */
  release(tx: Transaction): Promise<void>;
  /** A secret for a use, always the same for one key; undefined if there is no key yet. */
  derive(use: string, length: number): Promise<Buffer | undefined>;
}

interface ObservedBillParts {
  database: Database;
  pulls: PullList;
  protocols: readonly Exposable[];
  accountName: (id: number) => Promise<string | undefined>;
  /** Throws if the account has no room for so many bytes. */
  admit: (owner: QuotaOwner, bytes: number) => Promise<void>;
  secrets: SharedSecrets;
  /** How long pulls are recorded; milliseconds, 0 if they are not. */
  keepPulls: number;
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** Other processes have written what they counted before a push after this time; milliseconds. */
const settle = 30_000;
/** A bill that could not be made for so long is given up; milliseconds. */
const giveUp = 86_400_000;
const pushesAtATime = 50;
const componentsAtATime = 500;
/** Errors that concern all images, and end by themselves or by the work of an operator. */
const passing = new Set<ErrorName>(['DatabaseUnavailable', 'StorageUnavailable', 'StorageFull', 'KeyUnavailable']);
/** Most components of a bill. */
const maxPulls = 2000;

/** Attaches a signed bill of materials to images that jobs of a CI push: what the job pulled before. Accounts ask for it. */
export class ObservedBills {
  readonly #parts: ObservedBillParts;
  readonly #wanted: WantedBills;
  readonly #pushes: ObservedPushes;

  constructor(parts: ObservedBillParts) {
    this.#parts = parts;
    this.#wanted = new WantedBills(parts.database, parts.now);
    this.#pushes = new ObservedPushes(parts.database);
  }

  /** Whether the images of an account get bills. */
  isWanted(accountId: number): Promise<boolean> {
    return this.#wanted.has(accountId);
  }

  /**
   * Begins or ends that the images that jobs push from now on get bills. Rejects with `Invalid` if pulls are not recorded, and with
   * `KeyUnavailable` if bills cannot be signed.
   */
  async put(account: { id: number; name: string }, isWanted: boolean): Promise<void> {
    const { secrets, keepPulls } = this.#parts;
    if (!isWanted) {
      const around = { before: (tx: Transaction) => secrets.hold(tx), after: (tx: Transaction) => secrets.release(tx) };
      return this.#wanted.put(account, false, around);
    }
    if (keepPulls === 0)
      throw new DomainError(
        'Invalid',
        'This server records no pulls, because usage.keepPulls is 0d. An operator has to set it.',
      );
    await secrets.prepare();
    await this.#wanted.put(account, true, { before: (tx) => secrets.claim(tx) });
  }

  /** The key that verifies bills, as PEM; null if there is none yet, or if it is missing on this server. */
  async publicKey(): Promise<string | null> {
    try {
      return (await this.#key())?.publicKey ?? null;
    } catch (error) {
      if (isDomainError(error, 'KeyUnavailable')) return null;
      throw error;
    }
  }

  /** Makes the bills that are due. Those of images that are gone, and of accounts that do not want them any more, are left out. */
  async run(): Promise<void> {
    const until = this.#parts.now() - settle;
    const read = (after: ObservedPush | undefined) => this.#pushes.waiting(until, pushesAtATime, after);
    for await (const page of pagesOf(undefined as ObservedPush | undefined, pushesAtATime, read, (each) => each)) {
      let key: Promise<ObservedKey> | undefined;
      const keyOfPage = () => (key ??= this.#neededKey());
      for (const each of page) await runForSystem('observed-bills', () => this.#tryMake(each, keyOfPage));
    }
  }

  async #tryMake(push: ObservedPush, key: () => Promise<ObservedKey>): Promise<void> {
    const { log } = this.#parts;
    try {
      await this.#make(push, key);
    } catch (error) {
      if (isDomainError(error) && passing.has(error.name)) throw error;
      log.warn({ err: error, content: push.contentId }, 'an image gets no bill of materials');
      if (isDomainError(error)) await this.#end(push);
    }
  }

  async #make(push: ObservedPush, key: () => Promise<ObservedKey>): Promise<void> {
    const { pulls, protocols, accountName, admit, now } = this.#parts;
    const content = (await pulls.contents([push.contentId])).get(push.contentId);
    const owner = content && (await accountName(content.accountId));
    const protocol = protocols.find((each) => each.kind === content?.kind);
    const isLate = push.pushedAt < now() - giveUp;
    if (
      !content ||
      !owner ||
      !protocol?.attach ||
      !protocol.component ||
      isLate ||
      !(await this.isWanted(content.accountId))
    )
      return this.#end(push);
    const signer = await key();
    const { accountId, name, reference } = content;
    const before = { since: 0, until: push.pushedAt };
    const uses = await pulls.usesOf(push.userId, 'pull', before, maxPulls + 1);
    const observed = {
      image: { name, digest: reference as Digest, component: protocol.component(name, reference) },
      job: (await pulls.users([push.userId])).get(push.userId)?.job,
      pushedAt: push.pushedAt,
      pulled: await this.#components(uses.slice(0, maxPulls).filter((each) => each.id !== content.id)),
      hasMore: uses.length > maxPulls,
    };
    const document = await observedBill(observed, signer);
    await admit({ accountId, accountName: owner }, document.bytes.length);
    const take = (tx: Transaction) => this.#pushes.end(tx, push);
    if (!(await protocol.attach({ accountId, name, reference }, document, take))) await this.#end(push);
  }

  async #components(contents: readonly UsedContent[]): Promise<BillComponent[]> {
    const found: BillComponent[] = [];
    for (const [index, { kind, name, reference }] of contents.entries()) {
      if (index % componentsAtATime === 0) await pause();
      const each = this.#parts.protocols.find((one) => one.kind === kind)?.component?.(name, reference);
      if (each) found.push(each);
    }
    return found;
  }

  async #end(push: ObservedPush): Promise<void> {
    await this.#parts.database.transaction((tx) => this.#pushes.end(tx, push));
  }

  async #neededKey(): Promise<ObservedKey> {
    const key = await this.#key();
    if (key) return key;
    throw new DomainError('KeyUnavailable', 'The key that signs bills of materials is missing on this server.');
  }

  async #key(): Promise<ObservedKey | undefined> {
    const seed = await this.#parts.secrets.derive('observed bills', seedLength);
    return seed && observedKeyOf(seed);
  }
}
