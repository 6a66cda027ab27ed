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

/** The fields `packages` and `containers`. */
export function patternFields(form: URLSearchParams, errors: Errors): Html {
  return html`<label for="packages">Only packages</label>
    <input id="packages" name="packages" value="${form.get('packages')}" ${describedBy('patterns', errors)} />
    <label for="containers">Only images</label>
    <input id="containers" name="containers" value="${form.get('containers')}" />
    ${fieldError('patterns', errors)}
    <p class="hint">
      Patterns such as <code>Contoso.*</code> and <code>team/*</code>, separated by spaces. Leave both empty for all
      names.
    </p>`;
}

/** The patterns in the fields `packages` and `containers`; undefined if both are empty. */
export function patternsOf(form: URLSearchParams): { packages: string[]; containers: string[] } | undefined {
  const read = (name: string) => (form.get(name) ?? '').split(/[\s,]+/).filter((each) => each !== '');
  const [packages, containers] = [read('packages'), read('containers')];
  return packages.length + containers.length === 0 ? undefined : { packages, containers };
}

/** The names that patterns allow, in a table. */
export function limitedTo(patterns: { packages: readonly string[]; containers: readonly string[] } | null): Html {
  if (!patterns) return html`<span class="quiet">all names</span>`;
  return html`${[...patterns.packages, ...patterns.containers].join(', ')}`;
}
