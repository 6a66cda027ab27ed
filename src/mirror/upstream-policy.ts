import type { Upstream } from '../upstream/upstream.ts';

/** A matcher for names: `*` stands for any characters, letter case does not count. */
export function matcher(patterns: readonly string[]): (name: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const escaped = pattern.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*');
    return new RegExp(`^${escaped}$`, 'is');
  });
  return (name) => expressions.some((expression) => expression.test(name));
}

/**
 * Who may be asked for a name, decided before any I/O. A reserved name has no upstream; whether a name is hosted is the
 * protocol's to know, and comes first.
 */
export class UpstreamPolicy {
  readonly #upstreams: readonly { upstream: Upstream; admits: (names: readonly string[]) => boolean }[];
  readonly #isReserved: (name: string) => boolean;
  readonly #isMerged: (name: string) => boolean;

  /** `upstreams` are those of one kind, in the order of the configuration. */
  constructor(upstreams: readonly Upstream[], reserved: readonly string[], merged: readonly string[] = []) {
    this.#isReserved = matcher(reserved);
    this.#isMerged = matcher(merged);
    this.#upstreams = upstreams.map((upstream) => {
      const included = matcher(upstream.config.include);
      const excluded = matcher(upstream.config.exclude);
      return { upstream, admits: (names) => names.some(included) && !names.some(excluded) };
    });
  }

  /** All upstreams, whatever the name. */
  get all(): readonly Upstream[] {
    return this.#upstreams.map(({ upstream }) => upstream);
  }

  /** The upstreams that may be asked for a name, in any of its spellings, in order; none for a reserved one. */
  candidates(...names: readonly string[]): Upstream[] {
    if (names.some(this.#isReserved)) return [];
    return this.#upstreams.filter(({ admits }) => admits(names)).map(({ upstream }) => upstream);
  }

  /** Whether `name` is kept from every upstream. */
  isReserved(name: string): boolean {
    return this.#isReserved(name);
  }

  /** Whether a hosted name may have further versions from upstream. */
  isMerged(name: string): boolean {
    return this.#isMerged(name);
  }
}
