import type { NameSet } from '../../accounts/names.ts';
import { placeholders, type Database, type Queryable, type Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { matchingNames, placeOf, suffixesOf, type NameQuery } from '../../mirror/store/words.ts';
import { addMirrored } from '../../usage/mirrored.ts';
import type { Downloads } from '../../usage/record.ts';
import type { SizedName } from '../../usage/stored.ts';

/** A page of a list in byte order, and whether there is a further page. */
export interface NamePage {
  items: string[];
  more: boolean;
}

/** The key of an account's repository; undefined if there is no row. */
export async function findRepository(from: Queryable, accountId: number, name: string): Promise<number | undefined> {
  const row = await from.get<{ id: number }>('SELECT id FROM repositories WHERE account_id = ? AND name = ?', [
    accountId,
    name,
  ]);
  return row?.id;
}

/** The repositories of the account among `names`, each with whether it is claimed, and so kept from upstreams. */
export async function claimsAmong(
  database: Database,
  accountId: number,
  names: readonly string[],
): Promise<Map<string, boolean>> {
  if (names.length === 0) return new Map();
  const rows = await database.selectCached<{ name: string; claimed_at: number | null }>(
    `SELECT name, claimed_at FROM repositories WHERE account_id = ? AND name IN (${placeholders(names)})`,
    [accountId, ...names],
  );
  return new Map(rows.map((row) => [row.name, row.claimed_at !== null]));
}

/** Up to `limit` repositories of the account, the largest first. */
export function largestRepositories(database: Database, accountId: number, limit: number): Promise<SizedName[]> {
  return database.select<SizedName>(
    `SELECT name, size_bytes AS sizeBytes, updated_at AS changedAt, last_pulled_at AS lastUsedAt
     FROM repositories WHERE account_id = ? AND size_bytes > 0 ORDER BY size_bytes DESC LIMIT ?`,
    [accountId, limit],
  );
}

/** The key of an account's repository; creates the row if there is none. */
export async function ensureRepository(tx: Transaction, accountId: number, name: string, now: number): Promise<number> {
  const found = await findRepository(tx, accountId, name);
  if (found !== undefined) return found;
  await tx.insertNew('repositories', [{ account_id: accountId, name, created_at: now, updated_at: now }]);
  await tx.insertNew(
    'repository_words',
    suffixesOf(name).map((suffix) => ({ account_id: accountId, suffix, name })),
  );
  return (await findRepository(tx, accountId, name))!;
}

/** Locks the repository's row until the transaction ends, so that changes to its manifests run one after another. */
export async function lockRepository(tx: Transaction, repositoryId: number, now: number): Promise<void> {
  await tx.run('UPDATE repositories SET updated_at = ? WHERE id = ?', [now, repositoryId]);
}

/**
 * SQL condition on a row `r` of `repositories`: it holds a manifest. MariaDB would turn EXISTS into a join that reads all
 * manifests.
 */
export const hasManifest = '(SELECT 1 FROM manifests m WHERE m.repository_id = r.id LIMIT 1) IS NOT NULL';

/** Lists of names: the repositories of an account, the tags of a repository. */
export class Repositories {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Up to `limit` names, after `last`, of the account's repositories with a manifest; with `only`, of these names only. */
  async catalog(accountId: number, limit: number, last: string, only?: NameSet): Promise<NamePage> {
    const among = only?.where('r.name');
    const rows = await this.#database.select<{ name: string }>(
      `SELECT r.name FROM repositories r
       WHERE r.account_id = ? AND r.name > ? AND ${hasManifest}
       ${among ? `AND ${among.sql}` : ''} ORDER BY r.name LIMIT ?`,
      [accountId, last, ...(among?.values ?? []), limit + 1],
    );
    return pageOfNames(
      rows.map((row) => row.name),
      limit,
    );
  }

  /** Up to `limit` repositories with a manifest that `query` finds, after a position; with `only`, of these names only. */
  async find(
    accountId: number,
    query: NameQuery,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<{ position: string; name: string; pulls: number }[]> {
    const among = only?.where('w.name');
    const sql = `SELECT w.suffix, w.name, r.pull_count FROM repository_words w
      JOIN repositories r ON r.account_id = w.account_id AND r.name = w.name
      WHERE w.account_id = ? AND ${hasManifest}
      ${among ? `AND ${among.sql}` : ''}`;
    const table = { sql, values: [accountId, ...(among?.values ?? [])], keys: ['name'] };
    const rows = matchingNames<{ suffix: string; name: string; pull_count: number }>(
      this.#database,
      table,
      query,
      placeOf(after),
    );
    const found = [];
    for await (const { suffix, name, pull_count: pulls } of rows) {
      found.push({ position: JSON.stringify([suffix, name]), name, pulls });
      if (found.length === limit) break;
    }
    return found;
  }

  /** Up to `limit` tags of a repository, after `last`; `NameUnknown` if the account has not claimed the repository. */
  async tags(accountId: number, name: string, limit: number, last: string): Promise<NamePage> {
    const repository = await this.#database.get<{ id: number }>(
      'SELECT id FROM repositories WHERE account_id = ? AND name = ? AND claimed_at IS NOT NULL',
      [accountId, name],
    );
    if (!repository) throw nameUnknown(name);
    const rows = await this.#database.select<{ name: string }>(
      'SELECT name FROM tags WHERE repository_id = ? AND name > ? ORDER BY name LIMIT ?',
      [repository.id, last, limit + 1],
    );
    return pageOfNames(
      rows.map((row) => row.name),
      limit,
    );
  }
}

/** `NameUnknown`, for a repository that the account does not have. */
export function nameUnknown(name: string): DomainError {
  return new DomainError('NameUnknown', 'This account has no repository with this name.', { detail: { name } });
}

/** `NameUnknown`, for a repository that the account does not have, whose name begins with a registry that is no upstream. */
export function upstreamUnknown(name: string, registry: string): DomainError {
  const upstream = JSON.stringify({ name: registry, kind: 'registry' });
  return new DomainError(
    'NameUnknown',
    `This account has no repository with this name, and no upstream is named ${registry}. Correct the name, or, if it is an image of that registry, let an operator add ${upstream} to the setting upstreams.`,
    { detail: { name, registry } },
  );
}

/** The first `limit` of `names`. The caller passes at least one more name if there is a further page. */
export function pageOfNames(names: readonly string[], limit: number): NamePage {
  return { items: names.slice(0, limit), more: names.length > limit };
}

/** Adds pulls to a repository of the account and to its manifests. If it is not hosted, they count as pulls of a mirrored repository. */
export async function addPulls(tx: Transaction, { accountId, name, versions, last }: Downloads): Promise<void> {
  const pulls = [...versions.values()].reduce((sum, number) => sum + number, 0);
  const hosted = await tx.run(
    'UPDATE repositories SET pull_count = pull_count + ?, last_pulled_at = ? WHERE account_id = ? AND name = ?',
    [pulls, last, accountId, name],
  );
  if (hosted === 0) {
    await addMirrored(tx, 'container', { accountId, name, versions });
    return;
  }
  for (const [digest, number] of versions) {
    if (digest === '') continue;
    await tx.run(
      `UPDATE manifests SET pull_count = pull_count + ?, last_pulled_at = ?
       WHERE repository_id = (SELECT id FROM repositories WHERE account_id = ? AND name = ?) AND digest = ?`,
      [number, last, accountId, name, digest],
    );
  }
}
