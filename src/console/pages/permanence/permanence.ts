import { permanenceItem } from '../../../api/permanence/permanence.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { Form, type Errors, fieldWords } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import type { Page, Redirect, RefusedForm } from '../../framework/page.ts';
import { facts } from '../../framework/table.ts';

const path = '/console/permanence';

const fields = [
  ['freeze-images', 'Tags that cannot move', 'freeze.images', html`<code>team/*:v*</code> or <code>team/*</code>`],
  [
    'keep-packages',
    'Versions that are kept',
    'keep.packages',
    html`<code>Contoso.*</code> or <code>Fabrikam@2.*</code>`,
  ],
  [
    'keep-images',
    'Images and tags that are kept',
    'keep.images',
    html`<code>team/base</code> or <code>team/*:v*</code>`,
  ],
] as const;

/** Which tags cannot move, and what cannot be deleted. */
export const permanencePage: Page = {
  path: '/permanence',
  section: 'packages',
  action: 'account',
  show: async ({ api, principal, refused }) => {
    const { freeze, keep } = await api.call('getPermanence', permanenceItem);
    const lists = [freeze.images, keep.packages, keep.images];
    const values = Object.fromEntries(fields.map(([name], index) => [name, lists[index]!.join('\n')]));
    const form = refused ?? new Form(values);
    const body = html`<p>
        A tag that matches the first list cannot point to other content once it exists. What matches a list cannot be
        deleted, by no client, job or page. The rules act at once. What was deleted before is on the page
        <a href="/console/deleted">Deleted</a>.
      </p>
      ${may(principal, 'admin') ? editor(form) : facts(...fields.map(([name, label]) => [label, form.values.get(name)!.replaceAll('\n', ', ') || 'nothing'] as const))}`;
    return form.view('Freeze and keep', body, '/v1/account/permanence');
  },
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const list = (name: string) => fieldWords(form, name);
    const body = {
      freeze: { images: list('freeze-images') },
      keep: { packages: list('keep-packages'), images: list('keep-images') },
    };
    try {
      await api.call('putPermanence', permanenceItem, { body });
      return { to: path, done: 'permanence-changed' };
    } catch (error) {
      return { refused: new Form(form, errorsOf(error)) };
    }
  },
};

function editor(form: Form): Html {
  return html`<form method="post" action="${path}" class="panel narrow">
    ${fields.map(([name, label, , example]) =>
      form.area(name, `${label}, one pattern a line`, { attributes: html`rows="4"`, hint: html`Such as ${example}.` }),
    )}
    <button class="primary">Save</button>
  </form>`;
}

/** An error of one pattern is one of its list. Other errors are thrown again. */
function errorsOf(error: unknown): Errors {
  if (!(error instanceof DomainError) || error.name !== 'Invalid') throw error;
  const list = (error.detail?.['errors'] ?? []) as { field: string; message: string }[];
  return Object.fromEntries(
    list.map(({ field, message }) => [fields.find(([, , at]) => field.startsWith(at))?.[0] ?? field, message]),
  );
}
