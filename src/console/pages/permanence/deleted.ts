import type { z } from 'zod';
import { deletedList, maxPurgeReason, restoredItem } from '../../../api/permanence/deleted.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { fieldErrors, Form, fieldOf } from '../../framework/form.ts';
import { ago, lengthText, short, sizeHtml } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given } from '../../framework/links.ts';
import {
  byTime,
  countLine,
  emptyText,
  endOfTime,
  filterForm,
  furtherPages,
  textField,
  type ListAddress,
} from '../../framework/list.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

type Deleted = z.input<typeof deletedList>['items'][number];

const path = '/console/deleted';

/** What was deleted and can be restored. */
export const deletedPage: Page = {
  path: '/deleted',
  section: 'packages',
  action: 'delete',
  show: deletedView,
  send: async (call): Promise<Redirect | RefusedForm> => {
    try {
      const params = { id: fieldOf(call.form, 'id') };
      const { left_tags: left } = await call.api.call('restoreDeleted', restoredItem, { params });
      return { to: path, done: left.length > 0 ? 'restored-in-part' : 'restored' };
    } catch (error) {
      if (!(error instanceof DomainError) || !refusals.has(error.name)) throw error;
      return { refused: new Form({}, { form: error.message }) };
    }
  },
};

/** Why something cannot be restored now. */
const refusals = new Set(['NotFound', 'AlreadyExists', 'ManifestUnknown', 'QuotaExceeded']);

async function deletedView(call: PageCall): Promise<PageView> {
  const { api, now, principal } = call;
  const query = given(call.query, 'q', 'sort', 'cursor');
  const address: ListAddress = { path, query, reverse: endOfTime(query) };
  const list = await api.call('listDeleted', deletedList, { query: { ...query, total: '1' } });
  const form = call.refused ?? new Form({});
  const isAdmin = may(principal, 'admin');
  const body = html`${form.error('form')}
    <p>${untilText(list.deleted_for_seconds)}</p>
    ${filterForm(address, textField(address, 'Name contains'))} ${countLine(list.total, 'deletion', 'deletions')}
    ${table(
      [
        { name: 'Name' },
        'What',
        { number: 'Size' },
        { text: 'Deleted', ...byTime },
        isAdmin && 'By',
        'Can be restored until',
        { unseen: 'Change' },
      ],
      list.items.map((each) => [
        nameOf(each),
        each.type,
        each.type === 'tag' ? '' : sizeHtml(each.size_bytes),
        ago(each.deleted_at, now),
        each.deleted_by?.name ?? each.deleted_by?.kind,
        ago(each.restorable_until, now),
        html`<form method="post" action="${path}">
          <button name="id" value="${each.id}">Restore<span class="unseen"> ${nameOf(each)}</span></button>
          ${isAdmin && html`<a href="${path}/${each.id}">Delete for good…<span class="unseen"> ${nameOf(each)}</span></a>`}
        </form>`,
      ]),
      { empty: emptyText(address, 'Nothing was deleted that can be restored.', list.next_cursor), list: address },
    )}
    ${furtherPages(address, list.next_cursor)}`;
  return form.view('Deleted', body, '/v1/deleted');
}

/** The notice after a deletion: whether what was deleted since the request began can be restored. */
export async function deletionNotice({ api, now }: PageCall): Promise<'restorable' | 'deleted'> {
  const { items } = await api.call('listDeleted', deletedList, { query: { limit: '1' } });
  return items.some(({ deleted_at: at }) => Date.parse(at) >= now) ? 'restorable' : 'deleted';
}

/** Whether what is deleted now can be restored, for the page that asks before a deletion. */
export function untilText(seconds: number): string {
  if (seconds === 0) return 'A deletion cannot be undone: the setting deletedFor is 0s.';
  return `What is deleted can be restored for ${lengthText(seconds)}, on the page Deleted. Its bytes count until then.`;
}

/** Asks for the reason before something is deleted for good. */
export const purgePage: Page = {
  path: '/deleted/:id',
  section: 'packages',
  action: 'admin',
  show: ({ params, refused }) => {
    const form = refused ?? new Form({});
    const body = html`<p class="warning">It cannot be restored after that. The job gc frees its bytes.</p>
      <form method="post" class="panel narrow">
        ${form.input('reason', 'Why', { attributes: html`maxlength="${maxPurgeReason}" required` })}
        <button class="danger">Delete for good</button>
        <a href="${path}">Keep</a>
      </form>`;
    return Promise.resolve(form.view(`Delete deletion ${short(params['id']!, 20)} for good`, body));
  },
  send: async ({ api, form, params }): Promise<Redirect | RefusedForm> => {
    try {
      const query = { reason: fieldOf(form, 'reason') };
      await api.do('purgeDeleted', { params: { id: params['id']! }, query });
      return { to: path, done: 'purged' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

function nameOf({ type, name, reference }: Deleted): HtmlPart {
  const separator = { version: ' ', manifest: '@', tag: ':' }[type];
  return short(`${name}${separator}${reference}`, 160);
}
