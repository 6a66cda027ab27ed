import type { IncomingMessage } from 'node:http';
import type { Principal, Verifier } from '../accounts/principal.ts';
import { isMistyped } from '../accounts/token-value.ts';
import { DomainError } from '../errors.ts';

/** The Bearer value that `/token` gives to somebody without credentials, where anonymous reading is allowed. */
export const anonymousBearer = 'anonymous';

/** The user name of HTTP Basic (interface.md, "Authentication"). */
export const basicUser = 'api';

/** Turns a request's credentials into a principal; the same rule for all three interfaces. */
export class Authenticator {
  readonly #verifiers: readonly Verifier[];
  readonly #anonymous: Principal | undefined;

  /** Each of `verifiers` knows one kind of credential. Requests without one are `anonymous`, where that is allowed. */
  constructor(verifiers: readonly Verifier[], anonymous: Principal | undefined) {
    this.#verifiers = verifiers;
    this.#anonymous = anonymous;
  }

  get allowsAnonymous(): boolean {
    return this.#anonymous !== undefined;
  }

  /**
   * Who sends `request`: by Basic (user `api`) or Bearer, and by `X-NuGet-ApiKey` where that is accepted. A valid API
   * key wins over the credentials a client has for the source. Throws `Unauthorized`.
   */
  async principalOf(request: Pick<IncomingMessage, 'headers'>, options: { apiKey?: boolean } = {}): Promise<Principal> {
    const key = options.apiKey ? request.headers['x-nuget-apikey'] : undefined;
    const authorization = request.headers.authorization;
    if (typeof key === 'string' && key !== '') return this.#byApiKey(key, authorization);
    return this.#byAuthorization(authorization);
  }

  async #byApiKey(key: string, authorization: string | undefined): Promise<Principal> {
    const principal = await this.#verify(key);
    if (principal) return principal;
    if (authorization === undefined) throw unauthorized(key);
    return this.#byAuthorization(authorization);
  }

  async #byAuthorization(authorization: string | undefined): Promise<Principal> {
    if (authorization === undefined) {
      if (this.#anonymous) return this.#anonymous;
      throw new DomainError(
        'Unauthorized',
        'Authenticate with an API token, as Bearer or as Basic with user name "api".',
      );
    }
    const value = tokenIn(authorization);
    if (value === undefined) throw unauthorized('');
    if (value === anonymousBearer && this.#anonymous) return this.#anonymous;
    const principal = await this.#verify(value);
    if (!principal) throw unauthorized(value);
    return principal;
  }

  async #verify(value: string): Promise<Principal | undefined> {
    for (const each of this.#verifiers) {
      const principal = await each.verify(value);
      if (principal) return principal;
    }
    return undefined;
  }
}

/** The token in an `Authorization` header, if it is Basic with the one user name, or Bearer. */
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

/** Unknown, expired and revoked look the same; a typing error anybody could tell from the value alone. */
function unauthorized(value: string): DomainError {
  const message = isMistyped(value)
    ? 'The API token is mistyped: its checksum does not fit.'
    : 'The API token is not valid, or the user name of Basic authentication is not "api".';
  return new DomainError('Unauthorized', message);
}
