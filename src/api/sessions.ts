import { z } from 'zod';
import { tokenIdOf } from '../accounts/principal.ts';
import type { Session, Sessions } from '../accounts/sessions.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
import { session, sessionList, timeOf } from './schemas.ts';

/** `/sessions`: who is signed in to the console. A limited token sees and ends only its own sessions. */
export function sessionOperations(sessions: Sessions): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/sessions',
      id: 'listSessions',
      summary: 'List the open sessions of the console, the latest first',
      action: 'admin',
      query: pageQuery,
      status: 200,
      answer: sessionList,
      run: async ({ principal, query }) => {
        const { entries, next_cursor } = await readPage(query, {
          name: 'sessions',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Session) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => sessions.list(principal.accountId, limit, after),
          isVisible: principal.names && (({ tokenId }) => tokenId === tokenIdOf(principal)),
        });
        return { items: entries.map(toSession), next_cursor };
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
      run: ({ principal, params }) =>
        sessions.end(principal.accountId, params['id']!, principal.names && tokenIdOf(principal)),
    }),
  ];
}

function toSession(each: Session): z.input<typeof session> {
  return {
    id: each.id,
    token_id: each.tokenId,
    person: each.person,
    agent: each.agent,
    address: each.address,
    created_at: timeOf(each.createdAt),
    last_used_at: timeOf(each.usedAt),
  };
}
