import type { z } from 'zod';
import type { bundleImport, bundleList, bundleMaking } from '../../../api/bundles/bundle-schemas.ts';
import { typed } from '../../../runtime/command-name.ts';
import { ago, bytesText, countText, counted, copyable, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { facts, type Fact } from '../../framework/table.ts';

// What the pages of bundles have in common.

type Bundle = z.input<typeof bundleList>['items'][number];
type Run = z.input<typeof bundleMaking> | z.input<typeof bundleImport>;

/** What a bundle has: packages, images, layers and documents. */
export function bundleContent({
  packages,
  manifests,
  layers,
  documents,
}: Pick<Bundle, 'packages' | 'manifests' | 'layers' | 'documents'>): Html {
  const parts = [
    [packages, 'package', 'packages'],
    [manifests, 'manifest', 'manifests'],
    [layers, 'layer', 'layers'],
    [documents, 'document', 'documents'],
  ] as const;
  const there = parts.filter(([{ count }]) => count > 0);
  return html`${there.length === 0 && 'nothing'}
  ${there
    .map(([{ count, size_bytes: size }, one, many]) => `${counted(count, one, many)} (${bytesText(size)})`)
    .join(', ')}`;
}

/** The key that signed a bundle. */
export function signerOf(key: Bundle['key']): Html {
  if (key === null) return html`<span class="state warn">not signed</span>`;
  return html`${key.name} ${copyable(key.id, key.id.slice(0, 16))}
  ${key.name === null && html`<span class="quiet">not trusted here</span>`}`;
}

const marks: Record<Run['state'], string> = {
  receiving: 'warn',
  running: 'warn',
  incomplete: 'warn',
  checked: 'good',
  done: 'good',
  failed: 'bad',
  cancelled: 'warn',
  interrupted: 'bad',
  lost: 'bad',
  expired: 'warn',
};

/** The state of a making or an import, and why it failed. */
export function runState({ state, error }: Run): Html {
  return html`<span class="state ${marks[state]}">${state}</span> ${error}`;
}

/** The facts about a making or an import, after `more`. */
export function runFacts(run: Run, now: number, ...more: readonly Fact[]): Html {
  const { bundle, segments } = run;
  return facts(
    ['State', runState(run)],
    ['Started', html`${ago(run.created_at, now)}${run.ended_at !== null && html`, ended ${ago(run.ended_at, now)}`}`],
    ...more,
    bundle && ['Bundle', copyable(bundle.digest, bundle.digest.slice(0, 23))],
    bundle && ['Content', bundleContent(bundle)],
    bundle && ['Size', html`${sizeHtml(bundle.size_bytes)} in ${counted(bundle.segments, 'segment')}`],
    bundle && ['Signed by', signerOf(bundle.key)],
    bundle && bundle.written !== null && ['New here', counted(bundle.written, 'entry', 'entries')],
    bundle?.policy && ['Policy', html`It has one. <code>${typed('bundle inspect --policy')}</code> prints it.`],
    bundle &&
      bundle.known_bad.length > 0 && [
        'Known bad content',
        html`${knownBadText(bundle.known_bad)} <code>${typed('bundle inspect --known-bad')}</code> prints a list.`,
      ],
    bundle?.new_key && ['New key', newKeyFact(bundle.new_key)],
    segments.length > 0 && [
      'Segments here',
      `${countText(segments.length)}, ${bytesText(segments.reduce((sum, each) => sum + each.size_bytes, 0))}`,
    ],
  );
}

/** The lists of known bad content of a bundle. */
export function knownBadText(lists: Bundle['known_bad']): string {
  return `${lists.map(({ name, records }) => `${name} (${counted(records, 'record')})`).join(', ')}.`;
}

/** A new key that a bundle announces. The announcement alone does not make it trusted. */
function newKeyFact({ id, signer, statement, refused }: NonNullable<NonNullable<Run['bundle']>['new_key']>): Html {
  const key = id !== null && html`<code>${id.slice(0, 16)}</code>`;
  if (refused !== null) return html`${key} <span class="state bad">cannot be trusted here</span> ${refused}`;
  return html`${key}, signed by ${signer}. To trust it, enter this statement under
    <a href="/console/bundles?show=keys">Trusted keys</a>: ${copyable(statement, `${statement.slice(0, 40)}…`)}`;
}

/** The progress of what runs, with a button that stops it. The page refreshes itself. */
export function runProgress({ done_bytes: done, total_bytes: total, ...run }: Run): Html {
  const fetched = 'known' in run && total === null;
  const shown = fetched
    ? html`<strong>${countText(run.ended)} of ${countText(run.known)}</strong> known things are fetched.`
    : html`<strong>${bytesText(done)} of ${bytesText(total ?? 0)}</strong> are done.`;
  const version = fetched ? `${run.ended}/${run.known}` : `${done}/${total ?? 0}`;
  return html`<div class="waiting" data-refresh="2000" data-version="${version}">
      <p>${shown}</p>
      ${'waiting' in run && run.waiting !== null && html`<p>It waits: ${run.waiting}.</p>`}
      <p class="quiet">You can close this page. It ends if the server is stopped, and does not start again.</p>
    </div>
    <form method="post" class="filter">
      <a href="">Reload</a>
      <button name="act" value="delete">Stop it</button>
    </form>`;
}
