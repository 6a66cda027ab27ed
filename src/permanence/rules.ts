import { textMatcher } from '../accounts/names.ts';
import type { Queryable } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';

/** What may not change, and what may not be deleted, of an account's hosted content: lists of patterns. */
export interface PermanenceRules {
  freeze: { images: string[] };
  keep: { packages: string[]; images: string[] };
}

const noRules: PermanenceRules = { freeze: { images: [] }, keep: { packages: [], images: [] } };

type Test = (name: string, reference: string) => boolean;

/** The rules that decide about an account's hosted content. */
export class Guard {
  readonly #frozen: readonly Test[];
  readonly #packages: readonly Test[];
  readonly #images: readonly Test[];
  readonly #digests: readonly Test[];

  constructor({ freeze, keep }: PermanenceRules, always: readonly string[]) {
    this.#frozen = freeze.images.map((pattern) => testOf(pattern, ':'));
    this.#packages = [...keep.packages, ...always].map((pattern) => testOf(pattern.toLowerCase(), ':@'));
    this.#images = [...keep.images, ...always].map((pattern) => testOf(pattern, ':'));
    this.#digests = [...keep.images, ...always].map((pattern) => testOf(pattern, '@'));
  }

  /** Whether some tag cannot move. */
  get freezesTags(): boolean {
    return this.#frozen.length > 0;
  }

  /** Whether some image cannot be deleted. */
  get keepsImages(): boolean {
    return this.#images.length + this.#frozen.length > 0;
  }

  /** Whether a tag that exists cannot point to something else. */
  freezes(name: string, tag: string): boolean {
    return this.#frozen.some((test) => test(name, tag));
  }

  /** Whether a version cannot be deleted. */
  keepsVersion(id: string, version: string): boolean {
    return this.#packages.some((test) => test(id.toLowerCase(), version.toLowerCase()));
  }

  /** Whether a tag cannot be deleted: a frozen one could otherwise be pushed again with other content. */
  keepsTag(name: string, tag: string): boolean {
    return this.freezes(name, tag) || this.#images.some((test) => test(name, tag));
  }

  /** Whether a manifest cannot be deleted whatever its tags are. */
  keepsDigest(name: string, digest: string): boolean {
    return this.#digests.some((test) => test(name, digest));
  }
}

/** A pattern with another separator than these means other references, so it matches none of these. Without one it matches all. */
function testOf(pattern: string, separators: string): Test {
  const at = pattern.search(/[:@]/);
  const isName = textMatcher((at < 0 ? pattern : pattern.slice(0, at)).toLowerCase());
  if (at < 0) return (name) => isName(name);
  if (!separators.includes(pattern[at]!)) return () => false;
  const isReference = textMatcher(pattern.slice(at + 1));
  return (name, reference) => isName(name) && isReference(reference);
}

/** The rules of an account, as they are now; `always` are patterns of the settings that keep content of all accounts. */
export async function guardOf(from: Queryable, accountId: number, always: readonly string[] = []): Promise<Guard> {
  return new Guard(await rulesOf(from, accountId), always);
}

/** The rules of an account. */
export async function rulesOf(from: Queryable, accountId: number): Promise<PermanenceRules> {
  const row = await from.get<{ rules: string }>('SELECT rules FROM permanence WHERE account_id = ?', [accountId]);
  return row ? (JSON.parse(row.rules) as PermanenceRules) : noRules;
}

/** `Kept`, for content that cannot be deleted. */
export function kept(what: string): DomainError {
  return new DomainError(
    'Kept',
    `${what} cannot be deleted: a rule of this account keeps it. An administrator can change the rules on the page "Freeze and keep", or with PUT /v1/account/permanence.`,
  );
}

/** `TagFrozen`, for a tag that exists and cannot point to something else. */
export function tagFrozen(name: string, tag: string): DomainError {
  return new DomainError(
    'TagFrozen',
    `The image tag '${tag}' already exists in the '${name}' repository and cannot be overwritten because it is frozen (immutable). Push under another tag.`,
    { detail: { name, tag } },
  );
}
