import type { Queryable } from '../../database/database.ts';
import type { PromotableContents, PromotedPlaces } from '../../promotion/promotable.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { keepLive } from '../../storage/blobs/states.ts';
import { storedDeprecation } from '../format/deprecation.ts';
import { parseMetadata } from '../format/metadata.ts';
import { parseVersion } from '../format/version.ts';
import { carriedPackages } from './carried.ts';
import type { FeedContext } from './feed-context.ts';
import { keyOfVersion, packageKey, versionNotFound } from './packages.ts';
import { writeVersion, type PackageFiles } from './publish.ts';
import { writeSymbols, type SymbolsIndex } from './symbol-packages.ts';

interface VersionRow {
  id: number;
  package_id: string;
  version: string;
  full_version: string;
  listed: number;
  semver2: number;
  deprecation: string | null;
  imported: string | null;
  size_bytes: number;
  sha512: string;
  nupkg_digest: Digest;
  snupkg_digest: Digest | null;
  snupkg_size: number | null;
  nuspec_digest: Digest;
  readme_digest: Digest | null;
  icon_digest: Digest | null;
  icon_type: string | null;
  metadata: string;
  metadata_bytes: number;
}

/** The promotion of packages: a version with its symbols, its deprecation, and whether it is listed. */
export function promotablePackages(
  context: FeedContext,
  mirroredFrom: Parameters<typeof carriedPackages>[1],
): PromotableContents {
  const { database, now } = context;
  return {
    async bind(accountId, name, reference) {
      const found = await versionOf(database, accountId, name, reference);
      if (!found) throw versionNotFound(name, reference);
      return { name: found.package_id, reference: found.version, digest: found.nupkg_digest };
    },
    nameFor: (name, wanted) => {
      if (packageKey(wanted) === packageKey(name)) return name;
      throw new DomainError(
        'Invalid',
        `to_name: the package ${name} cannot become ${wanted.slice(0, 100)}: its ID is in its nuspec, so other bytes would be needed. Promote it to another account, or pack it again with the other ID.`,
      );
    },
    async prepare(promotion) {
      const { from, to, reference } = promotion;
      const found = await versionOf(database, from.accountId, from.name, reference);
      const { nupkg_digest: nupkg, snupkg_digest: snupkg } = requireSame(found, promotion);
      const known = await carriedPackages(context, mirroredFrom).among(to.accountId, [
        nupkg,
        ...(snupkg ? [snupkg] : []),
      ]);
      const upstream = await mirroredFrom(to.accountId, from.name);
      const bytes =
        (known.has(nupkg) ? 0 : found!.size_bytes) + (snupkg && !known.has(snupkg) ? (found!.snupkg_size ?? 0) : 0);
      return {
        bytes,
        write: async (tx) => {
          const row = requireSame(await versionOf(tx, from.accountId, from.name, reference), promotion);
          const files = filesOf(row);
          const { sha512: _text, ...stored } = files.digests;
          const digests = [...Object.values(stored), ...(row.snupkg_digest === null ? [] : [row.snupkg_digest])];
          for (const digest of [...new Set(digests)].toSorted())
            if (!(await keepLive(tx, digest, now()))) throw versionGone(promotion);
          const there = await versionOf(tx, to.accountId, from.name, reference);
          if (there && there.nupkg_digest !== row.nupkg_digest)
            throw new DomainError(
              'AlreadyExists',
              `${row.package_id} ${row.version} exists already where it is promoted to, with other bytes, and a version cannot be changed.`,
            );
          if (!there) {
            const earlier = {
              from: `account ${promotion.fromAccount}`,
              id: packageKey(from.name),
              version: keyOfVersion(reference)!,
              publishedAt: now(),
              listed: row.listed === 1,
              downloads: 0,
              deprecation: storedDeprecation(row.deprecation),
              isOwn: row.imported === null,
            };
            const given = { isRepair: false, mirroredFrom: upstream, earlier };
            await writeVersion(tx, to.accountId, files, given, now());
          }
          // Those that are there already may be newer, also those that came back with a deleted version.
          const shown = await versionOf(tx, to.accountId, from.name, reference);
          const lacksSymbols = row.snupkg_digest !== null && shown!.snupkg_digest === null;
          if (lacksSymbols) await writeSymbols(tx, to.accountId, await symbolsOf(tx, row), row.snupkg_digest!);
          return !there || lacksSymbols;
        },
      };
    },
  };
}

async function versionOf(
  from: Queryable,
  accountId: number,
  id: string,
  version: string,
): Promise<VersionRow | undefined> {
  const key = keyOfVersion(version);
  if (key === undefined) return undefined;
  return from.get<VersionRow>(
    `SELECT v.*, p.package_id, ${sizeOf('v.snupkg_digest')} AS snupkg_size
     FROM packages p JOIN package_versions v ON v.package_row = p.id AND v.version_key = ?
     WHERE p.account_id = ? AND p.package_key = ?`,
    [key, accountId, packageKey(id)],
  );
}

/** What a push of these bytes would write. */
function filesOf(row: VersionRow): PackageFiles {
  const metadata = parseMetadata(row.metadata);
  return {
    nuspec: { id: metadata.id },
    version: parseVersion(row.full_version)!,
    semVer2: row.semver2 === 1,
    iconType: row.icon_type ?? undefined,
    size: row.size_bytes,
    digests: {
      nupkg: row.nupkg_digest,
      sha512: `sha512:${Buffer.from(row.sha512, 'base64').toString('hex')}`,
      nuspec: row.nuspec_digest,
      ...(row.readme_digest !== null && { readme: row.readme_digest }),
      ...(row.icon_digest !== null && { icon: row.icon_digest }),
    },
    metadata,
    metadataBytes: row.metadata_bytes,
  };
}

async function symbolsOf(from: Queryable, { id, package_id, version }: VersionRow): Promise<SymbolsIndex> {
  const rows = await from.select<{ path: string; file_name: string; signature: string }>(
    'SELECT path, file_name, signature FROM package_symbols WHERE version_row = ?',
    [id],
  );
  const pdbs = rows.map(({ path, file_name: fileName, signature: key }) => ({ path, fileName, key }));
  return { id: package_id, version, pdbs };
}

/** Throws `NotFound` if the version is not the one that was asked for. */
function requireSame(row: VersionRow | undefined, promotion: PromotedPlaces): VersionRow {
  if (row?.nupkg_digest === promotion.digest) return row;
  throw versionGone(promotion);
}

function versionGone({ from, reference, digest }: PromotedPlaces): DomainError {
  return new DomainError(
    'NotFound',
    `${from.name} ${reference} (${digest}) was deleted since, so it cannot be promoted.`,
  );
}
