import { mutantsOf } from './mutant.ts';

export const database = [
  ...mutantsOf(
    'src/database/row-cache.ts',
    ['test/database/row-cache.test.ts'],
    [
      ['the row cache keeps failed reads', 'if (rows.delete(key) && ', 'if ('],
      ['the row cache ignores the version', 'cached?.version !== version', '!cached'],
      ['a statement does not depend on its tables', 'versions.of(this.#tablesOf(sql))', 'versions.of([])'],
    ],
  ),
  ...mutantsOf(
    'src/database/mysql-database.ts',
    ['test/accounts/tokens.test.ts'],
    [['rows cached with a lag never expire', 'Math.floor(performance.now() / lag)', '0']],
  ),

  ...mutantsOf(
    'src/database/statement-tables.ts',
    ['test/database/statement-tables.test.ts'],
    [
      ['joined tables do not count', '(?:FROM|JOIN)\\s+(\\w+|\\()', '(?:FROM)\\s+(\\w+|\\()'],
      ['a write to joined tables counts as one to the first', 'UPDATE\\s+(\\w+)\\s+SET\\b', 'UPDATE\\s+(\\w+)'],
    ],
  ),
  ...mutantsOf(
    'src/database/transaction-work.ts',
    ['test/api/instances.long.test.ts'],
    [
      [
        'only the first written table is announced',
        'else this.#effects.tables?.add(table);',
        'else if (this.#effects.tables?.size === 0) this.#effects.tables.add(table);',
      ],
    ],
  ),

  ...mutantsOf(
    'src/cache/changes.ts',
    ['test/cache/changes.long.test.ts'],
    [
      ['a version is valid for ever', '`${period} ${all}`', '`${all}`'],
      ['a version of everything is not that of a table', '[this.#all, ...tables', '[...tables'],
      ['other tables lose their versions', 'if not renewed[name] then parts', 'if false then parts'],
      [
        'a read that runs already is shared',
        'await this.#reading;\n    await new Promise((resolve) => setImmediate(resolve));\n    this.#pending = undefined;',
        'await new Promise((resolve) => setImmediate(resolve));',
      ],
      ['an emptied Redis gives the old version', 'await this.#renew();\n      return undefined;', 'return undefined;'],
    ],
  ),
  ...mutantsOf(
    'src/cache/cache.ts',
    ['test/cache/cache.test.ts'],
    [
      [
        'a value of another instance never expires',
        'if (!entry || !this.#isCurrent(entry)) return',
        'if (!entry) return',
      ],
      ['a value in memory never expires', 'entry && this.#isCurrent(entry) ?', 'entry ?'],
      [
        'a value from before the clock was set back stays',
        'from <= now + clockTolerance && now < until',
        'from < Infinity && now < until',
      ],
      ['a large value leaves an old one in Redis', 'else await this.#redis?.delete(key);\n  }', '}'],
      [
        'a deleted value stays in Redis',
        'this.#memory.delete(key);\n    await this.#redis?.delete(key);',
        'this.#memory.delete(key);',
      ],
      ['times to live are seconds', 'until: from + ttl }', 'until: from + ttl * 1000 }'],
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
    ['test/api/history.test.ts'],
    [
      [
        'a history has the entries of all accounts',
        'FROM history\n    WHERE account_id = ? AND',
        'FROM history\n    WHERE ? >= 0 AND',
      ],
      [
        'what was seen before is recorded again',
        "(known.get(reference)?.digest ?? '') !== digest",
        "known.get(reference) !== ''",
      ],
      ['a page of history repeats its last entry', 'AND id < ?\n    ORDER', 'AND id <= ?\n    ORDER'],
    ],
  ),

  ...mutantsOf(
    'src/database/failure.ts',
    ['test/database/failure.test.ts'],
    [
      ['extended codes of SQLite are unknown', 'errcode % 256', 'errcode'],
      ['an error of the work is one of the database', 'if (parent === undefined) return undefined;', ''],
      ['a MySQL that is read-only is a defect', '1290, //', '//'],
      ['a lost connection to MySQL is a defect', ' || networkCodes.has(String(code))', ''],
    ],
  ),
  ...mutantsOf(
    'src/database/time-limits.ts',
    ['test/database/time-limits.long.test.ts'],
    [['background work has the limits of requests', 'return background.run(true, work);', 'return work();']],
  ),
  ...mutantsOf(
    'src/database/mysql-connection.ts',
    ['test/database/time-limits.long.test.ts'],
    [
      [
        'each statement of a transaction has the whole time',
        'until === undefined ? limit() : Math.max(1, until - performance.now())',
        'limit()',
      ],
      [
        'a late statement keeps its connection',
        'connection.destroy();\n        connection.stream.destroy();',
        '',
        'test/http/unreachable-database.long.test.ts',
      ],
      [
        'MariaDB goes on with a statement that is too late',
        'max_statement_time = ${read / 1000}',
        'max_statement_time = 0',
      ],
    ],
  ),
  ...mutantsOf(
    'src/database/mysql-database.ts',
    ['test/http/unreachable-database.long.test.ts'],
    [
      [
        'reads wait behind transactions',
        'return isInBackground() || currentCaller()?.writes ? this.#sequelize : this.#reader;',
        'return this.#sequelize;',
      ],
      ['writers that wait use the connections for reads', ' || currentCaller()?.writes', ''],
      [
        'a new connection has only the time of the work that caused it',
        'await runUntil(until, () => send(sessionSettings(limits, isReader)));',
        'await send(sessionSettings(limits, isReader));',
        'test/database/time-limits.long.test.ts',
      ],
      [
        'background work uses connections with a limit',
        'isInBackground() || ',
        '',
        'test/database/time-limits.long.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/database/probe.ts',
    ['test/cli/doctor.test.ts'],
    [
      ['a check of reads needs only an index', "'NOT INDEXED'", "''"],
      ['a check of reads needs only one table', "firsts.join(' UNION ALL ')", 'firsts[0]!'],
    ],
  ),
  ...mutantsOf(
    'src/database/sqlite-files.ts',
    ['test/http/readiness.test.ts'],
    [
      ['a removed log of SQLite is not noticed', "['', '-wal', '-shm']", "['']"],
      ['a replaced file of SQLite is not noticed', 'found && `${found.dev} ${found.ino}`', "found && 'found'"],
      [
        'a removed file of SQLite is not noticed',
        'if (known === undefined || known === found) continue;',
        'if (known === undefined || found === undefined || known === found) continue;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/database/schema-version.ts',
    ['test/database/migrate.test.ts'],
    [
      ['a prerelease is as new as its release', 'prerelease ? 0 : 1', '1'],
      [
        'versions are compared as text',
        '[Number(major), Number(minor), Number(patch), prerelease ? 0 : 1]',
        '[major, minor, patch, prerelease ? 0 : 1] as never',
      ],
      [
        'the last migration decides the oldest program',
        'if (each.oldestProgram && precedes(oldest, each.oldestProgram))',
        'if (each.oldestProgram)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/database/engine.ts',
    ['test/server/preflight.test.ts'],
    [
      ['an address of several Galera nodes is accepted', 'nodes.size > 1', 'nodes.size > 100'],
      ['no connection is asked for its node', 'const askedConnections = 4;', 'const askedConnections = 0;'],
    ],
  ),
  ...mutantsOf(
    'src/server/preflight.ts',
    ['test/server/preflight.test.ts'],
    [
      ['a clock may differ by a minute', 'clock: 2000,', 'clock: 60_000,'],
      ['a clock that is behind is accepted', 'const size = Math.abs(difference);', 'const size = difference;'],
      ['a running server repeats its warning', 'if (reported.get(subject) === state) return;', ''],
      [
        'dead and later instances refuse a start',
        '(at === -1 ? all : all.slice(0, at)).filter(({ isLive }) => isLive)',
        'all',
        'test/instances/agreement.long.test.ts',
      ],
      ['a Redis of another installation is accepted', "if (claim === 'own') return", 'if (claim) return'],
      [
        'a command may use another storage than the servers while none runs',
        'active !== undefined && active !== place)',
        'active === null)',
        'test/instances/agreement.long.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/cache/redis-owner.ts',
    ['test/server/preflight.test.ts'],
    [
      [
        'another installation is not recognised',
        "if (!found.startsWith(`${this.#installation} `)) return 'other';",
        '',
      ],
      ['a server that ends leaves its mark', "redis.call('DEL', KEYS[1])", ''],
    ],
  ),
  ...mutantsOf(
    'src/instances/agreement.ts',
    ['test/instances/agreement.long.test.ts'],
    [
      [
        'the first of two facts is compared only',
        "['storage', 'secret', 'redis', 'databaseNode'] as const",
        "['storage'] as const",
      ],
      [
        'a copy of a folder counts as the same',
        'return `folder ${identity}.${inode}${',
        'return `folder ${identity}${',
      ],
    ],
  ),
  ...mutantsOf(
    'src/cache/sentinel.ts',
    ['test/cache/sentinel.long.test.ts'],
    [
      ['only the first Sentinel is asked', 'of sentinels) {', 'of sentinels.slice(0, 1)) {'],
      ['the password of Redis ends at a colon', 'user?.split(/:(.*)/s, 2)', "user?.split(':')"],
    ],
  ),
];
