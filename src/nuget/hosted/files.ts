import type { Digest } from '../../runtime/digest.ts';
import type { Content } from '../../storage/files/content.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import type { FeedContext } from './feed-context.ts';
import { keyOfVersion, packageKey } from './packages.ts';
import { publishedBy } from './versions.ts';

/** Kinds of files of a version that the flat container serves. */
const fileKinds = ['nupkg', 'nuspec', 'readme', 'icon'] as const;
export type FileKind = (typeof fileKinds)[number];

/** An opened file of a version. The caller closes its content. */
interface PackageFile {
  content: Content;
  digest: Digest;
  type: string;
}

/** Media types; a browser executes none of them. An icon has its own media type. */
export const fileTypes: Record<Exclude<FileKind, 'icon'>, string> = {
  nupkg: 'application/octet-stream',
  nuspec: 'text/plain',
  readme: 'text/markdown; charset=utf-8',
};

interface FileRow {
  /** Null where the version has no file of this kind. */
  digest: Digest | null;
  size: number | null;
  icon_type: string | null;
}

const findFile: Record<FileKind, string> = {
  nupkg: findIn('v.nupkg_digest'),
  nuspec: findIn('v.nuspec_digest'),
  readme: findIn('v.readme_digest'),
  icon: findIn('v.icon_digest'),
};

function findIn(column: string): string {
  return `SELECT ${column} AS digest, ${sizeOf(column)} AS size, v.icon_type
    FROM packages p JOIN package_versions v ON v.package_row = p.id
    WHERE p.account_id = ? AND p.package_key = ? AND v.version_key = ?`;
}

/** One file of a version; undefined if the account has no such version or file, or published it after `until`. */
export async function openFile(
  { database, blobs }: FeedContext,
  accountId: number,
  id: string,
  version: string,
  kind: FileKind,
  until?: number,
): Promise<PackageFile | undefined> {
  const key = keyOfVersion(version);
  if (key === undefined) return undefined;
  const past = publishedBy(until);
  const sql = past.sql === '' ? findFile[kind] : `${findFile[kind]} ${past.sql}`;
  const row = await database.getCached<FileRow>(sql, [accountId, packageKey(id), key, ...past.values]);
  if (!row?.digest || row.size === null) return undefined;
  const type = kind === 'icon' ? (row.icon_type ?? 'application/octet-stream') : fileTypes[kind];
  return { content: await blobs.open(row.digest, row.size), digest: row.digest, type };
}
