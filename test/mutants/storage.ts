import { mutantsOf } from './mutant.ts';

const durability = ['test/storage/blobs/durability.test.ts'];

export const storage = [
  ...mutantsOf(
    'src/storage/upkeep/collector.ts',
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
  ...mutantsOf('src/storage/drivers/filesystem.ts', durability, [
    ['a put does not sync the file', 'await staged.sync();', ''],
    ['a put does not sync the folder', 'await syncPath(folder);', ''],
    ['a put does not sync new parent folders', 'await syncPath(dirname(each));', ''],
    ['a put leaves a torn file in place', '))?.size !== staged.size) await rename', ')) === undefined) await rename'],
    ['a copy is not synced', 'await file.datasync();', ''],
  ]),

  ...mutantsOf(
    'src/storage/drivers/filesystem.ts',
    ['test/storage/drivers/filesystem-driver.test.ts'],
    [
      [
        'bytes that were replaced are quarantined',
        'if ((await this.stat(digest))?.version !== version) return false;',
        '',
      ],
      ['a put copies bytes that are there', '))?.size !== staged.size) await this', ')) !== null) await this'],
      ['deleting what is not there fails', 'if (!isMissing(error)) throw error;\n    });', 'throw error;\n    });'],
      [
        'any error means that the file is missing',
        'if (!isMissing(error)) throw error;\n      throw new DomainError',
        'throw new DomainError',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/append.ts',
    ['test/storage/files/staged-file.test.ts'],
    [
      ['the source is never paused', 'if (this.#pendingBytes >= highWater) this.#source.pause();\n    else ', ''],
      ['other work waits for all bodies that arrive', '    else this.#giveWay();\n', ''],
      [
        'bytes before a cut are dropped',
        'const enough = this.#hasEnded ? 1',
        'const enough = this.#hasEnded && !this.#failure ? 1',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/staged-file.ts',
    ['test/storage/files/staged-file.test.ts'],
    [
      ['a reopened file keeps bytes that were not recorded', 'await handle.truncate(size);', ''],
      [
        'a reopened file may be shorter than recorded',
        "if ((await handle.stat()).size < size) throw new Error('shorter than recorded');",
        '',
      ],
      ['an old writer writes to the new file', 'await rename(copy, path);', ''],
      ['a copy of another writer is removed', 'own.ino === found.ino && own.dev === found.dev', 'own.ino > 0n'],
      ['a discarded file stays', 'await unlink(this.path)', 'await Promise.resolve()'],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/blob-reservations.ts',
    ['test/storage/blobs/commit-faults.test.ts'],
    [
      ['a row that is being deleted becomes live', " AND state <> 'deleting'`", '`'],
      [
        'a row of another push becomes live',
        'WHERE digest = ? AND generation = ? AND state',
        'WHERE digest = ? AND ? >= 0 AND state',
      ],
      [
        'a push does not wait for a deletion',
        "if (state === 'deleting' || (!isNew && isAwaited(row))) {\n          rest.push(digest);\n          continue;\n        }",
        "if (state === 'deleting') continue;",
      ],
      ['a push does not wait for the put of another instance', 'awaitPuts && state', 'false && state'],
      ['a push waits for a killed one for ever', '< putTime(size)', '< Number.POSITIVE_INFINITY'],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/blob-store.ts',
    ['test/storage/blobs/commit-faults.test.ts'],
    [['a push to a folder waits for another one', 'isFirst && this.#driver.isRemote', 'isFirst']],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/early-upload.ts',
    ['test/storage/drivers/s3/early.test.ts', 'test/storage/drivers/s3/early.long.test.ts'],
    [
      ['S3 gets the last byte before the put', 'Math.min(staged.size, size - 1)', 'staged.size'],
      ['a slow PUT is not given up', 'this.#sent < size / partsAtOnce', 'false'],
      ['stored bytes are sent again', 'if ((await this.#bucket.head(this.#key))?.size === size) return false;', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/upload.ts',
    ['test/storage/drivers/s3/early.long.test.ts', 'test/storage/drivers/s3/faults.long.test.ts'],
    [['the reason why a body cannot be read is lost', 'throw unreadable ? unreadable.error : error;', 'throw error;']],
  ),
  ...mutantsOf(
    'src/storage/drivers/s3/s3-driver.ts',
    ['test/storage/drivers/s3/early.test.ts'],
    [
      ['the end of one early put is that of the next', 'if (this.#early.get(staged) === early) ', ''],
      ['nothing is sent early', 'early && (await early.finish())', 'early && !early'],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/removal.ts',
    ['test/storage/blobs/commit-faults.test.ts'],
    [
      ['a slow process deletes bytes that were put again', 'if (sinceMark() >= beginWithin) break;', ''],
      [
        'a deletion is repeated at any time',
        '< takeOverAfter / 2',
        '< Infinity',
        'test/storage/drivers/s3/late-deletion.test.ts',
      ],
      [
        'a row that was taken over is removed',
        '\n    AND generation IN (${placeholders(rows)})`',
        '\n    AND ? >= 0`',
        'test/storage/upkeep/collector-faults.long.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/states.ts',
    ['test/storage/blobs/commit-faults.test.ts'],
    [
      [
        'two processes take over one deletion',
        "digest = ? AND generation = ? AND state = 'deleting'",
        "digest = ? AND ? >= 0 AND state = 'deleting'",
      ],
      ['deletions are taken over at once', '>= takeOverAfter', '>= 0'],
      [
        'a deletion is taken over from a process that is only silent',
        'known.isExact ? 0 : 2 * beginWithin',
        '0',
        'test/jobs/ended-processes.test.ts',
      ],
      [
        'a deletion that an ended process has left waits',
        '|| left.has(digest)',
        '',
        'test/jobs/ended-processes.test.ts',
      ],
      [
        'a deletion is taken over from an older version that goes on with it',
        'AND deleted_generation = generation ',
        '',
        'test/jobs/ended-processes.test.ts',
      ],
      [
        'a blob that is pending can be mounted',
        "WHERE digest = ? AND state = 'live'\", [now",
        "WHERE digest = ? AND state <> 'deleting'\", [now",
        'test/oci/http/lists.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/blob-store.ts',
    ['test/storage/blobs/commit-faults.test.ts'],
    [
      ['a failed push leaves its bytes', 'await this.#takeBack(announced).catch(() => undefined);', ''],
      ['a live row without bytes is not healed', 'if (stored?.size === size) {', "if (state === 'live') {"],
    ],
  ),
  ...mutantsOf(
    'src/storage/upkeep/scrub.ts',
    ['test/storage/upkeep/scrub.test.ts'],
    [
      ['an interrupted scrub begins again', 'await this.#save(after);\n      throw error;', 'throw error;'],
      [
        'a scrub never begins again',
        "DELETE FROM storage_cursors WHERE name = 'scrub'",
        "DELETE FROM storage_cursors WHERE name = 'none'",
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/check-stored.ts',
    ['test/storage/upkeep/scrub.test.ts'],
    [
      ['corrupt bytes are sound', "? 'sound' : 'damaged'", "? 'sound' : 'sound'"],
      [
        'a bad part of the disk stops a check',
        "=== 'EIO') return undefined;",
        "=== 'EIO') throw error;",
        'test/storage/blobs/damage.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/blobs/damage.ts',
    ['test/storage/upkeep/scrub.test.ts'],
    [
      [
        'a blob with another size is sound',
        'if (stored.size === size) {',
        'if (stored.size !== size) return undefined;\n    {',
      ],
      [
        'an unneeded damaged blob keeps its row',
        "else await tx.run('DELETE FROM blobs WHERE digest = ?', [digest]);",
        '',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/drivers/small-blobs.ts',
    ['test/storage/drivers/small-blobs.test.ts'],
    [
      ['a small blob keeps the memory of other buffers', 'ownBytes(await readAll(', '(await readAll('],
      [
        'memory hides a damage',
        'if (stored?.size === kept.bytes.length && stored.version === kept.version) return true;',
        'return true;',
      ],
      ['the storage is asked for each read from memory', 'kept.checkedAt = this.#watch();', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/permissions.ts',
    ['test/storage/files/permissions.test.ts'],
    [
      ['the modes of existing files stay', 'await chmod(path, mode & owner);', ''],
      ['a new database is readable by others', "{ flag: 'wx', mode: 0o600 }", "{ flag: 'wx', mode: 0o644 }"],
    ],
  ),

  ...mutantsOf(
    'src/storage/blobs/damage.ts',
    ['test/storage/blobs/damage.test.ts'],
    [
      [
        'a file that is missing for a request removes its entries',
        'if (!keep) await this.#forget',
        'await this.#forget',
        'test/oci/http/damaged.test.ts',
      ],
      [
        'a blob that was replaced while it was read loses its entries',
        'if (!(await move())) throw replaced;',
        'await move();',
      ],
      [
        'a blob that was stored again is missing',
        ' || (await this.#driver.stat(digest))) return undefined;',
        ') return undefined;',
      ],
      [
        'a push does not notice that its bytes were quarantined',
        "await tx.run('UPDATE blobs SET generation = ? WHERE digest = ?', [newGeneration(), digest]);",
        'return;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/disk.ts',
    ['test/http/full-disk.long.test.ts'],
    [
      [
        'a failed write leaves a part of its bytes',
        'if ((await handle.stat()).isFile()) await handle.truncate(position);',
        '',
      ],
      [
        'a device is truncated',
        'if ((await handle.stat()).isFile()) await',
        'await',
        'test/storage/files/staged-file.test.ts',
      ],
      ['a short write loses bytes', 'rest = after(rest, written);', 'rest = [];'],
      ['a quota of the disk is a defect', "'EDQUOT',", "'QUOTA',"],
      ['a full MySQL is a defect', ' || mysqlFull.has(errno)', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/disk-reserve.ts',
    ['test/storage/files/disk-reserve.test.ts'],
    [
      [
        'writes in progress do not count',
        'return (await this.#freeBytes()) - this.#writing;',
        'return this.#freeBytes();',
      ],
      [
        'announced upstream content refuses pushes',
        'if (unused - bytes < this.#reserve)',
        'if (unused - this.#expected - bytes < this.#reserve)',
      ],
      ['a disk at its reserve is reported again and again', '1 + margin', '1'],
      ['bytes that have arrived stay expected', 'this.#expected += rest - counted;', ''],
      ['upstream content that is not kept may use no reserve', '>= this.#reserve / 2', '>= this.#reserve'],
    ],
  ),
  ...mutantsOf(
    'src/storage/files/overflow.ts',
    ['test/mirror/bodies.test.ts'],
    [
      ['the memory of an overflow is not freed', 'this.#memory.left += length;', 'void length;'],
      ['an overflow has no bound', 'if (bytes.length > this.#memory.left) {', 'if (bytes.length < 0) {'],
      ['an overflow is freed while it is read', 'if (this.#users > 0) return;', ''],
    ],
  ),
  ...mutantsOf(
    'src/storage/upkeep/identity.ts',
    ['test/storage/upkeep/identity.long.test.ts'],
    [
      ['a second instance writes to another storage', 'if (!isOwn) row = await awaitWriter(database, row);', ''],
      [
        'an empty database meets a storage with content',
        "if (row.state !== 'adopted') await refuseEmptyDatabase(database, driver);",
        "if (row.state !== 'adopted') await Promise.resolve();",
      ],
      [
        'an adopted database may lose its rows later',
        "if (row.state !== 'paired') await setState(database, row.identity, 'paired');",
        '',
      ],
      [
        'a push of another instance looks like an unknown file',
        'if (await hasRows(database)) return;\n  throw',
        'throw',
      ],
      [
        'adopting keeps the identity of the storage',
        'writeIdentity(row.identity, true)',
        'writeIdentity(row.identity)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/storage/upkeep/files-without-row.ts',
    ['test/storage/upkeep/files-without-row.test.ts'],
    [
      ['files with a row are shown', '!known.has(digest)', 'digest !== undefined'],
      [
        'the file of a push that has just begun is deleted',
        "if ((await tx.insertNew('blobs', [{ ...row, stored_at: 0 }])) > 0) rows.push(row);",
        "await tx.insertNew('blobs', [{ ...row, stored_at: 0 }]);\n        rows.push(row);",
      ],
      ['a failed deletion is not reported', 'if (failures.length > 0) throw failures[0];', ''],
    ],
  ),
];
