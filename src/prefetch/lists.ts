import { malformed, quoted, type Input, type Requirement, type Location } from './requirement.ts';

/** Reads the lines of a plain list for one protocol. */
export interface ListReader {
  /** The value of `--kind` for a list that has only these lines. */
  readonly kind: string;
  /** The format of a line, for messages. */
  readonly expected: string;
  /** The requirement in a line; undefined if the line is not for this protocol. */
  read(line: string, location: Location): Requirement | undefined;
}

/** Reads a list with one requirement per line; `#` begins a comment. The first reader that accepts a line reads it. */
export function readList({ file, text }: Input, readers: readonly ListReader[]): Requirement[] {
  const requirements: Requirement[] = [];
  for (const [index, each] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = each.replace(/(?:^|\s)#.*$/, '').trim();
    if (line === '') continue;
    const location = { file, line: index + 1 };
    let found: Requirement | undefined;
    for (const reader of readers) found ??= reader.read(line, location);
    if (!found) {
      const expected = readers.map((reader) => reader.expected).join(' or ');
      throw malformed(file, location.line, `${quoted(line)} is not ${expected}`);
    }
    requirements.push(found);
  }
  return requirements;
}
