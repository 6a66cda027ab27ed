import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import type { JobRun, Jobs, JobStatus } from '../../jobs/jobs.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { timeOf } from '../framework/schemas.ts';
import { jobList, jobPreview, jobRunList, type job, type jobRun } from './job-schemas.ts';

/** Lines that a preview shows. */
const maxActions = 500;
/** Milliseconds that a preview may take. */
const maxPreviewLength = 20_000;
const runsShown = 50;

/** `/jobs`: the scheduled jobs. They concern all accounts and all names, so a token with name patterns cannot use them. */
export function jobOperations(jobs: Jobs): Operation[] {
  const action = 'operate';
  const allNames = 'A token with name patterns cannot use jobs, because they concern all names.';
  const params = { name: 'The name of the job' };
  return [
    operation({
      method: 'get',
      path: '/jobs',
      id: 'listJobs',
      summary: 'List the scheduled jobs, with the next and the last run of each',
      action,
      allNames,
      status: 200,
      answer: jobList,
      run: async () => ({ items: (await jobs.list()).map(toJob), next_cursor: null }),
    }),
    operation({
      method: 'get',
      path: '/jobs/:name/runs',
      id: 'listJobRuns',
      summary: `List the latest ${runsShown} runs of a job`,
      action,
      allNames,
      params,
      status: 200,
      answer: jobRunList,
      run: async ({ params: { name } }) => {
        const runs = await jobs.history(name!, runsShown);
        return { items: runs.map(toRun), next_cursor: null };
      },
    }),
    operation({
      method: 'post',
      path: '/jobs/:name/runs',
      id: 'startJob',
      summary: 'Start a run of a job now, even if the job is off. 400 while a run has not ended',
      action,
      allNames,
      params,
      status: 204,
      run: ({ params: { name } }) => jobs.launch(name!),
    }),
    operation({
      method: 'post',
      path: '/jobs/:name/preview',
      id: 'previewJob',
      summary: `Show what a run of a job would do: the counts, and the first ${maxActions} actions`,
      action,
      allNames,
      params,
      status: 200,
      answer: jobPreview,
      run: async ({ params: { name } }) => {
        const actions: string[] = [];
        let more = 0;
        const say = (line: string) => {
          if (actions.length < maxActions) actions.push(line);
          else more += 1;
        };
        const counts = await jobs.run(name!, { dryRun: true, say, signal: AbortSignal.timeout(maxPreviewLength) });
        return { counts, actions, more };
      },
    }),
  ];
}

function toJob({ job: { name, summary, schedule, canDryRun }, last }: JobStatus): z.input<typeof job> {
  return {
    name,
    summary,
    next_run_at: schedule ? timeOf(schedule.next()) : null,
    can_preview: canDryRun,
    last_run: last ? toRun(last) : null,
  };
}

function toRun({ id, job: _job, ...run }: JobRun): z.input<typeof jobRun> {
  return { id: String(id), ...jsonItem(run) };
}
