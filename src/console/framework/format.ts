import { html, type Html } from './html.ts';

// Values as people read them. The exact value is the title of the element; a cell of a table shows the time itself, too.

const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** `bytes` as text with a decimal unit, such as `12.3 MB`. */
export function bytesText(bytes: number): string {
  const power = bytes < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  const rounded = power > 0 && value < 99.95 ? value.toFixed(1) : String(Math.round(value));
  return `${rounded} ${units[power]}`;
}

export function sizeHtml(bytes: number): Html {
  return exact(bytesText(bytes), `${bytes.toLocaleString('en')} bytes`);
}

/** A number with separators of thousands. */
export function countText(value: number): string {
  return value.toLocaleString('en');
}

/** `1 version`, `2 versions`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${countText(value)} ${value === 1 ? one : many}`;
}

/** A share from 0 to 1 in per cent; a dash if there is nothing to share. */
export function ratio(part: number, whole: number): string {
  return whole === 0 ? '–' : `${((100 * part) / whole).toFixed(part === whole ? 0 : 1)} %`;
}

/** Most characters of a name that is not broken. */
const maxWhole = 24;

const steps: readonly (readonly [seconds: number, name: string])[] = [
  [365 * 86_400, 'year'],
  [30 * 86_400, 'month'],
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
];

/**
 * The distance of `time` (RFC 3339) from `now` (milliseconds since 1970), such as `3 hours ago` or `in 2 days`. A time that is a
 * few seconds ahead is `now`: what was measured while the page was made, or ends at once.
 */
export function agoText(time: string, now: number): string {
  const seconds = (now - Date.parse(time)) / 1000;
  const [length, name] = steps.find(([each]) => Math.abs(seconds) >= each) ?? [1, ''];
  if (name === '') return seconds < 0 ? 'now' : 'just now';
  const text = counted(Math.floor(Math.abs(seconds) / length), name);
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** The time `days` after `now`, as an interface takes it. A text that is no number of days is left as it is, so that it is refused. */
export function endAfter(now: number, days: string): string {
  const end = new Date(now + Number(days) * 86_400_000);
  return Number.isNaN(end.getTime()) ? days : end.toISOString();
}

/** A length of time in days, or in a smaller unit below one, such as `1.5 days`. */
export function lengthText(seconds: number): string {
  const [length, name] = steps.find(([each]) => each <= 86_400 && seconds >= each) ?? [1, 'second'];
  return counted(Math.round((10 * seconds) / length) / 10, name);
}

/** A point in time as its distance from now; `never` for null. */
export function ago(time: string | null | undefined, now: number): Html {
  if (!time) return html`<span class="quiet">never</span>`;
  const clock = `${time.slice(0, 19).replace('T', ' ')} UTC`;
  return html`<time class="exact" datetime="${time}" title="${time}" data-clock="${clock}"
    >${agoText(time, now)}</time
  >`;
}

/** The state of content that its upstream does not offer any more. */
export function withdrawnState(withdrawnAt: string | null): Html | undefined {
  if (withdrawnAt === null) return undefined;
  return html`<span class="state warn">withdrawn by the upstream on ${withdrawnAt.slice(0, 10)}</span>`;
}

/** The start of a text, with an ellipsis if something is left out. Never ends in half a surrogate pair. */
export function short(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** A short text whose exact value appears on hover. */
export function exact(text: string, value: string): Html {
  return html`<span class="exact" title="${value}">${text}</span>`;
}

/** An identifier or a command that a button copies. Without JavaScript the text can be selected. */
export function copyable(text: string, shown = text): Html {
  return html`<span class="copyable"
    ><code title="${text}">${shown}</code
    ><button type="button" class="copy" data-copy="${text}" hidden>
      Copy<span class="unseen"> ${shown}</span>
    </button></span
  >`;
}

/** Lines to copy, such as into a terminal. */
export function lines(text: string, label: string): Html {
  return html`<div class="lines">
    <pre tabindex="0" aria-label="${label}"><code>${text}</code></pre>
    <button type="button" class="copy" data-copy="${text}" hidden>Copy<span class="unseen"> ${label}</span></button>
  </div>`;
}

/** A long name, which may break after `.`, `-`, `_` and `/`, so that it does not widen its table. */
export function breakable(name: string): Html {
  if (name.length <= maxWhole) return html`${name}`;
  return html`${name.split(/(?<=[._/-])/).map((part, at) => html`${at > 0 && html`<wbr />`}${part}`)}`;
}

/** Whether content is hosted or mirrored, as a word. */
export function originOf({ origin, upstream }: { origin: 'hosted' | 'mirrored'; upstream: string | null }): Html {
  return origin === 'hosted'
    ? html`<span class="origin hosted">hosted</span>`
    : html`<span class="origin mirrored">mirrored from ${upstream}</span>`;
}

/** One figure of a list with the class `figures`. */
export function figure(term: string, value: Html | string, detail: Html | string): Html {
  return html`<div>
    <dt>${term}</dt>
    <dd>
      <strong>${value}</strong>
      <span class="quiet">${detail}</span>
    </dd>
  </div>`;
}
