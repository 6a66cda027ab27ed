import { html, type Html } from './html.ts';
import type { PageCall } from './page.ts';

/**
 * Links to the first and the next page of a list at `path`, which keep the filters of the address. Nothing if there is one
 * page only.
 */
export function pager({ query }: PageCall, path: string, nextCursor: string | null): Html | undefined {
  const { cursor, done: _done, ...filters } = query;
  if (nextCursor === null && cursor === undefined) return undefined;
  const addressOf = (more: Record<string, string>) => {
    const text = new URLSearchParams({ ...filters, ...more }).toString();
    return text === '' ? path : `${path}?${text}`;
  };
  return html`<nav class="pages" aria-label="Pages">
    ${cursor !== undefined && html`<a href="${addressOf({})}">First page</a>`}
    ${nextCursor !== null && html`<a href="${addressOf({ cursor: nextCursor })}" rel="next">Next page</a>`}
  </nav>`;
}

/** The part of the query of an address that a list of `/v1` takes: its page, and the filters named in `names`. */
export function listQuery({ query }: PageCall, names: readonly string[] = []): Record<string, string> {
  const taken = Object.entries(query).filter(
    ([name, value]) => name === 'cursor' || (names.includes(name) && value.trim() !== ''),
  );
  return Object.fromEntries(taken);
}
