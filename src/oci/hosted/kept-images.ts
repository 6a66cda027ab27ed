import type { Queryable } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { guardOf, kept, type Guard } from '../../permanence/rules.ts';

interface HostedRepository {
  accountId: number;
  repositoryId: number;
  name: string;
}

/** Throws `Kept` for a manifest or blob that a rule keeps: by its digest, by a tag, or as a part of such an image. */
export async function refuseKept(from: Queryable, repository: HostedRepository, digest: Digest): Promise<void> {
  const keeper = await keeperOf(from, repository, digest);
  if (keeper !== undefined) throw kept(`${digest}, which ${keeper} needs,`);
}

/** The kept image that has a manifest or blob; undefined if there is none. `always` are patterns that keep content of all accounts. */
export async function keeperOf(
  from: Queryable,
  { accountId, repositoryId, name }: HostedRepository,
  digest: Digest,
  always: readonly string[] = [],
): Promise<string | undefined> {
  const guard = await guardOf(from, accountId, always);
  if (!guard.keepsImages) return undefined;
  const seen = new Set([digest]);
  // A set also iterates over what is added meanwhile.
  for (const each of seen) {
    const keeper = await ownKeeper(from, guard, repositoryId, name, each);
    if (keeper !== undefined) return keeper;
    const parents = await from.select<{ digest: Digest }>(
      `SELECT p.digest FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
       WHERE f.digest = ? AND p.repository_id = ?`,
      [each, repositoryId],
    );
    for (const parent of parents) seen.add(parent.digest);
  }
  return undefined;
}

async function ownKeeper(
  from: Queryable,
  guard: Guard,
  repositoryId: number,
  name: string,
  digest: Digest,
): Promise<string | undefined> {
  const has = 'SELECT id FROM manifests WHERE repository_id = ? AND digest = ?';
  if (guard.keepsDigest(name, digest) && (await from.get(has, [repositoryId, digest]))) return `${name}@${digest}`;
  const tags = await from.select<{ name: string }>('SELECT name FROM tags WHERE repository_id = ? AND digest = ?', [
    repositoryId,
    digest,
  ]);
  const tag = tags.find((each) => guard.keepsTag(name, each.name));
  return tag && `${name}:${tag.name}`;
}
