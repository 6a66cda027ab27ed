import type { z } from 'zod';
import { prefetchList, prefetchRun } from '../../../api/prefetch/prefetch-schemas.ts';
import type { Form } from '../../framework/form.ts';
import { ago, countText, counted, short, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, RefusedForm, PageView } from '../../framework/page.ts';
import { refusedSelection, selectionForm, selectionInputs } from './selection-form.ts';
import { facts, table } from '../../framework/table.ts';

type Run = z.input<typeof prefetchRun>;
type List = z.input<typeof prefetchList>;

/** Errors that are shown beside the file field. */
const shown = new Set(['Invalid', 'TooLarge', 'TooManyRequests', 'Unsupported']);

/** The form that starts a prefetch from files, and the latest runs. */
export const prefetchPage: Page = {
  path: '/prefetch',
  section: 'mirror',
  action: 'operate',
  show: prefetchView,
  receive: async (call): Promise<Redirect | RefusedForm> => {
    try {
      const { id } = await call.receive('startPrefetch', prefetchRun);
      return { to: `/console/prefetch/${id}` };
    } catch (error) {
      return refusedSelection(error, shown);
    }
  },
};

async function prefetchView({ api, now, refused }: PageCall): Promise<PageView> {
  const list = await api.call('listPrefetches', prefetchList);
  const form = selectionForm(list.defaults, refused);
  const body = html`<p>
      Drop the lock files, compose files or Dockerfiles of your builds here: what they list is fetched and stored, so
      that the builds also work while an upstream does not.
    </p>
    ${prefetchForm(form, list.kinds)}
    <section>
      <h2>Latest prefetches</h2>
      ${runRows(list.items, now)}
    </section>`;
  return form.view('Prefetch from files', body, '/v1/prefetch');
}

function prefetchForm(form: Form, kinds: List['kinds']): Html {
  return html`<form method="post" enctype="multipart/form-data" class="panel narrow">
    ${selectionInputs(form)}
    ${form.select('referrers', 'Signatures and other referrers of images', [
      ['true', 'fetch them'],
      ['false', 'do not fetch them'],
    ])}
    ${form.select('kind', 'Kind of the files', [['', 'by their names'], ...kinds.map((each) => [each, each] as const)])}
    <div class="drop" data-drop>
      ${form.file('file', 'Files', {
        attributes: html`multiple`,
        hint: html`<code>packages.lock.json</code>, <code>project.assets.json</code>, project files,
          <code>compose.yaml</code>, Kubernetes manifests, Dockerfiles, and lists with one image or
          <code>id@version</code> a line. At most 10 files with 5 MiB together.`,
      })}
    </div>
    <button class="primary" name="dry_run" value="true">Show what it would fetch</button>
    <button name="dry_run" value="false">Fetch now</button>
  </form>`;
}

function runRows(items: readonly Run[], now: number): Html {
  return table(
    ['Started', 'Files', 'State', { number: 'Received' }],
    items.map((each) => [
      html`<a href="/console/prefetch/${each.id}">${ago(each.created_at, now)}</a>`,
      each.files.join(', '),
      stateOf(each),
      sizeHtml(each.received_bytes),
    ]),
    { empty: 'None yet. Choose a file above.' },
  );
}

const states = { running: 'warn', done: 'good', failed: 'bad', cancelled: 'warn', interrupted: 'bad', lost: 'bad' };

function stateOf({ state, dry_run: isDry, result }: Run): Html {
  const missing = result?.missing_total ?? 0;
  const mark = state === 'done' && missing > 0 ? 'warn' : states[state];
  return html`<span class="state ${mark}">${state}</span> ${isDry && 'dry run'}
    ${missing > 0 && `${countText(missing)} not found or failed`}`;
}

/** One prefetch: its progress, then its result. */
export const prefetchRunPage: Page = {
  path: '/prefetch/:id',
  section: 'mirror',
  action: 'operate',
  show: async ({ api, params, now }) => {
    const run = await api.call('getPrefetch', prefetchRun, { params });
    const files = short(run.files.join(', '), 60);
    const title = `${run.dry_run ? 'What a prefetch would fetch' : 'Prefetch'} of ${files}, ${run.created_at.slice(0, 19).replace('T', ' ')} UTC`;
    const body = html`${facts(
        ['State', html`${stateOf(run)} ${run.error}`],
        ['Files', run.files.join(', ')],
        ['Platforms', run.platforms.join(', ') || 'all'],
        ['Frameworks', run.frameworks.join(', ') || 'those of the files'],
        [
          'Started',
          html`${ago(run.created_at, now)}${run.ended_at !== null && html`, ended ${ago(run.ended_at, now)}`}`,
        ],
        ['Received', html`${sizeHtml(run.received_bytes)} from upstreams`],
      )}
      ${run.state === 'running' && progress(run)}
      ${(run.state === 'interrupted' || run.state === 'lost') && html`<p class="warning">The server was stopped meanwhile. Send the files again: what is stored is not fetched twice.</p>`}
      ${run.result && result(run, run.result)}
      <p><a href="/console/prefetch">All prefetches</a></p>`;
    return { title, body, json: `/v1/prefetch/${run.id}` };
  },
  send: async (call: FormCall): Promise<Redirect> => {
    const { api, params, form: sent } = call;
    if (sent.get('act') === 'cancel') {
      await api.do('cancelPrefetch', { params });
      return { to: `/console/prefetch/${encodeURIComponent(params['id']!)}`, done: 'prefetch-cancelled' };
    }
    const { id } = await api.call('fetchPrefetch', prefetchRun, { params });
    return { to: `/console/prefetch/${id}` };
  },
};

function progress({ known, ended, waiting }: Run): Html {
  return html`<div class="waiting" data-refresh="2000" data-version="${ended}/${known}">
      <p><strong>${countText(ended)} of ${countText(known)}</strong> known packages, manifests and layers are done.</p>
      ${waiting !== null && html`<p>It waits: ${waiting}.</p>`}
      <p class="quiet">
        You can close this page. The prefetch ends if the server is stopped, and does not start again.
      </p>
    </div>
    <form method="post" class="filter">
      <a href="">Reload</a>
      <button name="act" value="cancel">Stop it</button>
    </form>`;
}

function result({ dry_run: isDry, can_fetch: canFetch }: Run, found: NonNullable<Run['result']>): Html {
  const rows = [
    ['Packages', 'packages'],
    ['Manifests', 'manifests'],
    ['Layers', 'blobs'],
  ] as const;
  return html`<section>
      <h2>${isDry ? 'It would fetch' : 'It fetched'}</h2>
      ${table(
        [{ name: 'What' }, { number: isDry ? 'To fetch' : 'Fetched' }, { number: 'Stored before' }],
        rows.map(([title, key]) => [
          title,
          html`${countText(found.fetched[key].count)}, ${sizeHtml(found.fetched[key].size_bytes)}`,
          html`${countText(found.present[key].count)}, ${sizeHtml(found.present[key].size_bytes)}`,
        ]),
        { label: 'Counts' },
      )}
      ${isDry && html`<p class="quiet">A dry run fetches manifests and version lists, because they list the rest.</p>`}
      ${found.unmeasured > 0 && html`<p>The size of ${countText(found.unmeasured)} is unknown.</p>`}
      ${found.approximate && html`<p>The lowest version that applies was chosen for each dependency. A lock file is exact.</p>`}
      ${
        canFetch &&
        html`<form method="post"><button class="primary" name="act" value="fetch">Fetch it now</button></form>`
      }
    </section>
    ${missingRows(found)} ${skippedRows(found)}`;
}

function missingRows({ missing, missing_total: total }: NonNullable<Run['result']>): Html | undefined {
  if (total === 0) return undefined;
  return html`<section>
    <h2>${counted(total, 'entry', 'entries')} not found or failed</h2>
    ${total > missing.length && html`<p>The first ${countText(missing.length)} are shown.</p>`}
    ${table(
      [{ name: 'What' }, 'File and line', 'Why'],
      missing.map(({ what, file, line, reason }) => [what, html`${file}${line > 0 && `:${line}`}`, reason]),
      { label: 'Failures' },
    )}
  </section>`;
}

function skippedRows({ skipped, skipped_total: total }: NonNullable<Run['result']>): Html | undefined {
  if (total === 0) return undefined;
  return html`<section>
    <h2>${counted(total, 'name is', 'names are')} not fetched from upstreams</h2>
    <ul>
      ${skipped.map(({ what, reason }) => html`<li><strong>${what}</strong>: ${reason}</li>`)}
    </ul>
  </section>`;
}
