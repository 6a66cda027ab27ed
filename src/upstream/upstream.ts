import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import type { UpstreamConfig } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import type { CheckAddress, ProxyEnvironment, Resolve } from './addresses.ts';
import { isAnswer, isChange, type OptionalService, type UpstreamAnswer, type UpstreamRequest } from './answer.ts';
import { discard } from './body.ts';
import { Breaker, type Attempt, type BreakerRequest, type OnBreakerChange, type OpenPause } from './breaker.ts';
import { UpstreamClient, type RequestOptions } from './client.ts';
import type { CredentialSource } from './credential-source.ts';
import { Credentials, parseChallenges, withheldFrom } from './credentials.ts';
import { BackgroundTask } from '../runtime/background-task.ts';
import { UpstreamCounts } from './counts.ts';
import { FailureLog } from './failure-log.ts';
import {
  AccessRefused,
  Busy,
  busyRefusal,
  Closed,
  messageOf,
  orAbort,
  withRetries,
  Refused,
  verdictOf,
} from './failures.ts';
import { othersInTurn } from './name-lookup.ts';
import { redirectLimit, redirectOf, tooManyRedirects } from './redirect.ts';
import { RegistryTokens, type TokenRequest } from './tokens.ts';
import { withoutUser } from './url.ts';
import { UpstreamError, type UpstreamErrorName, type UpstreamErrorOptions } from './upstream-error.ts';

export type { UpstreamAnswer, UpstreamRequest } from './answer.ts';

/** Connections in use at the same time, to each host. */
const connectionsAtOnce = 256;
const accessDenied = 'denied access: the resource does not exist, or needs other credentials';

export interface UpstreamParts {
  cache: Cache;
  log: Logger;
  now: () => number;
  proxy: ProxyEnvironment;
  /** Whether no upstream may be contacted at all. */
  offline: boolean;
  /** Certificate authorities to trust besides the default ones, PEM. */
  ca?: string | undefined;
  resolve?: Resolve;
  /** Called at the beginning of each request; the returned function is called at its end with the bytes of its body. */
  meter?: () => (bytes: number) => void;
  /** Called with the ID of an upstream when requests to it are paused, and when they succeed again. */
  onChange?: (id: string, ...change: Parameters<OnBreakerChange>) => void;
  /** The one host that may be in a private network, if the settings allow none. */
  privateHost?: string;
  /** Checks each address in place of the settings. */
  check?: CheckAddress;
  /** Whether it gets the credentials with the first request, as an index does, and not only after a challenge. */
  sendsFirst?: boolean;
  /** Connections in use at the same time, to each host. */
  maxConnections?: number;
}

/**
 * One configured upstream. All requests to it go through here: time-outs, retries before the first byte, redirects,
 * address checks, credentials, and pauses after failures. A client's own credentials are never sent to it.
 */
export class Upstream {
  readonly config: UpstreamConfig;
  readonly base: URL;
  readonly counts = new UpstreamCounts();
  readonly #now: () => number;
  readonly #breaker: Breaker;
  readonly #serviceBreakers: Record<OptionalService, Breaker>;
  readonly #client: UpstreamClient;
  readonly #tokens: RegistryTokens;
  readonly credentials: Credentials;
  readonly #failures: FailureLog;
  readonly #offline: boolean;
  /** The authorization that the upstream last asked for, so that the next request is not refused first. */
  #challenge: { realm: URL; service: string } | 'configured' | undefined;

  constructor(config: UpstreamConfig, base: URL, source: CredentialSource | undefined, parts: UpstreamParts) {
    const { cache, log, now, proxy, resolve, ca, meter, maxConnections: connections = connectionsAtOnce } = parts;
    const { name, id, timeout, allowPrivateNetwork: allowPrivate } = config;
    this.config = config;
    this.base = base;
    this.#now = now;
    this.#breaker = new Breaker(now, (...change) => parts.onChange?.(id, ...change));
    this.#serviceBreakers = { search: new Breaker(now), symbols: new Breaker(now) };
    this.#failures = new FailureLog(log, id, now);
    this.credentials = new Credentials({
      source,
      base,
      name,
      hosts: config.credentialHosts,
      onWithheld: (host) => log.warn({ upstream: id, host }, `${withheldFrom(host)} of this upstream`),
    });
    this.#offline = parts.offline || config.mode === 'offline';
    this.#client = new UpstreamClient({
      allowPrivate: allowPrivate || (parts.privateHost ?? false),
      check: parts.check,
      proxy,
      timeout,
      ca,
      resolve: othersInTurn(base.hostname, resolve),
      connections,
      meter: () => this.#meter(meter),
      onSlow: () => (this.counts.slowBodies += 1),
    });
    const ask = (url: URL, headers: Record<string, string>) => this.#once({ url, headers, group: 'token' });
    this.#tokens = new RegistryTokens({ cache, id, base, credentials: this.credentials, timeout, now, ask });
    // A package feed gets the credentials with the first request; a registry says first which kind it needs.
    if (source && (parts.sendsFirst || config.kind === 'nuget' || source.isBearer)) this.#challenge = 'configured';
  }

  /** The name by which clients use it. Two accounts may have different upstreams with one name. */
  get name(): string {
    return this.config.name;
  }

  /** Unique among the upstreams of its kind. Stored content is found by it. */
  get id(): string {
    return this.config.id;
  }

  /** Whether requests to it are paused, or were and none has succeeded since. Its optional services do not count. */
  get isPaused(): boolean {
    return this.#breaker.isOpen;
  }

  /** Why and since when `isPaused`; undefined if it is not. */
  get pause(): OpenPause | undefined {
    return this.#breaker.pause;
  }

  /** Ends all pauses after failures in this process, so that the next request is sent. */
  tryNow(): void {
    for (const each of [this.#breaker, ...Object.values(this.#serviceBreakers)]) each.tryNow();
    this.#tokens.tryNow();
  }

  /** Whether no request is ever sent to it. */
  get isOffline(): boolean {
    return this.#offline;
  }

  /** Whether the account with this name is served from this upstream. Undefined stands for accounts without a list. */
  serves(account: string | undefined): boolean {
    const { accounts } = this.config;
    return accounts === undefined || (account !== undefined && accounts.includes(account));
  }

  /**
   * Why no request can be sent to this upstream now, as an error to throw; undefined if one can. With `service` it is about
   * that optional service, with `asked` about one request. A rate limit applies to all of them.
   */
  unavailable(service?: OptionalService, asked?: BreakerRequest): UpstreamError | undefined {
    if (this.#offline) return this.#failure('UpstreamUnavailable', 'is set to offline', { offline: true });
    const refusal = this.#breakerFor(service).refusal(asked) ?? (service && this.#breaker.limit);
    if (!refusal) return undefined;
    const when = refusal.own ? 'failed a moment ago for the same request' : 'failed a moment ago';
    return this.#failure('UpstreamUnavailable', `${when}: it ${refusal.reason}`, {
      retryAfter: secondsOf(refusal.wait),
    });
  }

  /**
   * Sends a request. Throws `UpstreamUnavailable` or `UpstreamTimeout` if the upstream fails, refuses or is paused. "Not
   * found" is an answer, and only the upstream itself can give it. Throws `Aborted` if the request, or the background task
   * that it belongs to, was cancelled.
   */
  async send(asked: UpstreamRequest): Promise<UpstreamAnswer> {
    const signals = [asked.signal, BackgroundTask.current?.signal].filter((each) => each !== undefined);
    const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
    if (signal?.aborted) throw this.#cancelled('got no request: it was cancelled');
    const unavailable = this.unavailable(asked.service, asked);
    if (unavailable) throw unavailable;
    const breaker = this.#breakerFor(asked.service);
    const attempt = breaker.begin(asked);
    const request = signal ? { ...asked, signal } : asked;
    try {
      const send = () => this.#sendAuthorized(request);
      const answer = await (isChange(request) ? send() : withRetries(send, signal));
      breaker.succeeded(attempt);
      this.counts.succeeded(this.#now());
      return answer;
    } catch (error) {
      if (signal?.aborted) {
        breaker.abandoned(attempt);
        throw this.#cancelled('had not answered when the request was cancelled', error);
      }
      throw this.#record(error, request, breaker, attempt);
    }
  }

  /**
   * Logs a body that stalled or was cut, and returns the error for it; `Aborted`, if the request was cancelled meanwhile. No pause
   * follows: the network may have failed, and the next request may continue where the body ended.
   */
  bodyFailed(error: unknown, { subject, signal }: Pick<UpstreamRequest, 'subject' | 'signal'>): DomainError {
    if (signal?.aborted || BackgroundTask.current?.signal.aborted)
      return this.#cancelled('had not sent its body when the request was cancelled', error);
    const reason = messageOf(error);
    this.#failures.warn('an upstream failed in the middle of a body', subject, reason);
    this.#failed({ subject }, reason);
    return this.#failure('UpstreamUnavailable', reason, { retryAfter: 1, cause: error });
  }

  /** Closes all connections. Requests that run, and later ones, fail. */
  close(): void {
    this.#client.close();
    this.credentials.close();
  }

  /** Counts a body for this upstream, besides `meter`. */
  #meter(meter: UpstreamParts['meter']): (bytes: number) => void {
    const end = meter?.();
    return (bytes) => {
      this.counts.received += bytes;
      end?.(bytes);
    };
  }

  #breakerFor(service: OptionalService | undefined): Breaker {
    return service ? this.#serviceBreakers[service] : this.#breaker;
  }

  /** The origin whose failures count for the upstream, or for the optional service. */
  #hostOf({ service, url }: UpstreamRequest): string {
    return service ? url.origin : this.base.origin;
  }

  /** Reports a failure to the breaker and to the log, and returns the domain error for it. */
  #record(error: unknown, request: UpstreamRequest, breaker: Breaker, attempt: Attempt): UpstreamError {
    const reason = messageOf(error);
    const verdict = verdictOf(error, this.#hostOf(request));
    const { retryAfter = 0, denied = false } = error instanceof Refused ? error : {};
    let wait = retryAfter;
    if (verdict === 'answered') breaker.succeeded(attempt);
    else if (verdict === 'unsent') breaker.abandoned(attempt);
    else wait = breaker.failed(attempt, verdict, reason, retryAfter);
    const answered = error instanceof Refused ? 'an upstream refused a request' : 'an upstream failed';
    const message = verdict === 'unsent' ? 'no request was sent to an upstream' : answered;
    this.#failures.warn(message, request.subject, reason);
    const isOwn = !(error instanceof Busy || error instanceof Closed || denied || request.service);
    if (isOwn) this.#failed(request, reason, error instanceof AccessRefused);
    const name = (error as { code?: string }).code === 'ETIMEDOUT' ? 'UpstreamTimeout' : 'UpstreamUnavailable';
    return this.#failure(name, reason, { retryAfter: secondsOf(wait), denied, cause: error });
  }

  #failed({ subject }: Pick<UpstreamRequest, 'subject'>, reason: string, isRefusal = false): void {
    this.counts.failed({ at: this.#now(), subject: subject.slice(0, 200), reason, isRefusal });
  }

  #failure(name: UpstreamErrorName, reason: string, options: Omit<UpstreamErrorOptions, 'upstream'>): UpstreamError {
    return new UpstreamError(name, `The upstream ${this.name} ${reason}.`, {
      ...options,
      upstream: this.name,
      id: this.id,
    });
  }

  #cancelled(reason: string, cause?: unknown): DomainError {
    const detail = { upstream: this.name };
    return new DomainError('Aborted', `The upstream ${this.name} ${reason}.`, { detail, cause });
  }

  /** Sends the authorization that the upstream is known to need, and after a 401, once, the one that it asks for. */
  async #sendAuthorized(request: UpstreamRequest): Promise<UpstreamAnswer> {
    const presented = await this.#authorization(request);
    const first = await this.#follow(request, presented);
    // The challenge of another host is ignored: it must not get our credentials.
    if (first.answer.status !== 401 || first.url.origin !== this.base.origin) return this.#accept(first, request);
    discard(first.answer.body);
    const renewed = await this.#answerChallenge(first.answer.headers['www-authenticate'], request, presented);
    if (renewed === undefined) throw new AccessRefused();
    return this.#accept(await this.#follow(request, renewed), request);
  }

  #accept({ answer, url }: { answer: UpstreamAnswer; url: URL }, request: UpstreamRequest): UpstreamAnswer {
    const { status, headers } = answer;
    const remaining = headers['ratelimit-remaining'];
    if (remaining !== undefined)
      this.counts.noteLimit(String(remaining), String(headers['ratelimit-limit'] ?? ''), this.#now());
    if (isAnswer(status, request)) return answer;
    discard(answer.body);
    if (status === 429 || status >= 500) {
      const message = status === 429 ? 'asks for a pause (429)' : `answered ${status}`;
      throw busyRefusal(message, status, headers, url.origin === this.#hostOf(request));
    }
    // Some upstreams answer so for a resource that does not exist, too (RFC 6750, 3.1).
    const isDenied = status === 403 || /\berror="?insufficient_scope\b/.test(headers['www-authenticate'] ?? '');
    if (isDenied && url.origin === this.base.origin) throw new Refused(accessDenied, { denied: true });
    if (status === 401 && this.credentials.isConfigured && url === request.url && !this.#mayGetAuthorization(url)) {
      this.credentials.withhold(url);
      throw new AccessRefused(`refused access: ${withheldFrom(url.host)}`);
    }
    if (status === 401 || status === 403) throw new AccessRefused();
    throw new Refused(`answered ${status}`);
  }

  /** Follows redirects. Checks each hop's address, and whether it may get the authorization. */
  async #follow(request: UpstreamRequest, authorization: string | undefined) {
    let { url } = request;
    const { method, sent: body, signal, isDocument } = request;
    const group = request.service ?? request.subject;
    for (let hop = 0; hop <= redirectLimit; hop += 1) {
      const headers: Record<string, string> = { ...request.headers };
      if (authorization !== undefined && this.#mayGetAuthorization(url)) headers['authorization'] = authorization;
      const answer = await this.#once({ method, url, headers, body, group, isDocument, signal });
      const next = redirectOf(answer, url);
      if (next && isChange(request)) throw new Refused(`redirects a change to ${next.host}, where nothing is sent`);
      if (!next) return { answer, url };
      url = next;
    }
    throw tooManyRedirects();
  }

  /** Its own origin; for configured credentials that are sent as they are, also the hosts that the settings name. */
  #mayGetAuthorization(url: URL): boolean {
    if (url.origin === this.base.origin) return true;
    return this.#challenge === 'configured' && this.credentials.isListed(url);
  }

  async #once(sending: RequestOptions): Promise<UpstreamAnswer> {
    // Addresses in an upstream's documents and challenges are no more trusted than a redirect.
    if (this.base.protocol === 'https:' && sending.url.protocol === 'http:') {
      throw new Refused('refers from https to http', { verdict: 'unsent' });
    }
    // got would send a user name in an address as credentials.
    return this.counts.request(sending.signal, () => this.#client.send({ ...sending, url: withoutUser(sending.url) }));
  }

  async #authorization(request: UpstreamRequest): Promise<string | undefined> {
    if (this.#challenge === 'configured') return this.#send(request);
    const { scope } = request;
    const challenge = this.#challenge;
    if (!challenge || scope === undefined) return undefined;
    try {
      return await this.#token({ ...challenge, scope, keptAs: scope }, request);
    } catch (error) {
      // The realm may have moved: the next request gets a new challenge.
      if (this.#challenge === challenge && !request.signal?.aborted) this.#challenge = undefined;
      throw error;
    }
  }

  /** Several requests may wait for new credentials. If one of them is cancelled, the others get them. */
  #send({ signal }: UpstreamRequest): Promise<string | undefined> {
    return orAbort(this.credentials.send(), signal);
  }

  /** Several requests may wait for one exchange. If one of them is cancelled, the exchange goes on for the others. */
  #token(wanted: TokenRequest, { signal }: UpstreamRequest, refused?: string): Promise<string> {
    return orAbort(
      BackgroundTask.outside(() => this.#tokens.authorization(wanted, refused)),
      signal,
    );
  }

  /** The authorization after a 401; undefined if the upstream asks for one that is not configured. */
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
      const authorization = await this.#token(
        { realm, service, scope, keptAs: request.scope ?? scope },
        request,
        presented,
      );
      // Remembered only now: an unusable realm must not replace the realm of other requests.
      this.#challenge = { realm, service };
      return authorization;
    }
    if (!this.credentials.isConfigured) return undefined;
    // Another request may have answered the challenge meanwhile. Only what this request has sent counts.
    const isRefused = presented !== undefined && this.#challenge === 'configured';
    if (!isRefused && !challenges.some(({ scheme }) => scheme === 'basic')) return undefined;
    this.#challenge = 'configured';
    if (presented === undefined) return this.#send(request);
    return orAbort(this.credentials.renew(presented), request.signal);
  }
}

/** Whole seconds, for `Retry-After`. */
function secondsOf(milliseconds: number): number | undefined {
  return milliseconds > 0 ? Math.ceil(milliseconds / 1000) : undefined;
}
