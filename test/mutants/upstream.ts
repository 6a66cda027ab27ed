import { mutantsOf } from './mutant.ts';

const failures = ['test/upstream/failures.test.ts'];

export const upstream = [
  ...mutantsOf('src/upstream/failures.ts', failures, [
    [
      'Retry-After has no upper bound',
      'Math.min(Math.max(milliseconds, 0), longestLimit)',
      'Math.max(milliseconds, 0)',
    ],
    [
      'a Retry-After in the past is negative',
      'Math.min(Math.max(milliseconds, 0), longestLimit)',
      'Math.min(milliseconds, longestLimit)',
    ],
    ['a malformed Retry-After is not ignored', 'Number.isFinite(milliseconds) ?', 'header ?'],
    ['Retry-After is in milliseconds', 'Number(header) * 1000', 'Number(header)'],
    [
      'a Retry-After date is compared with the clock of this machine',
      'Number.isNaN(theirNow) ? Date.now() : theirNow',
      'Date.now()',
    ],
  ]),
];
