import { DomainError, type ErrorName } from '../../runtime/errors.ts';
import { html, type Html, type HtmlPart } from './html.ts';
import type { PageView } from './page.ts';

/** What is wrong, by field. */
export type Errors = Readonly<Record<string, string>>;

/**
 * The errors of a form by field, from a domain error `Invalid`. Those with a name of `ofForm` are errors of the whole form; others
 * are thrown again.
 */
export function fieldErrors(error: unknown, ofForm: readonly ErrorName[] = []): Errors {
  const { name, message, detail } = error as DomainError;
  if (error instanceof DomainError && ofForm.includes(error.name)) return { form: message };
  if (name !== 'Invalid') throw error;
  const list = (detail?.['errors'] ?? [{ field: 'form', message }]) as { field: string; message: string }[];
  const byField: Record<string, string> = {};
  for (const each of list) byField[each.field.split('.')[0]!] ??= each.message;
  return byField;
}

interface Field {
  /** Further attributes. */
  attributes?: Html;
  hint?: HtmlPart;
  /** The field of the operation, if it has another name. */
  errorOf?: string;
}

type Option = readonly [value: string | number, text: string, note?: string];

/** A form with the values that were sent, and the errors beside its fields. */
export class Form {
  readonly values: URLSearchParams;
  readonly errors: Errors;

  constructor(values: URLSearchParams | Record<string, string> = {}, errors: Errors = {}) {
    this.values = new URLSearchParams(values);
    this.errors = errors;
  }

  /** A page with the form. With errors it is answered with 422; see `RefusedForm` for forms that are sent to a page. */
  view(title: string, body: Html, json?: string): PageView {
    const status = Object.keys(this.errors).length > 0 ? 422 : 200;
    return { title, body, status, ...(json !== undefined && { json }) };
  }

  /** The message of a field, if it has an error. */
  error(name: string): Html | undefined {
    const message = this.errors[name];
    return message === undefined
      ? undefined
      : html`<p class="field-error" id="${name}-error" role="alert">${message}</p>`;
  }

  input(name: string, label: string, { attributes, ...field }: Field = {}): Html {
    const value = html`value="${this.values.get(name)}"`;
    return this.#field(name, label, field, (marks) => html`<input ${marks} ${attributes} ${value} />`);
  }

  /** A field whose value is not shown again. */
  file(name: string, label: string, { attributes, ...field }: Field = {}, isRequired = true): Html {
    const required = isRequired && html`required`;
    return this.#field(name, label, field, (marks) => html`<input ${marks} type="file" ${attributes} ${required} />`);
  }

  area(name: string, label: string, { attributes, ...field }: Field = {}): Html {
    return this.#field(
      name,
      label,
      field,
      (marks) => html`<textarea ${marks} ${attributes}>${this.values.get(name)}</textarea>`,
    );
  }

  select(name: string, label: string, options: readonly Option[], field: Field = {}): Html {
    const chosen = this.values.get(name);
    const choices = options.map(
      ([value, text]) =>
        html`<option value="${value}" ${chosen === String(value) ? html`selected` : ''}>${text}</option>`,
    );
    return this.#field(
      name,
      label,
      field,
      (marks) =>
        html`<select ${marks}>
          ${choices}
        </select>`,
    );
  }

  /** Boxes, of which each has a value of the field `name`. */
  choices(
    legend: string,
    name: string,
    options: readonly Option[],
    { errorOf = name, type = 'checkbox' }: { errorOf?: string; type?: 'checkbox' | 'radio' } = {},
  ): Html {
    return html`<fieldset>
      <legend>${legend}</legend>
      ${options.map((each) => this.choice(name, each, type))} ${this.error(errorOf)}
    </fieldset>`;
  }

  /** One box of the field `name`. */
  choice(name: string, [value, text, note]: Option, type: 'checkbox' | 'radio' = 'checkbox'): Html {
    const checked = this.values.getAll(name).includes(String(value)) && html`checked`;
    return html`<label class="choice"
      ><input type="${type}" name="${name}" value="${value}" ${checked} /> ${text}
      ${note !== undefined && html`<span class="quiet">${note}</span>`}</label
    >`;
  }

  #field(name: string, label: string, { hint, errorOf = name }: Field, control: (marks: Html) => Html): Html {
    const isWrong = this.errors[errorOf] !== undefined;
    const described = isWrong && html`aria-invalid="true" aria-describedby="${errorOf}-error"`;
    return html`<label for="${name}">${label}</label> ${control(html`id="${name}" name="${name}" ${described}`)}
      ${this.error(errorOf)} ${hint !== undefined && html`<p class="hint">${hint}</p>`}`;
  }
}

/** The form of a page that asks before a change. `hidden` are pairs of a name and a value. */
export function confirmForm(
  button: string,
  keep: string,
  back: string,
  hidden: readonly (readonly [name: string, value: string])[] = [],
  action?: string,
): Html {
  return html`<form method="post" ${action !== undefined && html`action="${action}"`} class="panel narrow">
    ${hidden.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`)}
    <button class="danger">${button}</button>
    <a href="${back}">${keep}</a>
  </form>`;
}

/** The value of a field that was sent; empty without it. */
export function fieldOf(form: URLSearchParams, name: string): string {
  return form.get(name) ?? '';
}

/** As `fieldOf`, without the space around it. */
export function trimmedField(form: URLSearchParams, name: string): string {
  return fieldOf(form, name).trim();
}

/** The words of a field, which space or commas separate. */
export function fieldWords(form: URLSearchParams, name: string): string[] {
  return fieldOf(form, name)
    .split(/[\s,]+/)
    .filter((each) => each !== '');
}
