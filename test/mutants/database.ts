import { mutantsOf } from './mutant.ts';

export const database = [
  ...mutantsOf(
    'src/database/row-cache.ts',
    ['test/database/row-cache.test.ts'],
    [
      ['the row cache has no bound', ' || this.#count >= maxResults', ''],
      ['the row cache keeps failed reads', 'found.catch(() => rows.delete(key));', 'found.catch(() => undefined);'],
      ['the row cache ignores the version', 'version !== this.#version || ', ''],
    ],
  ),
  ...mutantsOf(
    'src/database/mysql-database.ts',
    ['test/accounts/tokens.test.ts'],
    [['rows cached with a lag never expire', ' ${Math.floor(performance.now() / lag)}', '']],
  ),

  ...mutantsOf(
    'src/cache/changes.ts',
    ['test/cache/changes.test.ts'],
    [
      ['a version is valid for ever', '`${String(entry.value)} ${period}`', '`${String(entry.value)}`'],
      [
        'a write that could not be announced is not waited for',
        'performance.now() <= end;',
        'performance.now() > end;',
      ],
      ['an emptied Redis gives the old version', 'await this.#renew();\n    return undefined;', 'return undefined;'],
    ],
  ),
  ...mutantsOf(
    'src/cache/cache.ts',
    ['test/cache/cache.test.ts'],
    [
      ['a value of another instance never expires', ' || entry.until <= this.#now()', ''],
      ['a value in memory never expires', 'entry && entry.until > this.#now()', 'entry'],
      ['a large value leaves an old one in Redis', 'else await this.#redis?.delete(key);\n  }', '}'],
      ['a deleted value stays in Redis', 'await this.#redis?.delete(key);\n  }\n\n  async close', '}\n\n  async close'],
      ['times to live are seconds', 'until: this.#now() + ttl', 'until: this.#now() + ttl * 1000'],
    ],
  ),
  ...mutantsOf(
    'src/config/units.ts',
    ['test/config/load.test.ts'],
    [
      ['a day has an hour', 'd: 86_400_000', 'd: 3_600_000'],
      ['a MiB has a million bytes', 'MiB: 2 ** 20', 'MiB: 1e6'],
      ['a whole number may be negative', '.min(least, error)', ''],
      ['a whole number has no upper bound', '.max(most, error)', ''],
    ],
  ),
  ...mutantsOf(
    'src/history/history.ts',
    ['test/http/api-history.test.ts'],
    [
      [
        'a history has the entries of all accounts',
        'FROM history\n    WHERE account_id = ? AND',
        'FROM history\n    WHERE ? >= 0 AND',
      ],
      [
        'what was seen before is recorded again',
        "(known.get(reference) ?? '') !== digest",
        "known.get(reference) !== ''",
      ],
      ['a page of history repeats its last entry', 'AND id < ? ORDER', 'AND id <= ? ORDER'],
    ],
  ),
];
