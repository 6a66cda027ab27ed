import { mutantsOf } from './mutant.ts';

export const oci = [
  ...mutantsOf(
    'src/oci/routes.ts',
    ['test/http/limits.test.ts'],
    [
      ['PATCH of an upload ignores the limits', 'PATCH: storing(', "PATCH: changing('write', "],
      [
        'the PUT of a manifest ignores the limits',
        'PUT: storing(content.putManifest)',
        "PUT: changing('write', content.putManifest)",
      ],
      ['the PUT of an upload ignores the limits', 'PUT: storing(upload', "PUT: changing('write', upload"],
      ['POST of an upload ignores the limits', 'POST: storing(', "POST: changing('write', "],
    ],
  ),
  ...mutantsOf(
    'src/oci/upstream-lists.ts',
    ['test/http/registry-mirror-lists.test.ts'],
    [
      [
        'a list is followed to another origin',
        'following?.origin === url.origin ? following : undefined',
        'following ?? undefined',
      ],
      ['a list has any number of pages', 'pages === pagesLimit', 'pages < 0'],
      ['a list has any number of items', 'items > itemsLimit', 'items < 0'],
      ['a list has any size', 'bytes > listLimit', 'bytes < 0'],
    ],
  ),
  ...mutantsOf(
    'src/oci/upload-lease.ts',
    ['test/http/registry-uploads.test.ts'],
    [
      ['the file of a killed writer is not detached', 'torn ELSE 1 END', 'torn ELSE 0 END'],
      ['a lease is taken from a live writer', 'writer_until <= ?)', 'writer_until > 0 OR ? < 0)'],
      [
        'a lease that was lost is released',
        'writer_until = NULL, updated_at = ?\n         WHERE id = ? AND writer = ?',
        'writer_until = NULL, updated_at = ?\n         WHERE id = ? AND ? IS NOT NULL',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/uploads.ts',
    ['test/http/registry-uploads.test.ts'],
    [
      ['a silent writer is never stopped', ' || performance.now() - writer.lastDataAt >= silentLimit', ''],
      ['every writer is stopped', 'writer.lastDataAt >= silentLimit', 'writer.lastDataAt >= 0'],
      [
        'a session that is used is removed',
        'id = ? AND updated_at < ?',
        'id = ? AND ? > 0',
        'test/jobs/rechecks.test.ts',
      ],
      ['a chunk is not synced', 'await staged.sync();', '', 'test/storage/durability.test.ts'],
    ],
  ),
  ...mutantsOf(
    'src/oci/retention.ts',
    ['test/jobs/upkeep.test.ts'],
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
];
