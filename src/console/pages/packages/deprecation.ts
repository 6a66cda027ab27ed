import type { z } from 'zod';
import { advisory, advisoryList, versionDeprecationList } from '../../../api/content/notice-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { confirmForm, fieldErrors, Form, type Errors, trimmedField } from '../../framework/form.ts';
import { ago } from '../../framework/format.ts';
import { html, webAddress, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, RefusedForm, PageView } from '../../framework/page.ts';
import { given } from '../../framework/links.ts';
import { list, Selection } from '../../framework/selection.ts';
import { table } from '../../framework/table.ts';

type Advisory = z.input<typeof advisory>;
type Version = z.input<typeof versionDeprecationList>['items'][number];

/** More than a package can have. */
const advisoriesShown = '100';

/** The levels of severity, from 0, with the warnings of NuGet. */
const severities = ['Low (NU1901)', 'Moderate (NU1902)', 'High (NU1903)', 'Critical (NU1904)'] as const;

/** The address of the page. */
export function deprecationPath(id: string): string {
  return `/console/packages/${encodeURIComponent(id)}/deprecation`;
}

/** The deprecation of a hosted package's versions, and the advisories on the package. */
export const deprecationPage: Page = {
  path: '/packages/:id/deprecation',
  section: 'packages',
  action: 'write',
  show: (call) => packageView(call, call.refused ?? new Form()),
  send: async (call): Promise<Redirect | RefusedForm> => {
    try {
      await advise(call);
    } catch (error) {
      return { refused: new Form(call.form, errorsOf(error)) };
    }
    return { to: deprecationPath(call.params['id']!), done: 'advisory-created' };
  },
};

/** As `fieldErrors`. That an advisory exists already is an error of its address. */
function errorsOf(error: unknown): Errors {
  if (error instanceof DomainError && error.name === 'AlreadyExists') return { url: error.message };
  return fieldErrors(error);
}

async function advise({ form, api, params }: FormCall): Promise<void> {
  const body = {
    package: params['id']!,
    versions: trimmedField(form, 'affected'),
    severity: Number(form.get('severity') ?? Number.NaN),
    url: trimmedField(form, 'url'),
  };
  await api.call('createAdvisory', advisory, { body });
}

async function packageView(call: PageCall, advice: Form): Promise<PageView> {
  const id = call.params['id']!;
  const path = deprecationPath(id);
  const query = given(call.query, 'cursor');
  const { items, next_cursor: next } = await call.api.call('listDeprecations', versionDeprecationList, {
    params: { id },
    query,
  });
  const advisories = await call.api.call('listAdvisories', advisoryList, {
    query: { package: id, limit: advisoriesShown },
  });
  const selection = new Selection(call, 'version');
  const rows = versionRows(items, selection);
  const actions = html`<p><button formaction="${path}/change">Deprecate or end the deprecation…</button></p>`;
  const body = html`<p>Clients show both to the users of the package. Nothing here keeps anyone from downloading it.</p>
    <section>
      <h2>Deprecation</h2>
      ${list({ path, query, rows, next, selection, actions })}
    </section>
    <section>
      <h2>Advisories</h2>
      ${advisoryRows(id, advisories.items, call.now)} ${advisoryForm(advice)}
    </section>`;
  return advice.view(
    `Deprecation and advisories of ${id}`,
    body,
    `/v1/packages/${encodeURIComponent(id)}/deprecations`,
  );
}

function versionRows(versions: readonly Version[], selection: Selection): Html {
  return table(
    [{ unseen: 'Select' }, { name: 'Version' }, 'State', 'Reasons', 'Message', 'Use instead'],
    versions.map(({ version, listed, deprecation }) => [
      selection.box(version, version),
      html`${version}${!listed && html` <span class="quiet">unlisted</span>`}`,
      deprecation ? html`<span class="state warn">deprecated</span>` : 'current',
      deprecation?.reasons.join(', '),
      deprecation?.message,
      deprecation?.alternative && `${deprecation.alternative.id} ${deprecation.alternative.range}`,
    ]),
  );
}

function advisoryRows(id: string, advisories: readonly Advisory[], now: number): Html {
  return table(
    [{ name: 'Affected versions' }, 'Severity', 'Address', 'Written', { unseen: 'Action' }],
    advisories.map((each) => [
      each.versions,
      severities[each.severity],
      html`<a href="${webAddress(each.url)}" rel="nofollow noopener">${each.url}</a>`,
      ago(each.created_at, now),
      html`<a href="/console/packages/${encodeURIComponent(id)}/advisories/${each.id}/delete"
        >Delete…<span class="unseen"> the advisory on ${each.versions}</span></a
      >`,
    ]),
    {
      empty:
        'There is no advisory on this package. Write one below if a version has a vulnerability: audits of NuGet then warn of it.',
    },
  );
}

function advisoryForm(form: Form): Html {
  return html`<form method="post" class="panel narrow">
    <h3>Write an advisory</h3>
    ${form.error('form')} ${form.error('package')}
    ${form.input('affected', 'Affected versions', {
      attributes: html`required maxlength="255"`,
      errorOf: 'versions',
      hint: html`A range with brackets: <code>[1.0.0, 1.2.0)</code> ends before 1.2.0, and <code>[1.0.0]</code> is one
        version.`,
    })}
    ${form.select(
      'severity',
      'Severity',
      severities.map((text, level) => [level, text] as const),
    )}
    ${form.input('url', 'Address where people read about it', { attributes: html`type="url" required maxlength="500"` })}
    <button class="primary">Write it</button>
  </form>`;
}

/** Confirms that an advisory is deleted. */
export const deleteAdvisoryPage: Page = {
  path: '/packages/:id/advisories/:advisory/delete',
  section: 'packages',
  action: 'write',
  show: async ({ api, params }) => {
    const id = params['id']!;
    const { items } = await api.call('listAdvisories', advisoryList, {
      query: { package: id, limit: advisoriesShown },
    });
    const found = items.find((each) => each.id === params['advisory']);
    if (!found) throw new DomainError('NotFound', 'This package has no such advisory. It may have been deleted.');
    const body = html`<p>
        Audits will no longer warn of <strong>${found.package} ${found.versions}</strong>
        (${severities[found.severity]}, ${found.url}). This cannot be undone.
      </p>
      ${confirmForm('Delete the advisory', 'Keep it', deprecationPath(id))}`;
    return { title: 'Delete an advisory', body };
  },
  send: async ({ api, params }): Promise<Redirect> => {
    await api.do('deleteAdvisory', { params: { id: params['advisory']! } });
    return { to: deprecationPath(params['id']!), done: 'advisory-deleted' };
  },
};
