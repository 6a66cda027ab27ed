import type { Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { hexOf, type Digest } from '../../runtime/digest.ts';
import { recordEvent } from '../../events/record.ts';
import type { Arrival } from '../../storage/blobs/blob-store.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { FeedContext } from './feed-context.ts';
import type { HostedDeprecation } from '../format/deprecation.ts';
import { bytesOfMetadata, metadataOf, type VersionMetadata } from '../format/metadata.ts';
import { readNupkg, type Nupkg } from '../format/nupkg.ts';
import { importedText } from './imported.ts';
import { keyOfVersion, lockedPackage, lockVersion, packageKey, refreshPackage } from './packages.ts';
import { refuseKeptVersion, restoredByPush } from './deletion.ts';
import { lowestStanding, standingOf } from '../format/terms.ts';
import { movePackage, type IndexedPackage } from './term-index.ts';
import { fullString, isPrerelease, normalize, sortKey, versionKey } from '../format/version.ts';

/** Most versions of a package, because some documents list all of them. */
const maxVersions = 100_000;

/** A package that has just been published. */
export interface Published {
  id: string;
  /** Normalised. */
  version: string;
  /** The upstream that the id was mirrored from until this push; undefined if there is none. */
  replaces: string | undefined;
  /** Warnings for the publisher, each on one line. */
  warnings: string[];
}

/** A package that was read, and the files of it that are served by themselves. */
export interface PackageFiles {
  nuspec: Pick<Nupkg['nuspec'], 'id'>;
  version: Nupkg['version'];
  semVer2: boolean;
  iconType: string | undefined;
  /** Bytes of the nupkg. */
  size: number;
  digests: Record<'nupkg' | 'sha512' | 'nuspec', Digest> & { readme?: Digest; icon?: Digest };
  metadata: VersionMetadata;
  metadataBytes: number;
}

/** What is known of the id and the version before the files are staged. */
interface Known {
  /** Whether this is a stored version with damaged files, which this push repairs. */
  isRepair: boolean;
  /** The upstream that the id is mirrored from, if the account does not claim the id yet. */
  mirroredFrom: string | undefined;
}

/** A version that another server has published before. */
export interface EarlierVersion {
  /** Where it comes from, for the event. */
  from: string;
  /** The keys of the id and the version that the package must have. */
  id: string;
  version: string;
  /** Milliseconds since 1970 UTC; undefined if it is not known. */
  publishedAt: number | undefined;
  listed: boolean;
  downloads: number;
  deprecation: HostedDeprecation | undefined;
  /** Whether it was pushed to another account of this server: no import follows it, and an export sends it. */
  isOwn?: boolean;
}

/** The checks of a push that depend on who pushes. */
interface PushChecks {
  /** Throws if the principal may not push the id. */
  permit: (id: string) => void;
  /** The name of the upstream that the id is mirrored from. */
  mirroredFrom: (id: string) => Promise<string | undefined>;
  /** Of an import. Its nuspec may lack elements that a new one needs, and be wrong in others, because clients use it already. */
  earlier?: EarlierVersion;
}

/**
 * Publishes the package in `staged`, which must be hashed with sha256 and sha512. `staged` is used up, also when this
 * fails. Throws `PackageInvalid`, the error of `permit` for the id, or `AlreadyExists`. Of concurrent pushes of one
 * version, one succeeds. A push of the same file repairs a stored version whose files are damaged.
 */
export async function publish(
  context: FeedContext,
  accountId: number,
  staged: StagedFile,
  checks: PushChecks,
): Promise<Published> {
  const { files, arrivals, ...known } = await stageParts(context, accountId, staged, checks);
  const write = (tx: Transaction) =>
    writeVersion(tx, accountId, files, { ...known, earlier: checks.earlier }, context.now());
  return context.blobs.commit(arrivals, write, accountId);
}

/**
 * Publishes a package whose files are stored in the same transaction, or are held until it ends. Throws `AlreadyExists`, and
 * `Invalid` for a package with too many versions.
 */
export async function writeVersion(
  tx: Transaction,
  accountId: number,
  files: PackageFiles,
  { isRepair, mirroredFrom, earlier }: Known & { earlier?: EarlierVersion | undefined },
  now: number,
): Promise<Published> {
  const { size, digests, metadataBytes } = files;
  const { id } = files.nuspec;
  const version = normalize(files.version);
  const { row, knownAs, isNew, versions } = await claim(tx, accountId, id, now);
  const values = [row, versionKey(files.version)];
  const subject = { kind: 'package', name: id, reference: version } as const;
  const existing = await tx.get<{ nupkg_digest: Digest }>(
    'SELECT nupkg_digest FROM package_versions WHERE package_row = ? AND version_key = ?',
    values,
  );
  if (existing && isRepair && existing.nupkg_digest === digests.nupkg) {
    return { id, version, replaces: undefined, warnings: [repaired] };
  }
  if (existing) throw alreadyExists(files);
  if (await restoredByPush(tx, { packageRow: row, subject, files }, now)) {
    return { id, version, replaces: undefined, warnings: [restoredWarning] };
  }
  if (versions >= maxVersions) throw tooManyVersions(id);
  await insertVersion(tx, row, files, now, earlier);
  const deprecated = earlier?.deprecation ? 1 : 0;
  await tx.run(
    `UPDATE packages SET version_count = version_count + 1, size_bytes = size_bytes + ?,
       metadata_bytes = metadata_bytes + ?, has_deprecated = CASE WHEN ? = 1 THEN 1 ELSE has_deprecated END,
       largest_metadata = CASE WHEN largest_metadata < ? THEN ? ELSE largest_metadata END WHERE id = ?`,
    [size, metadataBytes, deprecated, metadataBytes, metadataBytes, row],
  );
  await refreshPackage(tx, row, now);
  if (earlier) await countEarlier(tx, row, earlier.downloads);
  const replaces = isNew ? mirroredFrom : undefined;
  const details = {
    size_bytes: size,
    ...(replaces !== undefined && { taken_over_from: replaces }),
    ...(earlier && { imported_from: earlier.from }),
  };
  await recordEvent(tx, { type: 'package.published', accountId, subject, details }, now);
  return { id, version, replaces, warnings: warningsOf(files, knownAs) };
}

/** Reads the package and stages the files that are served by themselves. Discards everything staged when it fails. */
async function stageParts(
  context: FeedContext,
  accountId: number,
  staged: StagedFile,
  { permit, mirroredFrom, earlier }: PushChecks,
): Promise<{ files: PackageFiles; arrivals: Arrival[] } & Known> {
  const arrivals: Arrival[] = [];
  const stage = async (bytes: Buffer): Promise<Digest> => {
    const arrival = await context.blobs.stageBytes(bytes);
    arrivals.push(arrival);
    return arrival.digest;
  };
  try {
    const nupkg = await readNupkg(() => staged.open(), { asciiOnly: true, isPublished: earlier !== undefined });
    permit(nupkg.nuspec.id);
    if (earlier) refuseOther(nupkg, earlier);
    else refuseIncomplete(nupkg);
    const digests = { nupkg: await staged.digest('sha256'), sha512: await staged.digest('sha512') };
    const known = await refuseExisting(context, accountId, nupkg, digests.nupkg, mirroredFrom);
    const files = await packageFiles(nupkg, { ...digests, size: staged.size }, stage, earlier);
    arrivals.push({ staged, digest: digests.nupkg });
    return { files, arrivals, ...known };
  } catch (error) {
    await Promise.all([staged, ...arrivals.map((each) => each.staged)].map((each) => each.discard()));
    throw error;
  }
}

/** Stages the files of a package that are served by themselves. */
export async function packageFiles(
  nupkg: Nupkg,
  { size, ...digests }: { nupkg: Digest; sha512: Digest; size: number },
  stage: (bytes: Buffer) => Promise<Digest>,
  earlier?: EarlierVersion,
): Promise<PackageFiles> {
  const { readme, icon, iconType } = nupkg.entries;
  const metadata = metadataOf(nupkg.nuspec);
  return {
    nuspec: { id: nupkg.nuspec.id },
    version: nupkg.version,
    semVer2: nupkg.semVer2,
    iconType,
    size,
    digests: {
      ...digests,
      nuspec: await stage(nupkg.nuspecBytes),
      ...(readme && { readme: await stage(readme) }),
      ...(icon && { icon: await stage(icon) }),
    },
    metadata,
    metadataBytes: bytesOfMetadata(metadata) + Buffer.byteLength(deprecationText(earlier) ?? ''),
  };
}

/** Writes the version's row and its references to blobs. */
async function insertVersion(
  tx: Transaction,
  packageRow: number,
  { version, semVer2, iconType, size, digests, metadata, metadataBytes }: PackageFiles,
  now: number,
  earlier: EarlierVersion | undefined,
): Promise<void> {
  const versionRow = await tx.insert('package_versions', {
    package_row: packageRow,
    version_key: versionKey(version),
    version: normalize(version),
    full_version: fullString(version),
    sort_key: sortKey(version),
    listed: earlier?.listed === false ? 0 : 1,
    prerelease: isPrerelease(version) ? 1 : 0,
    semver2: semVer2 ? 1 : 0,
    published_at: Math.min(earlier?.publishedAt ?? now, now),
    download_count: earlier?.downloads ?? 0,
    deprecation: deprecationText(earlier),
    imported: earlier && !earlier.isOwn ? importedText(earlier) : null,
    size_bytes: size,
    sha512: Buffer.from(hexOf(digests.sha512), 'hex').toString('base64'),
    nupkg_digest: digests.nupkg,
    nuspec_digest: digests.nuspec,
    readme_digest: digests.readme ?? null,
    icon_digest: digests.icon ?? null,
    icon_type: iconType ?? null,
    metadata: JSON.stringify(metadata),
    metadata_bytes: metadataBytes,
  });
  // Two files can be equal: then they have one digest.
  const { sha512: _same, ...stored } = digests;
  const unique = new Set(Object.values(stored));
  await tx.insertNew(
    'package_blobs',
    [...unique].map((digest) => ({ version_row: versionRow, digest })),
  );
}

function deprecationText(earlier: EarlierVersion | undefined): string | null {
  return earlier?.deprecation ? JSON.stringify(earlier.deprecation) : null;
}

/** Adds downloads that another server has counted. */
async function countEarlier(tx: Transaction, packageRow: number, downloads: number): Promise<void> {
  if (downloads === 0) return;
  await tx.run('UPDATE packages SET download_count = download_count + ? WHERE id = ?', [downloads, packageRow]);
  const row = (await tx.get<IndexedPackage & { download_count: number }>(
    'SELECT id, account_id, standing, flags, terms, index_version, download_count FROM packages WHERE id = ?',
    [packageRow],
  ))!;
  await movePackage(tx, row, standingOf(row.download_count));
}

/**
 * Hides a version from search and newer clients (`listed` false), or shows it again. Throws `NotFound`, and `Kept` for a client that
 * asks for a deletion of a version that cannot be deleted.
 */
export async function setListed(
  { database, now }: FeedContext,
  accountId: number,
  id: string,
  version: string,
  listed: boolean,
  isDeletion = false,
): Promise<void> {
  await database.transaction(async (tx) => {
    const { packageRow, versionRow, subject } = await lockVersion(tx, accountId, id, version);
    if (isDeletion) await refuseKeptVersion(tx, accountId, subject);
    const value = listed ? 1 : 0;
    const sql = 'UPDATE package_versions SET listed = ? WHERE id = ? AND listed <> ?';
    const isChanged = (await tx.run(sql, [value, versionRow, value])) > 0;
    await refreshPackage(tx, packageRow, now());
    const type = listed ? 'package.relisted' : 'package.unlisted';
    if (isChanged) await recordEvent(tx, { type, accountId, subject }, now());
  });
}

/** The package's row, created if the account does not claim the id yet, and locked. */
async function claim(
  tx: Transaction,
  accountId: number,
  id: string,
  now: number,
): Promise<{ row: number; knownAs: string; isNew: boolean; versions: number }> {
  const made = await tx.insertNew('packages', [
    {
      account_id: accountId,
      package_key: packageKey(id),
      package_id: id,
      standing: lowestStanding,
      created_at: now,
      updated_at: now,
    },
  ]);
  const found = (await lockedPackage(tx, accountId, id))!;
  return { row: found.id, knownAs: found.package_id, isNew: made > 0, versions: found.version_count };
}

/**
 * Refuses an existing version early, before files are staged. It is a repair if the version has this nupkg and some of its
 * files are damaged.
 */
async function refuseExisting(
  { database, blobs }: FeedContext,
  accountId: number,
  nupkg: Nupkg,
  pushed: Digest,
  mirroredFrom: PushChecks['mirroredFrom'],
): Promise<Known> {
  const { id, version } = nupkg.nuspec;
  const found = await database.get<Record<'nupkg' | 'nuspec' | 'readme' | 'icon', Digest | null>>(
    `SELECT v.nupkg_digest AS nupkg, v.nuspec_digest AS nuspec, v.readme_digest AS readme, v.icon_digest AS icon
     FROM packages p LEFT JOIN package_versions v ON v.package_row = p.id AND v.version_key = ?
     WHERE p.account_id = ? AND p.package_key = ?`,
    [keyOfVersion(version)!, accountId, packageKey(id)],
  );
  // The transaction of the push may not wait for this: it is known only of an id that is new.
  if (!found) return { isRepair: false, mirroredFrom: await mirroredFrom(id) };
  if (found.nupkg === null) return { isRepair: false, mirroredFrom: undefined };
  if (found.nupkg === pushed) {
    for (const digest of Object.values(found)) {
      if (digest !== null && !(await blobs.isWhole(digest))) return { isRepair: true, mirroredFrom: undefined };
    }
  }
  // Clients that repeat a push count the refusal as its success: what another one wrote must be on the disk.
  await database.transaction(() => Promise.resolve());
  throw alreadyExists(nupkg);
}

const restoredWarning = 'This version was deleted. This push has restored it as it was.';
const repaired = 'Files of this version were damaged in the storage. This push has repaired them.';

function tooManyVersions(id: string): DomainError {
  return new DomainError(
    'Invalid',
    `${id} has ${maxVersions} versions, and more are not allowed. Delete some versions, or use another id.`,
  );
}

function alreadyExists({ nuspec, version }: Pick<PackageFiles, 'nuspec' | 'version'>): DomainError {
  return new DomainError(
    'AlreadyExists',
    `${nuspec.id} ${normalize(version)} exists already, and a version cannot be changed. Push under a new version.`,
  );
}

function warningsOf({ nuspec }: Pick<PackageFiles, 'nuspec'>, knownAs: string): string[] {
  if (nuspec.id === knownAs) return [];
  return [`The id of this package was shown as ${knownAs}; it is now shown as ${nuspec.id}.`];
}

/** Throws `PackageInvalid` for another package: the source of an import may send another one than it names. */
export function refuseOther(
  { nuspec, version }: Pick<Nupkg, 'nuspec' | 'version'>,
  { id, version: key }: EarlierVersion,
): void {
  if (packageKey(nuspec.id) === id && versionKey(version) === key) return;
  throw new DomainError(
    'PackageInvalid',
    `The source sent ${nuspec.id} ${normalize(version)} in place of ${id} ${key}.`,
  );
}

/** The nuspec reference requires these of every package, and the public gallery refuses packages without them. */
function refuseIncomplete({ nuspec }: Nupkg): void {
  const missing = (['authors', 'description'] as const).filter((name) => nuspec[name] === undefined);
  if (missing.length === 0) return;
  const elements = missing.map((name) => `<${name}>`).join(' and ');
  throw new DomainError('PackageInvalid', `The nuspec has no ${elements}. Add it: every package needs it.`);
}
