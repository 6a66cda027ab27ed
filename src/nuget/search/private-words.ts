import type { NameSet } from '../../accounts/names.ts';
import type { Database } from '../../database/database.ts';
import type { UpstreamPolicy } from '../../mirror/policy/upstream-policy.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { packageKey } from '../hosted/packages.ts';

/** A search with more words is not sent upstream, because each word costs a look-up. */
const maxWords = 32;
/** Nor is one with more characters: each part of a word after a dot costs a look-up, and no id has as many. */
const maxLength = 1000;
/** Ids that are read to find one that is not merged. */
const maxIds = 200;

/** The words of text that a client typed, as ids are compared; field names and punctuation separate words. */
function wordsIn(text: string): string[] {
  const words = text.split(/[^\p{L}\p{N}._-]+/u).map((word) => word.replace(/^[._-]+|[._-]+$/g, ''));
  return [...new Set(words.filter((word) => word !== '').map(packageKey))];
}

/** Which hosted ids count. */
interface PrivateIds {
  /** These alone, all if it is absent: what another account hosts and does not share must not change an answer. */
  only?: NameSet | undefined;
  /**
   * A beginning counts only of these. A reader that may not see an id could else find it letter by letter, because the answer without
   * an upstream differs.
   */
  begun?: NameSet | undefined;
}

/**
 * Whether text would tell an upstream a private id: a word of it is a hosted or reserved id, extends one after a dot, or
 * is the beginning of one and longer than its first segment. `Contoso.Bill` tells `Contoso.Billing`, `json` does not tell
 * `Json.Internal`. Hosted ids that are merged are not private.
 */
export async function tellsPrivateId(
  database: Database,
  policy: UpstreamPolicy,
  accountId: number,
  text: string,
  { only, begun = only }: PrivateIds = {},
): Promise<boolean> {
  if (text.length > maxLength) return true;
  const words = wordsIn(text);
  if (words.length > maxWords) return true;
  const ids = words.flatMap(withParents);
  if (ids.some((id) => policy.isReserved(id)) || words.some((word) => policy.beginsReserved(word, '.'))) return true;
  if (
    (
      await claimedAmong(
        database,
        accountId,
        ids.filter((id) => !policy.isMerged(id) && (only?.includes(id) ?? true)),
      )
    ).size > 0
  )
    return true;
  for (const word of words) {
    if (word.includes('.') && (await beginsHosted(database, policy, { accountId, only: begun }, word))) return true;
  }
  return false;
}

/** `a.b.c`, `a.b` and `a`. */
function withParents(word: string): string[] {
  const segments = word.split('.');
  return segments.map((_, index) => segments.slice(0, segments.length - index).join('.'));
}

async function beginsHosted(
  database: Database,
  policy: UpstreamPolicy,
  { accountId, only }: { accountId: number; only: NameSet | undefined },
  word: string,
): Promise<boolean> {
  const among = only?.where('package_key');
  const rows = await database.select<{ package_key: string }>(
    `SELECT package_key FROM packages WHERE account_id = ? AND package_key > ? AND package_key < ?
     ${among ? `AND ${among.sql}` : ''} ORDER BY package_key LIMIT ${maxIds}`,
    [accountId, word, `${word}\u{10ffff}`, ...(among?.values ?? [])],
  );
  return rows.length === maxIds || rows.some(({ package_key: key }) => !policy.isMerged(key));
}
