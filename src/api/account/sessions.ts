import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { allowObject } from '../../accounts/allow.ts';
import { tokenIdOf, type Principal } from '../../accounts/principal.ts';
import type { Session, Sessions } from '../../accounts/sessions.ts';
import { DomainError } from '../../runtime/errors.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { listOf, session } from '../framework/schemas.ts';
import { filterText, timedPage, timedQuery, countedTotal } from '../framework/sorted.ts';

export const sessionList = listOf(session).extend({ total: countedTotal });

const sessionsQuery = timedQuery.extend({
  q: filterText('Only sessions of tokens and people whose names contain this text, in any letter case'),
  token_id: z.uuid('expected the ID of a token').optional().meta({ description: 'Only sessions that began with it' }),
});

/**
 * `/sessions`: who is signed in to the console. A session of a person belongs to each account that rules give the person, and
 * to the account that it uses. A limited token sees and ends only its own sessions. A session with the scope `operate` is ended
 * only with that scope.
 */
export function sessionOperations(sessions: Sessions): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/sessions',
      id: 'listSessions',
      summary: 'List the open sessions of the console, the latest first',
      action: 'admin',
      query: sessionsQuery,
      status: 200,
      answer: sessionList,
      run: async ({ principal, query }) => {
        const { entries, ...page } = await timedPage(query, {
          name: 'sessions',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Session) => [each.createdAt, each.id] as [number, string],
          read: (limit, after, isOldest) =>
            sessions.list(principal.accountId, limit, after, { tokenId: query.token_id, isOldest }),
          isVisible: (each) => sees(principal, each) && nameOf(each).toLowerCase().includes(query.q),
        });
        return { items: entries.map(toSession), ...page };
      },
    }),
    operation({
      method: 'delete',
      path: '/sessions/:id',
      id: 'endSession',
      summary: 'End a session of the console at once',
      action: 'admin',
      params: { id: 'The ID of the session' },
      status: 204,
      run: async ({ principal, params }) => {
        const found = await sessions.get(principal.accountId, params['id']!);
        if (!found || !sees(principal, found)) {
          throw new DomainError('NotFound', 'This account has no such session. It may have ended.');
        }
        if (!isOwn(principal, found)) allowObject(principal, { scopes: found.scopes, patterns: null });
        await sessions.end(principal.accountId, found.id);
      },
    }),
  ];
}

function sees(principal: Principal, session: Session): boolean {
  if (principal.names) return isOwn(principal, session);
  return session.person?.accounts.includes(principal.accountName) ?? true;
}

/** Whether it is a session of the same token or person. */
function isOwn(principal: Principal, { tokenId, person }: Session): boolean {
  if (principal.kind === 'person') return person?.id === principal.personId;
  return tokenId === tokenIdOf(principal);
}

function toSession({ scopes: _scopes, person, ...each }: Session): z.input<typeof session> {
  return { ...jsonItem(each), person: person && { id: person.id, name: person.name } };
}

function nameOf({ person, tokenName }: Session): string {
  return person?.name ?? tokenName ?? '';
}
