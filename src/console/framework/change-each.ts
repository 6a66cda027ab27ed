import { statusOf } from '../../api/framework/errors.ts';
import { isDomainError, type DomainError } from '../../runtime/errors.ts';
import { countText } from './format.ts';
import { html, type HtmlPart } from './html.ts';
import type { PageView } from './page.ts';

/** A change that a form asks for, with the name of what it changes. */
type Change = readonly [what: HtmlPart, make: () => Promise<unknown>];

/**
 * Makes all changes of a form, also those after one that is refused. Resolves to a page that says what was refused, with a link to
 * `back`; undefined if nothing was. Throws the refusal if the form asks for one change only.
 */
export async function changeEach(changes: readonly Change[], back: string): Promise<PageView | undefined> {
  const refused: { what: HtmlPart; error: DomainError }[] = [];
  let tried = 0;
  for (const [what, make] of changes) {
    tried += 1;
    try {
      await make();
    } catch (error) {
      if (changes.length === 1 || !isDomainError(error)) throw error;
      refused.push({ what, error });
      // The server failed. Each further change could wait for the same failure.
      if (statusOf(error) >= 500) break;
    }
  }
  if (refused.length === 0) return undefined;
  const [done, left] = [tried - refused.length, changes.length - tried];
  const body = html`<p class="failure" role="alert">
      Done: ${countText(done)} of ${countText(changes.length)}. Not
      done${left > 0 && html`, and ${countText(left)} more were not tried`}:
    </p>
    <ul>
      ${refused.map(({ what, error }) => html`<li><strong>${what}</strong>: ${error.message}</li>`)}
    </ul>
    <p><a href="${back}">Go back</a></p>`;
  return { title: 'Not all is done', body, status: statusOf(refused[0]!.error) };
}
