import { mutantsOf } from './mutant.ts';

export const usage = [
  ...mutantsOf(
    'src/usage/report.ts',
    ['test/api/usage.test.ts'],
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

  ...mutantsOf(
    'src/usage/quota.ts',
    ['test/http/limits.test.ts'],
    [
      ['the announced bytes do not count', 'used + announced > accountStorage', 'used > accountStorage'],
      ['only the lowest threshold is found', '[100, 90, 80]', '[80, 90, 100]'],
      [
        'unfinished uploads do not count',
        'used: hosted + bytes',
        'used: hosted',
        'test/oci/http/upload-limits.test.ts',
      ],
      ['egress counts for ever', 'periodAt(now()))).egress_bytes', '{ start: 0, end: now() })).egress_bytes'],
      [
        'the limit of egress does not refuse pushes',
        'if (used >= accountEgress) {',
        'if (used >= accountEgress * 1000) {',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/period.ts',
    ['test/usage/record.test.ts'],
    [
      ['counts of a closed month are written to it', '+ grace ? counted : dayOf(now)', '+ grace ? counted : counted'],
      [
        'months begin a day late',
        'start: Date.UTC(year, month),',
        'start: Date.UTC(year, month, 2),',
        'test/api/usage.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/stored.ts',
    ['test/usage/stored.test.ts'],
    [
      ['a long measurement is reused for ever', ' && age < 20 * took', ''],
      ['a short measurement is reused', 'took > long && ', ''],
      ['a call waits for a long measurement', 'if (measurement.expected > long) return false;', ''],
      ['the hourly sample is not the answer', 'const isKnown = this.#last !== undefined ||', 'const isKnown = true ||'],
      ['an hour that is over is sampled', 'if (hourOf(this.#now()) !== hour) return;', ''],
      [
        'only one account is sampled',
        '[...ids.filter((id) => id !== this.#mirrorAccount), this.#mirrorAccount].map((id) => {',
        '[this.#mirrorAccount, ...ids.slice(0, 0)].map((id) => {',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/counters.ts',
    ['test/api/usage.test.ts'],
    [
      [
        'an interrupted download counts',
        ' && (status === 200 || status === 307) && complete',
        ' && (status === 200 || status === 307)',
      ],
      [
        'hosted content counts as a miss',
        "cache !== undefined && !cache.endsWith('detail=hosted')",
        'cache !== undefined',
      ],
      [
        'sent and received bytes are swapped',
        'counters.egress_bytes += use.sent;',
        'counters.egress_bytes += use.received;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/record.ts',
    ['test/usage/record.test.ts'],
    [
      ['a batch that was written is written again', 'AND batch < ?', 'AND batch <> -?'],
      ['while the database is down memory grows', '>= maxKeys', '>= maxKeys * 1000'],
      [
        'counts of tokens are mixed',
        '`${accountId} ${token} ${kind} ${day} ${name}`',
        '`${accountId} ${kind} ${day} ${name}`',
        'test/usage/record.test.ts',
      ],
      [
        'counts are lost after a failed write',
        'await this.#writeOnce(this.#writer, number, entries);\n      this.#batches.shift();',
        'this.#batches.shift();\n      await this.#writeOnce(this.#writer, number, entries);',
      ],
      [
        'a long name blocks all counts',
        'if (subject.length <= maxNameLength) return subject;',
        'if (subject.length > 0) return subject;',
        'test/api/usage.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/usage/mirrored.ts',
    ['test/api/mirrored-counts.test.ts'],
    [['pulls of other accounts are shown', 'WHERE account_id = ? AND kind = ?', 'WHERE account_id <> -? AND kind = ?']],
  ),
  ...mutantsOf(
    'src/usage/quota.ts',
    ['test/oci/http/upload-limits.test.ts'],
    [
      [
        'unfinished uploads may use the whole limit of storage',
        'bytes: accountStorage - hosted, refusal',
        'bytes: accountStorage, refusal',
      ],
    ],
  ),
];
