import type { NameRules, UpstreamPolicy } from '../../mirror/policy/upstream-policy.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import {
  firstSegment,
  formsOf,
  isHub,
  isRegistry,
  spellingsOf,
  type UpstreamRepository,
} from './upstream-repository.ts';

/** Where the repository of a request may be found. */
interface RepositoryLocation {
  /** The names under which it may be hosted. */
  hosted: string[];
  /** Its place at an upstream; undefined if no upstream may get requests for it. */
  place: UpstreamRepository | undefined;
  /** The place that the name means, whether or not the upstream may get requests for it. */
  meant: UpstreamRepository | undefined;
  /** Whether the request names an upstream, by prefix or `ns`; else it means the default upstream. */
  isNamed: boolean;
  /** The registry of `ns`, or with which the name begins, if the account has no upstream of that name. */
  missing: string | undefined;
}

/** What can be the host of a registry, maybe with a port. */
const host = /^[\w.:-]{1,255}$/;

/** The names of repositories at the upstream registries that serve an account. */
export class RepositoryNames {
  readonly #policy: UpstreamPolicy;
  readonly #byName = new Map<string, Upstream>();
  readonly #default: Upstream | undefined;
  /** Names of upstreams that do not serve the account. */
  readonly #hidden: ReadonlySet<string>;

  constructor(policy: UpstreamPolicy) {
    this.#policy = policy;
    for (const upstream of policy.all) for (const name of spellingsOf(upstream)) this.#byName.set(name, upstream);
    this.#hidden = new Set(policy.hidden.flatMap(spellingsOf).filter((name) => !this.#byName.has(name)));
    this.#default = policy.all.find(({ config }) => config.default);
  }

  /**
   * The names under which the requested repository may be hosted, the requested one first, and its place at an upstream.
   * `ns` is only compared with the configured names, never connected to. With or without `ns`, a prefix that names the
   * upstream is removed once; if it comes twice, no upstream gets a request. A name that begins with another registry while
   * Docker Hub is the default, or with an upstream that does not serve the account, is sent to no upstream.
   */
  locate(name: string, ns: string | undefined): RepositoryLocation {
    const prefix = firstSegment(name);
    const prefixed = this.#byName.get(prefix);
    const upstream = ns === undefined ? (prefixed ?? this.#default) : this.#byName.get(ns);
    const isHidden = ns === undefined && this.#hidden.has(prefix);
    const isNamed = ns !== undefined || prefixed !== undefined || isHidden;
    const isMissing = ns === undefined ? !prefixed && this.#isElsewhere(prefix) : !upstream && host.test(ns);
    const missing = isMissing ? (ns ?? prefix) : undefined;
    if (!upstream || isHidden) {
      return { hosted: ns === undefined ? [name] : [], place: undefined, meant: undefined, isNamed, missing };
    }
    let rest = prefixed === upstream ? name.slice(prefix.length + 1) : name;
    const mayContain = this.#mayContain(upstream, rest);
    if (isHub(upstream) && !rest.includes('/')) rest = `library/${rest}`;
    const meant = { upstream, name: rest };
    const forms = formsOf(meant);
    const hosted = new Set([
      ...(ns === undefined ? [name] : []),
      ...forms.map((form) => `${upstream.name}/${form}`),
      ...(upstream === this.#default ? forms : []),
    ]);
    const mayAsk = !missing && mayContain && this.#policy.candidates(...hosted, ...forms).includes(upstream);
    return { hosted: [...hosted], place: mayAsk ? meant : undefined, meant, isNamed, missing };
  }

  /** Why the upstream that a name means may get requests for it, or not. The name is as in a request without `ns`. */
  explain(name: string): NameRules & Pick<RepositoryLocation, 'hosted' | 'missing' | 'meant'> {
    const { hosted, missing, meant } = this.locate(name, undefined);
    const { reservedBy, upstreams } = this.#policy.explain(...hosted, ...(meant ? formsOf(meant) : []));
    const isMeant = ({ id }: Upstream) => (meant && !missing ? id === meant.upstream.id : spelled(name, id));
    const spelled = (text: string, id: string) =>
      this.#policy.hidden.some((each) => each.id === id && spellingsOf(each).includes(firstSegment(text)));
    return { reservedBy, upstreams: upstreams.filter(({ upstream }) => isMeant(upstream)), hosted, missing, meant };
  }

  /** Whether the default upstream is not asked for names with this prefix. Docker Hub has no dot there; others may. */
  #isElsewhere(prefix: string): boolean {
    return isRegistry(prefix) && (!this.#default || isHub(this.#default));
  }

  /**
   * Whether the upstream may have a repository `rest`: not if it begins with the upstream again, and not if behind further
   * prefixes there is a reserved name, which must not be sent upstream in any spelling.
   */
  #mayContain(upstream: Upstream, rest: string): boolean {
    if (this.#byName.get(firstSegment(rest)) === upstream) return false;
    for (let inner = rest; this.#byName.has(firstSegment(inner));) {
      inner = inner.slice(inner.indexOf('/') + 1);
      if (this.#policy.isReserved(inner)) return false;
    }
    return true;
  }

  /** The names by which a client can request `place` without `ns`, the listed one first. */
  namesOf(place: UpstreamRepository): string[] {
    const forms = formsOf(place);
    const names = forms.map((form) => `${place.upstream.name}/${form}`);
    if (place.upstream !== this.#default) return names;
    // A name that begins with another upstream or registry means that one.
    const isOther = (prefix: string) => this.#byName.has(prefix) || this.#isElsewhere(prefix);
    return [...names, ...forms.filter((form) => !isOther(firstSegment(form)))];
  }
}
