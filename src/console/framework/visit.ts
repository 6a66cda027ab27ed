import type { Request } from 'express';
import type { ServerResponse } from 'node:http';
import type { Principal } from '../../accounts/principal.ts';
import type { SessionOwner, Sessions } from '../../accounts/sessions.ts';
import type { Authenticator } from '../../http/authenticate.ts';
import { identify } from '../../http/edge.ts';
import { limitAttempt, limitFailedSignIn, limitLookUp } from '../../http/limit.ts';
import { contextOf } from '../../http/request-context.ts';
import type { Limits } from '../../limits/limits.ts';
import { sessionCookie, setSessionCookie, type Scheme } from './cookie.ts';

/** A request whose sender is known. */
export interface Visit {
  request: Request;
  response: ServerResponse;
  scheme: Scheme;
  base: string;
  /** The ID of the session. */
  session: string | undefined;
  /** Undefined without a session, unless visitors may read without one. */
  principal: Principal | undefined;
  /** The key of the notice that a page shows now. */
  notice: string | undefined;
}

interface VisitParts {
  sessions: Sessions;
  authenticator: Authenticator;
  clients: Limits;
  onRefused: () => void;
}

/** The address of the counters, which a page asks for by itself: that is no use of the session. */
export const countersAddress = '/console/counters';

/** Finds the session of the visitor, or treats the visitor as an anonymous reader. */
export async function findVisitor(parts: VisitParts, visit: Visit): Promise<void> {
  const found = await sessionOf(parts, visit);
  visit.session = found?.id;
  visit.principal = found?.principal ?? parts.authenticator.anonymous;
  await identify(visit.response, visit.principal);
}

/** The session whose cookie the request has; undefined without one. */
export async function sessionOf(
  parts: VisitParts,
  visit: Pick<Visit, 'request' | 'response' | 'scheme'>,
): ReturnType<Sessions['find']> {
  const value = sessionCookie(visit.request, visit.scheme);
  return value === undefined ? undefined : findSession(parts, visit, value);
}

/** A cookie without a session counts as a failed sign-in. One that is not signed counts before the database is asked. */
async function findSession(
  { sessions, clients, onRefused }: VisitParts,
  { request, response, scheme }: Pick<Visit, 'request' | 'response' | 'scheme'>,
  value: string,
): ReturnType<Sessions['find']> {
  const isUse = request.originalUrl !== countersAddress;
  const find = () => limitLookUp(clients, () => sessions.find(value, { isUse }));
  const isSigned = await sessions.isSigned(value);
  const found = isSigned ? await find() : await limitAttempt(clients, find, (each) => each !== undefined);
  if (found) return found;
  // So that a browser whose session has ended counts once.
  response.setHeader('Set-Cookie', setSessionCookie(scheme, undefined));
  if (isSigned) await limitFailedSignIn(clients);
  else onRefused();
  return undefined;
}

/** Begins a session, and ends the one that the browser had before, which must not become this one. */
export async function beginSession(
  { sessions }: Pick<VisitParts, 'sessions'>,
  visit: Visit,
  owner: SessionOwner,
): Promise<string> {
  const { request, response, session, principal } = visit;
  if (session !== undefined) await sessions.end(principal!.accountId, session);
  const agent = request.headers['user-agent'] ?? '';
  return sessions.begin(owner, { agent, address: contextOf(response).remote ?? null });
}
