import { mutantsOf } from './mutant.ts';

export const usage = [
  ...mutantsOf(
    'src/usage/report.ts',
    ['test/http/usage.test.ts'],
    [
      ['a report has the items of all accounts', "const where = 'account_id = ?", "const where = '? > 0"],
      [
        'a report has the totals of all accounts',
        "FROM usage_counts WHERE account_id = ? AND dimension = 'account'",
        "FROM usage_counts WHERE ? > 0 AND dimension = 'account'",
      ],
      ['a report has the samples of all accounts', "const inBounds = 'account_id = ?", "const inBounds = '? > 0"],
    ],
  ),
];
