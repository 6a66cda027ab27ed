import type { Accounts } from '../accounts/accounts.ts';
import type { Tokens } from '../accounts/tokens.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import { limitMiss } from '../http/limit.ts';
import type { RemoteParts } from '../import/source.ts';
import type { Work } from '../jobs/jobs.ts';
import type { Counts } from '../jobs/runs.ts';
import type { Limits } from '../limits/limits.ts';
import { runForSystem } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { inTime } from '../runtime/in-time.ts';
import { Recent } from '../runtime/recent.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { Quota } from '../usage/quota.ts';
import { AdoptedCredentials } from './adopted.ts';
import { Arrivals, conflictIn, problemIn, type Progress, type TakeoverProtocol } from './arrivals.ts';
import { Inventory, isMirroredName, nameStates } from './inventory.ts';
import type { InventoryName, NameState, TakeoverRow } from './inventory.ts';
import { Predecessor } from './predecessor.ts';
import { readNames, walk } from './walk.ts';

interface TakeoverParts extends RemoteParts {
  config: Config;
  database: Database;
  accounts: Accounts;
  tokens: Tokens;
  protocols: readonly TakeoverProtocol[];
  limits: Limits;
  quota: Quota;
}

/** Longest time that a request waits for content to come; milliseconds. The work goes on. */
const patience = 60_000;
/** Versions or tags of a name that come at the same time because of a request. */
const together = 8;
/** Names that requests bring at the same time, and those that wait for it. */
const maxNames = 16;
/** Of these, names of one predecessor. */
const maxOfOne = 8;
const maxWaiting = 1000;
/** A version or tag that a predecessor did not have is asked for again after so many milliseconds; of so many of them. */
const absentFor = 60_000;
const maxAbsent = 10_000;

/** A name that a request asks for. */
interface Asked {
  kind: string;
  accountId: number;
  /** As it is here. */
  name: string;
  /** The version, tag or digest; undefined for a list of them. */
  reference?: string | undefined;
}

/** A name that a predecessor decides about; without a row while its inventory is not read. */
interface Place {
  predecessor: Predecessor;
  row: InventoryName | undefined;
}

/** How far the takeover of a predecessor is. */
interface TakeoverStatus {
  predecessor: Predecessor;
  row: TakeoverRow | undefined;
  names: ReadonlyMap<NameState, number>;
  /** Users and keys of it that have a token here. */
  adopted: number;
}

/**
 * The servers that this one replaces. What an inventory of hosted content names comes when it is asked for, or in the background,
 * once: it is hosted content from then on, and what is deleted here does not come again.
 */
export class Takeover {
  readonly predecessors: readonly Predecessor[];
  readonly inventory: Inventory;
  readonly arrivals: Arrivals;
  readonly adopted: AdoptedCredentials;
  readonly #parts: TakeoverParts;
  readonly #flights = new Map<string, Promise<Progress>>();
  readonly #absent = new Recent<string, true>(maxAbsent, { ttl: absentFor });
  readonly #places = new Semaphore({ max: maxNames, maxOfGroup: () => maxOfOne, maxWaiting });
  #triedAt = -Infinity;
  readonly #closing = new AbortController();

  /** Throws `ConfigError`. */
  constructor(parts: TakeoverParts) {
    this.#parts = parts;
    this.inventory = new Inventory(parts.database, parts.now);
    this.arrivals = new Arrivals({ ...parts, inventory: this.inventory });
    this.predecessors = parts.config.predecessors.map((each, index) => new Predecessor(each, index, parts));
    this.adopted = new AdoptedCredentials(this.predecessors, { ...parts, inventory: this.inventory });
  }

  close(): void {
    this.#closing.abort();
    for (const { remote } of this.predecessors) remote.close();
  }

  /** Whether no upstream may get a request for a name, because a predecessor has it, or may have it. */
  async isClosed(asked: Asked): Promise<boolean> {
    return this.predecessors.length > 0 && (await this.#placeOf(asked)) !== undefined;
  }

  /**
   * Brings what a request asks for, if an inventory names it and it is not here: a version, tag or digest, or all of a name for a
   * list. Resolves to `isClosed` then. Throws `UpstreamUnavailable` or `UpstreamTimeout` if it cannot come now: it is never "not found".
   */
  async bring(asked: Asked): Promise<boolean> {
    if (this.predecessors.length === 0) return false;
    const place = await this.#placeOf(asked);
    if (!place) return false;
    await this.#bring(place, asked);
    return this.isClosed(asked);
  }

  async #bring(place: Place, asked: Asked): Promise<void> {
    const { predecessor, row } = place;
    const { accountId, name, reference } = asked;
    const protocol = this.arrivals.protocolOf(predecessor)!;
    if (!row) throw unavailable(predecessor, name, 'the list of its names was not read yet');
    const key = `${row.id} ${reference ?? ''}`;
    if (reference === undefined) {
      if (row.state === 'whole' || row.state === 'partial') return;
    } else if (this.#absent.has(key) || (await protocol.holds!(accountId, name, reference))) return;
    // It came before, and was deleted here.
    else if (await this.inventory.hasCome(row, reference)) return;
    const isConflict = row.state === 'conflict';
    const failure = isConflict
      ? unavailable(predecessor, name, row.note ?? '')
      : await this.#fetched(place, asked, key);
    // A list shows what is here.
    if (failure && (reference !== undefined || !(await protocol.holds!(accountId, name)))) throw failure;
  }

  /** Why it did not come; undefined if it did, or if the predecessor does not have it. */
  async #fetched({ predecessor, row }: Place, { name, reference }: Asked, key: string): Promise<Error | undefined> {
    const { pause } = predecessor.remote;
    if (pause && pause.until > this.#parts.now())
      return unavailable(predecessor, name, `it does not answer (${pause.reason})`);
    if (!this.#flights.has(key)) await limitMiss(this.#parts.limits);
    const flight = this.#flights.get(key) ?? this.#begin(predecessor, row!, reference, key);
    const progress = await inTime(() => flight, patience, {
      late: () => {
        const message = `${name} is being brought from the predecessor ${predecessor.name}, which takes long. Try again soon.`;
        throw new UpstreamError('UpstreamTimeout', message, { upstream: predecessor.name, retryAfter: 10 });
      },
    });
    const note = problemIn(progress) ?? conflictIn(progress)?.note;
    if (note !== undefined) return unavailable(predecessor, name, note);
    if (reference !== undefined && progress.came + progress.mirrored === 0) this.#absent.set(key, true);
    return undefined;
  }

  #begin(predecessor: Predecessor, row: InventoryName, reference: string | undefined, key: string): Promise<Progress> {
    const references = reference === undefined ? undefined : [reference];
    const work = async () => {
      const release = await this.#places.take('', { group: predecessor.name });
      if (!release)
        throw new DomainError('TooManyRequests', 'Too many names are being brought from predecessors.', {
          retryAfter: 10,
        });
      try {
        const options = { signal: this.#closing.signal, concurrency: together, references };
        return (await this.arrivals.run(predecessor, [row], options)).found[0]!;
      } finally {
        release();
      }
    };
    const flight = runForSystem('takeover', work).finally(() => this.#flights.delete(key));
    this.#flights.set(key, flight);
    return flight;
  }

  /** The predecessor that has the name; undefined if none has, or if upstreams serve it. */
  async #placeOf({ kind, accountId, name }: Asked): Promise<Place | undefined> {
    const account = await this.#parts.accounts.nameOf(accountId);
    const key = name.toLowerCase();
    let unread: Predecessor | undefined;
    for (const predecessor of this.predecessors) {
      const protocol = this.arrivals.protocolOf(predecessor);
      if (protocol?.kind !== kind || predecessor.config.account !== account) continue;
      const found = await this.inventory.takeover(predecessor.name);
      const takeover = found?.source === predecessor.sourceKey ? found : undefined;
      if (takeover && takeover.finished_at !== null) continue;
      if (!takeover || takeover.read_at === null) {
        unread ??= (await protocol.holds!(accountId, key)) ? undefined : predecessor;
        continue;
      }
      const rows = await this.inventory.find(key);
      const row = rows.find((each) => each.predecessor === predecessor.name && predecessor.isWanted(each.name));
      if (row) return isMirroredName(row) ? undefined : { predecessor, row };
    }
    return unread && { predecessor: unread, row: undefined };
  }

  /** Reads the inventories, and then brings what is not here, unless `onlyNames`. */
  walk(work: Pick<Work, 'signal' | 'say'>, onlyNames = false): Promise<Counts> {
    const { predecessors, inventory, arrivals } = this;
    return walk({ predecessors, inventory, arrivals, onlyNames }, work);
  }

  /** Reads the names of one predecessor. Throws `Invalid` if the settings are not those under which its content came. */
  async readNames(predecessor: Predecessor, signal: AbortSignal): Promise<void> {
    const { inventory, arrivals } = this;
    const before = await inventory.takeover(predecessor.name);
    if (before && before.source !== predecessor.sourceKey)
      throw new DomainError(
        'Invalid',
        `The settings of ${predecessor.name} have another account or other names than those of the server. Use its settings, or let its job "takeover" run first.`,
      );
    await inventory.begin(predecessor.name, predecessor.sourceKey);
    await readNames({ inventory, arrivals }, predecessor, signal);
  }

  /** Whether an inventory is still to be read, so that names of its account are refused: true at most once in a minute. */
  async isDue(): Promise<boolean> {
    const now = performance.now();
    if (now - this.#triedAt < 60_000 || !(await this.#isUnread())) return false;
    this.#triedAt = now;
    return true;
  }

  async #isUnread(): Promise<boolean> {
    for (const { name, sourceKey } of this.predecessors) {
      const row = await this.inventory.takeover(name);
      if (row?.source !== sourceKey || row.read_at === null) return true;
    }
    return false;
  }

  /** The predecessor with this name; throws `NotFound`. */
  named(name: string): Predecessor {
    const found = this.predecessors.find((each) => each.name === name);
    if (found) return found;
    const names = this.predecessors.map((each) => each.name).join(', ');
    const those = names === '' ? '' : `; there are ${names}`;
    throw new DomainError('NotFound', `The settings have no predecessor ${name.slice(0, 100)}${those}.`);
  }

  async status(): Promise<TakeoverStatus[]> {
    const list: TakeoverStatus[] = [];
    for (const predecessor of this.predecessors) {
      const { name } = predecessor;
      const [row, names] = [await this.inventory.takeover(name), await this.#countsOf(predecessor)];
      list.push({ predecessor, row, names, adopted: await this.adopted.count(name) });
    }
    return list;
  }

  /** How many names that the settings do not leave out are in which state. */
  async #countsOf({ name, config, isWanted }: Predecessor): Promise<ReadonlyMap<NameState, number>> {
    if (config.exclude.length === 0 && config.include.includes('*')) return this.inventory.counts(name);
    const counts = new Map<NameState, number>();
    for await (const page of this.inventory.pages(name, nameStates))
      for (const row of page) if (isWanted(row.name)) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    return counts;
  }
}

function unavailable({ name: upstream, remote }: Predecessor, name: string, reason: string): UpstreamError {
  const why = reason.replace(/^The (?:upstream|source) /, 'The predecessor ').replace(/\.$/, '');
  const message = `${name} belongs to the predecessor ${upstream} and did not come: ${why}.`;
  return new UpstreamError('UpstreamUnavailable', message, { upstream, id: remote.id, retryAfter: 10 });
}
