import { z } from 'zod';
import { origin, time, upstream } from './schemas.ts';

export const historySchema = z
  .strictObject({
    items: z.array(
      z.strictObject({
        kind: z.enum(['version', 'manifest', 'tag']),
        reference: z.string().meta({ description: 'The version, the digest or the tag' }),
        digest: z
          .string()
          .nullable()
          .meta({ description: 'The content that the reference had from then on; null if it was deleted' }),
        origin,
        upstream,
        seen_at: time.meta({ description: 'When this server had it first' }),
      }),
    ),
    next_cursor: z.string().nullable(),
  })
  .meta({ id: 'History' });
