import { malformed, firstLine, type Input, type PrefetchItem, type ItemLocation } from './item.ts';

/** Reads the lines of a plain list for one protocol. */
export interface ListReader {
  /** The value of `--kind` for a list that has only these lines. */
  readonly kind: string;
  /** The format of a line, for messages. */
  readonly expected: string;
  /** The item in a line; undefined if the line is not for this protocol. */
  read(line: string, location: ItemLocation): PrefetchItem | undefined;
}

/** Reads a list with one item per line; `#` begins a comment. The first reader that accepts a line reads it. */
export function readItemList({ file, text }: Input, readers: readonly ListReader[]): PrefetchItem[] {
  const items: PrefetchItem[] = [];
  for (const [index, each] of text.split(/\r?\n/).entries()) {
    // This removes a byte order mark, too.
    const line = each.replace(/(?:^|\s)#.*$/, '').trim();
    if (line === '') continue;
    const location = { file, line: index + 1 };
    let found: PrefetchItem | undefined;
    for (const reader of readers) found ??= reader.read(line, location);
    if (!found) {
      const expected = readers.map((reader) => reader.expected).join(' or ');
      throw malformed(file, location.line, `${firstLine(line)} is not ${expected}`);
    }
    items.push(found);
  }
  return items;
}
