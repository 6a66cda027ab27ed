import type {
  Judge,
  KnownAdvisory,
  MirroredName,
  NameFacts,
  Verdict,
  WithdrawnTimes,
} from '../mirror/policy/admission.ts';
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
  type PolicySubject,
} from './decide.ts';
import type { FixesPass } from './fixes-pass.ts';
import type { ListedName, ListedNames } from './listed-names.ts';
import type { Policies } from './policies.ts';
import type { WaivedNames } from './waived-names.ts';

interface GateParts {
  policies: Policies;
  listed: ListedNames;
  waived: WaivedNames;
  fixesPass: FixesPass;
  accountName: (accountId: number) => Promise<string | undefined>;
  now: () => number;
}

/** A decision of a layer that has a policy for the name. */
type LayerDecision = Decision & { layer: Layer };

/** What is decided of a reference, by the layers that are enforced, and by all of them. */
interface PolicyExplanation {
  enforced: Decision;
  audited: Decision;
  facts: KnownFacts;
}

/** What may refuse something of a name. */
interface Limits {
  layers: readonly Layer[];
  listed: ListedName | undefined;
  advisories: readonly KnownAdvisory[];
  withdrawn: WithdrawnTimes | undefined;
  /** Whether clients get what is decided. */
  isServed?: boolean;
  /** The time of the decision; undefined for now. */
  at?: number | undefined;
}

/** References that are decided without a pause. */
const atATime = 500;

/** Decides by the policies which mirrored content is shown and served. */
export class PolicyGate {
  readonly #parts: GateParts;
  /** Refusals of content since the start of this process, by kind, verdict and mode. */
  readonly refusals = new Map<string, { kind: string; verdict: string; mode: string; count: number }>();

  constructor(parts: GateParts) {
    this.#parts = parts;
    for (const kind of ['package', 'image', 'blob'] as const)
      for (const verdict of ['hold', 'deny'] as const)
        for (const mode of ['enforce', 'audit'] as const) this.#refusalsOf(kind, verdict, mode);
  }

  /** For `Admission`. */
  readonly judge: Judge = async (name, references, purpose) => {
    const limits = await this.#limitsOf(name);
    if (limits.layers.length === 0) return undefined;
    const enforced = limits.layers.filter(({ isEnforced }) => isEnforced);
    if (purpose === 'content') await this.#audit(name, references, limits);
    if (enforced.length === 0) return undefined;
    // Lists show what is denied.
    const holds = enforced.some(({ age }) => age[kindOf(name)] > 0);
    if (purpose === 'list' && references.length > 0 && !holds) return undefined;
    const decisions = await this.#decide(name, references, { ...limits, layers: enforced, isServed: true });
    if (purpose === 'content') for (const each of decisions.values()) this.#count(name, each);
    return (reference) => verdictOf(name, strictest(decisions.get(reference) ?? []));
  };

  /** What is decided of one reference, with the age that it has at the time `at`. Throws if the upstream's dates cannot be read. */
  async explain(name: MirroredName, reference: string, at = this.#parts.now()): Promise<PolicyExplanation> {
    const withdrawn = await name.facts.withdrawn?.();
    const limits = { ...(await this.#limitsOf(name)), withdrawn, at };
    const known = (await name.facts.of([reference])).get(reference);
    const publishedAt = (await name.facts.published?.(-Infinity))?.get(reference);
    // Clients get a tag only if they also get its digest.
    const references = [...new Set([reference, ...(known?.digest === undefined ? [] : [known.digest])])];
    const decisions = [...(await this.#decide(name, references, limits)).values()].flat();
    const withdrawnAt = (await withdrawn?.([reference]))?.get(reference);
    return {
      enforced: withEvidence(
        decisions.filter(({ layer }) => layer.isEnforced),
        withdrawnAt,
      ),
      audited: withEvidence(decisions, withdrawnAt),
      facts: { ...known, publishedAt, withdrawnAt },
    };
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
        this.#refusalsOf('image', verdict, layer.isEnforced ? 'enforce' : 'audit').count += 1;
        if (layer.isEnforced) throw new DomainError('Denied', `The policy refuses ${name}: ${reason}.`);
      }
    }
  }

  async #limitsOf(name: MirroredName): Promise<Limits> {
    if (name.kind === 'symbols') return { layers: [], listed: undefined, advisories: [], withdrawn: undefined };
    const policies = await this.#parts.policies.layersOf(name.accountId);
    const listed = await this.#parts.listed.of(name);
    const advisories = await advisoriesOf(name, policies);
    const withdrawn = await withdrawnOf(name, policies);
    const refusing = policies.filter(
      (layer) =>
        mayRefuse(layer, name) ||
        (withdrawn && layer.deniesWithdrawn) ||
        advisories.some((each) => layer.deniesAdvisory?.(each)),
    );
    return { layers: [...(listed?.layers ?? []), ...refusing], listed, advisories, withdrawn };
  }

  /** Counts what layers would refuse that only watch. What they need and cannot get is no reason to refuse anything. */
  async #audit(name: MirroredName, references: readonly string[], limits: Limits): Promise<void> {
    const watching = limits.layers.filter(({ isEnforced }) => !isEnforced);
    if (watching.length === 0) return;
    const decisions = await this.#decide(name, references, { ...limits, layers: watching }).catch(() => undefined);
    for (const each of decisions?.values() ?? []) this.#count(name, each);
  }

  async #decide(
    name: MirroredName,
    references: readonly string[],
    limits: Limits,
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
      let each = decideWith(reference, facts ?? {});
      if (isHeld(each) && name.facts.published) {
        published ??= await name.facts.published((limits.at ?? this.#parts.now()) - oldestOf(layers));
        each = decideWith(reference, { ...facts, publishedAt: published?.get(reference) });
        if (each.some(isWithoutDate)) undated.push(reference);
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
    { layers, isServed = false, at }: Limits,
  ): Promise<void> {
    const dated = { ...name, facts: { ...name.facts, published: async () => published } };
    const ages = { layers: layers.map(ageOnly), listed: undefined, advisories: [], withdrawn: undefined, at };
    const byAge = (versions: readonly string[]) => this.#decide(dated, versions, ages);
    await this.#parts.fixesPass.release({ name, decisions, published, byAge }, isServed);
  }

  async #decider(name: MirroredName, references: readonly string[], limits: Limits) {
    const { layers, listed, advisories, at } = limits;
    const { now, accountName, waived } = this.#parts;
    const time = at ?? now();
    const account = await accountName(name.accountId);
    const subject = { kind: kindOf(name), names: name.shown, upstream: name.upstream.id, account };
    const badOf = await listed?.entriesOf(references);
    const affecting = await affectingOf(advisories, references);
    const withdrawn = await limits.withdrawn?.(references);
    const waiversOf = await waived.of(name, subject.kind, time);
    return (reference: string, facts: KnownFacts): LayerDecision[] => {
      const known = {
        ...facts,
        bad: badOf?.(reference),
        advisories: affecting.get(reference),
        withdrawnAt: withdrawn?.get(reference),
        waivers: waiversOf?.(reference),
      };
      return layers.map((layer) => ({ ...decide({ ...subject, reference }, known, layer, time), layer }));
    };
  }

  #count({ kind }: MirroredName, decisions: readonly LayerDecision[]): void {
    for (const { verdict, layer } of decisions) {
      if (verdict === 'allow') continue;
      this.#refusalsOf(kind, verdict, layer.isEnforced ? 'enforce' : 'audit').count += 1;
    }
  }

  #refusalsOf(kind: string, verdict: string, mode: string) {
    const key = `${kind}/${verdict}/${mode}`;
    const counted = this.refusals.get(key) ?? { kind, verdict, mode, count: 0 };
    this.refusals.set(key, counted);
    return counted;
  }
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

function kindOf({ kind }: MirroredName): PolicySubject['kind'] {
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
  if (kind === 'package' && !layer?.listsHeld) return 'hold';
  return { denied, isHidden: !layer?.listsHeld };
}
