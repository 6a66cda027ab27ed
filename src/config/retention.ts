import { z } from 'zod';
import { duration, whole } from './units.ts';

const patterns = z.array(z.string().min(1));

/** Which tags of hosted images are kept. */
const tagRule = z.strictObject({
  images: patterns.default(['*']),
  tags: patterns.default(['*']),
  keepNewest: whole(0, 1_000_000),
  keepUsedFor: duration.optional(),
  accounts: z.array(z.string()).min(1, 'name at least one account, or leave the list out for all').optional(),
});

/** The setting `retention`: what is deleted of hosted content. */
export const retention = z
  .strictObject({
    packages: z
      .strictObject({
        keepVersions: whole(1, 1_000_000)
          .optional()
          .describe('Newest releases to keep of each hosted package, and as many prereleases; all by default'),
      })
      .prefault({}),
    containers: z
      .strictObject({
        untaggedAfter: duration
          .optional()
          .describe(
            'Delete hosted manifests that had no tag for this long, that no index names, and whose own subject is not there; never by default',
          ),
        tags: z
          .array(tagRule)
          .max(100)
          .default([])
          .describe('Rules that delete old tags of hosted images; the first one that matches a tag decides'),
      })
      .prefault({}),
    protect: patterns
      .default([])
      .describe(
        'What retention never deletes, in all accounts: package IDs, `id:version` pairs, image repositories and `name:tag` pairs',
      ),
  })
  .prefault({});

/** The setting `deletedFor`: how long deleted hosted content can be restored. */
export const deletedFor = duration
  .optional()
  .describe(
    'Keep deleted versions, tags and images for this long, so that they can be restored; 7d by default, and 0s in an installation that is older than this setting',
  );
