import type { Grant } from './grant-rows.ts';
import { mergedPatterns, Names, type NameKind, type NameSet, type Patterns } from './names.ts';

/** The names of one kind in an account: those that it hosts, and those that it reads from upstreams. */
export interface AccountNames {
  readonly kind: NameKind;
  /** The name under which the account hosts what clients call `name`; undefined if it does not claim it. */
  hostedAs(accountId: number, name: string): Promise<string | undefined>;
  /** Up to `limit` of `only` that are stored from upstreams of the account. */
  mirroredAmong(accountId: number, only: NameSet, limit: number): Promise<string[]>;
}

/** Names of an account in a list. */
export interface AccountList {
  accountId: number;
  /** Undefined for all names. */
  only: NameSet | undefined;
  /** The account whose own names are left out; undefined to leave out none. */
  without?: number | undefined;
}

/**
 * The names of others that an account reads, because it accepted their grants. Nobody reads on from there: each shares only what
 * it hosts itself.
 */
export class SharedNames {
  readonly #shares: readonly { accountId: number; patterns: Patterns; names: Names }[];
  readonly #kinds: ReadonlyMap<NameKind, AccountNames>;

  constructor(grants: readonly Grant[], kinds: ReadonlyMap<NameKind, AccountNames>) {
    this.#shares = [...Map.groupBy(grants, ({ accountId }) => accountId)].map(([accountId, given]) => {
      const patterns = mergedPatterns(given.map((each) => each.patterns));
      return { accountId, patterns, names: new Names(patterns) };
    });
    this.#kinds = kinds;
  }

  /** The shared names of a kind by account, of those that `within` has, without those that `own` has itself. */
  lists(own: number, kind: NameKind, within: Names | undefined): AccountList[] {
    const lists = this.#shares.map(({ accountId, patterns, names }) => {
      const only = (within ? new Names(patterns, within) : names).of(kind);
      return { accountId, only, without: own };
    });
    return lists.filter(({ only }) => !only.isEmpty);
  }

  /**
   * The account from which the readers of the account `own` get a name: `own` if it claims the name, then the first that shares it
   * and hosts it, and else `own`, which may have it from an upstream.
   */
  ownerOf(own: number, kind: NameKind, name: string): number | Promise<number> {
    const names = this.#kinds.get(kind);
    const key = name.toLowerCase();
    const sharing = this.#shares.filter((each) => each.names.of(kind).includes(key));
    return names && sharing.length > 0 ? this.#find(names, own, key, sharing) : own;
  }

  async #find(
    names: AccountNames,
    own: number,
    name: string,
    sharing: readonly { accountId: number; names: Names }[],
  ): Promise<number> {
    if ((await names.hostedAs(own, name)) !== undefined) return own;
    for (const { accountId, names: shared } of sharing) {
      const hosted = await names.hostedAs(accountId, name);
      // Another spelling of the name gives no access.
      if (hosted !== undefined && shared.of(names.kind).includes(hosted)) return accountId;
    }
    return own;
  }
}
