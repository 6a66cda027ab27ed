import { parseVersion, sortKey, versionKey } from '../../format/version.ts';
import { isList, jsonIn, maxListed, otherForm } from './json.ts';

/** The version keys in a flat container's index, in order, one on each line. Invalid versions are left out. */
export function readFlatIndex(bytes: Buffer): string {
  const { versions } = jsonIn(bytes);
  if (!isList(versions)) throw otherForm();
  return inOrder(versions, versionKey).join('\n');
}

/** The versions in an answer of autocompletion, as written and in order, one on each line. */
export function readVersionList(bytes: Buffer): string {
  const { data } = jsonIn(bytes);
  if (!Array.isArray(data)) throw otherForm();
  return inOrder(data.slice(0, maxListed), ({ original }) => original).join('\n');
}

function inOrder(list: readonly unknown[], write: (version: NonNullable<ReturnType<typeof parseVersion>>) => string) {
  const orders = new Map<string, string>();
  for (const text of list) {
    const version = typeof text === 'string' ? parseVersion(text) : undefined;
    if (version) orders.set(write(version), sortKey(version));
  }
  return [...orders].sort(([, a], [, b]) => (a < b ? -1 : 1)).map(([text]) => text);
}
