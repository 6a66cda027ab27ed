// The tests with real clients, and those of the console in a browser. One file at a time, because a client's engine uses the whole machine.
export default {
  extensions: ['ts'],
  files: ['test/browser/**/*.test.ts', 'test/clients/**/*.test.ts'],
  timeout: '10m',
  concurrency: 1,
  serial: true,
  workerThreads: false,
};
