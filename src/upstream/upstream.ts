import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { finished } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import got, { type Got } from 'got';
import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import type { UpstreamConfig } from '../config/schema.ts';
import { isDigest } from '../digest.ts';
import { DomainError } from '../errors.ts';
import { checkedAgents, type ProxyEnvironment, type Resolve } from './addresses.ts';
import type { Aside, UpstreamAnswer, UpstreamRequest } from './answer.ts';
import { decode, discard, freeInput } from './body.ts';
import { Breaker } from './breaker.ts';
import { authorizationOf, parseChallenges, type UpstreamAuth } from './credentials.ts';
import { Errand } from './errand.ts';
import { addressRefusal, isPassing, messageOf, Refused, retryAfterOf } from './failures.ts';
import { Tokens } from './tokens.ts';

export type { UpstreamAnswer, UpstreamRequest } from './answer.ts';

const redirectLimit = 5;
const attempts = 3;
const accessRefused = 'refused access; check its credentials';
const accessDenied = 'denied access: there is no such thing, or it takes other credentials';

export interface UpstreamParts {
  cache: Cache;
  log: Logger;
  now: () => number;
  proxy: ProxyEnvironment;
  /** Refuse to contact anybody. */
  offline: boolean;
  /** Authorities to trust besides the usual ones, PEM. */
  ca?: string | undefined;
  resolve?: Resolve;
  /** Asked at the beginning of each request; what it returns hears at the end how many bytes of body came. */
  meter?: () => (bytes: number) => void;
}

/**
 * One configured upstream, and the only door to it: time-outs, retries before the first byte, redirects, addresses,
 * credentials, and a breaker. A client's own credentials never come here.
 */
export class Upstream {
  readonly config: UpstreamConfig;
  readonly base: URL;
  /** What the upstream last said of its rate limit (`ratelimit-remaining`, `ratelimit-limit`). */
  rateLimit: { remaining?: string; limit?: string } = {};
  readonly #breaker: Breaker;
  readonly #asideBreakers: Record<Aside, Breaker>;
  readonly #agents: ReturnType<typeof checkedAgents>;
  readonly #got: Got;
  readonly #tokens: Tokens;
  readonly #auth: UpstreamAuth | undefined;
  readonly #log: Logger;
  readonly #offline: boolean;
  readonly #meter: UpstreamParts['meter'];
  /** What the upstream asked for the last time, so that the next request need not be refused first. */
  #challenge: { realm: URL; service: string } | 'configured' | undefined;

  constructor(config: UpstreamConfig, base: URL, auth: UpstreamAuth | undefined, parts: UpstreamParts) {
    const { cache, now, proxy, resolve, ca } = parts;
    const { name, timeout, allowPrivateNetwork: allowPrivate } = config;
    this.config = config;
    this.base = base;
    this.#breaker = new Breaker(now);
    this.#asideBreakers = { search: new Breaker(now), symbols: new Breaker(now) };
    this.#auth = auth;
    this.#log = parts.log;
    this.#offline = parts.offline || config.mode === 'offline';
    this.#meter = parts.meter;
    const ask = (url: URL, headers: Record<string, string>) => this.#once('GET', url, headers, undefined);
    this.#tokens = new Tokens({ cache, base, name, auth, timeout, ask });
    // A package feed is asked with its credentials at once; a registry says first which kind it wants.
    if (auth && (config.kind === 'nuget' || 'bearer' in auth)) this.#challenge = 'configured';
    this.#agents = checkedAgents({ allowPrivate, proxy, timeout, ca, resolve });
    this.#got = got.extend({
      agent: this.#agents,
      decompress: false,
      followRedirect: false,
      throwHttpErrors: false,
      retry: { limit: 0 },
      timeout: { lookup: timeout, connect: timeout, secureConnect: timeout, response: timeout },
      headers: { 'user-agent': 'entrepot', 'accept-encoding': 'identity' },
    });
  }

  get name(): string {
    return this.config.name;
  }

  /** Why this upstream cannot be asked now, as an error to throw; undefined when it can. */
  unavailable(aside?: Aside): DomainError | undefined {
    if (this.#offline) return this.#failure('UpstreamUnavailable', 'is set to offline', { offline: true });
    const breaker = this.#breaker.wait === 0 ? this.#breakerFor(aside) : this.#breaker;
    if (breaker.wait === 0) return undefined;
    return this.#failure('UpstreamUnavailable', `failed a moment ago: it ${breaker.reason}`, pauseOf(breaker.wait));
  }

  /**
   * Asks the upstream. Throws `UpstreamUnavailable` or `UpstreamTimeout` where it fails, refuses or is left alone;
   * "not found" is an answer, and only the upstream's own. `Aborted` where the request, or the errand it belongs to, was
   * called off.
   */
  async send(asked: UpstreamRequest): Promise<UpstreamAnswer> {
    const signals = [asked.signal, Errand.current?.signal].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    if (signal?.aborted) throw this.#failure('Aborted', 'is not asked: this was called off', {});
    const unavailable = this.unavailable(asked.aside);
    if (unavailable) throw unavailable;
    const breaker = this.#breakerFor(asked.aside);
    breaker.began();
    try {
      const answer = await this.#sendPatiently(signal ? { ...asked, signal } : asked);
      breaker.succeeded();
      return answer;
    } catch (error) {
      if (signal?.aborted) {
        breaker.abandoned();
        throw this.#failure('Aborted', 'was being asked when this was called off', {}, error);
      }
      throw this.#record(error, breaker);
    }
  }

  /** Notes a failure that showed after the answer had begun: a stall or a cut in the body. */
  bodyFailed(error: unknown, aside?: Aside): void {
    if (Errand.current?.signal.aborted) return;
    const reason = messageOf(error);
    this.#breakerFor(aside).failed(reason);
    this.#log.warn({ upstream: this.name, reason }, 'an upstream failed in the middle of a body');
  }

  /** Cuts all connections; what is under way fails. */
  close(): void {
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }

  #breakerFor(aside: Aside | undefined): Breaker {
    return aside ? this.#asideBreakers[aside] : this.#breaker;
  }

  /** An error of the house for whatever went wrong, after the breaker and the log have heard of it. */
  #record(error: unknown, breaker: Breaker): DomainError {
    const refused = error instanceof Refused ? error : addressRefusal(error);
    const reason = messageOf(refused ?? error);
    if (refused && !refused.trips) breaker.succeeded();
    else breaker.failed(reason, refused?.retryAfter);
    this.#log.warn({ upstream: this.name, reason }, refused ? 'an upstream refused a request' : 'an upstream failed');
    const timeout = (error as { code?: string }).code === 'ETIMEDOUT';
    const name = timeout ? 'UpstreamTimeout' : 'UpstreamUnavailable';
    const detail = { ...pauseOf(refused?.retryAfter ?? 0), ...(refused?.denied && { denied: true }) };
    return this.#failure(name, reason, detail, error);
  }

  #failure(
    name: 'UpstreamUnavailable' | 'UpstreamTimeout' | 'Aborted',
    reason: string,
    detail: Record<string, unknown>,
    cause?: unknown,
  ): DomainError {
    const message = `The upstream ${this.name} ${reason}.`;
    return new DomainError(name, message, { detail: { upstream: this.name, ...detail }, cause });
  }

  /** Tries again what may pass. */
  async #sendPatiently(request: UpstreamRequest): Promise<UpstreamAnswer> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#sendAuthorized(request);
      } catch (error) {
        if (attempt === attempts || request.signal?.aborted || !isPassing(error)) throw error;
        await sleep(50 * attempt ** 2);
      }
    }
  }

  /** Presents what the upstream is known to want; after a 401, what it asks for, once. */
  async #sendAuthorized(request: UpstreamRequest): Promise<UpstreamAnswer> {
    const presented = await this.#authorization(request);
    const first = await this.#follow(request, presented);
    // A host that the upstream leads to is not asked what it wants: nothing of ours is for it.
    if (first.answer.status !== 401 || first.url.origin !== this.base.origin) return this.#accept(first);
    discard(first.answer.body);
    const renewed = await this.#answerChallenge(first.answer.headers['www-authenticate'], request, presented);
    if (renewed === undefined) throw new Refused(accessRefused);
    return this.#accept(await this.#follow(request, renewed));
  }

  #accept({ answer, url }: { answer: UpstreamAnswer; url: URL }): UpstreamAnswer {
    const { status, headers } = answer;
    const remaining = headers['ratelimit-remaining'];
    if (remaining !== undefined) {
      this.rateLimit = { remaining: String(remaining), limit: String(headers['ratelimit-limit'] ?? '') };
    }
    if ((status >= 200 && status < 300) || status === 304 || status === 404 || status === 410) return answer;
    discard(answer.body);
    const pause = retryAfterOf(headers['retry-after'], headers.date);
    if (status === 429) throw new Refused('asks to be left alone (429)', true, Math.max(pause, 1000));
    if (status >= 500) throw new Refused(`answered ${status}`, true, pause);
    // Some say so of what does not exist, too (RFC 6750, 3.1).
    const isDenied = status === 403 || /\berror="?insufficient_scope\b/.test(headers['www-authenticate'] ?? '');
    if (isDenied && url.origin === this.base.origin) throw new Refused(accessDenied, false, 0, true);
    if (status === 401 || status === 403) throw new Refused(accessRefused);
    throw new Refused(`answered ${status}`);
  }

  /** Follows redirects by hand: credentials stay with the host they are for, and every hop's address is checked. */
  async #follow(request: UpstreamRequest, authorization: string | undefined) {
    let { url } = request;
    for (let hop = 0; hop <= redirectLimit; hop += 1) {
      const headers: Record<string, string> = { ...request.headers };
      if (authorization !== undefined && url.origin === this.base.origin) headers['authorization'] = authorization;
      const answer = await this.#once(request.method ?? 'GET', url, headers, request.signal);
      const { location } = answer.headers;
      if (![301, 302, 303, 307, 308].includes(answer.status) || location === undefined) return { answer, url };
      discard(answer.body);
      const next = URL.parse(location, url.href);
      if (!next || !/^https?:$/.test(next.protocol)) throw new Refused('redirects to something that is no web address');
      if (url.protocol === 'https:' && next.protocol === 'http:') throw new Refused('redirects from https to http');
      next.username = '';
      next.password = '';
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
    // What an upstream's documents and challenges name is no safer than a redirect.
    if (this.base.protocol === 'https:' && url.protocol === 'http:') throw new Refused('leads from https to http');
    const sent = this.#got.stream(url, { method, headers, ...(signal && { signal }) });
    // Whoever reads the body hears of its error; with nobody reading it must not end the process.
    sent.on('error', () => undefined);
    const count = this.#meter?.();
    if (count) finished(sent, { writable: false }, () => count(sent.downloadProgress.transferred));
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    freeInput(response);
    const stream = Errand.current?.pace(sent) ?? sent;
    const { 'content-encoding': coding, 'content-length': _coded, ...rest } = response.headers;
    const told = rest['docker-content-digest'];
    const common = {
      status: response.statusCode!,
      ...(typeof told === 'string' && isDigest(told) && { digest: told }),
    };
    if (method === 'HEAD') return { ...common, headers: response.headers, body: stream, decoded: false };
    const decoded = decode(stream, coding);
    if (!decoded) return { ...common, headers: response.headers, body: stream, decoded: false };
    decoded.on('error', () => undefined);
    return { ...common, headers: rest, body: decoded, decoded: true };
  }

  async #authorization(request: UpstreamRequest): Promise<string | undefined> {
    if (this.#challenge === 'configured') return this.#auth && authorizationOf(this.#auth);
    const { scope } = request;
    if (!this.#challenge || scope === undefined) return undefined;
    return this.#tokens.authorization({ ...this.#challenge, scope, keptAs: scope });
  }

  /** What to present after a 401, or undefined when the upstream asks for nothing we can give. */
  async #answerChallenge(
    header: string | undefined,
    request: UpstreamRequest,
    presented: string | undefined,
  ): Promise<string | undefined> {
    const challenges = parseChallenges(header);
    const bearer = challenges.find(({ scheme }) => scheme === 'bearer')?.parameters;
    const realm = bearer?.['realm'] === undefined ? null : URL.parse(bearer['realm'], this.base.href);
    if (bearer && realm && /^https?:$/.test(realm.protocol)) {
      const service = bearer['service'] ?? '';
      const scope = bearer['scope'] ?? request.scope ?? '';
      this.#challenge = { realm, service };
      return this.#tokens.authorization({ realm, service, scope, keptAs: request.scope ?? scope }, presented);
    }
    const configured = this.#auth && authorizationOf(this.#auth);
    // By now another request may have learned what is wanted; what counts is what this one has shown.
    if (presented === configured || !challenges.some(({ scheme }) => scheme === 'basic')) return undefined;
    this.#challenge = 'configured';
    return configured;
  }
}

/** Whole seconds, as `Retry-After` has them. */
function pauseOf(milliseconds: number): { retryAfter?: number } {
  return milliseconds > 0 ? { retryAfter: Math.ceil(milliseconds / 1000) } : {};
}
