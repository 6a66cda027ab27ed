import type { z } from 'zod';
import {
  containerDetails,
  manifestDetails,
  manifestList,
  tagList,
  type manifestRow,
  type tagSchema,
} from '../../../api/content/content-schemas.ts';
import { historySchema } from '../../../api/framework/history-schema.ts';
import {
  ago,
  breakable,
  countText,
  counted,
  originOf,
  short,
  sizeHtml,
  withdrawnState,
} from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, imagePath, tabLinks, withQuery, pageLinks } from '../../framework/links.ts';
import { emptyText, filterForm, orderAddress, refusalOf, textField, type ListAddress } from '../../framework/list.ts';
import type { Page, PageCall } from '../../framework/page.ts';
import { sparkline } from '../../framework/plot.ts';
import { list, Selection } from '../../framework/selection.ts';
import { table } from '../../framework/table.ts';
import { userSection } from '../account/token.ts';
import { undefinedIfGone } from '../packages/package-delete.ts';
import { kindHtml, pullLines } from './image-kinds.ts';
import { explainMissing } from '../mirror/explain.ts';

/** Most characters of a filter of tags; `/v1` refuses more. */
const maxFilterLength = 128;
/** Characters of a digest in a table. */
export const shownDigest = 19;

/** An image: one row for each tag, the newest first. With `untagged`, its manifests without a tag instead. */
export const imagePage: Page = {
  path: '/images/:name',
  section: 'images',
  action: 'read',
  show: async (call) => {
    const { api, params, query: asked } = call;
    const name = params['name']!;
    const found = await api
      .call('getContainer', containerDetails, { params: { name }, query: { daily: '1' } })
      .catch(explainMissing(call, 'container', name));
    const path = imagePath(found.name);
    const show = Object.hasOwn(parts, asked['show'] ?? '') ? (asked['show'] ?? '') : '';
    const mayDelete = may(call.principal, 'delete') && (found.origin === 'hosted' || may(call.principal, 'operate'));
    const body = html`<p>
        ${originOf(found)}
        <span class="quiet">
          ${counted(found.tag_count, 'tag')}, ${sizeHtml(found.size_bytes)}, ${counted(found.pull_count, 'pull')}, last
          pull ${ago(found.last_pulled_at, call.now)}
        </span>
        ${sparkline(found.daily_pulls, 'pull')}
      </p>
      ${tabLinks(path, parts, show)} ${await partOf(show as keyof typeof parts, call, found, mayDelete)}`;
    const json = `/v1/containers/${encodeURIComponent(found.name)}/${show === 'untagged' ? 'manifests' : 'tags'}`;
    return { title: short(found.name, 255), body, json };
  },
};

/** The parts of the page. Each has an address: `show`. */
const parts = { '': 'Tags', untagged: 'Untagged manifests', used: 'Used by', history: 'History' } as const;

type Found = z.input<typeof containerDetails>;

async function partOf(show: keyof typeof parts, call: PageCall, found: Found, mayDelete: boolean): Promise<HtmlPart> {
  if (show === 'untagged') return untagged(call, found, mayDelete);
  if (show === 'used') return (await userSection(call, 'container', found.name)) ?? notAllowed;
  if (show === 'history') return historyOf(call, found.name);
  return tags(call, found, mayDelete);
}

const notAllowed = html`<p class="empty">Only an administrator of the account sees who uses an image.</p>`;

async function tags(call: PageCall, found: Found, mayDelete: boolean): Promise<Html> {
  const { api, query: asked, urls, now } = call;
  const { name } = found;
  const query = { ...given(asked, 'sort', 'cursor'), q: (asked['q'] ?? '').slice(0, maxFilterLength) };
  const kept = given(asked, 'attached');
  const reverse = { '': 'oldest', oldest: '', desc: 'asc', asc: 'desc' }[asked['sort'] ?? ''];
  const address = { path: imagePath(name), kept, query, reverse };
  const { sort = 'newest', ...filters }: Record<string, string> = query;
  const all = await api
    .call('listTags', tagList, { params: { name }, query: { attached: '0', ...kept, ...filters, order: sort } })
    .catch((error: unknown) => refusalOf(error, 'order'));
  const selection = mayDelete ? new Selection(call, 'tag') : undefined;
  const filter = textField(address, 'Tags that contain', 'q', maxFilterLength);
  const pulled = await pulledTag(call, name);
  return html`${pulled && pullLines(urls.registry, name, `:${pulled.tag}`, pulled.manifest)}
  ${
    typeof all === 'string'
      ? html`${filterForm(address, filter)}
          <p class="field-error" role="alert">
            ${all} <a href="${orderAddress(address, '')}">The newest push first</a>
          </p>`
      : html`${list({
          ...address,
          filter,
          rows: tagTable(found, address, all.items, now, selection),
          next: all.next_cursor,
          selection,
          actions: deletion(name, found.origin),
        })}
        ${
          (kept['attached'] ?? '0') === '0' &&
          all.items.some(({ attached }) => attached.length > 0) &&
          html`<p class="hint">
            Tags of signatures are left out.
            <a href="${withQuery(address.path, { ...query, cursor: null, attached: '1' })}">Show them</a>
          </p>`
        }`
  }`;
}

/** The tag that most people pull, with its manifest: `latest`, or the newest. Undefined if there is none, or it is not stored here. */
async function pulledTag({ api }: PageCall, name: string) {
  const manifestOf = (reference: string) =>
    api.call('getManifest', manifestDetails, { params: { name, reference } }).catch(undefinedIfGone);
  const latest = await manifestOf('latest');
  if (latest) return { tag: 'latest', manifest: latest };
  const query = { order: 'newest', attached: '0', limit: '1' };
  const { items } = await api.call('listTags', tagList, { params: { name }, query });
  const manifest = items[0] && (await manifestOf(items[0].digest));
  return manifest && { tag: items[0]!.name, manifest };
}

const attachedTexts = { signature: 'signed', sbom: 'SBOM', attestation: 'attested' } as const;

function tagTable(
  { name, origin }: Found,
  address: ListAddress,
  items: readonly z.input<typeof tagSchema>[],
  now: number,
  selection: Selection | undefined,
): Html {
  return table(
    [
      selection !== undefined && { unseen: 'Select' },
      { text: 'Tag', sort: 'desc', reverse: 'asc' },
      'Digest',
      'Platforms',
      { number: 'Size', sort: 'size' },
      { number: 'Pulls', ...(origin === 'hosted' && { sort: 'pulls' }) },
      'Last pull',
      { text: 'Updated', sort: '', reverse: 'oldest' },
    ],
    items.map((each) => [
      selection?.box(each.name, each.name),
      html`<a href="${imagePath(name, each.digest)}">${breakable(each.name)}</a> ${withdrawnState(each.withdrawn_at)}
        ${each.attached.map((kind) => html`<span class="state good">${attachedTexts[kind]}</span> `)}
        ${each.aliases.length > 0 && html`<br /><span class="quiet">same as ${short(each.aliases.join(', '), 200)}</span>`}`,
      digestLink(name, each.digest),
      each.platforms?.join(', ') ?? html`<span class="quiet">not stored here</span>`,
      sizeHtml(each.size_bytes),
      countText(each.pull_count),
      ago(each.last_pulled_at, now),
      ago(each.updated_at, now),
    ]),
    {
      empty: emptyText(address, 'No tags. Its manifests can be pulled by digest: see the untagged manifests.'),
      list: { ...address, isForm: selection !== undefined },
    },
  );
}

async function untagged(call: PageCall, { name, origin }: Found, mayDelete: boolean): Promise<Html> {
  const query = given(call.query, 'cursor');
  const { items, next_cursor: next } = await call.api.call('listUntaggedManifests', manifestList, {
    params: { name },
    query,
  });
  const selection = mayDelete ? new Selection(call, 'digest') : undefined;
  return html`<p class="hint">
      A manifest without a tag can be pulled by its digest. Those that an index lists are its images: an index needs
      them.
    </p>
    ${list({
      path: imagePath(name),
      query,
      kept: { show: 'untagged' },
      rows: manifestTable(name, items, call.now, selection, next !== null),
      next,
      selection,
      actions: deletion(name, origin),
    })}`;
}

function manifestTable(
  name: string,
  items: readonly z.input<typeof manifestRow>[],
  now: number,
  selection: Selection | undefined,
  hasMore: boolean,
): Html {
  return table(
    [
      selection !== undefined && { unseen: 'Select' },
      'Digest',
      'Kind',
      'Used by',
      { number: 'Size' },
      { number: 'Pulls' },
      'Pushed',
    ],
    items.map((each) => [
      selection?.box(each.digest, each.digest),
      digestLink(name, each.digest),
      kindHtml(each.artifact_type ?? each.media_type),
      html`${each.is_child && 'an index'} ${each.subject !== null && html`refers to ${digestLink(name, each.subject)}`}
      ${!each.is_child && each.subject === null && html`<span class="quiet">nothing known</span>`}`,
      sizeHtml(each.size_bytes),
      countText(each.pull_count),
      ago(each.updated_at, now),
    ]),
    { empty: hasMore ? 'None on this page; there are further pages.' : 'No untagged manifests.' },
  );
}

/** Leads to the preview of a deletion. */
function deletion(name: string, origin: Found['origin']): Html {
  return html`<p><button class="danger" formaction="${imagePath(name)}/delete">${deletionText(origin)}</button></p>`;
}

/** What a button says that leads to a deletion. The copies of an upstream's content come back. */
export function deletionText(origin: Found['origin']): string {
  return origin === 'mirrored' ? 'Drop from the mirror…' : 'Delete…';
}

/** A link to the page of a digest, whose beginning is shown. */
export function digestLink(name: string, digest: string): Html {
  return html`<a href="${imagePath(name, digest)}" title="${digest}"><code>${short(digest, shownDigest)}</code></a>`;
}

/** Which digest each tag had, the latest change first. */
async function historyOf({ api, principal, query: asked, now }: PageCall, name: string): Promise<Html> {
  if (principal.kind === 'anonymous') return html`<p class="empty">Sign in to see the history.</p>`;
  const query = { ...given(asked, 'cursor'), kind: 'tag' };
  const { items, next_cursor: next } = await api.call('getContainerHistory', historySchema, {
    params: { name },
    query,
  });
  return html`<section>
    <h2>What tags pointed to</h2>
    ${table(
      ['When', 'Tag', 'Digest from then on'],
      items.map((each) => [
        ago(each.seen_at, now),
        short(each.reference, 128),
        each.digest === null ? 'deleted' : digestLink(name, each.digest),
      ]),
      { empty: 'Nothing is recorded yet.' },
    )}
    ${pageLinks(imagePath(name), { ...query, show: 'history' }, next)}
    <p class="hint">
      As JSON: <code>GET ${withQuery(`/v1/containers/${encodeURIComponent(name)}/history`, query)}</code>
    </p>
  </section>`;
}
