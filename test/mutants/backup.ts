import { mutantsOf } from './mutant.ts';

export const backup = [
  ...mutantsOf(
    'src/storage/holds.ts',
    ['test/storage/holds.test.ts'],
    [
      ['a hold never expires', 'LIMIT 1`;\n  return', 'OR 1 = 1 LIMIT 1`;\n  return'],
      ['a hold that has expired is renewed', ' AND expires_at > ${time}`', '`'],
      ['a hold is not renewed', 'hold.#renewing ??= hold.#renew()', 'hold.#renewing ??= Promise.resolve()'],
    ],
  ),
  ...mutantsOf(
    'src/storage/collector.ts',
    ['test/storage/holds.test.ts'],
    [['the collector does not check holds when it marks', 'return (await isHeld(tx)) ? [] : free;', 'return free;']],
  ),
  ...mutantsOf(
    'src/backup/check.ts',
    ['test/backup/hostile.test.ts'],
    [
      [
        'rows are not compared with the manifest',
        'file.size !== bytes || (await file.digest()) !== digest',
        'file.size !== bytes',
      ],
      ['a blob of another size is taken', 'if (next.size !== size)', 'if (next.size < 0)'],
      [
        'members after the manifest are read',
        'if (this.#manifest) throw',
        'if (this.#manifest && member.size < 0) throw',
      ],
    ],
  ),
  ...mutantsOf(
    'src/backup/rows.ts',
    ['test/backup/rows.test.ts'],
    [['the last row of a page is dumped again', '`(${each})`);\n', '`(${each})`).slice(1);\n']],
  ),
  ...mutantsOf(
    'src/backup/restore.ts',
    ['test/backup/killed.test.ts'],
    [['a second restore keeps the rows of the first', 'if (!isSecond) return;', 'if (isSecond) return;']],
  ),
];
