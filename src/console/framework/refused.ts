import type { Principal } from '../../accounts/principal.ts';
import type { RefusedForms } from '../../accounts/refused-forms.ts';
import { splitTarget } from '../../http/target.ts';
import { leadTo } from './answers.ts';
import { Form, type Errors } from './form.ts';
import type { RefusedForm } from './page.ts';
import { shownAccount } from './shown-account.ts';
import type { Visit } from './visit.ts';

/**
 * What looks like a token of this server, a secret of a webhook, an identity token, or an address with a password. No part looks
 * far ahead for what must follow: a text with many beginnings of it would take the square of its length.
 */
const secrets = /\bent_\w{10,}|\bwhsec_\S+|\beyJ[\w-]{10}[\w.-]*|\/\/[^/\s]*@/g;

/**
 * Leads to the page that shows a refused form again, whose address can be loaded again and left with the button Back. Values
 * that contain a secret, such as a token in a wrong field, are not kept, so the page shows their fields empty.
 */
export async function leadToRefused(
  { request, response, principal }: Visit,
  { refused: { values, errors }, at = request.originalUrl }: RefusedForm,
  forms: RefusedForms,
): Promise<void> {
  const kept = {
    values: [...values].filter(([, value]) => value.search(secrets) === -1),
    errors: Object.entries(errors).map(([field, message]) => [field, message.replaceAll(secrets, '…')]),
  };
  const id = await forms.keep(principal!, JSON.stringify(kept));
  const { path, query } = splitTarget(at);
  const parameters = new URLSearchParams(query);
  parameters.set('refused', id);
  parameters.delete(shownAccount);
  leadTo(response, `${path}?${parameters.toString()}`);
}

/** The refused form with an ID; undefined if the visitor has sent none such within the last hour. */
export async function refusedForm(
  principal: Principal,
  id: string | undefined,
  forms: RefusedForms,
): Promise<Form | undefined> {
  const content = id === undefined ? undefined : await forms.find(principal, id);
  if (content === undefined) return undefined;
  const { values, errors } = JSON.parse(content) as { values: [string, string][]; errors: [string, string][] };
  return new Form(new URLSearchParams(values), Object.fromEntries(errors) satisfies Errors);
}
