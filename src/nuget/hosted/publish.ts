import type { Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { hexOf, type Digest } from '../../runtime/digest.ts';
import { recordEvent } from '../../events/record.ts';
import type { Arrival } from '../../storage/blobs/blob-store.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { FeedContext } from './feed-context.ts';
import { bytesOfMetadata, metadataOf, type VersionMetadata } from '../format/metadata.ts';
import { readNupkg, type Nupkg } from '../format/nupkg.ts';
import { keyOfVersion, lockPackage, lockVersion, packageKey, refreshPackage } from './packages.ts';
import { bytesOfSymbols } from './symbol-packages.ts';
import { lowestStanding } from '../format/terms.ts';
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

/** A package that was read, with its files staged for the commit. */
interface StagedPackage {
  nupkg: Nupkg;
  /** Bytes of the nupkg. */
  size: number;
  digests: Record<'nupkg' | 'sha512' | 'nuspec', Digest> & { readme?: Digest; icon?: Digest };
  metadata: VersionMetadata;
  metadataBytes: number;
  arrivals: Arrival[];
  /** Whether this is a stored version with damaged files, which this push repairs. */
  isRepair: boolean;
  /** The upstream that the id is mirrored from, if the account does not claim the id yet. */
  mirroredFrom: string | undefined;
}

/** What is known of the id and the version before the files are staged. */
type Known = Pick<StagedPackage, 'isRepair' | 'mirroredFrom'>;

/** The checks of a push that depend on who pushes. */
interface PushChecks {
  /** Throws if the principal may not push the id. */
  permit: (id: string) => void;
  /** The name of the upstream that the id is mirrored from. */
  mirroredFrom: (id: string) => Promise<string | undefined>;
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
  const prepared = await stageParts(context, accountId, staged, checks);
  const { nupkg, size, digests, metadataBytes, arrivals, isRepair } = prepared;
  const { id } = nupkg.nuspec;
  const version = normalize(nupkg.version);
  return context.blobs.commit(arrivals, async (tx) => {
    const now = context.now();
    const { row, knownAs, isNew, versions } = await claim(tx, accountId, id, now);
    const values = [row, versionKey(nupkg.version)];
    const existing = await tx.get<{ nupkg_digest: Digest }>(
      'SELECT nupkg_digest FROM package_versions WHERE package_row = ? AND version_key = ?',
      values,
    );
    if (existing && isRepair && existing.nupkg_digest === digests.nupkg) {
      return { id, version, replaces: undefined, warnings: [repaired] };
    }
    if (existing) throw alreadyExists(nupkg);
    if (versions >= maxVersions) throw tooManyVersions(id);
    await insertVersion(tx, row, prepared, now);
    await tx.run(
      `UPDATE packages SET version_count = version_count + 1, size_bytes = size_bytes + ?,
         metadata_bytes = metadata_bytes + ?,
         largest_metadata = CASE WHEN largest_metadata < ? THEN ? ELSE largest_metadata END WHERE id = ?`,
      [size, metadataBytes, metadataBytes, metadataBytes, row],
    );
    await refreshPackage(tx, row, now);
    const replaces = isNew ? prepared.mirroredFrom : undefined;
    const subject = { kind: 'package', name: id, reference: version } as const;
    const details = { size_bytes: size, ...(replaces !== undefined && { taken_over_from: replaces }) };
    await recordEvent(tx, { type: 'package.published', accountId, subject, details }, now);
    return { id, version, replaces, warnings: warningsOf(nupkg, knownAs) };
  });
}

/** Reads the package and stages the files that are served by themselves. Discards everything staged when it fails. */
async function stageParts(
  context: FeedContext,
  accountId: number,
  staged: StagedFile,
  { permit, mirroredFrom }: PushChecks,
): Promise<StagedPackage> {
  const arrivals: Arrival[] = [];
  const stage = async (bytes: Buffer): Promise<Digest> => {
    const arrival = await context.blobs.stageBytes(bytes);
    arrivals.push(arrival);
    return arrival.digest;
  };
  try {
    const nupkg = await readNupkg(() => staged.open(), { asciiOnly: true });
    permit(nupkg.nuspec.id);
    refuseIncomplete(nupkg);
    const known = await refuseExisting(context, accountId, nupkg, await staged.digest('sha256'), mirroredFrom);
    const { readme, icon } = nupkg.entries;
    const digests = {
      nupkg: await staged.digest('sha256'),
      sha512: await staged.digest('sha512'),
      nuspec: await stage(nupkg.nuspecBytes),
      ...(readme && { readme: await stage(readme) }),
      ...(icon && { icon: await stage(icon) }),
    };
    const metadata = metadataOf(nupkg.nuspec);
    const metadataBytes = bytesOfMetadata(metadata);
    arrivals.push({ staged, digest: digests.nupkg });
    return { nupkg, size: staged.size, digests, metadata, metadataBytes, arrivals, ...known };
  } catch (error) {
    await Promise.all([staged, ...arrivals.map((each) => each.staged)].map((each) => each.discard()));
    throw error;
  }
}

/** Writes the version's row and its references to blobs. */
async function insertVersion(
  tx: Transaction,
  packageRow: number,
  { nupkg, size, digests, metadata, metadataBytes, arrivals }: StagedPackage,
  now: number,
): Promise<void> {
  const versionRow = await tx.insert('package_versions', {
    package_row: packageRow,
    version_key: versionKey(nupkg.version),
    version: normalize(nupkg.version),
    full_version: fullString(nupkg.version),
    sort_key: sortKey(nupkg.version),
    listed: 1,
    prerelease: isPrerelease(nupkg.version) ? 1 : 0,
    semver2: nupkg.semVer2 ? 1 : 0,
    published_at: now,
    size_bytes: size,
    sha512: Buffer.from(hexOf(digests.sha512), 'hex').toString('base64'),
    nupkg_digest: digests.nupkg,
    nuspec_digest: digests.nuspec,
    readme_digest: digests.readme ?? null,
    icon_digest: digests.icon ?? null,
    icon_type: nupkg.entries.iconType ?? null,
    metadata: JSON.stringify(metadata),
    metadata_bytes: metadataBytes,
  });
  // Two files can be equal: then they have one digest.
  const unique = new Set(arrivals.map(({ digest }) => digest));
  await tx.insertNew(
    'package_blobs',
    [...unique].map((digest) => ({ version_row: versionRow, digest })),
  );
}

/** Hides a version from search and newer clients (`listed` false), or shows it again. Throws `NotFound`. */
export async function setListed(
  { database, now }: FeedContext,
  accountId: number,
  id: string,
  version: string,
  listed: boolean,
): Promise<void> {
  await database.transaction(async (tx) => {
    const { packageRow, versionRow, subject } = await lockVersion(tx, accountId, id, version);
    const value = listed ? 1 : 0;
    const sql = 'UPDATE package_versions SET listed = ? WHERE id = ? AND listed <> ?';
    const isChanged = (await tx.run(sql, [value, versionRow, value])) > 0;
    await refreshPackage(tx, packageRow, now());
    const type = listed ? 'package.relisted' : 'package.unlisted';
    if (isChanged) await recordEvent(tx, { type, accountId, subject }, now());
  });
}

/** Deletes a version permanently. The account keeps its claim on the id. Throws `NotFound`. */
export async function deleteVersion(
  { database, now }: FeedContext,
  accountId: number,
  id: string,
  version: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    const { packageRow, versionRow, subject } = await lockVersion(tx, accountId, id, version);
    await removeVersion(tx, packageRow, versionRow);
    await refreshPackage(tx, packageRow, now());
    await recordEvent(tx, { type: 'package.deleted', accountId, subject }, now());
  });
}

/** Deletes a version. The caller has locked the package, and calls `refreshPackage` after the last deletion. */
export async function removeVersion(tx: Transaction, packageRow: number, versionRow: number): Promise<void> {
  await tx.run(
    `UPDATE packages SET version_count = version_count - 1,
         size_bytes = size_bytes - (SELECT size_bytes FROM package_versions WHERE id = ?),
         metadata_bytes = metadata_bytes - (SELECT metadata_bytes FROM package_versions WHERE id = ?) - ? WHERE id = ?`,
    [versionRow, versionRow, await bytesOfSymbols(tx, versionRow), packageRow],
  );
  await tx.run('DELETE FROM package_symbols WHERE version_row = ?', [versionRow]);
  await tx.run('DELETE FROM package_blobs WHERE version_row = ?', [versionRow]);
  await tx.run('DELETE FROM package_versions WHERE id = ?', [versionRow]);
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
  const row = (await lockPackage(tx, accountId, id))!;
  const found = (await tx.get<{ package_id: string; version_count: number }>(
    'SELECT package_id, version_count FROM packages WHERE id = ?',
    [row],
  ))!;
  return { row, knownAs: found.package_id, isNew: made > 0, versions: found.version_count };
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
  throw alreadyExists(nupkg);
}

const repaired = 'Files of this version were damaged in the storage. This push has repaired them.';

function tooManyVersions(id: string): DomainError {
  return new DomainError(
    'Invalid',
    `${id} has ${maxVersions} versions, and more are not allowed. Delete some versions, or use another id.`,
  );
}

function alreadyExists({ nuspec, version }: Nupkg): DomainError {
  return new DomainError(
    'AlreadyExists',
    `${nuspec.id} ${normalize(version)} exists already, and a version cannot be changed. Push under a new version.`,
  );
}

function warningsOf({ nuspec }: Nupkg, knownAs: string): string[] {
  if (nuspec.id === knownAs) return [];
  return [`The id of this package was shown as ${knownAs}; it is now shown as ${nuspec.id}.`];
}

/** The nuspec reference requires these of every package, and the public gallery refuses packages without them. */
function refuseIncomplete({ nuspec }: Nupkg): void {
  const missing = (['authors', 'description'] as const).filter((name) => nuspec[name] === undefined);
  if (missing.length === 0) return;
  const elements = missing.map((name) => `<${name}>`).join(' and ');
  throw new DomainError('PackageInvalid', `The nuspec has no ${elements}. Add it: every package needs it.`);
}
