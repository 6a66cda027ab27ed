import type { ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import { LimitExceeded } from '../limits/limit-exceeded.ts';
import { addressClient, type LimitedClient, type Limits, type RateName } from '../limits/limits.ts';
import type { ConnectionLimits } from './listener.ts';
import { Proxies } from './proxies.ts';
import { AppResponse, currentResponse } from './request-context.ts';

/** What a request costs besides its answer. Each has a limit of its own. */
export type Cost = Extract<RateName, 'searches' | 'pushes'>;

/** Counts an upstream fetch for the request that needs it. Work that no request waits for is not limited. */
export function limitMiss(limits: Limits): Promise<void> | undefined {
  const answer = currentResponse();
  return answer && limits.take('misses', clientOf(answer.context), answer);
}

/** Counts a failed sign-in of the current request for its address. */
export function limitFailedSignIn(limits: Limits): Promise<void> | undefined {
  const answer = currentResponse();
  return answer && limits.take('failed-sign-ins', addressClient(answer.context.remote), answer);
}

/**
 * Runs `work`, which finds out whether a sign-in of the current request is right, and is costly. It counts as a failed sign-in
 * of its address until it has succeeded; see `Limits.attempt`.
 */
export function limitAttempt<T>(
  limits: Limits,
  work: () => Promise<T>,
  succeeded?: (result: T) => boolean,
): Promise<T> {
  const answer = currentResponse();
  return answer ? limits.attempt(addressClient(answer.context.remote), answer, work, succeeded) : work();
}

/** As `limitAttempt`, but it counts for a verified identity, which may come from many addresses. */
export function limitIdentity<T>(
  limits: Limits,
  identity: string,
  work: () => Promise<T>,
  succeeded?: (result: T) => boolean,
): Promise<T> {
  const answer = currentResponse();
  const client = { key: `identity ${identity}`, accountId: 0, accountName: null };
  return answer ? limits.attempt(client, answer, work, succeeded) : work();
}

/** Looks for a credential of the current request. */
export function limitLookUp<T>(limits: Limits, look: () => Promise<T>): Promise<T> {
  return limits.lookUp(() => currentResponse()?.context.remote, look);
}

/** Counts a request whose principal is known. */
export function limitRequest(response: ServerResponse, principal: Principal): Promise<void> | undefined {
  return takeRequest(response, principal.kind === 'anonymous' ? 'anonymous-requests' : 'requests');
}

/** Counts a request that everybody may send, whose credential is not looked at, as one without a token. */
export function limitAnonymous(response: ServerResponse): Promise<void> | undefined {
  return takeRequest(response, 'anonymous-requests');
}

function takeRequest(response: ServerResponse, limit: RateName): Promise<void> | undefined {
  if (!(response instanceof AppResponse)) return undefined;
  const { limits, context } = response;
  return limits?.has(limit) ? limits.take(limit, clientOf(context), response) : undefined;
}

/** Counts the cost of a request, and an upload until its answer ends. */
export async function limitCost(response: ServerResponse, cost: Cost | undefined, stores: boolean): Promise<void> {
  if (!(response instanceof AppResponse) || !response.limits) return;
  const { limits, context } = response;
  if (cost) await limits.take(cost, clientOf(context), response);
  if (!stores) return;
  const end = await limits.upload(clientOf(context), response);
  if (response.gone) end();
  else response.once('close', end);
}

/** Sets the header fields of a refusal because of a limit. */
export function setLimitFields(response: ServerResponse, error: unknown): void {
  if (!(error instanceof LimitExceeded)) return;
  for (const [name, value] of Object.entries(error.fields)) response.setHeader(name, value);
}

/** What connections to a port may use. */
export function connectionLimits({ server, limits: settings }: Config, limits: Limits): ConnectionLimits {
  const { headerTimeout, headerSize, connectionsPerAddress: perAddress } = settings;
  const proxies = new Proxies(server.trustProxy);
  return {
    headerTimeout,
    headerSize,
    perAddress,
    isProxy: (address) => proxies.isProxy(address),
    onRefused: (address) => limits.connectionRefused(address, perAddress ?? 0),
  };
}

function clientOf({ principal, remote }: AppResponse['context']): LimitedClient {
  if (!principal || principal.kind === 'anonymous') return addressClient(remote);
  const { accountId, accountName } = principal;
  const key = principal.kind === 'person' ? `person ${principal.personId}` : `token ${principal.tokenId}`;
  return { key, accountId, accountName };
}
