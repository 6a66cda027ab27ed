import { createHash } from 'node:crypto';
import type { Cache } from '../cache/cache.ts';

export type UpstreamAuth = { username: string; password: string } | { bearer: string };

/** A `WWW-Authenticate` challenge (RFC 9110, 11.6.1): its scheme in lower case and its parameters. */
export interface Challenge {
  scheme: string;
  parameters: Record<string, string>;
}

/** The challenges in a `WWW-Authenticate` header; unreadable parts are passed over. */
export function parseChallenges(header: string | undefined): Challenge[] {
  const challenges: Challenge[] = [];
  if (header === undefined) return challenges;
  const tokens = header.matchAll(
    /([A-Za-z0-9._~+/-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([A-Za-z][A-Za-z0-9-]*)(?=\s|,|$)/g,
  );
  for (const [, name, quoted, plain, scheme] of tokens) {
    if (scheme !== undefined) challenges.push({ scheme: scheme.toLowerCase(), parameters: {} });
    const last = challenges.at(-1);
    if (last && name !== undefined) last.parameters[name.toLowerCase()] = quoted?.replace(/\\(.)/g, '$1') ?? plain!;
  }
  return challenges;
}

/** The value of `Authorization` for credentials as configured. */
export function authorizationOf(auth: UpstreamAuth): string {
  if ('bearer' in auth) return `Bearer ${auth.bearer}`;
  return `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`;
}

/**
 * Whether credentials of the upstream `name` at `base` may be sent to `realm`: the same host, or a host of the domain
 * that the upstream is named after; never in clear text where the upstream itself is not.
 */
export function belongsTo(realm: URL, base: URL, name: string): boolean {
  if (realm.protocol !== 'https:' && realm.protocol !== base.protocol) return false;
  const domain = name.replace(/:\d+$/, '');
  return realm.host === base.host || realm.hostname === domain || realm.hostname.endsWith(`.${domain}`);
}

/** Upstream tokens, kept for as long as they live, by realm, service, scope and whose they are. */
export class TokenCache {
  readonly #cache: Cache;

  constructor(cache: Cache) {
    this.#cache = cache;
  }

  get(realm: string, service: string, scope: string, user: string): Promise<string | undefined> {
    return this.#cache.get<string>(keyOf(realm, service, scope, user));
  }

  /** Keeps a token a little shorter than `seconds`, so that it does not end on its way. */
  async set(
    realm: string,
    service: string,
    scope: string,
    user: string,
    token: string,
    seconds: number,
  ): Promise<void> {
    const milliseconds = Math.max(0, Math.min(seconds, 3600) - 10) * 900;
    if (milliseconds > 0) await this.#cache.set(keyOf(realm, service, scope, user), token, milliseconds);
  }

  async drop(realm: string, service: string, scope: string, user: string): Promise<void> {
    await this.#cache.delete(keyOf(realm, service, scope, user));
  }
}

function keyOf(...parts: string[]): string {
  return `upstream-token:${createHash('sha256').update(JSON.stringify(parts)).digest('hex')}`;
}
