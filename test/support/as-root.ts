import test from 'ava';

/** `test`, or `test.skip` without root, which alone can make files and processes of other users. ava lists what it skips. */
export const testAsRoot: typeof test.skip = process.getuid?.() === 0 ? test : test.skip;

/** The number of the user and the group `nobody`, whom every Linux has. */
export const nobody = 65534;
