import { isNode, LineCounter, parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { maxPatternLength } from '../accounts/names.ts';
import { duration } from '../config/units.ts';
import { listSettings } from '../known-bad/list-settings.ts';
import { severities } from '../mirror/policy/severities.ts';
import { DomainError } from '../runtime/errors.ts';

/** Most characters of a policy and of what is said of a mistake, and most entries of each of its lists. */
const maxPolicyLength = 65_536;
const maxMessageLength = 1000;
const maxRules = 200;
const maxPatterns = 100;

const patterns = z.array(z.string().min(1).max(maxPatternLength)).max(maxPatterns).default([]);
const named = z.string().regex(/^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/, 'expected a name such as no-foo-2');
const digest = z.string().regex(/^sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})$/, 'expected a digest such as sha256:…');

const minimumAge = z.strictObject({
  packages: duration.default(0),
  images: duration.default(0),
  fixesPass: z.boolean().default(true),
  unknownDate: z.enum(['firstSeen', 'hold'], 'expected firstSeen or hold').default('firstSeen'),
  held: z.enum(['hide', 'list'], 'expected hide or list').default('hide'),
  except: z.strictObject({ packages: patterns, images: patterns, upstreams: patterns }).prefault({}),
});

/** What a policy decides of content that is bad. */
const onlyDeny = z.literal('deny', 'expected deny').default('deny');

const knownBad = z.strictObject({ lists: listSettings.default([]), verdict: onlyDeny });

const advisories = z.strictObject({
  severity: z.enum(severities, 'expected low, moderate, high or critical').optional(),
  verdict: onlyDeny,
  except: z.array(z.string().min(1).max(100)).max(1000).default([]),
});

const rule = z
  .strictObject({
    name: named,
    packages: patterns,
    versions: z.string().min(1).max(200).optional(),
    images: patterns,
    tags: patterns,
    digests: z.array(digest).max(1000).default([]),
    upstreams: patterns,
    accounts: patterns,
    verdict: z.enum(['allow', 'deny'], 'expected allow or deny'),
    reason: z.string().min(1).max(200).optional(),
  })
  .superRefine((each, context) => {
    const lack = (field: string, other: string) =>
      context.addIssue({ code: 'custom', path: [field], message: `needs ${other} in the same rule` });
    if (each.versions !== undefined && each.packages.length === 0) lack('versions', 'packages');
    if (each.tags.length > 0 && each.images.length === 0) lack('tags', 'images');
    if ([each.packages, each.images, each.digests, each.upstreams, each.accounts].every(({ length }) => length === 0)) {
      lack('verdict', 'packages, images, digests, upstreams or accounts');
    }
  });

/** A policy as it is written (contract of `/v1/policy`). Durations are in milliseconds. */
const policySchema = z
  .strictObject({
    mode: z.enum(['enforce', 'audit'], 'expected enforce or audit').default('enforce'),
    minimumAge: minimumAge.prefault({}),
    knownBad: knownBad.prefault({}),
    advisories: advisories.prefault({}),
    withdrawn: z.enum(['keep', 'deny'], 'expected keep or deny').default('keep'),
    rules: z.array(rule).max(maxRules).default([]),
  })
  .superRefine(({ rules }, context) => {
    const names = rules.map(({ name }) => name);
    const second = names.findIndex((name, at) => names.indexOf(name) < at);
    if (second < 0) return;
    context.addIssue({ code: 'custom', path: ['rules', second, 'name'], message: 'another rule has this name' });
  });

export type PolicyDocument = z.output<typeof policySchema>;
/** `line N: ` of a place in the text of a policy; empty for a policy that has no text. */
export type PolicyPlaceOf = (path: readonly PropertyKey[]) => string;
export type PolicyRule = PolicyDocument['rules'][number];

/**
 * Reads a policy from YAML or JSON text; null for an empty document, which ends a policy. Throws `Invalid`, whose message names
 * the line and the key. `placeOf` names the line in further messages.
 */
export function parsePolicy(
  text: string,
): { document: PolicyDocument; written: unknown; placeOf: PolicyPlaceOf } | null {
  if (text.length > maxPolicyLength) throw invalid(`The policy has more than ${maxPolicyLength} characters.`);
  const lines = new LineCounter();
  // A key that is no text would become one, which takes a time that grows without bound with its depth.
  const parsed = parseDocument(text, { lineCounter: lines, stringKeys: true });
  const [problem] = [...parsed.errors, ...parsed.warnings];
  if (problem) throw invalid(`line ${problem.linePos?.[0].line ?? 1}: ${problem.message.split('\n', 1)[0]}`);
  let written: unknown;
  try {
    written = parsed.toJS({ maxAliasCount: 0 });
  } catch {
    throw invalid('line 1: a policy has no aliases');
  }
  const placeOf: PolicyPlaceOf = (path) => {
    // The innermost part of the path that the text has: a missing key has no line of its own.
    for (let length = path.length; length >= 0; length -= 1) {
      const node = length === 0 ? parsed.contents : parsed.getIn(path.slice(0, length), true);
      if (isNode(node) && node.range) return `line ${lines.linePos(node.range[0]).line}: `;
    }
    return '';
  };
  const checked = checkPolicy(written, placeOf);
  return checked && { ...checked, placeOf };
}

/** A policy as YAML. */
export function writePolicy(written: unknown): string {
  return stringify(written);
}

/** Checks a policy that is given as a value; null for an empty one. Throws `Invalid`. */
export function checkPolicy(
  written: unknown,
  placeOf: PolicyPlaceOf = () => '',
): { document: PolicyDocument; written: unknown } | null {
  if (written === null || written === undefined) return null;
  if (typeof written === 'object' && !Array.isArray(written) && Object.keys(written).length === 0) return null;
  const result = policySchema.safeParse(written);
  if (result.success) return { document: result.data, written };
  const issue = result.error.issues[0]!;
  const isUnknown = issue.code === 'unrecognized_keys';
  const path = isUnknown ? [...issue.path, issue.keys[0]!] : issue.path;
  const message = isUnknown ? 'there is no such key' : issue.message;
  throw invalid(`${placeOf(path)}${path.join('.') || 'policy'}: ${message}`);
}

function invalid(message: string): DomainError {
  return new DomainError('Invalid', message.slice(0, maxMessageLength));
}
