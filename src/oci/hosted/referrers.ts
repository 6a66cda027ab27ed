import { pagesOf } from '../../runtime/pages.ts';
import { LRUCache } from 'lru-cache';
import { placeholders, type Database } from '../../database/database.ts';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { readAll, type Content } from '../../storage/files/content.ts';
import { isIndex, overheadOf, parseManifest, type Descriptor } from '../format/manifest.ts';
import { batches } from '../../database/batches.ts';
import type { Manifests } from './manifests.ts';
import { fallbackTag } from '../format/reference.ts';
import { findRepository } from './repositories.ts';

export interface ReferrersPage {
  descriptors: Descriptor[];
  /** The digest after which the next page starts; undefined if this is the last page. */
  next: Digest | undefined;
}

export interface ReferrersQuery {
  artifactType?: string | undefined;
  limit: number;
  /** The digest after which the page starts; empty for the first page. */
  last: string;
}

interface ReferrerRow {
  id: number;
  digest: Digest;
  media_type: string;
  artifact_type: string | null;
  size_bytes: number;
  annotation_bytes: number | null;
  annotations: string | null;
}

/** Rows read in one query. Annotations with more bytes, up to those of a manifest, are read one by one. */
const rowsAtATime = 32;
const shortAnnotations = 16 * 1024;
/** The most bytes of descriptors in a list: it is an index itself, and clients read 4 MiB of an index at most. */
const pageBytes = 4 * 1024 * 1024 - 64 * 1024;
/** Bytes of memory for all indexes that are kept parsed. */
const listedBytes = 8 * 2 ** 20;

/** The manifests of a repository that have a given `subject` (distribution-spec, "Listing Referrers"). */
export class Referrers {
  readonly #database: Database;
  readonly #manifests: Manifests;
  /** What indexes under fallback tags list, by the digest of the index. */
  readonly #listed = new LRUCache<Digest, Descriptor[]>({ maxSize: listedBytes });

  constructor(database: Database, manifests: Manifests) {
    this.#database = database;
    this.#manifests = manifests;
  }

  /**
   * Up to `limit` descriptors in the order of their digests, after `last`; fewer if they would exceed 4 MiB. Descriptors
   * that a client listed under the fallback tag are included if the repository has their manifests.
   */
  async list(accountId: number, name: string, subject: Digest, options: ReferrersQuery): Promise<ReferrersPage> {
    const repositoryId = await findRepository(this.#database, accountId, name);
    if (repositoryId === undefined) return { descriptors: [], next: undefined };
    const { artifactType, limit, last } = options;
    const fallback = await this.#fallback(accountId, name, repositoryId, subject, artifactType, last);
    return pageOf(merge(this.#rows(repositoryId, subject, artifactType, last), fallback), limit);
  }

  async *#rows(
    repositoryId: number,
    subject: Digest,
    artifactType: string | undefined,
    last: string,
  ): AsyncGenerator<Descriptor> {
    const filter = artifactType === undefined ? '' : 'AND artifact_type = ?';
    const read = (after: string) =>
      this.#database.select<ReferrerRow>(
        `SELECT id, digest, media_type, artifact_type, size_bytes, OCTET_LENGTH(annotations) AS annotation_bytes,
           CASE WHEN OCTET_LENGTH(annotations) <= ${shortAnnotations} THEN annotations END AS annotations FROM manifests
         WHERE repository_id = ? AND subject = ? AND digest > ? ${filter} ORDER BY digest LIMIT ${rowsAtATime}`,
        [repositoryId, subject, after, ...(artifactType === undefined ? [] : [artifactType])],
      );
    for await (const rows of pagesOf(last, rowsAtATime, read, ({ digest }) => digest)) {
      for (const row of rows) {
        const isLong = (row.annotation_bytes ?? 0) > shortAnnotations;
        const whole = isLong ? { ...row, ...(await this.#annotationsOf(row)) } : row;
        await pause();
        yield toDescriptor(whole);
      }
    }
  }

  #annotationsOf({ id }: ReferrerRow): Promise<Pick<ReferrerRow, 'annotations'> | undefined> {
    return this.#database.get<ReferrerRow>('SELECT annotations FROM manifests WHERE id = ?', [id]);
  }

  async #fallback(
    accountId: number,
    name: string,
    repositoryId: number,
    subject: Digest,
    artifactType: string | undefined,
    last: string,
  ): Promise<Descriptor[]> {
    let listed: Descriptor[];
    try {
      const { content, digest, mediaType } = await this.#manifests.open(accountId, name, { tag: fallbackTag(subject) });
      listed = await this.#referencesIn(content, digest, mediaType);
    } catch (error) {
      if (isDomainError(error, 'ManifestUnknown')) return [];
      throw error;
    }
    await pause();
    const wanted = listed.filter(
      (each) => each.digest > last && (artifactType === undefined || each.artifactType === artifactType),
    );
    const there = new Set<string>();
    for (const part of batches(wanted)) {
      const rows = await this.#database.select<{ digest: string }>(
        `SELECT digest FROM manifests WHERE repository_id = ? AND digest IN (${placeholders(part)})`,
        [repositoryId, ...part.map(({ digest }) => digest)],
      );
      for (const { digest } of rows) there.add(digest);
    }
    return wanted
      .filter(({ digest }) => there.has(digest))
      .map(({ mediaType, digest, size, artifactType: type, annotations }) =>
        descriptorOf(mediaType, digest, size, type, annotations),
      )
      .sort((a, b) => (a.digest < b.digest ? -1 : 1));
  }

  /** The manifests that an index lists; none for another manifest. An index in frequent use is parsed once. */
  async #referencesIn(content: Content, digest: Digest, mediaType: string): Promise<Descriptor[]> {
    const known = isIndex(mediaType) ? this.#listed.get(digest) : [];
    if (known) {
      content.close();
      return known;
    }
    const bytes = await readAll(content, content.size ?? 0);
    await pause();
    const { references } = parseManifest(bytes, mediaType);
    await pause();
    this.#listed.set(digest, references, {
      size: references.reduce((sum, each) => sum + overheadOf(each), bytes.length + 1),
    });
    return references;
  }
}

/** The first `limit` descriptors of `source`; fewer if they would exceed 4 MiB. */
export async function pageOf(
  source: AsyncIterable<Descriptor> | Iterable<Descriptor>,
  limit: number,
): Promise<ReferrersPage> {
  const descriptors: Descriptor[] = [];
  let bytes = 0;
  for await (const descriptor of source) {
    await pause();
    const size = Buffer.byteLength(JSON.stringify(descriptor)) + 1;
    if (descriptors.length > 0 && (descriptors.length === limit || bytes + size > pageBytes)) {
      return { descriptors, next: descriptors.at(-1)!.digest };
    }
    descriptors.push(size > pageBytes ? { ...descriptor, annotations: {} } : descriptor);
    bytes += size;
  }
  return { descriptors, next: undefined };
}

/** The cursor in `text`, empty for the first page; `DigestInvalid` if it is neither empty nor a digest. */
export function parseReferrersCursor(text: string): string {
  if (text === '' || isDigest(text)) return text;
  throw new DomainError(
    'DigestInvalid',
    '"last" has to be a digest. Take it from the Link header of the previous page.',
  );
}

/** Merges two lists in the order of digests. For a digest in both, the row is used. */
async function* merge(rows: AsyncGenerator<Descriptor>, others: readonly Descriptor[]): AsyncGenerator<Descriptor> {
  let index = 0;
  for await (const row of rows) {
    for (; index < others.length && others[index]!.digest <= row.digest; index += 1) {
      if (others[index]!.digest !== row.digest) yield others[index]!;
    }
    yield row;
  }
  yield* others.slice(index);
}

function toDescriptor({ media_type, digest, size_bytes, artifact_type, annotations }: ReferrerRow): Descriptor {
  const parsed = annotations === null ? undefined : (JSON.parse(annotations) as Record<string, string>);
  return descriptorOf(media_type, digest, size_bytes, artifact_type ?? undefined, parsed);
}

function descriptorOf(
  mediaType: string,
  digest: Digest,
  size: number,
  artifactType: string | undefined,
  annotations: Record<string, string> | undefined,
): Descriptor {
  return { mediaType, digest, size, ...(artifactType && { artifactType }), ...(annotations && { annotations }) };
}
