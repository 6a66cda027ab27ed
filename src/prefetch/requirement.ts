import { DomainError } from '../errors.ts';

/** A file that lists what is needed. */
export interface Input {
  /** As the user named it. */
  file: string;
  text: string;
  /** What the user gives for variables that the file leaves open. */
  values: ReadonlyMap<string, string>;
}

/** Where something is asked for. */
export interface Spot {
  file: string;
  /** From 1 on; 0 where there are no lines. */
  line: number;
}

/** Something that an input asks for. Each protocol adds its own kinds. */
export interface Requirement {
  kind: string;
  spot: Spot;
}

/** Something that cannot be had as it is written. */
export interface UnclearRequirement extends Requirement {
  kind: 'unclear';
  what: string;
  reason: string;
}

export function isUnclear(requirement: Requirement): requirement is UnclearRequirement {
  return requirement.kind === 'unclear';
}

/** `file:line`, or the file alone. */
export function spotText({ file, line }: Spot): string {
  return line > 0 ? `${file}:${line}` : file;
}

/** `Invalid`, for a file that is not what it should be. */
export function malformed(file: string, line: number, reason: string): DomainError {
  return new DomainError('Invalid', `${spotText({ file, line })}: ${reason}`);
}

/** The line of a position in a text, from 1 on. */
export function lineAt(text: string, position: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < position; at = text.indexOf('\n', at + 1)) line += 1;
  return line;
}

/** What a person wrote, short enough to show. */
export function shown(text: string): string {
  const line = text.split('\n', 1)[0]!;
  return `"${line.length > 120 ? `${line.slice(0, 120)}…` : line}"`;
}
