import type { Principal } from '../../accounts/principal.ts';
import { DomainError } from '../../runtime/errors.ts';
import { Html } from './html.ts';

/** The parameter with the account of the page in the address of a form: another tab can change the account meanwhile. */
export const shownAccount = 'shown_account';

const postTag = /<(?:form\b[^>]*?\smethod|button\b[^>]*?\sformmethod)="post"[^>]*>/g;

/** `body` with the account in the address of everything that it sends with POST. `query` is that of the page. */
export function withShownAccount(body: Html, account: string, query: string): Html {
  const own = new URLSearchParams(query);
  own.set(shownAccount, account);
  const pair = new URLSearchParams({ [shownAccount]: account }).toString();
  const text = body.text.replace(postTag, (tag) => {
    const name = tag.startsWith('<form') ? 'action' : 'formaction';
    const [given, address] = new RegExp(`\\s${name}="([^"]*)"`).exec(tag) ?? [];
    // Without an address, a form is sent to that of the page.
    if (given === undefined) return `${tag.slice(0, -1)} ${name}="?${own.toString().replaceAll('&', '&amp;')}">`;
    return tag.replace(given, () => ` ${name}="${address}${address!.includes('?') ? '&amp;' : '?'}${pair}"`);
  });
  return new Html(text);
}

/** Throws `Denied` for a form of a page that was shown in another account. */
export function requireShownAccount(query: Readonly<Record<string, string>>, { accountName }: Principal): void {
  const shown = query[shownAccount];
  if (shown === undefined || shown === accountName) return;
  const message = `This page was opened in another account. You use the account ${accountName} now, and nothing was changed. Open the page again.`;
  throw new DomainError('Denied', message);
}
