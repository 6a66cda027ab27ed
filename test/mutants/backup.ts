import { mutantsOf } from './mutant.ts';

export const backup = [
  ...mutantsOf(
    'src/storage/holds.ts',
    ['test/storage/holds.test.ts'],
    [
      ['a hold never expires', 'expires_at > ${now[from.dialect]} LIMIT 1', 'expires_at > 0 LIMIT 1'],
      ['a hold that has expired is renewed', ' AND expires_at > ${time}`', '`'],
      ['a hold is not renewed', 'hold.#renew().finally', 'Promise.resolve().finally'],
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
      ['rows are not compared with the manifest', ' || (await file.digest()) !== digest', ''],
      ['a blob of another size is taken', 'if (next.size !== size)', 'if (next.size < 0)'],
      [
        'members after the manifest are read',
        'if (this.#manifest) throw',
        'if (this.#manifest && member.size < 0) throw',
      ],
    ],
  ),
  ...mutantsOf(
    'src/database/tables.ts',
    ['test/backup/rows.test.ts'],
    [['the last row of a page is read again', '`${column} > ?`', '`${column} >= ?`']],
  ),
  ...mutantsOf(
    'src/backup/restore.ts',
    ['test/backup/killed.test.ts'],
    [['a second restore keeps the rows of the first', 'if (!isSecond) return;', 'if (isSecond) return;']],
  ),
];
