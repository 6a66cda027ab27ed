import type { Judge, KnownAdvisory, MirroredName, NameFacts, Verdict } from '../mirror/policy/admission.ts';
import { DomainError } from '../runtime/errors.ts';
import { pause, withPauses } from '../runtime/event-loop.ts';
import {
  decide,
  strictest,
  waiverText,
  withdrawnText,
  type Decision,
  type KnownFacts,
  type Layer,
  type LayerDecision,
  type PolicySubject,
} from './decide.ts';
import type { FixesPass } from './fixes-pass.ts';
import { KeptVerdicts, type PolicyLimits, type VerdictCache } from './kept-verdicts.ts';
import type { ListedNames } from './listed-names.ts';
import type { Policies } from './policies.ts';
import type { PolicyRefusals } from './refusals.ts';
import type { WaivedNames } from './waived-names.ts';

interface GateParts {
  policies: Policies;
  listed: ListedNames;
  waived: WaivedNames;
  fixesPass: FixesPass;
  kept: VerdictCache;
  accountName: (accountId: number) => Promise<string | undefined>;
  refusals: PolicyRefusals;
  now: () => number;
}

/** What is decided of a reference, by the layers that are enforced, and by all of them. */
interface PolicyExplanation {
  enforced: Decision;
  audited: Decision;
  facts: KnownFacts;
  /** Whether an enforced age holds the content, which was not seen here yet, from the first request on. */
  waitsOnceSeen: boolean;
}

/** How references are decided. */
interface Deciding extends PolicyLimits {
  /** Whether clients get what is decided. */
  isServed?: boolean;
  /** The time of the decision; undefined for now. */
  at?: number | undefined;
}

const noLimits = { listed: undefined, advisories: [], withdrawn: undefined, republished: undefined };
/** References that are decided without a pause. */
const atATime = 500;

/** Decides by the policies which mirrored content is shown and served. */
export class PolicyGate {
  readonly #parts: GateParts;

  constructor(parts: GateParts) {
    this.#parts = parts;
  }

  /** For `Admission`. */
  readonly judge: Judge = async (name, references, purpose) => {
    const { kept: cache, now } = this.#parts;
    const isList = purpose === 'list';
    const known = cache.of(name, isList, now());
    const kept = known && known.state === (await cache.state()) ? known : await this.#begin(name, isList);
    if (!kept) return undefined;
    if (!kept.showsAll) await kept.complete(references, (missing) => this.#decideMissing(name, missing, isList, kept));
    if (purpose === 'request') this.#parts.refusals.request(name, references, kept.refusalsOf(references));
    return kept.showsAll && references.length > 0 ? undefined : kept.verdictOf;
  };

  /** What is decided of one reference, with the age that it has at the time `at`. Throws if the upstream's dates cannot be read. */
  async explain(name: MirroredName, reference: string, at = this.#parts.now()): Promise<PolicyExplanation> {
    const withdrawn = await name.facts.withdrawn?.();
    const limits = { ...(await this.#limitsOf(name)), withdrawn, at };
    const known = (await name.facts.of([reference])).get(reference);
    const publishedAt = (await name.facts.published?.(-Infinity))?.get(reference);
    const decisions = [...(await this.#decide(name, withDigest(reference, known?.digest), limits)).values()].flat();
    const withdrawnAt = (await withdrawn?.([reference]))?.get(reference);
    const enforced = decisions.filter(({ layer }) => layer.isEnforced);
    const isUnseen = !name.facts.published && (known?.firstSeenAt ?? known?.listedAt) === undefined;
    return {
      enforced: withEvidence(enforced, withdrawnAt),
      // A hold that is not decided yet keeps its reason.
      waitsOnceSeen: isUnseen && enforced.some(({ rule, reason }) => rule === 'age' && reason !== undefined),
      audited: withEvidence(decisions, withdrawnAt),
      facts: { ...known, publishedAt, withdrawnAt },
    };
  }

  /**
   * What the enforced layers decide of references, in their order; none if no layer can refuse them. `referencesOf` is called only
   * if one can. Counts and releases nothing. Throws as `explain`.
   */
  async decideAll(
    name: MirroredName,
    referencesOf: () => Promise<readonly string[]>,
  ): Promise<ReadonlyMap<string, Decision>> {
    const limits = await this.#limitsOf(name);
    const layers = limits.layers.filter(({ isEnforced }) => isEnforced);
    if (layers.length === 0) return new Map();
    const references = await referencesOf();
    const facts = await name.facts.of(references);
    const asked = (reference: string) => withDigest(reference, facts.get(reference)?.digest);
    const decisions = await this.#decide(name, [...new Set(references.flatMap(asked))], { ...limits, layers });
    const both = (reference: string) => asked(reference).flatMap((each) => decisions.get(each) ?? []);
    return new Map(references.map((reference) => [reference, strictest(both(reference))]));
  }

  /** What one layer alone decides of a reference at the time `at`, without lists of known bad content. Throws as `explain`. */
  async decideBy(layer: Layer, name: MirroredName, reference: string, at: number): Promise<Decision> {
    const advisories = await advisoriesOf(name, [layer]);
    const withdrawn = await withdrawnOf(name, [layer]);
    const digest = (await name.facts.of([reference])).get(reference)?.digest;
    const republished = await name.facts.republished?.();
    const limits = { layers: [layer], listed: undefined, advisories, withdrawn, republished, at };
    return strictest([...(await this.#decide(name, withDigest(reference, digest), limits)).values()].flat());
  }

  /** Throws `Denied` if a list of known bad content names one of the digests of what a client pushes under `name`. */
  async examinePush(name: string, digests: readonly string[]): Promise<void> {
    const listed = await this.#parts.listed.ofContent();
    if (!listed) return;
    const badOf = await listed.entriesOf(digests);
    for await (const reference of withPauses(digests)) {
      const subject = { kind: 'image' as const, names: [name], reference, upstream: '', account: undefined };
      for (const layer of listed.layers) {
        const { verdict, reason } = decide(subject, { bad: badOf(reference) }, layer, this.#parts.now());
        if (verdict !== 'deny') continue;
        this.#parts.refusals.count('image', verdict, layer.isEnforced);
        if (layer.isEnforced) throw new DomainError('Denied', `The policy refuses ${name}: ${reason}.`);
      }
    }
  }

  async #limitsOf(name: MirroredName): Promise<PolicyLimits> {
    if (name.kind === 'symbols') return { ...noLimits, layers: [] };
    const { policies: known, listed: lists } = this.#parts;
    const [policies, listed] = await Promise.all([known.layersOf(name.accountId), lists.of(name)]);
    const advisories = await advisoriesOf(name, policies);
    const withdrawn = await withdrawnOf(name, policies);
    const republished = policies.length > 0 ? await name.facts.republished?.() : undefined;
    const refusing = policies.filter(
      (layer) =>
        mayRefuse(layer, name) ||
        republished ||
        (withdrawn && layer.deniesWithdrawn) ||
        advisories.some((each) => layer.deniesAdvisory?.(each)),
    );
    return { layers: [...(listed?.layers ?? []), ...refusing], listed, advisories, withdrawn, republished };
  }

  /** No verdicts yet; undefined if no layer can refuse anything. */
  async #begin(name: MirroredName, isList: boolean): Promise<KeptVerdicts | undefined> {
    const { kept, now } = this.#parts;
    const state = await kept.state();
    const limits = await this.#limitsOf(name);
    const layers = isList ? limits.layers.filter(({ isEnforced }) => isEnforced) : limits.layers;
    if (layers.length === 0) return undefined;
    // Lists show what is denied.
    const showsAll = isList && layers.every(({ age }) => age[kindOf(name)] === 0);
    // A request that began at the same time may have kept some.
    const other = kept.of(name, isList, now());
    if (other && other.state === state) return other;
    const verdicts = new KeptVerdicts({ ...limits, layers }, showsAll, state, now());
    kept.keep(name, isList, verdicts);
    return verdicts;
  }

  async #decideMissing(
    name: MirroredName,
    missing: readonly string[],
    isList: boolean,
    kept: KeptVerdicts,
  ): Promise<void> {
    const { limits } = kept;
    const [enforced, watching] = [true, false].map((mode) => limits.layers.filter((each) => each.isEnforced === mode));
    const decisions =
      enforced!.length > 0
        ? await this.#decide(name, missing, { ...limits, layers: enforced!, isServed: true })
        : undefined;
    // What layers need that only watch, and cannot get, is no reason to refuse anything.
    const watched =
      watching!.length > 0
        ? await this.#decide(name, missing, { ...limits, layers: watching! }).catch(() => undefined)
        : undefined;
    for (const [at, reference] of missing.entries()) {
      const each = decisions?.get(reference) ?? [];
      const all = watched ? [...each, ...(watched.get(reference) ?? [])] : each;
      kept.add(reference, all, verdictOf(name, strictest(each)));
      if (at % atATime === atATime - 1) await pause();
    }
    this.#parts.kept.keep(name, isList, kept);
  }

  async #decide(
    name: MirroredName,
    references: readonly string[],
    limits: Deciding,
  ): Promise<Map<string, LayerDecision[]>> {
    if (references.length === 0) return new Map();
    const { layers } = limits;
    const decideWith = await this.#decider(name, references, limits);
    // Lists need no facts.
    const known = layers.every(({ lists }) => lists) ? new Map<string, never>() : await name.facts.of(references);
    const decisions = new Map<string, LayerDecision[]>();
    const undated: string[] = [];
    let published: Awaited<ReturnType<NonNullable<NameFacts['published']>>> | null = null;
    for (const [at, reference] of references.entries()) {
      const facts = known.get(reference);
      const dated = () => decideWith(reference, { ...facts, publishedAt: published?.get(reference) });
      let each = published ? dated() : decideWith(reference, facts ?? {});
      if (isHeld(each) && name.facts.published) {
        if (published === null) {
          published = await name.facts.published((limits.at ?? this.#parts.now()) - oldestOf(layers));
          each = dated();
        }
        // Only of what the upstream offers: a request for a version that does not exist starts no age.
        if (published?.has(reference) && each.some(isWithoutDate)) undated.push(reference);
      }
      if (isHeld(each) && facts?.namedBy) each = await inherited(each, facts.namedBy, decideWith);
      // A tag that was not pulled yet is decided by the digest that it turns out to have, and a blob by its image.
      if (!facts && name.kind !== 'package' && !isDigest(name, reference)) each = each.map(withoutHold);
      decisions.set(reference, each);
      if (at % atATime === atATime - 1) await pause();
    }
    const listed = undated.length > 0 ? await name.facts.listed?.(undated) : undefined;
    for (const [reference, listedAt] of listed ?? []) {
      const facts = { ...known.get(reference), publishedAt: published?.get(reference), listedAt };
      decisions.set(reference, decideWith(reference, facts));
    }
    if (published) await this.#releaseFixes(name, decisions, published, limits);
    return decisions;
  }

  async #releaseFixes(
    name: MirroredName,
    decisions: Map<string, LayerDecision[]>,
    published: ReadonlyMap<string, number | undefined>,
    { layers, isServed = false, at }: Deciding,
  ): Promise<void> {
    const dated = { ...name, facts: { ...name.facts, published: async () => published } };
    const ages = { ...noLimits, layers: layers.map(ageOnly), at };
    const byAge = (versions: readonly string[]) => this.#decide(dated, versions, ages);
    await this.#parts.fixesPass.release({ name, decisions, published, byAge }, isServed);
  }

  async #decider(name: MirroredName, references: readonly string[], limits: Deciding) {
    const { layers, listed, advisories, at } = limits;
    const { now, accountName, waived } = this.#parts;
    const time = at ?? now();
    const account = await accountName(name.accountId);
    const subject = { kind: kindOf(name), names: name.shown, upstream: name.upstream.id, account };
    const badOf = await listed?.entriesOf(references);
    const affecting = await affectingOf(advisories, references);
    const withdrawn = await limits.withdrawn?.(references);
    const republished = await limits.republished?.(references);
    const waiversOf = await waived.of(name, subject.kind, time);
    // One object for all references: a decision keeps neither.
    const asked = { ...subject, reference: '' };
    const known: KnownFacts = {};
    return (reference: string, facts: KnownFacts): LayerDecision[] => {
      asked.reference = reference;
      known.publishedAt = facts.publishedAt;
      known.firstSeenAt = facts.firstSeenAt;
      known.listedAt = facts.listedAt;
      known.digest = facts.digest;
      known.bad = badOf?.(reference);
      known.advisories = affecting.get(reference);
      known.withdrawnAt = withdrawn?.get(reference);
      known.republishedAt = republished?.get(reference);
      known.waivers = waiversOf?.(reference);
      return layers.map((layer) => Object.assign(decide(asked, known, layer, time), { layer }));
    };
  }
}

/** What is decided of a reference: clients get a tag only if they also get its digest. */
function withDigest(reference: string, digest: string | undefined): string[] {
  return digest === undefined || digest === reference ? [reference] : [reference, digest];
}

/** The strictest of decisions. The waivers that lifted something in any of them, and a withdrawal, are evidence, too. */
function withEvidence(decisions: readonly Decision[], withdrawnAt: number | undefined): Decision {
  const decision = strictest(decisions);
  const waivers = new Set(decisions.flatMap((each) => each.waivers ?? []).map(waiverText));
  const withdrawn = withdrawnAt === undefined ? [] : [withdrawnText(withdrawnAt)];
  return { ...decision, evidence: [...decision.evidence, ...waivers, ...withdrawn] };
}

/** What tells the withdrawn references of a name, if one of `layers` denies them. A blob is decided by its image. */
async function withdrawnOf({ kind, facts }: MirroredName, layers: readonly Layer[]) {
  return kind !== 'blob' && layers.some((each) => each.deniesWithdrawn) ? facts.withdrawn?.() : undefined;
}

/** The known vulnerabilities of a name, if one of `layers` needs them. Those that only watch are no reason to fail. */
async function advisoriesOf({ facts }: MirroredName, layers: readonly Layer[]): Promise<readonly KnownAdvisory[]> {
  const needing = layers.filter(({ deniesAdvisory }) => deniesAdvisory);
  if (needing.length === 0 || !facts.advisories) return [];
  try {
    return await facts.advisories();
  } catch (error) {
    if (needing.some(({ isEnforced }) => isEnforced)) throw error;
    return [];
  }
}

async function affectingOf(
  advisories: readonly KnownAdvisory[],
  versions: readonly string[],
): Promise<ReadonlyMap<string, readonly KnownAdvisory[]>> {
  const affecting = new Map<string, KnownAdvisory[]>();
  for (const version of advisories.length > 0 ? versions : []) {
    const found: KnownAdvisory[] = [];
    for await (const each of withPauses(advisories)) if (each.affects(version)) found.push(each);
    affecting.set(version, found);
  }
  return affecting;
}

/** A manifest is open if an index that names it is open by its age. A denial stays. */
async function inherited(
  decisions: readonly LayerDecision[],
  namedBy: () => Promise<ReadonlyMap<string, KnownFacts>>,
  decideWith: (reference: string, facts: KnownFacts) => LayerDecision[],
): Promise<LayerDecision[]> {
  const indexes = [...(await namedBy())].map(([digest, facts]) => decideWith(digest, facts));
  return decisions.map((one, at) => {
    if (one.verdict !== 'hold') return one;
    const index = indexes.map((each) => each[at]!).find(({ verdict }) => verdict === 'allow');
    return index ? { ...index, evidence: [...index.evidence, 'an index that is open names it'] } : one;
  });
}

/** The longest age of a package in any of `layers`; milliseconds. */
function oldestOf(layers: readonly Layer[]): number {
  return Math.max(...layers.map(({ age }) => age.package));
}

function isHeld(decisions: readonly Decision[]): boolean {
  return decisions.some(({ verdict }) => verdict === 'hold');
}

/** Whether the first sighting would say when a hold ends. */
function isWithoutDate({ verdict, until, layer }: LayerDecision): boolean {
  return verdict === 'hold' && until === undefined && layer.unknownDate === 'firstSeen';
}

function ageOnly(layer: Layer): Layer {
  return {
    ...layer,
    fixesPass: false,
    lists: undefined,
    rules: [],
    deniesAdvisory: undefined,
    deniesWithdrawn: false,
    isExcepted: () => false,
  };
}

function withoutHold(decision: LayerDecision): LayerDecision {
  return decision.verdict === 'hold' ? { ...decision, verdict: 'allow' } : decision;
}

function isDigest({ kind }: MirroredName, reference: string): boolean {
  return kind === 'image' && reference.includes(':');
}

/** The kind of a name as policies see it. */
export function kindOf({ kind }: MirroredName): PolicySubject['kind'] {
  return kind === 'package' ? kind : 'image';
}

/** Whether a layer can refuse a reference of this name. A blob has no age. */
function mayRefuse(layer: Layer, name: MirroredName): boolean {
  const kind = kindOf(name);
  if (name.kind !== 'blob' && layer.age[kind] > 0) return true;
  return layer.rules.some(({ verdict, upstreams, isForAllNames, digests, ...sets }) => {
    if (verdict !== 'deny' || (upstreams.length > 0 && !upstreams.includes(name.upstream.id))) return false;
    const set = kind === 'package' ? sets.packages : sets.images;
    return isForAllNames || digests.size > 0 || name.shown.some((each) => set?.includes(each) ?? false);
  });
}

/** What clients get of a decision. A package that is held is not there; an image says until when it is held. */
function verdictOf({ kind, shown }: MirroredName, { verdict, reason = '', layer }: Decision): Verdict {
  if (verdict === 'allow') return 'allow';
  const denied = `The policy refuses ${shown[0]}: ${reason}.`;
  if (verdict === 'deny') return { denied };
  if (kind !== 'package') return { denied, isHidden: true };
  return layer?.listsHeld ? { denied, isHidden: false } : 'hold';
}
