import { createHash } from 'node:crypto';
import type { Cache } from '../cache/cache.ts';
import type { UpstreamAnswer } from './answer.ts';
import { discard, readUpstreamBody } from './body.ts';
import type { Credentials } from './credentials.ts';
import { busyRefusal, isTransient, messageOf, withRetries, Refused, verdictOf } from './failures.ts';
import { pauseAfter, remaining, type Pause } from './pause.ts';
import { Recent } from '../runtime/recent.ts';

const tokenLimit = 64 * 1024;
/** Failed exchanges whose pauses are kept; when the list is full, the oldest is dropped. */
const maxPauses = 1024;

/** The token that a registry's challenge asks for (distribution-spec token authentication). */
export interface TokenRequest {
  realm: URL;
  service: string;
  scope: string;
  /** The cache key of the token: the scope that the next request knows before any challenge. */
  keptAs: string;
}

interface TokenParts {
  cache: Cache;
  /** The upstream's ID. */
  id: string;
  /** The upstream's URL. */
  base: URL;
  credentials: Credentials;
  /** Milliseconds in which the token's body must be complete. */
  timeout: number;
  now: () => number;
  ask: (url: URL, headers: Record<string, string>) => Promise<UpstreamAnswer>;
}

/**
 * The registry token exchange. A token is cached until it expires, and requests that need it at the same time share one
 * exchange. An exchange that fails gets its own pause: a repository has many addresses, and each would start another one.
 */
export class RegistryTokens {
  readonly #parts: TokenParts;
  readonly #underWay = new Map<string, Promise<string>>();
  readonly #pauses = new Recent<string, Pause>(maxPauses);

  constructor(parts: TokenParts) {
    this.#parts = parts;
  }

  /** The `Authorization` for the request. `refused` is the one that the upstream did not accept: it is not used again. */
  async authorization(request: TokenRequest, refused?: string): Promise<string> {
    // A realm that does not belong to the upstream is asked for an anonymous token.
    const credentials = await this.#parts.credentials.sendTo(request.realm);
    const key = this.#keyOf(request, credentials);
    const cached = await this.#parts.cache.get<string>(key);
    if (cached !== undefined && `Bearer ${cached}` !== refused) return `Bearer ${cached}`;
    let exchange = this.#underWay.get(key);
    if (!exchange) {
      exchange = this.#attempt(request, credentials, key).finally(() => this.#underWay.delete(key));
      this.#underWay.set(key, exchange);
    }
    return `Bearer ${await exchange}`;
  }

  /** Ends the pauses of exchanges that failed. */
  tryNow(): void {
    this.#pauses.clear();
  }

  async #attempt(request: TokenRequest, credentials: string | undefined, key: string): Promise<string> {
    const { base, now } = this.#parts;
    const previous = this.#pauses.peek(key);
    const rest = remaining(previous, now());
    if (rest > 0) {
      const message = `failed a moment ago to give a token: it ${previous!.reason}`;
      throw new Refused(message, { verdict: 'unsent', retryAfter: rest });
    }
    try {
      const token = await withRetries(() => this.#exchange(request, credentials));
      this.#pauses.delete(key);
      return token;
    } catch (error) {
      if (verdictOf(error, base.origin) !== 'resource') throw error;
      const reason = messageOf(error);
      const { retryAfter = 0 } = error instanceof Refused ? error : {};
      const pause = pauseAfter(previous, { reason, now: now(), retryAfter });
      this.#pauses.set(key, pause);
      // The retries are used up: the request that needs the token must not start them again.
      throw isTransient(error)
        ? new Refused(reason, { verdict: 'resource', retryAfter: remaining(pause, now()) })
        : error;
    }
  }

  async #exchange(request: TokenRequest, credentials: string | undefined, isRenewed = false): Promise<string> {
    const { cache, timeout, ask } = this.#parts;
    const url = new URL(request.realm);
    if (request.service) url.searchParams.set('service', request.service);
    if (request.scope) url.searchParams.set('scope', request.scope);
    const { status, headers, body } = await ask(url, credentials === undefined ? {} : { authorization: credentials });
    if (status !== 200) {
      discard(body);
      if (status === 401 && credentials !== undefined && !isRenewed) {
        const renewed = await this.#parts.credentials.renew(credentials);
        if (renewed !== undefined) return this.#exchange(request, renewed, true);
      }
      const message = `gave no token (${status})`;
      if (status !== 429 && status < 500) throw new Refused(message);
      // A realm that gets the upstream's credentials shares the rate limit of the upstream's account.
      throw busyRefusal(message, status, headers, this.#parts.credentials.belongs(request.realm));
    }
    const { token, seconds } = readToken(await readUpstreamBody(body, tokenLimit, timeout));
    // Shorter than its real lifetime, so that it does not expire before it is used.
    const lifetime = (Math.min(seconds, 3600) - 10) * 900;
    await cache.set(this.#keyOf(request, credentials), token, lifetime);
    return token;
  }

  #keyOf({ realm, service, keptAs }: TokenRequest, credentials = ''): string {
    return keyOf(this.#parts.id, realm.href, service, keptAs, credentials);
  }
}

function keyOf(...parts: string[]): string {
  return `upstream-token:${createHash('sha256').update(JSON.stringify(parts)).digest('hex')}`;
}

/** `expires_in` is 60 seconds by default, and never less. */
function readToken(bytes: Buffer): { token: string; seconds: number } {
  try {
    const body = JSON.parse(bytes.toString('utf8')) as {
      token?: unknown;
      access_token?: unknown;
      expires_in?: unknown;
    };
    const token = body.token ?? body.access_token;
    if (typeof token === 'string' && /^[\x21-\x7e]+$/.test(token)) {
      return { token, seconds: typeof body.expires_in === 'number' ? Math.max(body.expires_in, 60) : 60 };
    }
  } catch {
    // Not JSON: the error below is thrown.
  }
  throw new Refused('gave an answer without a token');
}
