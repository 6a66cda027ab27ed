import { DomainError } from '../runtime/errors.ts';
import type { Principal } from './principal.ts';

/**
 * Who counts as one, so that nobody decides an own request: a person with all own tokens, a rule with all tokens that it gives, or
 * else a token. Throws `Unauthorized`.
 */
export function requesterOf(principal: Principal): string {
  if (principal.kind === 'anonymous') throw new DomainError('Unauthorized', 'Authenticate with an API token.');
  if (principal.personId !== null) return `person:${principal.personId}`;
  const { publisherId, tokenId } = principal as Extract<Principal, { kind: 'token' }>;
  return publisherId === null ? `token:${tokenId}` : `rule:${publisherId}`;
}
