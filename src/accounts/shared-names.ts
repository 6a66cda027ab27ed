import type { Grant } from './grant-rows.ts';
import { Names, type NameKind, type NameSet, type Patterns } from './names.ts';

/** The names of one kind in an account: those that it hosts, and those that it reads from upstreams. */
export interface AccountNames {
  readonly kind: NameKind;
  /** The name under which the account hosts what clients call `name`; undefined if it does not claim it. */
  hostedAs(accountId: number, name: string): Promise<string | undefined>;
  /** Up to `limit` of `only` that are stored from upstreams of the account. */
  mirroredAmong(accountId: number, only: NameSet, limit: number): Promise<string[]>;
}

/**
 * The names of others that an account reads, because it accepted their grants. Nobody reads on from there: each shares only what
 * it hosts itself.
 */
export class SharedNames {
  readonly #shares: readonly { accountId: number; names: Names }[];
  readonly #kinds: ReadonlyMap<NameKind, AccountNames>;

  constructor(grants: readonly Grant[], kinds: ReadonlyMap<NameKind, AccountNames>) {
    this.#shares = grants.map(({ accountId, patterns }) => ({ accountId, names: new Names(patterns as Patterns) }));
    this.#kinds = kinds;
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
