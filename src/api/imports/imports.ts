import { z } from 'zod';
import type { ImportRuns } from '../../import/runs/import-runs.ts';
import { maxRunProblems, type ImportProblem, type ImportRun } from '../../import/runs/run.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { readPage } from '../framework/paging.ts';
import { timeOf, timeOrNull } from '../framework/schemas.ts';
import {
  importList,
  importProblems,
  importProblemsQuery,
  importRequest,
  importResume,
  importRun,
} from './import-schemas.ts';

const action = 'admin';
const allNames = 'A token with name patterns cannot import, because other servers have any names.';
const id = 'The ID of the import';

/** `/imports`: content of other servers, into the account of the principal and no other. */
export function importRunOperations(runs: ImportRuns): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/imports',
      id: 'listImports',
      summary: 'List the latest 20 imports into the account, the latest first',
      action,
      allNames,
      status: 200,
      answer: importList,
      run: async ({ principal }) => ({
        items: (await runs.table.list(principal.accountId)).map(itemOf),
        next_cursor: null,
      }),
    }),
    operation({
      method: 'post',
      path: '/imports',
      id: 'startImport',
      summary:
        'Bring the packages and images of another server in as hosted content, in the background. One runs at a time for an account, and none continues by itself after a restart',
      action,
      allNames,
      body: importRequest,
      status: 201,
      answer: importRun,
      run: async ({ principal, body }) => {
        const { secret, dry_run: dryRun, move_tags: moveTags, since, ...rest } = body;
        const settings = {
          ...rest,
          dryRun,
          moveTags,
          since: since === undefined ? undefined : Date.parse(since),
          needsSecret: secret !== undefined,
        };
        return itemOf(await runs.start(principal.accountId, settings, secret));
      },
    }),
    operation({
      method: 'get',
      path: '/imports/:id',
      id: 'getImport',
      summary: 'Show the progress of an import, or its result',
      action,
      allNames,
      params: { id },
      status: 200,
      answer: importRun,
      run: async ({ principal, params }) => itemOf(await runs.table.get(principal.accountId, params['id']!)),
    }),
    operation({
      method: 'get',
      path: '/imports/:id/problems',
      id: 'listImportProblems',
      summary: `List the conflicts and failures of an import, up to ${maxRunProblems}`,
      action,
      allNames,
      params: { id },
      query: importProblemsQuery,
      status: 200,
      answer: importProblems,
      run: async ({ principal, params, query }) => {
        const run = await runs.table.get(principal.accountId, params['id']!);
        const { entries, next_cursor } = await readPage(query, {
          name: `import problems ${run.id}`,
          key: z.tuple([z.int()]),
          keyOf: ({ position }: ImportProblem) => [position] as [number],
          read: (limit, after) => runs.table.problems(run.id, limit, after?.[0] ?? 0),
        });
        const items = entries.map(({ outcome, name, reference, note }) => ({ outcome, name, reference, reason: note }));
        return { items, next_cursor };
      },
    }),
    operation({
      method: 'post',
      path: '/imports/:id/resume',
      id: 'resumeImport',
      summary: 'Start an import again that has ended. What is here already is skipped',
      action,
      allNames,
      params: { id },
      body: importResume,
      status: 201,
      answer: importRun,
      run: async ({ principal, params, body }) =>
        itemOf(await runs.resume(principal.accountId, params['id']!, body.secret)),
    }),
    operation({
      method: 'delete',
      path: '/imports/:id',
      id: 'endImport',
      summary: 'Stop an import that runs; or forget one that does not. What it has brought in stays',
      action,
      allNames,
      params: { id },
      status: 204,
      run: ({ principal, params }) => runs.table.cancel(principal.accountId, params['id']!),
    }),
  ];
}

function itemOf({ id: runId, state, createdAt, endedAt, settings, progress }: ImportRun): z.input<typeof importRun> {
  const { dryRun, moveTags, needsSecret, since, user = null, rate = null, only, names, rename, ...rest } = settings;
  const { counts, received, error = null, known, ended, warnings } = progress;
  return {
    ...rest,
    only: [...only],
    names: [...names],
    rename: [...rename],
    id: runId,
    state,
    user,
    rate,
    dry_run: dryRun,
    move_tags: moveTags,
    needs_secret: needsSecret,
    since: timeOrNull(since ?? null),
    created_at: timeOf(createdAt),
    ended_at: timeOrNull(endedAt),
    known,
    ended,
    received_bytes: received,
    results: Object.fromEntries(
      Object.entries(counts).map(([outcome, { count, bytes }]) => [outcome, { count, size_bytes: bytes }]),
    ),
    warnings: [...warnings],
    error,
  };
}
