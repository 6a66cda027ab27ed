import type { CredentialSource } from './credential-source.ts';

export type UpstreamAuth = { username: string; password: string } | { bearer: string };

/** A `WWW-Authenticate` challenge (RFC 9110, 11.6.1): its scheme in lower case and its parameters. */
interface Challenge {
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
function upstreamAuthorization(auth: UpstreamAuth): string {
  if ('bearer' in auth) return `Bearer ${auth.bearer}`;
  return `Basic ${Buffer.from(`${auth.username}:${auth.password}`).toString('base64')}`;
}

/** What an operator can do about a host that got no credentials. */
export function withheldFrom(host: string): string {
  return `${host} got no credentials; to send them there, add ${host} to credentialHosts`;
}

/** Hosts whose withholding is logged. An upstream can name any number of hosts. */
const maxWithheld = 20;

interface CredentialsParts {
  /** Undefined if no credentials are configured. */
  source: CredentialSource | undefined;
  /** The upstream's URL and its configured name. */
  base: URL;
  name: string;
  /** The setting `credentialHosts`. */
  hosts: readonly string[];
  /** Called once for each host that wanted the credentials and did not get them. */
  onWithheld: (host: string) => void;
}

/** The configured credentials of an upstream: where they may go, and where they went. */
export class Credentials {
  readonly #parts: CredentialsParts;
  readonly #withheld = new Set<string>();
  #sent = false;

  constructor(parts: CredentialsParts) {
    this.#parts = parts;
  }

  get isConfigured(): boolean {
    return this.#parts.source !== undefined;
  }

  /** Whether they are a bearer token. */
  get isBearer(): boolean {
    return this.#parts.source?.isBearer ?? false;
  }

  /** Whether the credentials, or a token that was given for them, were presented. */
  get sent(): boolean {
    return this.#sent;
  }

  /** The hosts that wanted the credentials and did not get them; the first 20. */
  get withheldFrom(): readonly string[] {
    return [...this.#withheld];
  }

  /**
   * The value of `Authorization` with the credentials themselves, to be sent now to the upstream's own host. Undefined if
   * none are configured. Throws `Refused` if there are none now.
   */
  async send(): Promise<string | undefined> {
    const { source } = this.#parts;
    if (!source) return undefined;
    const header = upstreamAuthorization(await source.get());
    this.#sent = true;
    return header;
  }

  /** The same, to be sent now to a token realm; undefined for a realm that must not get the credentials. */
  async sendTo(realm: URL): Promise<string | undefined> {
    if (this.belongs(realm)) return this.send();
    this.withhold(realm);
    return undefined;
  }

  /** The same after `refused` was not accepted; undefined if there are no other credentials. */
  async renew(refused: string): Promise<string | undefined> {
    const { source } = this.#parts;
    const current = await this.send();
    if (!source || current !== refused) return current;
    const renewed = upstreamAuthorization(await source.renew());
    return renewed === refused ? undefined : renewed;
  }

  close(): void {
    this.#parts.source?.close?.();
  }

  /** Whether a token realm may get the credentials. */
  belongs(realm: URL): boolean {
    const { base, name, hosts } = this.#parts;
    return belongsTo(realm, base, name, hosts);
  }

  /** Whether the settings name the host of `url`. */
  isListed(url: URL): boolean {
    const { base, hosts } = this.#parts;
    return isAsSafe(url, base) && isListed(url, hosts);
  }

  /** Records that the host of `url` wanted the credentials and did not get them. */
  withhold({ host }: URL): void {
    if (!this.isConfigured || this.#withheld.has(host) || this.#withheld.size >= maxWithheld) return;
    this.#withheld.add(host);
    this.#parts.onWithheld(host);
  }
}

/**
 * Whether credentials of the upstream `name` at `base` may be sent to `realm`. Allowed are the same host, a parent domain
 * of it (`gitlab.com` for `registry.gitlab.com`: the owner of the domain controls the host), hosts of the domain that the
 * upstream is named after, and `hosts`. An upstream with https never has its credentials sent over http.
 */
export function belongsTo(realm: URL, base: URL, name: string, hosts: readonly string[] = []): boolean {
  if (!isAsSafe(realm, base)) return false;
  if (realm.host === base.host || isListed(realm, hosts)) return true;
  const domain = name.replace(/:\d+$/, '');
  const isAbove = realm.hostname.includes('.') && base.hostname.endsWith(`.${realm.hostname}`);
  return isAbove || realm.hostname === domain || realm.hostname.endsWith(`.${domain}`);
}

function isAsSafe(url: URL, base: URL): boolean {
  return url.protocol === 'https:' || url.protocol === base.protocol;
}

/** Whether `hosts` has the host of `url`. A host without a port is one with the default port of the scheme. */
function isListed({ protocol, host }: URL, hosts: readonly string[]): boolean {
  return hosts.some((each) => URL.parse(`${protocol}//${each}`)?.host === host);
}
