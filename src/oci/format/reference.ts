import { parseDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';

// Names, tags, digests and the paths that contain them: OCI distribution-spec, "Pulling manifests" and "Endpoints".

/** The target of a registry path. `item` is the last segment, if it is variable. */
export interface RegistryTarget {
  kind:
    | 'base'
    | 'catalog'
    | 'tags'
    | 'manifest'
    | 'blob'
    | 'uploads'
    | 'upload'
    | 'referrers'
    | 'tag-history'
    | 'discover'
    | 'unknown';
  name: string;
  item: string;
  /** Of a name behind `as-of/<date>/`, which `name` lacks; not yet checked. */
  date?: string;
}

/** The beginnings of tags that clients make for what is attached to a digest; see `fallbackTag`, too. */
export const attachedTags = ['sha256-', 'sha512-'] as const;

const namePattern = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const tagPattern = /^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$/;
const uploadPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const unknown: RegistryTarget = { kind: 'unknown', name: '', item: '' };

/**
 * The only parser of registry paths. It reads from the end, because a name may contain segments such as `blobs`, and
 * decodes first, because the slashes of a name may be sent as `%2F`. It does not check the result and never throws.
 */
export function parsePath(path: string): RegistryTarget {
  const target = targetOf(path);
  const [, date, name] = /^as-of\/([^/]*)(?:$|\/(.*)$)/s.exec(target.name) ?? [];
  return date === undefined ? target : { ...target, name: name ?? '', date };
}

function targetOf(path: string): RegistryTarget {
  let decoded: string;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    return unknown;
  }
  if (decoded === '/v2' || decoded === '/v2/') return { kind: 'base', name: '', item: '' };
  if (decoded === '/v2/_catalog') return { kind: 'catalog', name: '', item: '' };
  if (!decoded.startsWith('/v2/')) return unknown;
  const segments = decoded.slice(4).split('/');
  const item = segments.at(-1)!;
  const kind = segments.at(-2);
  const named = (count: number) => segments.slice(0, -count).join('/');
  if (kind === 'tags' && item === 'list') return { kind: 'tags', name: named(2), item };
  if (kind === 'uploads' && segments.at(-3) === 'blobs') {
    return { kind: item === '' ? 'uploads' : 'upload', name: named(3), item };
  }
  if (kind === 'blobs' && item === 'uploads') return { kind: 'uploads', name: named(2), item: '' };
  if (item === '') return unknown;
  // No name has a segment `_oci` (distribution-spec, "Extensions").
  if (segments.at(-3) === '_oci') {
    if (kind === 'tag-history') return { kind: 'tag-history', name: named(3), item };
    return kind === 'ext' && item === 'discover' ? { kind: 'discover', name: named(3), item } : unknown;
  }
  if (kind === 'manifests') return { kind: 'manifest', name: named(2), item };
  if (kind === 'blobs') return { kind: 'blob', name: named(2), item };
  if (kind === 'referrers') return { kind: 'referrers', name: named(2), item };
  return unknown;
}

/** Whether `text` is a valid repository name. */
export function isRepositoryName(text: string): boolean {
  return text.length <= 255 && namePattern.test(text);
}

/** The repository name in `text`, or `NameInvalid`. */
export function parseRepositoryName(text: string): string {
  if (isRepositoryName(text)) return text;
  throw new DomainError(
    'NameInvalid',
    'A repository name has up to 255 characters: parts of a-z and 0-9 that are separated by "/". Inside a part, ".", "_", "__" and "-" may join characters.',
    { detail: { name: text.slice(0, 260) } },
  );
}

/** Whether `text` is a valid tag. */
export function isTag(text: string): boolean {
  return tagPattern.test(text);
}

/** The tag in `text`, or `TagInvalid`. */
export function parseTag(text: string): string {
  if (isTag(text)) return text;
  throw new DomainError(
    'TagInvalid',
    'A tag has up to 128 letters, digits, "_", "." and "-", and does not start with "." or "-".',
    { detail: { tag: text.slice(0, 160) } },
  );
}

/** The tag or digest of a manifest. */
export type Reference = { tag: string; digest?: undefined } | { digest: Digest; tag?: undefined };

/** The tag or digest in `text`. If it is not valid: `DigestInvalid` for text with a colon, else `TagInvalid`. */
export function parseReference(text: string): Reference {
  return text.includes(':') ? { digest: parseDigest(text) } : { tag: parseTag(text) };
}

/** Whether `text` has the form of an upload session's id. */
export function isUploadId(text: string): boolean {
  return uploadPattern.test(text);
}

/**
 * The tag under which clients store the referrers of `subject` if a registry has no referrers API (distribution-spec,
 * "Referrers tag schema").
 */
export function fallbackTag(subject: Digest): string {
  return `${subject.slice(0, subject.indexOf(':'))}-${subject.slice(subject.indexOf(':') + 1).slice(0, 64)}`;
}
