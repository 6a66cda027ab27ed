import { batches } from '../../src/database/batches.ts';
import type { Row, Transaction } from '../../src/database/database.ts';
import type { Digest } from '../../src/runtime/digest.ts';

// Rows of what was pulled, for tests without a server.

/** The whole ID of a content that a test names with some letters. */
export function pulledId(text: string): string {
  return text.padStart(32, '0');
}

/** A digest that tells its number. */
export function numberedDigest(number: number): Digest {
  return `sha256:${String(number).padStart(64, '0')}`;
}

/** A row of `pull_contents` of account 1; a name with a slash is that of an image. */
export function pulledContent(id: string, name: string, reference: string, more: Row = {}): Row {
  const kind = name.includes('/') ? 'container' : 'package';
  return { id: pulledId(id), account_id: 1, kind, name, reference, last_day: 0, is_compared: 1, ...more };
}

/** A row of `pulls`: one pull. */
export function pulledOnce(contentId: string, userId: string, at: number, more: Row = {}): Row {
  const row = { content_id: pulledId(contentId), user_id: userId, act: 'pull', day: 0, count: 1 };
  return { ...row, first_at: at, last_at: at, ...more };
}

/** Inserts rows of several tables, in the order of the tables. */
export async function insertTables(tx: Transaction, tables: Readonly<Record<string, readonly Row[]>>): Promise<void> {
  for (const [table, rows] of Object.entries(tables)) for (const some of batches(rows)) await tx.insertNew(table, some);
}
