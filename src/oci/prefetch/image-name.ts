import { isDigest } from '../../runtime/digest.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';

/** An image name: `alpine`, `ghcr.io/org/app:1.2`, `registry:5000/app@sha256:…`. */
export interface ImageName {
  /** As written. */
  text: string;
  /** The registry host at the start of the name, if there is one. */
  registry: string | undefined;
  repository: string;
  /** The digest, else the tag, else `latest`. */
  reference: string;
}

/** Parses an image name; undefined if `text` is not one. */
export function parseImageName(text: string): ImageName | undefined {
  if (text.length > 1024) return undefined;
  const at = text.indexOf('@');
  const digest = at < 0 ? undefined : text.slice(at + 1);
  if (digest !== undefined && !isDigest(digest)) return undefined;
  let name = at < 0 ? text : text.slice(0, at);
  const colon = name.lastIndexOf(':');
  let tag: string | undefined;
  if (colon > name.lastIndexOf('/')) {
    tag = name.slice(colon + 1);
    if (!isTag(tag)) return undefined;
    name = name.slice(0, colon);
  }
  const slash = name.indexOf('/');
  const first = slash < 0 ? '' : name.slice(0, slash);
  const isHost = first === 'localhost' || /[.:]/.test(first);
  if (isHost && !/^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::\d{1,5})?$/i.test(first)) return undefined;
  const repository = isHost ? name.slice(slash + 1) : name;
  if (!isRepositoryName(repository)) return undefined;
  const registry = isHost ? first.toLowerCase() : undefined;
  return { text, registry, repository, reference: digest ?? tag ?? 'latest' };
}
