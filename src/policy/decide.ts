import type { NameSet } from '../accounts/names.ts';
import type { BadEntry } from '../known-bad/entry.ts';
import type { KnownAdvisory } from '../mirror/policy/admission.ts';
import { severities } from '../mirror/policy/severities.ts';
import type { PolicyRule } from './document.ts';

/** A reference of a name at an upstream, which is a version, tag or digest, as rules see it. */
export interface PolicySubject {
  kind: 'package' | 'image';
  /** The names by which patterns mean it, in lower case: a package's key, or an image with the name of its upstream. */
  names: readonly string[];
  reference: string;
  /** The ID of the upstream. */
  upstream: string;
  /** The name of the account that asks; undefined for readers without one. */
  account: string | undefined;
}

type AdvisoryFact = Pick<KnownAdvisory, 'id' | 'severity'>;

/** What is known of a reference. Times are in milliseconds since 1970 UTC. */
export interface KnownFacts {
  /** When the upstream published it, as it says; undefined if it says nothing. */
  publishedAt?: number | undefined;
  /** When its content was stored here first. */
  firstSeenAt?: number | undefined;
  /** When the upstream first offered it, if it says no date. */
  listedAt?: number | undefined;
  /** The digest that a tag has. */
  digest?: string | undefined;
  /** The known vulnerabilities that it has. */
  advisories?: readonly AdvisoryFact[] | undefined;
  /** When it was certain that the upstream does not offer it any more. */
  withdrawnAt?: number | undefined;
  /** When its upstream was seen to send other content for it than the first that was stored here. */
  republishedAt?: number | undefined;
  /** Entries of lists of known bad content that mean it. */
  bad?: readonly Pick<BadEntry, 'list' | 'id' | 'reason'>[] | undefined;
  /** The approved waivers that concern it now. */
  waivers?: readonly WaiverFact[] | undefined;
}

/** An approved waiver, of one layer. */
export interface WaiverFact {
  id: number;
  layer: Layer['scope'];
  /** `age`, `withdrawn`, `republished`, the name of a rule, or the ID of an advisory or of an entry of a list. */
  lifts: string;
  /** When it ends; milliseconds since 1970 UTC. */
  until: number;
  /** Who approved it. */
  by: string;
}

/** A rule whose patterns were read. */
export interface CompiledRule extends Pick<PolicyRule, 'name' | 'verdict' | 'reason' | 'upstreams'> {
  packages: NameSet | undefined;
  images: NameSet | undefined;
  accounts: NameSet | undefined;
  digests: ReadonlySet<string>;
  hasTag: (tag: string) => boolean;
  hasVersion: (version: string) => boolean;
  isForAllNames: boolean;
}

/** A time in which a layer was in force with one minimum age. */
export interface Regime {
  /** The age of each kind; milliseconds. */
  packages: number;
  images: number;
  /** As `unknownDate` of the layer; undefined in those of earlier versions, and while all was open. */
  unknownDate?: Layer['unknownDate'] | undefined;
  /** When it ended. */
  until: number;
}

/** The policy for all accounts, or for one. */
export interface Layer {
  scope: 'all' | 'account';
  isEnforced: boolean;
  /** The lists of known bad content by which it denies; undefined for a policy. */
  lists?: ReadonlySet<string> | undefined;
  age: Readonly<Record<PolicySubject['kind'], number>>;
  /** Whether the age does not hold versions that fix a known vulnerability. */
  fixesPass: boolean;
  unknownDate: 'firstSeen' | 'hold';
  /** Whether lists show what is held. */
  listsHeld: boolean;
  /** Whether it denies what has a known vulnerability; undefined if it denies none for that. */
  deniesAdvisory?: ((advisory: AdvisoryFact) => boolean) | undefined;
  /** Whether it denies what upstreams do not offer any more. */
  deniesWithdrawn: boolean;
  isExcepted: (subject: PolicySubject) => boolean;
  rules: readonly CompiledRule[];
  /** Earlier times of this layer, in which other ages were in force. */
  regimes: readonly Regime[];
  /** Until when it only watches; undefined if it is not suspended. */
  suspendedUntil?: number | undefined;
}

/** A sentence, or what happened at a time, in milliseconds since 1970 UTC. Texts of times take long to make, and few are read. */
export type Evidence = string | { what: string; at: number };

/** What is decided of a reference, and why. */
export interface Decision {
  verdict: 'allow' | 'hold' | 'deny';
  /** The layer that decided; undefined if none refuses it. */
  layer?: Layer | undefined;
  /** `age`, `except`, `fixesPass`, `advisories`, `withdrawn`, `republished`, the name of a rule, or the ID of an entry of `list`. */
  rule?: string | undefined;
  /** The list of known bad content that decided. */
  list?: string | undefined;
  reason?: string | undefined;
  /** When a hold ends; undefined if it has no end that is known. */
  until?: number | undefined;
  /** What led to the decision. */
  evidence: readonly Evidence[];
  /** The waivers that lifted something of the layer; undefined if none did. */
  waivers?: readonly WaiverFact[] | undefined;
}

/** The decision of one layer. */
export type LayerDecision = Decision & { layer: Layer };

/** Whether a waiver lifts what has this name: the age, a rule, an advisory or an entry of a list. */
type LiftTest = (kind: 'age' | 'rule' | 'advisory' | 'entry', name: string) => boolean;

/** How far an upstream's clock may be ahead; milliseconds. A later date is no date. */
const clockSkew = 5 * 60_000;

/** The verdict of one layer on a reference. It works without I/O and without a clock: it depends on nothing but what is given. */
export function decide(subject: PolicySubject, facts: KnownFacts, layer: Layer, now: number): Decision {
  const { waivers: given } = facts;
  if (!given?.length) return decideWith(noLift, subject, facts, layer, now);
  const waivers = new Set<WaiverFact>();
  const isLifted: LiftTest = (kind, name) => {
    const waiver = given.find((each) => each.layer === layer.scope && liftedBy(each, kind, name));
    if (waiver) waivers.add(waiver);
    return waiver !== undefined;
  };
  const decision = decideWith(isLifted, subject, facts, layer, now);
  return waivers.size > 0 ? { ...decision, waivers: [...waivers] } : decision;
}

const noLift: LiftTest = () => false;

function decideWith(
  isLifted: LiftTest,
  subject: PolicySubject,
  facts: KnownFacts,
  layer: Layer,
  now: number,
): Decision {
  const bad = facts.bad?.find(({ list, id }) => layer.lists?.has(list) && !isLifted('entry', id));
  if (bad) return { verdict: 'deny', layer, rule: bad.id, list: bad.list, reason: badText(bad), evidence: [] };
  const rule = layer.rules.find(
    (each) => matches(each, subject, facts) && !(each.verdict === 'deny' && isLifted('rule', each.name)),
  );
  if (rule?.verdict === 'deny') {
    const reason = rule.reason ?? `the rule ${rule.name} denies it`;
    return { verdict: 'deny', layer, rule: rule.name, reason, evidence: [`rule ${rule.name}`] };
  }
  const advisory = worstOf(
    facts.advisories?.filter((each) => layer.deniesAdvisory?.(each) && !isLifted('advisory', each.id)),
  );
  if (advisory) return { verdict: 'deny', layer, rule: 'advisories', reason: advisoryText(advisory), evidence: [] };
  if (facts.withdrawnAt !== undefined && layer.deniesWithdrawn && !isLifted('rule', 'withdrawn')) {
    return {
      verdict: 'deny',
      layer,
      rule: 'withdrawn',
      reason: 'its upstream does not offer it any more',
      evidence: [],
    };
  }
  if (facts.republishedAt !== undefined && !layer.lists && !isLifted('rule', 'republished')) {
    return {
      verdict: 'deny',
      layer,
      rule: 'republished',
      reason: 'its upstream has published this version again with other content',
      evidence: [{ what: 'other content than the first one stored here', at: facts.republishedAt }],
    };
  }
  if (rule) return { verdict: 'allow', layer, rule: rule.name, evidence: [`rule ${rule.name}`] };
  const age = layer.age[subject.kind];
  if (age === 0) return { verdict: 'allow', evidence: [] };
  if (layer.isExcepted(subject)) return { verdict: 'allow', layer, rule: 'except', evidence: ['exception of the age'] };
  const decision = decideAge(subject.kind, facts, layer, age, now);
  if (decision.verdict === 'allow' || !isLifted('age', 'age')) return decision;
  return { verdict: 'allow', layer, rule: 'age', evidence: decision.evidence };
}

/** A rule may have the name `age`; a waiver with that word lifts only the age. */
function liftedBy({ lifts }: WaiverFact, kind: Parameters<LiftTest>[0], name: string): boolean {
  return (lifts === 'age') === (kind === 'age') && lifts.toLowerCase() === name.toLowerCase();
}

/** A sentence. */
export function evidenceText(evidence: Evidence): string {
  return typeof evidence === 'string' ? evidence : `${evidence.what} ${timeText(evidence.at)}`;
}

/** When content was withdrawn, as evidence. */
export function withdrawnText(withdrawnAt: number): string {
  return `withdrawn by its upstream, as seen here ${timeText(withdrawnAt)}`;
}

/** A waiver, as evidence. */
export function waiverText({ id, layer, until, by }: WaiverFact): string {
  const whose = layer === 'all' ? 'all accounts' : 'the account';
  return `waiver ${id} in the policy of ${whose}, until ${timeText(until)}, by ${by}`;
}

/** Whether a layer refuses names that it does not mention, however old their content is: clients then get next to nothing. */
export function refusesAll(layer: Layer, now: number): boolean {
  if (!layer.isEnforced) return false;
  // A registry says no dates.
  const facts: Record<PolicySubject['kind'], KnownFacts> = {
    package: { publishedAt: 0, firstSeenAt: 0 },
    image: { firstSeenAt: 0 },
  };
  return (Object.keys(facts) as PolicySubject['kind'][]).some((kind) => {
    const subject = {
      kind,
      names: ['a/name/that/no/rule/mentions'],
      reference: '1.0.0',
      upstream: '',
      account: undefined,
    };
    return decide(subject, facts[kind], layer, now).verdict !== 'allow';
  });
}

const open: Decision = { verdict: 'allow', evidence: [] };

/** The strictest of decisions; of holds the one that ends last. */
export function strictest(decisions: readonly Decision[]): Decision {
  const strictness = { allow: 0, hold: 1, deny: 2 } as const;
  const untilOf = ({ until = Infinity }: Decision) => until;
  return decisions.reduce<Decision>((one, other) => {
    const more = strictness[other.verdict] - strictness[one.verdict];
    if (more > 0) return other;
    if (more < 0) return one;
    if (one.verdict === 'allow')
      return one.rule === undefined && (other.rule !== undefined || one.evidence.length === 0) ? other : one;
    // A denial has no end.
    return untilOf(other) > untilOf(one) ? other : one;
  }, open);
}

function decideAge(kind: PolicySubject['kind'], facts: KnownFacts, layer: Layer, age: number, now: number): Decision {
  const { firstSeenAt } = facts;
  const stated = (facts.publishedAt ?? Infinity) <= now + clockSkew ? facts.publishedAt : undefined;
  const known = Math.min(stated ?? facts.listedAt ?? Infinity, firstSeenAt ?? Infinity);
  const sinceWith = (unknownDate: Regime['unknownDate']) =>
    stated === undefined && unknownDate === 'hold' ? Infinity : known;
  const since = sinceWith(layer.unknownDate);
  const evidence: Evidence[] = [];
  if (stated !== undefined) evidence.push({ what: 'published', at: stated });
  else if (facts.listedAt !== undefined) evidence.push({ what: 'first offered', at: facts.listedAt });
  if (firstSeenAt !== undefined) evidence.push({ what: 'first stored here', at: firstSeenAt });
  if (since + age <= now) return { verdict: 'allow', evidence };
  if (layer.regimes.some(wasOpen)) {
    return { verdict: 'allow', layer, rule: 'age', evidence: [...evidence, 'was open before the age was made longer'] };
  }
  const until = Number.isFinite(since) ? since + age : undefined;
  const reason =
    until === undefined
      ? `its date is not known, and the minimum age is ${daysText(age)}`
      : `it is younger than ${daysText(age)}; it can be used from ${timeText(until)} on`;
  return { verdict: 'hold', layer, rule: 'age', reason, until, evidence };

  /** Whether content that is stored here was open when a regime ended. */
  function wasOpen({ [`${kind}s` as const]: earlier, unknownDate, until: end }: Regime): boolean {
    return Math.max(firstSeenAt ?? Infinity, earlier === 0 ? 0 : sinceWith(unknownDate) + earlier) < end;
  }
}

function matches(
  rule: CompiledRule,
  { kind, names, reference, upstream, account }: PolicySubject,
  facts: KnownFacts,
): boolean {
  if (rule.upstreams.length > 0 && !rule.upstreams.includes(upstream)) return false;
  if (rule.accounts && !(account !== undefined && rule.accounts.includes(account))) return false;
  if (rule.isForAllNames) return true;
  if (rule.digests.has(reference) || (facts.digest !== undefined && rule.digests.has(facts.digest))) return true;
  const set = kind === 'package' ? rule.packages : rule.images;
  if (!set || !names.some((name) => set.includes(name))) return false;
  return kind === 'package' ? rule.hasVersion(reference) : rule.hasTag(reference);
}

function worstOf(advisories: readonly AdvisoryFact[] = []): AdvisoryFact | undefined {
  return advisories.toSorted((one, other) => other.severity - one.severity)[0];
}

function advisoryText({ id, severity }: AdvisoryFact): string {
  return `it has a known vulnerability of the severity ${severities[severity]} (${id})`;
}

function badText({ id, reason }: Pick<BadEntry, 'id' | 'reason'>): string {
  const text = reason.replace(/\.+$/, '');
  return `it is known to be bad (${id})${text === '' ? '' : `: ${text}`}`;
}

function timeText(time: number): string {
  return `${new Date(time).toISOString().slice(0, -8)}Z`;
}

function daysText(milliseconds: number): string {
  const units = [
    ['day', 86_400_000],
    ['hour', 3_600_000],
    ['minute', 60_000],
  ] as const;
  const [unit, size] = units.find(([, each]) => milliseconds % each === 0) ?? ['second', 1000];
  const count = Math.round(milliseconds / size);
  return `${count} ${unit}${count === 1 ? '' : 's'}`;
}
