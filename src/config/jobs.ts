import { z } from 'zod';
import { schedule } from './units.ts';

/** The setting `jobs`: when each job runs. */
export const jobSchedules = z
  .strictObject({
    uploads: schedule.default('*/10 * * * *').describe('When to delete abandoned uploads (cron, UTC), or `off`'),
    retention: schedule.default('40 2 * * *').describe('When to apply the `retention` rules, or `off`'),
    evict: schedule.default('10 * * * *').describe('When to reduce mirrored content to `mirror.maxSize`, or `off`'),
    gc: schedule.default('20 * * * *').describe('When to delete unreferenced bytes, or `off`'),
    sample: schedule
      .default('*/10 * * * *')
      .describe('When to measure the bytes that accounts store (one sample per hour), or `off`'),
    prefetch: schedule.default('off').describe('When to run `prefetch`, or `off`'),
    scrub: schedule.default('0 4 * * 0').describe('When to read and verify stored bytes, or `off`'),
    audit: schedule.default('30 3 * * *').describe('When to delete events older than `audit.keep`, or `off`'),
    knownBad: schedule
      .default('*/15 * * * *')
      .describe('When to look for lists of known bad content that are due to be read again, or `off`'),
    exposure: schedule
      .default('*/15 * * * *')
      .describe(
        'When to compare what was pulled with what is known to be vulnerable or bad now, and to delete pulls older than `usage.keepPulls`, or `off`',
      ),
    takeover: schedule
      .default('7 * * * *')
      .describe('When to bring what `predecessors` have and this server lacks, or `off`'),
    waivers: schedule
      .default('*/10 * * * *')
      .describe('When to record the ends of waivers, and to announce those that end soon, or `off`'),
  })
  .prefault({});
