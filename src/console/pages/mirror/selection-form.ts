import type { z } from 'zod';
import type { prefetchList } from '../../../api/prefetch/prefetch-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { Form } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import type { RefusedForm } from '../../framework/page.ts';

// The parts that forms share whose files list packages and images.

/** The form, with the defaults of a prefetch or with what was refused. */
export function selectionForm(
  { platforms, frameworks, referrers }: z.input<typeof prefetchList>['defaults'],
  refused: Form | undefined,
): Form {
  const given = { platforms: platforms.join(', '), frameworks: frameworks.join(', '), referrers: String(referrers) };
  return new Form({ ...given, ...Object.fromEntries(refused?.values ?? []) }, refused?.errors);
}

/** The fields that select what of a name is fetched. */
export function selectionInputs(form: Form): Html {
  return html`${form.input('platforms', 'Platforms of images', {
    attributes: html`maxlength="1000"`,
    hint: html`Such as <code>linux/amd64, linux/arm64</code>. Leave it empty for all.`,
  })}
  ${form.input('frameworks', 'Target frameworks of packages', {
    attributes: html`maxlength="1000"`,
    hint: html`Such as <code>net8.0</code>. Leave it empty for those of the files.`,
  })}`;
}

/** The form again, with what was sent and the errors beside its fields. Errors that are not `shown` are thrown again. */
export function refusedSelection(error: unknown, shown: ReadonlySet<string>): RefusedForm {
  if (!(error instanceof DomainError) || !shown.has(error.name)) throw error;
  const { detail, message } = error;
  const list = (detail?.['errors'] ?? [{ field: 'file', message }]) as { field: string; message: string }[];
  const errors = Object.fromEntries(list.map((each) => [each.field, each.message]));
  return { refused: new Form((detail?.['fields'] ?? {}) as Record<string, string>, errors) };
}
