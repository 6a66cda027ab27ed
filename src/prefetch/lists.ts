import { malformed, shown, type Input, type Requirement, type Spot } from './requirement.ts';

/** What a protocol takes from the lines of a plain list. */
export interface ListReader {
  /** The kind of a list that has nothing else, as `--kind` names it. */
  readonly kind: string;
  /** What a line looks like, for messages. */
  readonly expected: string;
  /** What a line asks for; undefined for one that is not this protocol's. */
  read(line: string, spot: Spot): Requirement | undefined;
}

/** A plain list with one requirement a line; `#` begins a comment. A line is for the first reader that takes it. */
export function readList({ file, text }: Input, readers: readonly ListReader[]): Requirement[] {
  const requirements: Requirement[] = [];
  for (const [index, each] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = each.replace(/(?:^|\s)#.*$/, '').trim();
    if (line === '') continue;
    const spot = { file, line: index + 1 };
    let found: Requirement | undefined;
    for (const reader of readers) found ??= reader.read(line, spot);
    if (!found) {
      const expected = readers.map((reader) => reader.expected).join(' or ');
      throw malformed(file, spot.line, `${shown(line)} is not ${expected}`);
    }
    requirements.push(found);
  }
  return requirements;
}
