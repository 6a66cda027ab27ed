import { NameSet, textMatcher } from '../accounts/names.ts';
import { severities } from '../mirror/policy/severities.ts';
import { DomainError } from '../runtime/errors.ts';
import type { CompiledRule, Layer, Regime } from './decide.ts';
import type { PolicyPlaceOf, PolicyDocument, PolicyRule } from './document.ts';

/** Reads a range of versions; undefined if the text is none. A protocol knows how. */
export type RangeReader = (range: string) => ((version: string) => boolean) | undefined;

interface Written {
  scope: Layer['scope'];
  document: PolicyDocument;
  regimes: readonly Regime[];
}

/** The layer that a policy makes. Throws `Invalid` for a range that cannot be read; `placeOf` names its line. */
export function compileLayer(
  { scope, document, regimes }: Written,
  readRange: RangeReader,
  placeOf: PolicyPlaceOf = () => '',
): Layer {
  const { mode, minimumAge, advisories, withdrawn, rules } = document;
  const excepted = { package: setOf(minimumAge.except.packages), image: setOf(minimumAge.except.images) };
  return {
    scope,
    isEnforced: mode === 'enforce',
    age: { package: minimumAge.packages, image: minimumAge.images },
    fixesPass: minimumAge.fixesPass,
    unknownDate: minimumAge.unknownDate,
    listsHeld: minimumAge.held === 'list',
    deniesAdvisory: advisoryTest(advisories),
    deniesWithdrawn: withdrawn === 'deny',
    isExcepted: ({ kind, names, upstream }) =>
      minimumAge.except.upstreams.includes(upstream) || names.some((name) => excepted[kind]?.includes(name) ?? false),
    rules: rules.map((rule, at) =>
      compileRule(rule, readRange, () => `${placeOf(['rules', at, 'versions'])}rules.${at}.versions`),
    ),
    regimes,
  };
}

function advisoryTest({ severity: wanted, except }: PolicyDocument['advisories']): Layer['deniesAdvisory'] {
  if (wanted === undefined) return undefined;
  const least = severities.indexOf(wanted);
  const excepted = new Set(except.map((id) => id.toLowerCase()));
  return ({ id, severity }) => severity >= least && !excepted.has(id.toLowerCase());
}

function compileRule(rule: PolicyRule, readRange: RangeReader, versionsPlace: () => string): CompiledRule {
  const hasVersion = rule.versions === undefined ? () => true : readRange(rule.versions);
  if (!hasVersion) {
    throw new DomainError(
      'Invalid',
      `${versionsPlace()}: expected a range of versions such as [2.0.0, 3.0.0), or [2.0.0] for one version`,
    );
  }
  // Tags differ by letter case, unlike names.
  const tags = rule.tags.map(textMatcher);
  const { name, verdict, reason, upstreams } = rule;
  return {
    name,
    verdict,
    reason,
    upstreams,
    packages: setOf(rule.packages),
    images: setOf(rule.images),
    accounts: setOf(rule.accounts),
    digests: new Set(rule.digests),
    hasVersion,
    hasTag: (tag) => tags.length === 0 || tags.some((each) => each(tag)),
    isForAllNames: rule.packages.length + rule.images.length + rule.digests.length === 0,
  };
}

function setOf(patterns: readonly string[]): NameSet | undefined {
  return patterns.length > 0 ? new NameSet(patterns) : undefined;
}
