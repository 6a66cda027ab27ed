import { createRequire } from 'node:module';
import { isDeepStrictEqual } from 'node:util';

/** What ava compares values with. */
interface Concordance {
  compare: (actual: unknown, expected: unknown, options: unknown) => { pass: boolean };
}

// `t.deepEqual` takes a second of processor time for a megabyte, because it describes each byte. So only values that differ are described.
const concordance = createRequire(createRequire(import.meta.url).resolve('ava'))('concordance') as Concordance;
const { compare } = concordance;
concordance.compare = (actual, expected, options) =>
  isDeepStrictEqual(actual, expected) ? { pass: true } : compare(actual, expected, options);
