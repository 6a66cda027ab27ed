/** A small change of one source file, made by a rule that knows nothing of what the source means. */
export interface Change {
  /** Relative to the root of the checkout. */
  file: string;
  /** Offsets in the text of the file. */
  start: number;
  end: number;
  /** What stands between them instead. */
  text: string;
  /** The name of the rule. */
  rule: string;
}

/** The file's text with the change. */
export function apply(source: string, { start, end, text }: Change): string {
  return source.slice(0, start) + text + source.slice(end);
}

/** The number of the line of an offset, from 1. */
export function lineOf(source: string, offset: number): number {
  return source.slice(0, offset).split('\n').length;
}

/** The lines that a change removes and those that it adds, without the space around them. */
export function changedLines(source: string, change: Change): { was: string[]; becomes: string[] } {
  const first = source.lastIndexOf('\n', change.start - 1) + 1;
  const last = `${source}\n`.indexOf('\n', change.end);
  return {
    was: linesOf(source.slice(first, last)),
    becomes: linesOf(source.slice(first, change.start) + change.text + source.slice(change.end, last)),
  };
}

function linesOf(text: string): string[] {
  return text.split('\n').map((line) => line.trim());
}
