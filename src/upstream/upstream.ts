import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import got, { type Got } from 'got';
import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import type { UpstreamConfig } from '../config/schema.ts';
import { DomainError } from '../errors.ts';
import { AddressRefused, checkedAgents, type ProxyEnvironment, type Resolve } from './addresses.ts';
import { Breaker } from './breaker.ts';
import { authorizationOf, belongsTo, parseChallenges, TokenCache, type UpstreamAuth } from './credentials.ts';

const redirectLimit = 5;
const attempts = 3;
const tokenLimit = 1024 * 1024;

export interface UpstreamRequest {
  method?: 'GET' | 'HEAD';
  url: URL;
  headers?: Record<string, string>;
  /** For the registry token exchange: `repository:<name>:pull`. */
  scope?: string;
  signal?: AbortSignal;
}

export interface UpstreamAnswer {
  /** 2xx, 304, 404 or 410: everything else is an error. */
  status: number;
  headers: IncomingHttpHeaders;
  /** The body without content coding; its reader destroys it when it leaves early. Ends with an error when it is cut. */
  body: Readable;
  /** Whether the body was decoded, so that offsets in it are not the upstream's. */
  decoded: boolean;
}

export interface UpstreamParts {
  cache: Cache;
  log: Logger;
  now: () => number;
  proxy: ProxyEnvironment;
  /** Refuse to contact anybody. */
  offline: boolean;
  resolve?: Resolve;
}

/**
 * One configured upstream, and the only door to it: time-outs, retries before the first byte, redirects, addresses,
 * credentials, and a breaker. A client's own credentials never come here.
 */
export class Upstream {
  readonly config: UpstreamConfig;
  readonly base: URL;
  readonly breaker: Breaker;
  /** What the upstream last said of its rate limit (`ratelimit-remaining`, `ratelimit-limit`). */
  rateLimit: { remaining?: string; limit?: string } = {};
  readonly #got: Got;
  readonly #tokens: TokenCache;
  readonly #auth: UpstreamAuth | undefined;
  readonly #log: Logger;
  readonly #offline: boolean;
  /** What the upstream asked for the last time; so that the next request need not be refused first. */
  #challenge: { realm: URL; service: string } | 'basic' | undefined;

  constructor(config: UpstreamConfig, base: URL, auth: UpstreamAuth | undefined, parts: UpstreamParts) {
    this.config = config;
    this.base = base;
    this.breaker = new Breaker(parts.now);
    this.#auth = auth;
    this.#log = parts.log;
    this.#offline = parts.offline || config.mode === 'offline';
    this.#tokens = new TokenCache(parts.cache);
    // A package feed is asked with its credentials at once; a registry says first which kind it wants.
    if (auth && (config.kind === 'nuget' || 'bearer' in auth)) this.#challenge = 'basic';
    this.#got = got.extend({
      agent: checkedAgents(config.allowPrivateNetwork, parts.proxy, parts.resolve),
      decompress: false,
      followRedirect: false,
      throwHttpErrors: false,
      retry: { limit: 0 },
      timeout: {
        lookup: config.timeout,
        connect: config.timeout,
        secureConnect: config.timeout,
        response: config.timeout,
      },
      headers: { 'user-agent': 'entrepot', 'accept-encoding': 'identity' },
      ...(config.caFile !== undefined && { https: { certificateAuthority: readFileSync(config.caFile) } }),
    });
  }

  get name(): string {
    return this.config.name;
  }

  /** Why this upstream cannot be asked now, as an error to throw; undefined when it can. */
  unavailable(): DomainError | undefined {
    if (this.#offline) return this.#failure('UpstreamUnavailable', 'is set to offline');
    const wait = this.breaker.wait();
    if (wait === 0) return undefined;
    return this.#failure('UpstreamUnavailable', `failed a moment ago (${this.breaker.reason})`, undefined, wait);
  }

  /**
   * Asks the upstream. Throws `UpstreamUnavailable` or `UpstreamTimeout` where it fails, refuses or is left alone;
   * "not found" is an answer, and only the upstream's own.
   */
  async send(request: UpstreamRequest): Promise<UpstreamAnswer> {
    const unavailable = this.unavailable();
    if (unavailable) throw unavailable;
    try {
      const answer = await this.#sendPatiently(request);
      this.breaker.succeeded();
      return answer;
    } catch (error) {
      if (request.signal?.aborted) {
        this.breaker.abandoned();
        throw error;
      }
      throw this.#record(error);
    }
  }

  /** Notes a failure that showed after the answer had begun: a stall or a cut in the body. */
  bodyFailed(error: unknown): void {
    this.breaker.failed(messageOf(error));
  }

  /** An error of the house for whatever went wrong, after the breaker and the log have heard of it. */
  #record(error: unknown): DomainError {
    if (error instanceof Refused) {
      if (error.trips) this.breaker.failed(error.message, error.retryAfter);
      else this.breaker.succeeded();
      this.#log.warn({ upstream: this.name, reason: error.message }, 'an upstream refused a request');
      return this.#failure('UpstreamUnavailable', error.message, error, error.retryAfter);
    }
    const reason = messageOf(error);
    this.breaker.failed(reason);
    this.#log.warn({ upstream: this.name, reason }, 'an upstream failed');
    const timeout = (error as { code?: string }).code === 'ETIMEDOUT';
    return this.#failure(timeout ? 'UpstreamTimeout' : 'UpstreamUnavailable', reason, error);
  }

  #failure(
    name: 'UpstreamUnavailable' | 'UpstreamTimeout',
    reason: string,
    cause?: unknown,
    retryAfter?: number,
  ): DomainError {
    const detail: Record<string, unknown> = { upstream: this.name };
    if (retryAfter) detail['retryAfter'] = Math.ceil(retryAfter / 1000);
    return new DomainError(name, `The upstream ${this.name} ${reason}.`, { detail, cause });
  }

  /** Tries again what may pass: a keep-alive socket that had gone stale, a reset, a single 5xx. */
  async #sendPatiently(request: UpstreamRequest): Promise<UpstreamAnswer> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#sendAuthorized(request);
      } catch (error) {
        if (attempt === attempts || request.signal?.aborted || !isPassing(error)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50 * attempt ** 2));
      }
    }
  }

  /** Presents what the upstream is known to want; after a 401, what it asks for, once. */
  async #sendAuthorized(request: UpstreamRequest): Promise<UpstreamAnswer> {
    const answer = await this.#follow(request, await this.#authorization(request));
    if (answer.status !== 401) return this.#accept(answer);
    answer.body.destroy();
    const renewed = await this.#answerChallenge(answer.headers['www-authenticate'], request);
    if (renewed === undefined) throw new Refused('refused access (401); check its credentials');
    return this.#accept(await this.#follow(request, renewed));
  }

  #accept(answer: UpstreamAnswer): UpstreamAnswer {
    const { status, headers } = answer;
    const remaining = headers['ratelimit-remaining'];
    if (remaining !== undefined) {
      this.rateLimit = { remaining: String(remaining), limit: String(headers['ratelimit-limit'] ?? '') };
    }
    if ((status >= 200 && status < 300) || status === 304 || status === 404 || status === 410) return answer;
    answer.body.destroy();
    const retryAfter = retryAfterOf(headers['retry-after']);
    if (status === 429) throw new Refused('asks to be left alone (429)', true, Math.max(retryAfter, 1000));
    if (status >= 500) throw new Refused(`answered ${status}`, true, retryAfter);
    if (status === 401 || status === 403) throw new Refused(`refused access (${status}); check its credentials`);
    throw new Refused(`answered ${status}`);
  }

  /** Follows redirects by hand: credentials stay with the host they are for, and every hop's address is checked. */
  async #follow(request: UpstreamRequest, authorization: string | undefined): Promise<UpstreamAnswer> {
    let url = request.url;
    for (let hop = 0; hop <= redirectLimit; hop += 1) {
      const headers: Record<string, string> = { ...request.headers };
      if (authorization !== undefined && url.origin === this.base.origin) headers['authorization'] = authorization;
      const answer = await this.#once(request.method ?? 'GET', url, headers, request.signal);
      const { location } = answer.headers;
      if (![301, 302, 303, 307, 308].includes(answer.status) || location === undefined) return answer;
      answer.body.destroy();
      const next = URL.parse(location, url.href);
      if (!next || !/^https?:$/.test(next.protocol)) throw new Refused('redirects to something that is no web address');
      if (url.protocol === 'https:' && next.protocol === 'http:') throw new Refused('redirects from https to http');
      url = next;
    }
    throw new Refused(`redirects more than ${redirectLimit} times`);
  }

  async #once(
    method: 'GET' | 'HEAD',
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
  ): Promise<UpstreamAnswer> {
    const stream = this.#got.stream(url, { method, headers, ...(signal && { signal }) });
    const [response] = (await once(stream, 'response')) as [{ statusCode: number; headers: IncomingHttpHeaders }];
    // From here on an error is the body's; whoever reads it hears of it, and nobody else is to crash from it.
    stream.on('error', () => undefined);
    const decoder = decoderFor(response.headers['content-encoding']);
    if (!decoder || method === 'HEAD') {
      return { status: response.statusCode, headers: response.headers, body: stream, decoded: false };
    }
    stream.on('error', (error) => decoder.destroy(error));
    decoder.on('close', () => stream.destroy());
    stream.pipe(decoder);
    const { 'content-length': _coded, ...rest } = response.headers;
    return { status: response.statusCode, headers: rest, body: decoder, decoded: true };
  }

  async #authorization(request: UpstreamRequest): Promise<string | undefined> {
    if (this.#challenge === 'basic') return this.#auth && authorizationOf(this.#auth);
    if (!this.#challenge || request.scope === undefined) return undefined;
    const { realm, service } = this.#challenge;
    return this.#exchange(realm, service, request.scope);
  }

  /** What to present after a 401, or undefined when the upstream asks for nothing we can give. */
  async #answerChallenge(header: string | undefined, request: UpstreamRequest): Promise<string | undefined> {
    const challenges = parseChallenges(header);
    const bearer = challenges.find(({ scheme }) => scheme === 'bearer')?.parameters;
    const realm = bearer?.['realm'] === undefined ? null : URL.parse(bearer['realm'], this.base.href);
    if (bearer && realm && /^https?:$/.test(realm.protocol)) {
      const service = bearer['service'] ?? '';
      const scope = bearer['scope'] ?? request.scope ?? '';
      const known = this.#challenge;
      this.#challenge = { realm, service };
      // The token that was just refused, if there was one, is of no use any more.
      if (known) await this.#tokens.drop(realm.href, service, scope, this.#user(realm));
      return this.#exchange(realm, service, scope);
    }
    if (this.#auth && challenges.some(({ scheme }) => scheme === 'basic') && this.#challenge !== 'basic') {
      this.#challenge = 'basic';
      return authorizationOf(this.#auth);
    }
    return undefined;
  }

  /** The registry token exchange: credentials go to the realm only where it belongs to the upstream. */
  async #exchange(realm: URL, service: string, scope: string): Promise<string> {
    const user = this.#user(realm);
    const cached = await this.#tokens.get(realm.href, service, scope, user);
    if (cached !== undefined) return `Bearer ${cached}`;
    const url = new URL(realm);
    if (service) url.searchParams.set('service', service);
    if (scope) url.searchParams.set('scope', scope);
    const headers: Record<string, string> =
      this.#auth && user !== '' ? { authorization: authorizationOf(this.#auth) } : {};
    const answer = await this.#once('GET', url, headers, undefined);
    if (answer.status !== 200) {
      answer.body.destroy();
      const retryAfter = retryAfterOf(answer.headers['retry-after']);
      throw new Refused(`gave no token (${answer.status})`, answer.status === 429 || answer.status >= 500, retryAfter);
    }
    const { token, seconds } = readToken(await readText(answer.body, tokenLimit));
    await this.#tokens.set(realm.href, service, scope, user, token, seconds);
    return `Bearer ${token}`;
  }

  /** Whose token it is: part of its key in the cache; empty for an anonymous one. */
  #user(realm: URL): string {
    if (!this.#auth || !belongsTo(realm, this.base, this.name)) return '';
    return 'username' in this.#auth ? this.#auth.username : 'bearer';
  }
}

/** The upstream answered, and the answer is no. */
class Refused extends Error {
  /** Whether it is the upstream that is in trouble, and not this request. */
  readonly trips: boolean;
  /** Milliseconds. */
  readonly retryAfter: number;

  constructor(message: string, trips = false, retryAfter = 0) {
    super(message);
    this.trips = trips;
    this.retryAfter = retryAfter;
  }
}

function isPassing(error: unknown): boolean {
  if (error instanceof Refused) return error.trips && error.retryAfter === 0;
  const { code } = error as { code?: string };
  return code === 'ECONNRESET' || code === 'EPIPE';
}

function retryAfterOf(header: string | undefined): number {
  if (header === undefined) return 0;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 3600) * 1000 : 0;
}

function decoderFor(coding: string | undefined) {
  if (coding === 'gzip' || coding === 'x-gzip') return createGunzip();
  if (coding === 'deflate') return createInflate();
  if (coding === 'br') return createBrotliDecompress();
  return undefined;
}

function readToken(text: string): { token: string; seconds: number } {
  try {
    const body = JSON.parse(text) as { token?: unknown; access_token?: unknown; expires_in?: unknown };
    const token = body.token ?? body.access_token;
    if (typeof token === 'string' && token !== '') {
      return { token, seconds: typeof body.expires_in === 'number' ? Math.max(body.expires_in, 60) : 60 };
    }
  } catch {
    // Said below, as for every other answer without a token.
  }
  throw new Refused('gave an answer without a token');
}

async function readText(body: Readable, limit: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit) throw new Refused(`sent more than ${limit} bytes where a token was expected`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** What went wrong, in words for an operator; got wraps the cause. */
function messageOf(error: unknown): string {
  const { message, code, cause } = error as { message?: string; code?: string; cause?: Error };
  const refusal = [error, cause].find((each) => each instanceof AddressRefused);
  if (refusal) return `resolves to an address that is refused: ${refusal.message}`;
  if (code === 'ETIMEDOUT') return 'did not answer in time';
  return code === undefined ? `failed: ${message}` : `cannot be reached (${code})`;
}
