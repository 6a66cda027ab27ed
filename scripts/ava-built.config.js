// All tests, from the files that `scripts/build-tests.ts` has made in this folder.
export default {
  extensions: ['mjs'],
  files: [`${process.env.ENTREPOT_TEST_BUILT}/**/*.test.mjs`],
  require: ['./test/support/plain-stacks.ts'],
  timeout: '5m',
  concurrency: 3,
  workerThreads: false,
};
