import type { z } from 'zod';
import { bundleMaking, bundleRunList } from '../../../api/bundles/bundle-schemas.ts';
import { typed } from '../../../runtime/command-name.ts';
import type { Form } from '../../framework/form.ts';
import { countText, counted, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { refusedSelection, selectionForm, selectionInputs } from './selection-form.ts';
import { runFacts, runProgress } from './bundle-parts.ts';

type Making = z.input<typeof bundleMaking>;

/** Errors that are shown beside the fields. */
const shown = new Set(['Invalid', 'Denied', 'TooLarge', 'TooManyRequests', 'Unsupported', 'StorageFull']);

/** The form that makes a bundle. */
export const newBundlePage: Page = {
  path: '/bundles/new',
  section: 'mirror',
  action: 'operate',
  show: newBundleView,
  receive: async (call): Promise<Redirect | RefusedForm> => {
    try {
      const { id } = await call.receive('makeBundle', bundleMaking);
      return { to: `/console/bundles/${id}` };
    } catch (error) {
      return refusedSelection(error, shown);
    }
  },
};

async function newBundleView({ api, refused }: PageCall): Promise<PageView> {
  const { kinds, defaults, signs } = await api.call('listBundleRuns', bundleRunList);
  const form = selectionForm(defaults, refused);
  const body = html`<p>
      What the files list is fetched, with advisories and referrers, and written as a bundle. Its segments can be
      downloaded here for a day.
    </p>
    ${!signs && html`<p class="warning">The bundle is not signed, because the setting <code>bundles.key</code> names no key.</p>`}
    <form method="post" enctype="multipart/form-data" class="panel narrow">
      ${contentFields(form, kinds)} ${bundleFields(form)}
      <button class="primary">Make the bundle</button>
    </form>`;
  return form.view('Make a bundle', body, '/v1/bundles/runs');
}

function contentFields(form: Form, kinds: readonly string[]): Html {
  return html`${form.select('stored', 'Content', [
      ['false', 'what the files list'],
      ['true', 'what the files list, and everything that is mirrored'],
    ])}
    ${selectionInputs(form)}
    ${form.select('referrers', 'Signatures and other referrers of images', [
      ['true', 'take them along'],
      ['false', 'leave them out'],
    ])}
    ${form.select('allow_missing', 'If something cannot be had', [
      ['false', 'make no bundle'],
      ['true', 'make the bundle without it'],
    ])}
    ${form.select('kind', 'Kind of the files', [['', 'by their names'], ...kinds.map((each) => [each, each] as const)])}
    <div class="drop" data-drop>
      ${form.file(
        'file',
        'Files',
        {
          attributes: html`multiple`,
          hint: html`Lock files, project files, Compose files, Dockerfiles, and lists, as for a
            <a href="/console/prefetch">prefetch</a>. At most 10 files with 5 MiB together.`,
        },
        false,
      )}
    </div>`;
}

function bundleFields(form: Form): Html {
  return html`${form.file(
    'against',
    'Receipt of the receiver',
    { hint: 'The bundle has only what the receiver lacks. Leave it empty for a complete bundle.' },
    false,
  )}
  ${form.input('segment', 'Most bytes of a segment', {
    attributes: html`maxlength="20"`,
    hint: html`Such as <code>4.3GB</code> for a DVD. Leave it empty for one segment.`,
  })}
  ${form.input('expires', 'How long it may be imported', {
    attributes: html`maxlength="20"`,
    hint: html`Such as <code>30d</code>. Leave it empty for always.`,
  })}
  ${form.select('policy', 'The policy of all accounts', [
    ['false', 'leave it out'],
    ['true', 'take it along; an operator applies it at the receiver'],
  ])}
  ${form.select('known_bad', 'The lists of known bad content', [
    ['false', 'leave them out'],
    ['true', 'take them along; an operator uses them at the receiver'],
  ])}
  ${form.area('new_key', 'Announce a new key', {
    attributes: html`rows="3"`,
    hint: html`The file with <code>.signed</code> that <code>${typed('bundle keygen --signed-by')}</code> has made.
      Leave it empty otherwise.`,
  })}`;
}

/** A bundle that is made: its progress, then its segments. */
export const bundlePage: Page = {
  path: '/bundles/:id',
  section: 'mirror',
  action: 'operate',
  show: async ({ api, params, now }) => {
    const run = await api.call('getBundle', bundleMaking, { params });
    const body = html`${runFacts(
        run,
        now,
        ['Files', run.files.join(', ') || 'none'],
        run.stored && ['Also', 'everything that is mirrored'],
        ['Platforms', run.platforms.join(', ') || 'all'],
        ['Frameworks', run.frameworks.join(', ') || 'those of the files'],
        run.against !== null && ['Against the receipt', run.against.slice(0, 23)],
        ['Received', html`${sizeHtml(run.received_bytes)} from upstreams`],
      )}
      ${run.state === 'running' && runProgress(run)} ${segmentRows(run)} ${missingRows(run)}
      ${run.state !== 'running' && html`<form method="post"><button class="danger" name="act" value="delete">Delete it</button></form>`}
      <p><a href="/console/bundles?show=made">All bundles</a></p>`;
    return { title: `Bundle made by ${run.id.slice(0, 8)}`, body, json: `/v1/bundles/${run.id}` };
  },
  send: async ({ api, params }): Promise<Redirect> => {
    const { state } = await api.call('getBundle', bundleMaking, { params });
    await api.do('deleteBundle', { params });
    return state === 'running'
      ? { to: `/console/bundles/${encodeURIComponent(params['id']!)}`, done: 'bundle-stopped' }
      : { to: '/console/bundles?show=made', done: 'bundle-deleted' };
  },
};

function segmentRows({ id, state, segments }: Making): Html | undefined {
  if (state !== 'done') return undefined;
  return html`<section>
    <h2>Segments</h2>
    ${table(
      [{ name: 'Segment' }, { number: 'Size' }],
      segments.map(({ number, size_bytes: size }) => {
        const name = `${String(number).padStart(4, '0')}.tar`;
        return [html`<a href="/console/bundles/${id}/segments/${number}" download>${name}</a>`, sizeHtml(size)];
      }),
      { empty: 'They are not on this server any more. Make the bundle again.' },
    )}
  </section>`;
}

function missingRows({ missing, missing_total: total }: Making): Html | undefined {
  if (total === 0) return undefined;
  return html`<section>
    <h2>${counted(total, 'entry', 'entries')} that cannot be had</h2>
    ${total > missing.length && html`<p>The first ${countText(missing.length)} are shown.</p>`}
    ${table(
      [{ name: 'What' }, 'File and line', 'Why'],
      missing.map(({ what, file, line, reason }) => [what, html`${file}${line > 0 && `:${line}`}`, reason]),
      { label: 'What cannot be had' },
    )}
  </section>`;
}
