import { z } from 'zod';
import { count, listOf, time } from '../framework/schemas.ts';

// The answers of `/v1/jobs`.

export const jobRun = z
  .strictObject({
    id: z.string(),
    scheduled_at: time.nullable().meta({ description: 'When it was due; null if a person started it' }),
    started_at: time,
    ended_at: time.nullable(),
    outcome: z
      .enum(['running', 'done', 'failed', 'interrupted', 'lost'])
      .meta({ description: 'interrupted: its instance was closed; lost: its instance died' }),
    counts: z.record(z.string(), z.number()).meta({ description: 'What it did, by name' }),
    error: z.string().nullable(),
  })
  .meta({ id: 'JobRun' });

export const job = z
  .strictObject({
    name: z.string(),
    summary: z.string(),
    next_run_at: time.nullable().meta({ description: 'null: the job is off' }),
    can_preview: z.boolean(),
    last_run: jobRun.nullable(),
  })
  .meta({ id: 'Job' });

export const jobPreview = z
  .strictObject({
    counts: z.record(z.string(), z.number()),
    actions: z.array(z.string()),
    more: count.meta({ description: 'Further actions, which are not shown' }),
  })
  .meta({ id: 'JobPreview' });

export const jobList = listOf(job);
export const jobRunList = listOf(jobRun);
