import type { Config } from '../config/schema.ts';
import { splitTarget } from './target.ts';

type Alias = Config['aliases'][number];

/** A request at an alias, as it is answered. */
interface Aliased {
  /** The target at this server's own address. */
  target: string;
  /** The account whose credentials are taken; undefined for all. */
  account: string | undefined;
  /** How addresses below `/v2/` in the answer begin, and how they begin at the alias. */
  renamed: readonly [own: string, old: string] | undefined;
}

/** Paths of symbols at other servers, at the end of an alias or below it. */
const symbols = /\/(?:symbols?|symbolpackage)$/;

/** Old addresses that lead to this server (setting `aliases`). */
export class Aliases {
  readonly #aliases: readonly Alias[];
  readonly #hosts: ReadonlySet<string>;

  constructor(aliases: readonly Alias[]) {
    // The longest path is the closest one, and one with a host is closer than one for all hosts.
    const weight = ({ path = '', host }: Alias) => path.replace(/\/$/, '').length * 2 + (host === undefined ? 0 : 1);
    this.#aliases = aliases.toSorted((one, other) => weight(other) - weight(one));
    this.#hosts = new Set(aliases.flatMap(({ host }) => (host === undefined ? [] : [host])));
  }

  /** Whether clients use `host`, with or without a port, as an old name of this server. */
  isHost(host: string | undefined): boolean {
    return this.#hosts.size > 0 && host !== undefined && namesOf(host).some((name) => this.#hosts.has(name));
  }

  /** The alias of a request for `target` at `host`; undefined if it is at none. */
  find(method: string, host: string, target: string): Aliased | undefined {
    if (this.#aliases.length === 0) return undefined;
    const names = namesOf(host);
    const isOfRegistry = /^\/v2(?:[/?]|$)/.test(target);
    let atHost: Aliased | undefined;
    for (const { account, ...alias } of this.#aliases) {
      if (alias.host !== undefined && !names.includes(alias.host)) continue;
      const found = alias.to === 'feed' ? inFeed(alias, method, target) : inRegistry(alias, target);
      if (found) return { ...found, account };
      // A request to this host that no alias changes keeps its address, and has the account of the first alias.
      if (alias.to !== 'feed' && alias.host !== undefined && isOfRegistry)
        atHost ??= { target, account, renamed: undefined };
    }
    return atHost;
  }
}

/** A host with and without its port. */
function namesOf(host: string): string[] {
  const lower = host.toLowerCase();
  return [lower, lower.replace(/:\d+$/, '')];
}

/** The index, pushes and symbols of a feed; below `/v3/`, what this server has there, too. */
function inFeed(
  { path: text = '', host }: Alias,
  method: string,
  target: string,
): Omit<Aliased, 'account'> | undefined {
  const path = text.replace(/\/(?:index\.json)?$/, '');
  const { path: asked, query } = splitTarget(target);
  const at = (own: string) => ({ target: query === '' ? own : `${own}?${query}`, renamed: undefined });
  if (path === '') return host !== undefined && asked.startsWith('/v3/') ? at(asked) : undefined;
  if (asked !== path && !asked.startsWith(`${path}/`)) return undefined;
  const rest = asked.slice(path.length).replace(/\/$/, '');
  if (rest === '/index.json') return at('/v3/index.json');
  if (rest.startsWith('/v3/')) return at(rest);
  if (method === 'PUT') {
    if (symbols.test(path + rest)) return at('/v3/symbols');
    return rest === '' || rest === '/package' || rest === '/api/v2/package' ? at('/v3/push') : undefined;
  }
  const isVersion = /^(?:\/package|\/api\/v2\/package)?(\/[^/]+\/[^/]+)$/.exec(rest);
  return isVersion && (method === 'DELETE' || method === 'POST') ? at(`/v3/push${isVersion[1]}`) : undefined;
}

/** A name of images: below the path, or any at the host. */
function inRegistry({ path = '', prefix }: Alias, target: string): Omit<Aliased, 'account'> | undefined {
  const { path: asked, query } = splitTarget(target);
  const old = path.replaceAll(/^\/|\/$/g, '');
  const [before, after] = [`/v2/${old === '' ? '' : `${old}/`}`, `/v2/${prefix === undefined ? '' : `${prefix}/`}`];
  const rest = asked.startsWith(before) ? asked.slice(before.length) : '';
  // Names do not begin with an underscore.
  if (rest === '' || rest.startsWith('_')) return undefined;
  const parameters = query === '' ? '' : `?${mounted(query, before, after)}`;
  return { target: `${after}${rest}${parameters}`, renamed: before === after ? undefined : [after, before] };
}

/** The query of a mount with the name here of the repository from which it is. */
function mounted(query: string, before: string, after: string): string {
  if (!query.includes('from=')) return query;
  const parameters = new URLSearchParams(query);
  const from = `/v2/${parameters.get('from')}`;
  if (from.startsWith(before)) parameters.set('from', `${after}${from.slice(before.length)}`.slice('/v2/'.length));
  return parameters.toString();
}
