export type UpstreamAuth = { username: string; password: string } | { bearer: string };

/** A `WWW-Authenticate` challenge (RFC 9110, 11.6.1): its scheme in lower case and its parameters. */
export interface Challenge {
  scheme: string;
  parameters: Record<string, string>;
}

/** Characters. A longer header is ignored, because parsing it would be slow. */
const challengeLimit = 4096;

/** The challenges in a `WWW-Authenticate` header. Parts that cannot be parsed are ignored. */
export function parseChallenges(header: string | undefined): Challenge[] {
  const challenges: Challenge[] = [];
  if (header === undefined || header.length > challengeLimit) return challenges;
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

/** The value of `Authorization` for configured credentials. */
export function authorizationOf(auth: UpstreamAuth): string {
  if ('bearer' in auth) return `Bearer ${auth.bearer}`;
  return `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`;
}

/**
 * Whether credentials of the upstream `name` at `base` may be sent to `realm`. Allowed are the same host, a parent domain
 * of it (`gitlab.com` for `registry.gitlab.com`: the owner of the domain controls the host), and hosts of the domain that
 * the upstream is named after. An upstream with https never has its credentials sent over http.
 */
export function belongsTo(realm: URL, base: URL, name: string): boolean {
  if (realm.protocol !== 'https:' && realm.protocol !== base.protocol) return false;
  if (realm.host === base.host) return true;
  const domain = name.replace(/:\d+$/, '');
  const isAbove = realm.hostname.includes('.') && base.hostname.endsWith(`.${realm.hostname}`);
  return isAbove || realm.hostname === domain || realm.hostname.endsWith(`.${domain}`);
}
