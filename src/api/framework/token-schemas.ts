import { z } from 'zod';
import { personLacks } from '../../accounts/token-rows.ts';
import { countedTotal } from './sorted.ts';
import { actor, givenPatterns, listOf, patterns, scope, time, wantedScopes } from './schemas.ts';

// The requests and answers about tokens.

export const token = z
  .strictObject({
    id: z.uuid(),
    name: z.string(),
    token_prefix: z.string().meta({
      description:
        'The start of the value: enough to recognise the token, not enough to use it. Empty for a chosen value',
    }),
    scopes: z.array(scope),
    patterns,
    publisher_id: z
      .string()
      .nullable()
      .meta({ description: 'The rule that gave it, or gave the token that made it; null for other tokens' }),
    person_id: z
      .string()
      .nullable()
      .meta({ description: 'The person whose personal token it is, or made it; null for other tokens' }),
    created_by: actor.nullable().meta({ description: 'Who made it; null for a token that an older version made' }),
    created_at: time,
    expires_at: time.nullable(),
    last_used_at: time.nullable(),
    revoked_at: time.nullable(),
    refused_because: z.enum(personLacks).nullable().meta({
      description:
        'Why a personal token is refused: its person is disabled here, has not signed in for too long, or has no right in the account that the token may use. Null for all others',
    }),
  })
  .meta({ id: 'Token' });

export const newToken = token
  .extend({ token: z.string().meta({ description: 'The value. Only this answer contains it.' }) })
  .meta({ id: 'NewToken' });

export const tokenRequest = z
  .strictObject({
    name: z.string().trim().min(1).max(200),
    scopes: wantedScopes,
    patterns: givenPatterns,
    expires_at: z.iso
      .datetime({ offset: true })
      .nullable()
      .optional()
      .meta({ description: 'RFC 3339, in the future. The token never expires if this is null or missing' }),
  })
  .meta({ id: 'TokenRequest' });

/** What lists warn of. */

export const tokenList = listOf(token).extend({ total: countedTotal });
