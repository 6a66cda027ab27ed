import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import type { Upstream } from '../../upstream/upstream.ts';

/** A name at an upstream, as an account asks for it. */
export interface MirroredName {
  accountId: number;
  upstream: Upstream;
  kind: 'package' | 'image' | 'blob' | 'symbols';
  /** The key of a package, a repository, or the file name of symbols. */
  name: string;
  /** The names by which patterns mean it, in lower case. */
  shown: readonly string[];
  facts: NameFacts;
  /** Whether these are facts of a time in the past. */
  isPast?: boolean;
}

/** What is known of the references of a name. It is read only for a policy that needs it. */
export interface NameFacts {
  /** The facts of those of `references` of which something is known here. Sends no request. */
  of(references: readonly string[]): Promise<ReadonlyMap<string, ReferenceFacts>>;
  /**
   * When the upstream published each reference that it offers, as it says; milliseconds since 1970 UTC, undefined if it does not
   * say it. For one that is older than `settledBefore`, a later time may be told that is before it, too. Throws if the upstream
   * fails. Absent for a kind whose upstreams do not say it.
   */
  published?(settledBefore: number): Promise<ReadonlyMap<string, number | undefined> | undefined>;
  /** When the upstream first offered each of `references`, which it offers without a date. Records those that are new. */
  listed?(references: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /**
   * Resolves to what tells, of a manifest or blob, which stored manifests name it, also by way of an index. Absent for a kind
   * whose content names nothing.
   */
  naming?(): Promise<(digest: string) => ReadonlySet<string>>;
  /**
   * Resolves to what tells, of references, since when it is certain that the upstream does not offer them any more; undefined if it
   * offers all that is stored. Sends no request.
   */
  withdrawn?(): Promise<WithdrawnTimes | undefined>;
  /**
   * Resolves to what tells, of references, since when it is known that their stored content is other than the first one; undefined if
   * there is none. Sends no request. Absent for a kind whose references can move.
   */
  republished?(): Promise<WithdrawnTimes | undefined>;
  /** The known vulnerabilities of the name. Throws if an upstream fails that told some before. Absent where nobody tells them. */
  advisories?(): Promise<readonly KnownAdvisory[]>;
  /** Those of the versions in `held` that fix a known vulnerability of one of `versions`; undefined if an upstream fails. */
  fixes?(held: ReadonlySet<string>, versions: Iterable<string>): Promise<readonly Fix[] | undefined>;
  /**
   * The names that the version `fix` needs in a lowest version, and that `predecessor` needed, too, with these versions; undefined
   * if the upstream fails.
   */
  siblings?(fix: string, predecessor: string): Promise<readonly Sibling[] | undefined>;
}

/** Those of `references` that are certainly withdrawn, or published again, and since when. */
export type WithdrawnTimes = (references: readonly string[]) => Promise<ReadonlyMap<string, number>>;

/** A version that fixes a known vulnerability. */
export interface Fix {
  version: string;
  /** Such as `GHSA-…`. */
  advisory: string;
  /** The versions that have the vulnerability and can be replaced by this one, in order. */
  affected: readonly string[];
}

/** A version of another name at the same upstream. */
export interface Sibling {
  name: string;
  version: string;
}

/** A known vulnerability of some versions. */
export interface KnownAdvisory {
  /** Such as `GHSA-…`. */
  id: string;
  /** An index of `severities`. */
  severity: number;
  /** Where the affected range ends, which is the first version without it; undefined if the range says none. */
  fixedAt?: string | undefined;
  affects: (version: string) => boolean;
}

/** Times are in milliseconds since 1970 UTC. */
export interface ReferenceFacts {
  /** When its content was stored here first. */
  firstSeenAt?: number | undefined;
  /** When the upstream first listed it, if that is known without `NameFacts.listed`. */
  listedAt?: number | undefined;
  /** The digest that a tag has. */
  digest?: string | undefined;
  /** The facts of stored indexes that name a manifest. */
  namedBy?: (() => Promise<ReadonlyMap<string, ReferenceFacts>>) | undefined;
}

/**
 * What clients get of a reference, which is a version, tag or digest. `hold`: it is hidden everywhere, as if it did not exist.
 * `denied`: its content is refused with this message, and lists show it unless it is hidden.
 */
export type Verdict = 'allow' | 'hold' | { denied: string; isHidden?: boolean };

/** The verdict on each reference of a name. */
type Verdicts = (reference: string) => Verdict;

/**
 * Resolves to the verdicts on `references` of a name; undefined if clients get all of them and nothing would be refused. A
 * function that is returned again has the same verdicts as before.
 */
export type Judge = (
  name: MirroredName,
  references: readonly string[],
  purpose: Purpose,
) => Promise<Verdicts | undefined>;

/** Items that are looked at without a pause. Many short lists together pause as well: before the first item of each. */
const atATime = 500;

/** Whether lists or content are asked for. With `request`, content that a client requested: a refusal is counted. */
export type Purpose = 'list' | 'content' | 'request';

/** Items that lists show, and what told the references of all. */
interface Shown {
  referenceOf: unknown;
  items: readonly unknown[];
}

/**
 * Decides which references of upstreams are shown and served. All readers of mirrored content pass it: lists by `listed`,
 * content by `serves`.
 */
export class Admission {
  readonly #judge: Judge;
  /** Those of items that lists show, for functions of the judge that it returned more than once. */
  readonly #shown = new WeakMap<Verdicts, WeakMap<readonly unknown[], Shown>>();

  constructor(judge: Judge) {
    this.#judge = judge;
  }

  /** The judge that holds, besides what this admission holds and refuses, what `judge` holds. */
  and(judge: Judge): Judge {
    return async (...asked) => {
      const [verdictOf, heldBy] = [await this.#judge(...asked), await judge(...asked)];
      if (!heldBy) return verdictOf;
      return (reference) => (heldBy(reference) === 'hold' ? 'hold' : (verdictOf?.(reference) ?? 'allow'));
    };
  }

  /** Whether some references of a name may be hidden or refused. */
  async isLimited(name: MirroredName): Promise<boolean> {
    return (await this.#judge(name, [], 'list')) !== undefined;
  }

  /** Those of `items` that lists show. For the same arguments and verdicts it is the same array. */
  async listed<T>(name: MirroredName, items: readonly T[], referenceOf: (item: T) => string): Promise<readonly T[]> {
    if (items.length === 0) return items;
    const limit = await this.#judge(name, [], 'list');
    if (!limit) return items;
    const known = this.#shown.get(limit)?.get(items);
    if (known?.referenceOf === referenceOf) return known.items as readonly T[];
    const references: string[] = [];
    for (const [at, item] of items.entries()) {
      if (at % atATime === 0) await pause();
      references.push(referenceOf(item));
    }
    const verdictOf = await this.#judge(name, references, 'list');
    if (!verdictOf) return items;
    const shown: T[] = [];
    for (const [at, reference] of references.entries()) {
      if (at % atATime === 0) await pause();
      if (!isHidden(verdictOf(reference))) shown.push(items[at]!);
    }
    const found = shown.length === items.length ? items : shown;
    let ofVerdicts = this.#shown.get(verdictOf);
    if (!ofVerdicts) this.#shown.set(verdictOf, (ofVerdicts = new WeakMap()));
    ofVerdicts.set(items, { referenceOf, items: found });
    return found;
  }

  /** Whether content that a client requested may be served, by all `references`; false if one is held. Throws `Denied`. */
  async serves(name: MirroredName, ...references: readonly string[]): Promise<boolean> {
    return isServed((await this.decided(name, references, 'request')) ?? []);
  }

  /** The verdicts on the content of `references`; undefined if nothing of the name is refused, or would be. */
  async decided(
    name: MirroredName,
    references: readonly string[],
    purpose: 'content' | 'request' = 'content',
  ): Promise<readonly Verdict[] | undefined> {
    const verdictOf = await this.#judge(name, references, purpose);
    return verdictOf && references.map(verdictOf);
  }
}

/** False if something is held. Throws `Denied` if something is denied. */
export function isServed(verdicts: readonly Verdict[]): boolean {
  if (verdicts.includes('hold')) return false;
  for (const verdict of verdicts) if (typeof verdict === 'object') throw new DomainError('Denied', verdict.denied);
  return true;
}

/** Whether lists do not show it: what is not there, or not yet. */
export function isHidden(verdict: Verdict): boolean {
  return verdict === 'hold' || (typeof verdict === 'object' && verdict.isHidden === true);
}

/** Holds and refuses nothing. */
export const noJudge: Judge = () => Promise.resolve(undefined);
