import { mutantsOf } from './mutant.ts';

const durability = ['test/storage/durability.test.ts'];

export const storage = [
  ...mutantsOf(
    'src/storage/collector.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      [
        'the collector does not check the age again',
        "AND state <> 'deleting' AND ${isOld} AND NOT ${this.#references.isReferenced}`,\n      [...digestsOf(locked), ...limits]",
        "AND state <> 'deleting' AND NOT ${this.#references.isReferenced}`,\n      [...digestsOf(locked)]",
      ],
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

  ...mutantsOf(
    'src/storage/filesystem.ts',
    ['test/storage/filesystem-driver.test.ts'],
    [
      [
        'bytes that were replaced are quarantined',
        'if ((await this.stat(digest))?.version !== version) return false;',
        '',
      ],
      ['deleting what is not there fails', 'if (!isMissing(error)) throw error;\n    });', 'throw error;\n    });'],
      ['a list ignores its prefix', '.filter((digest) => digest.startsWith(prefix))', ''],
      [
        'any error means that the file is missing',
        'if (!isMissing(error)) throw error;\n      throw new DomainError',
        'throw new DomainError',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/append.ts',
    ['test/storage/staged-file.test.ts'],
    [
      ['a body of exactly the limit is refused', 'chunk.length > limit', 'chunk.length >= limit'],
      ['the source is never paused', 'if (this.#pendingBytes >= highWater) this.#source.pause();', ''],
      ['a silent source is waited for', 'source.destroy();\n        this.#stop(error);', ''],
      [
        'bytes before a cut are dropped',
        'const enough = this.#hasEnded ? 1',
        'const enough = this.#hasEnded && !this.#failure ? 1',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/staged-file.ts',
    ['test/storage/staged-file.test.ts'],
    [
      ['a reopened file keeps bytes that were not recorded', 'await handle.truncate(size);', ''],
      [
        'a reopened file may be shorter than recorded',
        "if ((await handle.stat()).size < size) throw new Error('shorter than recorded');",
        '',
      ],
      ['an old writer writes to the new file', 'await rename(copy, path);', ''],
      ['a discarded file stays', 'await unlink(this.path)', 'await Promise.resolve()'],
    ],
  ),
  ...mutantsOf(
    'src/storage/pending.ts',
    ['test/storage/commit-faults.test.ts'],
    [
      ['a row that is being deleted becomes live', " AND state <> 'deleting'`", '`'],
      [
        'a row of another push becomes live',
        'WHERE digest = ? AND generation = ? AND state',
        'WHERE digest = ? AND ? >= 0 AND state',
      ],
      [
        'a push does not wait for a deletion',
        "if (state === 'deleting') rest.push(digest);",
        "if (state === 'deleting' && rest.length < 0) rest.push(digest);",
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/removal.ts',
    ['test/storage/commit-faults.test.ts'],
    [
      ['a slow process deletes bytes that were put again', 'if (watch() - markedAt >= beginWithin) break;', ''],
      [
        'a row that was taken over is removed',
        '\n    AND generation IN (${placeholders(rows)})`',
        '\n    AND ? >= 0`',
        'test/storage/collector-faults.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/states.ts',
    ['test/storage/commit-faults.test.ts'],
    [
      [
        'two processes take over one deletion',
        "digest = ? AND generation = ? AND state = 'deleting'",
        "digest = ? AND ? >= 0 AND state = 'deleting'",
      ],
      ['deletions are taken over at once', '>= this.#times.takeOverAfter', '>= 0'],
      [
        'a blob that is pending can be mounted',
        "WHERE digest = ? AND state = 'live'\", [now",
        "WHERE digest = ? AND state <> 'deleting'\", [now",
        'test/http/registry-lists.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/blob-store.ts',
    ['test/storage/commit-faults.test.ts'],
    [
      ['a failed push leaves its bytes', 'await this.#takeBack(announced).catch(() => undefined);', ''],
      [
        'a live row without bytes is not healed',
        "state === 'live' && (await this.#driver.stat(digest))?.size === size",
        "state === 'live'",
      ],
      [
        'staged files stay after a commit',
        'for (const { staged } of arrivals) await staged.discard();',
        '',
        'test/storage/blob-store.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/scrub.ts',
    ['test/storage/scrub.test.ts'],
    [
      ['an interrupted scrub begins again', 'await this.#save(after);\n      throw error;', 'throw error;'],
      [
        'a scrub never begins again',
        "DELETE FROM storage_cursors WHERE name = 'scrub'",
        "DELETE FROM storage_cursors WHERE name = 'none'",
      ],
      ['corrupt bytes are sound', '}` === digest;\n}', '}` !== undefined;\n}'],
      ['a blob with another size is sound', 'stored.size === size', 'stored.size !== size'],
      [
        'an unneeded damaged blob keeps its row',
        "else await tx.run('DELETE FROM blobs WHERE digest = ?', [digest]);",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/small-blobs.ts',
    ['test/storage/small-blobs.test.ts'],
    [['damaged bytes are cached', 'if (digestOf(bytes, algorithmOf(digest)) === digest) this', 'this']],
  ),
  ...mutantsOf(
    'src/storage/permissions.ts',
    ['test/storage/permissions.test.ts'],
    [
      ['the modes of existing files stay', 'await chmod(path, mode & owner);', ''],
      ['the mode of a shared folder changes', '|| (mode & sticky) !== 0 ', ''],
      ['a new database is readable by others', "{ flag: 'wx', mode: 0o600 }", "{ flag: 'wx', mode: 0o644 }"],
    ],
  ),
];
