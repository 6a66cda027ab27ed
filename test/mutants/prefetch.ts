import { mutantsOf } from './mutant.ts';

export const prefetch = [
  ...mutantsOf(
    'src/prefetch/gate.ts',
    ['test/prefetch/images.test.ts'],
    [
      ['a prefetch leaves the share instead of using it', 'Number(limit) * share)', 'Number(limit) * (1 - share))'],
      ['a prefetch uses one request more than its share', '< Number(limit) * share', '<= Number(limit) * share'],
    ],
  ),
];
