import type { z } from 'zod';
import { storageSchema } from '../../../api/account/storage.ts';
import { upstreamList } from '../../../api/upstreams/upstream-schemas.ts';
import { jobPreview } from '../../../api/server/job-schemas.ts';
import { isDomainError } from '../../../runtime/errors.ts';
import { ago, bytesText, counted, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { imagePath, packagePath } from '../../framework/links.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { barChart, shareBar } from '../../framework/plot.ts';
import { facts, table } from '../../framework/table.ts';
import { addressOf, type UpstreamItem } from '../mirror/mirror.ts';
import { inWords } from '../operations/jobs.ts';

type Storage = z.input<typeof storageSchema>;

const path = '/console/storage';

/** What fills the disk, how it grew, and what nobody uses. */
export const storagePage: Page = {
  path: '/storage',
  section: 'usage',
  action: 'account',
  show: (call) => storageView(call),
  send: async (call) => {
    const name = call.form.get('run');
    if (name === null) return storageView(call, await figuresOf(call));
    await call.api.do('startJob', { params: { name } });
    return { to: `/console/jobs/${encodeURIComponent(name)}`, done: 'job-started' };
  },
};

async function storageView(call: PageCall, figures?: Record<string, string>): Promise<PageView> {
  const { api, query, now, principal } = call;
  const days = query['days'] === '365' ? '365' : '30';
  const storage = await api.call('getStorage', storageSchema, { query: { days } });
  const body = html`${sharesOf(storage)}
    <p class="quiet">As of ${ago(storage.as_of, now)}.</p>
    <section>
      <h2>Growth</h2>
      <p class="choices">
        <a href="${path}" ${days === '30' && html`aria-current="true"`}>30 days</a>
        <a href="${path}?days=365" ${days === '365' && html`aria-current="true"`}>365 days</a>
      </p>
      ${growthOf(storage)}
    </section>
    <section>
      <h2>The largest packages and images</h2>
      ${names(storage.largest, now, 'Nothing is hosted yet.')}
    </section>
    <section>
      <h2>Not downloaded and not changed for 90 days</h2>
      ${names(storage.unused, now, 'Each of the largest was used or changed in the last 90 days.')}
      ${
        storage.unused.length > 0 &&
        html`<p>
          These ${counted(storage.unused.length, 'name')} can free up to
          ${sizeHtml(storage.unused.reduce((sum, each) => sum + each.size_bytes, 0))}; bytes that others share stay.
        </p>`
      }
      <p class="hint">Open one to delete or unlist its versions or tags.</p>
    </section>
    ${may(principal, 'operate') && html`${unusedMirror((await api.call('listUpstreams', upstreamList)).items)} ${cleanUpSection(figures)}`}`;
  return { title: 'Storage', body, json: '/v1/account/storage' };
}

function sharesOf({ hosted_bytes: hosted, mirrored_bytes: mirrored, ...storage }: Storage): Html {
  const stored = hosted + mirrored;
  const { disk, limit_bytes: limit, mirror_limit_bytes: mirrorLimit } = storage;
  return facts(
    ['Stored', html`${sizeHtml(stored)}: ${bytesText(hosted)} hosted, ${bytesText(mirrored)} mirrored`],
    limit !== null && ['Limit of the account', shareBar(stored, limit, `${bytesText(stored)} of ${bytesText(limit)}`)],
    mirrorLimit !== null && [
      'Limit of the mirror',
      shareBar(mirrored, mirrorLimit, `${bytesText(mirrored)} of ${bytesText(mirrorLimit)}`),
    ],
    disk && [
      'Disk of the data folder',
      shareBar(
        stored,
        stored + disk.free_bytes,
        `${bytesText(disk.free_bytes)} free, of which ${bytesText(disk.reserve_bytes)} stay free`,
      ),
    ],
  );
}

function growthOf({ history }: Storage): Html {
  if (history.length === 0) return html`<p class="empty">The first sample is taken within ten minutes.</p>`;
  const bars = history.map(({ date, hosted_bytes: hosted, mirrored_bytes: mirrored }) => ({
    label: date.slice(5),
    value: hosted + mirrored,
    part: hosted,
    text: `${bytesText(hosted)} hosted, ${bytesText(mirrored)} mirrored`,
  }));
  return html`${barChart(bars, 'Stored bytes of each day, hosted ones below')}
    <details>
      <summary>As a table</summary>
      ${table(
        [{ name: 'Day' }, { number: 'Hosted' }, { number: 'Mirrored' }],
        history.map((each) => [each.date, sizeHtml(each.hosted_bytes), sizeHtml(each.mirrored_bytes)]),
        { label: 'stored bytes by day' },
      )}
    </details>`;
}

function names(items: Storage['largest'], now: number, empty: string): Html {
  return table(
    [{ name: 'Name' }, 'Kind', { number: 'Size' }, 'Last download', 'Changed'],
    items.map(({ kind, name, size_bytes: bytes, ...each }) => [
      html`<a href="${kind === 'package' ? `${packagePath(name)}?show=versions` : imagePath(name)}">${name}</a>`,
      kind === 'package' ? 'package' : 'image',
      sizeHtml(bytes),
      ago(each.last_used_at, now),
      ago(each.changed_at, now),
    ]),
    { empty },
  );
}

/** What of each upstream is stored, and not used for a long time. */
function unusedMirror(upstreams: readonly UpstreamItem[]): Html | undefined {
  if (upstreams.length === 0) return undefined;
  return html`<section>
    <h2>Mirrored content</h2>
    ${table(
      [{ name: 'Upstream' }, { number: 'Stored' }, { number: 'Not used for 90 days' }],
      upstreams.map((each) => [
        html`<a href="${addressOf(each)}">${each.id}</a>`,
        each.cached ? sizeHtml(each.cached.size_bytes) : 'being counted',
        each.cached && sizeHtml(each.cached.unused_bytes),
      ]),
    )}
    <p class="hint">
      Open one to drop entries. With the setting <code>mirror.maxSize</code>, the job evict drops the least recently
      used ones.
    </p>
  </section>`;
}

/** The jobs that free bytes, and what each deletes. */
const cleanUps: Readonly<Record<string, string>> = {
  retention: 'old versions, old tags and untagged images, by the rules of the settings',
  evict: 'the least recently used mirrored content above the limit of the mirror',
  gc: 'bytes that nothing refers to any more',
};

/** What a run of each clean-up would free now. One that cannot be previewed says why. */
async function figuresOf({ api }: PageCall): Promise<Record<string, string>> {
  const figures: Record<string, string> = {};
  for (const name of Object.keys(cleanUps)) {
    figures[name] = await api
      .call('previewJob', jobPreview, { params: { name } })
      .then(({ counts }) => inWords(counts))
      .catch((error: unknown) => {
        if (!isDomainError(error)) throw error;
        return error.message;
      });
  }
  return figures;
}

function cleanUpSection(figures: Record<string, string> | undefined): Html {
  return html`<section>
    <h2>What can be freed</h2>
    ${table(
      [{ name: 'Job' }, 'Deletes', 'A run now would free', { unseen: 'Run' }],
      Object.entries(cleanUps).map(([name, deletes]) => [
        html`<a href="/console/jobs/${name}">${name}</a>`,
        deletes,
        figures?.[name] ?? html`<span class="quiet">not counted</span>`,
        html`<form method="post" action="${path}"><button name="run" value="${name}">Run ${name} now</button></form>`,
      ]),
    )}
    <form method="post" action="${path}"><button name="act" value="count">Count what each would free</button></form>
  </section>`;
}
