import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { LRUCache } from 'lru-cache';
import { html, Html } from './html.ts';
import { programFile } from '../../runtime/program-file.ts';
import { threadEnvironment } from '../../runtime/thread-environment.ts';

/** Most characters of a README that are rendered, and of the HTML that is shown. */
const maxTextLength = 64 * 1024;
const maxHtmlLength = 256 * 1024;
/** Most milliseconds for one README. Its thread needs longer to start on a busy machine, whatever the README is. */
const renderTime = 1500;
const startTime = 10_000;
/** Most READMEs at a time, so that a page is ready in time; the others are shown as text. */
const maxWaiting = 4;
/** Most MiB of memory for one README. */
const memory = 64;

/** HTML of READMEs by the digest of their text; empty for one that could not be rendered. */
const rendered = new LRUCache<string, string>({ maxSize: 8 * 2 ** 20, sizeCalculation: (text) => text.length + 100 });
let last: Promise<unknown> = Promise.resolve();
let waiting = 0;

/**
 * A README in Markdown as HTML: without raw HTML, scripts, styles and images, and with links only to web addresses. As plain
 * text if it cannot be rendered in time. Says so if the package has more, of which `isWhole` knows.
 */
export async function readmeHtml(readme: string, isWhole = true): Promise<Html> {
  const text = cutAtLine(readme);
  const key = createHash('sha256').update(text).digest('base64');
  const found = rendered.get(key) ?? (await inTurn(key, text));
  // The one place beside `html` that makes HTML: `console/framework/readme-worker.ts` has sanitized it.
  const shown = found
    ? html`<div class="readme">${new Html(found)}</div>`
    : html`<pre class="readme" tabindex="0">${text}</pre>`;
  const isCut = !isWhole || text.length < readme.length;
  return isCut
    ? html`${shown}
        <p class="hint">The rest is in the package.</p>`
    : shown;
}

/** The whole text, or as many of its lines as are rendered. */
function cutAtLine(text: string): string {
  if (text.length <= maxTextLength) return text;
  const end = text.lastIndexOf('\n', maxTextLength);
  return text.slice(0, end > 0 ? end : maxTextLength);
}

/** Renders one README after another, so that hostile ones take at most one processor. */
async function inTurn(key: string, text: string): Promise<string> {
  if (waiting >= maxWaiting) return '';
  waiting += 1;
  const turn = last.then(async () => {
    const known = rendered.get(key);
    if (known !== undefined) return known;
    const result = await render(text);
    rendered.set(key, result);
    return result;
  });
  last = turn.catch(() => undefined);
  try {
    return await turn;
  } finally {
    waiting -= 1;
  }
}

/** Empty if the text takes too much time or memory, or becomes too long. */
async function render(text: string): Promise<string> {
  const worker = new Worker(programFile('console/framework/readme-worker.ts'), {
    resourceLimits: { maxOldGenerationSizeMb: memory },
    env: threadEnvironment(),
  });
  worker.unref();
  try {
    await once(worker, 'message', { signal: AbortSignal.timeout(startTime) });
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port has no origin
    worker.postMessage(text);
    const [result] = (await once(worker, 'message', { signal: AbortSignal.timeout(renderTime) })) as [string];
    return result.length <= maxHtmlLength ? result : '';
  } catch {
    return '';
  } finally {
    await worker.terminate();
  }
}
