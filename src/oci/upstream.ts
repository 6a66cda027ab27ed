import { Readable } from 'node:stream';
import type { Config } from '../config/schema.ts';
import { isDigest, type Digest } from '../digest.ts';
import { parseDocument, readDocument } from '../mirror/document.ts';
import type { Facts } from '../mirror/entries.ts';
import { fetchFrom, fetchJson, unusable } from '../mirror/fetch.ts';
import { isUpstreamFailure, type Entry, type Mirror, type Outcome } from '../mirror/mirror.ts';
import type { Origin } from '../mirror/origin.ts';
import { resourceOf, type Fetched } from '../mirror/resource.ts';
import { readAll } from '../storage/content.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { discard } from '../upstream/body.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { mediaTypes, type Descriptor } from './manifest.ts';
import { fallbackTag } from './reference.ts';

/** Where a name is upstream. */
export interface Place {
  upstream: Upstream;
  /** The repository's name there. */
  name: string;
}

/** Of an upstream's list, and how it came. */
export interface Listed<T> {
  served: Outcome;
  items: T[];
}

/** What upstreams are asked for: nothing is converted, so the client has to understand what comes. */
const manifestTypes: readonly string[] = Object.values(mediaTypes);
const listLimit = 16 * 2 ** 20;
const pagesLimit = 200;
/** For a blob whose length the upstream does not announce. */
const unannounced = 16 * 2 ** 30;

/** Images of the configured upstream registries, through the mirror. */
export class ImageMirror {
  readonly #mirror: Mirror;
  readonly #origin: Origin;
  readonly #limits: Config['limits'];
  readonly #byName = new Map<string, Upstream>();
  readonly #fallback: Upstream | undefined;

  constructor(mirror: Mirror, origin: Origin, limits: Config['limits']) {
    this.#mirror = mirror;
    this.#origin = origin;
    this.#limits = limits;
    for (const upstream of origin.all) {
      this.#byName.set(upstream.name, upstream);
      if (upstream.name === 'docker.io') {
        for (const alias of ['index.docker.io', 'registry-1.docker.io']) this.#byName.set(alias, upstream);
      }
    }
    this.#fallback = origin.all.find(({ config }) => config.default);
  }

  /** All upstream registries, in the order of the configuration. */
  get upstreams(): readonly Upstream[] {
    return this.#origin.all;
  }

  /**
   * The names under which the repository that a client asks for may be hosted, the asked one first, and its place
   * upstream, if it may be asked there. `ns` is looked up, never dialled; a prefix counts once, with or without it.
   */
  locate(name: string, ns: string | undefined): { hosted: string[]; place: Place | undefined } {
    const slash = name.indexOf('/');
    const prefix = slash < 0 ? '' : name.slice(0, slash);
    const prefixed = this.#byName.get(prefix);
    const upstream = ns === undefined ? (prefixed ?? this.#fallback) : this.#byName.get(ns);
    if (!upstream) return { hosted: ns === undefined ? [name] : [], place: undefined };
    let rest = prefixed === upstream ? name.slice(slash + 1) : name;
    const isHub = upstream.name === 'docker.io';
    if (isHub && !rest.includes('/')) rest = `library/${rest}`;
    const official = isHub ? /^library\/([^/]+)$/.exec(rest)?.[1] : undefined;
    const forms = official === undefined ? [rest] : [rest, official];
    const hosted = new Set([
      ...(ns === undefined ? [name] : []),
      ...forms.map((form) => `${upstream.name}/${form}`),
      ...(upstream === this.#fallback ? forms : []),
    ]);
    const mayAsk = this.#origin.candidates(...hosted, ...forms).includes(upstream);
    return { hosted: [...hosted], place: mayAsk ? { upstream, name: rest } : undefined };
  }

  /**
   * The manifest that a tag or digest names, complete. A tag is asked again by HEAD, which upstreams do not count as a
   * pull, and what it points to then is opened by its digest, so that no content is asked for twice.
   */
  openManifest(place: Place, reference: string): Promise<Entry | undefined> {
    const byDigest = isDigest(reference);
    const url = urlOf(place, `manifests/${reference}`);
    const headers = { accept: manifestTypes.join(', ') };
    return this.#mirror.open({
      ...resource(place, 'manifest', reference),
      ...(byDigest && { lifetime: 'immutable' as const, digest: reference }),
      limit: this.#limits.manifest,
      whole: true,
      verify: verifyManifest,
      aliases: ({ digest }) => (byDigest ? [] : [resource(place, 'manifest', digest).key]),
      fetch: async (known) => {
        const request = { url, headers, subject: place.name, scope: scopeOf(place) };
        if (known) {
          const head = await place.upstream.send({ ...request, method: 'HEAD' });
          discard(head.body);
          if (head.status === 404 || head.status === 410) return { kind: 'absent' };
          if (head.digest === known.digest) return { kind: 'not-modified' };
          const moved = head.digest && (await this.openManifest(place, head.digest));
          if (moved) return copyOf(moved, this.#limits.manifest);
        }
        const fetched = await fetchFrom(place.upstream, { ...request, known });
        return fetched.kind === 'fetched' ? { ...fetched, type: mediaTypeOf(fetched.type) } : fetched;
      },
    });
  }

  /** A blob, asked for once, ever. */
  openBlob(place: Place, digest: Digest): Promise<Entry | undefined> {
    return this.#mirror.open({
      ...resource(place, 'blob', digest),
      lifetime: 'immutable',
      digest,
      limit: this.#limits.blob ?? unannounced,
      fetch: () => {
        const url = urlOf(place, `blobs/${digest}`);
        return fetchFrom(place.upstream, { url, subject: place.name, scope: scopeOf(place) });
      },
    });
  }

  /** Whether a manifest of the repository has been mirrored. */
  async isMirrored(place: Place): Promise<boolean> {
    return (await this.#mirror.references(resource(place, 'manifest', '').key, 1)).length > 0;
  }

  /** Whether the repository's blob or manifest of that digest is here. */
  async isStored(place: Place, kind: 'blob' | 'manifest', digest: Digest): Promise<boolean> {
    return (await this.#mirror.stored(resource(place, kind, digest).key)) !== undefined;
  }

  /** Drops what a tag was found to name; resolves to whether that was known. */
  forgetTag(place: Place, tag: string): Promise<boolean> {
    return this.#mirror.remove(resource(place, 'manifest', tag).key);
  }

  /** All tags, in byte order; undefined when the upstream has no such repository. */
  async listTags(place: Place): Promise<Listed<string> | undefined> {
    const path = 'tags/list?n=1000';
    try {
      const list = await this.#list(place, 'tags', '', () => collect(place, path, 'tags'));
      return list && { served: list.served, items: list.items.filter((tag) => typeof tag === 'string').sort(byBytes) };
    } catch (error) {
      // With the upstream gone, the tags that were pulled are those that can be had.
      const stored = isUpstreamFailure(error) ? await this.#mirror.references(resource(place, 'manifest', '').key) : [];
      const tags = stored.filter((reference) => !isDigest(reference));
      if (tags.length === 0) throw error;
      return { served: 'stale', items: tags.sort(byBytes) };
    }
  }

  /**
   * The descriptors of what refers to `digest`, each once, by digest: from the API, or from the fallback tag where an
   * upstream lacks it. Undefined when the upstream knows of neither.
   */
  async listReferrers(place: Place, digest: Digest): Promise<Listed<Descriptor> | undefined> {
    const list = await this.#list(place, 'referrers', digest, async () => {
      const fetched = await collect(place, `referrers/${digest}`, 'manifests');
      if (fetched.kind !== 'absent') return fetched;
      return collect(place, `manifests/${fallbackTag(digest)}`, 'manifests');
    });
    return list && { served: list.served, items: readDescriptors(list.items) };
  }

  async #list(
    place: Place,
    kind: string,
    reference: string,
    fetch: () => Promise<Fetched>,
  ): Promise<Listed<unknown> | undefined> {
    const entry = await this.#mirror.open({
      ...resource(place, kind, reference),
      limit: listLimit,
      whole: true,
      fetch,
    });
    if (!entry) return undefined;
    return { served: entry.outcome, items: (await readDocument(entry, listLimit)) as unknown[] };
  }
}

function resource(place: Place, kind: string, reference: string) {
  return resourceOf(place.upstream, kind, place.name, reference);
}

function urlOf(place: Place, rest: string): URL {
  return new URL(`/v2/${place.name}/${rest}`, place.upstream.base);
}

function scopeOf(place: Place): string {
  return `repository:${place.name}:pull`;
}

/** Without parameters; some registries send a charset. */
function mediaTypeOf(header: string): string {
  return header.split(';', 1)[0]!.trim().toLowerCase();
}

/** Something else than a manifest is refused. Kept with it: its own media type, and the bytes of the whole image. */
async function verifyManifest(staged: StagedFile): Promise<Record<string, string>> {
  const manifest = parseDocument(await staged.bytes()) as Record<string, unknown> | undefined;
  const version = manifest?.['schemaVersion'];
  if (!manifest || (version !== 2 && version !== 1)) throw new Error('that is no manifest');
  const { mediaType, config, layers, manifests } = manifest;
  const imageBytes = [config, layers, manifests].flat().reduce((sum: number, each) => sum + sizeOf(each), staged.size);
  return { imageBytes: String(imageBytes), ...(typeof mediaType === 'string' && { mediaType }) };
}

function sizeOf(descriptor: unknown): number {
  const size = (descriptor as { size?: unknown } | null | undefined)?.size;
  return Number.isSafeInteger(size) ? (size as number) : 0;
}

/** The media type to serve an entry with: the upstream's word, or the manifest's own where that is none of a manifest. */
export function manifestTypeOf({ type, attributes }: Pick<Facts, 'type' | 'attributes'>): string {
  return manifestTypes.includes(type) ? type : (attributes['mediaType'] ?? type);
}

/** The bytes of a manifest with everything it refers to, as far as it says. */
export function imageBytesOf({ size, attributes }: Pick<Facts, 'size' | 'attributes'>): number {
  return Number(attributes['imageBytes'] ?? size);
}

/** What can be shown of a list that somebody else has written. */
function readDescriptors(items: readonly unknown[]): Descriptor[] {
  const descriptors = new Map<Digest, Descriptor>();
  for (const item of items) {
    const { mediaType, digest, size, artifactType, annotations } = (item ?? {}) as Record<string, unknown>;
    if (typeof digest !== 'string' || !isDigest(digest) || typeof mediaType !== 'string') continue;
    descriptors.set(digest, {
      mediaType,
      digest,
      size: sizeOf({ size }),
      ...(typeof artifactType === 'string' && { artifactType }),
      ...(typeof annotations === 'object' && annotations && { annotations: annotations as Record<string, string> }),
    });
  }
  return [...descriptors.values()].sort((a, b) => (a.digest < b.digest ? -1 : 1));
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Follows a list's pages (`Link`, RFC 8288) and makes one array of what they have under `field`. */
async function collect(place: Place, path: string, field: string): Promise<Fetched> {
  const items: unknown[] = [];
  let url: URL | undefined = urlOf(place, path);
  for (let pages = 0; url; pages += 1) {
    if (pages === pagesLimit) throw unusable(place.upstream, 'has a list that does not end');
    const accept = `application/json, ${mediaTypes.index}`;
    const request = { url, headers: { accept }, subject: place.name, scope: scopeOf(place) };
    const page = await fetchJson(place.upstream, request, listLimit);
    if (!page) return { kind: 'absent' };
    const part = (page.value as Record<string, unknown>)[field];
    if (Array.isArray(part)) items.push(...(part as unknown[]));
    const next = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(String(page.headers.link ?? ''))?.[1];
    const following: URL | null = next === undefined ? null : URL.parse(next, url.href);
    url = following?.origin === url.origin ? following : undefined;
  }
  return inMemory(Buffer.from(JSON.stringify(items)), 'application/json');
}

/** What is stored under another name already. */
async function copyOf({ content, type, facts, complete }: Entry, limit: number): Promise<Fetched> {
  const { digest } = facts ?? (await complete);
  return { ...inMemory(await readAll(content, limit), type), digest };
}

function inMemory(bytes: Buffer, type: string): Extract<Fetched, { kind: 'fetched' }> {
  const body = Readable.from([bytes]);
  return { kind: 'fetched', body, size: bytes.length, type, etag: null, lastModified: null };
}
