import { mutantsOf } from './mutant.ts';

export const accounts = [
  ...mutantsOf(
    'src/accounts/tokens.ts',
    ['test/accounts/tokens.test.ts'],
    [
      ['a revocation takes 30 s to reach other instances', 'const lag = 200;', 'const lag = 30_000;'],
      ['times of use are lost after a failed flush', 'this.#used.set(id, Math.max(at, this.#used.get(id) ?? 0));', ''],
      ['a failed flush sets times of use back', 'Math.max(at, this.#used.get(id) ?? 0)', 'at'],
    ],
  ),
];
