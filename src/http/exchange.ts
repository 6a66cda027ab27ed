import { AsyncLocalStorage } from 'node:async_hooks';
import type { ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import type { Act, SubjectKind } from '../usage/counters.ts';

/** What is noted about one request on its way: for the access log, the metrics and usage. */
export interface Exchange {
  id: string;
  startedAt: number;
  principal?: Principal;
  /** Which route answered, with placeholders: bounded, for metrics. */
  route?: string;
  /** What the request was about, and for what it was made: the routes know. */
  kind?: SubjectKind;
  subject?: string;
  version?: string;
  act?: Act | undefined;
  /** Bytes of body taken in. */
  received: number;
  /** Bytes of body that were handed to the system, the last write of an answer that broke off included. */
  sent: number;
  /** Bytes of bodies that upstreams sent because of this request, as far as it has not ended yet. */
  fetched: number;
  /** Hears of bytes from upstreams after the end. */
  fetchedLater?: (bytes: number) => void;
}

const exchanges = new WeakMap<ServerResponse, Exchange>();
const current = new AsyncLocalStorage<Exchange>();

/** Opens the record of a request; done once, before any route. */
export function openExchange(response: ServerResponse, exchange: Exchange): void {
  exchanges.set(response, exchange);
}

/** Runs `work`, the whole of the request's: what it begins belongs to the request. */
export function runExchange(exchange: Exchange, work: () => void): void {
  current.run(exchange, work);
}

/** The record of the request that `response` answers. */
export function exchangeOf(response: ServerResponse): Exchange {
  const exchange = exchanges.get(response);
  if (!exchange) throw new Error('this response has no exchange: the request log must come first');
  return exchange;
}

/** For whoever asks an upstream now: where to count the bytes that come, however long it takes. */
export function countFetched(): (bytes: number) => void {
  const exchange = current.getStore();
  return (bytes) => {
    if (!exchange || bytes === 0) return;
    if (exchange.fetchedLater) exchange.fetchedLater(bytes);
    else exchange.fetched += bytes;
  };
}
