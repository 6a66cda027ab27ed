import type { IncomingMessage } from 'node:http';
import { credentialMissing } from '../accounts/allow.ts';
import type { Principal, Verifier } from '../accounts/principal.ts';
import { isMistyped } from '../accounts/token-value.ts';
import { DomainError } from '../runtime/errors.ts';

/** The Bearer value that `/token` returns to a client without credentials, if anonymous reading is allowed. */
export const anonymousBearer = 'anonymous';

/** The user name of HTTP Basic. */
export const basicUser = 'api';

/** How a route takes credentials. Without any of these: Bearer, or Basic with the user name `api`. */
export interface CredentialRules {
  /** Also `X-NuGet-ApiKey`. */
  apiKey?: boolean;
  /** Called if the API key is not valid, and other credentials of the request are. */
  onInvalidKey?: () => void;
  /** Basic with any user name, also an empty one, for clients that cannot set it. */
  anyUser?: boolean;
}

/** A credential of another server, which clients still send. */
export interface ForeignCredential {
  /** Of Basic; undefined for an API key. */
  user: string | undefined;
  secret: string;
}

/** What checks the credentials of other servers. It bounds how often it asks them. */
export interface ForeignVerifier {
  /** The principal; undefined if it accepts the credential as none. */
  verifyForeign(credential: ForeignCredential): Promise<Principal | undefined>;
}

type OnRefused = () => void | Promise<void>;
type LookUp = <T>(look: () => Promise<T>) => Promise<T>;

/** Turns the credentials of a request into a principal, with the same rule for all three interfaces. */
export class Authenticator {
  readonly #verifiers: readonly Verifier[];
  readonly #anonymous: Principal | undefined;
  readonly #onRefused: OnRefused;
  readonly #lookUp: LookUp;
  readonly #foreign: ForeignVerifier | undefined;

  /**
   * Each verifier checks one kind of credential. Requests without credentials are `anonymous`, if that is allowed.
   * `onRefused` is called for each request whose credential is refused, not for one without a credential; it may delay the
   * refusal, and throw `TooManyRequests` instead. `lookUp` runs each look for a credential. `foreign` checks what no
   * verifier accepts.
   */
  constructor(
    verifiers: readonly Verifier[],
    anonymous: Principal | undefined,
    onRefused: OnRefused = () => undefined,
    lookUp: LookUp = (look) => look(),
    foreign?: ForeignVerifier,
  ) {
    this.#verifiers = verifiers;
    this.#anonymous = anonymous;
    this.#onRefused = onRefused;
    this.#lookUp = lookUp;
    this.#foreign = foreign;
  }

  /** The principal of requests without a credential; undefined if they are refused. */
  get anonymous(): Principal | undefined {
    return this.#anonymous;
  }

  /**
   * The principal of `request`. A valid API key takes precedence over the client's credentials for the package source.
   * Throws `Unauthorized`.
   */
  async principalOf(request: Pick<IncomingMessage, 'headers'>, rules: CredentialRules = {}): Promise<Principal> {
    const key = rules.apiKey ? request.headers['x-nuget-apikey'] : undefined;
    const authorization = authorizationOf(request);
    if (typeof key === 'string' && key !== '') return this.#byApiKey(key, authorization, rules);
    return this.#byAuthorization(authorization, rules);
  }

  async #byApiKey(key: string, authorization: string | undefined, rules: CredentialRules): Promise<Principal> {
    const principal =
      (await this.#verify(key)) ?? (await this.#foreign?.verifyForeign({ user: undefined, secret: key }));
    if (principal) return principal;
    if (authorization === undefined) throw await this.#refused(key, rules);
    const found = await this.#byAuthorization(authorization, rules);
    rules.onInvalidKey?.();
    return found;
  }

  async #byAuthorization(authorization: string | undefined, rules: CredentialRules): Promise<Principal> {
    if (authorization === undefined) {
      if (this.#anonymous) return this.#anonymous;
      throw credentialMissing();
    }
    const value = tokenIn(authorization, rules);
    if (value === anonymousBearer && this.#anonymous) return this.#anonymous;
    const found =
      (value === undefined ? undefined : await this.#verify(value)) ?? (await this.#verifyForeign(authorization));
    if (!found) throw await this.#refused(value ?? '', rules);
    return found;
  }

  async #verifyForeign(authorization: string): Promise<Principal | undefined> {
    const credential = this.#foreign && foreignIn(authorization);
    return credential && this.#foreign?.verifyForeign(credential);
  }

  async #refused(value: string, rules: CredentialRules): Promise<DomainError> {
    await this.#onRefused();
    return unauthorized(value, rules);
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

/** The token in an `Authorization` header with Bearer, or with Basic and a user name that `rules` take; otherwise undefined. */
export function tokenIn(authorization: string, { anyUser }: CredentialRules = {}): string | undefined {
  const space = authorization.indexOf(' ');
  const scheme = authorization.slice(0, space).toLowerCase();
  const rest = authorization.slice(space + 1).trim();
  if (space < 0 || rest === '') return undefined;
  if (scheme === 'bearer') return rest;
  if (scheme !== 'basic') return undefined;
  const pair = pairIn(rest);
  return pair && (anyUser || pair.user === basicUser) ? pair.secret : undefined;
}

/**
 * The Bearer value that `/token` returns for Basic credentials of another server: these credentials, as an API token is returned
 * as it is.
 */
export function bearerOf(authorization: string): string | undefined {
  const found = /^basic +(\S+)$/i.exec(authorization.trim())?.[1];
  return found && `${basicBearer}${Buffer.from(found, 'base64').toString('base64url')}`;
}

const basicBearer = 'basic.';

/** The credential in an `Authorization` header, if it can be one of another server. */
function foreignIn(authorization: string): ForeignCredential | undefined {
  const bearer = tokenIn(authorization);
  const encoded = bearer?.startsWith(basicBearer)
    ? bearer.slice(basicBearer.length)
    : /^basic +(\S+)$/i.exec(authorization.trim())?.[1];
  return encoded === undefined ? undefined : pairIn(encoded);
}

function pairIn(encoded: string): { user: string; secret: string } | undefined {
  const pair = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  return colon < 0 ? undefined : { user: pair.slice(0, colon), secret: pair.slice(colon + 1) };
}

/**
 * The same message for unknown, expired and revoked tokens. A mistyped token is visible from its value, so it may
 * differ. The value is empty if the credential has no token.
 */
function unauthorized(value: string, { anyUser }: CredentialRules): DomainError {
  const message = isMistyped(value)
    ? 'The API token is mistyped or incomplete: its checksum is wrong. Copy it again.'
    : value !== ''
      ? 'The API token is not valid. It may have expired, or have been revoked.'
      : `The credential has no API token. Send one as Bearer, or as the password of Basic authentication${anyUser ? '' : ' with the user name "api"'}.`;
  return new DomainError('Unauthorized', message);
}
