import { DomainError } from '../../runtime/errors.ts';
import type { Deprecation } from './metadata.ts';
import { isPackageId } from './nuspec.ts';
import { formatRange, parseRange } from './range.ts';

/** The reasons of the protocol. https://learn.microsoft.com/nuget/api/registration-base-url-resource#package-deprecation */
const deprecationReasons = ['Legacy', 'CriticalBugs', 'Other'] as const;
export type DeprecationReason = (typeof deprecationReasons)[number];

/** Most characters of a message; the public gallery has the same limit. */
const maxMessage = 1000;
/** Most characters of a range, as written and normalised. */
const maxRange = 255;
/** The range of an alternative package of which every version is an alternative. */
export const anyVersion = '*';

/** A deprecation as a client writes it. */
export interface DeprecationInput {
  reasons: readonly string[];
  message?: string | null | undefined;
  /** Without a range, every version of the package is an alternative. */
  alternative?: { id: string; range?: string | null | undefined } | null | undefined;
}

/** A deprecation of a hosted version. */
export interface HostedDeprecation extends Deprecation {
  reasons: readonly DeprecationReason[];
}

/** Checks a deprecation of the package `id`. Throws `Invalid`, with the wrong field in `detail.errors`. */
export function parseDeprecation(id: string, { reasons, message, alternative }: DeprecationInput): HostedDeprecation {
  const known = deprecationReasons.filter((each) => reasons.includes(each));
  const unknown = reasons.find((each) => !(deprecationReasons as readonly string[]).includes(each));
  if (unknown !== undefined || known.length === 0) {
    throw wrong('reasons', `Give one or more of the reasons ${deprecationReasons.join(', ')}.`);
  }
  const text = message?.trim().toWellFormed() || undefined;
  if (text === undefined && known.includes('Other')) throw wrong('message', 'The reason Other needs a message.');
  if (text !== undefined && text.length > maxMessage) {
    throw wrong('message', `The message has ${text.length} characters; at most ${maxMessage} are allowed.`);
  }
  if (text !== undefined && /[^\P{Cc}\n\r\t]/u.test(text)) {
    throw wrong('message', 'The message has control characters. Remove them.');
  }
  return {
    reasons: known,
    message: text,
    alternatePackage: alternative ? parseAlternative(id, alternative) : undefined,
  };
}

function parseAlternative(
  deprecated: string,
  { id, range }: NonNullable<DeprecationInput['alternative']>,
): { id: string; range: string } {
  if (!isPackageId(id)) throw wrong('alternative', 'The alternative package needs a valid package ID.');
  const text = range?.trim() || anyVersion;
  if (text !== anyVersion) return { id, range: formatted(text, 'alternative') };
  if (id.toLowerCase() === deprecated.toLowerCase()) {
    throw wrong('alternative', 'A package cannot replace itself. Give another ID, or a range of other versions.');
  }
  return { id, range: anyVersion };
}

/**
 * The range of versions that an advisory is about, as NuGet writes it. Brackets are needed: NuGet reads `1.0.0` as 1.0.0
 * and every later version, which is seldom meant. Throws `Invalid`, with the field `versions`.
 */
export function parseAffected(text: string): string {
  if (!/^[[(]/.test(text.trim())) {
    throw wrong('versions', 'Write the range with brackets: [1.0.0, 1.2.0) or, for one version, [1.0.0].');
  }
  return formatted(text, 'versions');
}

function formatted(text: string, field: string): string {
  const range = text.length <= maxRange ? parseRange(text) : undefined;
  if (!range || range.float) {
    throw wrong(field, 'This is not a range of versions. Write one such as [1.0.0, 2.0.0) or (, 1.2.0].');
  }
  const normal = formatRange(range);
  if (normal.length > maxRange) throw wrong(field, `A range has at most ${maxRange} characters.`);
  return normal;
}

/** A deprecation from the database; null if the version is not deprecated. */
export function storedDeprecation(text: string | null): HostedDeprecation | undefined {
  return text === null ? undefined : (JSON.parse(text) as HostedDeprecation);
}

/** `Invalid` because of one field of a request or of a form. */
export function wrong(field: string, message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field, message }] } });
}
