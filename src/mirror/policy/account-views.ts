import { LRUCache } from 'lru-cache';
import type { Upstream } from '../../upstream/upstream.ts';

/** Names of accounts that are kept in memory. The name of an account never changes. */
const maxNames = 10_000;

/**
 * One view of the mirror for each account that the settings name at an upstream, and one for all other accounts. A view
 * has only the upstreams that serve the account, so content of other upstreams cannot be reached through it.
 */
export class AccountViews<View> {
  readonly #byName = new Map<string, View>();
  readonly #others: View;
  readonly #nameOf: (accountId: number) => Promise<string | undefined>;
  readonly #names = new LRUCache<number, string>({ max: maxNames });

  /**
   * `nameOf` resolves to the name of an account, undefined if there is no such account. `open` opens the view of the account
   * with this name; undefined stands for accounts that no upstream names.
   */
  constructor(
    upstreams: readonly Upstream[],
    nameOf: (accountId: number) => Promise<string | undefined>,
    open: (account: string | undefined) => View,
  ) {
    this.#nameOf = nameOf;
    this.#others = open(undefined);
    for (const name of upstreams.flatMap(({ config }) => config.accounts ?? [])) {
      if (!this.#byName.has(name)) this.#byName.set(name, open(name));
    }
  }

  /** The view of an account; at once if no upstream names an account, so that a request costs nothing more. */
  of(accountId: number): View | Promise<View> {
    return this.#byName.size === 0 ? this.#others : this.#find(accountId);
  }

  async #find(accountId: number): Promise<View> {
    let name = this.#names.get(accountId);
    if (name === undefined) {
      name = await this.#nameOf(accountId);
      if (name !== undefined) this.#names.set(accountId, name);
    }
    return (name !== undefined && this.#byName.get(name)) || this.#others;
  }
}
