import type { z } from 'zod';
import { jobList, jobPreview, jobRunList, type job, type jobRun } from '../../../api/server/job-schemas.ts';
import { ago, bytesText, countText, counted } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, Redirect, PageView } from '../../framework/page.ts';
import { type Cells, table } from '../../framework/table.ts';

type Job = z.input<typeof job>;
type Run = z.input<typeof jobRun>;

/** The scheduled jobs. */
export const jobsPage: Page = {
  path: '/jobs',
  section: 'jobs',
  action: 'operate',
  show: async ({ api, now }) => {
    const { items } = await api.call('listJobs', jobList);
    const body = html`<p>Jobs keep the store small and sound. Of several instances, one performs each run.</p>
      ${table(
        [{ name: 'Job' }, 'What it does', 'Next run', 'Last run', 'Result'],
        items.map((each) => jobRow(each, now)),
      )}`;
    return { title: 'Jobs', body, json: '/v1/jobs' };
  },
};

function jobRow({ name, summary, next_run_at: next, last_run: last }: Job, now: number): Cells {
  return [
    html`<a href="/console/jobs/${name}">${name}</a>`,
    summary,
    next === null ? html`<span class="quiet">off</span>` : ago(next, now),
    ago(last?.started_at, now),
    last && resultOf(last),
  ];
}

const outcomes: Record<Run['outcome'], string> = {
  running: 'warn',
  done: 'good',
  failed: 'bad',
  interrupted: 'warn',
  lost: 'bad',
};

/** Counts of what a run could not do. */
const troubles = ['missing', 'failed', 'damaged_hosted'];

function resultOf({ outcome, counts, error }: Run): Html {
  const isTroubled = outcome === 'done' && troubles.some((name) => (counts[name] ?? 0) > 0);
  const text = outcome === 'running' && Object.keys(counts).length === 0 ? '' : inWords(counts);
  return html`<span class="state ${isTroubled ? 'warn' : outcomes[outcome]}">${outcome}</span> ${error ?? text}`;
}

/** The counts of a run. */
export function inWords(counts: Record<string, number>): string {
  const words = Object.entries(counts)
    .filter(([, value]) => value !== 0)
    .map(([name, value]) => {
      const words = name.replaceAll('_', ' ');
      return words.endsWith('bytes')
        ? `${bytesText(value)} ${words.slice(0, -6)}`.trim()
        : `${countText(value)} ${words}`;
    });
  return words.length === 0 ? 'nothing to do' : words.join(', ');
}

/** One job: its runs, a preview, and a form that starts it. */
export const jobPage: Page = {
  path: '/jobs/:name',
  section: 'jobs',
  action: 'operate',
  show: ({ api, params, now }) => jobView(api, params['name']!, now),
  send: async (call): Promise<PageView | Redirect> => {
    const name = call.params['name']!;
    if (call.form.get('act') === 'preview') return jobView(call.api, name, call.now, await previewOf(call, name));
    await call.api.do('startJob', { params: { name } });
    return { to: `/console/jobs/${encodeURIComponent(name)}`, done: 'job-started' };
  },
};

async function jobView(api: FormCall['api'], name: string, now: number, preview?: Html): Promise<PageView> {
  const { items: runs } = await api.call('listJobRuns', jobRunList, { params: { name } });
  const { items } = await api.call('listJobs', jobList);
  const { summary, can_preview: canPreview, next_run_at: next } = items.find((each) => each.name === name)!;
  const isRunning = runs[0]?.outcome === 'running';
  const body = html`<p>
      This job has to ${summary}. ${next === null ? 'It is off.' : html`Next run: ${ago(next, now)}.`}
    </p>
    <form method="post" class="filter">
      ${canPreview && html`<button name="act" value="preview">Preview</button>`}
      ${isRunning ? html`<p role="status" data-refresh="2000" data-version="${runs[0]!.id}">It is running.</p>` : html`<button name="act" value="run">Run now</button>`}
    </form>
    ${
      canPreview &&
      !preview &&
      (runs[0]?.counts['missing'] ?? 0) > 0 &&
      html`<p class="hint">The preview names what a run would not find now, with the file, the line and the reason.</p>`
    }
    ${preview}
    <h2>Runs</h2>
    ${runRows(runs, now)}`;
  return { title: `Job ${name}`, body, json: `/v1/jobs/${name}/runs` };
}

async function previewOf({ api }: FormCall, name: string): Promise<Html> {
  const { counts, actions, more } = await api.call('previewJob', jobPreview, { params: { name } });
  return html`<section class="panel">
    <h2>Preview: nothing was changed</h2>
    <p>A run now would delete or change: ${inWords(counts)}.</p>
    ${
      actions.length > 0 &&
      html`<ul>
        ${actions.map((each) => html`<li>${each}</li>`)}
      </ul>`
    }
    ${more > 0 && html`<p>… and ${counted(more, 'more action', 'more actions')}.</p>`}
  </section>`;
}

function secondsText(seconds: number): string {
  return seconds < 0.05 ? '< 0.1 s' : `${seconds.toFixed(1)} s`;
}

function runRows(runs: readonly Run[], now: number): Html {
  return table(
    ['Began', 'Took', 'Started by', 'Result'],
    runs.map((each) => {
      const { started_at: start, ended_at: end, scheduled_at: due } = each;
      return [
        ago(start, now),
        end !== null && secondsText((Date.parse(end) - Date.parse(start)) / 1000),
        due === null ? 'a person' : 'the schedule',
        resultOf(each),
      ];
    }),
    { label: 'Runs of the job', empty: 'It has not run yet.' },
  );
}
