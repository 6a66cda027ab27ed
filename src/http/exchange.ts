import { AsyncLocalStorage } from 'node:async_hooks';
import type { ServerResponse } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import type { Act, SubjectKind } from '../usage/counters.ts';

/** What is noted about one request on its way: for the access log, the metrics and usage. */
export interface Exchange {
  id: string;
  startedAt: number;
  principal: Principal | undefined;
  /** Which route answered, with placeholders: bounded, for metrics. */
  route: string | undefined;
  /** What the request was about, and for what it was made: the routes know. */
  kind: SubjectKind;
  subject: string;
  version: string | undefined;
  act: Act | undefined;
  /** Bytes of body taken in. */
  received: number;
  /** Bytes of body that were handed to the system, the last write of an answer that broke off included. */
  sent: number;
  /** Bytes of bodies that upstreams sent because of this request, until it ended. */
  fetched: number;
  /** How many bodies are on their way from upstreams, and who hears of their bytes when the request has ended. */
  fetching: number;
  fetchedLater: ((bytes: number) => void) | undefined;
}

/** The record of a request that begins; every field is there from the start, which keeps it quick. */
export function newExchange(id: string, startedAt: number): Exchange {
  return {
    id,
    startedAt,
    principal: undefined,
    route: undefined,
    kind: 'other',
    subject: '',
    version: undefined,
    act: undefined,
    received: 0,
    sent: 0,
    fetched: 0,
    fetching: 0,
    fetchedLater: undefined,
  };
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
  if (!exchange) return () => undefined;
  exchange.fetching += 1;
  return (bytes) => {
    exchange.fetching -= 1;
    if (exchange.fetchedLater) exchange.fetchedLater(bytes);
    else exchange.fetched += bytes;
  };
}
