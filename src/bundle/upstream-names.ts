import type { Upstream } from '../upstream/upstream.ts';
import { bundleInvalid, type BundleEntry } from './format.ts';

// How bundles name upstreams. Several can have one name, each for accounts of its own: what one of them sends is not for the others.

/** The name of an upstream; its ID if further upstreams of its kind have the name. */
export function bundledName({ id, name, config }: Upstream, upstreams: readonly Upstream[]): string {
  const same = upstreams.filter((each) => each.name === name && each.config.kind === config.kind);
  return same.length > 1 ? id : name;
}

/** The upstream that an entry belongs to here; undefined if the settings lack it. Throws `Invalid` if it can be one of several. */
export function upstreamOf(
  { protocol, upstream: text }: Pick<BundleEntry, 'protocol' | 'upstream'>,
  upstreams: readonly Upstream[],
): Upstream | undefined {
  const ofKind = upstreams.filter(({ config }) => config.kind === protocol);
  const named = ofKind.filter(({ name }) => name === text);
  if (named.length === 1) return named[0];
  const found = ofKind.find(({ id }) => id === text);
  if (found || named.length === 0) return found;
  throw bundleInvalid(
    `the bundle has content of the upstream ${text} (${protocol}), and the settings have ${named.length} of this name here: ${named.map(({ id }) => id).join(', ')}. Give the one that it belongs to the "id" ${text}, or name them at its source as here`,
  );
}
