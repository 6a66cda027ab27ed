import type { z } from 'zod';
import { bundleImport, bundleRunList } from '../../../api/bundles/bundle-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { Form } from '../../framework/form.ts';
import { bytesText, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { runFacts, runProgress } from './bundle-parts.ts';

type Import = z.input<typeof bundleImport>;

/** Errors that are shown beside the field. */
const shown = new Set(['Invalid', 'TooLarge', 'TooManyRequests', 'Unsupported', 'StorageFull', 'UploadBusy']);
/** States from which nothing more is imported. */
const over = new Set<Import['state']>(['running', 'done', 'expired']);

/** An import: its segments, its progress, then its result. */
export const bundleImportPage: Page = {
  path: '/bundles/imports/:id',
  section: 'mirror',
  action: 'operate',
  show: async ({ api, params, now }) => {
    const run = await api.call('getBundleImport', bundleImport, { params });
    const isOpen = !over.has(run.state);
    const body = html`${runFacts(run, now, run.needed.length > 0 && ['Segments that are needed', namesOf(run.needed)])}
      ${run.state === 'running' && runProgress(run)}
      ${
        run.state === 'incomplete' &&
        html`<p class="warning">
          What was sent is stored. Nothing is shown before all segments are here: send the rest, and import again.
        </p>`
      }
      ${
        run.state === 'checked' &&
        html`<p>The signature and all bytes that were sent are right. Nothing is imported yet.</p>`
      }
      ${isOpen && openPart(run)}
      <p><a href="/console/bundles">All bundles</a></p>`;
    return { title: `Import ${run.id.slice(0, 8)}`, body, json: `/v1/bundles/imports/${run.id}` };
  },
  send: async ({ api, params, form }): Promise<Redirect> => {
    const to = pathOf(params);
    const act = form.get('act');
    if (act === 'run' || act === 'check') {
      const unsigned = form.get('unsigned') === 'true';
      const body = { unsigned, older: form.get('older') === 'true', check: act === 'check' };
      await api.call('runBundleImport', bundleImport, { params, body });
      return { to };
    }
    const { state } = await api.call('getBundleImport', bundleImport, { params });
    await api.do('endBundleImport', { params });
    return state === 'running' ? { to, done: 'bundle-stopped' } : { to: '/console/bundles', done: 'bundle-deleted' };
  },
};

function openPart(run: Import): Html {
  const form = new Form(
    new URLSearchParams([
      ['unsigned', String(run.unsigned)],
      ['older', String(run.older)],
    ]),
  );
  return html`<section>
      <h2>Segments</h2>
      ${table(
        [{ name: 'Segment' }, { number: 'Size' }],
        run.segments.map(({ number, size_bytes: size }) => [nameOf(number), sizeHtml(size)]),
        { label: 'Segments', empty: 'No segment is here yet.' },
      )}
      <p><a class="button" href="/console/bundles/imports/${run.id}/segments">Send segments…</a></p>
    </section>
    <form method="post" class="panel narrow">
      ${run.segments.length > 0 && runFields(form)}
      <button class="danger" name="act" value="delete">Give it up</button>
    </form>`;
}

function runFields(form: Form): Html {
  return html`${form.choices('A bundle without a signature', 'unsigned', [
      ['true', 'import it, too', 'It is not signed, so its origin is not proven.'],
    ])}
    ${form.choices('An older bundle than the last one of its source', 'older', [
      ['true', 'import it, too', 'Only content that never changes comes in.'],
    ])} <button class="primary" name="act" value="run">Import</button>
    <button name="act" value="check">Only check it</button>`;
}

/** The form that sends segments of an import. */
export const bundleSegmentsPage: Page = {
  path: '/bundles/imports/:id/segments',
  section: 'mirror',
  action: 'operate',
  show: segmentsView,
  receive: async (call): Promise<Redirect | RefusedForm> => {
    const { params } = call;
    try {
      await call.receive('sendBundleSegments', bundleImport, { id: params['id']! });
      return { to: pathOf(params), done: 'segments-received' };
    } catch (error) {
      if (!(error instanceof DomainError) || !shown.has(error.name)) throw error;
      return { refused: new Form({}, { segment: error.message.replace(/^segment: /, '') }) };
    }
  },
};

async function segmentsView({ api, params, refused }: PageCall): Promise<PageView> {
  const run = await api.call('getBundleImport', bundleImport, { params });
  const { segment_limit_bytes: limit } = await api.call('listBundleRuns', bundleRunList);
  const form = refused ?? new Form();
  const body = html`<p>Choose the segments of one bundle, in any order. Those that are here already are replaced.</p>
    <form method="post" enctype="multipart/form-data" class="panel narrow">
      <div class="drop" data-drop>
        ${form.file('segment', 'Segments', {
          attributes: html`multiple accept=".tar"`,
          hint: html`<code>0001.tar</code> and so on, each with ${bytesText(limit)} at most.`,
        })}
      </div>
      <button class="primary">Send them</button>
      <a href="/console/bundles/imports/${run.id}">Back to the import</a>
    </form>`;
  return form.view(`Send segments of ${run.id.slice(0, 8)}`, body);
}

function pathOf(params: PageCall['params']): string {
  return `/console/bundles/imports/${encodeURIComponent(params['id']!)}`;
}

function nameOf(number: number): string {
  return `${String(number).padStart(4, '0')}.tar`;
}

function namesOf(numbers: readonly number[]): string {
  const most = 20;
  const names = numbers.slice(0, most).map(nameOf).join(', ');
  return numbers.length > most ? `${names} and ${numbers.length - most} more` : names;
}
