import { pagesOf } from '../../runtime/pages.ts';
import { forUpdate, type Database } from '../../database/database.ts';
import { guardOf } from '../../permanence/rules.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { refreshPackage } from './packages.ts';
import { removeVersion } from './deletion.ts';

interface PackageRetention {
  /** Milliseconds since 1970 UTC. */
  now: number;
  /** Number of newest releases, and of newest prereleases, that are kept. */
  keepVersions: number;
  /** Patterns of what is kept in all accounts, beside the rules of each. */
  protect: readonly string[];
  /** How long a deletion can be undone; milliseconds. */
  deletedFor: number;
  dryRun: boolean;
  signal: AbortSignal;
  say: (line: string) => void;
}

interface Package {
  id: number;
  account_id: number;
  package_id: string;
}

interface Version {
  id: number;
  version: string;
  size_bytes: number;
}

/** Packages read in one statement, and versions deleted in one transaction. */
const page = 200;
const batch = 20;
/** Versions that one statement reads: a package may have 100,000. */
const rowsAtATime = 1000;

/**
 * Deletes hosted releases older than the newest `keepVersions` releases, and prereleases older than the newest
 * `keepVersions` prereleases: the two are counted separately, so frequent prereleases never displace a release.
 * Resolves to the number of deleted versions and the bytes of their packages.
 */
export async function retainPackages(
  database: Database,
  rules: PackageRetention,
): Promise<{ versions: number; version_bytes: number }> {
  const deleted = { versions: 0, version_bytes: 0 };
  const pace = new Pace(rules.signal);
  const read = (after: number) =>
    database.select<Package>(
      'SELECT id, account_id, package_id FROM packages WHERE id > ? AND version_count > ? ORDER BY id LIMIT ?',
      [after, rules.keepVersions, page],
    );
  for await (const packages of pagesOf(0, page, read, ({ id }) => id)) {
    await pace.step();
    for (const each of packages) {
      for (let more = true; more; await pace.step()) {
        const gone = await retain(database, each, rules);
        for (const { version, size_bytes } of gone) {
          rules.say(`package ${each.package_id} ${version}`);
          deleted.versions += 1;
          deleted.version_bytes += size_bytes;
        }
        more = !rules.dryRun && gone.length === batch;
      }
    }
  }
  return deleted;
}

/** The package is locked, so that the newest versions do not change until the older ones are deleted. */
function retain(
  database: Database,
  { id, account_id, package_id }: Package,
  rules: PackageRetention,
): Promise<Version[]> {
  return database.transaction(async (tx) => {
    await tx.get(`SELECT id FROM packages WHERE id = ?${forUpdate(tx)}`, [id]);
    const guard = await guardOf(tx, account_id, rules.protect);
    const going: Version[] = [];
    for (const prerelease of [0, 1]) {
      for (let offset = rules.keepVersions; rules.dryRun || going.length < batch; offset += rowsAtATime) {
        const old = await tx.select<Version>(
          `SELECT id, version, size_bytes FROM package_versions WHERE package_row = ? AND prerelease = ?
           ORDER BY sort_key DESC LIMIT ? OFFSET ?`,
          [id, prerelease, rowsAtATime, offset],
        );
        for (const each of old) if (!guard.keepsVersion(package_id, each.version)) going.push(each);
        if (old.length < rowsAtATime) break;
      }
    }
    if (rules.dryRun) return going;
    const gone = going.slice(0, batch);
    for (const version of gone) {
      const subject = { kind: 'package', name: package_id, reference: version.version } as const;
      await removeVersion(tx, { accountId: account_id, packageRow: id, versionRow: version.id, subject }, rules);
    }
    if (gone.length > 0) await refreshPackage(tx, id, rules.now);
    return gone;
  });
}
