import { mutantsOf } from './mutant.ts';

export const backup = [
  ...mutantsOf(
    'src/storage/upkeep/collection-pause.ts',
    ['test/storage/upkeep/collection-pause.test.ts'],
    [
      ['a hold never expires', 'expires_at > ${now[from.dialect]} LIMIT 1', 'expires_at > 0 LIMIT 1'],
      ['a hold that has expired is renewed', ' AND expires_at > ${time}`', '`'],
      ['a hold is not renewed', 'hold.#renew().finally', 'Promise.resolve().finally'],
    ],
  ),
  ...mutantsOf(
    'src/storage/upkeep/collector.ts',
    ['test/storage/upkeep/collection-pause.test.ts'],
    [['the collector does not check holds when it marks', 'return (await isHeld(tx)) ? [] : free;', 'return free;']],
  ),
  ...mutantsOf(
    'src/backup/check.ts',
    ['test/backup/hostile.long.test.ts'],
    [
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
    ['test/backup/verify.long.test.ts'],
    [['a blob that is still being stored is in a backup', `blobs: "state = 'live'",`, `blobs: "state <> ''",`]],
  ),
  ...mutantsOf(
    'src/backup/folder.ts',
    ['test/backup/hostile.long.test.ts'],
    [
      [
        'a link among the rows is followed',
        'const found = await lstat(file).catch(() => undefined);\n  if (found?.isFile()) yield',
        'const found = await stat(file).catch(() => undefined);\n  if (found?.isFile()) yield',
      ],
    ],
  ),
  ...mutantsOf(
    'src/backup/folder.ts',
    ['test/backup/other.long.test.ts', 'test/backup/damaged.long.test.ts'],
    [
      [
        'a backup of another installation is replaced',
        'else if (earlier.installation !== installation) throw',
        'else if (installation === undefined) throw',
      ],
      [
        'a damaged blob of the same size stays',
        'if (this.#damaged.delete(digest)) await this.#driver.delete(digest);',
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/server/command-place.ts',
    ['test/cli/other-user.test.ts'],
    [
      ['root may use the folder of another user', 'if (own === 0) {', 'if (own === 1) {'],
      ['root makes a folder in that of another user', 'own === 0 && makes', 'own === 1 && makes'],
    ],
  ),
  ...mutantsOf(
    'src/database/tables.ts',
    ['test/backup/rows.test.ts'],
    [['the last row of a page is read again', '`${column} > ?`', '`${column} >= ?`']],
  ),
];
