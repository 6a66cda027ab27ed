import type { z } from 'zod';
import { manifestDetails } from '../../../api/content/content-schemas.ts';
import {
  ago,
  copyable,
  countText,
  counted,
  originOf,
  short,
  sizeHtml,
  withdrawnState,
} from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { imagePath, withQuery } from '../../framework/links.ts';
import type { Page } from '../../framework/page.ts';
import { facts, type Cells, table } from '../../framework/table.ts';
import { promoteLink } from '../packages/promotions.ts';
import { explainMissing, policySection } from '../mirror/explain.ts';
import { exposedPath } from '../operations/exposed.ts';
import { deletionText, digestLink, shownDigest } from './image.ts';
import { kindHtml, pullLines } from './image-kinds.ts';

type Details = z.input<typeof manifestDetails>;

/** Most characters of a command, and of the value of an annotation. */
const maxCommandLength = 500;
const maxValueLength = 300;
/** Most indexes that list a manifest, on its page. */
const shownIndexes = 30;

/** One manifest of an image: layers and history, platforms, and what refers to it. */
export const imageDigestPage: Page = {
  path: '/images/:name/:digest',
  section: 'images',
  action: 'read',
  show: async (call) => {
    const { api, params, urls, now, principal } = call;
    const { name, digest } = params as { name: string; digest: string };
    const found = await api
      .call('getManifest', manifestDetails, { params: { name, reference: digest } })
      .catch(explainMissing(call, 'container', name, digest));
    const { config, layers, children } = found;
    const mayDelete = may(principal, 'delete') && (found.origin === 'hosted' || may(principal, 'operate'));
    const body = html`<p><a href="${imagePath(found.name)}">${short(found.name, 255)}</a> ${originOf(found)}</p>
      ${facts(
        ['Digest', copyable(found.digest)],
        ['Kind', kindHtml(config?.media_type ?? '', found.artifact_type ?? found.media_type)],
        ['Tags', found.tags.length > 0 ? short(found.tags.join(', '), 400) : html`<span class="quiet">none</span>`],
        found.withdrawn_tags.length > 0 && [
          'Withdrawn',
          found.withdrawn_tags.map((each) => html`<div>${each.name} ${withdrawnState(each.withdrawn_at)}</div>`),
        ],
        ['Size', sizeHtml(found.size_bytes)],
        ['Pulls', html`${countText(found.pull_count)}, the last ${ago(found.last_pulled_at, now)}`],
        may(principal, 'admin') && [
          'Who pulled it',
          html`<a href="${exposedPath(`${found.name}@${found.digest}`)}">Tokens and jobs</a>`,
        ],
        [found.origin === 'hosted' ? 'Pushed' : 'Mirrored', ago(found.updated_at, now)],
        found.subject !== null && ['Refers to', digestLink(found.name, found.subject)],
        found.indexes.length > 0 && ['Listed by', indexLinks(found)],
        config?.platform && ['Platform', short(config.platform, 60)],
        config?.created && ['Created', timeText(config.created)],
        config?.author && ['Author', short(config.author, 200)],
        ...runFacts(config),
      )}
      ${pullLines(urls.registry, found.name, `@${found.digest}`, found)}
      ${mayDelete && html`<p><a href="${withQuery(`${imagePath(found.name)}/delete`, { digest: found.digest })}">${deletionText(found.origin)}</a></p>`}
      ${promoteLink(call, 'image', { ...found, reference: found.tags[0] ?? found.digest })}
      ${await policySection(call, 'container', { ...found, reference: found.digest })}
      ${children.length > 0 && childSection(found)} ${layers.length > 0 && layerSection(found)} ${historySection(found)}
      ${referrerSection(found)} ${pairSection('Annotations', found.annotations)}
      ${pairSection('Labels', config?.labels ?? [])}`;
    const json = `/v1/containers/${encodeURIComponent(found.name)}/manifests/${found.digest}`;
    return { title: `${short(found.name, 100)}@${found.digest.slice(0, shownDigest)}`, body, json };
  },
};

/** The indexes that list the manifest, far enough from each other to be pressed. */
function indexLinks({ name, indexes }: Details): Html {
  const more = indexes.length - shownIndexes;
  return html`<div class="choices">
    ${indexes.slice(0, shownIndexes).map((each) => digestLink(name, each))}
    ${more > 0 && html`<span class="quiet">and ${countText(more)} more</span>`}
  </div>`;
}

function wordsHtml(words: readonly string[]): Html | false {
  return words.length > 0 && html`<code>${short(words.join(' '), maxCommandLength)}</code>`;
}

/** How a container of the image runs. */
function runFacts(config: Details['config']) {
  if (!config) return [];
  const rows: readonly (readonly [string, Html | string | false | null])[] = [
    ['Entrypoint', wordsHtml(config.entrypoint)],
    ['Command', wordsHtml(config.command)],
    ['User', config.user],
    ['Working directory', config.working_directory],
    ['Ports', config.ports.join(', ')],
    [
      'Environment',
      config.environment.length > 0 &&
        html`<details>
          <summary>${counted(config.environment.length, 'variable')}</summary>
          ${config.environment.map((each) => html`<div><code>${short(each, maxValueLength)}</code></div>`)}
        </details>`,
    ],
  ];
  return rows.filter(([, shown]) => shown).map(([name, shown]) => [name, shown] as const);
}

/** The images of an index in its order, then what attests their builds. */
function childSection({ name, children }: Details): Html {
  const platformOf = new Map(children.map((each) => [each.digest, each.platform]));
  const sorted = children.toSorted((one, other) => Number(one.attests !== null) - Number(other.attests !== null));
  return html`<section>
    <h2>${counted(children.length, 'manifest')} of this index</h2>
    ${textTable(
      ['Platform', 'Digest', 'Size', 'Here'],
      sorted.map((each) => [
        each.attests === null
          ? (each.platform ?? html`<span class="quiet">none</span>`)
          : `Build attestation for ${platformOf.get(each.attests) ?? short(each.attests, shownDigest)}`,
        each.is_stored ? digestLink(name, each.digest) : html`<code>${short(each.digest, 19)}</code>`,
        each.content_bytes === null ? html`<span class="quiet">not known</span>` : sizeHtml(each.content_bytes),
        each.is_stored ? 'stored' : 'not stored here',
      ]),
    )}
  </section>`;
}

function layerSection({ layers }: Details): Html {
  return html`<section>
    <h2>${counted(layers.length, 'layer')}</h2>
    ${textTable(
      ['Digest', 'Type', 'Size'],
      layers.map((each) => [
        copyable(each.digest, short(each.digest, 19)),
        short(each.media_type, 100),
        sizeHtml(each.size_bytes),
      ]),
    )}
  </section>`;
}

/** The layer of each command, in the order of `history`; none if an image states another number of layers than it has. */
function layersOf({ history, layers }: Details): Details['layers'] {
  const made = history.filter((each) => !each.is_empty);
  return made.length === layers.length ? layers : [];
}

function historySection(details: Details): Html | undefined {
  const { config, history, origin } = details;
  if (!config) return undefined;
  const layers = layersOf(details)[Symbol.iterator]();
  return html`<section>
    <h2>How it was built</h2>
    ${
      !config.is_stored &&
      html`<p class="empty">
        The config of this image is not stored
        here${origin === 'mirrored' && ': a page fetches nothing. It is stored at the next pull'}.
      </p>`
    }
    ${config.is_stored && history.length === 0 && html`<p class="quiet">The config has no history.</p>`}
    ${
      history.length > 0 &&
      textTable(
        ['Command', 'When', 'Size of its layer'],
        history.map((each) => [
          commandHtml(each.created_by ?? each.comment ?? ''),
          timeText(each.created ?? ''),
          each.is_empty ? 'no layer' : layerSize(layers.next().value),
        ]),
      )
    }
  </section>`;
}

function layerSize(layer: Details['layers'][number] | undefined): HtmlPart {
  return layer ? sizeHtml(layer.size_bytes) : 'unknown';
}

/** A time that an image states, to the minute. */
function timeText(time: string): string {
  return short(time, 16).replace('T', ' ').replace('…', '');
}

/** A command, whose rest is folded if it is long. */
function commandHtml(command: string): Html {
  if (command.length <= maxCommandLength) return html`<code>${command}</code>`;
  return html`<details>
    <summary><code>${short(command, 120)}</code></summary>
    <code>${command}</code>
  </details>`;
}

function referrerSection({ name, referrers, are_referrers_known: isKnown }: Details): Html {
  return html`<section>
    <h2>Signatures, SBOMs and others that refer to it</h2>
    ${!isKnown && html`<p class="quiet">Not stored here: no client has listed them through this registry.</p>`}
    ${isKnown && referrers.length === 0 && html`<p class="quiet">None.</p>`}
    ${
      referrers.length > 0 &&
      textTable(
        ['Kind', 'Digest', 'Size', 'Annotations'],
        referrers.map((each) => [
          kindHtml(each.artifact_type ?? each.media_type),
          digestLink(name, each.digest),
          sizeHtml(each.size_bytes),
          short(each.annotations.map((pair) => `${pair.name}: ${pair.value}`).join(', '), maxValueLength),
        ]),
      )
    }
  </section>`;
}

function pairSection(title: string, pairs: readonly { name: string; value: string }[]): Html | undefined {
  if (pairs.length === 0) return undefined;
  return html`<section>
    <h2>${title}</h2>
    ${textTable(
      ['Name', 'Value'],
      pairs.map((each) => [html`<code>${each.name}</code>`, short(each.value, maxValueLength)]),
    )}
  </section>`;
}

/** A table of texts. Its cells have no links, so it takes the focus itself. */
function textTable(columns: readonly string[], rows: readonly Cells[]): Html {
  return table(columns, rows, { label: columns.join(', ') });
}
