import type { z } from 'zod';
import { policyCheck, policyItem } from '../../../api/policy/policy.ts';
import { typed } from '../../../runtime/command-name.ts';
import { ago } from '../../framework/format.ts';
import { fieldErrors, Form, fieldOf } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { withQuery } from '../../framework/links.ts';
import { layerOf, type ShownLayer } from '../../framework/rights.ts';
import { heldTable } from './held.ts';
import type { FormCall, Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';

const path = '/console/policy';

const layerTexts = { account: 'Of this account', all: 'Of all accounts' } as const;

/** Which content of upstreams clients get: the policy of the account and, for `operate`, the one of all accounts. */
export const policyPage: Page = {
  path: '/policy',
  section: 'packages',
  action: 'account',
  show: async (call) => {
    const layer = layerOf(call);
    if (call.refused) return policyView(call, layer, call.refused);
    const { text } = await call.api.call('getPolicy', policyItem, { query: { layer } });
    return policyView(call, layer, new Form({ text: text ?? '' }));
  },
  send: async (call): Promise<PageView | Redirect | RefusedForm> => {
    const layer = layerOf(call);
    try {
      return await apply(call, layer);
    } catch (error) {
      const errors = fieldErrors(error);
      const text = errors['text'] ?? Object.values(errors).join(' ');
      return { refused: new Form(call.form, { text }), at: withQuery(path, { layer }) };
    }
  },
};

/** Checks the text. Applies it if the visitor wants that, and has confirmed it if it refuses next to everything. */
async function apply(call: FormCall, layer: ShownLayer): Promise<PageView | Redirect> {
  const { api, form } = call;
  const { policy, warning } = await api.call('checkPolicy', policyCheck, { body: { text: fieldOf(form, 'text') } });
  const wantsIt = form.get('act') === 'apply' && (warning === null || form.get('confirmed') === 'yes');
  if (!wantsIt) return policyView(call, layer, new Form(form), warning ?? 'This text is valid. Nothing was changed.');
  await api.call('putPolicy', policyItem, { query: { layer }, body: policy ?? {} });
  return { to: withQuery(path, { layer }), done: 'policy-changed' };
}

async function policyView(call: PageCall, layer: ShownLayer, form: Form, checked?: string): Promise<PageView> {
  const { api, principal, now } = call;
  const stored = await api.call('getPolicy', policyItem, { query: { layer } });
  const mayChange = may(principal, layer === 'all' ? 'operate' : 'admin');
  const body = html`<p>
      What one of the policies refuses is refused. Hosted content has no policy.
      <a href="/console/explain">Explain a name</a> says what is decided of one, and why.
      <a href="/console/waivers">Waivers</a> let something through for a time.
    </p>
    ${may(principal, 'operate') && layerLinks(layer)} ${stateOf(stored, now)}
    ${checked !== undefined && html`<p class="notice" role="status">${checked}</p>`}
    ${!isTooLong(stored) && policyForm(form, layer, mayChange)}
    ${may(principal, 'operate') && (await heldTable(call, path, { layer }))}`;
  return form.view('Policy', body, withQuery('/v1/policy', { layer }));
}

function policyForm(form: Form, layer: ShownLayer, mayChange: boolean): Html {
  return html`<form method="post" class="panel" action="${withQuery(path, { layer })}">
    ${form.area('text', 'The policy, as YAML', {
      attributes: html`rows="20" spellcheck="false" ${!mayChange && html`readonly`}`,
      hint: 'An empty text ends the policy.',
    })}
    ${mayChange && html`<button name="act" value="check">Check</button> <button class="primary" name="act" value="apply">Apply</button>`}
    ${
      mayChange &&
      html`<label class="choice"
        ><input type="checkbox" name="confirmed" value="yes" /> Also if it refuses next to everything</label
      >`
    }
  </form>`;
}

/** A page without its text must not offer to replace it by nothing. */
function isTooLong({ policy, text }: z.input<typeof policyItem>): boolean {
  return policy !== null && text === null;
}

function layerLinks(layer: ShownLayer): Html {
  return html`<p class="choices">
    ${Object.entries(layerTexts).map(
      ([key, text]) =>
        html`<a href="${withQuery(path, { layer: key })}" ${key === layer && html`aria-current="true"`}>${text}</a> `,
    )}
  </p>`;
}

function stateOf(stored: z.input<typeof policyItem>, now: number): Html {
  const { policy, changed_at: at, suspended_until: until } = stored;
  if (policy === null) return html`<p class="empty">There is no policy: clients get all that the upstreams have.</p>`;
  const mode = policy['mode'] === 'audit' ? 'Refusals are only counted' : 'In force';
  return html`${
      until !== null &&
      html`<p class="warning">
        Suspended: it is enforced again ${ago(until, now)}. Until then it refuses nothing, except what its lists of
        known bad content name.
      </p>`
    }
    <p>
      ${mode}, changed ${ago(at, now)}.
      ${isTooLong(stored) && html`It is too long for this page: use <code>${typed('policy show')}</code>.`}
    </p>`;
}
