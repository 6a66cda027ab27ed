import type { Upstream } from '../../upstream/upstream.ts';
import type { MirroredName } from './admission.ts';

/** A matcher for names: `*` matches any characters, letter case is ignored. */
export function matcher(patterns: readonly string[]): (name: string) => boolean {
  const expressions = patterns.map((pattern) => {
    const escaped = pattern.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*');
    return new RegExp(`^${escaped}$`, 'is');
  });
  return (name) => expressions.some((expression) => expression.test(name));
}

/** Whether an upstream gets requests for a name, and why not. */
type UpstreamRule = 'asked' | 'hosted' | 'reserved' | 'excluded' | 'not included' | 'other account';

/** What the settings say about a name. */
export interface NameRules {
  /** The pattern of the setting `reserved` that keeps the name from all upstreams. */
  reservedBy: string | undefined;
  /** All upstreams of the kind, in order; `pattern` is the one that excludes the name. */
  upstreams: { upstream: Upstream; rule: UpstreamRule; pattern: string | undefined }[];
}

/** A reference of a name at the upstream that serves it. */
interface FoundReference {
  name: MirroredName;
  reference: string;
  /** Whether the upstream shows it in lists; undefined if nothing that is stored says it. Sends no request. */
  isListed?(): Promise<boolean | undefined>;
}

/** The rules of a name, and what is hosted and stored under it. */
export interface NameStory extends NameRules {
  /** Whether the account hosts or claims it. */
  isHosted: boolean;
  /** The registry that the name begins with and that is no upstream. */
  missing?: string | undefined;
  /** The names by which clients request it, as failed requests have them. */
  spellings: readonly string[];
  /** Its name at the upstreams. */
  nameThere: string;
  /** The entry that says whether an upstream has the name, if one does. */
  document?: { kind: string; reference: string };
  /** The first of the names by which policies mean it, in lower case; undefined for a name that no upstream serves. */
  policyName?: string | undefined;
  /**
   * The name at the upstream that serves it, and a reference as policies see it; undefined for a text that is no reference. Asks
   * upstreams if there are several. Undefined for a name that no upstream serves.
   */
  referenceTo?(text: string): Promise<FoundReference | undefined>;
  /**
   * The digest that a tag has now at the upstream, which is asked; undefined if it has no such tag. Absent for names that have
   * versions.
   */
  digestOf?(tag: string): Promise<string | undefined>;
}

/**
 * Decides which upstreams may get requests of an account for a name, before any I/O. A reserved name has none. The protocol
 * checks first whether a name is hosted.
 */
export class UpstreamPolicy {
  readonly #upstreams: readonly { upstream: Upstream; admits: (names: readonly string[]) => boolean }[];
  readonly #reserved: readonly string[];
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
    this.#reserved = reserved;
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

  /** Why each upstream may get requests for a name with these spellings, or not. The protocol knows what is hosted. */
  explain(...names: readonly string[]): NameRules {
    const first = (patterns: readonly string[]) => patterns.find((each) => names.some(matcher([each])));
    const reservedBy = first(this.#reserved);
    const ruleOf = ({ config }: Upstream): Pick<NameRules['upstreams'][number], 'rule' | 'pattern'> => {
      const excludedBy = first(config.exclude);
      if (reservedBy !== undefined) return { rule: 'reserved', pattern: reservedBy };
      if (excludedBy !== undefined) return { rule: 'excluded', pattern: excludedBy };
      return { rule: first(config.include) === undefined ? 'not included' : 'asked', pattern: undefined };
    };
    const served = this.all.map((upstream) => ({ upstream, ...ruleOf(upstream) }));
    const hidden = this.hidden.map((upstream) => ({ upstream, rule: 'other account' as const, pattern: undefined }));
    return { reservedBy, upstreams: [...served, ...hidden] };
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
