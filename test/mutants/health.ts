import { mutantsOf } from './mutant.ts';

export const health = [
  ...mutantsOf(
    'src/http/health.ts',
    ['test/http/readiness.test.ts', 'test/storage/drivers/s3/server.test.ts'],
    [
      ['a hanging check is started again', 'this.#running ??= this', 'this.#running = this'],
      ['probes are not limited', '(this.#isRunning || isTooSoon)', 'this.#isRunning'],
      ['a failure that a request met counts for ever', 'at >= since', 'at >= 0'],
      ['a failed write is forgotten at the next probe', ': this.#failedWrites,', ': [],'],
      ['a failure is logged with each probe', 'if (this.#logged.has(check.failure)) continue;', ''],
      [
        'a failure that comes again is not logged',
        'this.#logged = new Set(now.map(({ failure }) => failure));',
        'for (const { failure } of now) this.#logged.add(failure);',
      ],
      ['each look reads S3', 'succeededAt >= every ||', 'succeededAt >= 0 ||'],
      ['a check that hangs succeeds', 'reject(new Error(`no answer within ${this.#limit} ms`))', 'resolve()'],
      [
        'a Redis that failed for a request is not degraded',
        "if (redis !== undefined) this.#metAt.set('redis', redis);",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/server/checks.ts',
    ['test/http/readiness.test.ts'],
    [
      [
        'readiness does not check the staging folder',
        'run: () => blobs.checkStaging()',
        'run: () => Promise.resolve()',
      ],
      ['readiness does not write to the storage', 'run: () => blobs.checkWrites()', 'run: () => Promise.resolve()'],
      ['readiness does not write to the database', 'run: () => database.checkWrites()', 'run: () => Promise.resolve()'],
    ],
  ),
  ...mutantsOf(
    'src/http/unavailable.ts',
    ['test/http/readiness.test.ts'],
    [
      ['an unavailable storage is a defect', ' ?? storageFailure(error))', ')'],
      [
        'an unavailable database is not recorded for readiness',
        "if (error?.name === 'DatabaseUnavailable') return 'database';",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/unavailable.ts',
    ['test/http/readiness.test.ts'],
    [
      [
        'an error of a socket is one of the storage',
        "if (!fileCalls.test(syscall ?? '') && code !== 'EIO' && code !== 'ESTALE') return undefined;",
        '',
        'test/storage/files/unavailable.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/drain.ts',
    ['test/http/closing-connections.long.test.ts'],
    [
      ['a connection stays open after the rest of a body', 'if (socket.writableEnded) socket.destroySoon();', ''],
      ['a refused sender gets a reset', 'else socket.end();', 'else socket.destroy();'],
      [
        'draining leaves a timer of a closed connection',
        "socket.once('close', stop);",
        '',
        'test/http/full-disk.long.test.ts',
      ],
    ],
  ),
];
