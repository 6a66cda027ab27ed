import { mutantsOf } from './mutant.ts';

export const prefetch = [
  ...mutantsOf(
    'src/prefetch/gate.ts',
    ['test/prefetch/images.test.ts'],
    [['a prefetch leaves the share instead of using it', 'limit * share)', 'limit * (1 - share))']],
  ),
  ...mutantsOf(
    'src/jobs/prefetch-table.ts',
    ['test/console/prefetch.test.ts'],
    [['any number of prefetches run', 'slot < maxRuns; slot += 1', 'slot < 9; slot += 1']],
  ),
  ...mutantsOf(
    'src/jobs/run-rows.ts',
    ['test/console/prefetch.test.ts', 'test/bundle/run-table.test.ts'],
    [
      ['a run cannot be stopped', "state = 'running' AND cancelled = 0`;", "state = 'running'`;"],
      ['a dead run keeps its place', "SET slot = NULL, state = 'lost'", "SET state = 'lost'"],
    ],
  ),
  ...mutantsOf(
    'src/api/prefetch/prefetch-form.ts',
    ['test/console/prefetch.test.ts'],
    [
      ['files of a prefetch have no bound', 'if (received > maxBytes)', 'if (received < 0)'],
      ['an empty file field is a file', "bytes.length > 0 || file !== ''", 'bytes.length >= 0'],
    ],
  ),
  ...mutantsOf(
    'src/prefetch/reader-thread.ts',
    ['test/prefetch/reader-thread.test.ts'],
    [['a parser may take any time', ', limit);', ', limit * 100);']],
  ),
];
