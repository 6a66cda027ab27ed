import type { z } from 'zod';
import { importList, importProblems, importRun } from '../../../api/imports/import-schemas.ts';
import { typed } from '../../../runtime/command-name.ts';
import { fieldErrors, Form, fieldOf, trimmedField } from '../../framework/form.ts';
import { ago, bytesText, counted, countText, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { given } from '../../framework/links.ts';
import { furtherPages } from '../../framework/list.ts';
import type { FormCall, Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { facts, table } from '../../framework/table.ts';

type Run = z.input<typeof importRun>;
type Problems = z.input<typeof importProblems>;

const path = '/console/imports';
const kinds = {
  feed: 'NuGet feed: the address of its index',
  registry: 'registry: the address of its host',
  harbor: 'Harbor: the address of its host',
  nexus: 'Nexus: the address of its pages; all hosted repositories',
};
const outcomes = {
  imported: ['Imported', 'To import'],
  present: ['Here already', 'Here already'],
  updated: ['Updated', 'To update'],
  mirrored: ['Mirrored, so not hosted', 'Mirrored, so not hosted'],
  conflict: ['Conflicts', 'Conflicts'],
  failed: ['Failed', 'Cannot come'],
} as const;

/** Imports from other servers into the account: the latest, and the form that starts one. */
export const importsPage: Page = {
  path: '/imports',
  section: 'packages',
  action: 'admin',
  show: async ({ api, now, refused }) => {
    const { items } = await api.call('listImports', importList);
    const form = refused ?? new Form();
    const body = html`<p>
        An import brings the packages and images of another server into this account. It changes nothing there, and
        overwrites nothing here. The command <code>${typed('import')}</code> also reads folders and archives.
      </p>
      <section>
        <h2>Latest imports</h2>
        ${table(
          [{ name: 'Source' }, 'Started', 'State', { number: 'Imported' }, { number: 'Conflicts and failures' }],
          items.map((each) => [
            html`<a href="${path}/${each.id}">${each.url}</a>`,
            ago(each.created_at, now),
            stateOf(each),
            countText(each.results['imported']!.count),
            countText(problemsOf(each)),
          ]),
          { empty: 'None yet.' },
        )}
      </section>
      <section>
        <h2>Import from a server</h2>
        <form method="post" class="panel narrow" autocomplete="off">
          ${importFields(form)}
          <button class="primary" name="dry_run" value="true">Show what would come</button>
          <button name="dry_run" value="false">Import</button>
        </form>
      </section>`;
    return form.view('Imports', body, '/v1/imports');
  },
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const lines = (name: string) =>
      fieldOf(form, name)
        .split(/[\n,]/)
        .filter((each) => each.trim() !== '');
    const [secret, user] = [fieldOf(form, 'secret'), trimmedField(form, 'user')];
    const body = {
      kind: fieldOf(form, 'kind'),
      url: trimmedField(form, 'url'),
      dry_run: form.get('dry_run') === 'true',
      hosted: form.get('hosted') === 'true',
      only: lines('only'),
      rename: lines('rename').map((each) => each.trim()),
      ...(user !== '' && { user }),
      ...(secret !== '' && { secret }),
    };
    try {
      const { id } = await api.call('startImport', importRun, { body });
      return { to: `${path}/${id}` };
    } catch (error) {
      return { refused: new Form(withoutSecret(form), errorsOf(error)) };
    }
  },
};

function importFields(form: Form): Html {
  return html`${form.select('kind', 'What the server is', Object.entries(kinds))}
  ${form.input('url', 'Address', { attributes: html`type="url" maxlength="2000" required` })}
  ${form.input('user', 'User', {
    attributes: html`maxlength="255"`,
    hint: 'Leave it empty for a token, or if the server can be read without a password.',
  })}
  ${secretField(form)}
  ${form.area('only', 'Only these names', {
    attributes: html`rows="2"`,
    hint: html`Patterns such as <code>Contoso.*</code>, one a line. Leave it empty for all.`,
  })}
  ${form.area('rename', 'Rename images', {
    attributes: html`rows="2"`,
    hint: html`Rules such as <code>old/*=team/*</code>, one a line.`,
  })}
  ${form.choices('What upstreams have, too', 'hosted', [
    ['true', 'host it here', 'Otherwise it stays mirrored, if the content is the same.'],
  ])}`;
}

function secretField(form: Form): Html {
  return form.input('secret', 'Password or token', {
    attributes: html`type="password" maxlength="8192" autocomplete="off"`,
    hint: 'It is kept in memory until the import has ended, and is not stored.',
  });
}

/** The values of a form that may be kept: the secret is entered again. */
function withoutSecret(form: URLSearchParams): URLSearchParams {
  const kept = new URLSearchParams(form);
  kept.delete('secret');
  return kept;
}

/** An import: its progress and results, then its conflicts and failures. */
export const importPage: Page = {
  path: '/imports/:id',
  section: 'packages',
  action: 'admin',
  show: async (call): Promise<PageView> => {
    const { api, params, query, now, refused } = call;
    const run = await api.call('getImport', importRun, { params });
    const asked = given(query, 'cursor');
    const problems = await api.call('listImportProblems', importProblems, { params, query: { ...asked, limit: '50' } });
    const form = refused ?? new Form();
    const body = html`${runFacts(run, now)} ${run.state === 'running' && progress(run)}
      ${run.warnings.map((each) => html`<p class="warning">${each}</p>`)} ${resultRows(run)}
      ${problemRows(call, run, problems)} ${run.state !== 'running' && endedForm(run, form)}
      <p><a href="${path}">All imports</a></p>`;
    return form.view(`Import from ${new URL(run.url).host}`, body, `/v1/imports/${run.id}`);
  },
  send: async ({ api, params, form }: FormCall): Promise<Redirect | RefusedForm> => {
    const to = `${path}/${encodeURIComponent(params['id']!)}`;
    if (form.get('act') === 'resume') {
      const secret = fieldOf(form, 'secret');
      try {
        await api.call('resumeImport', importRun, { params, body: secret === '' ? {} : { secret } });
        return { to };
      } catch (error) {
        return { refused: new Form(withoutSecret(form), errorsOf(error)), at: to };
      }
    }
    const { state } = await api.call('getImport', importRun, { params });
    await api.do('endImport', { params });
    return state === 'running' ? { to, done: 'import-stopped' } : { to: path, done: 'import-forgotten' };
  },
};

/** The errors by field; one of other imports that run is shown beside the address. */
function errorsOf(error: unknown): Record<string, string> {
  const { name, message } = error as Error;
  return name === 'TooManyRequests' ? { url: message, secret: message } : fieldErrors(error);
}

const marks: Record<Run['state'], string> = {
  running: 'warn',
  done: 'good',
  stopped: 'bad',
  failed: 'bad',
  cancelled: 'warn',
  interrupted: 'bad',
  lost: 'bad',
};

function stateOf(run: Run): Html {
  const mark = run.state === 'done' && problemsOf(run) > 0 ? 'warn' : marks[run.state];
  return html`<span class="state ${mark}">${run.state}</span> ${run.dry_run && 'only shown, nothing imported'}`;
}

function problemsOf({ results }: Run): number {
  return results['conflict']!.count + results['failed']!.count;
}

function runFacts(run: Run, now: number): Html {
  return facts(
    ['State', html`${stateOf(run)} ${run.error}`],
    ['Source', `${run.url} (${run.kind})`],
    run.user !== null && ['User', run.user],
    run.only.length > 0 && ['Only', run.only.join(', ')],
    run.rename.length > 0 && ['Renamed', run.rename.join(', ')],
    ['Started', html`${ago(run.created_at, now)}${run.ended_at !== null && html`, ended ${ago(run.ended_at, now)}`}`],
    ['Received', sizeHtml(run.received_bytes)],
  );
}

function progress({ known, ended, results }: Run): Html {
  const failed = results['failed']!.count;
  return html`<div class="waiting" data-refresh="2000" data-version="${ended}/${known}/${failed}">
      <p>
        <strong>${countText(ended)} of ${countText(known)}</strong> known versions and images are done,
        ${countText(failed)} failed.
      </p>
      <p class="quiet">You can close this page. The import ends if the server is stopped; it can be resumed then.</p>
    </div>
    <form method="post" class="filter">
      <a href="">Reload</a>
      <button name="act" value="delete">Stop it</button>
    </form>`;
}

function resultRows({ dry_run: isDry, results }: Run): Html {
  return table(
    [{ name: 'Result' }, { number: 'Versions and images' }, { number: 'Size' }],
    Object.entries(outcomes).map(([outcome, [done, planned]]) => [
      isDry ? planned : done,
      countText(results[outcome]!.count),
      bytesText(results[outcome]!.size_bytes),
    ]),
    { label: 'Results' },
  );
}

function problemRows({ query }: PageCall, run: Run, { items, next_cursor: next }: Problems): Html | undefined {
  if (problemsOf(run) === 0) return undefined;
  return html`<section>
    <h2>${counted(problemsOf(run), 'conflict or failure', 'conflicts and failures')}</h2>
    ${table(
      [{ name: 'Name' }, 'Version or tag', 'What', 'Why'],
      items.map(({ name, reference, outcome, reason }) => [name, reference, outcome, reason]),
      { label: 'Conflicts and failures', empty: 'They are listed in a moment.' },
    )}
    ${furtherPages({ path: `${path}/${run.id}`, kept: {}, query: given(query, 'cursor') }, next)}
  </section>`;
}

function endedForm(run: Run, form: Form): Html {
  return html`<form method="post" class="panel narrow" autocomplete="off">
    ${run.needs_secret && secretField(form)}
    <button name="act" value="resume">${run.state === 'done' ? 'Run it again' : 'Resume it'}</button>
    <button class="danger" name="act" value="delete">Forget it</button>
  </form>`;
}
