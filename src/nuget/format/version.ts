/**
 * A NuGet version: SemVer 2.0.0 with one to four numeric parts; labels are compared without case. The rules are those
 * of NuGet.Versioning, which every client uses to order versions.
 * https://learn.microsoft.com/nuget/concepts/package-versioning
 */
export interface Version {
  readonly major: number;
  readonly minor: number;
  readonly patch: number;
  readonly revision: number;
  /** Prerelease labels as written; empty for a release. */
  readonly labels: readonly string[];
  /** The text after `+`, as written. It is not part of a version's identity. */
  readonly metadata?: string;
  /** The text that was parsed. */
  readonly original: string;
}

/** Characters of the longest version, with metadata, as written and normalised. */
export const maxVersionLength = 255;

const maxNumber = 2 ** 31 - 1;
const pattern =
  /^(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?$/;
/** SemVer 2.0.0 §9: "Numeric identifiers MUST NOT include leading zeroes". */
const paddedNumber = /^0\d+$/;

/** Parses a version; undefined if `text` is not a version. Whitespace is not trimmed. */
export function parseVersion(text: string): Version | undefined {
  if (text.length > maxVersionLength) return undefined;
  const match = pattern.exec(text);
  if (!match) return undefined;
  const [major = 0, minor = 0, patch = 0, revision = 0] = match.slice(1, 5).map((part) => Number(part ?? 0));
  if (Math.max(major, minor, patch, revision) > maxNumber) return undefined;
  const labels = match[5]?.split('.') ?? [];
  if (labels.some((label) => paddedNumber.test(label))) return undefined;
  const version = { major, minor, patch, revision, labels, metadata: match[6], original: text };
  // `1` is normalised to `1.0.0`, which is longer.
  return fullString(version).length > maxVersionLength ? undefined : version;
}

/** The normalised form: no leading zeros, no fourth part if it is zero, no metadata. Labels keep their case. */
export function normalize(version: Version): string {
  const { major, minor, patch, revision, labels } = version;
  const numbers = `${major}.${minor}.${patch}${revision === 0 ? '' : `.${revision}`}`;
  return labels.length === 0 ? numbers : `${numbers}-${labels.join('.')}`;
}

/** The identity of a version: normalised, in lower case. URLs and the database use it. */
export function versionKey(version: Version): string {
  return normalize(version).toLowerCase();
}

/** The normalised form with its metadata. */
export function fullString(version: Version): string {
  return version.metadata === undefined ? normalize(version) : `${normalize(version)}+${version.metadata}`;
}

/** Whether the version has a prerelease label. */
export function isPrerelease(version: Version): boolean {
  return version.labels.length > 0;
}

/** Whether only a client that supports SemVer 2.0.0 can read the version: it has a dotted prerelease, or metadata. */
export function isSemVer2(version: Version): boolean {
  return version.labels.length > 1 || version.metadata !== undefined;
}

/** Negative if `a` is lower than `b`, positive if it is higher, 0 if they are equal. */
export function compareVersions(a: Version, b: Version): number {
  return (
    a.major - b.major ||
    a.minor - b.minor ||
    a.patch - b.patch ||
    a.revision - b.revision ||
    compareLabels(a.labels, b.labels)
  );
}

function compareLabels(a: readonly string[], b: readonly string[]): number {
  // A release is higher than its prereleases.
  if (a.length === 0 || b.length === 0) return b.length - a.length;
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const order = compareLabel(a[i]!, b[i]!);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}

function compareLabel(a: string, b: string): number {
  const [left, right] = [labelNumber(a), labelNumber(b)];
  if (left !== undefined && right !== undefined) return left - right;
  if (left !== undefined) return -1;
  if (right !== undefined) return 1;
  const [lowerA, lowerB] = [a.toLowerCase(), b.toLowerCase()];
  if (lowerA === lowerB) return 0;
  return lowerA < lowerB ? -1 : 1;
}

/**
 * The numeric value of a label, if NuGet reads it as a number: a 32-bit integer, with `-` as a sign. Unlike SemVer,
 * NuGet reads a larger number as text. The order must be that of the clients: they look for versions between the
 * `lower` and `upper` of registration pages.
 */
function labelNumber(label: string): number | undefined {
  if (!/^-?\d+$/.test(label)) return undefined;
  const number = Number(label);
  return number < -maxNumber - 1 || number > maxNumber ? undefined : number;
}

/**
 * A string whose byte order is the order of versions: an index on a binary column is then in version order. It has
 * at most 512 bytes of printable ASCII without spaces, so it also sorts correctly where trailing spaces are ignored.
 *
 * Each numeric part is written as one less than the count of its digits, then its digits. Then follows `~` for a
 * release; or, for each label, its kind and its text: `!` negative, `#` number, `$` text. The kinds sort below every
 * character of a label, so they also end the text before them. The end of the string sorts below the kinds: a list of
 * labels is lower than a longer list that starts with it.
 */
export function sortKey(version: Version): string {
  const { major, minor, patch, revision, labels } = version;
  const numbers = [major, minor, patch, revision].map(sortableNumber).join('');
  return numbers + (labels.length === 0 ? '~' : labels.map(sortableLabel).join(''));
}

function sortableNumber(number: number): string {
  const digits = String(number);
  return `${digits.length - 1}${digits}`;
}

function sortableLabel(label: string): string {
  const number = labelNumber(label);
  if (number === undefined) return `$${label.toLowerCase()}`;
  if (number >= 0) return `#${sortableNumber(number)}`;
  // Nines' complement: a negative number with larger digits is lower.
  return `!${sortableNumber(-number).replaceAll(/\d/g, (digit) => String(9 - Number(digit)))}`;
}
