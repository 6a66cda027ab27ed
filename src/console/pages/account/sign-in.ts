import { typed } from '../../../runtime/command-name.ts';
import { Form } from '../../framework/form.ts';
import { copyable } from '../../framework/format.ts';
import { html, webAddress, type Html } from '../../framework/html.ts';
import type { PageView } from '../../framework/page.ts';
import { facts } from '../../framework/table.ts';

/** `path` if it is an address of the console, otherwise the overview. Another address could lead to another site. */
export function localPath(path: string | undefined): string {
  if (path === undefined || path.length > 2000 || !/^\/console\/(?!\/)[\x21-\x7e]*$/.test(path) || path.includes('\\'))
    return '/console/';
  const { origin, pathname, search } = new URL(path, 'http://console.invalid');
  return origin === 'http://console.invalid' && pathname.startsWith('/console/') ? pathname + search : '/console/';
}

interface SignInPage {
  /** Where it leads then. */
  next: string;
  error?: string;
  /** The name of the OpenID Connect provider; undefined without one. */
  provider?: string | undefined;
  /** Where somebody who has just signed out does so at the provider, too. */
  signOut?: string | undefined;
}

/** The page that asks for an API token, and leads to the provider if there is one. */
export function signInView({ next, error, provider, signOut }: SignInPage): PageView {
  const form = new Form({}, error === undefined ? {} : { token: error });
  const fields = tokenForm(form, next, provider === undefined);
  const isOpen = error !== undefined && html`open`;
  const folded = html`<details ${isOpen}>
    <summary>Sign in with an API token</summary>
    ${fields}
  </details>`;
  return form.view(
    'Sign in',
    provider === undefined ? fields : html`${personLink(next, provider)} ${folded} ${signOutLink(provider, signOut)}`,
  );
}

function tokenForm(form: Form, next: string, isOnly: boolean): Html {
  return html`<form method="post" action="/console/sign-in" class="panel narrow">
    <input type="hidden" name="next" value="${next}" />
    ${form.input('token', 'API token', {
      attributes: html`type="password" autocomplete="current-password" required ${isOnly && html`autofocus`}
      spellcheck="false"`,
      hint: html`It begins with <code>ent_</code>. The first start of the server prints the first token; the command
        <code>${typed('token create')}</code> makes more.`,
    })}
    <button class="primary">Sign in</button>
  </form>`;
}

/** A link: the policy `form-action` would stop a form that leads to the provider. */
function personLink(next: string, provider: string): Html {
  const address = `/console/sign-in/oidc?next=${encodeURIComponent(next)}`;
  return html`<p class="panel narrow"><a class="button primary" href="${address}">Sign in with ${provider}</a></p>`;
}

function signOutLink(provider: string, address: string | undefined): Html | undefined {
  const target = webAddress(address);
  return target === undefined
    ? undefined
    : html`<p>You are still signed in at ${provider}. <a href="${target}">Sign out at ${provider}, too</a></p>`;
}

/** The page for a sign-in with the provider that failed. */
export function signInFailedView(message: string, status: number): PageView {
  const body = html`<p class="failure" role="alert">${message}</p>
    <p><a class="button" href="/console/sign-in">Go to the sign-in page</a></p>`;
  return { title: 'Not signed in', body, status };
}

/** The page for a person to whom no rule gives anything. */
export function noAccountView({ name, subject, issuer }: { name: string; subject: string; issuer: string }): PageView {
  const body = html`<p class="failure" role="alert">
      You signed in as ${name}, but no rule and no grant of this server gives you an account.
    </p>
    <p>
      Ask the administrators of an account for a grant to you or to one of your groups, or the operator of this server
      for a rule in the setting <code>signIn.oidc.rules</code> for one of your claims. You are:
    </p>
    ${facts(['Provider', copyable(issuer)], ['Subject', copyable(subject)])}
    <p><a class="button" href="/console/sign-in">Go to the sign-in page</a></p>`;
  return { title: 'No account', body, status: 403 };
}
