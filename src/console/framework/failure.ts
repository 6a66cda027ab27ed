import { statusOf } from '../../api/framework/errors.ts';
import type { DomainError } from '../../runtime/errors.ts';
import { copyable } from './format.ts';
import { html, type Html } from './html.ts';
import type { PageView } from './page.ts';

const titles: Record<number, string> = {
  401: 'Sign in',
  403: 'Not allowed',
  404: 'Not found',
  503: 'Not available now',
};

/** The page for an error; without one, for a bug. `requestId` finds the details in the log. */
export function failureView(error: DomainError | undefined, requestId: string): PageView {
  const status = error ? statusOf(error) : 500;
  const title = titles[status] ?? (status < 500 ? 'This does not work' : 'The server failed');
  const message = error?.message ?? 'The server failed because of a bug. Its log has the details.';
  const body = html`<p class="failure" role="alert">${message}</p>
    <p class="quiet">Request ${copyable(requestId)}</p>
    <p><a href="/console/">Go to the overview</a></p>`;
  return { title, body, status };
}

/** The errors of a form by field, from a domain error `Invalid`; other errors are thrown again. */
export function fieldErrors(error: unknown): Readonly<Record<string, string>> {
  const { name, message, detail } = error as DomainError;
  if (name !== 'Invalid') throw error;
  const list = (detail?.['errors'] ?? [{ field: 'form', message }]) as { field: string; message: string }[];
  const byField: Record<string, string> = {};
  for (const each of list) byField[each.field.split('.')[0]!] ??= each.message;
  return byField;
}

/** The message beside the field `name`, if it has an error. Its field refers to it with `describedBy`. */
export function fieldError(name: string, errors: Readonly<Record<string, string>>): Html | undefined {
  const message = errors[name];
  return message === undefined
    ? undefined
    : html`<p class="field-error" id="${name}-error" role="alert">${message}</p>`;
}

/** The attributes that mark a field with an error. */
export function describedBy(name: string, errors: Readonly<Record<string, string>>): Html | undefined {
  return errors[name] === undefined ? undefined : html`aria-invalid="true" aria-describedby="${name}-error"`;
}
