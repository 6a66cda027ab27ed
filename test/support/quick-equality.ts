import { createRequire } from 'node:module';
import { isDeepStrictEqual } from 'node:util';

/** What ava compares values with. */
interface Concordance {
  compare: (actual: unknown, expected: unknown, options: unknown) => { pass: boolean };
}

const isBytes = (value: unknown) => value instanceof Uint8Array || value instanceof ArrayBuffer;

// `t.deepEqual` takes a second of processor time for a megabyte, because it describes each byte. So equal bytes are not described. All else is
// left to ava: `isDeepStrictEqual` would ignore the order of a set, and what `Headers` hold.
const concordance = createRequire(createRequire(import.meta.url).resolve('ava'))('concordance') as Concordance;
const { compare } = concordance;
concordance.compare = (actual, expected, options) =>
  isBytes(actual) && isBytes(expected) && isDeepStrictEqual(actual, expected)
    ? { pass: true }
    : compare(actual, expected, options);
