import { LRUCache } from 'lru-cache';
import type { Database } from '../database/database.ts';
import type { KnownAdvisory, MirroredName, Verdict, WithdrawnTimes } from '../mirror/policy/admission.ts';
import type { Layer, LayerDecision } from './decide.ts';
import type { ListedName } from './listed-names.ts';

/** What may refuse something of a name. */
export interface PolicyLimits {
  layers: readonly Layer[];
  listed: ListedName | undefined;
  advisories: readonly KnownAdvisory[];
  withdrawn: WithdrawnTimes | undefined;
  republished: WithdrawnTimes | undefined;
}

/** The tables whose rows decide. */
const tables = [
  'bad_entries',
  'bad_lists',
  'history',
  'mirror_entries',
  'mirror_republished',
  'mirror_withdrawn',
  'policies',
  'policy_releases',
  'waivers',
];
/** For this long a change at an upstream may have no effect; milliseconds. */
const keptFor = 10_000;
/** References of all kept verdicts. One that is refused counts as some, because it has a text. */
const maxReferences = 200_000;
const sizeOfRefusal = 5;

/** The verdicts on references of a name, for lists or for content. They hold for a short time. */
export class KeptVerdicts {
  readonly limits: PolicyLimits;
  /** Whether all references are shown, whatever is decided of them. */
  readonly showsAll: boolean;
  /** The state of the tables before `limits` was read. */
  readonly state: string | undefined;
  readonly #madeAt: number;
  #until: number;
  readonly #verdicts = new Map<string, Verdict>();
  readonly #refusals = new Map<string, readonly LayerDecision[]>();
  #deciding: Promise<void> | undefined;
  /** The verdict on a reference that was added. It is the same function as long as verdicts do not change. */
  readonly verdictOf = (reference: string): Verdict => this.#verdicts.get(reference) ?? 'allow';

  constructor(limits: PolicyLimits, showsAll: boolean, state: string | undefined, madeAt: number) {
    this.limits = limits;
    this.showsAll = showsAll;
    this.state = state;
    this.#madeAt = madeAt;
    const ends = limits.layers.map(({ suspendedUntil = Infinity }) => suspendedUntil);
    this.#until = Math.min(madeAt + keptFor, ...ends);
  }

  get size(): number {
    return 1 + this.#verdicts.size + sizeOfRefusal * this.#refusals.size;
  }

  /** Whether time has changed nothing. The clock may have been set back. */
  holdsAt(now: number): boolean {
    return now >= this.#madeAt && now < this.#until;
  }

  /**
   * Has `decide` add the verdicts on those of `references` that have none yet. A request waits while another one decides. After one that
   * failed it decides itself, beside others: a time limit of an upstream is waited for once.
   */
  async complete(references: readonly string[], decide: (missing: readonly string[]) => Promise<void>): Promise<void> {
    const isMissing = (reference: string) => !this.#verdicts.has(reference);
    let hasFailed = false;
    while (this.#deciding && !hasFailed && references.some(isMissing))
      hasFailed = await this.#deciding.then(
        () => false,
        () => true,
      );
    const missing = references.filter(isMissing);
    if (missing.length === 0) return;
    const deciding = decide(missing);
    this.#deciding = deciding;
    try {
      await deciding;
    } finally {
      if (this.#deciding === deciding) this.#deciding = undefined;
    }
  }

  /** What layers decided of a reference, and what clients get of it. */
  add(reference: string, decisions: readonly LayerDecision[], verdict: Verdict): void {
    this.#verdicts.set(reference, verdict);
    if (decisions.some(isRefusal)) this.#refusals.set(reference, decisions.filter(isRefusal));
    for (const { until = Infinity, waivers } of decisions) {
      this.#until = Math.min(this.#until, until);
      for (const waiver of waivers ?? []) this.#until = Math.min(this.#until, waiver.until);
    }
  }

  /** The decisions of layers that refuse one of `references`, or would if they were enforced. */
  refusalsOf(references: readonly string[]): readonly LayerDecision[] {
    return this.#refusals.size === 0 ? [] : references.flatMap((each) => this.#refusals.get(each) ?? []);
  }
}

function isRefusal({ verdict }: LayerDecision): boolean {
  return verdict !== 'allow';
}

/** Verdicts of names in use, until a row that decides changes on any instance. */
export class VerdictCache {
  readonly #database: Pick<Database, 'stateOf'>;
  readonly #names = new LRUCache<string, KeptVerdicts>({
    maxSize: maxReferences,
    sizeCalculation: ({ size }) => size,
  });

  constructor(database: Pick<Database, 'stateOf'>) {
    this.#database = database;
  }

  /** Changes with every row that decides; undefined if that cannot be known. */
  state(): Promise<string | undefined> {
    return this.#database.stateOf(tables);
  }

  /** The verdicts that were kept of a name. They are valid if their state is that of now. */
  of(name: MirroredName, isList: boolean, now: number): KeptVerdicts | undefined {
    const kept = name.isPast ? undefined : this.#names.get(keyOf(name, isList));
    return kept?.holdsAt(now) ? kept : undefined;
  }

  keep(name: MirroredName, isList: boolean, kept: KeptVerdicts): void {
    if (kept.state !== undefined && !name.isPast) this.#names.set(keyOf(name, isList), kept);
  }
}

function keyOf({ accountId, upstream, kind, name }: MirroredName, isList: boolean): string {
  return `${accountId} ${upstream.id} ${kind} ${isList} ${name}`;
}
