import { placeholders, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import { record } from '../../history/history.ts';
import { batches } from '../../database/batches.ts';
import { guardOf, tagFrozen } from '../../permanence/rules.ts';
import { noteDeleted, type Deletion } from '../../permanence/deleted.ts';
import { tagRow } from './natural-order.ts';
import { addRepositoryCounts } from './repository-counts.ts';

/** Tags of a repository. */
const maxTags = 100_000;

// Changes of tags, inside the transaction of a push or a deletion.

/** Deletes a tag, but not its manifest; resolves to the number of deleted tags. */
export async function deleteTag(
  tx: Transaction,
  repositoryId: number,
  tag: string,
  deletion: Deletion,
): Promise<number> {
  const { now } = deletion;
  const found = await tx.get<{ digest: Digest; changedAt: number }>(
    'SELECT digest, updated_at AS changedAt FROM tags WHERE repository_id = ? AND name = ?',
    [repositoryId, tag],
  );
  if (!found) return 0;
  await noteUntagged(tx, repositoryId, [tag], now);
  const deleted = await deleteTags(tx, repositoryId, [tag], now);
  const { account_id: accountId, name } = await tagOwner(tx, repositoryId);
  const subject = { kind: 'container', name, reference: tag } as const;
  const details = { digest: found.digest };
  if (deleted === 0) return 0;
  await recordEvent(tx, { type: 'tag.deleted', accountId, subject, details }, now);
  if (deletion.deletedFor > 0) {
    await noteDeleted(tx, { ...subject, ...found, accountId, type: 'tag', size: 0 }, deletion);
  }
  return deleted;
}

/** The account and the name of a repository. */
export async function tagOwner(tx: Transaction, repositoryId: number): Promise<{ account_id: number; name: string }> {
  const sql = 'SELECT account_id, name FROM repositories WHERE id = ?';
  return (await tx.get<{ account_id: number; name: string }>(sql, [repositoryId]))!;
}

/** Deletes tags, and records that in their history; resolves to how many there were. */
export async function deleteTags(
  tx: Transaction,
  repositoryId: number,
  tags: readonly string[],
  now: number,
): Promise<number> {
  if (tags.length === 0) return 0;
  const { account_id: accountId, name } = await tagOwner(tx, repositoryId);
  const gone = tags.map((tag) => ({ kind: 'tag' as const, reference: tag, digest: '' }));
  await record(tx, { accountId, upstream: '', name }, gone, now);
  let deleted = 0;
  for (const part of batches(tags)) {
    const among = `name IN (${placeholders(part)})`;
    deleted += await tx.run(`DELETE FROM tags WHERE repository_id = ? AND ${among}`, [repositoryId, ...part]);
  }
  await addRepositoryCounts(tx, repositoryId, { tags: -deleted });
  return deleted;
}

/** Points tags to a manifest, and counts the new ones. Throws `QuotaExceeded` for a repository with too many. */
export async function writeTags(
  tx: Transaction,
  repositoryId: number,
  tags: readonly string[],
  digest: Digest,
  now: number,
): Promise<void> {
  const rows = tags.map((tag) => tagRow(repositoryId, tag, digest, now));
  const added = await tx.insertNew('tags', rows);
  if (added > 0) await requireRoom(tx, repositoryId, added);
  if (added < rows.length) {
    const update = 'digest = new.digest, updated_at = new.updated_at, sort_key = new.sort_key';
    await tx.upsert('tags', ['repository_id', 'name'], rows, update);
  }
  await addRepositoryCounts(tx, repositoryId, { tags: added });
}

/** Throws `TagFrozen` if one of the tags exists with another manifest, and cannot move. */
export async function refuseFrozen(
  tx: Transaction,
  { accountId, repositoryId, name }: { accountId: number; repositoryId: number; name: string },
  tags: readonly string[],
  digest: Digest,
): Promise<void> {
  if (tags.length === 0) return;
  const guard = await guardOf(tx, accountId);
  if (!guard.freezesTags) return;
  const others = await tx.select<{ name: string }>(
    `SELECT name FROM tags WHERE repository_id = ? AND digest <> ? AND name IN (${placeholders(tags)})`,
    [repositoryId, digest, ...tags],
  );
  const frozen = others.find((each) => guard.freezes(name, each.name));
  if (frozen) throw tagFrozen(name, frozen.name);
}

/** Makes tags again that do not exist, with the times of their pushes. Resolves to those that exist with another manifest. */
export async function restoreTags(
  tx: Transaction,
  repositoryId: number,
  tags: readonly { reference: string; changedAt: number }[],
  digest: Digest,
  now: number,
): Promise<string[]> {
  if (tags.length === 0) return [];
  const existing = await tx.select<{ name: string; digest: Digest }>(
    `SELECT name, digest FROM tags WHERE repository_id = ? AND name IN (${placeholders(tags)})`,
    [repositoryId, ...tags.map(({ reference }) => reference)],
  );
  const known = new Set(existing.map(({ name }) => name));
  const made = tags.filter(({ reference }) => !known.has(reference));
  const rows = made.map(({ reference, changedAt }) => tagRow(repositoryId, reference, digest, changedAt));
  if (rows.length > 0) {
    await tx.insertNew('tags', rows);
    await requireRoom(tx, repositoryId, rows.length);
    await addRepositoryCounts(tx, repositoryId, { tags: rows.length });
    const { account_id: accountId, name } = await tagOwner(tx, repositoryId);
    const lines = made.map(({ reference }) => ({ kind: 'tag' as const, reference, digest }));
    await record(tx, { accountId, upstream: '', name }, lines, now);
  }
  return existing.filter((each) => each.digest !== digest).map(({ name }) => name);
}

async function requireRoom(tx: Transaction, repositoryId: number, added: number): Promise<void> {
  const sql = 'SELECT tag_count FROM repositories WHERE id = ?';
  const { tag_count: before } = (await tx.get<{ tag_count: number }>(sql, [repositoryId]))!;
  if (before + added <= maxTags) return;
  throw new DomainError(
    'QuotaExceeded',
    `A repository has at most ${maxTags} tags. Delete some, for example with the setting "retention".`,
  );
}

/** Sets the time since which the manifests of `tags` count as untagged; called before the tags are moved or deleted. */
export async function noteUntagged(
  tx: Transaction,
  repositoryId: number,
  tags: readonly string[],
  now: number,
): Promise<void> {
  if (tags.length === 0) return;
  const rows = await tx.select<{ digest: Digest }>(
    `SELECT digest FROM tags WHERE repository_id = ? AND name IN (${placeholders(tags)})`,
    [repositoryId, ...tags],
  );
  if (rows.length === 0) return;
  await tx.run(`UPDATE manifests SET untagged_at = ? WHERE repository_id = ? AND digest IN (${placeholders(rows)})`, [
    now,
    repositoryId,
    ...rows.map(({ digest }) => digest),
  ]);
}
