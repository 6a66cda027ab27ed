// The real clients' tests: one file at a time, because a client's engine takes the whole machine.
export default {
  extensions: ['ts'],
  files: ['test/clients/**/*.test.ts'],
  timeout: '10m',
  concurrency: 1,
  serial: true,
  workerThreads: false,
};
