import { allow, type Action } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import { version } from '../../runtime/package.ts';
import type { AssetAddresses } from './assets.ts';
import { copyable } from './format.ts';
import { html, type Html } from './html.ts';
import { sections, type Section, type PageView } from './page.ts';
import { withShownAccount } from './shown-account.ts';

/** Sentences that the next page shows once after a form was sent. A cookie has the key of one. */
const notices: Readonly<Record<string, string | Html>> = {
  'signed-out': 'You are signed out.',
  'form-unsent': 'You were signed out before the form arrived, so nothing was changed. Sign in and send it again.',
  'account-changed': 'You use another account now.',
  'tokens-revoked': 'Revoked. The tokens stop working at once, and their sessions have ended.',
  'policy-changed': 'The policy was changed. It acts with the next request.',
  'waiver-requested': 'Requested. Another person approves or rejects it.',
  'permanence-changed': 'The rules are in force.',
  restored: 'Restored as it was.',
  'restored-in-part': 'Restored, without the tags that exist now with another image.',
  purged: 'Deleted for good.',
  'waiver-approved': 'Approved. It acts with the next request.',
  'waiver-rejected': 'Rejected.',
  'waiver-ended': 'The waiver has ended.',
  'promotion-requested': 'The promotion is requested. A person with the scope promote approves or rejects it.',
  'promotion-rejected': 'Rejected. Nothing appears.',
  'promotion-rules': 'The rules are saved. They act with the next request.',
  promoted: 'Promoted. It is there now.',
  'job-started': 'The job has started. Its result appears below when it has ended.',
  'entries-dropped': 'The entries are dropped. The next request for each fetches it again.',
  'upstream-fails': 'The upstream was asked, and still fails.',
  'upstream-works': 'The upstream works again.',
  'webhook-changed': 'The webhook is changed.',
  'webhook-enabled': 'The webhook is enabled. Waiting deliveries are sent now.',
  'webhook-disabled': 'The webhook is disabled. It gets no events until you enable it.',
  'webhook-deleted': 'The webhook is deleted.',
  redelivered: 'The deliveries are due again, with all attempts.',
  'prefetch-cancelled': 'The prefetch stops after what it is fetching now. What it has fetched stays.',
  'import-stopped': 'It stops after what it is doing now. What it has brought in stays.',
  'import-forgotten': 'The import is forgotten. What it has brought in stays.',
  'bundle-stopped': 'It stops after what it is doing now. What was fetched or stored stays.',
  'bundle-deleted': 'Deleted, with its segments on this server.',
  'segments-received': 'The segments are here. Import them, or send more.',
  'receipt-written': 'The receipt is written. What it names is kept from eviction until the next one.',
  'key-trusted': 'The key is trusted.',
  'key-revoked': 'The key is revoked. It is never trusted again here.',
  'key-removed': 'The key is not trusted any more. What was imported stays.',
  'package-published': 'The package is published.',
  'grant-added': 'The grant is added.',
  'person-disabled': 'The person is disabled.',
  'person-enabled': 'The person is enabled.',
  'bills-on': 'Images that jobs push from now on get a bill of materials.',
  'bills-off': 'Images that jobs push from now on get no bill of materials.',
  'personal-limits-set': 'The limits of personal tokens are set.',
  'grant-accepted': 'Accepted. Clients of this account read the names now.',
  'grant-removed': 'The grant is removed. What it gave ends with the next request.',
  'session-ended': 'The session has ended.',
  'form-forgotten': 'What was entered here is kept for an hour only. Fill in the form again.',
  deleted: 'Deleted.',
  restorable: html`Deleted. <a href="/console/deleted">Restore it on the page Deleted</a> if that was wrong.`,
  'nothing-selected': 'Nothing was selected, so nothing was deleted.',
  unlisted: 'Unlisted. Searches no longer show it.',
  relisted: 'Listed again.',
  released: 'Released. Upstreams can serve the name now.',
  'versions-deprecated': 'Deprecated. Clients show it when they read the package again.',
  'versions-undeprecated': 'The deprecation has ended.',
  'advisory-created': 'The advisory is written. Audits warn of it from now on.',
  'advisory-deleted': 'The advisory is deleted.',
  'rule-saved': 'The rule is saved.',
  'rule-deleted': 'The rule is deleted. The tokens that it gave stop working at once.',
};

export interface Frame {
  assets: AssetAddresses;
  /** Undefined for a visitor without a session, unless the server allows anonymous readers. */
  principal: Principal | undefined;
  section?: Section | undefined;
  /** The path of the page, with its parameters as `:name`. */
  path?: string | undefined;
  /** A key of `notices`. */
  notice?: string | undefined;
  /** Whether it answers a form. Then the script never loads it again: that would send the form again. */
  isAnswer?: boolean;
  /** The query of the page's address. */
  query?: string;
}

/** A whole page. */
export function layout(
  { title, body, json }: PageView,
  { assets, principal, section, path, notice, isAnswer, query = '' }: Frame,
): Html {
  const text = notice !== undefined && Object.hasOwn(notices, notice) ? notices[notice] : undefined;
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>${title} · Entrepot</title>
        <link rel="icon" href="${assets['icon.svg']}" type="image/svg+xml" />
        <link rel="stylesheet" href="${assets['console.css']}" />
        <script type="module" src="${assets['console.js']}"></script>
      </head>
      <body>
        <a class="skip" href="#main">Skip to the content</a>
        <header class="top">
          <a class="brand" href="/console/">Entrepot</a>
          ${principal && find} ${principal && who(principal)}
        </header>
        ${principal && navigation(principal, section, path)}
        <main id="main" tabindex="-1" ${isAnswer && html`data-answer`}>
          ${text && html`<p class="notice" role="status">${text}</p>`}
          <h1>${title}</h1>
          ${principal && principal.kind !== 'anonymous' ? withShownAccount(body, principal.accountName, query) : body}
        </main>
        <footer>
          <span>Entrepot ${version}</span>
          ${json && html`<span>As JSON: ${copyable(`GET ${json}`)}</span>`}
          <a href="/v1/openapi.json">API description</a>
        </footer>
      </body>
    </html>`;
}

const find = html`<form class="find" role="search" method="get" action="/console/search">
  <label class="unseen" for="find">Search packages and images</label>
  <input id="find" name="q" type="search" placeholder="Search packages and images" maxlength="200" />
  <button>Search</button>
</form>`;

function who(principal: Principal): Html {
  if (principal.kind === 'anonymous') return html`<p class="who"><a href="/console/sign-in">Sign in</a></p>`;
  const accounts = principal.kind === 'person' ? principal.accounts : [];
  return html`${accounts.length > 1 && accountForm(principal.accountName, accounts)}
    <form class="who" method="post" action="/console/sign-out">
      <span>${principal.accountName} <span class="quiet">${nameOf(principal)}</span></span>
      <button class="plain">Sign out</button>
    </form>`;
}

/** Chooses one of the accounts of a person. */
function accountForm(current: string, accounts: readonly string[]): Html {
  return html`<form class="who" method="post" action="/console/account">
    <label for="account" class="unseen">Account</label>
    <select id="account" name="account">
      ${accounts.map(
        (each) => html`<option value="${each}" ${each === current ? html`selected` : ''}>${each}</option>`,
      )}
    </select>
    <button class="plain">Use this account</button>
  </form>`;
}

function nameOf(principal: Exclude<Principal, { kind: 'anonymous' }>): string {
  return principal.kind === 'person' ? principal.personName : principal.tokenName;
}

function navigation(principal: Principal, current: Section | undefined, at = ''): Html {
  const isVisible = ({ actions }: { actions: readonly Action[] }) => actions.some((each) => may(principal, each));
  const open = sections.find(({ key }) => key === current);
  const pages = open && 'pages' in open ? open.pages.filter(isVisible) : [];
  const isOpen = ({ path }: { path: string }) => at === path || at.startsWith(`${path}/`);
  const mark = pages.some(isOpen) ? 'true' : 'page';
  return html`<nav class="sections" aria-label="Sections">
    <ul>
      ${sections.filter(isVisible).map(({ key, title, path }) => entry(title, path, key === current ? mark : ''))}
    </ul>
    ${
      pages.length > 0 &&
      html`<ul class="within">
        ${pages.map((each) => entry(each.title, each.path, isOpen(each) ? 'page' : ''))}
      </ul>`
    }
  </nav>`;
}

function entry(title: string, path: string, mark: string): Html {
  return html`<li><a href="${path}" ${mark && html`aria-current="${mark}"`}>${title}</a></li>`;
}

/** Whether `principal` has the scope for `action`. */
export function may(principal: Principal, action: Parameters<typeof allow>[1]): boolean {
  try {
    allow(principal, action);
    return true;
  } catch {
    return false;
  }
}
