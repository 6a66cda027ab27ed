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
    'src/database/database.ts',
    ['test/accounts/tokens.test.ts'],
    [['rows cached with a lag never expire', ' ${Math.floor(performance.now() / lag)}', '']],
  ),
];
