import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { allow, credentialMissing, forAction, type Action } from '../accounts/allow.ts';
import type { Principal } from '../accounts/principal.ts';
import { DomainError } from '../runtime/errors.ts';
import { checkIn } from '../usage/client-checks.ts';
import type { SubjectKind } from '../usage/counters.ts';
import type { Quota } from '../usage/quota.ts';
import { limitCost, limitRequest, setLimitFields, type Cost } from './limit.ts';
import { oneLine } from './reason.ts';
import { contextOf, onlyAccountOf } from './request-context.ts';
import { admit } from './quota.ts';
import { asDomainError, noteUnavailable } from './unavailable.ts';

/** How a protocol handles one kind of request. */
export interface WireOperation<Call> {
  readonly action: Action;
  /** Whether it stores the request body, which counts against the limits of the account. */
  readonly stores: boolean;
  /** What it costs, if that has a limit. */
  readonly cost?: Cost | undefined;
  run(call: Call): void | Promise<void>;
}

/** A request whose principal may do the operation. */
export interface Allowed<Target, Call> {
  request: IncomingMessage;
  response: ServerResponse;
  target: Target;
  principal: Principal;
  operation: WireOperation<Call>;
}

/** How an interface refuses requests. `Target` is what is known of a request before it is answered. */
export interface Refusals<Target> {
  readonly log: Logger;
  /** The HTTP status of a domain error; undefined for one that the interface cannot have, which is a bug. */
  statusOf(error: DomainError, target: Target): number | undefined;
  /** The `WWW-Authenticate` header of a 401 or 403. */
  challenge?(error: DomainError, request: IncomingMessage, target: Target): string | string[] | undefined;
  /** Counts a failed sign-in, where each `Unauthorized` is one. May throw `TooManyRequests` instead. */
  onUnauthorized?(): void | Promise<void>;
  /** Sends an error answer. Without `error` it is a 500, which contains only the request ID to search the log for. */
  refuse(
    request: IncomingMessage,
    response: ServerResponse,
    status: number,
    error: DomainError | undefined,
    target: Target,
  ): void;
}

/** How the edge handles one protocol. */
export interface WireProtocol<Target, Call> extends Refusals<Target> {
  readonly kind: SubjectKind;
  readonly quota: Quota;
  /** Throws `Unauthorized`. */
  authenticate(request: IncomingMessage, target: Target): Promise<Principal>;
  /** Throws `NotFound`. For a wrong method, sets `Allow` and throws `Unsupported`. */
  find(target: Target, request: IncomingMessage, response: ServerResponse): WireOperation<Call>;
  /** Checks the names in the request, and that the principal may use them. */
  open(allowed: Allowed<Target, Call>): Call | Promise<Call>;
}

/** Answers a request. What `createEdge` and `answerOrRefuse` make never rejects. */
export type Edge<Target> = (target: Target, request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** Sent where there would be content: no upstream is asked for a name that only a check has. */
const checkedName =
  'This name is that of a check of clients. The request has arrived here, and there is nothing to send.';

/** The steps of a request in every protocol: authenticate, find the operation, allow, check limits, run, or refuse. */
export function createEdge<Target, Call>(protocol: WireProtocol<Target, Call>): Edge<Target> {
  return answerOrRefuse(protocol, async (target, request, response) => {
    contextOf(response).kind = protocol.kind;
    const sender = await protocol.authenticate(request, target);
    const limited = identify(response, sender);
    if (limited) await limited;
    const operation = protocol.find(target, request, response);
    allow(sender, operation.action);
    const principal = forAction(sender, operation.action);
    const call = await protocol.open({ request, response, target, principal, operation });
    if (operation.action === 'read' && protocol.kind !== 'other' && checkIn(request.url!) !== undefined)
      throw new DomainError('NotFound', checkedName);
    if (operation.stores) await admit(protocol.quota, request, response, principal);
    if (operation.stores || operation.cost) await limitCost(response, operation.cost, operation.stores);
    await operation.run(call);
  });
}

/** An interface with steps of its own: what `answer` throws is refused. */
export function answerOrRefuse<Target>(refusals: Refusals<Target>, answer: Edge<Target>): Edge<Target> {
  return (target, request, response) =>
    answer(target, request, response).catch((error: unknown) => refuse(refusals, target, request, response, error));
}

/**
 * Records who sends the request, and counts it. Throws `TooManyRequests`; at an alias of an account `Denied` for the credentials of
 * another one, and `Unauthorized` without credentials.
 */
export function identify(response: ServerResponse, principal: Principal | undefined): Promise<void> | undefined {
  const only = onlyAccountOf(response);
  if (principal && only !== undefined && principal.accountName !== only) {
    if (principal.kind === 'anonymous') throw credentialMissing();
    throw new DomainError('Denied', 'This address is for another account. Use the address of this server itself.');
  }
  contextOf(response).principal = principal;
  return principal && limitRequest(response, principal);
}

/** Answers a request that failed with `error`; interrupts an answer that has begun. */
export async function refuse<Target>(
  refusals: Refusals<Target>,
  target: Target,
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
): Promise<void> {
  const { log } = refusals;
  let known = asDomainError(error);
  if (known?.name === 'Unauthorized' && refusals.onUnauthorized) {
    try {
      await refusals.onUnauthorized();
    } catch (limited) {
      known = asDomainError(limited) ?? known;
    }
  }
  noteUnavailable(log, response, known);
  const status = known && refusals.statusOf(known, target);
  const context = contextOf(response);
  const { id } = context;
  const upstream = known?.detail?.['upstream'];
  context.failure = {
    code: known?.name ?? 'Internal',
    reason: known?.message ?? 'The server has a defect; its log has the details.',
    upstream: typeof upstream === 'string' ? upstream : null,
  };
  if (known?.name === 'StorageFull' && known.cause !== undefined) {
    log.warn({ err: known.cause, request: id }, 'a write failed because the disk is full');
  }
  if (known?.name === 'KeyUnavailable') {
    log.error({ err: known.cause, request: id }, 'a request failed because the key of webhooks is unavailable');
  }
  if (response.headersSent || response.destroyed) {
    if (status === undefined) log.error({ err: error, request: id }, 'an answer was interrupted by an error');
    response.destroy();
    return;
  }
  if (!known || status === undefined) {
    log.error({ err: error, request: id }, 'a request failed');
    refusals.refuse(request, response, 500, undefined, target);
    return;
  }
  if (status === 401 || status === 403) {
    const challenge = refusals.challenge?.(known, request, target);
    if (challenge !== undefined) response.setHeader('WWW-Authenticate', challenge);
  }
  if (known.name === 'RangeNotSatisfiable') {
    response.setHeader('Content-Range', `bytes */${String(known.detail?.['size'])}`);
  }
  setLimitFields(response, known);
  if (known.retryAfter !== undefined) response.setHeader('Retry-After', known.retryAfter);
  // NuGet's clients, docker and podman show the reason phrase, and often nothing else.
  if (status >= 400) response.statusMessage = oneLine(known.message);
  refusals.refuse(request, response, status, known, target);
}
