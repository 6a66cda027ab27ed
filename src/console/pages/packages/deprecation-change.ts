import { reasons, versionDeprecationList } from '../../../api/content/notice-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { short } from '../../framework/format.ts';
import { fieldErrors, Form, trimmedField } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { withValues } from '../../framework/links.ts';
import type { FormCall, Page, PageCall, Redirect, RefusedForm, PageView } from '../../framework/page.ts';
import { firstOf } from '../../framework/selection.ts';
import { deprecationPath } from './deprecation.ts';
import { versionsOfRange } from './package-delete.ts';

/** Most selected versions that one form changes. A range and all versions are further ones. */
const maxAtOnce = 200;

const reasonTexts: Record<(typeof reasons)[number], string> = {
  Legacy: 'it is no longer maintained',
  CriticalBugs: 'it has critical bugs',
  Other: 'as the message says',
};

/** Deprecates the selected versions, or ends their deprecation. */
export const deprecationChangePage: Page = {
  path: '/packages/:id/deprecation/change',
  section: 'packages',
  action: 'write',
  show: (call) => {
    if (call.refused) return changeView(call, call.refused);
    const values = new URLSearchParams({ which: 'selected', within: call.query['range'] ?? '' });
    for (const version of call.values('version')) values.append('version', version);
    return changeView(call, new Form(values));
  },
  send: async (call): Promise<Redirect | RefusedForm> => {
    try {
      return { to: deprecationPath(call.params['id']!), done: await change(call) };
    } catch (error) {
      return { refused: new Form(call.form, fieldErrors(error)) };
    }
  },
};

/** Resolves to the notice. */
async function change(call: FormCall): Promise<string> {
  const { form, api, params } = call;
  const inRange = await versionsOfRange(call, params['id']!, form.get('within')).catch((error: unknown) => {
    const message = fieldErrors(error)['range']!;
    throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'within', message }] } });
  });
  const versions = form.get('which') === 'all' ? 'all' : [...new Set([...selectedOf(form), ...inRange])];
  if (form.get('act') === 'undeprecate') {
    const query = { versions: versions === 'all' ? versions : versions.join(',') };
    if (query.versions === '') throw noVersions();
    await api.do('undeprecatePackageVersions', { params, query });
    return 'versions-undeprecated';
  }
  if (versions.length === 0) throw noVersions();
  const [other, range] = [trimmedField(form, 'alternative'), trimmedField(form, 'range')];
  const alternative = other || range ? { id: other, range: range || null } : null;
  const body = {
    versions,
    reasons: form.getAll('reason'),
    message: trimmedField(form, 'message') || null,
    alternative,
  };
  await api.do('deprecatePackageVersions', { params, body });
  return 'versions-deprecated';
}

function selectedOf(form: URLSearchParams): string[] {
  return firstOf(form.getAll('version'), maxAtOnce).chosen;
}

function noVersions(): DomainError {
  const message = 'Select one or more versions, or all versions.';
  return new DomainError('Invalid', message, { detail: { errors: [{ field: 'versions', message }] } });
}

async function changeView(call: PageCall, form: Form): Promise<PageView> {
  const id = call.params['id']!;
  // Of a package that is not there, or not hosted, nothing can be deprecated.
  await call.api.call('listDeprecations', versionDeprecationList, { params: { id }, query: { limit: '1' } });
  const { chosen, note } = firstOf(form.values.getAll('version'), maxAtOnce);
  const body = html`<p>
      Clients show it to the users of these versions. Nothing here keeps anyone from downloading them.
    </p>
    ${note}
    ${
      chosen.length === 0
        ? html`<p class="quiet">No version is selected. Choose all versions, or a range.</p>`
        : html`<ul>
            ${chosen.map((version) => html`<li>${short(id, 128)} ${short(version, 128)}</li>`)}
          </ul>`
    }
    <form method="post" class="panel narrow">
      ${chosen.map((version) => html`<input type="hidden" name="version" value="${version}" />`)} ${changeFields(form)}
      <button class="primary" name="act" value="deprecate">Deprecate</button>
      <button name="act" value="undeprecate">End the deprecation</button>
      <a href="${withValues(deprecationPath(id), 'version', chosen)}">Cancel</a>
    </form>`;
  return form.view(`Deprecate versions of ${short(id, 128)}`, body);
}

const whichVersions = [
  ['selected', 'the selected ones'],
  ['all', 'all', 'that exist now'],
] as const;

function changeFields(form: Form): Html {
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
