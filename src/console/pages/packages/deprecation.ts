import type { z } from 'zod';
import { advisory, advisoryList, reasons, versionDeprecationList } from '../../../api/content/notice-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { confirmForm, fieldErrors, Form, type Errors } from '../../framework/form.ts';
import { ago } from '../../framework/format.ts';
import { html, webAddress, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { given, pageLinks } from '../../framework/links.ts';
import { selectBox, table } from '../../framework/table.ts';
import { versionsOfRange } from './package-delete.ts';

type Advisory = z.input<typeof advisory>;
type Version = z.input<typeof versionDeprecationList>['items'][number];

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
  show: (call) => packageView(call, new Form({ which: 'selected' }), new Form()),
  send: async (call): Promise<PageView | Redirect> => {
    const id = call.params['id']!;
    const isAdvisory = call.form.get('act') === 'advise';
    try {
      return { to: addressOf(id), done: await (isAdvisory ? advise(call, id) : change(call, id)) };
    } catch (error) {
      const refused = new Form(call.form, errorsOf(error));
      return isAdvisory
        ? packageView(call, new Form({ which: 'selected' }), refused)
        : packageView(call, refused, new Form());
    }
  },
};

/** As `fieldErrors`. That an advisory exists already is an error of its address. */
function errorsOf(error: unknown): Errors {
  if (error instanceof DomainError && error.name === 'AlreadyExists') return { url: error.message };
  return fieldErrors(error);
}

/** Deprecates the chosen versions, or ends their deprecation. Resolves to the notice. */
async function change(call: FormCall, id: string): Promise<string> {
  const { form, api } = call;
  const inRange = await versionsOfRange(call, id, form.get('within')).catch((error: unknown) => {
    const message = fieldErrors(error)['range']!;
    throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'within', message }] } });
  });
  const versions = form.get('which') === 'all' ? 'all' : [...new Set([...form.getAll('version'), ...inRange])];
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

async function packageView(call: PageCall, deprecation: Form, advice: Form): Promise<PageView> {
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
        ${versionRows(versions.items, new Set(deprecation.values.getAll('version')))}
        ${pageLinks(addressOf(id), call.query, versions.next_cursor)} ${deprecationFields(deprecation)}
        <button class="primary" name="act" value="deprecate">Deprecate</button>
        <button name="act" value="undeprecate">End the deprecation</button>
      </form>
    </section>
    <section>
      <h2>Advisories</h2>
      ${advisoryRows(id, advisories.items, call.now)} ${advisoryForm(advice)}
    </section>`;
  const refused = Object.keys(advice.errors).length > 0 ? advice : deprecation;
  return refused.view(
    `Deprecation and advisories of ${id}`,
    body,
    `/v1/packages/${encodeURIComponent(id)}/deprecations`,
  );
}

function versionRows(versions: readonly Version[], chosen: ReadonlySet<string>): Html {
  return table(
    [{ unseen: 'Select' }, { name: 'Version' }, 'State', 'Reasons', 'Message', 'Use instead'],
    versions.map(({ version, listed, deprecation }) => [
      selectBox('version', version, version, chosen.has(version)),
      html`${version}${!listed && html` <span class="quiet">unlisted</span>`}`,
      deprecation ? html`<span class="state warn">deprecated</span>` : 'current',
      deprecation?.reasons.join(', '),
      deprecation?.message,
      deprecation?.alternative && `${deprecation.alternative.id} ${deprecation.alternative.range}`,
    ]),
  );
}

const whichVersions = [
  ['selected', 'the selected ones'],
  ['all', 'all', 'that exist now, on all pages of the table'],
] as const;

function deprecationFields(form: Form): Html {
  const explained = reasons.map((each) => [each, each, reasonTexts[each]] as const);
  return html`${form.error('form')}
  ${form.choices('Versions', 'which', whichVersions, { errorOf: 'versions', type: 'radio' })}
  ${form.input('within', 'And the versions in the range', { attributes: html`maxlength="255" placeholder="[1.0.0, 2.0.0)"` })}
  ${form.choices('Reasons', 'reason', explained, { errorOf: 'reasons' })}
  ${form.area('message', 'Message', { attributes: html`rows="3" maxlength="1000"` })}
  ${form.input('alternative', 'Package to use instead', { attributes: html`maxlength="100"` })}
  ${form.input('range', 'Versions of it', {
    attributes: html`maxlength="255"`,
    hint: html`A range such as <code>[2.0.0, 3.0.0)</code>. Leave it empty for any version.`,
  })}`;
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
      ${confirmForm('Delete the advisory', 'Keep it', addressOf(id))}`;
    return { title: 'Delete an advisory', body };
  },
  send: async ({ api, params }): Promise<Redirect> => {
    await api.do('deleteAdvisory', { params: { id: params['advisory']! } });
    return { to: addressOf(params['id']!), done: 'advisory-deleted' };
  },
};
