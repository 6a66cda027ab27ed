import { protocolWords } from '../../config/protocols.ts';
import type { Form } from './form.ts';
import { html, type Html } from './html.ts';

// What the pages of requests share: one person asks for something about content, and another one decides.

/** The fields of the kind and the name of what is asked for. */
export function contentFields(form: Form): Html {
  const kinds = protocolWords.map(({ word }) => [word, word] as const);
  return html`${form.select('kind', 'Kind', kinds)}
  ${form.input('name', 'Name', { attributes: html`maxlength="255" required` })}`;
}

/** Who asked or decided, in a sentence; null for nobody. */
export function byText(actor: { name: string | null; id: string | null } | null): string | null {
  return actor && `by ${actor.name ?? actor.id}`;
}
