import { cut, within, type VersionMetadata } from './metadata.ts';

/** A found package, with the metadata of the newest version that the client sees. */
export interface SearchHit {
  /** Normalised. */
  version: string;
  /** With its `+metadata`. */
  fullVersion: string;
  hasIcon: boolean;
  metadata: VersionMetadata;
  totalDownloads: number;
  /** The versions that the client sees, in order. */
  versions: { version: string; fullVersion: string; downloads: number }[];
}

/** Limits of all hits in one answer together: characters of text, and versions. A few hits are always complete. */
const maxText = 4 * 2 ** 20;
export const maxVersions = 20_000;

/** The hits as an answer shows them. If they are many, each has a part of its texts and its newest versions. */
export function limitHits(hits: readonly SearchHit[]): SearchHit[] {
  const all = hits.reduce((sum, { versions }) => sum + versions.length, 0);
  const newest = all > maxVersions ? versionsEach(hits.length) : maxVersions;
  const text = Math.floor(maxText / Math.max(1, hits.length) / 6);
  return hits.map((hit) => ({
    ...hit,
    metadata: {
      ...hit.metadata,
      description: cut(hit.metadata.description, text),
      summary: cut(hit.metadata.summary, text),
      authors: cut(hit.metadata.authors, text),
      owners: cut(hit.metadata.owners, text),
      tags: hit.metadata.tags && within(hit.metadata.tags, text),
      deprecation: hit.metadata.deprecation && {
        ...hit.metadata.deprecation,
        message: cut(hit.metadata.deprecation.message, text),
      },
    },
    versions: hit.versions.slice(-newest),
  }));
}

/** Versions of each hit if all hits together have too many. */
export function versionsEach(hits: number): number {
  return Math.floor(maxVersions / Math.max(1, hits));
}
