import type { Patterns } from '../../accounts/names.ts';
import { byPlural, protocolWords } from '../../config/protocols.ts';
import { scopes, scopeTexts } from '../../accounts/principal.ts';
import { describedBy, fieldError } from './failure.ts';
import { html, type Html } from './html.ts';
import { may } from './layout.ts';
import type { PageCall } from './page.ts';

// The fields of a form that gives rights: scopes, and patterns of names.

type Errors = Readonly<Record<string, string>>;

/** The field `scope`. A visitor is not offered `operate` without having it. */
export function scopeFields(principal: PageCall['principal'], form: URLSearchParams, errors: Errors): Html {
  const chosen = new Set(form.getAll('scope'));
  const offered = scopes.filter((each) => each !== 'operate' || may(principal, 'operate'));
  return html`<fieldset>
    <legend>Scopes</legend>
    ${offered.map(
      (each) =>
        html`<label class="choice"
          ><input type="checkbox" name="scope" value="${each}" ${chosen.has(each) ? html`checked` : ''} /> ${each}
          <span class="quiet">${scopeTexts[each]}</span></label
        >`,
    )}
    ${fieldError('scopes', errors)}
  </fieldset>`;
}

/** A field for the patterns of each kind of names. */
export function patternFields(form: URLSearchParams, errors: Errors): Html {
  const examples = protocolWords.map(({ example }) => html`<code>${example.split(',', 1)[0]}</code>`);
  return html`${protocolWords.map(
      ({ plural, word }, index) =>
        html`<label for="${plural}">Only ${word}s</label>
          <input
            id="${plural}"
            name="${plural}"
            value="${form.get(plural)}"
            ${index === 0 ? describedBy('patterns', errors) : ''}
          />`,
    )}
    ${fieldError('patterns', errors)}
    <p class="hint">
      Patterns such as ${examples.map((each, index) => html`${index === 0 ? '' : ' and '}${each}`)}, separated by
      spaces. Leave all empty for all names.
    </p>`;
}

/** The patterns in the fields; undefined if all are empty. */
export function patternsOf(form: URLSearchParams): Record<string, string[]> | undefined {
  const patterns = byPlural(({ plural }) => (form.get(plural) ?? '').split(/[\s,]+/).filter((each) => each !== ''));
  return Object.values(patterns).every(({ length }) => length === 0) ? undefined : patterns;
}

/** The names that patterns allow, in a table. */
export function limitedTo(patterns: Patterns | null): Html {
  if (!patterns) return html`<span class="quiet">all names</span>`;
  return html`${Object.values(patterns).flat().join(', ')}`;
}
