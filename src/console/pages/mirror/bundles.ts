import type { z } from 'zod';
import {
  bundleImport,
  bundleKey,
  bundleKeyList,
  bundleList,
  bundleReceipt,
  bundleRevocation,
  bundleRunList,
} from '../../../api/bundles/bundle-schemas.ts';
import { typed } from '../../../runtime/command-name.ts';
import { fieldErrors, Form, fieldOf } from '../../framework/form.ts';
import { ago, bytesText, copyable, counted, countText, short, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { choice, given, tabLinks } from '../../framework/links.ts';
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
import type { FormCall, Page, PageCall, Redirect, RefusedForm } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { bundleContent, knownBadText, runState, signerOf } from './bundle-parts.ts';

type Bundle = z.input<typeof bundleList>['items'][number];
type Runs = z.input<typeof bundleRunList>;

const path = '/console/bundles';
const tabs = { '': 'Imported', made: 'Made', keys: 'Trusted keys' };
const roleTexts = {
  both: 'bundles and receipts',
  bundles: 'bundles',
  receipts: 'receipts',
  revoke: 'revocations of keys',
};
const states = { '': 'all', complete: 'complete', incomplete: 'incomplete' };
/** Most runs on the page. */
const shownRuns = 10;

/** The bundles that were made and imported here, those under way, and the keys that are trusted. */
export const bundlesPage: Page = {
  path: '/bundles',
  section: 'mirror',
  action: 'operate',
  show: async (call) => {
    const { api, query, now } = call;
    const asked = query['show'] ?? '';
    const show = (Object.hasOwn(tabs, asked) ? asked : '') as keyof typeof tabs;
    const runs = await api.call('listBundleRuns', bundleRunList);
    const part = show === 'keys' ? await keysPart(call) : await listPart(call, show === 'made' ? 'made' : 'imported');
    const body = html`<p>
        A bundle carries what is mirrored here to an installation without a network, in files that are called segments.
      </p>
      <form method="post" class="filter">
        <a class="button" href="${path}/new">Make a bundle…</a>
        <button name="act" value="import">Import a bundle…</button>
        <button name="act" value="receipt">Write a receipt</button>
      </form>
      ${runs.receipt && receiptPart(runs.receipt, now)} ${runRows(runs, now)} ${tabLinks(path, tabs, show)} ${part}`;
    const json = { '': '/v1/bundles', made: '/v1/bundles?direction=made', keys: '/v1/bundles/keys' }[show];
    return (call.refused ?? new Form()).view('Bundles', body, json);
  },
  send: async (call): Promise<Redirect | RefusedForm> => {
    const { api, form } = call;
    if (form.get('act') === 'remove') {
      await api.do('removeBundleKey', { params: { id: fieldOf(form, 'key') } });
      return { to: `${path}?show=keys`, done: 'key-removed' };
    }
    if (form.get('act') === 'trust') return trustKey(call);
    if (form.get('act') === 'revoke') return revokeKey(call);
    if (form.get('act') === 'receipt') {
      await api.call('writeBundleReceipt', bundleReceipt);
      return { to: path, done: 'receipt-written' };
    }
    const { id } = await api.call('beginBundleImport', bundleImport);
    return { to: `${path}/imports/${id}` };
  },
};

function receiptPart({ size_bytes: size, written_at: at }: NonNullable<Runs['receipt']>, now: number): Html {
  return html`<p>
    <a href="${path}/receipt/file" download>Receipt</a> of what is mirrored here, ${bytesText(size)}, written
    ${ago(at, now)}: carry it to the source of the next bundle.
  </p>`;
}

async function trustKey({ api, form }: FormCall): Promise<Redirect | RefusedForm> {
  const key = fieldOf(form, 'public_key');
  const body = {
    ...(key.trimStart().startsWith('{') ? { statement: key } : { public_key: key }),
    name: fieldOf(form, 'name'),
    ...(form.get('role') && { role: form.get('role') }),
    ...(form.get('expires_at') && { expires_at: `${form.get('expires_at')}T00:00:00Z` }),
  };
  try {
    await api.call('trustBundleKey', bundleKey, { body });
    return { to: `${path}?show=keys`, done: 'key-trusted' };
  } catch (error) {
    const { statement, ...errors } = fieldErrors(error);
    return {
      refused: new Form(form, { ...errors, ...(statement !== undefined && { public_key: statement }) }),
      at: `${path}?show=keys`,
    };
  }
}

async function revokeKey({ api, form }: FormCall): Promise<Redirect | RefusedForm> {
  try {
    await api.call('revokeBundleKey', bundleRevocation, { body: { statement: fieldOf(form, 'statement') } });
    return { to: `${path}?show=keys`, done: 'key-revoked' };
  } catch (error) {
    return { refused: new Form(form, fieldErrors(error)), at: `${path}?show=keys` };
  }
}

async function listPart({ api, query: asked, now }: PageCall, direction: 'made' | 'imported'): Promise<Html> {
  const query = given(asked, 'q', 'state', 'sort', 'cursor');
  const isImported = direction === 'imported';
  const list: ListAddress = { path, kept: isImported ? {} : { show: 'made' }, query, reverse: endOfTime(query) };
  const found = await api.call('listBundles', bundleList, { query: { ...query, direction, total: '1' } });
  return html`${filterForm(list, [
    textField(list, 'Installation contains'),
    choice('state', 'State', states, query['state']),
  ])}
  ${countLine(found.total, 'bundle', 'bundles')}
  ${table(
    [
      { name: 'Bundle' },
      { text: isImported ? 'Imported' : 'Made', ...byTime },
      'State',
      'Content',
      { number: 'Size' },
      isImported && { number: 'New here' },
      isImported && 'From',
      'Signed by',
    ],
    found.items.map((each) => bundleCells(each, now)),
    {
      label: 'Bundles',
      empty: emptyText(list, isImported ? 'None was imported here.' : 'None was made here.', found.next_cursor),
      list,
    },
  )}
  ${furtherPages(list, found.next_cursor)}`;
}

function bundleCells(bundle: Bundle, now: number): Parameters<typeof table>[1][number] {
  const { digest, state, against, segments, written, source, known_bad: known } = bundle;
  return [
    copyable(digest, digest.slice(7, 19)),
    html`${ago(bundle.changed_at, now)}
    ${bundle.direction === 'imported' && html`<span class="quiet">made ${ago(bundle.created_at, now)}</span>`}`,
    html`<span class="state ${state === 'complete' ? 'good' : 'warn'}">${state}</span>
      ${against !== null && html`<span class="quiet">against a receipt or an earlier bundle</span>`}`,
    html`${bundleContent(bundle)}
    ${known.length > 0 && html`<span class="quiet">and lists of known bad content: ${knownBadText(known)}</span>`}`,
    html`${sizeHtml(bundle.size_bytes)} <span class="quiet">${counted(segments, 'segment')}</span>`,
    written === null ? '–' : countText(written),
    copyable(source, source.slice(0, 8)),
    signerOf(bundle.key),
  ];
}

function runRows({ made, imported }: Runs, now: number): Html | undefined {
  const all = [
    ...made.map((run) => ({ run, to: `${path}/${run.id}`, what: 'Making' })),
    ...imported.map((run) => ({ run, to: `${path}/imports/${run.id}`, what: 'Import' })),
  ];
  if (all.length === 0) return undefined;
  const latest = all.toSorted((one, other) => (one.run.created_at < other.run.created_at ? 1 : -1));
  return html`<section>
    <h2>Latest makings and imports</h2>
    ${table(
      [{ name: 'What' }, 'Started', 'State', 'Files', { number: 'Segments here' }],
      latest
        .slice(0, shownRuns)
        .map(({ run, to, what }) => [
          html`<a href="${to}">${what} ${run.id.slice(0, 8)}</a>`,
          ago(run.created_at, now),
          runState(run),
          'files' in run && short(run.files.join(', ') || 'what is mirrored', 100),
          countText(run.segments.length),
        ]),
    )}
  </section>`;
}

async function keysPart({ api, refused, now }: PageCall): Promise<Html> {
  const { items, revoked } = await api.call('listBundleKeys', bundleKeyList);
  const form = refused ?? new Form();
  const nameOf = (id: string) => items.find((each) => each.id === id)?.name ?? id.slice(0, 16);
  return html`${table(
      [{ name: 'Name' }, 'Key', 'May sign', 'Since', 'Until', { unseen: 'Remove' }],
      items.map((each) => [
        html`${each.name}
        ${each.vouched_by !== null && html`<span class="quiet">because ${nameOf(each.vouched_by)} signed so</span>`}`,
        copyable(each.id, each.id.slice(0, 16)),
        roleTexts[each.role],
        ago(each.added_at, now),
        each.expires_at === null ? 'no end' : ago(each.expires_at, now),
        html`<form method="post">
          <input type="hidden" name="key" value="${each.id}" />
          <button name="act" value="remove" aria-label="Remove ${each.name}">Remove</button>
        </form>`,
      ]),
      { empty: 'No key is trusted, so only bundles without a signature can be imported, if that is allowed.' },
    )}
    ${
      revoked.length > 0 &&
      html`<section>
        <h2>Revoked keys</h2>
        ${table(
          [{ name: 'Key' }, 'Name', 'Revoked', 'By'],
          revoked.map(({ id, name, revoked_at: at, revoked_by: by }) => [
            copyable(id, id.slice(0, 16)),
            name ?? 'was not trusted here',
            ago(at, now),
            nameOf(by),
          ]),
        )}
      </section>`
    }
    <section>
      <h2>Trust a key</h2>
      <form method="post" class="panel narrow">
        ${form.input('name', 'Name', { attributes: html`maxlength="100" required` })}
        ${form.area('public_key', 'Public key', {
          attributes: html`rows="4" required`,
          hint: html`The file with <code>.pub</code> that <code>${typed('bundle keygen')}</code> has made; or the one
            with <code>.signed</code>, if a key that is trusted here has signed the new one.`,
        })}
        ${form.select('role', 'It may sign', [
          ['', 'bundles and receipts; a signed key: what its file says'],
          ['bundles', roleTexts.bundles],
          ['receipts', roleTexts.receipts],
          ['revoke', roleTexts.revoke],
        ])}
        ${form.input('expires_at', 'Until, UTC', {
          attributes: html`type="date"`,
          hint: 'Leave it empty for a key without an end.',
        })}
        <button class="primary" name="act" value="trust">Trust it</button>
      </form>
    </section>
    <section>
      <h2>Revoke a key</h2>
      <form method="post" class="panel narrow">
        ${form.area('statement', 'Revocation', {
          attributes: html`rows="3" required`,
          hint: html`The file that <code>${typed('bundle revoke')}</code> has written. A key above that may sign
            revocations must have signed it. The revoked key is never trusted again here.`,
        })}
        <button class="danger" name="act" value="revoke">Revoke it</button>
      </form>
    </section>`;
}
