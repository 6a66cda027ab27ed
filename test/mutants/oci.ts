import { mutantsOf } from './mutant.ts';

export const oci = [
  ...mutantsOf(
    'src/oci/http/routes.ts',
    ['test/http/limits.test.ts'],
    [
      ['PATCH of an upload ignores the limits', 'PATCH: storing(', "PATCH: changing('write', "],
      [
        'the PUT of a manifest ignores the limits',
        'PUT: pushing(content.putManifest)',
        "PUT: changing('write', content.putManifest)",
      ],
      ['the PUT of an upload ignores the limits', 'PUT: storing(upload', "PUT: changing('write', upload"],
      ['POST of an upload ignores the limits', 'POST: pushing(', "POST: changing('write', "],
    ],
  ),
  ...mutantsOf(
    'src/upstream/next-page.ts',
    ['test/upstream/next-page.test.ts'],
    [['a list is followed to another origin', 'const page = new URL(url);', 'const page = following;']],
  ),
  ...mutantsOf(
    'src/oci/mirrored/upstream-lists.ts',
    ['test/oci/http/mirror-lists.test.ts'],
    [
      [
        'the pages of a list may take any time',
        'performance.now() - startedAt > time',
        'time < 0',
        'test/oci/http/mirror-slow-lists.test.ts',
      ],
      [
        'a list of many pages has the time of one of few',
        'pages * pageTime)',
        '0 * pageTime)',
        'test/oci/http/mirror-slow-lists.test.ts',
      ],
      ['a list has any number of pages', 'pages === pagesLimit', 'pages < 0'],
      ['a list has any number of items', 'items > itemsLimit[field]', 'items < 0'],
      ['a list has any size', 'bytes > listLimit', 'bytes < 0'],
    ],
  ),
  ...mutantsOf(
    'src/oci/http/content-routes.ts',
    ['test/oci/http/manifests.test.ts'],
    [['a push has any number of tags', 'tags.length > maxPushedTags', 'tags.length < 0']],
  ),
  ...mutantsOf(
    'src/oci/format/manifest.ts',
    ['test/oci/http/turns.long.test.ts', 'test/oci/http/manifests.test.ts'],
    [
      ['a manifest has any number of entries', 'value.length > most)', 'value.length < 0)'],
      ['a manifest has any number of values', 'hasMoreValues(bytes, maxValues)', 'bytes.length < 0'],
    ],
  ),
  ...mutantsOf(
    'src/oci/uploads/upload-lease.ts',
    ['test/oci/http/upload-writers.test.ts'],
    [
      ['the file of a killed writer is not detached', 'torn ELSE 1 END', 'torn ELSE 0 END'],
      [
        'a lease is taken from a live writer',
        'writer_until <= ?$',
        'writer_until > 0 OR ? < 0$',
        'test/oci/http/uploads.test.ts',
      ],
      [
        'a writer without the lease uses the file',
        'if (row?.writer !== this.row.writer) throw',
        'if (row === undefined) throw',
      ],
      [
        'a lease that was lost is released',
        'writer_until = NULL, updated_at = ?\n         WHERE id = ? AND writer = ?',
        'writer_until = NULL, updated_at = ?\n         WHERE id = ? AND ? IS NOT NULL',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/uploads/uploads.ts',
    ['test/oci/http/uploads.test.ts'],
    [
      [
        'a wrong digest ends the session of another writer',
        'await this.#database.transaction((tx) => lease.end(tx)).catch(() => undefined);',
        'await this.#drop(key.id).catch(() => undefined);',
        'test/oci/http/upload-writers.test.ts',
      ],
      ['every writer is stopped', 'writer.lastDataAt >= silentLimit', 'writer.lastDataAt >= 0'],
      [
        'a session that is used is removed',
        'id = ? AND updated_at < ?',
        'id = ? AND ? > 0',
        'test/jobs/rechecks.test.ts',
      ],
      ['a chunk is not synced', 'await staged.sync();', '', 'test/storage/blobs/durability.test.ts'],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/retention.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      [
        'retention does not check a manifest again',
        'WHERE m.id = ? AND COALESCE(m.untagged_at, m.pushed_at) < ? AND ${isUnused}',
        'WHERE m.id = ? AND ? > 0',
      ],
      [
        'retention does not check the age again',
        'WHERE m.id = ? AND COALESCE(m.untagged_at, m.pushed_at) < ? AND',
        'WHERE m.id = ? AND ? > 0 AND',
      ],
    ],
  ),

  ...mutantsOf(
    'src/oci/hosted/image-blobs.ts',
    ['test/oci/http/auth.test.ts'],
    [
      [
        'a blob of another account is readable',
        'WHERE r.account_id = ? AND r.name = ?`;',
        'WHERE ? > 0 AND r.name = ?`;',
      ],
      [
        'a blob of another account is mounted',
        'rb.digest = ? AND r.account_id = ? ${among',
        'rb.digest = ? AND ? > 0 ${among',
        'test/oci/http/lists.test.ts',
      ],
      [
        'a mount ignores the repository that it names',
        '`${source} AND r.name = ?`, [...values, from]',
        '`${source} LIMIT 1`, values',
        'test/oci/http/lists.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/manifests.ts',
    ['test/oci/http/manifests.test.ts'],
    [
      ['an image may lack a layer', 'if (missing.length > 0) throw manifestBlobUnknown(missing);', ''],
      ['the digest in the request is not verified', 'if (digest) verifyDigest(bytes, digest);', ''],
      [
        'manifests of other accounts are found by digest',
        'm.digest = ? WHERE r.account_id = ? AND r.name = ?`',
        'm.digest = ? WHERE ? > 0 AND r.name = ?`',
        'test/oci/http/auth.test.ts',
      ],
      [
        'manifests of other accounts are found by tag',
        'm.digest = t.digest WHERE r.account_id = ?',
        'm.digest = t.digest WHERE ? > 0',
        'test/oci/http/auth.test.ts',
      ],
      [
        'a tag that moves leaves its manifest in use',
        'await noteUntagged(tx, repositoryId, tags, now);',
        '',
        'test/jobs/upkeep.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/manifest-deletion.ts',
    ['test/oci/http/sparse-index.test.ts'],
    [
      [
        'the size of an index does not follow its images',
        'if (bytes === 0) return;',
        'if (bytes === 0 || bytes !== 0) return;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/catalog/hosted-images.ts',
    ['test/oci/http/counts.test.ts'],
    [
      [
        'SQLite reads all manifests for each one',
        '(SELECT 1 FROM manifest_references f CROSS',
        '(SELECT 1 FROM manifest_references f',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/repository-counts.ts',
    ['test/oci/http/counts.test.ts'],
    [
      ['wrong counts stay', 'if (!row || !isWrong(row)) return;', 'if (row) return;'],
      ['a manifest that is a blob too counts twice', 'digest])) !== undefined', 'digest])) === null'],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/kept-images.ts',
    ['test/permanence/rules.test.ts'],
    [['a part of a kept image is deleted', 'for (const parent of parents) seen.add(parent.digest);', '']],
  ),
  ...mutantsOf(
    'src/oci/hosted/abandoned-blobs.ts',
    ['test/permanence/undelete.test.ts'],
    [['the layers of a deleted image are dropped', 'IN (rb.repository_id, -rb.repository_id)', '= rb.repository_id']],
  ),
  ...mutantsOf(
    'src/oci/hosted/tags.ts',
    ['test/oci/http/counts.test.ts'],
    [
      ['a tag that moves counts again', '{ tags: added }', '{ tags: rows.length }'],
      ['a deleted tag still counts', '{ tags: -deleted }', '{ tags: 0 }'],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/claims.ts',
    ['test/oci/http/counts.test.ts'],
    [['the list of claims reads all names', 'AND manifest_count = 0 AND name > ?', 'AND name > ?']],
  ),
  ...mutantsOf(
    'src/oci/hosted/abandoned-blobs.ts',
    ['test/jobs/rechecks.test.ts'],
    [
      [
        'a layer that a manifest took meanwhile is dropped',
        '${placeholders(old)}) AND ${isAbandoned}`',
        '${placeholders(old)})`',
      ],
      [
        'a layer that was pushed again meanwhile is dropped',
        'AND linked_at < ? ORDER BY digest',
        'AND ? > 0 ORDER BY digest',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/format/reference.ts',
    ['test/oci/format/reference.test.ts'],
    [
      ['a tag may be one character too long', '{0,127}', '{0,128}'],
      ['an undecodable path throws', 'return unknown;\n  }\n  if', 'throw new Error(path);\n  }\n  if'],
    ],
  ),
  ...mutantsOf(
    'src/oci/format/manifest.ts',
    ['test/oci/format/manifest.test.ts'],
    [
      [
        'an ambiguous manifest is accepted',
        'if (key === undefined) return manifest;',
        'return manifest;',
        'test/oci/http/manifests.test.ts',
      ],
      ['foreign layers are required', '!isForeignLayer(layer.mediaType) && ', ''],
      [
        'the Content-Type may differ from the document',
        'declared !== undefined && declared !== mediaType',
        'declared === null',
      ],
      ['an index may have layers', "!isAbsent(document['layers']) || ", ''],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/referrers.ts',
    ['test/oci/http/lists.test.ts'],
    [
      [
        'referrers of another repository are listed',
        'WHERE repository_id = ? AND subject = ?',
        'WHERE ? > 0 AND subject = ?',
      ],
      ['referrers of any type are listed', "'AND artifact_type = ?'", "'AND ? IS NOT NULL'"],
    ],
  ),

  ...mutantsOf(
    'src/oci/uploads/uploads.ts',
    ['test/oci/http/upload-retry.test.ts'],
    [
      [
        'a repeated last request is refused',
        'if (!(await this.#images.isFromUpload(accountId, repository, digest, id))) throw error;',
        'throw error;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/image-blobs.ts',
    ['test/oci/http/upload-retry.test.ts'],
    [
      ['any upload of a blob has ended with it', ' AND rb.upload_id = ?', ' AND ? IS NOT NULL'],
      [
        'an upload of another account has ended with the blob',
        'WHERE r.account_id = ? AND r.name = ?`,\n        [digest, uploadId, accountId, name],',
        'WHERE ? > 0 AND r.name = ?`,\n        [digest, uploadId, accountId, name],',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/image-blobs.ts',
    ['test/oci/http/head-grace.test.ts'],
    [
      [
        'a HEAD renews a blob that a manifest needs',
        'if (row?.abandoned !== 1) return row !== undefined;',
        'if (row === undefined) return false;',
      ],
      ['a short grace is renewed too late', 'Math.min(maxRenewEvery, Math.floor(grace * renewShare))', 'maxRenewEvery'],
    ],
  ),
];
