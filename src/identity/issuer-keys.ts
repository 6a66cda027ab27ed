import {
  createLocalJWKSet,
  errors,
  type CryptoKey,
  type FlattenedJWSInput,
  type JWK,
  type JWSHeaderParameters,
} from 'jose';
import type { Logger } from 'pino';
import { isSecure } from '../config/identity.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { FailureLog } from '../upstream/failure-log.ts';
import { messageOf, Refused } from '../upstream/failures.ts';
import { tokenRefused } from './refusal.ts';

export type TrustedIssuer = Config['trustedIssuers'][number];

/** `fetch` of `CheckedFetch`. */
type FetchDocument = (url: URL) => Promise<Response>;

/** Milliseconds after which keys are fetched again, and for which older keys are used while that fails. */
const freshFor = 10 * 60_000;
const staleFor = 60 * 60_000;
/** Shortest time between two fetches because of an unknown key, and after a failure; milliseconds. */
const unknownPause = 60_000;
const failurePause = 5000;
const maxKeys = 100;

type FindKey = ReturnType<typeof createLocalJWKSet>;

/** The public keys of a trusted issuer, by its discovery document (OpenID Connect Discovery 1.0, 4). */
export class IssuerKeys {
  readonly #issuer: TrustedIssuer;
  readonly #fetch: FetchDocument;
  readonly #now: () => number;
  readonly #failures: FailureLog;
  #found: { find: FindKey; at: number } | undefined;
  #triedAt = 0;
  #failure: DomainError | undefined;
  #underWay: Promise<FindKey> | undefined;

  /** `now` is a clock in milliseconds, monotonic if possible. */
  constructor(issuer: TrustedIssuer, fetch: FetchDocument, log: Logger, now: () => number) {
    this.#issuer = issuer;
    this.#fetch = fetch;
    this.#now = now;
    this.#failures = new FailureLog(log, issuer.name, now);
  }

  /**
   * The key for the header of a token. An unknown key is searched in newly fetched keys, at most once a minute, and while the issuer
   * fails once in 5 seconds, for which all wait who need them meanwhile. Without `mayFetch` only known keys count. Rejects with an
   * error of jose, with `Unauthorized` if no keys are known and none may be fetched, or with `UpstreamUnavailable` if the issuer gives
   * no keys.
   */
  async keyFor(header: JWSHeaderParameters, token: FlattenedJWSInput, mayFetch: boolean): Promise<CryptoKey> {
    if (typeof header.kid !== 'string') throw new errors.JWKSNoMatchingKey('the token names no key');
    const find = mayFetch ? await this.#current() : this.#known();
    try {
      return await find(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey) || !mayFetch) throw error;
      // After a failure it is not known whether the issuer has the key.
      if (!this.#underWay && !this.#failure && this.#now() - this.#triedAt < unknownPause) throw error;
      return (await this.#load())(header, token);
    }
  }

  #known(): FindKey {
    if (this.#found && this.#now() - this.#found.at < staleFor) return this.#found.find;
    throw tokenRefused('The token has expired, or its audience or times are wrong.');
  }

  async #current(): Promise<FindKey> {
    const age = this.#found ? this.#now() - this.#found.at : Infinity;
    if (this.#found && age < freshFor) return this.#found.find;
    try {
      return await this.#load();
    } catch (error) {
      if (this.#found && age < staleFor) return this.#found.find;
      throw error;
    }
  }

  /** Fetches the keys once for all that wait for them. */
  #load(): Promise<FindKey> {
    if (this.#underWay) return this.#underWay;
    if (this.#failure && this.#now() - this.#triedAt < failurePause) return Promise.reject(this.#failure);
    this.#triedAt = this.#now();
    this.#underWay = this.#fetchKeys().finally(() => (this.#underWay = undefined));
    return this.#underWay;
  }

  async #fetchKeys(): Promise<FindKey> {
    const { name, issuer, allowPrivateNetwork } = this.#issuer;
    this.#failure = undefined;
    try {
      const discovered = await this.#json(new URL(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`));
      if (discovered['issuer'] !== issuer) throw new Refused('has a discovery document of another issuer');
      const address = URL.parse(String(discovered['jwks_uri']));
      if (!address || !['http:', 'https:'].includes(address.protocol) || !isSecure(address.href, allowPrivateNetwork)) {
        throw new Refused('has no https address of its keys');
      }
      const { keys } = await this.#json(address);
      if (!Array.isArray(keys) || keys.length === 0 || keys.length > maxKeys) {
        throw new Refused(`has not 1 to ${maxKeys} keys`);
      }
      const find = createLocalJWKSet({ keys: keys as JWK[] });
      this.#found = { find, at: this.#now() };
      return find;
    } catch (error) {
      const reason = messageOf(error);
      this.#failures.warn('the keys of an issuer were not fetched', issuer, reason);
      this.#failure = new DomainError('UpstreamUnavailable', `The issuer "${name}" ${reason}. Try again.`, {
        cause: error,
        retryAfter: failurePause / 1000,
      });
      throw this.#failure;
    }
  }

  async #json(url: URL): Promise<Record<string, unknown>> {
    const response = await this.#fetch(url);
    if (response.status !== 200) throw new Refused(`answered ${response.status} for ${url.href.slice(0, 500)}`);
    const value: unknown = await response.json().catch(() => undefined);
    if (typeof value !== 'object' || value === null) throw new Refused(`sent no JSON for ${url.href.slice(0, 500)}`);
    return value as Record<string, unknown>;
  }
}
