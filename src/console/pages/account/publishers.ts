import type { z } from 'zod';
import {
  explanation,
  publisher,
  publisherList,
  trustedIssuerList,
  type trustedIssuer,
} from '../../../api/publishers/publisher-schemas.ts';
import type { DomainError } from '../../../runtime/errors.ts';
import { confirmForm, fieldErrors, Form, type Errors } from '../../framework/form.ts';
import { copyable, lines } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { limitedTo, patternFields, patternsOf, scopeFields } from '../../framework/rights.ts';
import { facts, type Cells, table } from '../../framework/table.ts';

type Publisher = z.input<typeof publisher>;
type Issuer = z.input<typeof trustedIssuer>;
type Explanation = z.input<typeof explanation>;

/** The rules by which identity tokens of a CI are exchanged for tokens. */
const listPage: Page = {
  path: '/publishers',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const { items } = await call.api.call('listPublishers', publisherList);
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
      ${items.length > 0 && ruleTable(items)}
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

function ruleTable(items: readonly Publisher[]): Html {
  return table(
    [{ name: 'Name' }, 'Issuer', 'Claims', 'Scopes', 'Limited to', { unseen: 'Action' }],
    items.map(ruleRow),
  );
}

function ruleRow({ id, name, issuer, claims, scopes, patterns, source, warnings }: Publisher): Cells {
  const actions = html`<a class="button" href="/console/publishers/${id}">Change<span class="unseen"> ${name}</span></a>
    <a class="button" href="/console/publishers/${id}/delete">Delete…<span class="unseen"> ${name}</span></a>`;
  return [
    html`${name} ${warnings.map((each) => html`<p class="quiet"><span class="state warn">Check</span> ${each}</p>`)}`,
    issuer,
    Object.entries(claims).map(([claim, values]) => html`<div><code>${claim}</code> ${values.join(' or ')}</div>`),
    scopes.join(', '),
    limitedTo(patterns),
    source === 'settings' ? html`<span class="quiet">in the settings</span>` : actions,
  ];
}

const newPage: Page = {
  path: '/publishers/new',
  section: 'tokens',
  action: 'admin',
  show: (call) => formView(call, 'Create a rule', new Form({ scope: 'read' })),
  send: async (call) => {
    try {
      await call.api.call('createPublisher', publisher, { body: bodyOf(call.form) });
      return { to: '/console/publishers', done: 'rule-saved' };
    } catch (error) {
      return formView(call, 'Create a rule', new Form(call.form, ruleErrors(error)));
    }
  },
};

const editPage: Page = {
  path: '/publishers/:id',
  section: 'tokens',
  action: 'admin',
  show: async (call) => formView(call, 'Change a rule', formOf(await ruleOf(call))),
  send: async (call) => {
    const { api, params, form } = call;
    try {
      await api.call('updatePublisher', publisher, { params: { id: params['id']! }, body: bodyOf(form) });
      return { to: '/console/publishers', done: 'rule-saved' };
    } catch (error) {
      return formView(call, 'Change a rule', new Form(form, ruleErrors(error)));
    }
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

/** A claim in several lines has several values. */
function bodyOf(form: URLSearchParams): Record<string, unknown> {
  const claims = new Map<string, string[]>();
  for (const line of (form.get('claims') ?? '').split('\n').map((each) => each.trim())) {
    if (line === '') continue;
    const at = line.indexOf('=');
    const name = (at < 0 ? line : line.slice(0, at)).trim();
    claims.set(name, [...(claims.get(name) ?? []), at < 0 ? '' : line.slice(at + 1).trim()]);
  }
  return {
    name: form.get('name') ?? '',
    issuer: form.get('issuer') ?? '',
    claims: Object.fromEntries(claims),
    scopes: form.getAll('scope'),
    patterns: patternsOf(form) ?? null,
  };
}

function formOf({ name, issuer, claims, scopes, patterns }: Publisher): Form {
  const pairs = Object.entries(claims).flatMap(([claim, values]) => values.map((value) => `${claim} = ${value}`));
  const form = new URLSearchParams({ name, issuer, claims: pairs.join('\n') });
  for (const scope of scopes) form.append('scope', scope);
  for (const [plural, some] of Object.entries(patterns ?? {})) form.set(plural, some.join(' '));
  return new Form(form);
}

async function formView(call: PageCall, title: string, form: Form): Promise<PageView> {
  const issuers = await issuersOf(call);
  const options = issuers.map(({ name, issuer }) => [name, `${name}: ${issuer}`] as const);
  const body = html`<form method="post" class="panel narrow">
    ${form.error('form')}
    ${form.input('name', 'Name', {
      attributes: html`required maxlength="200"`,
      hint: 'The tokens that the rule gives have the same name. The audit shows it.',
    })}
    ${form.select('issuer', 'Issuer', options)}
    ${form.area('claims', 'Claims', {
      attributes: html`rows="5" spellcheck="false" required`,
      hint: html`One in each line, such as <code>repository_id = 123456</code> and <code>ref = refs/tags/*</code>. All
        claims must match. A claim in several lines may have any of these values. IDs never go to another project, names
        can.`,
    })}
    ${scopeFields(call.principal, form)} ${patternFields(form)}
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
  show: () => Promise.resolve(explainView(undefined)),
  send: async ({ api, form }: FormCall) => {
    try {
      const body = { token: (form.get('token') ?? '').trim() };
      return explainView(await api.call('explainPublishers', explanation, { body }));
    } catch (error) {
      return explainView(undefined, fieldErrors(error));
    }
  },
};

/** The token is not shown again: it may still be valid. */
function explainView(found: Explanation | undefined, errors?: Errors): PageView {
  const form = new Form({}, errors);
  const body = html`${found && resultOf(found)}
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
export const publisherPages: readonly Page[] = [listPage, newPage, explainPage, editPage, deletePage];
