import type { ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';

/** What is noted about one request on its way: for the access log, the metrics and usage. */
export interface Exchange {
  id: string;
  startedAt: number;
  principal?: Principal;
  /** Which route answered, with placeholders: bounded, for metrics. */
  route?: string;
  /** Bytes of body taken in. */
  received: number;
  /** Bytes of body that left. */
  sent: number;
}

const exchanges = new WeakMap<ServerResponse, Exchange>();

/** Opens the record of a request; done once, before any route. */
export function openExchange(response: ServerResponse, exchange: Exchange): void {
  exchanges.set(response, exchange);
}

/** The record of the request that `response` answers. */
export function exchangeOf(response: ServerResponse): Exchange {
  const exchange = exchanges.get(response);
  if (!exchange) throw new Error('this response has no exchange: the request log must come first');
  return exchange;
}
