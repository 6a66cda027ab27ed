import manifest from '../package.json' with { type: 'json' };

// All tests, as package.json says, from the files that `scripts/build-tests.ts` has made in this folder.
export default {
  ...manifest.ava,
  extensions: ['mjs'],
  files: [`${process.env.ENTREPOT_TEST_BUILT}/**/*.test.mjs`],
};
