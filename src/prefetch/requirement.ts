import { DomainError } from '../errors.ts';
import type { VersionRange } from '../nuget/format/range.ts';
import type { ImageName, Platform } from './image-name.ts';

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

/** Something that an input asks for. */
export type Requirement = { spot: Spot } & (
  | { kind: 'package'; id: string; version: string }
  /** A package and what it depends on. `frameworks` choose among its dependencies; none means all of them. */
  | { kind: 'dependency'; id: string; range: VersionRange; frameworks: readonly string[] }
  /** A reference whose version stands in another file. */
  | { kind: 'central'; id: string; frameworks: readonly string[] }
  /** `platforms` where the input itself names them. */
  | { kind: 'image'; image: ImageName; platforms?: readonly Platform[] }
  /** What cannot be had as it is written. */
  | { kind: 'unclear'; what: string; reason: string }
);

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
