import { parsePatterns, type Patterns } from '../accounts/names.ts';
import { parseScopes, type Scope } from '../accounts/principal.ts';
import { DomainError } from '../runtime/errors.ts';
import { parseWanted, type Wanted } from './claims.ts';
import type { TrustedIssuer } from './issuer-keys.ts';

/** The audience of every token of Azure Pipelines for Entra; any service that gets such a token could present it here. */
const azureAudience = 'api://AzureADTokenExchange';

/** A rule of an account: identity tokens with these claims are exchanged for tokens with these scopes and names. */
export interface Publisher {
  id: string;
  accountId: number;
  name: string;
  /** The name of the issuer in the settings; of one that is not there any more, the name that it had. */
  issuer: string;
  /** The address of the issuer, which decides: its name can be given to another. Null for a rule of an older version until a start. */
  issuerUrl: string | null;
  claims: Wanted;
  scopes: Scope[];
  patterns: Patterns | null;
  source: 'settings' | 'api';
  /** Milliseconds since 1970; null for a rule of the settings. */
  createdAt: number | null;
  updatedAt: number | null;
}

/** A rule before it is checked and stored. */
export interface NewPublisher {
  name: string;
  issuer: string;
  claims: Readonly<Record<string, unknown>>;
  scopes: readonly string[];
  patterns?: Patterns | null | undefined;
}

export type CheckedPublisher = Pick<Publisher, 'name' | 'issuer' | 'issuerUrl' | 'claims' | 'scopes' | 'patterns'>;

/** Checks a rule for one of the `issuers`. Throws `Invalid`. */
export function checkPublisher(given: NewPublisher, issuers: readonly TrustedIssuer[]): CheckedPublisher {
  const name = given.name.trim();
  if (name === '' || name.length > 200) throw new DomainError('Invalid', 'A rule needs a name of 1 to 200 characters.');
  const issuer = issuers.find((each) => each.name === given.issuer);
  if (!issuer) {
    const known = issuers.map((each) => each.name).join(', ') || 'none';
    const message = `The setting trustedIssuers has no issuer "${given.issuer.slice(0, 100)}". It has: ${known}.`;
    throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'issuer', message }] } });
  }
  return {
    name,
    issuer: issuer.name,
    issuerUrl: issuer.issuer,
    claims: parseWanted(given.claims, issuer.kind),
    scopes: parseScopes(given.scopes),
    patterns: parsePatterns(given.patterns),
  };
}

/** Whether a rule trusts the issuer. */
export function trusts({ issuer, issuerUrl }: Pick<Publisher, 'issuer' | 'issuerUrl'>, other: TrustedIssuer): boolean {
  return issuerUrl === null ? issuer === other.name : issuerUrl === other.issuer;
}

/** What is unsafe or without effect in a rule, in sentences. */
export function warningsOf(
  publisher: Pick<Publisher, 'issuer' | 'issuerUrl' | 'claims'>,
  issuers: readonly TrustedIssuer[],
): string[] {
  const { issuer, issuerUrl, claims } = publisher;
  const found = issuers.find((each) => trusts(publisher, each));
  if (!found) {
    const which = issuerUrl === null ? `"${issuer}"` : `with the address ${issuerUrl}`;
    return [`The setting trustedIssuers has no issuer ${which} any more, so this rule has no effect.`];
  }
  const warnings = issuerWarnings(found);
  if (found.kind === 'github' && !Object.hasOwn(claims, 'repository_id')) {
    warnings.push('Every repository of the owner can use this rule. Add the claim repository_id for one repository.');
  }
  if (found.kind === 'gitlab') warnings.push(...gitlabWarnings(claims));
  return warnings;
}

function gitlabWarnings(claims: Wanted): string[] {
  const warnings: string[] = [];
  if (!Object.hasOwn(claims, 'ref_protected') || claims['ref_protected']!.join() !== 'true') {
    warnings.push(
      'Pipelines of each unprotected branch can use this rule, and pipelines of a merge request from a fork that run in the project. Add the claim ref_protected = true.',
    );
  }
  if (!Object.hasOwn(claims, 'project_id')) {
    warnings.push(
      'Every project of the namespace, also a new fork, can use this rule. Add the claim project_id for one project.',
    );
  }
  return warnings;
}

/** What is unsafe in a trusted issuer, in sentences. */
export function issuerWarnings({ audience }: TrustedIssuer): string[] {
  if (audience !== azureAudience) return [];
  return [
    `All tokens of Azure Pipelines have the audience ${azureAudience}, so each service that gets one can use it here until it expires. Accept only the definitions that need it, by def_id.`,
  ];
}
