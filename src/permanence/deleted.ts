import { currentOrigin, type Actor } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { NameKind, Names } from '../accounts/names.ts';
import { forUpdate, type Database, type Queryable, type Row, type Transaction } from '../database/database.ts';
import { afterId, type IdPlace } from '../database/tables.ts';
import { recordEvent } from '../events/record.ts';
import { Pace } from '../storage/upkeep/pace.ts';

/** What a deletion deleted. */
type DeletedType = 'version' | 'manifest' | 'tag';

/** Hosted content that was deleted and can be restored. */
export interface DeletedItem {
  id: number;
  accountId: number;
  kind: NameKind;
  type: DeletedType;
  name: string;
  /** A version, a digest or a tag. */
  reference: string;
  /** Of the content. */
  digest: string;
  size: number;
  /** The ID of the version or manifest; 0 of a tag. */
  rowId: number;
  /** When a tag was pushed; milliseconds since 1970 UTC, as the other times. */
  changedAt: number;
  deletedBy: Actor;
  deletedAt: number;
  endsAt: number;
}

/** How deleted content of one protocol comes back, or goes. Both run in the transaction that forgets the item. */
export interface DeletedContents {
  /** Resolves to the tags of it that were left out, because they exist now with other content. Throws `AlreadyExists`. */
  restore(tx: Transaction, item: DeletedItem): Promise<string[]>;
  purge(tx: Transaction, item: DeletedItem): Promise<void>;
}

/** Content whose deletion is being noted. */
interface NewlyDeleted extends Pick<
  DeletedItem,
  'accountId' | 'kind' | 'type' | 'name' | 'reference' | 'digest' | 'size'
> {
  rowId?: number;
  changedAt?: number;
  /** The deletion of the manifest that deletes a tag. */
  partOf?: number;
}

/** When a deletion happens, and for how long it can be undone; milliseconds. */
export interface Deletion {
  now: number;
  deletedFor: number;
}

type DeletedRow = Omit<DeletedItem, 'deletedBy'> & { deletedBy: string };

const columns = `id, account_id AS accountId, kind, type, name, reference, digest, size_bytes AS size, row_id AS rowId,
  changed_at AS changedAt, deleted_by AS deletedBy, deleted_at AS deletedAt, ends_at AS endsAt`;
const eventsOf = {
  version: { restored: 'package.restored', purged: 'package.purged' },
  manifest: { restored: 'manifest.restored', purged: 'manifest.purged' },
  tag: { restored: 'tag.restored', purged: 'tag.purged' },
} as const;
/** Items that one statement reads. */
const page = 100;

/** Notes deleted content whose rows stay; resolves to the ID of the deletion. */
export function noteDeleted(tx: Transaction, what: NewlyDeleted, deletion: Deletion): Promise<number> {
  return tx.insert('deleted_items', rowOf(what, deletion));
}

/** As `noteDeleted`, for many tags. */
export async function noteDeletedTags(
  tx: Transaction,
  tags: readonly NewlyDeleted[],
  deletion: Deletion,
): Promise<void> {
  await tx.insertNew(
    'deleted_items',
    tags.map((each) => rowOf(each, deletion)),
  );
}

function rowOf(
  { accountId, kind, type, name, reference, digest, size, rowId = 0, changedAt = 0, partOf = 0 }: NewlyDeleted,
  { now, deletedFor }: Deletion,
): Row {
  return {
    account_id: accountId,
    kind,
    type,
    name,
    reference,
    digest,
    size_bytes: size,
    row_id: rowId,
    part_of: partOf,
    changed_at: changedAt,
    deleted_by: JSON.stringify(currentOrigin().actor),
    deleted_at: now,
    ends_at: now + deletedFor,
  };
}

/** The deletion of a version or manifest, by the ID of its row. */
export async function deletionOf(from: Queryable, kind: NameKind, rowId: number): Promise<DeletedItem | undefined> {
  const row = await from.get<DeletedRow>(`SELECT ${columns} FROM deleted_items WHERE kind = ? AND row_id = ?`, [
    kind,
    rowId,
  ]);
  return row && toItem(row);
}

/** Up to a page of the tags that were deleted with a manifest, after one. */
export async function tagsDeletedWith(
  from: Queryable,
  { id }: Pick<DeletedItem, 'id'>,
  after: string,
): Promise<{ reference: string; changedAt: number }[]> {
  return from.select(
    `SELECT reference, MAX(changed_at) AS changedAt FROM deleted_items WHERE part_of = ? AND reference > ?
     GROUP BY reference ORDER BY reference LIMIT ${page}`,
    [id, after],
  );
}

/** Forgets a deletion, and the tags that were deleted with it. */
async function forgetDeletion(tx: Transaction, { id }: Pick<DeletedItem, 'id'>): Promise<void> {
  await tx.run('DELETE FROM deleted_items WHERE part_of = ?', [id]);
  await tx.run('DELETE FROM deleted_items WHERE id = ?', [id]);
}

/** Makes a later deletion of the same manifest stand for an earlier one, with its tags. */
export async function replaceDeletion(tx: Transaction, earlier: number, later: number): Promise<void> {
  await tx.run('UPDATE deleted_items SET part_of = ? WHERE part_of = ?', [later, earlier]);
  await tx.run('DELETE FROM deleted_items WHERE id = ?', [earlier]);
}

/** Forgets a deletion whose content is back, and records that. */
export async function endDeletion(tx: Transaction, item: DeletedItem, now: number): Promise<void> {
  await forgetDeletion(tx, item);
  await recordAbout(tx, item, 'restored', { deleted_at: new Date(item.deletedAt).toISOString() }, now);
}

interface Ending {
  id: number;
  accountId: number;
  endsAt: number;
}

/** What was deleted and can be restored, of all protocols. What an account may not see is "not found". */
export class DeletedItems {
  readonly #database: Database;
  readonly #contents: ReadonlyMap<NameKind, DeletedContents>;
  readonly #now: () => number;

  constructor(database: Database, contents: ReadonlyMap<NameKind, DeletedContents>, now: () => number) {
    this.#database = database;
    this.#contents = contents;
    this.#now = now;
  }

  /** Up to `limit` deletions of an account, after a place. Tags that were deleted with their manifest are not listed. */
  async list(accountId: number, limit: number, place: IdPlace = {}): Promise<DeletedItem[]> {
    const { sql: isAfter, value: id, order } = afterId(place);
    const rows = await this.#database.select<DeletedRow>(
      `SELECT ${columns} FROM deleted_items WHERE account_id = ? AND part_of = 0 AND ${isAfter} ORDER BY ${order} LIMIT ?`,
      [accountId, id, limit],
    );
    return rows.map(toItem);
  }

  /**
   * Restores content as it was, with its tags that do not exist now. Resolves to those that do, with other content. Throws
   * `NotFound`, and `AlreadyExists` for a tag or version that exists now.
   */
  async restore(accountId: number, id: number, names?: Names): Promise<{ item: DeletedItem; left: string[] }> {
    return this.#database.transaction(async (tx) => {
      const item = await this.#get(tx, accountId, id, names);
      const left = await this.#contents.get(item.kind)!.restore(tx, item);
      return { item, left };
    });
  }

  /** Deletes content for good. Throws `NotFound`. */
  async purge(accountId: number, id: number, reason: string, names?: Names): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const item = await this.#get(tx, accountId, id, names);
      await this.#purge(tx, item);
      await recordAbout(tx, item, 'purged', { reason }, this.#now());
    });
  }

  /** Deletes for good what was deleted longer ago than it is kept; `now` is in milliseconds since 1970 UTC. */
  async end(now: number, { dryRun, signal }: { dryRun: boolean; signal: AbortSignal }): Promise<{ ended: number }> {
    const pace = new Pace(signal);
    let ended = 0;
    for await (const rows of this.#endingBetween(-1, now)) {
      for (const { id, accountId } of rows) {
        ended += 1;
        if (dryRun) continue;
        await this.#database.transaction(async (tx) => {
          const item = await this.#find(tx, accountId, id);
          if (item) await this.#purge(tx, item);
        });
        await pace.step();
      }
      await pace.step();
    }
    return { ended };
  }

  /** How much can still be restored, and when the first of it ends, if there is any; milliseconds since 1970 UTC. */
  async kept(now: number, signal: AbortSignal): Promise<{ items: number; until: number | undefined }> {
    const pace = new Pace(signal);
    let items = 0;
    let until: number | undefined;
    for await (const rows of this.#endingBetween(now, Number.MAX_SAFE_INTEGER)) {
      until ??= rows[0]!.endsAt;
      items += rows.length;
      await pace.step();
    }
    return { items, until };
  }

  /** The deletions that end after `from`, and not after `to`, in the order of their ends, page by page. */
  #endingBetween(from: number, to: number): AsyncGenerator<readonly Ending[]> {
    const first: readonly [number, number] = [from, Number.MAX_SAFE_INTEGER];
    const read = ([endsAt, id]: typeof first) =>
      this.#database.select<Ending>(
        `SELECT id, account_id AS accountId, ends_at AS endsAt FROM deleted_items
         WHERE part_of = 0 AND ends_at <= ? AND (ends_at > ? OR (ends_at = ? AND id > ?)) ORDER BY ends_at, id LIMIT ${page}`,
        [to, endsAt, endsAt, id],
      );
    return pagesOf<Ending, typeof first>(first, page, read, ({ endsAt, id }) => [endsAt, id]);
  }

  async #purge(tx: Transaction, item: DeletedItem): Promise<void> {
    await this.#contents.get(item.kind)!.purge(tx, item);
    await forgetDeletion(tx, item);
  }

  async #get(tx: Transaction, accountId: number, id: number, names: Names | undefined): Promise<DeletedItem> {
    const item = await this.#find(tx, accountId, id);
    if (item && (names?.of(item.kind).includes(item.name.toLowerCase()) ?? true)) return item;
    throw new DomainError('NotFound', `This account has no deletion ${id} that can be undone.`);
  }

  /** Locks the row, so that of two at once one restores or purges. */
  async #find(tx: Transaction, accountId: number, id: number): Promise<DeletedItem | undefined> {
    const row = await tx.get<DeletedRow>(
      `SELECT ${columns} FROM deleted_items WHERE id = ? AND account_id = ? AND part_of = 0${forUpdate(tx)}`,
      [id, accountId],
    );
    return row && toItem(row);
  }
}

function toItem({ deletedBy, ...row }: DeletedRow): DeletedItem {
  return { ...row, deletedBy: JSON.parse(deletedBy) as Actor };
}

function recordAbout(
  tx: Transaction,
  { type, accountId, kind, name, reference }: DeletedItem,
  change: 'restored' | 'purged',
  details: Record<string, string>,
  now: number,
): Promise<void> {
  const event = { type: eventsOf[type][change], accountId, subject: { kind, name, reference }, details };
  return recordEvent(tx, event, now);
}
