import type { z } from 'zod';
import { containerDetails, manifestDetails } from '../../../api/content/content-schemas.ts';
import { changeEach } from '../../framework/change-each.ts';
import { counted, short } from '../../framework/format.ts';
import { confirmForm } from '../../framework/form.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { imagePath, withValues } from '../../framework/links.ts';
import type { Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { firstOf } from '../../framework/selection.ts';
import { digestLink } from './image.ts';
import { deletedList } from '../../../api/permanence/deleted.ts';
import { deletionNotice, untilText } from '../permanence/deleted.ts';
import { undefinedIfGone } from '../packages/package-delete.ts';

/** Most tags and manifests that one form deletes. */
const maxAtOnce = 100;

/** What to delete of an image. */
interface Choice {
  tags: readonly string[];
  digests: readonly string[];
}

/** Deletes tags and manifests. Shows first what that breaks. */
export const imageDeletePage: Page = {
  path: '/images/:name/delete',
  section: 'images',
  action: 'delete',
  show: (call) => preview(call, { tags: call.values('tag'), digests: call.values('digest') }),
  send: async (call): Promise<PageView | Redirect> => {
    const { form, api, params } = call;
    const asked = { tags: form.getAll('tag'), digests: form.getAll('digest') };
    const { tags, digests } = firstOfBoth(asked);
    const name = params['name']!;
    if (tags.length + digests.length === 0) return { to: imagePath(name), done: 'nothing-selected' };
    if (form.get('confirmed') !== 'yes') return preview(call, asked);
    const remove = (operation: string, params: Record<string, string>) => () =>
      api.do(operation, { params: { name, ...params } }).catch(undefinedIfGone);
    const refused = await changeEach(
      [
        ...tags.map((tag) => [tag, remove('deleteTag', { tag })] as const),
        ...digests.map((digest) => [digest, remove('deleteManifest', { reference: digest })] as const),
      ],
      imagePath(name),
    );
    if (refused) return refused;
    const left = await api.call('getContainer', containerDetails, { params: { name } }).catch(undefinedIfGone);
    return { to: left ? imagePath(left.name) : '/console/images', done: await deletionNotice(call) };
  },
};

function firstOfBoth(asked: Choice): Choice & { notes: readonly HtmlPart[] } {
  const [tags, digests] = [firstOf(asked.tags, maxAtOnce), firstOf(asked.digests, maxAtOnce)];
  return { tags: tags.chosen, digests: digests.chosen, notes: [tags.note, digests.note] };
}

async function preview({ api, params }: PageCall, asked: Choice): Promise<PageView> {
  const { tags, digests, notes } = firstOfBoth(asked);
  const found = await api.call('getContainer', containerDetails, { params: { name: params['name']! } });
  const { name } = found;
  if (tags.length + digests.length === 0) {
    const body = html`<p class="failure" role="alert">Choose at least one tag or manifest.</p>
      <p><a href="${imagePath(name)}">Back to ${short(name, 255)}</a></p>`;
    return { title: `Change ${short(name, 200)}`, body, status: 422 };
  }
  const describe = (reference: string) =>
    api.call('getManifest', manifestDetails, { params: { name, reference } }).catch(undefinedIfGone);
  const ofTags = await Promise.all(tags.map(describe));
  const ofDigests = await Promise.all(digests.map(describe));
  const what = [
    ...(tags.length > 0 ? [counted(tags.length, 'tag')] : []),
    ...(digests.length > 0 ? [counted(digests.length, 'manifest')] : []),
  ].join(' and ');
  const { deleted_for_seconds } = await api.call('listDeleted', deletedList, { query: { limit: '1' } });
  const verb = found.origin === 'mirrored' ? 'Drop' : 'Delete';
  const body = html`<p>
      ${
        found.origin === 'mirrored'
          ? 'The copies are dropped from the mirror. The next pull fetches them from the upstream again, if it still has them.'
          : untilText(deleted_for_seconds)
      }
    </p>
    ${notes} ${tags.map((tag, index) => tagPreview(tag, ofTags[index], tags))}
    ${digests.map((digest, index) => manifestPreview(digest, ofDigests[index]))}
    ${confirmForm(
      `${verb} ${what}`,
      'Keep',
      tags.length > 0
        ? withValues(imagePath(name), 'tag', tags)
        : withValues(`${imagePath(name)}?show=untagged`, 'digest', digests),
      [
        ...tags.map((tag) => ['tag', tag] as const),
        ...digests.map((digest) => ['digest', digest] as const),
        ['confirmed', 'yes'],
      ],
      `${imagePath(name)}/delete`,
    )}`;
  return { title: `${verb} ${what} of ${short(name, 200)}`, body };
}

type Details = z.input<typeof manifestDetails> | undefined;

function tagPreview(tag: string, details: Details, all: readonly string[]): Html {
  if (!details) return html`<p><strong>${short(tag, 128)}</strong> does not exist any more.</p>`;
  const others = details.tags.filter((each) => !all.includes(each));
  return html`<p>
    <strong>Tag ${short(tag, 128)}</strong>: its manifest ${digestLink(details.name, details.digest)} stays.
    ${
      others.length > 0
        ? html`It keeps the tags ${short(others.join(', '), 300)}.`
        : html`No other tag points to it, so it can be pulled only by digest, and retention may delete it.`
    }
  </p>`;
}

function manifestPreview(digest: string, details: Details): Html {
  if (!details) return html`<p><code>${short(digest, 80)}</code> does not exist any more.</p>`;
  const { name, tags, indexes, referrers, children } = details;
  return html`<div class="warning">
    <strong>Manifest ${digestLink(name, details.digest)}</strong>
    <ul>
      ${tags.length > 0 && html`<li>These tags are deleted with it: ${short(tags.join(', '), 500)}</li>`}
      ${
        indexes.length > 0 &&
        html`<li>
          These indexes list it, and pulls of its platform fail afterwards:
          ${indexes.map((each) => html`${digestLink(name, each)} `)}
        </li>`
      }
      ${
        referrers.length > 0 &&
        html`<li>
          ${counted(referrers.length, 'signature, SBOM or other', 'signatures, SBOMs or others')} refer to it and lose
          their image.
        </li>`
      }
      ${
        children.length > 0 &&
        html`<li>It is an index. Its ${counted(children.length, 'manifest')} stay, and retention may delete them.</li>`
      }
      ${tags.length + indexes.length + referrers.length + children.length === 0 && html`<li>Nothing known needs it.</li>`}
    </ul>
  </div>`;
}
