import { z } from 'zod';
import { importOutcomes } from '../../import/item.ts';
import { importRunStates } from '../../import/runs/run.ts';
import { serverKinds } from '../../import/source.ts';
import { pageQuery } from '../framework/paging.ts';
import { bytes, count, givenTime, listOf, time } from '../framework/schemas.ts';

// The requests and answers of `/v1/imports`.

const kind = z.enum(serverKinds as [string, ...string[]], `expected ${serverKinds.join(', ')}`);
/** Most names, patterns and rules of a request, and most characters of one. */
const most = 1000;
const name = z.string().trim().min(1).max(260);
const rule = z.string().trim().min(3).max(520);
const secret = z
  .string()
  .min(1)
  .max(8192)
  .meta({ description: 'The password of `user`, or without one a bearer token. It is not stored' });
const chosen = {
  kind: kind.meta({ description: 'What the source is' }),
  url: z
    .url({ protocol: /^https?$/, error: 'expected an http or https URL' })
    .max(2000)
    .meta({ description: 'Of a feed the address of its index; of another server that of the server' }),
  dry_run: z.boolean().meta({ description: 'Only find out what would come' }),
  only: z.array(name).max(most).meta({ description: 'Only names that match one of these patterns' }),
  names: z.array(name).max(most).meta({ description: 'Only these names; the source is not asked for a list' }),
  rename: z.array(rule).max(100).meta({ description: 'Rules for names of images, such as `old/*=team/*`' }),
  move_tags: z
    .boolean()
    .meta({ description: 'Move tags that point to another image, if the source has that one, too' }),
  hosted: z
    .boolean()
    .meta({ description: 'Everything is hosted content: no upstream is asked whether it has the same' }),
  concurrency: z.int().min(1).max(16).meta({ description: 'Versions that are brought in at the same time' }),
};
const user = z.string().trim().min(1).max(255);
const rate = z.int().min(1024).meta({ description: 'Most bytes per second from the source' });

export const importRequest = z
  .strictObject({
    ...chosen,
    user: user.optional(),
    secret: secret.optional(),
    dry_run: chosen.dry_run.default(false),
    since: givenTime.optional().meta({ description: 'Leave out what the source says is older' }),
    only: chosen.only.default([]),
    names: chosen.names.default([]),
    rename: chosen.rename.default([]),
    move_tags: chosen.move_tags.default(false),
    hosted: chosen.hosted.default(false),
    concurrency: chosen.concurrency.default(4),
    rate: rate.optional(),
  })
  .meta({ id: 'ImportRequest' });

export const importResume = z.strictObject({ secret: secret.optional() }).meta({ id: 'ImportResume' });

const tally = z.strictObject({ count, size_bytes: bytes });

export const importRun = z
  .strictObject({
    id: z.string(),
    state: z.enum(importRunStates).meta({
      description:
        'stopped: it ended before the source was read whole; interrupted: its server was closed; lost: its process died. All but running can be resumed',
    }),
    ...chosen,
    user: user.nullable(),
    needs_secret: z.boolean().meta({ description: 'Whether a resumption has to bring the secret of the source again' }),
    since: time.nullable(),
    rate: rate.nullable(),
    created_at: time,
    ended_at: time.nullable(),
    known: count.meta({ description: 'Versions and images that are known now' }),
    ended: count.meta({ description: 'Of `known`, those that are done' }),
    received_bytes: bytes.meta({ description: 'Bytes that the source sent' }),
    results: z.strictObject(Object.fromEntries(importOutcomes.map((each) => [each, tally]))),
    warnings: z.array(z.string()),
    error: z.string().nullable().meta({ description: 'Why it failed or ended early' }),
  })
  .meta({ id: 'Import' });

export const importList = listOf(importRun);

export const importProblemsQuery = pageQuery;

export const importProblems = listOf(
  z
    .strictObject({
      outcome: z.enum(importOutcomes),
      name: z.string(),
      reference: z.string().meta({ description: 'The version or tag; empty for a whole name' }),
      reason: z.string(),
    })
    .meta({ id: 'ImportProblem' }),
);
