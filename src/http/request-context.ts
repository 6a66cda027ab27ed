import { randomUUID } from 'node:crypto';
import { ServerResponse, type OutgoingHttpHeaders } from 'node:http';
import type { Principal } from '../accounts/principal.ts';
import { currentCaller, runFor, type Actor, type Caller, type Origin } from '../runtime/caller.ts';
import type { UsageAction, SubjectKind } from '../usage/counters.ts';
import type { Limits } from '../limits/limits.ts';
import { closeAfterBody } from './drain.ts';
import type { Sending } from './sending.ts';
import type { UsedPart } from './unavailable.ts';

/** The record of one request, for the access log, the metrics and usage. */
export interface RequestContext {
  /** The request's `X-Request-Id`. */
  id: string;
  /** By `performance.now()`. */
  startedAt: number;
  principal: Principal | undefined;
  /** The client's address, as trusted proxies report it. */
  remote: string | undefined;
  /** The content that the request is about. The routes set it. */
  kind: SubjectKind;
  subject: string;
  version: string | undefined;
  act: UsageAction | undefined;
  /** The name and the version, tag or digest that the client asks for, as in the request. The routes set it. */
  asked: { name: string; reference: string } | undefined;
  /** Why the request was refused, or its answer interrupted. */
  failure: { code: string; reason: string; upstream: string | null } | undefined;
  /** The part of the service that could not be used. */
  unavailable: UsedPart | undefined;
  /** The `Cache-Status` of the answer. */
  cache: string | undefined;
  /** Counts the bytes that clients get of an upstream's stored content. */
  source: { sent: number } | undefined;
  /** Bytes of the request body that were received. */
  received: number;
  /** Bytes of the body that were handed to the operating system, including the last write of an interrupted answer. */
  sent: number;
  /** Bytes that the client gets from the storage itself, if it follows the redirect. */
  redirected: number;
  /** Bytes of bodies that upstreams sent because of this request, until it ended. */
  fetched: number;
  /** Number of upstream bodies in progress. `fetchedLater` receives their bytes after the request has ended. */
  fetching: number;
  fetchedLater: ((bytes: number) => void) | undefined;
}

/** All fields exist from the start, so that the object keeps one shape and stays fast. */
function newContext(): RequestContext {
  return {
    id: randomUUID(),
    startedAt: performance.now(),
    principal: undefined,
    remote: undefined,
    kind: 'other',
    subject: '',
    version: undefined,
    act: undefined,
    asked: undefined,
    failure: undefined,
    unavailable: undefined,
    cache: undefined,
    source: undefined,
    received: 0,
    sent: 0,
    redirected: 0,
    fetched: 0,
    fetching: 0,
    fetchedLater: undefined,
  };
}

/** Stored content is untrusted: a browser that opens it must not run any of it (CSP 3, 6.3.2 "sandbox"). */
const contentPolicy = "default-src 'none'; sandbox";

const never = (): boolean => false;

/** A response with the record of its request. Servers are created with it (Node's option `ServerResponse`). */
export class AppResponse extends ServerResponse implements Caller {
  readonly context = newContext();
  /** A client that receives no bytes of the answer for this many milliseconds is disconnected. */
  idle = 60_000;
  /** The limits that apply to the request. */
  limits: Limits | undefined = undefined;
  /** What it shares with other answers. */
  sending: Sending | undefined = undefined;
  /** Whether the connection must close after the answer. Asked when the answer begins: a long upload may begin earlier. */
  mustClose = never;
  /** For a request at an alias: how its addresses below `/v2/` begin here, and at the alias. */
  renamed: readonly [own: string, old: string] | undefined = undefined;
  /** For a request at an alias: the account whose credentials are taken there. */
  onlyAccount: string | undefined = undefined;
  #listeners: Set<() => void> | undefined;
  /** Headers of every answer to this request. Node is faster with one `writeHead` than with headers set one by one. */
  readonly always: OutgoingHttpHeaders = {
    'X-Request-Id': this.context.id,
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': contentPolicy,
  };

  /** The account for the limit of concurrent fetches. All anonymous readers share one of their own. */
  get account(): string | undefined {
    const { principal } = this.context;
    if (!principal) return undefined;
    return principal.kind === 'anonymous' ? 'anonymous' : String(principal.accountId);
  }

  get writes(): boolean {
    return this.req.method !== 'GET' && this.req.method !== 'HEAD';
  }

  get gone(): boolean {
    return this.destroyed || this.closed;
  }

  get origin(): Origin {
    const { principal, remote = null, id } = this.context;
    return { actor: actorOf(principal), address: remote, requestId: id };
  }

  readsFrom(counter: { sent: number }): void {
    this.context.source = counter;
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

  /** Takes headers as an object, and no reason phrase. */
  override writeHead(status: number, ...rest: unknown[]): this {
    const headers = { ...this.always, ...(rest[0] as OutgoingHttpHeaders | undefined) };
    if (this.renamed) this.#rename(headers, this.renamed);
    // So that the client sends its next request to another instance.
    if (this.mustClose()) headers['Connection'] = 'close';
    this.context.cache = headers['Cache-Status'] as string | undefined;
    // Without a listener, Node destroys the connection at the timeout. After the answer, Node sets the keep-alive
    // timeout.
    this.setTimeout(this.idle);
    if (!this.req.complete) closeAfterBody(this.req);
    return super.writeHead(status, headers);
  }

  /** Addresses that the client asks for next are those of the alias. */
  #rename(headers: OutgoingHttpHeaders, [own, old]: readonly [string, string]): void {
    for (const name of ['Location', 'Link']) {
      const value = headers[name] ?? this.getHeader(name);
      if (typeof value !== 'string') continue;
      const bracket = value.startsWith('<') ? '<' : '';
      if (value.startsWith(bracket + own))
        headers[name] = `${bracket}${old}${value.slice(bracket.length + own.length)}`;
    }
  }
}

function actorOf(principal: Principal | undefined): Actor {
  if (principal?.kind === 'person') return { kind: 'person', id: principal.personId, name: principal.personName };
  if (principal?.kind !== 'token') return { kind: 'anonymous', id: null, name: null };
  const { tokenId, tokenName: name, publisherId } = principal;
  return publisherId === null ? { kind: 'token', id: tokenId, name } : { kind: 'rule', id: publisherId, name };
}

/** Runs `work`, which answers one request. All work that it starts belongs to that request. */
export function runInContext(answer: AppResponse, work: () => void): void {
  runFor(answer, work);
}

/** The response to the request that started the running code; undefined for work that no request started. */
export function currentResponse(): AppResponse | undefined {
  let caller = currentCaller();
  while (caller && !(caller instanceof AppResponse)) caller = caller.startedBy;
  return caller;
}

/** The record of the request that `response` answers. */
export function contextOf(response: ServerResponse): RequestContext {
  return responseOf(response).context;
}

/** The account whose credentials are taken at the address of the request; undefined for all. */
export function onlyAccountOf(response: ServerResponse): string | undefined {
  return responseOf(response).onlyAccount;
}

/** What the answer shares with the others of its installation. */
export function sendingOf(response: ServerResponse): Sending {
  const { sending } = responseOf(response);
  if (!sending) throw new Error('this response belongs to no installation');
  return sending;
}

/** Adds a header to every answer to this request, errors included. */
export function alwaysSend(response: ServerResponse, name: string, value: string): void {
  responseOf(response).always[name] = value;
}

/** The answer as this server made it. */
export function responseOf(response: ServerResponse): AppResponse {
  if (response instanceof AppResponse) return response;
  throw new Error('this response has no context: its server was not created with AppResponse');
}

/**
 * Starts counting an upstream body for the current request. Call the result with its bytes at the end, even after the
 * request.
 */
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
