import { verbs } from '../../accounts/grant-rows.ts';
import type { Patterns } from '../../accounts/names.ts';
import { byPlural, protocolWords } from '../../config/protocols.ts';
import { scopes, scopeTexts } from '../../accounts/principal.ts';
import { fieldWords, type Form } from './form.ts';
import { html, type Html } from './html.ts';
import { may } from './layout.ts';
import type { PageCall } from './page.ts';

// The fields of a form that gives rights: scopes, and patterns of names. And whose objects a visitor may look at.

/** Whose objects a page shows: those of the account, or of all accounts. */
export type ShownLayer = 'account' | 'all';

/** What the address asks for. Only `operate` sees all accounts. */
export function layerOf({ query, principal }: PageCall): ShownLayer {
  return query['layer'] === 'all' && may(principal, 'operate') ? 'all' : 'account';
}

/** The field `scope`. A visitor is not offered `operate` without having it. */
export function scopeFields(principal: PageCall['principal'], form: Form): Html {
  const offered = scopes.filter((each) => each !== 'operate' || may(principal, 'operate'));
  const options = offered.map((each) => [each, each, scopeTexts[each]] as const);
  return form.choices('Scopes', 'scope', options, { errorOf: 'scopes' });
}

/** The field `verb`, with what a grant can give. */
export function verbFields(form: Form): Html {
  const options = verbs.map((each) => [each, each, scopeTexts[each]] as const);
  return form.choices('May', 'verb', options, { errorOf: 'verbs' });
}

/** A field for the patterns of each kind of names. */
export function patternFields(form: Form): Html {
  const examples = protocolWords.map(({ example }) => html`<code>${example.split(',', 1)[0]}</code>`);
  const fields = protocolWords.map(({ plural, word }, index) =>
    form.input(plural, `Only ${word}s`, index === 0 ? { errorOf: 'patterns' } : {}),
  );
  return html`${fields}
    <p class="hint">
      Patterns such as ${examples.map((each, index) => html`${index === 0 ? '' : ' and '}${each}`)}, separated by
      spaces. Leave all empty for all names.
    </p>`;
}

/** The patterns in the fields; undefined if all are empty. */
export function patternsOf(form: URLSearchParams): Record<string, string[]> | undefined {
  const patterns = byPlural(({ plural }) => fieldWords(form, plural));
  return Object.values(patterns).every(({ length }) => length === 0) ? undefined : patterns;
}

/** The names that patterns allow, in a table. */
export function limitedTo(patterns: Patterns | null): Html {
  if (!patterns) return html`<span class="quiet">all names</span>`;
  return html`${Object.values(patterns).flat().join(', ')}`;
}
