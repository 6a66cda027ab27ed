import { z } from 'zod';
import { prefetchStates } from '../../jobs/prefetch-run.ts';

// The form and the answers of `/v1/prefetch`.

const time = z.iso.datetime().meta({ description: 'RFC 3339, UTC', example: '2026-01-31T12:00:00.000Z' });
const count = z.int().min(0);
const tally = z.strictObject({ count, size_bytes: count });
const tallies = z.strictObject({ packages: tally, manifests: tally, blobs: tally });

export const prefetchRun = z
  .strictObject({
    id: z.uuid(),
    dry_run: z.boolean(),
    state: z
      .enum(prefetchStates)
      .meta({ description: 'interrupted: its server was closed; lost: its process died. Neither starts again' }),
    created_at: time,
    ended_at: time.nullable(),
    files: z.array(z.string()),
    platforms: z.array(z.string()).meta({ description: 'All if empty' }),
    frameworks: z.array(z.string()).meta({ description: 'Those of the files if empty' }),
    referrers: z.boolean(),
    known: count.meta({ description: 'Things to fetch that are known now' }),
    ended: count.meta({ description: 'Of `known`, those that are done' }),
    received_bytes: count.meta({ description: 'Bytes that upstreams sent' }),
    waiting: z.string().nullable().meta({ description: 'Why it waits; null while it does not' }),
    error: z.string().nullable(),
    result: z
      .strictObject({
        fetched: tallies.meta({ description: 'Of a dry run: what it would fetch' }),
        present: tallies.meta({ description: 'What was stored before' }),
        unmeasured: count.meta({ description: 'Things whose size is unknown' }),
        approximate: z.boolean().meta({ description: 'Whether a restore may choose other versions' }),
        skipped: z.array(z.strictObject({ what: z.string(), reason: z.string() })),
        skipped_total: count,
        missing: z.array(z.strictObject({ file: z.string(), line: count, what: z.string(), reason: z.string() })),
        missing_total: count,
      })
      .nullable()
      .meta({ description: 'null until it has ended. Each list has 500 entries at most' }),
    can_fetch: z.boolean().meta({ description: 'Whether it is a dry run whose files are kept' }),
  })
  .meta({ id: 'Prefetch' });

export const prefetchList = z
  .strictObject({
    items: z.array(prefetchRun),
    next_cursor: z.null(),
    kinds: z.array(z.string()).meta({ description: 'The kinds of files' }),
    defaults: z
      .strictObject({ platforms: z.array(z.string()), frameworks: z.array(z.string()), referrers: z.boolean() })
      .meta({ description: 'The settings of the job prefetch, for fields that are left out' }),
  })
  .meta({ id: 'PrefetchList' });

export const prefetchForm = z
  .object({
    file: z
      .array(z.string().meta({ format: 'binary' }))
      .min(1)
      .max(10)
      .meta({ description: 'Files that list packages or images, 5 MiB together' }),
    dry_run: z.enum(['true', 'false']).optional().meta({ description: 'true: only show what would be fetched' }),
    kind: z.string().optional().meta({ description: 'The kind of the files, if their names do not show it' }),
    platforms: z.string().optional().meta({ description: 'Separated by commas; empty for all' }),
    frameworks: z.string().optional().meta({ description: 'Separated by commas; empty for those of the files' }),
    referrers: z.enum(['true', 'false']).optional(),
  })
  .meta({ id: 'PrefetchForm' });
