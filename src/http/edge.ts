import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { allow, type Action } from '../accounts/allow.ts';
import type { Principal } from '../accounts/principal.ts';
import { isDomainError, type DomainError } from '../errors.ts';
import type { SubjectKind } from '../usage/counters.ts';
import type { Quota } from '../usage/quota.ts';
import { contextOf } from './request-context.ts';
import { admit } from './quota.ts';

/** What a protocol does for one kind of request. */
export interface Operation<Call> {
  readonly action: Action;
  /** Whether it stores its body, which counts against the limits of the account. */
  readonly stores: boolean;
  run(call: Call): void | Promise<void>;
}

/** A request of a principal who may do the operation. */
export interface Allowed<Target, Call> {
  request: IncomingMessage;
  response: ServerResponse;
  target: Target;
  principal: Principal;
  operation: Operation<Call>;
}

/** What sets one protocol apart from the others at the edge. `Target` is what its path addresses. */
export interface Protocol<Target, Call> {
  readonly kind: SubjectKind;
  readonly log: Logger;
  readonly quota: Quota;
  /** Throws `Unauthorized`. */
  authenticate(request: IncomingMessage, target: Target): Promise<Principal>;
  /** Throws `NotFound`, or `Unsupported` for a method, after it has set `Allow`. */
  find(target: Target, request: IncomingMessage, response: ServerResponse): Operation<Call>;
  /** Checks the names that are asked for, and that the principal may use them. */
  open(allowed: Allowed<Target, Call>): Call | Promise<Call>;
  /** The protocol's table of errors; undefined for one that it never meets, which is a defect. */
  statusOf(error: DomainError): number | undefined;
  /** `WWW-Authenticate` of a 401 or a 403. */
  challenge(error: DomainError, request: IncomingMessage, target: Target): string | string[] | undefined;
  /** Sends the body of a refusal; without `error`, of a 500, which tells nothing but where to look. */
  refuse(request: IncomingMessage, response: ServerResponse, status: number, error?: DomainError): void;
}

/** Answers a request. Never rejects. */
export type Edge<Target> = (target: Target, request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** The one way of a request through any protocol: authenticate, find the operation, allow, bound, run, answer or refuse. */
export function createEdge<Target, Call>(protocol: Protocol<Target, Call>): Edge<Target> {
  return async (target, request, response) => {
    const context = contextOf(response);
    context.kind = protocol.kind;
    try {
      const principal = await protocol.authenticate(request, target);
      context.principal = principal;
      const operation = protocol.find(target, request, response);
      allow(principal, operation.action);
      const call = await protocol.open({ request, response, target, principal, operation });
      if (operation.stores) await admit(protocol.quota, request, response, principal);
      await operation.run(call);
    } catch (error) {
      refuse(protocol, target, request, response, error);
    }
  };
}

function refuse<Target, Call>(
  protocol: Protocol<Target, Call>,
  target: Target,
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
): void {
  const known = isDomainError(error) ? error : undefined;
  const status = known && protocol.statusOf(known);
  const { id } = contextOf(response);
  if (response.headersSent || response.destroyed) {
    if (status === undefined) protocol.log.error({ err: error, request: id }, 'an answer broke off');
    response.destroy();
    return;
  }
  if (!known || status === undefined) {
    protocol.log.error({ err: error, request: id }, 'a request failed');
    protocol.refuse(request, response, 500);
    return;
  }
  if (status === 401 || status === 403) {
    const challenge = protocol.challenge(known, request, target);
    if (challenge !== undefined) response.setHeader('WWW-Authenticate', challenge);
  }
  if (known.name === 'RangeNotSatisfiable') {
    response.setHeader('Content-Range', `bytes */${String(known.detail?.['size'])}`);
  }
  if (known.retryAfter !== undefined) response.setHeader('Retry-After', known.retryAfter);
  protocol.refuse(request, response, status, known);
}
