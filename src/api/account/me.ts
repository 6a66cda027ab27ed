import { z } from 'zod';
import type { Principal } from '../../accounts/principal.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { scope, time, timeOrNull } from '../framework/schemas.ts';

const me = z
  .strictObject({
    kind: z.enum(['token', 'person']),
    id: z.string().meta({ description: 'Of the token, or of the person' }),
    name: z.string().meta({ description: 'Of the token, or of the person' }),
    account: z.string().meta({ description: 'The name of the account in use' }),
    accounts: z.array(z.string()).meta({ description: 'The names of all accounts that the person may use' }),
    scopes: z.array(scope).meta({ description: 'What it may do there, with some names at least' }),
    limited: z.boolean().meta({ description: 'Whether name patterns limit one of these scopes' }),
    person_id: z
      .string()
      .nullable()
      .meta({ description: 'The person, also the one whose personal token it is; null for other tokens' }),
    expires_at: time.nullable().meta({ description: 'When the token ends; null for never, and for a person' }),
  })
  .meta({ id: 'Me' });

/** `/me`: whose credential a request has, and what it may do. */
export const meOperation: Operation = operation({
  method: 'get',
  path: '/me',
  id: 'getMe',
  summary: 'Show whose token, or whose session of the console, the request has, and what it may do in its account',
  action: 'any',
  session: true,
  status: 200,
  answer: me,
  run: ({ principal }) => Promise.resolve(itemOf(principal)),
});

function itemOf(principal: Principal): z.input<typeof me> {
  if (principal.kind === 'anonymous') throw new Error('the action lets no anonymous reader in');
  const { accountName: account, scopes, names, namesByScope } = principal;
  const isPerson = principal.kind === 'person';
  return {
    kind: principal.kind,
    id: isPerson ? principal.personId : principal.tokenId,
    name: isPerson ? principal.personName : principal.tokenName,
    account,
    accounts: isPerson ? [...principal.accounts] : [account],
    scopes: [...scopes],
    limited: [...(namesByScope?.values() ?? [names])].some((each) => each !== undefined),
    person_id: principal.personId,
    expires_at: isPerson ? null : timeOrNull(principal.expiresAt),
  };
}
