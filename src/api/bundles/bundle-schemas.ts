import { z } from 'zod';
import { bundleStates } from '../../bundle/bundles.ts';
import { maxStatement } from '../../bundle/format.ts';
import { bundleRunStates } from '../../bundle/runs/run.ts';
import { roles } from '../../bundle/trust.ts';
import { bytes, count, givenTime, listOf, time } from '../framework/schemas.ts';
import { filterText, timedQuery, countedTotal } from '../framework/sorted.ts';

// The requests and answers of `/v1/bundles`.

const directions = ['made', 'imported'] as const;
const tally = z.strictObject({ count, size_bytes: bytes });
const counts = {
  packages: tally,
  manifests: tally.meta({ description: 'Tags and digests of images' }),
  layers: tally,
  documents: tally.meta({ description: 'Lists of versions, vulnerability data and other documents' }),
};
const signer = z
  .strictObject({ id: z.string(), name: z.string().nullable().meta({ description: 'null if it is not trusted here' }) })
  .nullable()
  .meta({ description: 'The key that signed it; null without a signature' });
const written = count
  .nullable()
  .meta({ description: 'Entries that the import has written: others were here already. null for a bundle made here' });
const knownBad = z
  .array(z.strictObject({ name: z.string(), records: count }))
  .meta({ description: 'The lists of known bad content that it has. An import does not use them' });
const digest = z.string().meta({ description: 'The digest of its list of content' });

export const bundlesQuery = timedQuery.extend({
  direction: z
    .enum(directions, 'expected made or imported')
    .default('imported')
    .meta({ description: 'Bundles that were made here, or imported' }),
  q: filterText('Only bundles of installations whose IDs contain this text, in any letter case'),
  state: z
    .enum(bundleStates, `expected ${bundleStates.join(' or ')}`)
    .optional()
    .meta({ description: 'Only bundles in this state' }),
});

export const bundleList = listOf(
  z
    .strictObject({
      digest,
      direction: z.enum(directions),
      source: z.string().meta({ description: 'The installation that made it' }),
      sequence: count.meta({ description: 'Grows with each bundle of a source' }),
      state: z.enum(bundleStates).meta({ description: 'incomplete: more segments are needed' }),
      ...counts,
      segments: count,
      size_bytes: bytes.meta({ description: 'Bytes of its content' }),
      against: z.string().nullable().meta({
        description: 'The receipt or the earlier bundle that it was made against; null for a complete bundle',
      }),
      written,
      known_bad: knownBad,
      key: signer,
      created_at: time,
      changed_at: time.meta({ description: 'When it was made or imported here' }),
    })
    .meta({ id: 'Bundle' }),
).extend({ total: countedTotal });

export const bundleKey = z
  .strictObject({
    id: z.string().meta({ description: 'The SHA-256 of the key' }),
    name: z.string(),
    role: z.enum(roles).meta({ description: 'What it may sign' }),
    public_key: z.string().meta({ description: 'In PEM' }),
    added_at: time,
    expires_at: time.nullable().meta({ description: 'It counts until then; null without an end' }),
    vouched_by: z
      .string()
      .nullable()
      .meta({ description: 'The ID of the key that signed that it is trusted; null if its public key was given' }),
  })
  .meta({ id: 'BundleKey' });

const revokedKey = {
  id: z.string().meta({ description: 'The SHA-256 of the key' }),
  name: z.string().nullable().meta({ description: 'Its name while it was trusted here; null if it was not' }),
  revoked_by: z.string().meta({ description: 'The ID of the key that signed the revocation' }),
  revoked_at: time,
};

export const bundleKeyList = z
  .strictObject({
    items: z.array(bundleKey),
    revoked: z.array(z.strictObject(revokedKey)).meta({ description: 'Keys that are never trusted again' }),
    next_cursor: z.null(),
  })
  .meta({ id: 'BundleKeyList' });

export const bundleKeyRequest = z
  .strictObject({
    public_key: z
      .string()
      .trim()
      .min(1, 'Give the public key.')
      .max(2000)
      .optional()
      .meta({ description: 'Ed25519, in PEM' }),
    statement: z
      .string()
      .trim()
      .max(maxStatement)
      .optional()
      .meta({ description: 'Instead of `public_key`: the file with .signed of the new key' }),
    name: z.string().trim().min(1, 'Give it a name.').max(100),
    role: z
      .enum(roles, 'expected bundles, receipts, both or revoke')
      .optional()
      .meta({ description: 'If left out, both, or the role in the statement' }),
    expires_at: givenTime
      .nullable()
      .optional()
      .meta({ description: 'In the future; if left out, without an end, or until the end in the statement' }),
  })
  .meta({ id: 'BundleKeyRequest' });

export const bundleRevocationRequest = z
  .strictObject({
    statement: z.string().trim().min(1, 'Give the revocation.').max(maxStatement).meta({
      description: 'A signed revocation, as the command `bundle revoke` writes it',
    }),
  })
  .meta({ id: 'BundleRevocationRequest' });

export const bundleRevocation = z
  .strictObject({
    ...revokedKey,
    vouched_for: z.array(bundleKey).meta({
      description: 'Keys that are trusted because the revoked one signed so. Remove those that you do not know',
    }),
  })
  .meta({ id: 'BundleRevocation' });

const segment = z.strictObject({ number: count, size_bytes: bytes });
const run = {
  id: z.uuid(),
  state: z.enum(bundleRunStates).meta({
    description:
      'receiving: waits for segments; checked: its signature and all bytes that were sent are right, and nothing was imported; incomplete: all that was sent is stored, and more segments are needed; interrupted: its server was closed; lost: its process died; expired: it was not used for a day',
  }),
  created_at: time,
  ended_at: time.nullable(),
  done_bytes: bytes.meta({ description: 'Bytes of content that are written or stored' }),
  total_bytes: bytes.nullable().meta({ description: 'Of so many; null until it is known' }),
  error: z.string().nullable(),
  segments: z.array(segment).meta({ description: 'The segments that are on this server' }),
  bundle: z
    .strictObject({
      digest,
      ...counts,
      segments: count,
      size_bytes: bytes,
      written,
      key: signer,
      policy: z.boolean().meta({ description: 'Whether it has a policy. An import does not apply it' }),
      known_bad: knownBad,
      new_key: z
        .strictObject({
          id: z.string().nullable().meta({ description: 'null if the statement cannot be read' }),
          signer: z.string().nullable().meta({ description: 'The name of the trusted key that signed it' }),
          statement: z.string(),
          refused: z.string().nullable().meta({ description: 'Why it cannot be trusted here; null if it can' }),
        })
        .nullable()
        .meta({ description: 'A new key that it announces and that was not trusted here at the import' }),
    })
    .nullable()
    .meta({ description: 'What was made or imported; null until then' }),
};

export const bundleImport = z
  .strictObject({
    ...run,
    unsigned: z.boolean(),
    older: z.boolean(),
    check: z.boolean().meta({ description: 'Whether it was only checked' }),
    needed: z.array(count).meta({ description: 'The numbers of the segments that are still needed' }),
  })
  .meta({ id: 'BundleImport' });

export const bundleImportRequest = z
  .strictObject({
    unsigned: z.boolean().default(false).meta({ description: 'Also a bundle without a signature' }),
    older: z.boolean().default(false).meta({
      description: 'Also an older bundle than the last one of its source: only content that never changes',
    }),
    check: z.boolean().default(false).meta({
      description: 'Only check the signature and all bytes that were sent; import nothing, and keep the segments',
    }),
  })
  .meta({ id: 'BundleImportRequest' });

export const bundleMaking = z
  .strictObject({
    ...run,
    files: z.array(z.string()),
    stored: z.boolean(),
    platforms: z.array(z.string()).meta({ description: 'All if empty' }),
    frameworks: z.array(z.string()).meta({ description: 'Those of the files if empty' }),
    referrers: z.boolean(),
    against: z.string().nullable().meta({ description: 'The receipt that it is made against' }),
    known: count.meta({ description: 'Things to fetch that are known now' }),
    ended: count.meta({ description: 'Of `known`, those that are done' }),
    received_bytes: count.meta({ description: 'Bytes that upstreams sent' }),
    waiting: z.string().nullable().meta({ description: 'Why it waits; null while it does not' }),
    missing: z.array(z.strictObject({ file: z.string(), line: count, what: z.string(), reason: z.string() })),
    missing_total: count,
  })
  .meta({ id: 'BundleMaking' });

export const bundleReceipt = z
  .strictObject({
    digest: z.string().meta({ description: 'The digest of its content, as a bundle against it names it' }),
    items: count,
    size_bytes: bytes,
    key: z.string().nullable().meta({ description: 'The key that signed it; null without a signature' }),
  })
  .meta({ id: 'BundleReceipt' });

export const bundleRunList = z
  .strictObject({
    made: z.array(bundleMaking),
    imported: z.array(bundleImport),
    kinds: z.array(z.string()).meta({ description: 'The kinds of files that list packages and images' }),
    defaults: z
      .strictObject({ platforms: z.array(z.string()), frameworks: z.array(z.string()), referrers: z.boolean() })
      .meta({ description: 'The settings of the job prefetch, for fields that are left out' }),
    signs: z.boolean().meta({ description: 'Whether the setting `bundles.key` names a key' }),
    segment_limit_bytes: bytes.meta({ description: 'The largest segment that can be sent' }),
    receipt: z
      .strictObject({ size_bytes: bytes, written_at: time })
      .nullable()
      .meta({ description: 'The receipt that was written last on this server; null without one' }),
  })
  .meta({ id: 'BundleRunList' });

export const bundleForm = z
  .object({
    file: z
      .array(z.string().meta({ format: 'binary' }))
      .max(10)
      .optional()
      .meta({ description: 'Files that list packages or images, 5 MiB together' }),
    stored: z
      .enum(['true', 'false'])
      .optional()
      .meta({ description: 'true: also everything that is mirrored now; then no file is needed' }),
    against: z.string().optional().meta({ format: 'binary', description: 'A receipt of the receiver' }),
    segment: z.string().optional().meta({ description: 'Most bytes of a segment, such as 4.3GB' }),
    expires: z.string().optional().meta({ description: 'How long it may be imported, such as 30d' }),
    policy: z.enum(['true', 'false']).optional().meta({ description: 'true: also the policy of all accounts' }),
    known_bad: z
      .enum(['true', 'false'])
      .optional()
      .meta({ description: 'true: also the lists of known bad content, as they were read here' }),
    new_key: z.string().optional().meta({ description: 'A signed statement about a new key, which is announced' }),
    allow_missing: z.enum(['true', 'false']).optional().meta({ description: 'true: also without what cannot be had' }),
    kind: z.string().optional().meta({ description: 'The kind of the files, if their names do not show it' }),
    platforms: z.string().optional().meta({ description: 'Separated by commas; empty for all' }),
    frameworks: z.string().optional().meta({ description: 'Separated by commas; empty for those of the files' }),
    referrers: z.enum(['true', 'false']).optional(),
  })
  .meta({ id: 'BundleForm' });

export const segmentsForm = z
  .object({
    segment: z
      .array(z.string().meta({ format: 'binary' }))
      .min(1)
      .max(100)
      .meta({ description: 'Files with names such as 0001.tar' }),
  })
  .meta({ id: 'BundleSegmentsForm' });
