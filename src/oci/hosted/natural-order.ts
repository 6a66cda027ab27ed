import type { Row } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';

/** Digits of the longest number that is compared as a number. */
const maxDigits = 99;

/**
 * A key whose order by bytes is the natural order of tags: without letter case, and numbers by their value, so that `v2` is
 * before `v10`. ASCII, at most 256 characters.
 */
export function naturalKey(tag: string): string {
  return tag.toLowerCase().replace(/\d+/g, (digits) => {
    const number = digits.replace(/^0+(?=\d)/, '');
    return String(Math.min(number.length, maxDigits)).padStart(2, '0') + number;
  });
}

/** The row of a tag. */
export function tagRow(repositoryId: number, name: string, digest: Digest, updatedAt: number): Row {
  return { repository_id: repositoryId, name, digest, updated_at: updatedAt, sort_key: naturalKey(name) };
}
