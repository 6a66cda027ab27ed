import type { z } from 'zod';
import {
  explanation,
  publisher,
  publisherList,
  trustedIssuerList,
  type trustedIssuer,
} from '../../../api/publishers/publisher-schemas.ts';
import type { DomainError } from '../../../runtime/errors.ts';
import { confirmForm, fieldErrors, Form, type Errors, fieldOf, trimmedField } from '../../framework/form.ts';
import { ago, copyable, counted, lines } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { given, withQuery } from '../../framework/links.ts';
import { emptyText, filterForm, textField } from '../../framework/list.ts';
import { limitedTo, patternFields, patternsOf, scopeFields } from '../../framework/rights.ts';
import { facts, type Cells, table } from '../../framework/table.ts';
import { claimField, claimFields, namedClaims, workflowOf } from './publisher-claims.ts';

type Publisher = z.input<typeof publisher>;
type Issuer = z.input<typeof trustedIssuer>;
type Explanation = z.input<typeof explanation>;

/** The rules by which identity tokens of a CI are exchanged for tokens. */
const listPage: Page = {
  path: '/publishers',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const query = given(call.query, 'q');
    const address = { path: '/console/publishers', query };
    const { items } = await call.api.call('listPublishers', publisherList, { query });
    const issuers = await issuersOf(call);
    const body = html`<p>
        A CI such as GitHub Actions proves with an identity token which workflow runs. A rule exchanges it for a token
        that is valid for 15 minutes, so that the CI needs no secret.
      </p>
      ${
        issuers.length === 0
          ? html`<p class="empty">
              No issuer is trusted yet. Add the CI to the setting <code>trustedIssuers</code>, and restart the server.
            </p>`
          : html`<p>
              <a class="button" href="/console/publishers/new">Create a rule</a>
              <a class="button" href="/console/publishers/explain">Explain a token</a>
            </p>`
      }
      ${(items.length > 0 || query['q']) && filterForm(address, textField(address, 'Name contains'))}
      ${
        items.length > 0
          ? html`<p class="quiet">${counted(items.length, 'rule')}</p>
              ${ruleTable(items, call.now)}`
          : emptyText(address, '')
      }
      ${
        issuers.length > 0 &&
        html`<section>
          <h2>How a CI gets its token</h2>
          <p>Request an identity token for the audience of the issuer, and send it to this server:</p>
          ${facts(...issuers.map(({ name, audience }) => [name, copyable(audience)] as const))}
          ${lines(exchangeLines(call), 'the lines that exchange an identity token')}
          <p>For the action <code>NuGet/login</code>, set <code>token-service-url</code> to this address:</p>
          <p>${copyable(`${call.urls.base}/v1/token-exchange/nuget`)}</p>
        </section>`
      }`;
    return { title: 'Rules for a CI', body, json: '/v1/publishers' };
  },
};

function exchangeLines({ urls, principal }: PageCall): string {
  return [
    `curl --fail --silent ${urls.base}/v1/token-exchange \\`,
    '  --data-urlencode grant_type=urn:ietf:params:oauth:grant-type:token-exchange \\',
    '  --data-urlencode subject_token_type=urn:ietf:params:oauth:token-type:jwt \\',
    `  --data-urlencode audience=${principal.accountName} --data-urlencode subject_token="$ID_TOKEN"`,
  ].join('\n');
}

function ruleTable(items: readonly Publisher[], now: number): Html {
  return table(
    [{ name: 'Name' }, 'Issuer', 'Claims', 'Scopes', 'Limited to', 'Last used', { unseen: 'Action' }],
    items.map((each) => ruleRow(each, now)),
  );
}

function ruleRow(
  { id, name, issuer, claims, scopes, patterns, source, warnings, ...each }: Publisher,
  now: number,
): Cells {
  const actions = html`<a class="button" href="/console/publishers/${id}/use"
      >Workflow<span class="unseen"> of ${name}</span></a
    >
    <a class="button" href="/console/publishers/${id}">Change<span class="unseen"> ${name}</span></a>
    <a class="button" href="/console/publishers/${id}/delete">Delete…<span class="unseen"> ${name}</span></a>`;
  return [
    html`${name} ${warnings.map((text) => html`<p class="quiet"><span class="state warn">Check</span> ${text}</p>`)}`,
    issuer,
    Object.entries(claims).map(([claim, values]) => html`<div><code>${claim}</code> ${values.join(' or ')}</div>`),
    scopes.join(', '),
    limitedTo(patterns),
    ago(each.last_used_at, now),
    source === 'settings' ? html`<span class="quiet">in the settings</span>` : actions,
  ];
}

const newPage: Page = {
  path: '/publishers/new',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const { refused } = call;
    if (refused) {
      return formView('Create a rule', call, refused, await issuerNamed(call, refused.values.get('issuer')));
    }
    const issuers = await issuersOf(call);
    const issuer =
      issuers.find(({ name }) => name === call.query['issuer']) ?? (issuers.length === 1 ? issuers[0] : undefined);
    if (!issuer) return chooseView(issuers);
    // From the explanation of a token, with its claims.
    const given = Object.entries(call.query).filter(([name]) => name.startsWith(claimField('')));
    const defaults = issuer.kind === 'gitlab' ? { [claimField('ref_protected')]: 'true' } : {};
    return formView(
      'Create a rule',
      call,
      new Form({ scope: 'read', ...defaults, ...Object.fromEntries(given) }),
      issuer,
    );
  },
  send: async (call) => {
    const issuer = await issuerNamed(call, call.form.get('issuer'));
    try {
      const { id } = await call.api.call('createPublisher', publisher, { body: bodyOf(call.form, issuer) });
      return { to: `/console/publishers/${id}/use`, done: 'rule-saved' };
    } catch (error) {
      return { refused: new Form(call.form, ruleErrors(error)) };
    }
  },
};

/** The choice of the issuer, which decides about the fields. */
function chooseView(issuers: readonly Issuer[]): PageView {
  const body = html`<p>Which CI is the rule for?</p>
    <ul>
      ${issuers.map(
        ({ name, issuer }) =>
          html`<li>
            <a href="${withQuery('/console/publishers/new', { issuer: name })}">${name}</a>
            <span class="quiet">${issuer}</span>
          </li>`,
      )}
    </ul>`;
  return { title: 'Create a rule', body };
}

/** The trusted issuer with this name; one of the kind `other` if there is none, so that the API refuses the name. */
async function issuerNamed(call: PageCall, name: string | null): Promise<Issuer> {
  const issuers = await issuersOf(call);
  return issuers.find((each) => each.name === name) ?? { name: name ?? '', issuer: '', audience: '', kind: 'other' };
}

const editPage: Page = {
  path: '/publishers/:id',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const rule = await ruleOf(call);
    const issuer = await issuerNamed(call, rule.issuer);
    return formView('Change a rule', call, call.refused ?? formOf(rule, issuer), issuer);
  },
  send: async (call) => {
    const { api, params, form } = call;
    const issuer = await issuerNamed(call, form.get('issuer'));
    try {
      await api.call('updatePublisher', publisher, { params: { id: params['id']! }, body: bodyOf(form, issuer) });
      return { to: '/console/publishers', done: 'rule-saved' };
    } catch (error) {
      return { refused: new Form(form, ruleErrors(error)) };
    }
  },
};

/** What the CI of a rule has to do. */
const usePage: Page = {
  path: '/publishers/:id/use',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const { name, issuer, last_used_at: used } = await ruleOf(call);
    const { file, text } = workflowOf(await issuerNamed(call, issuer), call.urls, call.principal.accountName);
    const body = html`<p>
        The rule <strong>${name}</strong> accepts identity tokens of ${issuer}. Last used: ${ago(used, call.now)}.
      </p>
      <p>Paste this into <code>${file}</code>:</p>
      ${lines(text, 'what the CI runs')}
      <p>
        If it is refused, <a href="/console/publishers/explain">explain a token</a> says which claim does not match.
        <a href="/console/publishers">All rules</a>
      </p>`;
    return { title: 'Use a rule in a CI', body };
  },
};

function ruleErrors(error: unknown): Errors {
  const { name, message } = error as DomainError;
  return name === 'AlreadyExists' ? { name: message } : fieldErrors(error);
}

async function ruleOf({ api, params }: PageCall): Promise<Publisher> {
  return api.call('getPublisher', publisher, { params: { id: params['id']! } });
}

async function issuersOf({ api }: PageCall): Promise<Issuer[]> {
  return (await api.call('listTrustedIssuers', trustedIssuerList)).items;
}

/** The claims of the fields, and those of the lines. A claim in several lines has several values. */
function bodyOf(form: URLSearchParams, { kind }: Issuer): Record<string, unknown> {
  const claims = new Map<string, string[]>();
  const own = namedClaims(kind).map((claim) => `${claim} = ${fieldOf(form, claimField(claim))}`);
  const given = own.filter((line) => !line.endsWith(' = '));
  for (const line of [...given, ...fieldOf(form, 'claims').split('\n')].map((each) => each.trim())) {
    if (line === '') continue;
    const at = line.indexOf('=');
    const name = (at < 0 ? line : line.slice(0, at)).trim();
    const values = claims.get(name) ?? [];
    values.push(at < 0 ? '' : line.slice(at + 1).trim());
    claims.set(name, values);
  }
  return {
    name: fieldOf(form, 'name'),
    issuer: fieldOf(form, 'issuer'),
    claims: Object.fromEntries(claims),
    scopes: form.getAll('scope'),
    patterns: patternsOf(form) ?? null,
  };
}

function formOf({ name, issuer, claims, scopes, patterns }: Publisher, { kind }: Issuer): Form {
  const form = new URLSearchParams({ name, issuer });
  const named = new Set(namedClaims(kind));
  const further: string[] = [];
  for (const [claim, values] of Object.entries(claims)) {
    if (named.has(claim) && values.length === 1) form.set(claimField(claim), values[0]!);
    else further.push(...values.map((value) => `${claim} = ${value}`));
  }
  form.set('claims', further.join('\n'));
  for (const scope of scopes) form.append('scope', scope);
  for (const [plural, some] of Object.entries(patterns ?? {})) form.set(plural, some.join(' '));
  return new Form(form);
}

function formView(title: string, { principal }: PageCall, form: Form, issuer: Issuer): PageView {
  const body = html`<form method="post" class="panel narrow">
    ${form.error('form')} ${form.error('issuer')}
    <input type="hidden" name="issuer" value="${issuer.name}" />
    <p>For tokens of <strong>${issuer.name}</strong> <span class="quiet">${issuer.issuer}</span></p>
    ${form.input('name', 'Name', {
      attributes: html`required maxlength="200"`,
      hint: 'The tokens that the rule gives have the same name. The audit shows it.',
    })}
    ${claimFields(form, issuer.kind)} ${scopeFields(principal, form)} ${patternFields(form)}
    <button class="primary">Save</button>
    <a href="/console/publishers">Cancel</a>
  </form>`;
  return form.view(title, body);
}

const deletePage: Page = {
  path: '/publishers/:id/delete',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const { name } = await ruleOf(call);
    const body = html`<p>
        Identity tokens that only the rule <strong>${name}</strong> accepts are refused from then on. The tokens that it
        gave stop working at once. This cannot be undone.
      </p>
      ${confirmForm('Delete the rule', 'Keep it', '/console/publishers')}`;
    return { title: 'Delete a rule', body };
  },
  send: async ({ params, api }): Promise<Redirect> => {
    await api.do('deletePublisher', { params: { id: params['id']! } });
    return { to: '/console/publishers', done: 'rule-deleted' };
  },
};

const explainPage: Page = {
  path: '/publishers/explain',
  section: 'tokens',
  action: 'admin',
  show: ({ refused }) => Promise.resolve(explainView(undefined, refused)),
  send: async (call: FormCall) => {
    try {
      const body = { token: trimmedField(call.form, 'token') };
      const found = await call.api.call('explainPublishers', explanation, { body });
      return explainView(found, undefined, found.issuer === null ? undefined : await issuerNamed(call, found.issuer));
    } catch (error) {
      return { refused: new Form({}, fieldErrors(error)) };
    }
  },
};

/** The token is not shown again: it may still be valid. */
function explainView(found: Explanation | undefined, form = new Form(), issuer?: Issuer): PageView {
  const body = html`${found && resultOf(found)} ${found && issuer && ruleFrom(found, issuer)}
    <form method="post" class="panel narrow">
      ${form.area('token', 'Identity token', {
        attributes: html`rows="5" spellcheck="false" required`,
        hint: 'The token is compared with the rules. It is not exchanged, and not stored.',
      })}
      <button class="primary">Explain</button>
      <a href="/console/publishers">Back to the rules</a>
    </form>`;
  return form.view('Explain a token', body);
}

/** Leads to the form of a rule, with the claims of the token that have a field there. */
function ruleFrom({ claims }: Explanation, { name, kind }: Issuer): Html {
  const named = namedClaims(kind).flatMap((claim) => {
    const value = claims[claim];
    return typeof value === 'string' || typeof value === 'number'
      ? [[claimField(claim), String(value).slice(0, 500)]]
      : [];
  });
  const address = withQuery('/console/publishers/new', { issuer: name, ...Object.fromEntries(named) });
  return html`<p><a class="button" href="${address}">Create a rule from this token</a></p>`;
}

function resultOf({ issuer, problem, claims, rules }: Explanation): Html {
  return html`<section>
    <p role="status">
      ${problem === null ? `The token of the issuer ${issuer} is accepted.` : `The token is refused: ${problem}`}
    </p>
    ${rules.length === 0 && html`<p class="empty">The account has no rules. Create one first.</p>`}
    <ul>
      ${rules.map(
        ({ name, matches, mismatches }) =>
          html`<li>
            <strong>${name}</strong>: ${verdictOf(matches, mismatches)}
            ${
              mismatches &&
              mismatches.length > 0 &&
              html`<ul>
                ${mismatches.map(
                  ({ claim, wanted, found }) =>
                    html`<li>
                      <code>${claim}</code> is ${found.join(', ').slice(0, 500) || 'missing'}, but must be
                      ${wanted.join(' or ')}
                    </li>`,
                )}
              </ul>`
            }
          </li>`,
      )}
    </ul>
    <h2>Claims of the token</h2>
    ${facts(
      ...Object.entries(claims)
        .slice(0, 100)
        .map(
          ([claim, value]) =>
            [claim, (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, 500)] as const,
        ),
    )}
  </section>`;
}

function verdictOf(matches: boolean, mismatches: readonly unknown[] | null): string {
  if (matches) return 'matches';
  if (mismatches === null) return 'is for another issuer';
  return mismatches.length > 0 ? 'does not match' : 'its claims match, but the token is refused';
}

/** In the order of routing: fixed paths before those with an ID. */
export const publisherPages: readonly Page[] = [listPage, newPage, explainPage, editPage, usePage, deletePage];
