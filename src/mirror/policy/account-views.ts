import type { Upstream } from '../../upstream/upstream.ts';
import { Recent } from '../../runtime/recent.ts';

/** Views of accounts that are kept in memory. The name of an account never changes. */
const maxViews = 10_000;

/**
 * A view of the mirror for each account. It has only the upstreams that serve the account, so content of other upstreams cannot
 * be reached through it, and only what the policies let the account have.
 */
export class AccountViews<View extends object> {
  readonly #named: ReadonlySet<string>;
  readonly #nameOf: (accountId: number) => Promise<string | undefined>;
  readonly #open: (account: string | undefined, accountId: number) => View;
  readonly #views = new Recent<number, View>(maxViews);

  /**
   * `nameOf` resolves to the name of an account, undefined if there is no such account. `open` opens the view of an account; its
   * name is undefined if no upstream names it. A view keeps no state: it may be opened again at any time.
   */
  constructor(
    upstreams: readonly Upstream[],
    nameOf: (accountId: number) => Promise<string | undefined>,
    open: (account: string | undefined, accountId: number) => View,
  ) {
    this.#nameOf = nameOf;
    this.#open = open;
    this.#named = new Set(upstreams.flatMap(({ config }) => config.accounts ?? []));
  }

  /** The view of an account; at once if it is known, so that a request costs nothing more. */
  of(accountId: number): View | Promise<View> {
    const known = this.#views.get(accountId);
    if (known) return known;
    return this.#named.size === 0 ? this.#keep(accountId, undefined) : this.#find(accountId);
  }

  async #find(accountId: number): Promise<View> {
    const name = await this.#nameOf(accountId);
    const isNamed = name !== undefined && this.#named.has(name);
    const view = this.#open(isNamed ? name : undefined, accountId);
    // An account that does not exist yet may be created with this name.
    if (name !== undefined) this.#views.set(accountId, view);
    return view;
  }

  #keep(accountId: number, name: string | undefined): View {
    const view = this.#open(name, accountId);
    this.#views.set(accountId, view);
    return view;
  }
}
