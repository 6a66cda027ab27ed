import type { Actor } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { parsePatterns, type Patterns } from './names.ts';
import { parseScopes, scopes, type Scope } from './principal.ts';

export const granteeKinds = ['person', 'group', 'token', 'account'] as const;

/** Who gets a grant. */
export interface Grantee {
  kind: (typeof granteeKinds)[number];
  /** The provider of a person or a group; null for others. */
  issuer: string | null;
  /** The subject of a person, the ID of a group or a token, or the name of an account. */
  id: string;
}

/** What a grant can give: all but what concerns all accounts. */
export const verbs = scopes.filter((scope) => scope !== 'operate');

/** Who may do what with which names of an account. Times are in milliseconds since 1970 UTC. */
export interface Grant {
  id: string;
  accountId: number;
  subject: Grantee;
  verbs: Scope[];
  /** Null for all names. */
  patterns: Patterns | null;
  createdBy: Actor;
  createdAt: number;
  /** Null for one to another account that it has not accepted, and for those that need not be accepted. */
  acceptedAt: number | null;
}

/** A grant before it is checked. */
export interface NewGrant {
  subject: { kind: string; issuer?: string | null | undefined; id: string };
  verbs: readonly string[];
  patterns?: Patterns | null | undefined;
}

/** A row of the table `grants`. */
export interface GrantRow {
  id: string;
  account_id: number;
  subject_kind: Grantee['kind'];
  issuer: string | null;
  subject_id: string;
  verbs: string;
  patterns: string | null;
  created_by: string;
  created_at: number;
  accepted_at: number | null;
}

const maxIdLength = 255;

/** Checks a grant of the account with this name. People and groups without an issuer are those of `issuer`. Throws `Invalid`. */
export function checkGrant(
  given: NewGrant,
  { issuer: own, account }: { issuer: string | undefined; account: string },
): Pick<Grant, 'subject' | 'verbs' | 'patterns'> {
  const kind = granteeKinds.find((each) => each === given.subject.kind);
  if (kind === undefined) throw invalid('subject.kind', `A grant is for one of ${granteeKinds.join(', ')}.`);
  const id = given.subject.id.trim();
  if (id === '' || id.length > maxIdLength)
    throw invalid('subject.id', `The ID of who gets a grant has 1 to ${maxIdLength} characters.`);
  const isOfProvider = kind === 'person' || kind === 'group';
  const issuer = isOfProvider ? given.subject.issuer?.trim() || own : undefined;
  if (isOfProvider && issuer === undefined) {
    const message = `Name the issuer of the ${kind}: the setting signIn.oidc.issuer has none.`;
    throw invalid('subject.issuer', message);
  }
  if (issuer !== undefined && issuer.length > maxIdLength)
    throw invalid('subject.issuer', `An issuer has at most ${maxIdLength} characters.`);
  const wanted = parseScopes(given.verbs);
  if (wanted.includes('operate'))
    throw invalid('verbs', 'A grant cannot give "operate", which concerns all accounts: use a rule of the settings.');
  const patterns = parsePatterns(given.patterns);
  if (kind === 'account') {
    if (id === account) throw invalid('subject.id', 'An account cannot share names with itself.');
    if (wanted.join() !== 'read' || patterns === null)
      throw invalid('verbs', 'A grant to another account gives only "read", and names packages or images.');
  }
  if (wanted.includes('admin') && patterns !== null)
    throw invalid('verbs', '"admin" concerns the whole account: give it without packages and images.');
  return { subject: { kind, issuer: issuer ?? null, id }, verbs: wanted, patterns };
}

function invalid(field: string, message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field, message }] } });
}

export function rowOfGrant(grant: Grant): GrantRow {
  return {
    id: grant.id,
    account_id: grant.accountId,
    subject_kind: grant.subject.kind,
    issuer: grant.subject.issuer,
    subject_id: grant.subject.id,
    verbs: grant.verbs.join(','),
    patterns: grant.patterns && JSON.stringify(grant.patterns),
    created_by: JSON.stringify(grant.createdBy),
    created_at: grant.createdAt,
    accepted_at: grant.acceptedAt,
  };
}

export function grantOfRow(row: GrantRow): Grant {
  return {
    id: row.id,
    accountId: row.account_id,
    subject: { kind: row.subject_kind, issuer: row.issuer, id: row.subject_id },
    verbs: row.verbs.split(',') as Scope[],
    patterns: row.patterns === null ? null : (JSON.parse(row.patterns) as Patterns),
    createdBy: JSON.parse(row.created_by) as Actor,
    createdAt: row.created_at,
    acceptedAt: row.accepted_at,
  };
}

/** The number of patterns in a grant. */
export function patternCount({ patterns }: Pick<Grant, 'patterns'>): number {
  return Object.values(patterns ?? {}).flat().length;
}
