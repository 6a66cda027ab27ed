import type { IncomingMessage } from 'node:http';
import { credentialMissing } from '../accounts/allow.ts';
import type { Principal, Verifier } from '../accounts/principal.ts';
import { isMistyped } from '../accounts/token-value.ts';
import { DomainError } from '../errors.ts';

/** The Bearer value that `/token` returns to a client without credentials, if anonymous reading is allowed. */
export const anonymousBearer = 'anonymous';

/** The user name of HTTP Basic. */
export const basicUser = 'api';

type OnRefused = () => void | Promise<void>;
type LookUp = <T>(look: () => Promise<T>) => Promise<T>;

/** Turns the credentials of a request into a principal, with the same rule for all three interfaces. */
export class Authenticator {
  readonly #verifiers: readonly Verifier[];
  readonly #anonymous: Principal | undefined;
  readonly #onRefused: OnRefused;
  readonly #lookUp: LookUp;

  /**
   * Each verifier checks one kind of credential. Requests without credentials are `anonymous`, if that is allowed.
   * `onRefused` is called for each request whose credential is refused, not for one without a credential; it may delay the
   * refusal, and throw `TooManyRequests` instead. `lookUp` runs each look for a credential.
   */
  constructor(
    verifiers: readonly Verifier[],
    anonymous: Principal | undefined,
    onRefused: OnRefused = () => undefined,
    lookUp: LookUp = (look) => look(),
  ) {
    this.#verifiers = verifiers;
    this.#anonymous = anonymous;
    this.#onRefused = onRefused;
    this.#lookUp = lookUp;
  }

  /** The principal of requests without a credential; undefined if they are refused. */
  get anonymous(): Principal | undefined {
    return this.#anonymous;
  }

  /**
   * The principal of `request`, by Basic (user `api`) or Bearer, and with `apiKey` also by `X-NuGet-ApiKey`. A valid
   * API key takes precedence over the client's credentials for the package source. If only those are valid, calls
   * `onInvalidKey`. Throws `Unauthorized`.
   */
  async principalOf(
    request: Pick<IncomingMessage, 'headers'>,
    { apiKey, onInvalidKey }: { apiKey?: boolean; onInvalidKey?: () => void } = {},
  ): Promise<Principal> {
    const key = apiKey ? request.headers['x-nuget-apikey'] : undefined;
    const authorization = authorizationOf(request);
    if (typeof key === 'string' && key !== '') return this.#byApiKey(key, authorization, onInvalidKey);
    return this.#byAuthorization(authorization);
  }

  async #byApiKey(key: string, authorization: string | undefined, onInvalidKey?: () => void): Promise<Principal> {
    const principal = await this.#verify(key);
    if (principal) return principal;
    if (authorization === undefined) throw await this.#refused(key);
    const found = await this.#byAuthorization(authorization);
    onInvalidKey?.();
    return found;
  }

  async #byAuthorization(authorization: string | undefined): Promise<Principal> {
    if (authorization === undefined) {
      if (this.#anonymous) return this.#anonymous;
      throw credentialMissing();
    }
    const value = tokenIn(authorization);
    if (value === undefined) throw await this.#refused('');
    if (value === anonymousBearer && this.#anonymous) return this.#anonymous;
    const principal = await this.#verify(value);
    if (!principal) throw await this.#refused(value);
    return principal;
  }

  async #refused(value: string): Promise<DomainError> {
    await this.#onRefused();
    return unauthorized(value);
  }

  async #verify(value: string): Promise<Principal | undefined> {
    for (const each of this.#verifiers) {
      const principal = await this.#lookUp(() => each.verify(value));
      if (principal) return principal;
    }
    return undefined;
  }
}

/**
 * The `Authorization` header of `request`; undefined if there is none. Basic credentials without user name and password
 * count as none: podman without a login sends them, and `curl -u :`.
 */
export function authorizationOf({ headers }: Pick<IncomingMessage, 'headers'>): string | undefined {
  const { authorization } = headers;
  return authorization !== undefined && /^basic +Og==$/i.test(authorization.trim()) ? undefined : authorization;
}

/** The token in an `Authorization` header with Bearer, or with Basic and the user name `api`; otherwise undefined. */
export function tokenIn(authorization: string): string | undefined {
  const space = authorization.indexOf(' ');
  const scheme = authorization.slice(0, space).toLowerCase();
  const rest = authorization.slice(space + 1).trim();
  if (space < 0 || rest === '') return undefined;
  if (scheme === 'bearer') return rest;
  if (scheme !== 'basic') return undefined;
  const pair = Buffer.from(rest, 'base64').toString('utf8');
  return pair.startsWith(`${basicUser}:`) ? pair.slice(basicUser.length + 1) : undefined;
}

/**
 * The same message for unknown, expired and revoked tokens. A mistyped token is visible from its value, so it may
 * differ.
 */
function unauthorized(value: string): DomainError {
  const message = isMistyped(value)
    ? 'The API token is mistyped or incomplete: its checksum is wrong. Copy it again.'
    : 'The API token is not valid, or the user name of Basic authentication is not "api".';
  return new DomainError('Unauthorized', message);
}
