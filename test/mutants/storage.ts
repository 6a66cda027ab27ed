import { mutantsOf } from './mutant.ts';

const durability = ['test/storage/durability.test.ts'];

export const storage = [
  ...mutantsOf(
    'src/storage/collector.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      [
        'the collector does not check references again',
        "AND state <> 'deleting' AND ${isOld} AND NOT ${this.#references.isReferenced}`",
        "AND state <> 'deleting' AND ${isOld}`",
      ],
    ],
  ),
  ...mutantsOf('src/storage/filesystem.ts', durability, [
    ['a put does not sync the file', 'await staged.sync();', ''],
    ['a put does not sync the folder', 'await syncFolder(folder);', ''],
    ['a put does not sync new parent folders', 'await syncFolder(dirname(each));', ''],
    ['a put leaves a torn file in place', '))?.size !== staged.size', ')) === undefined'],
    ['a copy is not synced', 'await file.datasync();', ''],
  ]),
];
