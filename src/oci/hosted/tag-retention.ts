import { placeholders, type Database, type Queryable } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { guardOf } from '../../permanence/rules.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { lockRepository } from './repositories.ts';
import { deleteTag, tagOwner } from './tags.ts';

/** Which tags are kept of those that the rule decides about. */
export interface TagRule {
  /** Whether it is for the repositories of this account with this name. */
  isFor: (accountId: number, repository: string) => boolean;
  matches: (tag: string) => boolean;
  /** The number of tags that are kept, the latest pushes first. */
  keepNewest: number;
  /** A tag that was pushed or pulled within this many milliseconds is kept; undefined if that does not matter. */
  keepUsedFor: number | undefined;
}

interface TagRetention {
  /** Milliseconds since 1970 UTC. */
  now: number;
  /** The first one that matches a tag decides about it. */
  rules: readonly TagRule[];
  /** Patterns of what is kept in all accounts, beside the rules of each. */
  protect: readonly string[];
  /** How long a deletion can be undone; milliseconds. */
  deletedFor: number;
  dryRun: boolean;
  signal: AbortSignal;
  say: (line: string) => void;
}

interface Tag {
  name: string;
  digest: Digest;
  updatedAt: number;
}

/** Repositories and tags that one statement reads, and tags that one transaction deletes. */
const page = 500;
const batch = 50;
/** The tags by which cosign and the referrers of older clients belong to an image: no rule is about them. See `fallbackTag`, too. */
const belongsToDigest = /^sha(?:256|512)-[0-9a-f]{64}\b/;

/**
 * Deletes the tags of hosted repositories that no rule keeps; resolves to their number. Their manifests stay, for the rule
 * about untagged ones.
 */
export async function retainTags(database: Database, retention: TagRetention): Promise<number> {
  const pace = new Pace(retention.signal);
  const read = (after: number) =>
    database.select<{ id: number; accountId: number; name: string }>(
      'SELECT id, account_id AS accountId, name FROM repositories WHERE id > ? AND tag_count > 0 ORDER BY id LIMIT ?',
      [after, page],
    );
  let deleted = 0;
  for await (const repositories of pagesOf(0, page, read, ({ id }) => id)) {
    await pace.step();
    for (const { id, accountId, name } of repositories) {
      const rules = retention.rules.filter((each) => each.isFor(accountId, name));
      if (rules.length === 0) continue;
      for await (const old of oldTags(database, id, rules, retention.now)) {
        const guard = await guardOf(database, accountId, retention.protect);
        const going = old.filter((tag) => !guard.keepsTag(name, tag.name));
        for (let start = 0; start < going.length; start += batch) {
          const some = going.slice(start, start + batch);
          const gone = retention.dryRun ? some : await deleteOld(database, id, some, rules, retention);
          for (const tag of gone) retention.say(`tag ${name}:${tag.name}`);
          deleted += gone.length;
          await pace.step();
        }
      }
    }
  }
  return deleted;
}

/** The tags that no rule keeps, in the order of their pushes. A tag that moves meanwhile becomes newer, so it is not among them. */
async function* oldTags(
  database: Database,
  repositoryId: number,
  rules: readonly TagRule[],
  now: number,
): AsyncGenerator<Tag[]> {
  const counts = new Map<TagRule, number>();
  const read = ([updatedAt, name]: readonly [number, string]) =>
    database.select<Tag>(
      `SELECT name, digest, updated_at AS updatedAt FROM tags
       WHERE repository_id = ? AND (updated_at < ? OR (updated_at = ? AND name < ?))
       ORDER BY updated_at DESC, name DESC LIMIT ?`,
      [repositoryId, updatedAt, updatedAt, name, page],
    );
  const first = [Number.MAX_SAFE_INTEGER, ''] as const;
  for await (const tags of pagesOf<Tag, readonly [number, string]>(first, page, read, (last) => [
    last.updatedAt,
    last.name,
  ])) {
    const beyond = tags.filter(({ name }) => {
      const rule = ruleOf(rules, name);
      if (!rule) return false;
      const count = (counts.get(rule) ?? 0) + 1;
      counts.set(rule, count);
      return count > rule.keepNewest;
    });
    yield await unused(database, repositoryId, beyond, rules, now);
  }
}

function ruleOf(rules: readonly TagRule[], tag: string): TagRule | undefined {
  return belongsToDigest.test(tag) ? undefined : rules.find((each) => each.matches(tag));
}

/** Those of `tags` that were not pushed or pulled within the time of their rule. */
async function unused(
  from: Queryable,
  repositoryId: number,
  tags: readonly Tag[],
  rules: readonly TagRule[],
  now: number,
): Promise<Tag[]> {
  if (tags.length === 0) return [];
  const digests = [...new Set(tags.map(({ digest }) => digest))];
  // A pull of an index is one of its images.
  const rows = await from.select<{ digest: Digest; own: number | null; child: number | null }>(
    `SELECT m.digest, MAX(m.last_pulled_at) AS own, MAX(c.last_pulled_at) AS child FROM manifests m
     LEFT JOIN manifest_references f ON f.manifest_id = m.id
     LEFT JOIN manifests c ON c.repository_id = m.repository_id AND c.digest = f.digest
     WHERE m.repository_id = ? AND m.digest IN (${placeholders(digests)}) GROUP BY m.digest`,
    [repositoryId, ...digests],
  );
  const pulledAt = new Map(rows.map(({ digest, own, child }) => [digest, Math.max(own ?? 0, child ?? 0)]));
  return tags.filter(({ name, digest, updatedAt }) => {
    const time = ruleOf(rules, name)?.keepUsedFor;
    return time === undefined || Math.max(updatedAt, pulledAt.get(digest) ?? 0) < now - time;
  });
}

/** Checks again with the repository locked, because a push may have moved a tag meanwhile, or a client pulled it. */
function deleteOld(
  database: Database,
  repositoryId: number,
  tags: readonly Tag[],
  rules: readonly TagRule[],
  deletion: TagRetention,
): Promise<Tag[]> {
  const { now } = deletion;
  return database.transaction(async (tx) => {
    await lockRepository(tx, repositoryId, now);
    const names = tags.map(({ name }) => name);
    const rows = await tx.select<Tag>(
      `SELECT name, digest, updated_at AS updatedAt FROM tags WHERE repository_id = ? AND name IN (${placeholders(names)})`,
      [repositoryId, ...names],
    );
    const still = tags.filter((each) => rows.some((row) => row.name === each.name && row.updatedAt === each.updatedAt));
    const { account_id: accountId, name: repository } = await tagOwner(tx, repositoryId);
    const guard = await guardOf(tx, accountId, deletion.protect);
    const free = still.filter((tag) => !guard.keepsTag(repository, tag.name));
    const gone = await unused(tx, repositoryId, free, rules, now);
    for (const { name } of gone) await deleteTag(tx, repositoryId, name, deletion);
    return gone;
  });
}
