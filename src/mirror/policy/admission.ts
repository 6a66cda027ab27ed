import { DomainError } from '../../runtime/errors.ts';
import type { Upstream } from '../../upstream/upstream.ts';

/** A name at an upstream: the key of a package, a repository, or the file name of symbols. */
export interface MirroredName {
  upstream: Upstream;
  kind: 'package' | 'image' | 'symbols';
  name: string;
}

/**
 * What clients get of a reference, which is a version, tag or digest. `hold`: it is hidden everywhere, as if it did not exist.
 * `denied`: lists show it, and its content is refused with this message.
 */
export type Verdict = 'allow' | 'hold' | { denied: string };

/** The verdict on each reference of a name. */
type Verdicts = (reference: string) => Verdict;

/** Resolves to the verdicts on the references of a name; undefined if clients get all of them. */
export type Judge = (name: MirroredName) => Promise<Verdicts | undefined>;

/**
 * Decides which references of upstreams are shown and served. All readers of mirrored content pass it: lists by `listed`,
 * content by `serves`.
 */
export class Admission {
  readonly #judge: Judge | undefined;

  /** Without `judge`, clients get everything. */
  constructor(judge?: Judge) {
    this.#judge = judge;
  }

  /** Whether clients get everything. */
  get isOpen(): boolean {
    return this.#judge === undefined;
  }

  /** Whether some references of a name may be hidden or refused. */
  async isLimited(name: MirroredName): Promise<boolean> {
    return (await this.#judge?.(name)) !== undefined;
  }

  /** Those of `items` that lists show. */
  async listed<T>(name: MirroredName, items: readonly T[], referenceOf: (item: T) => string): Promise<readonly T[]> {
    const verdictOf = await this.#judge?.(name);
    return verdictOf ? items.filter((item) => verdictOf(referenceOf(item)) !== 'hold') : items;
  }

  /** Whether the content of all `references` may be served; false if one is held. Throws `Denied`. */
  async serves(name: MirroredName, ...references: readonly string[]): Promise<boolean> {
    const verdictOf = await this.#judge?.(name);
    const verdicts = verdictOf ? references.map(verdictOf) : [];
    if (verdicts.includes('hold')) return false;
    for (const verdict of verdicts) if (typeof verdict === 'object') throw new DomainError('Denied', verdict.denied);
    return true;
  }
}
