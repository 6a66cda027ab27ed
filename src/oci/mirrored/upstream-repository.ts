import { resourceOf } from '../../mirror/fetch/resource.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { urlBelow } from '../../upstream/url.ts';

/** A repository at an upstream. */
export interface UpstreamRepository {
  upstream: Upstream;
  /** The repository's name there. */
  name: string;
}

/** Other names of Docker Hub. */
const hubHosts = ['index.docker.io', 'registry-1.docker.io'];

/** The names by which clients use an upstream. */
export function spellingsOf(upstream: Upstream): string[] {
  return isHub(upstream) ? [upstream.name, ...hubHosts] : [upstream.name];
}

/** The name of the upstream that the host of a registry means. */
export function upstreamNamed(registry: string): string {
  return hubHosts.includes(registry) ? 'docker.io' : registry;
}

/** The part of a name before its first slash; empty if it has none. */
export function firstSegment(name: string): string {
  return name.slice(0, Math.max(0, name.indexOf('/')));
}

/** Whether the first part of a name is the host of a registry, as clients see it: it has a dot, and no underscore. */
export function isRegistry(prefix: string): boolean {
  return prefix.includes('.') && !prefix.includes('_');
}

/** Whether it is Docker Hub, whose official images have two names. */
export function isHub({ name }: Pick<Upstream, 'name'>): boolean {
  return name === 'docker.io';
}

/** The names of a repository at its upstream. An official image on Docker Hub has a second one, without `library/`. */
export function formsOf({ upstream, name }: { upstream: Pick<Upstream, 'name'>; name: string }): string[] {
  const official = isHub(upstream) ? /^library\/([^/]+)$/.exec(name)?.[1] : undefined;
  return official === undefined ? [name] : [name, official];
}

/** The name of a mirrored repository in lists and in usage, whatever name a client used. */
export function listedName({ upstream, name }: UpstreamRepository): string {
  return `${upstream.name}/${name}`;
}

/** The names of a repository that the upstream stores as `name` or under another one of its names: the stored one first. */
export function namesAtUpstream(name: string, upstreamName: string): string[] {
  const upstream = { name: upstreamName };
  return formsOf({ upstream, name: isHub(upstream) && !name.includes('/') ? `library/${name}` : name });
}

/** All names of the image that lists and usage have as `name`, or as one of these. */
export function listedForms(name: string): string[] {
  const upstreamName = firstSegment(name);
  if (upstreamName === '') return [name];
  return namesAtUpstream(name.slice(upstreamName.length + 1), upstreamName).map((each) => `${upstreamName}/${each}`);
}

export function resource(place: UpstreamRepository, kind: string, reference: string) {
  return resourceOf(place.upstream, kind, place.name, reference);
}

export function urlOf({ upstream, name }: UpstreamRepository, ...rest: readonly string[]): URL {
  return urlBelow(upstream.base.origin, 'v2', ...name.split('/'), ...rest);
}

export function pullScope(place: UpstreamRepository): string {
  return `repository:${place.name}:pull`;
}
