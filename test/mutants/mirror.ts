import { mutantsOf } from './mutant.ts';

export const mirror = [
  ...mutantsOf(
    'src/mirror/entries.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      ['an entry that was used here is evicted', '!this.#used.has(id) && ', ''],
      ['an entry that was used elsewhere is evicted', 'id = ? AND used_at = ?', 'id = ? AND ? > 0'],
    ],
  ),
  ...mutantsOf(
    'src/mirror/eviction.ts',
    ['test/jobs/upkeep.test.ts'],
    [
      ['shared content is freed by its first entry', 'if (row.last === 1) total -=', 'total -='],
      ['eviction drops a whole page', 'if (total <= maxSize) break;', ''],
    ],
  ),
  ...mutantsOf(
    'src/mirror/flight.ts',
    ['test/mirror/flights.test.ts'],
    [
      ['a fetch without readers leaves its file open', 'if (this.#readers === 0) this.#intake?.tail.close();', ''],
      [
        'the last reader leaves the file open',
        'if (this.#readers === 0 && this.#over) this.#intake?.tail.close();\n    else',
        '',
      ],
    ],
  ),
];
