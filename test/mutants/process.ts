import { mutantsOf } from './mutant.ts';

export const process = [
  ...mutantsOf(
    'src/runtime/closing.ts',
    ['test/runtime/closing.test.ts'],
    [
      ['a part that fails stops the closing of the others', 'this.#failed.push(name);', 'throw error;'],
      ['one part may take the time of all', ' / this.#open.size', ''],
      ['a part without a limit is waited for', 'Math.min(this.#times.part, share)', 'share'],
    ],
  ),
  ...mutantsOf(
    'src/runtime/clock.ts',
    ['test/runtime/clock.test.ts'],
    [
      ['deletions trust a clock that was set forward', 'elapsed * catchUp)', 'Number.POSITIVE_INFINITY)'],
      ['the clock for deletions is ahead after a jump back', 'Math.floor(Math.min(wall, time))', 'Math.floor(time)'],
      ['the clock for deletions never catches up', 'const catchUp = 0.1;', 'const catchUp = 0;'],
    ],
  ),
  ...mutantsOf(
    'src/server/core.ts',
    ['test/http/clock-jumps.long.test.ts'],
    [['deletions use the clock of the system', 'watch ? deletionClock(now, watch) : now', 'now']],
  ),
  ...mutantsOf(
    'src/usage/unwritten.ts',
    ['test/usage/unwritten.test.ts'],
    [
      [
        'counts in a file have no writer',
        'writer: each.writer, batches',
        'writer: `${each.writer}${Math.random()}`.slice(0, 60), batches',
      ],
      ['a file stays after its counts were included', 'await unlink(path);\n    log', 'log'],
      ['the database gets the time for the file', 'milliseconds * databaseShare', 'milliseconds'],
      ['a file of usage has no bound', '<= maxSize);', '<= Number.POSITIVE_INFINITY);'],
      ['a file of usage is not synced', 'await file.datasync();', ''],
      ['a file of usage is visible before it is complete', 'const part = `${path}.part`;', 'const part = path;'],
      [
        'a file of any size is included',
        "if ((await stat(path)).size > 3 * maxSize) throw new Error('the file is too large');",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/record.ts',
    ['test/usage/unwritten.test.ts'],
    [['the next process forgets what the last one wrote', ' || this.#isTaken) return;', ') return;']],
  ),
  ...mutantsOf(
    'src/cli/log-output.ts',
    ['test/cli/log-output.long.test.ts'],
    [
      [
        'lines wait without a bound',
        'this.#waitingBytes > 0 && this.#waitingBytes + piece.bytes.length > maxWaiting',
        'this.#waitingBytes < 0',
      ],
      ['a line that was written in part is written again', 'piece.bytes = piece.bytes.subarray(written);', ''],
      ['dropped lines are not reported', 'if (lines > 0) this.#onResumed(lines);', ''],
      ['a log that is not read blocks the process', 'constants.O_WRONLY | constants.O_NONBLOCK', 'constants.O_WRONLY'],
    ],
  ),
  ...mutantsOf(
    'src/cli/serve.ts',
    ['test/cli/shutdown.long.test.ts'],
    [
      ['a second signal is ignored', 'else terminal.once(signal, stop);', 'else terminal.on(signal, stop);'],
      ['SIGHUP ends the process at once', "['SIGTERM', 'SIGINT', 'SIGHUP']", "['SIGTERM', 'SIGINT']"],
      [
        'connections of a part that did not close keep the process',
        'setTimeout(() => terminal.exit(), lastTime).unref();',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/cli/workers.ts',
    ['test/cli/workers.long.test.ts'],
    [['a killed worker is not replaced', 'if (stop.aborted) return;\n      if', 'return;\n      if']],
  ),
];
