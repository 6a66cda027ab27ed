import { describedBy, fieldError } from '../failure.ts';
import { html } from '../html.ts';
import type { View } from '../page.ts';

/** `path` if it is an address of the console, otherwise the overview. Another address could lead to another site. */
export function localPath(path: string | undefined): string {
  if (path === undefined || path.length > 2000 || !/^\/console\/(?!\/)[\x21-\x7e]*$/.test(path) || path.includes('\\'))
    return '/console/';
  const { origin, pathname, search } = new URL(path, 'http://console.invalid');
  return origin === 'http://console.invalid' && pathname.startsWith('/console/') ? pathname + search : '/console/';
}

/** The page that asks for an API token. `next` is where it leads then. */
export function signInView({ next, error }: { next: string; error?: string }): View {
  const errors: Record<string, string> = error === undefined ? {} : { token: error };
  const body = html`<form method="post" action="/console/sign-in" class="panel narrow">
    <input type="hidden" name="next" value="${next}" />
    <label for="token">API token</label>
    <input
      id="token"
      name="token"
      type="password"
      autocomplete="current-password"
      required
      autofocus
      spellcheck="false"
      ${describedBy('token', errors)}
    />
    ${fieldError('token', errors)}
    <p class="hint">
      It begins with <code>ent_</code>. The first start of the server prints the first token; the command
      <code>entrepot token create</code> makes more.
    </p>
    <button class="primary">Sign in</button>
  </form>`;
  return { title: 'Sign in', body, status: error === undefined ? 200 : 422 };
}
