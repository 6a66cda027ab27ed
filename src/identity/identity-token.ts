import { hash } from 'node:crypto';
import { decodeJwt, errors, jwtVerify, type JWTPayload, type JWTVerifyGetKey } from 'jose';
import { DomainError } from '../runtime/errors.ts';
import type { IssuerKeys, TrustedIssuer } from './issuer-keys.ts';
import { tokenRefused } from './refusal.ts';

/** A trusted issuer and its keys. */
export interface Issuer {
  settings: TrustedIssuer;
  keys: IssuerKeys;
}

/** An identity token whose signature and times are right. */
export interface VerifiedToken {
  issuer: TrustedIssuer;
  claims: Claims;
  /** The same for each use of the token: SHA-256, in hex. */
  useId: string;
  /** Until when the token would be accepted; milliseconds since 1970. */
  acceptedUntil: number;
}

export type Claims = Readonly<Record<string, unknown>>;

/** Most characters of a token, tolerance of clocks in seconds, and longest lifetime in seconds. */
const maxLength = 16 * 1024;
const tolerance = 30;
const maxLife = 86_400;

/** Levels of objects and lists in the claims. */
const maxLevels = 16;
/** Only signatures with a private key. With HS256, the public key of the issuer would be the secret. */
const algorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** Reads and checks identity tokens of trusted issuers (RFC 7519, OpenID Connect Core 1.0, 3.1.3.7). */
export class IdentityTokens {
  readonly #issuers: ReadonlyMap<string, Issuer>;
  readonly #now: () => number;

  constructor(issuers: readonly Issuer[], now: () => number) {
    this.#issuers = new Map(issuers.map((each) => [each.settings.issuer, each]));
    this.#now = now;
  }

  /**
   * Rejects with `Unauthorized`, or with `UpstreamUnavailable` if the keys of the issuer cannot be fetched. For a sender that is
   * not known, keys are not fetched if the token would be refused anyway.
   */
  async verify(value: string, senderIsKnown = false): Promise<VerifiedToken> {
    const { settings, keys } = this.#issuerOf(value);
    const mayFetch = senderIsKnown || this.#mayBeAccepted(this.read(value), settings);
    const claims = await this.#check(value, settings, (...token) => keys.keyFor(...token, mayFetch));
    const { aud, exp, jti } = claims;
    if (Array.isArray(aud) && aud.length !== 1) throw tokenRefused('The token must have exactly one audience.');
    if (exp! * 1000 - this.#now() > maxLife * 1000) {
      throw tokenRefused('The token is valid for more than 24 hours. Request one with a shorter lifetime.');
    }
    if (settings.kind === 'github' && claims['event_name'] === 'pull_request_target') {
      throw tokenRefused(
        'The workflow was started by pull_request_target, which runs with changes of strangers. Use another event.',
      );
    }
    // The signature can be written in several ways, what it signs cannot.
    const signed = value.slice(0, value.lastIndexOf('.'));
    const use = typeof jti === 'string' && jti !== '' ? ['jti', jti] : ['token', signed];
    return {
      issuer: settings,
      claims,
      useId: hash('sha256', JSON.stringify([settings.issuer, ...use])),
      acceptedUntil: (exp! + tolerance) * 1000,
    };
  }

  /** The claims as the token has them. They are not verified. */
  read(value: string): Claims {
    if (value.length > maxLength) throw tokenRefused(`The token has more than ${maxLength} characters.`);
    let claims: Claims;
    try {
      claims = decodeJwt(value);
    } catch (error) {
      throw tokenRefused('This is not an identity token: it is no signed JWT.', error);
    }
    if (isDeeperThan(maxLevels, claims)) {
      throw tokenRefused(`The claims of the token have more than ${maxLevels} levels.`);
    }
    return claims;
  }

  #issuerOf(value: string): Issuer {
    const { iss } = this.read(value);
    const issuer = this.#issuers.get(iss as string);
    if (!issuer) throw tokenRefused('This server does not trust the issuer of the token.');
    return issuer;
  }

  /** Whether the claims, which are not verified yet, have the right audience and times. */
  #mayBeAccepted({ aud, exp, iat }: Claims, { audience }: TrustedIssuer): boolean {
    const now = this.#now() / 1000;
    if (![aud].flat().includes(audience) || typeof exp !== 'number' || typeof iat !== 'number') return false;
    return exp + tolerance > now && iat - tolerance <= now && now - iat <= maxLife + tolerance;
  }

  async #check(value: string, { issuer, audience }: TrustedIssuer, keyFor: JWTVerifyGetKey): Promise<JWTPayload> {
    try {
      const { payload } = await jwtVerify(value, keyFor, {
        algorithms,
        issuer,
        audience,
        clockTolerance: tolerance,
        maxTokenAge: maxLife,
        requiredClaims: ['exp', 'iat', 'aud'],
        currentDate: new Date(this.#now()),
      });
      return payload;
    } catch (error) {
      if (error instanceof DomainError) throw error;
      throw tokenRefused(reasonOf(error, audience), error);
    }
  }
}

/** Whether a value has more than `most` levels of objects and lists. Without recursion, which a deep value would exhaust. */
function isDeeperThan(most: number, value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; depth <= most; depth += 1) {
    level = level.filter((each) => typeof each === 'object' && each !== null).flatMap((each) => Object.values(each));
    if (level.length === 0) return false;
  }
  return true;
}

/** Claims are checked after the signature, so their errors go only to the owner of a token of the issuer. */
function reasonOf(error: unknown, audience: string): string {
  if (error instanceof errors.JWTExpired) return 'The token has expired. Request a new one.';
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (error.claim === 'aud') return `The audience of the token is wrong. Request one for the audience "${audience}".`;
    if (error.claim === 'nbf' || error.claim === 'iat') return 'The token is not valid yet. Check the clocks.';
    return `The claim "${error.claim}" of the token is missing or wrong.`;
  }
  if (error instanceof errors.JOSEAlgNotAllowed) return 'The algorithm of the signature is not allowed.';
  if (error instanceof errors.JWKSNoMatchingKey) return 'The issuer has no key with the ID that the token names.';
  return 'The signature of the token is not valid.';
}
