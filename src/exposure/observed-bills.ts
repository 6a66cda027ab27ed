import type { Logger } from 'pino';
import { WantedBills } from '../accounts/wanted-bills.ts';
import type { Database, Transaction } from '../database/database.ts';
import { runForSystem } from '../runtime/caller.ts';
import type { Digest } from '../runtime/digest.ts';
import type { BillComponent } from '../runtime/cyclonedx.ts';
import { isDomainError, type ErrorName } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import { pagesOf } from '../runtime/pages.ts';
import { ObservedPushes, type ObservedPush } from '../usage/observed-pushes.ts';
import type { PullList, UsedContent } from '../usage/pull-list.ts';
import type { Exposable } from './exposable.ts';
import { observedBill } from './observed-bill.ts';
import { observedKeyOf, seedLength, type ObservedKey } from './observed-key.ts';

interface ObservedBillParts {
  database: Database;
  pulls: PullList;
  protocols: readonly Exposable[];
  accountName: (id: number) => Promise<string | undefined>;
  /** Throws if the account has no room for so many bytes. */
  admit: (owner: { accountId: number; accountName: string }, bytes: number) => Promise<void>;
  /** A secret that is the same on all instances. Rejects with `KeyUnavailable`. */
  derive: (use: string, length: number) => Promise<Buffer>;
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
const maxPulls = 5000;

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

  /** Begins or ends that the images that jobs push from now on get bills. Rejects with `KeyUnavailable` if they cannot be signed. */
  async put(account: { id: number; name: string }, isWanted: boolean): Promise<void> {
    if (isWanted) await this.publicKey();
    await this.#wanted.put(account, isWanted);
  }

  /** The key that verifies bills, as PEM. Rejects with `KeyUnavailable`. */
  async publicKey(): Promise<string> {
    return (await this.#key()).publicKey;
  }

  /** Makes the bills that are due. Those of images that are gone, and of accounts that do not want them any more, are left out. */
  async run(): Promise<void> {
    const until = this.#parts.now() - settle;
    const read = (after: ObservedPush | undefined) => this.#pushes.waiting(until, pushesAtATime, after);
    for await (const page of pagesOf(undefined as ObservedPush | undefined, pushesAtATime, read, (each) => each)) {
      const key = await this.#key();
      for (const each of page) await runForSystem('observed-bills', () => this.#make(each, key));
    }
  }

  async #make(push: ObservedPush, key: ObservedKey): Promise<void> {
    const { pulls, protocols, accountName, admit, log, now } = this.#parts;
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
    const document = observedBill(observed, key);
    try {
      await admit({ accountId, accountName: owner }, document.bytes.length);
      const take = (tx: Transaction) => this.#pushes.end(tx, push);
      if (!(await protocol.attach({ accountId, name, reference }, document, take))) await this.#end(push);
    } catch (error) {
      if (!isDomainError(error) || passing.has(error.name)) throw error;
      log.warn({ err: error, account: owner, image: name, digest: reference }, 'an image gets no bill of materials');
      await this.#end(push);
    }
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

  async #key(): Promise<ObservedKey> {
    return observedKeyOf(await this.#parts.derive('observed bills', seedLength));
  }
}
