import type { Upstream } from '../../upstream/upstream.ts';

/** A matcher for names: `*` matches any characters, letter case is ignored. */
export function matcher(patterns: readonly string[]): (name: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const escaped = pattern.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*');
    return new RegExp(`^${escaped}$`, 'is');
  });
  return (name) => expressions.some((expression) => expression.test(name));
}

/**
 * Decides which upstreams may get requests of an account for a name, before any I/O. A reserved name has none. The protocol
 * checks first whether a name is hosted.
 */
export class UpstreamPolicy {
  readonly #upstreams: readonly { upstream: Upstream; admits: (names: readonly string[]) => boolean }[];
  readonly #isReserved: (name: string) => boolean;
  /** What each reserved pattern begins with, before its first `*`, in lower case. */
  readonly #reservedStarts: readonly string[];
  readonly #isMerged: (name: string) => boolean;
  /** Configured upstreams that do not serve the account. */
  readonly hidden: readonly Upstream[];

  /**
   * `upstreams` are those of one kind, in the order of the configuration. `account` is the name of the account; undefined
   * for an account that no upstream names.
   */
  constructor(
    upstreams: readonly Upstream[],
    account: string | undefined,
    reserved: readonly string[],
    merged: readonly string[] = [],
  ) {
    this.#isReserved = matcher(reserved);
    this.#reservedStarts = reserved.map((pattern) => pattern.toLowerCase().split('*', 1)[0]!);
    this.#isMerged = matcher(merged);
    this.hidden = upstreams.filter((each) => !each.serves(account));
    const served = upstreams.filter((each) => each.serves(account));
    this.#upstreams = served.map((upstream) => {
      const included = matcher(upstream.config.include);
      const excluded = matcher(upstream.config.exclude);
      return { upstream, admits: (names) => names.some(included) && !names.some(excluded) };
    });
  }

  /** The IDs of the upstreams; undefined if none is hidden, because then a query needs no condition. */
  get idsIfLimited(): string[] | undefined {
    return this.hidden.length > 0 ? this.all.map(({ id }) => id) : undefined;
  }

  /** All upstreams that serve the account, whatever the name. */
  get all(): readonly Upstream[] {
    return this.#upstreams.map(({ upstream }) => upstream);
  }

  /** The upstreams that may get requests for a name with these spellings, in order; none for a reserved name. */
  candidates(...names: readonly string[]): Upstream[] {
    if (names.some(this.#isReserved)) return [];
    return this.#upstreams.filter(({ admits }) => admits(names)).map(({ upstream }) => upstream);
  }

  /** Whether `name` is kept from every upstream. */
  isReserved(name: string): boolean {
    return this.#isReserved(name);
  }

  /** Whether `word`, in lower case, is the beginning of a reserved name, and longer than its first segment. */
  beginsReserved(word: string, separator: string): boolean {
    return word.includes(separator) && this.#reservedStarts.some((start) => start.startsWith(word));
  }

  /** Whether a hosted name may have further versions from upstreams. */
  isMerged(name: string): boolean {
    return this.#isMerged(name);
  }
}
