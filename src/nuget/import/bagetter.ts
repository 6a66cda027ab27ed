import { join } from 'node:path';
import { rowsOfFile } from '../../database/foreign-file.ts';
import type { PlainSource } from '../../prefetch/plain.ts';
import { DomainError } from '../../runtime/errors.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';

// BaGet and BaGetter keep packages in files, and what else they know of them in a database, which can be an SQLite file.

/** What the database says about a version. */
interface KnownVersion {
  /** As shown. */
  name: string;
  listed: boolean;
  publishedAt: number | undefined;
  downloads: number;
}

/** Most versions that are read. */
const maxVersions = 1_000_000;

/**
 * What the SQLite file beside `packages/` says, by id and by version; undefined if there is none. Throws `Invalid` if the file
 * cannot be read.
 */
export async function versionsOfBagetter({
  path,
  files,
}: PlainSource): Promise<Map<string, Map<string, KnownVersion>> | undefined> {
  const database = [...files.keys()].find((name) => /^[^/]+\.db$/i.test(name));
  if (database === undefined || ![...files.keys()].some((name) => name.startsWith('packages/'))) return undefined;
  const known = new Map<string, Map<string, KnownVersion>>();
  let rows = 0;
  const columns = ['Id', 'Version', 'Listed', 'Published', 'Downloads'];
  try {
    for await (const row of rowsOfFile(join(path, database), 'Packages', 'Key', columns)) {
      rows += 1;
      if (rows > maxVersions) throw new Error(`it has more than ${maxVersions} versions`);
      const [name, version] = [String(row['Id']), keyOfVersion(String(row['Version']))];
      if (version === undefined) continue;
      const versions = known.get(packageKey(name)) ?? new Map<string, KnownVersion>();
      known.set(packageKey(name), versions);
      const published = timeOf(String(row['Published']));
      const downloads = Number(row['Downloads']);
      versions.set(version, {
        name,
        listed: row['Listed'] !== 0,
        publishedAt: published,
        downloads: Number.isSafeInteger(downloads) && downloads > 0 ? Math.min(downloads, 2 ** 40) : 0,
      });
    }
  } catch (error) {
    throw new DomainError(
      'Invalid',
      `${database} cannot be read as the database of BaGetter: ${(error as Error).message}`,
      {
        cause: error,
      },
    );
  }
  return known;
}

/** A time in UTC, such as `2024-01-31 12:00:00.1234567`. */
function timeOf(text: string): number | undefined {
  const time = Date.parse(`${text.replace(' ', 'T').replace(/Z$/, '')}Z`);
  return time > 0 ? time : undefined;
}
