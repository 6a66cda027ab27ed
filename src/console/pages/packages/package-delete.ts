import { dependentList, packageVersionDetails, packageVersionList } from '../../../api/content/content-schemas.ts';
import { deletedList } from '../../../api/permanence/deleted.ts';
import { packageDetails } from '../../../api/framework/schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { changeEach } from '../../framework/change-each.ts';
import { counted, short } from '../../framework/format.ts';
import { confirmForm, fieldErrors, Form, type Errors } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { packagePath, withValues } from '../../framework/links.ts';
import type { FormCall, Page, PageCall, Redirect, RefusedForm, PageView } from '../../framework/page.ts';
import { firstOf } from '../../framework/selection.ts';
import { deletionNotice, untilText } from '../permanence/deleted.ts';

/** Most versions that one form deletes or changes. */
const maxAtOnce = 200;
/** Most dependent packages that a preview names. */
const shownDependents = 50;

const noVersion = 'Choose at least one version.';

/** The address of the list of versions. */
function versionsPath(id: string): string {
  return `${packagePath(id)}?show=versions`;
}

/** Deletes versions. Shows first what that breaks. */
export const packageDeletePage: Page = {
  path: '/packages/:id/delete',
  section: 'packages',
  action: 'delete',
  show: async (call) => preview(call, await allOf(call, call.values('version'), call.query['range'])),
  send: async (call): Promise<PageView | Redirect> => {
    const versions = (await sentVersions(call)).chosen;
    const id = call.params['id']!;
    if (versions.length === 0) return { to: versionsPath(id), done: 'nothing-selected' };
    if (call.form.get('confirmed') !== 'yes') return preview(call, versions);
    const remove = (version: string) => unlessGone(call.api.do('deletePackageVersion', { params: { id, version } }));
    const refused = await changeEach(
      versions.map((version) => [version, () => remove(version)]),
      versionsPath(id),
    );
    if (refused) return refused;
    const left = await call.api.call('getPackage', packageDetails, { params: { id } }).catch(undefinedIfGone);
    return { to: left ? packagePath(id) : '/console/packages', done: await deletionNotice(call) };
  },
};

/** Unlists or lists versions again; both can be undone. */
export const packageListingPage: Page = {
  path: '/packages/:id/listing',
  section: 'packages',
  action: 'read',
  show: (call) => preview(call, []),
  send: async (call): Promise<PageView | Redirect | RefusedForm> => {
    const id = call.params['id']!;
    const isRelisted = call.form.get('change') === 'relist';
    const operation = isRelisted ? 'relistPackageVersion' : 'unlistPackageVersion';
    const refuse = (errors: Errors) => ({ refused: new Form(call.form, errors), at: versionsPath(id) });
    let sent: ReturnType<typeof firstOf>;
    try {
      sent = await sentVersions(call);
    } catch (error) {
      return refuse(fieldErrors(error));
    }
    const { chosen: versions, note } = sent;
    if (versions.length === 0) return refuse({ version: noVersion });
    if (note) return refuse({ version: `Choose at most ${maxAtOnce} versions.` });
    const refused = await changeEach(
      versions.map((version) => [version, () => call.api.do(operation, { params: { id, version } })]),
      versionsPath(id),
    );
    return refused ?? { to: packagePath(id), done: isRelisted ? 'relisted' : 'unlisted' };
  },
};

/** The versions in a form that deletes or changes them, and a note if they are too many. */
async function sentVersions(call: FormCall): Promise<ReturnType<typeof firstOf>> {
  const versions = await allOf(call, call.form.getAll('version'), call.form.get('range'));
  return firstOf(versions, maxAtOnce);
}

/** The selected versions, and those in the range. */
async function allOf(call: PageCall, selected: readonly string[], range: string | null | undefined): Promise<string[]> {
  return [...selected, ...(await versionsOfRange(call, call.params['id']!, range))];
}

/** The versions of a package in a range; none without one. Throws `Invalid` for a text that is no range, and for more than 200 versions. */
export async function versionsOfRange(
  { api }: PageCall,
  id: string,
  range: string | null | undefined,
): Promise<string[]> {
  if (!range?.trim()) return [];
  const query = { range: range.trim(), limit: String(maxAtOnce) };
  const { items, next_cursor: next } = await api.call('listPackageVersions', packageVersionList, {
    params: { id },
    query,
  });
  if (next !== null) {
    const message = `More than ${maxAtOnce} versions are in this range. Choose a smaller one.`;
    throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'range', message }] } });
  }
  return items.map(({ version }) => version);
}

/** Does nothing if the version was deleted meanwhile. */
async function unlessGone(work: Promise<void>): Promise<void> {
  await work.catch(undefinedIfGone);
}

export function undefinedIfGone(error: unknown): undefined {
  if (error instanceof DomainError && ['NotFound', 'NameUnknown', 'ManifestUnknown'].includes(error.name)) return;
  throw error;
}

async function preview({ api, params }: PageCall, asked: readonly string[]): Promise<PageView> {
  const { chosen: versions, note } = firstOf(asked, maxAtOnce);
  const id = params['id']!;
  const found = await api.call('getPackage', packageDetails, { params: { id } });
  if (versions.length === 0) {
    const body = html`<p class="failure" role="alert">${noVersion}</p>
      <p><a href="${packagePath(found.id)}">Back to ${short(found.id, 128)}</a></p>`;
    return { title: `Change ${short(found.id, 128)}`, body, status: 422 };
  }
  const query = { limit: String(shownDependents), without: versions.join(',') };
  const [{ deleted_for_seconds }, dependents, details] = await Promise.all([
    api.call('listDeleted', deletedList, { query: { limit: '1' } }),
    api.call('listDependents', dependentList, { params: { id }, query }),
    versions.length === 1
      ? api.call('getPackageVersion', packageVersionDetails, { params: { id, version: versions[0]! } })
      : undefined,
  ]);
  const isMirrored = (details ?? found).origin === 'mirrored';
  const verb = isMirrored ? 'Drop' : 'Delete';
  const body = html`<p>
      ${
        isMirrored
          ? 'The copies are dropped from the mirror. The next request for one fetches it from its upstream again, if the upstream still has it.'
          : `${untilText(deleted_for_seconds)} Clients that have locked one of these versions can no longer restore it. To hide a version only, unlist it.`
      }
    </p>
    ${note}
    <ul>
      ${versions.map((version) => html`<li>${short(found.id, 128)} ${short(version, 128)}</li>`)}
    </ul>
    ${details && details.download_count > 0 && html`<p class="warning">It was downloaded ${counted(details.download_count, 'time')}.</p>`}
    ${
      !isMirrored &&
      versions.length >= found.version_count &&
      html`<p class="warning">
        These are all versions. The account keeps its claim on the ID, so that no upstream is used for it, until an
        administrator <a href="/console/claims">releases the claim</a>.
      </p>`
    }
    ${dependentRows(dependents.items, dependents.next_cursor !== null)}
    ${confirmForm(
      `${verb} ${counted(versions.length, 'version')}`,
      'Keep',
      withValues(versionsPath(found.id), 'version', versions),
      [...versions.map((version) => ['version', version] as const), ['confirmed', 'yes']],
      `${packagePath(found.id)}/delete`,
    )}`;
  return { title: `${verb} ${counted(versions.length, 'version')} of ${short(found.id, 128)}`, body };
}

function dependentRows(items: readonly { id: string; version: string; ranges: string[] }[], isMore: boolean): Html {
  if (items.length === 0) return html`<p class="quiet">No package of this account loses a version that it needs.</p>`;
  return html`<div class="warning">
    <strong>Packages of this account that need one of these versions, and find no other:</strong>
    <ul>
      ${items.map(
        (each) =>
          html`<li>
            <a href="${packagePath(each.id)}">${short(each.id, 128)}</a> ${short(each.version, 64)}
            <span class="quiet">needs ${short(each.ranges.join(', '), 200)}</span>
          </li>`,
      )}
    </ul>
    ${isMore && html`<p>There are more.</p>`}
  </div>`;
}
