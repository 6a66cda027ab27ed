import { placeholders, type Transaction } from '../../database/database.ts';
import { lowestFrameworks } from '../format/frameworks.ts';
import type { VersionMetadata } from '../format/metadata.ts';
import { isIdTerm, termsOf, tierWidth, type Term } from '../format/terms.ts';

/** The value of `packages.index_version` for the rules of this release; see the migration. */
export const indexVersion = 2;

/** The columns of a package's row that its index entries depend on. */
export interface IndexedPackage {
  id: number;
  account_id: number;
  standing: number;
  flags: number;
  /** See `describeTerms`. */
  terms: string | null;
  index_version: number;
}

/**
 * Replaces the package's words, flags, frameworks and dependencies in the index; without metadata, removes them. The caller has locked
 * the package's row.
 */
export async function indexPackage(
  tx: Transaction,
  row: IndexedPackage,
  flags: number,
  metadata: VersionMetadata | undefined,
): Promise<void> {
  await indexFrameworks(tx, row.id, metadata);
  await indexDependencies(tx, row, metadata);
  const terms = metadata ? termsOf(metadata) : [];
  const described = describeTerms(terms);
  if (described === row.terms && flags === row.flags && row.index_version === indexVersion) return;
  const current = new Set(terms.map(({ term }) => term));
  const stale = termsIn(row).filter((term) => !current.has(term));
  if (stale.length > 0) {
    await tx.run(
      `DELETE FROM package_terms WHERE account_id = ? AND package_row = ? AND term IN (${placeholders(stale)})`,
      [row.account_id, row.id, ...stale],
    );
  }
  await tx.upsert(
    'package_terms',
    ['account_id', 'term', 'package_row'],
    terms.map(({ term, tier, fields }) => ({
      account_id: row.account_id,
      term,
      package_row: row.id,
      standing: tier * tierWidth + row.standing,
      fields,
      flags,
    })),
    'standing = new.standing, fields = new.fields, flags = new.flags',
  );
  await tx.run('UPDATE packages SET terms = ?, id_terms = ?, index_version = ? WHERE id = ?', [
    described,
    idTermsOf(terms),
    indexVersion,
    row.id,
  ]);
}

async function indexFrameworks(tx: Transaction, packageRow: number, metadata?: VersionMetadata): Promise<void> {
  const lowest = lowestFrameworks(metadata?.dependencyGroups ?? []);
  const current = await tx.select<{ family: string; version: number }>(
    'SELECT family, version FROM package_frameworks WHERE package_row = ?',
    [packageRow],
  );
  if (current.length === lowest.size && current.every(({ family, version }) => lowest.get(family) === version)) return;
  await tx.run('DELETE FROM package_frameworks WHERE package_row = ?', [packageRow]);
  await tx.insertNew(
    'package_frameworks',
    [...lowest].map(([family, version]) => ({ package_row: packageRow, family, version })),
  );
}

/** Ids in one statement. */
const idsAtOnce = 500;
/** Characters of the longest id that can be stored. */
const maxIdLength = 128;

async function indexDependencies(tx: Transaction, row: IndexedPackage, metadata?: VersionMetadata): Promise<void> {
  const groups = metadata?.dependencyGroups ?? [];
  const keys = groups.flatMap(({ dependencies }) => dependencies.map(({ id }) => id.toLowerCase()));
  const wanted = new Set(keys.filter(({ length }) => length <= maxIdLength));
  const current = await tx.select<{ dependency_key: string }>(
    'SELECT dependency_key FROM package_dependencies WHERE package_row = ?',
    [row.id],
  );
  if (current.length === wanted.size && current.every((each) => wanted.has(each.dependency_key))) return;
  await tx.run('DELETE FROM package_dependencies WHERE package_row = ?', [row.id]);
  const rows = [...wanted].map((key) => ({ account_id: row.account_id, dependency_key: key, package_row: row.id }));
  for (let start = 0; start < rows.length; start += idsAtOnce) {
    await tx.insertNew('package_dependencies', rows.slice(start, start + idsAtOnce));
  }
}

/** Changes the package's standing, for every word. The caller has locked the package's row. */
export async function movePackage(tx: Transaction, row: IndexedPackage, standing: number): Promise<void> {
  if (standing === row.standing) return;
  await tx.run('UPDATE packages SET standing = ? WHERE id = ?', [standing, row.id]);
  const terms = termsIn(row);
  if (terms.length === 0) return;
  await tx.run(
    `UPDATE package_terms SET standing = standing + ?
     WHERE account_id = ? AND package_row = ? AND term IN (${placeholders(terms)})`,
    [standing - row.standing, row.account_id, row.id, ...terms],
  );
}

/** The value of `packages.terms`: one line for each term, with the term, its tier and its fields. */
export function describeTerms(terms: readonly Term[]): string {
  return terms.map(({ term, tier, fields }) => `${term} ${tier} ${fields}`).join('\n');
}

/** The value of `packages.id_terms`: all id terms, each with the full stop before it. */
export function idTermsOf(terms: readonly Term[]): string {
  return terms.flatMap(({ term }) => (isIdTerm(term) ? term : [])).join('');
}

function termsIn({ terms }: IndexedPackage): string[] {
  // The term of a package type may have spaces.
  return terms ? terms.split('\n').map((line) => line.replace(/ \d+ \d+$/, '')) : [];
}
