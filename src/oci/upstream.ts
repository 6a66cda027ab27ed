import { Readable } from 'node:stream';
import type { Config } from '../config/schema.ts';
import { isDigest, type Digest } from '../digest.ts';
import { readDocument } from '../mirror/document.ts';
import { fetchFrom, fetchJson, unusable } from '../mirror/fetch.ts';
import { isUpstreamFailure, type Entry, type Mirror } from '../mirror/mirror.ts';
import type { Origin } from '../mirror/origin.ts';
import { resourceOf, type Fetched, type MirrorResource } from '../mirror/resource.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { discard } from '../upstream/body.ts';
import type { Upstream } from '../upstream/upstream.ts';

/** Where a name is upstream. */
export interface Place {
  upstream: Upstream;
  /** The repository's name there. */
  name: string;
}

/** What we can store and serve: every client of an upstream understands them, and we convert nothing. */
export const manifestTypes = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
];
const indexType = 'application/vnd.oci.image.index.v1+json';
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
    if (upstream.name === 'docker.io' && !rest.includes('/')) rest = `library/${rest}`;
    const short = rest.replace(/^library\//, '');
    const spellings = [`${upstream.name}/${rest}`];
    if (upstream === this.#fallback) spellings.push(rest);
    if (upstream.name === 'docker.io') {
      spellings.push(`docker.io/${short}`);
      if (upstream === this.#fallback) spellings.push(short);
    }
    const hosted = new Set(ns === undefined ? [name, ...spellings] : spellings);
    const reserved = [...hosted, rest].some((spelling) => this.#origin.isReserved(spelling));
    const allowed = !reserved && this.#origin.candidates(rest).includes(upstream);
    return { hosted: [...hosted], place: allowed ? { upstream, name: rest } : undefined };
  }

  /** The manifest that a tag or digest names; a tag is asked again by HEAD, which upstreams do not count as a pull. */
  openManifest(place: Place, reference: string): Promise<Entry | undefined> {
    const byDigest = isDigest(reference);
    const url = urlOf(place, `manifests/${reference}`);
    const headers = { accept: manifestTypes.join(', ') };
    return this.#mirror.open({
      ...resource(place, 'manifest', reference),
      ...(byDigest && { lifetime: 'immutable' as const, digest: reference }),
      limit: this.#limits.manifest,
      verify: verifyManifest,
      aliases: ({ digest }) => (byDigest ? [] : [resource(place, 'manifest', digest).key]),
      fetch: async (known) => {
        const request = { url, headers, scope: scopeOf(place) };
        if (known) {
          const head = await place.upstream.send({ ...request, method: 'HEAD' });
          discard(head.body);
          if (head.status === 404 || head.status === 410) return { kind: 'absent' };
          if (head.headers['docker-content-digest'] === known.digest) return { kind: 'not-modified' };
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
      fetch: () => fetchFrom(place.upstream, { url: urlOf(place, `blobs/${digest}`), scope: scopeOf(place) }),
    });
  }

  /** All tags, in byte order; undefined when the upstream has no such repository. */
  async listTags(place: Place): Promise<string[] | undefined> {
    const list: MirrorResource = {
      ...resource(place, 'tags', ''),
      limit: listLimit,
      fetch: () =>
        collect(
          place,
          'tags/list?n=1000',
          (page) => (page as { tags?: unknown[] | null }).tags ?? [],
          (tags) => ({ tags }),
        ),
    };
    try {
      const entry = await this.#mirror.open(list);
      if (!entry) return undefined;
      const { tags } = (await readDocument(entry, listLimit)) as { tags: unknown[] };
      const names = tags.filter((tag) => typeof tag === 'string');
      return names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    } catch (error) {
      // With the upstream gone, the tags that were pulled are those that can be had.
      const stored = isUpstreamFailure(error) ? await this.#mirror.references(resource(place, 'manifest', '').key) : [];
      const tags = stored.filter((reference) => !isDigest(reference));
      if (tags.length === 0) throw error;
      return tags;
    }
  }

  /** The descriptors of what refers to `digest`: by the API, or by the fallback tag where an upstream lacks it. */
  async listReferrers(place: Place, digest: Digest): Promise<Record<string, unknown>[]> {
    const entry = await this.#mirror.open({
      ...resource(place, 'referrers', digest),
      limit: listLimit,
      fetch: async () => {
        const fetched = await collect(place, `referrers/${digest}`, manifestsOf, (manifests) => ({ manifests }));
        if (fetched.kind !== 'absent') return fetched;
        return collect(place, `manifests/${digest.replace(':', '-')}`, manifestsOf, (manifests) => ({ manifests }));
      },
    });
    if (!entry) return [];
    return manifestsOf(await readDocument(entry, listLimit)) as Record<string, unknown>[];
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

async function verifyManifest(staged: StagedFile): Promise<Record<string, string>> {
  const manifest: unknown = JSON.parse((await staged.bytes()).toString('utf8'));
  const version =
    typeof manifest === 'object' && manifest !== null
      ? (manifest as { schemaVersion?: unknown }).schemaVersion
      : undefined;
  if (version !== 2 && version !== 1) throw new Error('that is no manifest');
  return {};
}

function manifestsOf(page: unknown): unknown[] {
  const { manifests } = page as { manifests?: unknown };
  return Array.isArray(manifests) ? manifests : [];
}

/** Follows a list's pages (`Link`, RFC 8288) and makes one document of them. */
async function collect(
  place: Place,
  path: string,
  itemsOf: (page: unknown) => unknown[],
  whole: (items: unknown[]) => unknown,
): Promise<Fetched> {
  const items: unknown[] = [];
  let url: URL | undefined = urlOf(place, path);
  for (let pages = 0; url; pages += 1) {
    if (pages === pagesLimit) throw unusable(place.upstream, 'has a list that does not end');
    const accept = `application/json, ${indexType}`;
    const page = await fetchJson(place.upstream, { url, headers: { accept }, scope: scopeOf(place) }, listLimit);
    if (!page) return { kind: 'absent' };
    items.push(...itemsOf(page.value));
    const next = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(String(page.headers.link ?? ''))?.[1];
    const following: URL | null = next === undefined ? null : URL.parse(next, url.href);
    url = following?.origin === url.origin ? following : undefined;
  }
  const bytes = Buffer.from(JSON.stringify(whole(items)));
  return {
    kind: 'fetched',
    body: Readable.from([bytes]),
    size: bytes.length,
    type: 'application/json',
    etag: null,
    lastModified: null,
  };
}
