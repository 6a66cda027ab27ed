import { placeholders, type Database } from '../database/database.ts';
import { isDigest, type Digest } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import { readAll } from '../storage/content.ts';
import { isIndex, parseManifest, type Descriptor } from './manifest.ts';
import { batches } from './batches.ts';
import type { Manifests } from './manifests.ts';
import { fallbackTag } from './reference.ts';
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
  digest: Digest;
  media_type: string;
  artifact_type: string | null;
  size_bytes: number;
  annotations: string | null;
}

/** Rows read in one query: each one's annotations may be as large as a manifest. */
const rowsAtATime = 32;
/** The most bytes of descriptors in a list: it is an index itself, and clients read 4 MiB of an index at most. */
const pageBytes = 4 * 1024 * 1024 - 64 * 1024;

/** The manifests of a repository that have a given `subject` (distribution-spec, "Listing Referrers"). */
export class Referrers {
  readonly #database: Database;
  readonly #manifests: Manifests;

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
    for (let after = last; ;) {
      const rows = await this.#database.select<ReferrerRow>(
        `SELECT digest, media_type, artifact_type, size_bytes, annotations FROM manifests
         WHERE repository_id = ? AND subject = ? AND digest > ? ${filter} ORDER BY digest LIMIT ${rowsAtATime}`,
        [repositoryId, subject, after, ...(artifactType === undefined ? [] : [artifactType])],
      );
      for (const row of rows) yield toDescriptor(row);
      if (rows.length < rowsAtATime) return;
      after = rows.at(-1)!.digest;
    }
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
      const { content, mediaType } = await this.#manifests.open(accountId, name, { tag: fallbackTag(subject) });
      const bytes = await readAll(content, content.size ?? 0);
      if (!isIndex(mediaType)) return [];
      listed = parseManifest(bytes, mediaType).references;
    } catch (error) {
      if (isDomainError(error, 'ManifestUnknown')) return [];
      throw error;
    }
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
}

/** The first `limit` descriptors of `source`; fewer if they would exceed 4 MiB. */
export async function pageOf(
  source: AsyncIterable<Descriptor> | Iterable<Descriptor>,
  limit: number,
): Promise<ReferrersPage> {
  const descriptors: Descriptor[] = [];
  let bytes = 0;
  for await (const descriptor of source) {
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
