import { firstRanked, type ListTotal, type Rank, type Ranked } from '../../runtime/ranked.ts';
import { pause } from '../../runtime/event-loop.ts';
import { Collected } from '../../runtime/collected.ts';
import type { NameTotals } from './listing.ts';

/** A mirrored name with its numbers, as they were counted. */
export interface CountedName extends NameTotals {
  /** The name in lists, by which they are sorted. */
  listed: string;
  /** Downloads by the account. */
  downloads: number;
}

/** Which names of a list, and in which order. */
export interface NameOrder extends NameFilter {
  /** Undefined for the order of names. */
  by: keyof Pick<CountedName, 'refs' | 'bytes' | 'downloads' | 'storedAt' | 'usedAt'> | undefined;
}

interface NameFilter {
  /** Only names that contain this text, which is in lower case. */
  text: string;
  /** Whether the reader may see the name. */
  isShown: (name: CountedName) => boolean;
}

interface Counted {
  names: readonly CountedName[];
  asOf: number;
}

/** Names of one account that are counted, and of all accounts that stay in memory. */
const maxNames = 100_000;
const maxTogether = 300_000;
/** How long counts are used at least; milliseconds. */
const freshFor = 1000;
/** How long a request waits for the first count; milliseconds. */
const patience = 1000;
/** Names that are added up without a pause. */
const atATime = 2000;

/**
 * The mirrored names that an account gets, with their numbers, for lists that are sorted by a number or filtered: the database
 * has a row for each entry and no sums. They are counted page by page, with pauses, and not for each request.
 */
export class CountedNames {
  readonly #counts: Collected<number, Counted>;

  /** `read` reads all names of an account. */
  constructor(read: (accountId: number) => AsyncIterable<readonly CountedName[]>, now: () => number) {
    this.#counts = new Collected({
      collect: async (accountId): Promise<Counted> => {
        const asOf = now();
        const names: CountedName[] = [];
        for await (const some of read(accountId)) {
          names.push(...some.slice(0, maxNames - names.length));
          if (names.length === maxNames) break;
          await pause();
        }
        return { names, asOf };
      },
      sizeOf: ({ names }) => names.length + 1,
      maxSize: maxTogether,
      freshFor,
    });
  }

  /** When the names were counted; undefined while they are counted for the first time. */
  async asOf(accountId: number): Promise<number | undefined> {
    return (await this.#counts.within(patience, accountId))?.asOf;
  }

  /**
   * Up to `limit` results of `show` in the order of the names, after `after`. `show` gets names and leaves out those that are not
   * there any more. None while the names are counted for the first time.
   */
  async page<Item>(
    accountId: number,
    order: NameOrder,
    limit: number,
    after: Rank | undefined,
    show: (names: readonly CountedName[]) => Promise<Map<CountedName, Item>>,
  ): Promise<Ranked<Item>[]> {
    const counted = await this.#counts.within(patience, accountId);
    const found: Ranked<Item>[] = [];
    for (let from = after; found.length < limit;) {
      const next = await firstRanked(counted?.names ?? [], {
        rankOf: (each) => [order.by === undefined ? null : each[order.by], each.listed],
        isShown: (each) => isSelected(each, order),
        after: from,
        limit,
      });
      const shown = await show(next.map(({ item }) => item));
      for (const { rank, item } of next) if (shown.has(item)) found.push({ rank, item: shown.get(item)! });
      if (next.length < limit) break;
      from = next.at(-1)!.rank;
    }
    return found.slice(0, limit);
  }

  /** The names of a filter; undefined while they are counted for the first time. */
  async total(accountId: number, filter: NameFilter): Promise<ListTotal | undefined> {
    const counted = await this.#counts.within(patience, accountId);
    if (!counted) return undefined;
    const total = { count: 0, bytes: 0 };
    for (let start = 0; start < counted.names.length; start += atATime) {
      for (const each of counted.names.slice(start, start + atATime)) {
        if (!isSelected(each, filter)) continue;
        total.count += 1;
        total.bytes += each.bytes;
      }
      await pause();
    }
    return total;
  }
}

function isSelected(name: CountedName, { text, isShown }: NameFilter): boolean {
  return name.listed.includes(text) && isShown(name);
}
