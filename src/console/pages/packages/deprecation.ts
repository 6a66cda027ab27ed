import type { z } from 'zod';
import { advisory, advisoryList, reasons, versionDeprecationList } from '../../../api/content/notice-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { describedBy, fieldError, fieldErrors } from '../../framework/failure.ts';
import { ago } from '../../framework/format.ts';
import { html, webAddress, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { given, pageLinks } from '../../framework/links.ts';
import { selectCell, table } from '../../framework/table.ts';

type Advisory = z.input<typeof advisory>;
type Version = z.input<typeof versionDeprecationList>['items'][number];
type Errors = Readonly<Record<string, string>>;

/** A form that was refused, and its errors by field. */
interface Refused {
  form: URLSearchParams;
  errors: Errors;
}

const noForm: Refused = { form: new URLSearchParams(), errors: {} };
/** More than a package can have. */
const advisoriesShown = '100';

const reasonTexts: Record<(typeof reasons)[number], string> = {
  Legacy: 'it is no longer maintained',
  CriticalBugs: 'it has critical bugs',
  Other: 'as the message says',
};

/** The levels of severity, from 0, with the warnings of NuGet. */
const severities = ['Low (NU1901)', 'Moderate (NU1902)', 'High (NU1903)', 'Critical (NU1904)'] as const;

function addressOf(id: string): string {
  return `/console/packages/${encodeURIComponent(id)}/deprecation`;
}

/** The deprecation of a hosted package's versions, and the advisories on the package. */
export const deprecationPage: Page = {
  path: '/packages/:id/deprecation',
  section: 'packages',
  action: 'write',
  show: (call) => packageView(call, noForm, noForm),
  send: async (call): Promise<PageView | Redirect> => {
    const id = call.params['id']!;
    const isAdvisory = call.form.get('act') === 'advise';
    try {
      return { to: addressOf(id), done: await (isAdvisory ? advise(call, id) : change(call, id)) };
    } catch (error) {
      const refused = { form: call.form, errors: errorsOf(error) };
      return packageView(call, isAdvisory ? noForm : refused, isAdvisory ? refused : noForm);
    }
  },
};

/** As `fieldErrors`. That an advisory exists already is an error of its address. */
function errorsOf(error: unknown): Errors {
  if (error instanceof DomainError && error.name === 'AlreadyExists') return { url: error.message };
  return fieldErrors(error);
}

/** Deprecates the chosen versions, or ends their deprecation. Resolves to the notice. */
async function change({ form, api }: FormCall, id: string): Promise<string> {
  const versions = form.get('which') === 'all' ? 'all' : form.getAll('version');
  const params = { id };
  if (form.get('act') === 'undeprecate') {
    const query = { versions: versions === 'all' ? versions : versions.join(',') };
    if (query.versions === '') throw noVersions();
    await api.do('undeprecatePackageVersions', { params, query });
    return 'versions-undeprecated';
  }
  if (versions.length === 0) throw noVersions();
  const [other, range] = [textOf(form, 'alternative'), textOf(form, 'range')];
  const alternative = other || range ? { id: other, range: range || null } : null;
  const body = { versions, reasons: form.getAll('reason'), message: textOf(form, 'message') || null, alternative };
  await api.do('deprecatePackageVersions', { params, body });
  return 'versions-deprecated';
}

function noVersions(): DomainError {
  const message = 'Select one or more versions, or all versions.';
  return new DomainError('Invalid', message, { detail: { errors: [{ field: 'versions', message }] } });
}

async function advise({ form, api }: FormCall, id: string): Promise<string> {
  const body = {
    package: id,
    versions: textOf(form, 'affected'),
    severity: Number(form.get('severity') ?? Number.NaN),
    url: textOf(form, 'url'),
  };
  await api.call('createAdvisory', advisory, { body });
  return 'advisory-created';
}

function textOf(form: URLSearchParams, name: string): string {
  return (form.get(name) ?? '').trim();
}

async function packageView(call: PageCall, deprecation: Refused, advice: Refused): Promise<PageView> {
  const id = call.params['id']!;
  const versions = await call.api.call('listDeprecations', versionDeprecationList, {
    params: { id },
    query: given(call.query, 'cursor'),
  });
  const query = { package: id, limit: advisoriesShown };
  const advisories = await call.api.call('listAdvisories', advisoryList, { query });
  const body = html`<p>Clients show both to the users of the package. Nothing here keeps anyone from downloading it.</p>
    <section>
      <h2>Deprecation</h2>
      <form method="post" class="panel">
        ${versionRows(versions.items, new Set(deprecation.form.getAll('version')))}
        ${pageLinks(addressOf(id), call.query, versions.next_cursor)} ${deprecationFields(deprecation)}
        <button class="primary" name="act" value="deprecate">Deprecate</button>
        <button name="act" value="undeprecate">End the deprecation</button>
      </form>
    </section>
    <section>
      <h2>Advisories</h2>
      ${
        advisories.items.length === 0
          ? html`<p class="empty">
              There is no advisory on this package. Write one below if a version has a vulnerability: audits of NuGet
              then warn of it.
            </p>`
          : advisoryRows(id, advisories.items, call.now)
      }
      ${advisoryForm(advice)}
    </section>`;
  const wrong = Object.keys({ ...deprecation.errors, ...advice.errors }).length > 0;
  return {
    title: `Deprecation and advisories of ${id}`,
    body,
    json: `/v1/packages/${encodeURIComponent(id)}/deprecations`,
    status: wrong ? 422 : 200,
  };
}

function versionRows(versions: readonly Version[], chosen: ReadonlySet<string>): Html {
  return table(
    [{ unseen: 'Select' }, 'Version', 'State', 'Reasons', 'Message', 'Use instead'],
    versions.map(
      ({ version, listed, deprecation }) =>
        html`<tr>
          ${selectCell('version', version, version, chosen.has(version))}
          <th scope="row">${version}${!listed && html` <span class="quiet">unlisted</span>`}</th>
          <td>${deprecation ? html`<span class="state warn">deprecated</span>` : 'current'}</td>
          <td>${deprecation?.reasons.join(', ')}</td>
          <td>${deprecation?.message}</td>
          <td>${deprecation?.alternative && `${deprecation.alternative.id} ${deprecation.alternative.range}`}</td>
        </tr>`,
    ),
  );
}

function deprecationFields({ form, errors }: Refused): Html {
  const given = new Set(form.getAll('reason'));
  const all = form.get('which') === 'all';
  return html`${fieldError('form', errors)}
    <fieldset>
      <legend>Versions</legend>
      <label class="choice"
        ><input type="radio" name="which" value="selected" ${all ? '' : html`checked`} /> the selected ones</label
      >
      <label class="choice"
        ><input type="radio" name="which" value="all" ${all ? html`checked` : ''} /> all
        <span class="quiet">that exist now, on all pages of the table</span></label
      >
      ${fieldError('versions', errors)}
    </fieldset>
    <fieldset>
      <legend>Reasons</legend>
      ${reasons.map(
        (each) =>
          html`<label class="choice"
            ><input type="checkbox" name="reason" value="${each}" ${given.has(each) ? html`checked` : ''} /> ${each}
            <span class="quiet">${reasonTexts[each]}</span></label
          >`,
      )}
      ${fieldError('reasons', errors)}
    </fieldset>
    <label for="message">Message</label>
    <textarea id="message" name="message" rows="3" maxlength="1000" ${describedBy('message', errors)}>
${form.get('message')}</textarea>
    ${fieldError('message', errors)}
    <label for="alternative">Package to use instead</label>
    <input
      id="alternative"
      name="alternative"
      maxlength="100"
      value="${form.get('alternative')}"
      ${describedBy('alternative', errors)}
    />
    ${fieldError('alternative', errors)}
    <label for="range">Versions of it</label>
    <input id="range" name="range" maxlength="255" value="${form.get('range')}" />
    <p class="hint">A range such as <code>[2.0.0, 3.0.0)</code>. Leave it empty for any version.</p>`;
}

function advisoryRows(id: string, advisories: readonly Advisory[], now: number): Html {
  return table(
    ['Affected versions', 'Severity', 'Address', 'Written', { unseen: 'Action' }],
    advisories.map(
      (each) =>
        html`<tr>
          <th scope="row">${each.versions}</th>
          <td>${severities[each.severity]}</td>
          <td><a href="${webAddress(each.url)}" rel="nofollow noopener">${each.url}</a></td>
          <td>${ago(each.created_at, now)}</td>
          <td>
            <a href="/console/packages/${encodeURIComponent(id)}/advisories/${each.id}/delete"
              >Delete…<span class="unseen"> the advisory on ${each.versions}</span></a
            >
          </td>
        </tr>`,
    ),
  );
}

function advisoryForm({ form, errors }: Refused): Html {
  return html`<form method="post" class="panel narrow">
    <h3>Write an advisory</h3>
    ${fieldError('form', errors)} ${fieldError('package', errors)}
    <label for="affected">Affected versions</label>
    <input
      id="affected"
      name="affected"
      required
      maxlength="255"
      value="${form.get('affected')}"
      ${describedBy('versions', errors)}
    />
    ${fieldError('versions', errors)}
    <p class="hint">
      A range with brackets: <code>[1.0.0, 1.2.0)</code> ends before 1.2.0, and <code>[1.0.0]</code> is one version.
    </p>
    <label for="severity">Severity</label>
    <select id="severity" name="severity" ${describedBy('severity', errors)}>
      ${severities.map(
        (text, level) =>
          html`<option value="${level}" ${form.get('severity') === String(level) ? html`selected` : ''}>
            ${text}
          </option>`,
      )}
    </select>
    ${fieldError('severity', errors)}
    <label for="url">Address where people read about it</label>
    <input
      id="url"
      name="url"
      type="url"
      required
      maxlength="500"
      value="${form.get('url')}"
      ${describedBy('url', errors)}
    />
    ${fieldError('url', errors)}
    <button class="primary" name="act" value="advise">Write it</button>
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
      <form method="post">
        <button class="danger">Delete the advisory</button>
        <a href="${addressOf(id)}">Keep it</a>
      </form>`;
    return { title: 'Delete an advisory', body };
  },
  send: async ({ api, params }): Promise<Redirect> => {
    await api.do('deleteAdvisory', { params: { id: params['advisory']! } });
    return { to: addressOf(params['id']!), done: 'advisory-deleted' };
  },
};
