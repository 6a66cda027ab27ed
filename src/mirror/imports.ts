import { checkEntry, WrongDigest, type CheckedEntry, type StatedContent } from './fetch/checked-entry.ts';
import type { EntryDescription } from './fetch/resource.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';
import type { Database, Transaction } from '../database/database.ts';
import { entryId, type Entries } from './store/entries.ts';
import { writeImported, type ImportedEntry } from './store/imported.ts';

/**
 * Checks complete bytes that came from elsewhere than the upstream, as fetched ones are. Throws `TooLarge`, `DigestMismatch`, or
 * `Invalid` if they are not the content that `entry` describes.
 */
export async function checkImported(
  entry: EntryDescription,
  staged: StagedFile,
  stated: Omit<StatedContent, 'size'>,
  now: number,
): Promise<CheckedEntry> {
  const { name, reference } = entry.key;
  if (staged.size > entry.limit)
    throw new DomainError(
      'TooLarge',
      `${name} ${reference} has ${staged.size} bytes; the limit is ${entry.limit} bytes.`,
    );
  return checkEntry(entry, staged, { ...stated, size: staged.size }, now).catch((error: Error) => {
    // A failure of this machine says nothing about the content.
    if (isDomainError(error) || 'syscall' in error) throw error;
    const kind = error instanceof WrongDigest ? 'DigestMismatch' : 'Invalid';
    throw new DomainError(kind, `This is not ${name} ${reference}: ${error.message}.`, { cause: error });
  });
}

interface ShowParts {
  database: Database;
  entries: Entries;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/**
 * Shows entries whose bytes are stored, all at once, and runs `also` in the same transaction. Resolves to how many were new. Other
 * processes see them when they drop what they have in memory.
 */
export async function showImported(
  { database, entries, now }: ShowParts,
  imported: readonly ImportedEntry[],
  also: (tx: Transaction, written: readonly ImportedEntry[]) => Promise<void>,
): Promise<number> {
  const mark = await entries.mark();
  const written = await database.transaction(async (tx) => {
    const found = await writeImported(tx, imported, now());
    await also(tx, found);
    return found;
  });
  for await (const { key, metadata } of withPauses(written)) {
    const id = entryId(key);
    await entries.remember(id, metadata, mark);
    await entries.forgetAbsent(id);
  }
  return written.length;
}
