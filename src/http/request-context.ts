import { randomUUID } from 'node:crypto';
import { ServerResponse, type OutgoingHttpHeaders } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import { currentCaller, runFor, type Caller } from '../caller.ts';
import type { UsageAction, SubjectKind } from '../usage/counters.ts';

/** What is noted about one request on its way: for the access log, the metrics and usage. */
export interface RequestContext {
  /** The request's `X-Request-Id`. */
  id: string;
  /** By `performance.now()`. */
  startedAt: number;
  principal: Principal | undefined;
  /** What the request was about, and for what it was made: the routes know. */
  kind: SubjectKind;
  subject: string;
  version: string | undefined;
  act: UsageAction | undefined;
  /** The `Cache-Status` of the answer. */
  cache: string | undefined;
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

/** Every field is there from the start, which keeps it quick. */
function newContext(): RequestContext {
  return {
    id: randomUUID(),
    startedAt: performance.now(),
    principal: undefined,
    kind: 'other',
    subject: '',
    version: undefined,
    act: undefined,
    cache: undefined,
    received: 0,
    sent: 0,
    fetched: 0,
    fetching: 0,
    fetchedLater: undefined,
  };
}

/** Stored content comes from strangers: a browser that is led to it runs nothing of it (CSP 3, 6.3.2 "sandbox"). */
const contentPolicy = "default-src 'none'; sandbox";

/** An answer, with the record of the request that it answers: what servers here are made with (`ServerResponse`). */
export class AppResponse extends ServerResponse implements Caller {
  readonly context = newContext();
  /** A client that takes nothing of the answer for so many milliseconds is cut off. */
  idle = 60_000;
  #listeners: Set<() => void> | undefined;
  /** The headers of every answer to this request. Node sends headers faster when none was set before, one by one. */
  readonly always: OutgoingHttpHeaders = {
    'X-Request-Id': this.context.id,
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': contentPolicy,
  };

  /** Anonymous readers have an account of their own where it is about how much is asked for at a time. */
  get account(): string | undefined {
    const { principal } = this.context;
    if (!principal) return undefined;
    return principal.kind === 'anonymous' ? 'anonymous' : String(principal.accountId);
  }

  get gone(): boolean {
    return this.destroyed || this.closed;
  }

  whenGone(then: () => void): () => void {
    if (!this.#listeners) {
      const listeners = new Set<() => void>();
      this.#listeners = listeners;
      this.once('close', () => {
        for (const each of listeners) each();
      });
    }
    this.#listeners.add(then);
    return () => this.#listeners?.delete(then);
  }

  /** Takes headers by name, and no reason phrase. */
  override writeHead(status: number, ...rest: unknown[]): this {
    const headers = { ...this.always, ...(rest[0] as OutgoingHttpHeaders | undefined) };
    this.context.cache = headers['Cache-Status'] as string | undefined;
    // Without a listener Node destroys the connection; after the answer it sets the time-out of idle connections again.
    this.setTimeout(this.idle);
    return super.writeHead(status, headers);
  }
}

/** Runs `work`, which answers one request; everything that it starts belongs to that request. */
export function runInContext(answer: AppResponse, work: () => void): void {
  runFor(answer, work);
}

/** The answer to the request that the running code belongs to; undefined for work that no request started. */
export function currentResponse(): AppResponse | undefined {
  let caller = currentCaller();
  while (caller && !(caller instanceof AppResponse)) caller = caller.startedBy;
  return caller;
}

/** The record of the request that `response` answers. */
export function contextOf(response: ServerResponse): RequestContext {
  return responseOf(response).context;
}

/** Gives every answer to this request a header, whatever it comes to. */
export function alwaysSend(response: ServerResponse, name: string, value: string): void {
  responseOf(response).always[name] = value;
}

function responseOf(response: ServerResponse): AppResponse {
  if (response instanceof AppResponse) return response;
  throw new Error('this response has no context: its server was not made with AppResponse');
}

/** For whoever asks an upstream now: where to count the bytes that come, however long it takes. */
export function countFetched(): (bytes: number) => void {
  const context = currentResponse()?.context;
  if (!context) return () => undefined;
  context.fetching += 1;
  return (bytes) => {
    context.fetching -= 1;
    if (context.fetchedLater) context.fetchedLater(bytes);
    else context.fetched += bytes;
  };
}
