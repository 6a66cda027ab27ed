import { DomainError } from '../runtime/errors.ts';

/** A file that lists packages or images. */
export interface Input {
  /** The path as the user wrote it. */
  file: string;
  text: string;
  /** Values from the user for variables in the file. */
  values: ReadonlyMap<string, string>;
}

/** The location of an item. */
export interface ItemLocation {
  file: string;
  /** Starts at 1; 0 if the source has no lines. */
  line: number;
}

/** A package or image that an input lists. Each protocol adds its own kinds. */
export interface PrefetchItem {
  kind: string;
  location: ItemLocation;
}

/** An item that cannot be resolved, for example because a variable has no value. */
export interface UnclearItem extends PrefetchItem {
  kind: 'unclear';
  what: string;
  reason: string;
}

/** What clients ask for because a file has an item. */
export interface ItemMeaning {
  /** The item in words. */
  text: string;
  /** The names by which they ask. The first one counts that is hosted here or that an upstream serves. */
  names: readonly string[];
  /** The version, tag or digest; undefined if nothing says it. May ask an upstream for the versions of the name. */
  reference: () => Promise<string | undefined>;
}

export function isUnclear(item: PrefetchItem): item is UnclearItem {
  return item.kind === 'unclear';
}

/** `file:line`, or the file alone. */
export function locationText({ file, line }: ItemLocation): string {
  return line > 0 ? `${file}:${line}` : file;
}

/** An `Invalid` error for a malformed file. */
export function malformed(file: string, line: number, reason: string): DomainError {
  return new DomainError('Invalid', `${locationText({ file, line })}: ${reason}`);
}

/** The line of a position in a text; the first line is 1. */
export function lineAt(text: string, position: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < position; at = text.indexOf('\n', at + 1)) line += 1;
  return line;
}

/** As `lineAt` for many positions of one text, which is searched once. */
export function lineFinder(text: string): (position: number) => number {
  const ends: number[] = [];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) ends.push(at);
  return (position) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle]! < position) low = middle + 1;
      else high = middle;
    }
    return low + 1;
  };
}

/** The first line of a text in quotes, at most 120 characters, for messages. */
export function firstLine(text: string): string {
  const line = text.split('\n', 1)[0]!;
  return `"${line.length > 120 ? `${line.slice(0, 120)}…` : line}"`;
}
