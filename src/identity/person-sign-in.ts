import { hash, randomBytes } from 'node:crypto';
import * as client from 'openid-client';
import type { Logger } from 'pino';
import { everywhere, groupsClaim, isDisabled, type People, type Person } from '../accounts/people.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import type { CheckedFetch } from '../upstream/checked-fetch.ts';
import { FailureLog } from '../upstream/failure-log.ts';
import { messageOf } from '../upstream/failures.ts';
import { valuesIn } from './claims.ts';

type Settings = Config['signIn']['oidc'];

interface SignInParts {
  /** With an issuer. */
  settings: Settings;
  fetch: Pick<CheckedFetch, 'fetch'>;
  people: People;
  log: Logger;
  /** A clock in milliseconds, monotonic if possible. */
  now: () => number;
}

/** Who signed in, and the first account that the person may use; undefined if no rule and no grant gives one. */
export interface SignedIn {
  person: Person;
  accountId: number | undefined;
}

/** Milliseconds after which the metadata of the provider are fetched again: after success, and after a failure. */
const freshFor = 60 * 60_000;
const failurePause = 5000;
/** Seconds for each request to the provider. */
const timeout = 10;
const maxNameLength = 200;
const maxSubjectLength = 255;
const maxGroupLength = 255;
/** Claims with too many values that are noted. */
const maxCut = 20;

/**
 * Sign-in of people with an OpenID Connect provider: authorization code with PKCE, state and nonce (OpenID Connect Core
 * 1.0, 3.1; RFC 7636; RFC 9700). State, nonce and verifier follow from one secret, which only the cookie of the browser has.
 */
export class PersonSignIn {
  readonly #settings: Settings;
  readonly #fetch: SignInParts['fetch'];
  readonly #people: People;
  readonly #now: () => number;
  readonly #failures: FailureLog;
  #found: { configuration: Promise<client.Configuration>; until: number } | undefined;

  constructor({ settings, fetch, people, log, now }: SignInParts) {
    this.#settings = settings;
    this.#fetch = fetch;
    this.#people = people;
    this.#now = now;
    this.#failures = new FailureLog(log, this.providerName, now);
  }

  /** The name of the provider for people: by default its host. */
  get providerName(): string {
    return this.#settings.name ?? new URL(this.#settings.issuer!).host;
  }

  /** A new secret for the cookie of one sign-in: 43 characters of base64url. */
  newSecret(): string {
    return randomBytes(32).toString('base64url');
  }

  /** The address at the provider that the browser is led to. Rejects with `UpstreamUnavailable`. */
  async addressFor(secret: string, redirectUri: string): Promise<string> {
    const configuration = await this.#configuration();
    const address = client.buildAuthorizationUrl(configuration, {
      redirect_uri: redirectUri,
      scope: this.#settings.scopes.join(' '),
      state: derived(secret, 'state'),
      nonce: derived(secret, 'nonce'),
      code_challenge: await client.calculatePKCECodeChallenge(derived(secret, 'verifier')),
      code_challenge_method: 'S256',
    });
    return address.href;
  }

  /** Where people sign out at the provider, too (OpenID Connect RP-Initiated Logout 1.0); undefined if it has no such address. */
  async signOutAddress(): Promise<string | undefined> {
    const configuration = await this.#configuration();
    if (configuration.serverMetadata().end_session_endpoint === undefined) return undefined;
    return client.buildEndSessionUrl(configuration, {}).href;
  }

  /**
   * Completes a sign-in with the answer of the provider: `callback` is the redirect URI with its query. Rejects with
   * `Unauthorized` if the answer does not belong to `secret`, or is not valid, or the person is disabled here, and with
   * `UpstreamUnavailable`.
   */
  async finish(secret: string, callback: URL): Promise<SignedIn> {
    const configuration = await this.#configuration();
    const claims = await this.#claims(configuration, secret, callback).catch((error: unknown) => {
      throw failureOf(error);
    });
    const person = await this.#people.signedIn(this.#personOf(claims));
    if (isDisabled(person, everywhere))
      throw refused('An administrator disabled you on this server. Ask the administrators of this server.');
    return { person, accountId: await this.#people.firstAccountOf(person) };
  }

  async #claims(
    configuration: client.Configuration,
    secret: string,
    callback: URL,
  ): Promise<Readonly<Record<string, unknown>> & { sub: string }> {
    const tokens = await client.authorizationCodeGrant(configuration, callback, {
      expectedState: derived(secret, 'state'),
      expectedNonce: derived(secret, 'nonce'),
      pkceCodeVerifier: derived(secret, 'verifier'),
      idTokenExpected: true,
    });
    const claims = tokens.claims()!;
    const needed = this.#settings.rules.map(({ claim }) => claim);
    if (await this.#people.needsGroups()) needed.push(groupsClaim);
    const isComplete = needed.every((claim) => valuesIn(claims, claim).length > 0);
    if (isComplete || configuration.serverMetadata().userinfo_endpoint === undefined) return claims;
    // Many providers leave claims such as groups out of the ID token.
    const more = await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
    return { ...more, ...claims };
  }

  #personOf(claims: Readonly<Record<string, unknown>> & { sub: string }): Person {
    const subject = claims.sub;
    if (subject.length > maxSubjectLength) throw refused('The provider sent a subject that is too long.');
    const named = new Set(this.#settings.rules.map(({ claim }) => claim));
    const found = new Map([...named].map((claim) => [claim, new Set(valuesIn(claims, claim, Infinity))]));
    const pairs = this.#settings.rules
      .filter(({ claim, value }) => found.get(claim)!.has(value))
      .map(({ claim, value }) => [claim, value] as const);
    const name = [claims['name'], claims['preferred_username'], claims['email'], subject].find(
      (each): each is string => typeof each === 'string' && each.trim() !== '',
    )!;
    return {
      issuer: this.#settings.issuer!,
      subject,
      name: name.replace(/\p{Cc}/gu, ' ').slice(0, maxNameLength),
      claims: pairs,
      groups: groupsIn(claims),
      cut: cutIn(claims),
    };
  }

  /** Logs why a person was not signed in, each reason once in 10 seconds: clients cannot fill the log. */
  logFailure({ message, cause }: DomainError, address: string | undefined): void {
    const reason = cause instanceof Error ? `${message} (${cause.message.slice(0, 500)})` : message;
    this.#failures.warn('a person was not signed in', address ?? '', reason);
  }

  #configuration(): Promise<client.Configuration> {
    const now = this.#now();
    if (this.#found && now < this.#found.until) return this.#found.configuration;
    const configuration = this.#discover();
    const found = { configuration, until: now + freshFor };
    this.#found = found;
    configuration.catch(() => (found.until = this.#now() + failurePause));
    return configuration;
  }

  async #discover(): Promise<client.Configuration> {
    const { issuer, clientId, clientSecret, allowPrivateNetwork } = this.#settings;
    const auth = clientSecret === undefined ? client.None() : undefined;
    const execute = [client.enableNonRepudiationChecks, ...(allowPrivateNetwork ? [client.allowInsecureRequests] : [])];
    try {
      return await client.discovery(new URL(issuer!), clientId!, clientSecret, auth, {
        execute,
        timeout,
        [client.customFetch]: (url, { method, headers, body, signal }) =>
          this.#fetch.fetch(new URL(url), {
            method: method === 'POST' ? 'POST' : 'GET',
            headers,
            ...(method === 'POST' && { body: textOf(body) }),
            signal,
          }),
      });
    } catch (error) {
      throw unavailable(error);
    }
  }
}

/** The IDs of all groups that the provider sent. */
function groupsIn(claims: Readonly<Record<string, unknown>>): string[] {
  const values = [claims[groupsClaim]].flat().filter((each) => typeof each === 'string' || typeof each === 'number');
  return [...new Set(values.map(String))].filter((each) => each !== '' && each.length <= maxGroupLength);
}

/**
 * The claims that the provider left out because they have too many values: those of OpenID Connect Core 1.0, 5.6.2, which are
 * elsewhere, and the groups that Entra ID marks with `hasgroups`.
 */
function cutIn(claims: Readonly<Record<string, unknown>>): string[] {
  const elsewhere = claims['_claim_names'];
  const names = typeof elsewhere === 'object' && elsewhere !== null ? Object.keys(elsewhere) : [];
  if (claims['hasgroups'] === true || claims['hasgroups'] === 'true') names.push(groupsClaim);
  return [...new Set(names)].filter((each) => !Object.hasOwn(claims, each)).slice(0, maxCut);
}

/** A value that shows nothing of the secret, nor of other values. */
function derived(secret: string, purpose: 'state' | 'nonce' | 'verifier'): string {
  return hash('sha256', `${purpose} ${secret}`, 'base64url');
}

function textOf(body: client.FetchBody): string {
  if (typeof body === 'string') return body;
  return body instanceof URLSearchParams ? body.toString() : '';
}

function refused(message: string, cause?: unknown): DomainError {
  return new DomainError('Unauthorized', message, { cause });
}

function failureOf(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  if (error instanceof client.AuthorizationResponseError || error instanceof client.ResponseBodyError) {
    const code = /^[a-z_]{1,50}$/.test(error.error) ? ` (${error.error})` : '';
    return refused(`The provider refused the sign-in${code}. Sign in again.`, error);
  }
  const code = error instanceof client.ClientError ? error.code : undefined;
  if (code !== undefined && !unansweredCodes.has(code)) {
    return refused('The answer of the provider is not valid, or belongs to another sign-in. Sign in again.', error);
  }
  return unavailable(error);
}

/** The provider failed, or did not answer. */
const unansweredCodes = new Set([
  'OAUTH_TIMEOUT',
  'OAUTH_ABORT',
  'OAUTH_RESPONSE_IS_NOT_CONFORM',
  'OAUTH_RESPONSE_IS_NOT_JSON',
]);

function unavailable(error: unknown): DomainError {
  const reason = messageOf(error instanceof client.ClientError ? (error.cause ?? error) : error);
  return new DomainError('UpstreamUnavailable', `The provider ${reason}. Try again.`, { cause: error });
}
