import { randomUUID } from 'node:crypto';
import type { NameSet } from '../../accounts/names.ts';
import { forUpdate, type Database, type Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import { parseAffected, wrong } from '../format/deprecation.ts';
import type { Vulnerability } from '../format/metadata.ts';
import { parseRange, satisfies, type VersionRange } from '../format/range.ts';
import { parseVersion } from '../format/version.ts';
import type { FeedContext } from './feed-context.ts';
import { notHosted } from './deprecations.ts';
import { lockPackage, packageKey } from './packages.ts';

/** Most advisories of one package, and of all packages of one account. */
const maxOfPackage = 25;
export const maxOfAccount = 1000;
/** Most characters of an advisory's address. */
const maxUrl = 500;

/** A vulnerability of a hosted package, as its owner writes it. */
interface NewAdvisory {
  packageId: string;
  /** A range such as `[1.0.0, 1.2.0)`. */
  versions: string;
  /** An index of `severities`. */
  severity: number;
  /** Where people read about it: HTTP or HTTPS. */
  url: string;
}

export interface Advisory extends NewAdvisory {
  id: string;
  /** Milliseconds since 1970 UTC. */
  createdAt: number;
}

interface AdvisoryRow {
  id: string;
  package_row: number;
  package_id: string;
  package_key: string;
  severity: number;
  versions: string;
  url: string;
  created_at: number;
}

const columns = `a.id, a.package_row, p.package_id, p.package_key, a.severity, a.versions, a.url, a.created_at
  FROM package_advisories a JOIN packages p ON p.id = a.package_row AND p.account_id = a.account_id`;

/**
 * Adds an advisory. Throws `Invalid`, with the wrong field in `detail.errors` or if there are too many; `NotFound` if the
 * account does not host the package; and `AlreadyExists` for the same address and range.
 */
export async function createAdvisory(
  { database, now }: FeedContext,
  accountId: number,
  given: NewAdvisory,
): Promise<Advisory> {
  const { severity } = given;
  const versions = parseAffected(given.versions);
  const url = parseAddress(given.url);
  return database.transaction(async (tx) => {
    const packageRow = await lockPackage(tx, accountId, given.packageId);
    if (packageRow === undefined) throw notHosted(given.packageId);
    const createdAt = await noteChange(tx, accountId, now());
    const count = async (where: string, value: number) =>
      (await tx.get<{ n: number }>(`SELECT COUNT(*) AS n FROM package_advisories WHERE ${where}`, [value]))!.n;
    if ((await count('package_row = ?', packageRow)) >= maxOfPackage) throw tooMany('A package', maxOfPackage);
    if ((await count('account_id = ?', accountId)) >= maxOfAccount) throw tooMany('An account', maxOfAccount);
    const same = 'SELECT id FROM package_advisories WHERE package_row = ? AND url = ? AND versions = ?';
    if (await tx.get(same, [packageRow, url, versions])) {
      throw new DomainError('AlreadyExists', `This advisory exists already: ${url} for ${versions}.`);
    }
    const name = await tx.get<{ package_id: string }>('SELECT package_id FROM packages WHERE id = ?', [packageRow]);
    const advisory = { id: randomUUID(), packageId: name!.package_id, versions, severity, url, createdAt };
    await tx.insert('package_advisories', {
      id: advisory.id,
      account_id: accountId,
      package_row: packageRow,
      severity,
      versions,
      url,
      created_at: createdAt,
    });
    await changePackage(tx, packageRow, bytesOf(advisory), createdAt);
    await record(tx, 'advisory.created', accountId, advisory, createdAt);
    return advisory;
  });
}

/** Deletes an advisory. Throws `NotFound`, also for one whose package is not in `only`. */
export async function deleteAdvisory(
  { database, now }: FeedContext,
  accountId: number,
  id: string,
  only?: NameSet,
): Promise<void> {
  const where = 'a.id = ? AND a.account_id = ?';
  await database.transaction(async (tx) => {
    // The package is locked first, as everywhere.
    const package_row = `(SELECT package_row FROM package_advisories a WHERE ${where})`;
    await tx.get(`SELECT id FROM packages WHERE id = ${package_row}${forUpdate(tx)}`, [id, accountId]);
    const row = await tx.get<AdvisoryRow>(`SELECT ${columns} WHERE ${where}${forUpdate(tx)}`, [id, accountId]);
    if (!row || only?.includes(row.package_key) === false) {
      throw new DomainError('NotFound', 'This account has no such advisory. It may have been deleted.');
    }
    const changedAt = await noteChange(tx, accountId, now());
    await tx.run('DELETE FROM package_advisories WHERE id = ?', [id]);
    await changePackage(tx, row.package_row, -bytesOf(row), changedAt);
    await record(tx, 'advisory.deleted', accountId, advisoryOf(row), changedAt);
  });
}

/** Deletes the advisories of a package whose claim is released: its id then stands for another package. */
export async function removeAdvisories(
  tx: Transaction,
  accountId: number,
  packageRow: number,
  now: number,
): Promise<void> {
  const deleted = await tx.run('DELETE FROM package_advisories WHERE package_row = ?', [packageRow]);
  if (deleted > 0) await noteChange(tx, accountId, now);
}

/** Up to `limit` advisories of the account, the earliest first, after `after`. Filters limit the packages. */
export async function listAdvisories(
  database: Database,
  accountId: number,
  limit: number,
  after: readonly [createdAt: number, id: string] | undefined,
  { packageId, only }: { packageId?: string | undefined; only?: NameSet | undefined } = {},
): Promise<Advisory[]> {
  const among = only?.where('p.package_key');
  const rows = await database.select<AdvisoryRow>(
    `SELECT ${columns} WHERE a.account_id = ?
     ${packageId === undefined ? '' : 'AND p.package_key = ?'}
     ${after ? 'AND a.created_at >= ? AND (a.created_at > ? OR a.id > ?)' : ''}
     ${among ? `AND ${among.sql}` : ''} ORDER BY a.created_at, a.id LIMIT ?`,
    [
      accountId,
      ...(packageId === undefined ? [] : [packageKey(packageId)]),
      ...(after ? [after[0], after[0], after[1]] : []),
      ...(among?.values ?? []),
      limit,
    ],
  );
  return rows.map(advisoryOf);
}

/** When the advisories of the account last changed; undefined if it never had one. Increases with each change. */
export async function advisoriesChangedAt(database: Database, accountId: number): Promise<number | undefined> {
  const sql = 'SELECT changed_at FROM advisory_changes WHERE account_id = ?';
  return (await database.getCached<{ changed_at: number }>(sql, [accountId]))?.changed_at;
}

/** The advisories of one package, for its registration. */
export class PackageAdvisories {
  /** Upper bound of the bytes that they take in the metadata of one version. */
  readonly bytes: number;
  readonly #advisories: readonly { range: VersionRange; vulnerability: Vulnerability }[];

  constructor(rows: readonly Pick<AdvisoryRow, 'severity' | 'versions' | 'url'>[]) {
    this.bytes = rows.reduce((sum, { url }) => sum + url.length + 50, 0);
    this.#advisories = rows.map(({ severity, versions, url }) => ({
      range: parseRange(versions)!,
      vulnerability: { advisoryUrl: url, severity: String(severity) },
    }));
  }

  /** The vulnerabilities of a version; undefined if none is known. */
  of(version: string): Vulnerability[] | undefined {
    if (this.#advisories.length === 0) return undefined;
    const parsed = parseVersion(version)!;
    const found = this.#advisories.filter(({ range }) => satisfies(range, parsed));
    return found.length > 0 ? found.map(({ vulnerability }) => vulnerability) : undefined;
  }
}

export async function advisoriesOf(database: Database, accountId: number, id: string): Promise<PackageAdvisories> {
  if ((await advisoriesChangedAt(database, accountId)) === undefined) return new PackageAdvisories([]);
  const rows = await database.select<AdvisoryRow>(
    `SELECT ${columns} WHERE p.account_id = ? AND p.package_key = ? ORDER BY a.created_at, a.id`,
    [accountId, packageKey(id)],
  );
  return new PackageAdvisories(rows);
}

/** Locks the account's advisories until the transaction ends. Resolves to the time of the change. */
async function noteChange(tx: Transaction, accountId: number, now: number): Promise<number> {
  // The clock can be set back, and two changes can have one time.
  const later = 'changed_at = CASE WHEN changed_at < new.changed_at THEN new.changed_at ELSE changed_at + 1 END';
  await tx.upsert('advisory_changes', ['account_id'], [{ account_id: accountId, changed_at: now }], later);
  const sql = `SELECT changed_at FROM advisory_changes WHERE account_id = ?${forUpdate(tx)}`;
  return (await tx.get<{ changed_at: number }>(sql, [accountId]))!.changed_at;
}

/** Changes the revision of a package, because its documents show its advisories, and its bytes. */
async function changePackage(tx: Transaction, packageRow: number, bytes: number, now: number): Promise<void> {
  await tx.run(
    'UPDATE packages SET metadata_bytes = metadata_bytes + ?, revision = revision + 1, updated_at = ? WHERE id = ?',
    [bytes, now, packageRow],
  );
}

/** About the bytes that an advisory takes in the database. */
function bytesOf({ url, versions }: Pick<Advisory, 'url' | 'versions'>): number {
  return 100 + url.length + versions.length;
}

function record(
  tx: Transaction,
  type: 'advisory.created' | 'advisory.deleted',
  accountId: number,
  { id, packageId, severity, versions, url }: Advisory,
  now: number,
): Promise<void> {
  const subject = { kind: 'package', name: packageId } as const;
  return recordEvent(tx, { type, accountId, subject, details: { advisory: id, severity, versions, url } }, now);
}

function advisoryOf(row: AdvisoryRow): Advisory {
  const { id, package_id: packageId, versions, severity, url, created_at: createdAt } = row;
  return { id, packageId, versions, severity, url, createdAt };
}

function parseAddress(text: string): string {
  const address = URL.parse(text);
  const isWeb = address !== null && /^https?:$/.test(address.protocol) && address.username + address.password === '';
  if (!isWeb || address.href.length > maxUrl) {
    throw wrong('url', `Give an address with http or https, without a password, of at most ${maxUrl} characters.`);
  }
  return address.href;
}

function tooMany(what: 'A package' | 'An account', most: number): DomainError {
  return new DomainError(
    'Invalid',
    `${what} has at most ${most} advisories. Delete one, or write one for more versions.`,
  );
}
