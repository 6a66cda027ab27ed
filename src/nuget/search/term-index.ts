import { placeholders, type Transaction } from '../../database/database.ts';
import { tierWidth, type Term } from './terms.ts';

/** The columns of a package's row that its index entries depend on. */
export interface IndexedPackage {
  id: number;
  account_id: number;
  standing: number;
  flags: number;
  /** See `describeTerms`. */
  terms: string | null;
}

/** Replaces the package's words and flags in the index. The caller has locked the package's row. */
export async function indexPackage(
  tx: Transaction,
  row: IndexedPackage,
  flags: number,
  terms: readonly Term[],
): Promise<void> {
  const described = describeTerms(terms);
  if (described === row.terms && flags === row.flags) return;
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
  await tx.run('UPDATE packages SET terms = ? WHERE id = ?', [described, row.id]);
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

function termsIn({ terms }: IndexedPackage): string[] {
  return terms ? terms.split('\n').map((line) => line.split(' ', 1)[0]!) : [];
}
