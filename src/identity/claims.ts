import { textMatcher } from '../accounts/names.ts';
import type { IssuerKind } from '../config/identity.ts';
import { DomainError } from '../runtime/errors.ts';
import { pause } from '../runtime/event-loop.ts';
import type { Claims } from './identity-token.ts';

/** The values that a rule accepts, by claim. */
export type Wanted = Readonly<Record<string, readonly string[]>>;

/** A claim of a token that a rule does not accept. */
export interface Mismatch {
  claim: string;
  wanted: readonly string[];
  /** The values that the token has; empty without the claim. */
  found: readonly string[];
}

/** Most claims of a rule, values of a claim, and characters of a name or a value. */
const maxClaims = 20;
const maxValues = 20;
const maxTextLength = 500;
/** Values of a list in a token that are compared, and characters of a value; a longer one matches no `*`. */
const maxCompared = 1000;
const maxComparedLength = 1000;

/**
 * Claims that stay the same when something is renamed, and are never given to another project, by kind of issuer. A rule
 * needs one of them. The owner of a name can change.
 */
const identifying: Record<IssuerKind, readonly string[]> = {
  github: ['repository_id', 'repository_owner_id', 'enterprise_id'],
  gitlab: ['project_id', 'namespace_id'],
  azure: ['org_id', 'prj_id', 'def_id'],
  kubernetes: ['kubernetes.io/serviceaccount/uid', 'sub'],
  other: [],
};

/** IDs that are numbers. */
const numbered: Partial<Record<IssuerKind, readonly string[]>> = {
  github: identifying.github,
  gitlab: identifying.gitlab,
};

/** Claims that every token has, and that are checked without a rule. */
const ownClaims = new Set(['iss', 'aud', 'exp', 'nbf', 'iat', 'jti']);

/** Checks the claims of a rule, and writes them as lists of texts. Throws `Invalid`. */
export function parseWanted(claims: Readonly<Record<string, unknown>>, kind: IssuerKind): Wanted {
  const names = Object.keys(claims);
  if (names.length === 0 || names.length > maxClaims) throw invalid(`Name 1 to ${maxClaims} claims.`);
  const wanted = names.map((name) => [name, valuesOf(name, claims[name], kind)] as const);
  const ids = identifying[kind];
  if (ids.length > 0 && !ids.some((id) => names.includes(id))) {
    throw invalid(`Add one of the claims ${ids.join(', ')}: another project could get a name, but never an ID.`);
  }
  return Object.fromEntries(wanted);
}

function valuesOf(name: string, given: unknown, kind: IssuerKind): readonly string[] {
  if (name === '' || name.length > maxTextLength)
    throw invalid(`The name of a claim has 1 to ${maxTextLength} characters.`);
  if (name === '__proto__' || ownClaims.has(name)) throw invalid(`A rule cannot name the claim "${name}".`);
  if (name === 'sub' && ['github', 'gitlab', 'azure'].includes(kind)) {
    throw invalid(
      'A rule cannot name the claim "sub", whose form depends on the issuer. Name the claims it consists of.',
    );
  }
  const values = Array.isArray(given) ? given.map(String) : [String(given)];
  if (values.length === 0 || values.length > maxValues) {
    throw invalid(`Give the claim "${name}" 1 to ${maxValues} values.`);
  }
  for (const value of values) {
    if (value === '' || value.length > maxTextLength) {
      throw invalid(`A value of the claim "${name}" has 1 to ${maxTextLength} characters.`);
    }
    if (value.includes('*') && identifying[kind].includes(name)) {
      throw invalid(`The claim "${name}" is an ID: give its whole value, without "*".`);
    }
    if (numbered[kind]?.includes(name) && !/^\d+$/.test(value)) {
      throw invalid(`The claim "${name}" is a number, such as 123456: "${value.slice(0, 100)}" never matches.`);
    }
    if (/^\*+$/.test(value)) throw invalid(`The claim "${name}" accepts every value with "*": leave it out instead.`);
  }
  return values;
}

/** The values of a claim, ready to be compared. */
interface Prepared {
  exact: ReadonlySet<string>;
  /** For each other value, whether a text matches it. */
  patterns: readonly ((text: string) => boolean)[];
}

/** By the values of a rule, which stay the same objects until the rule is changed. */
const preparedValues = new WeakMap<readonly string[], Prepared>();

/** The claims of the token that do not have a wanted value. Letter case counts. */
export async function mismatches(wanted: Wanted, claims: Claims): Promise<Mismatch[]> {
  const missed: Mismatch[] = [];
  for (const [claim, values] of Object.entries(wanted)) {
    const found = valuesIn(claims, claim);
    if (!(await matchesSome(prepare(values), found))) missed.push({ claim, wanted: values, found });
  }
  return missed;
}

function prepare(values: readonly string[]): Prepared {
  let prepared = preparedValues.get(values);
  if (!prepared) {
    const exact = new Set(values.filter((each) => !each.includes('*')));
    const patterns = values.filter((each) => !exact.has(each)).map((each) => textMatcher(each));
    preparedValues.set(values, (prepared = { exact, patterns }));
  }
  return prepared;
}

async function matchesSome({ exact, patterns }: Prepared, found: readonly string[]): Promise<boolean> {
  if (found.some((each) => exact.has(each))) return true;
  const compared = found.filter((each) => each.length <= maxComparedLength);
  for (const matches of patterns) {
    const pausing = pause();
    if (pausing) await pausing;
    if (compared.some((each) => matches(each))) return true;
  }
  return false;
}

/** Whether a rule that misses only these claims was written for the project that the token comes from. */
export function isForProject(wanted: Wanted, missed: readonly Mismatch[], kind: IssuerKind): boolean {
  const ids = identifying[kind].filter((id) => Object.hasOwn(wanted, id));
  return ids.length > 0 && missed.every(({ claim }) => !ids.includes(claim));
}

/** The values of a claim as texts. `a/b` is the claim `b` in the object `a`, unless there is a claim named `a/b`. */
export function valuesIn(claims: Claims, name: string, most = maxCompared): string[] {
  const value = Object.hasOwn(claims, name) ? claims[name] : inside(claims, name.split('/'));
  return [value]
    .flat()
    .slice(0, most)
    .filter((each) => ['string', 'number', 'boolean'].includes(typeof each))
    .map(String);
}

function inside(claims: Claims, path: readonly string[]): unknown {
  let value: unknown = claims;
  for (const key of path) {
    if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, key))
      return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

function invalid(message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field: 'claims', message }] } });
}
