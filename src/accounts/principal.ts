import { DomainError } from '../runtime/errors.ts';
import type { Names } from './names.ts';
import type { SharedNames } from './shared-names.ts';

/** All but `operate` concern only the account of the token; `operate` concerns what all accounts share. */
export const scopes = ['read', 'write', 'delete', 'promote', 'admin', 'operate'] as const;
export type Scope = (typeof scopes)[number];

/** What each scope allows. A test compares docs/security.md and SECURITY.md with this. */
export const scopeTexts: Readonly<Record<Scope, string>> = {
  read: 'list and download packages and images; read account and usage',
  write: 'push packages and images; relist and deprecate versions',
  delete: 'unlist and delete versions; delete tags, manifests and blobs; list and restore what was deleted',
  promote:
    'promote versions and images to another account or name without pushing them; approve what others want to promote to the account',
  admin:
    'manage tokens, grants, rules for identity tokens, webhooks, sessions of the console, imports from other servers, claims of names, the policy and the rules for promotions of the account, what is frozen and kept; delete for good; read the audit of the account, which token uses what, and whose requests policies refuse; check whether clients use this server',
  operate:
    'what concerns all accounts: jobs, prefetches, bundles, upstreams, instances, the policy, the audit and the metrics of all; with "delete", drop mirrored versions and tags',
};

interface Rights {
  accountId: number;
  accountName: string;
  /** Those that it has for some names. */
  scopes: ReadonlySet<Scope>;
  /** The names that it is limited to; undefined for all names. Where scopes differ, those of `read`. */
  names: Names | undefined;
  /** For each scope its names, undefined for all names. Only where scopes differ in their names. */
  namesByScope?: ReadonlyMap<Scope, Names | undefined> | undefined;
  /** The names of other accounts that it may read; undefined without any. */
  shared?: SharedNames | undefined;
}

/** A job of a CI, by the claims of its identity token. */
export interface CiJob {
  /** The same for all tokens of the job: a digest of its account, issuer, repository, ref and run. */
  id: string;
  /** The name of the trusted issuer. */
  issuer: string;
  /** Null where the issuer says none. */
  repository: string | null;
  ref: string | null;
  run: string | null;
  /** The subject of its identity token. */
  subject: string | null;
}

/** The bearer of an API token. */
export interface TokenPrincipal extends Rights {
  kind: 'token';
  tokenId: string;
  tokenName: string;
  /** The rule that gave the token, which is named after it; null for other tokens. */
  publisherId: string | null;
  /** The person whose personal token it is, or made it; null for other tokens. */
  personId: string | null;
  personName: string | null;
  /** The job that got it, or got the token that made it; null for other tokens. */
  job: CiJob | null;
  /** Milliseconds since 1970; null for never. */
  expiresAt: number | null;
  /** Whether it ends soon after it was made, such as one that a rule gave: it makes nothing that has no end. */
  isShortLived: boolean;
}

/** A person who signed in to the console. */
export interface PersonPrincipal extends Rights {
  kind: 'person';
  /** The same for each session of the person: a digest of issuer and subject, never an e-mail address. */
  personId: string;
  personName: string;
  /** The names of all accounts that the person may use. */
  accounts: readonly string[];
}

/** A reader without a credential. */
export interface AnonymousPrincipal extends Rights {
  kind: 'anonymous';
  /** Whether it may read hosted content, or only what is mirrored. */
  reads: 'all' | 'mirrored';
}

/** The sender of a request. */
export type Principal = TokenPrincipal | PersonPrincipal | AnonymousPrincipal;

/**
 * Whether the principal may read hosted content. If not, lists and searches show it only mirrored content, and every name
 * that is not served from an upstream answers as without a credential, so that its answer does not show what is hosted.
 */
export function readsHosted(principal: Principal): boolean {
  return principal.kind !== 'anonymous' || principal.reads === 'all';
}

/** An account that hosts nothing: for a principal that may not read hosted content. Generated IDs start at 1. */
export const noAccount = 0;

/** Checks one kind of credential. */
export interface Verifier {
  /** The principal of the credential `value`; undefined if it is not a valid credential of this kind. */
  verify(value: string): Promise<Principal | undefined>;
}

/** The id of the token that `principal` presented; undefined for other principals. */
export function tokenIdOf(principal: Principal | undefined): string | undefined {
  return principal?.kind === 'token' ? principal.tokenId : undefined;
}

/** Checks a list of scopes and removes duplicates; `Invalid` names an unknown scope. */
export function parseScopes(list: readonly string[]): Scope[] {
  const wanted = new Set(list.map((each) => each.trim()).filter(Boolean));
  for (const each of wanted) {
    if (!(scopes as readonly string[]).includes(each)) {
      throw new DomainError('Invalid', `There is no scope "${each}"; there are ${scopes.join(', ')}.`);
    }
  }
  if (wanted.size === 0) throw new DomainError('Invalid', `Name at least one scope of ${scopes.join(', ')}.`);
  return scopes.filter((each) => wanted.has(each));
}
