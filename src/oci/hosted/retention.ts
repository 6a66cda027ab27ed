import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { keeperOf } from './kept-images.ts';
import { deleteManifest } from './manifest-deletion.ts';
import { lockRepository } from './repositories.ts';

interface ImageRetention {
  /** Milliseconds since 1970 UTC. */
  now: number;
  /** A manifest that is unused for longer than this many milliseconds is deleted. */
  untaggedAfter: number;
  /** Patterns of what is kept in all accounts, beside the rules of each. */
  protect: readonly string[];
  /** How long a deletion can be undone; milliseconds. */
  deletedFor: number;
  dryRun: boolean;
  signal: AbortSignal;
  say: (line: string) => void;
}

interface Unused {
  id: number;
  accountId: number;
  repositoryId: number;
  name: string;
  digest: Digest;
  since: number;
}

const page = 500;

/** SQL condition: the manifest has no tag, is no child of an index, and its subject, such as a signed image, is missing. */
const isUnused = `
  NOT EXISTS (SELECT 1 FROM tags t WHERE t.repository_id = m.repository_id AND t.digest = m.digest)
  AND NOT EXISTS (SELECT 1 FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
                  WHERE f.digest = m.digest AND p.repository_id = m.repository_id)
  AND (m.subject IS NULL OR NOT EXISTS (SELECT 1 FROM manifests s
                                        WHERE s.repository_id = m.repository_id AND s.digest = m.subject))`;

/**
 * Deletes hosted manifests that have been unused for long enough, then those that only these referred to, and so on. A dry
 * run reports the first round only. Resolves to the number of manifests.
 */
export async function retainImages(database: Database, rules: ImageRetention): Promise<number> {
  let deleted = 0;
  for (;;) {
    const before = deleted;
    for await (const unused of findUnused(database, rules)) {
      if (rules.dryRun && (await keeperOf(database, unused, unused.digest, rules.protect)) !== undefined) continue;
      if (!rules.dryRun && !(await deleteUnused(database, unused, rules))) continue;
      rules.say(`manifest ${unused.name}@${unused.digest}`);
      deleted += 1;
    }
    if (rules.dryRun || deleted === before) return deleted;
  }
}

async function* findUnused(database: Database, { now, untaggedAfter, signal }: ImageRetention): AsyncGenerator<Unused> {
  const pace = new Pace(signal);
  for (let after: number | undefined = 0; after !== undefined;) {
    const end: { id: number } | undefined = await database.get<{ id: number }>(
      'SELECT id FROM manifests WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?',
      [after, page - 1],
    );
    const found = await database.select<Unused>(
      `SELECT m.id, r.account_id AS accountId, m.repository_id AS repositoryId, r.name, m.digest, COALESCE(m.untagged_at, m.pushed_at) AS since
       FROM manifests m JOIN repositories r ON r.id = m.repository_id
       WHERE m.id > ? AND m.id <= ? AND COALESCE(m.untagged_at, m.pushed_at) < ? AND ${isUnused} ORDER BY m.id`,
      [after, end?.id ?? Number.MAX_SAFE_INTEGER, now - untaggedAfter],
    );
    await pace.step();
    for (const each of found) {
      yield each;
      await pace.step();
    }
    after = end?.id;
  }
}

/** Checks again with the repository locked, because a push may have tagged the manifest meanwhile, and deletes it. */
function deleteUnused(database: Database, unused: Unused, rules: ImageRetention): Promise<boolean> {
  const { id, repositoryId, digest } = unused;
  return database.transaction(async (tx) => {
    await lockRepository(tx, repositoryId, rules.now);
    const still = await tx.get<{ since: number }>(
      `SELECT COALESCE(m.untagged_at, m.pushed_at) AS since FROM manifests m
       WHERE m.id = ? AND COALESCE(m.untagged_at, m.pushed_at) < ? AND ${isUnused}`,
      [id, rules.now - rules.untaggedAfter],
    );
    if (!still || (await keeperOf(tx, unused, digest, rules.protect)) !== undefined) return false;
    await deleteManifest(tx, repositoryId, digest, rules, still.since);
    return true;
  });
}
