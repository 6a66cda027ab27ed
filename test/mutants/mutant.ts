/** A small wrong change to a source file that the tests must notice. */
export interface Mutant {
  /** The wrong behavior, in words; unique. */
  name: string;
  file: string;
  /** Text that occurs exactly once in `file`. Short, so that unrelated changes of the file keep it. */
  find: string;
  replace: string;
  /** The test files of which at least one must fail. */
  tests: readonly string[];
}

type Change = readonly [name: string, find: string, replace: string, ...tests: string[]];

/** The mutants of one file. A change that names no test files is noticed by `tests`. */
export function mutantsOf(file: string, tests: readonly string[], changes: readonly Change[]): Mutant[] {
  return changes.map(([name, find, replace, ...own]) => ({
    name,
    file,
    find,
    replace,
    tests: own.length > 0 ? own : tests,
  }));
}
