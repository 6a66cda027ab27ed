import { mutantsOf } from './mutant.ts';

export const mirror = [
  ...mutantsOf(
    'src/mirror/store/entries.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      ['an entry that was used here is evicted', 'this.#used.has(id) || ', ''],
      ['an entry that was used elsewhere is evicted', 'id = ? AND used_at = ?', 'id = ? AND ? > 0'],
    ],
  ),
  ...mutantsOf(
    'src/mirror/store/eviction.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      ['shared content is freed by its first entry', 'if (row.last === 1) total -=', 'total -='],
      ['eviction drops a whole page', 'if (total <= maxSize) break;', ''],
    ],
  ),
  ...mutantsOf(
    'src/mirror/fetch/flight.ts',
    ['test/mirror/flights.test.ts'],
    [
      ['a fetch without readers leaves its file open', 'if (this.#readers === 0) this.#intake?.tail.close();', ''],
      [
        'the last reader leaves the file open',
        'if (this.#readers === 0 && this.#over) this.#intake?.tail.close();\n    else',
        '',
      ],
      [
        'a complete body is stopped when its readers have left',
        'this.#isComplete = true;',
        '',
        'test/mirror/slow-upstreams.test.ts',
      ],
    ],
  ),

  ...mutantsOf(
    'src/mirror/fetch/resource.ts',
    ['test/mirror/freshness.test.ts'],
    [
      [
        'stale entries are served for ever',
        ' || now < validatedAt + lifetime.freshFor + lifetime.staleFor',
        ' || validatedAt > 0',
      ],
    ],
  ),
  ...mutantsOf(
    'src/mirror/mirror.ts',
    ['test/mirror/freshness.test.ts'],
    [
      ['offline serves only what is fresh', 'isOffline || ', ''],
      ['a hang is forgotten', 'if (isFailure && isHang) this', 'if (isFailure && isHang && !key) this'],
      ['an upstream that failed at once counts as hung', 'flight.age >= idle * hangShare', 'flight.age >= 0'],
      [
        'an entry without its blob stays',
        'await entries.forget(id, error.metadata);',
        'if (entries === undefined) continue;\n        throw error;',
      ],
      [
        'a negative answer is not cached',
        'const absence = await entries.absence(id);',
        'const absence = undefined as true | undefined;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/mirror/fetch/tail.ts',
    ['test/mirror/flights.test.ts'],
    [
      ['the last byte is not held back', 'this.received - 1', 'this.received'],
      [
        'the first bytes come one by one',
        'const firstBytes = 16 * 1024;',
        'const firstBytes = 0;',
        'test/mirror/tail.test.ts',
      ],
      [
        'a reader waits for its first bytes for ever',
        'performance.now() < reader.firstUntil ?',
        'reader.firstUntil > 0 ?',
        'test/mirror/tail.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/mirror/fetch/partials.ts',
    ['test/mirror/partials.test.ts'],
    [['any number of beginnings is kept', 'this.#kept.size <= maxKept', 'this.#kept.size > 0']],
  ),
  ...mutantsOf(
    'src/mirror/fetch/fetch-places.ts',
    ['test/http/hostile-clients.long.test.ts'],
    [['accounts share their slots', 'this.#semaphore.take(account, {', "this.#semaphore.take('', {"]],
  ),
  ...mutantsOf(
    'src/mirror/policy/upstream-policy.ts',
    ['test/nuget/feed/mirror-precedence.test.ts'],
    [
      ['a reserved name is sent upstream', 'if (names.some(this.#isReserved)) return [];', ''],
      ['an excluded name is sent upstream', ' && !names.some(excluded)', '', 'test/oci/http/mirror-push.test.ts'],
      ['an upstream is asked for names that it does not include', 'names.some(included) && ', ''],
    ],
  ),
  ...mutantsOf(
    'src/mirror/overview.ts',
    ['test/api/upstreams.test.ts'],
    [
      ['the entries of another upstream are shown', 'WHERE id = ? AND upstream = ?`', "WHERE id = ? AND ? <> ''`"],
      [
        'a filter by name finds all later names',
        "prefix === '' ? '' : 'AND name < ?'",
        "prefix === '' ? '' : 'AND ? > 0'",
      ],
      ['a page of entries begins with the last of the page before', 'name > ? OR id > ?', 'name > ? OR id >= ?'],
    ],
  ),
  ...mutantsOf(
    'src/mirror/store/totals.ts',
    ['test/api/upstreams.test.ts'],
    [
      ['a shared content counts for each entry', 'MAX(size_bytes) AS bytes', 'SUM(size_bytes) AS bytes'],
      ['content named by its digest gets too old', ' AND NOT ${isDigest}', ''],
    ],
  ),
  ...mutantsOf(
    'src/metrics/upstreams.ts',
    ['test/metrics/upstreams.test.ts'],
    [['a process that has ended keeps its breaker open', 'processes: 0, open: 0', 'processes: 0']],
  ),
];
